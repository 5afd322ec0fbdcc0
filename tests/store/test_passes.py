"""crdtmem.store.passes"""

import pytest

from crdtmem.store.archives import ArchivePart, read_archive
from crdtmem.store.passes import (
    Wait,
    add_pass,
    add_remote_pass,
    clear_wait,
    end_pass,
    find_pass,
    find_wait,
    mark_pass_of_write,
    newest_committed,
    open_pass,
    passes_of,
    set_wait,
)
from tests.store.passes import ONE, TWO, row_of
from tests.store.writes import NAMESPACE, append


@pytest.fixture
def doc(store):
    """The number of a doc that has one line."""
    return append(store, "plan", "text").doc


@pytest.fixture
def connection(store, doc):
    with store.writing() as transaction:
        yield transaction.connection


def remote(connection, doc, pass_id=TWO, after=None, lsn=5):
    add_remote_pass(
        connection,
        pass_id=pass_id,
        doc=doc,
        namespace=NAMESPACE,
        label="plan",
        lane="b",
        after=after,
        parts=[ArchivePart("evicted", "## a", "## a\n")],
        lsn=lsn,
        now_ms=9,
    )


def test_a_pass_is_found_as_it_was_written(connection, doc):
    add_pass(connection, row_of(doc))

    assert find_pass(connection, ONE) == row_of(doc, number=1)
    assert open_pass(connection, doc) == row_of(doc, number=1)
    assert find_pass(connection, TWO) is None
    assert open_pass(connection, doc + 1) is None


def test_a_pass_that_has_ended_is_open_no_more(connection, doc):
    add_pass(connection, row_of(doc, pin=7))
    ended = row_of(
        doc,
        number=1,
        state="committed",
        reason="condensed",
        reply=b"r",
        result="{}",
        lsn=4,
        ended_ms=8,
        pin=7,
    )
    end_pass(connection, ended)

    assert open_pass(connection, doc) is None
    assert find_pass(connection, ONE) == ended._replace(pin=None)


def test_another_stores_pass_is_a_committed_one_with_its_archive(connection, doc):
    remote(connection, doc)
    remote(connection, doc, after=ONE, lsn=6)
    found = find_pass(connection, TWO)

    assert found is not None
    assert (found.state, found.is_remote, found.lane) == ("committed", 1, "b")
    assert (found.after, found.lsn, found.ended_ms) == (None, 5, 9)
    parts = read_archive(connection, doc, found.archive)
    assert parts == [ArchivePart("evicted", "## a", "## a\n")]


def test_the_newest_committed_pass_is_the_one_that_is_in_the_text(connection, doc):
    assert newest_committed(connection, doc) is None
    add_pass(connection, row_of(doc))
    assert newest_committed(connection, doc) is None
    end_pass(connection, row_of(doc, state="committed", lsn=4))
    remote(connection, doc, after=ONE)
    assert newest_committed(connection, doc) == TWO
    mark_pass_of_write(connection, doc, 5, 5, is_undone=True)

    assert newest_committed(connection, doc) == ONE


def test_a_write_marks_the_pass_that_it_is_of(connection, doc):
    add_pass(connection, row_of(doc, state="aborted", lsn=3))
    remote(connection, doc)

    def states():
        return [row.state for row in passes_of(connection, [NAMESPACE])]

    mark_pass_of_write(connection, doc, 1, 4, is_undone=True)
    mark_pass_of_write(connection, doc, 6, 9, is_undone=True)
    mark_pass_of_write(connection, doc + 1, 5, 5, is_undone=True)
    assert states() == ["committed", "aborted"]
    mark_pass_of_write(connection, doc, 3, 5, is_undone=True)
    assert states() == ["undone", "aborted"]
    mark_pass_of_write(connection, doc, 5, 5, is_undone=False)
    assert states() == ["committed", "aborted"]


def test_passes_are_chosen_by_slot_and_state(connection, doc):
    add_pass(connection, row_of(doc))
    remote(connection, doc)
    other = row_of(doc, "cp_other", namespace="global", label="notes")
    add_pass(connection, other)

    def ids(*namespaces, **options):
        found = passes_of(connection, namespaces or [NAMESPACE, "global"], **options)
        return [row.pass_id for row in found]

    assert ids() == ["cp_other", TWO, ONE]
    assert ids(NAMESPACE) == [TWO, ONE]
    assert ids(label="notes") == ["cp_other"]
    assert ids(state="committed") == [TWO]
    assert ids(limit=1) == ["cp_other"]


def test_a_wait_stands_until_it_is_cleared(connection):
    assert find_wait(connection, "doc/1") == Wait()
    set_wait(connection, "doc/1", Wait("timeout", 1, 50))
    set_wait(connection, "doc/1", Wait("timeout", 2, 90))
    set_wait(connection, "summariser/m", Wait("rate-limited", 1, 70))

    assert find_wait(connection, "doc/1") == Wait("timeout", 2, 90)
    clear_wait(connection, "doc/1")
    clear_wait(connection, "doc/1")
    assert find_wait(connection, "doc/1") == Wait()
    assert find_wait(connection, "summariser/m").until_ms == 70
