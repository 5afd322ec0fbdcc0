"""What sync asks of the store costs what is new, however much is there already."""

from copy import deepcopy

import apsw
import pytest

from crdtmem.protocol.records import DocKind, doc_tag
from crdtmem.store.holding import has_hole
from crdtmem.store.link_status import link_reports
from crdtmem.store.links import find_link, note_doc
from crdtmem.store.outbox import unsent_counts
from crdtmem.store.progress import pass_snapshot, seen_tag
from crdtmem.store.store import Store
from tests.store.joining import Relay, link_to, sync
from tests.store.writes import NAMESPACE, append, slot

PADDING = 2_000
FEW_STEPS = 100
"""Of SQLite's machine; a single look at all of the padding takes several a row."""


@pytest.fixture
def relay(tmp_path):
    """A relay that has a state of 'old' and a write to 'plan'."""
    relay = Relay()
    other = Store(tmp_path / "other" / "store.db")
    append(other, "old", "from before the link")
    link_to(other)
    append(other, "plan", "theirs")
    sync(relay, other)
    other.close()
    return relay


def linked(folder, *, padding):
    """Make a linked store that has been in sync with many docs for long."""
    store = Store(folder / f"{padding}.db")
    link_to(store)
    append(store, "mine", "a line")
    with store.writing() as transaction:
        transaction.connection.execute(
            "CREATE TEMP TABLE number(n INTEGER PRIMARY KEY);"
            "WITH RECURSIVE count(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM count"
            " WHERE n < :padding) INSERT INTO number SELECT n FROM count"
            " WHERE :padding;"
            "INSERT INTO doc(doc, namespace, kind, name)"
            " SELECT n + 99, 'p', 1, 'slot_' || n FROM number;"
            "INSERT INTO log SELECT -n, n + 99, zeroblob(16), 1, 0, 0, 'x', 1, 'edit',"
            " x'', '[]', NULL, x'', NULL FROM number;"
            "INSERT INTO sync_doc(link, doc, doc_tag)"
            " SELECT 1, n + 99, randomblob(16) FROM number;"
            "INSERT INTO sync_seen SELECT 1, n + 999, randomblob(32), randomblob(16)"
            " FROM number;"
            "DROP TABLE number",
            {"padding": padding},
        )
    return store


def steps_of(store, work):
    """Return how many steps of SQLite's machine some work takes."""
    steps = 0

    def count(event):
        nonlocal steps
        steps += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

    with store.reading() as connection:
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, count)
    work(store)
    with store.reading() as connection:
        connection.trace_v2(0, None)
    store.close()
    return steps


def look_up(store):
    """Make the look-ups of items that come without their content."""
    link = find_link(store, NAMESPACE)
    doc = slot(store, "mine").doc
    with store.writing() as transaction:
        connection = transaction.connection
        note_doc(connection, link, doc)
        pass_snapshot(connection, link, 9, doc_tag(DocKind.SLOT, "mine"))
        assert seen_tag(connection, link, bytes(32)) is None
        assert not has_hole(connection, link, doc)


def report(store):
    """Count what is unsent, and tell how the link stands."""
    assert unsent_counts(store, find_link(store, NAMESPACE)).writes == 1
    with store.snapshot() as connection:
        assert link_reports(connection)[0].unsent.writes == 1


@pytest.mark.parametrize("work", ["sync", "look up", "report"])
def test_sync_costs_what_is_new_however_many_docs_there_are(folder, relay, work):
    """A join, a batch with a state, what is sealed, counts: none goes through all."""
    done = {"sync": lambda store: sync(deepcopy(relay), store), "look up": look_up}
    few, many = (
        steps_of(linked(folder, padding=padding), done.get(work, report))
        for padding in (0, PADDING)
    )

    assert many < few + FEW_STEPS
