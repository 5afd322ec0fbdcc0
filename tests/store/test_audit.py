"""crdtmem.store.audit"""

import pytest

from crdtmem.limits import AUDIT_ROWS
from crdtmem.store.audit import (
    PRUNE_EACH,
    add_audit,
    audit_before,
    audit_since,
    lanes_of,
)
from crdtmem.store.rows import AuditRow
from tests.store.writes import NAMESPACE, append

ROW = AuditRow(
    lsn=0,
    doc=1,
    at_ms=3,
    replica=b"r",
    lanes='["a", "b"]',
    operation="sync",
    rev_before=1,
    rev=2,
    size_before=3,
    size=4,
    details="{}",
)


def test_each_change_has_a_row_without_its_text(store):
    first = append(store, "plan", "one")
    second = append(store, "notes", "two")
    with store.reading() as connection:
        rows = audit_since(connection, 0)
        later = audit_since(connection, first.lsn)

    assert [(row.lsn, row.doc, row.operation, row.rev) for row in rows] == [
        (first.lsn, first.doc, "append", 1),
        (second.lsn, second.doc, "append", 1),
    ]
    assert [lanes_of(row) for row in rows] == [["a"], ["a"]]
    assert later == rows[1:]
    assert "one" not in str(rows)


def test_rows_are_paged_newest_first_with_their_slots(store):
    append(store, "plan", "one")
    append(store, "notes", "two")
    last = append(store, "plan", "three")
    with store.reading() as connection:
        page = audit_before(connection, last.lsn + 1, 2)
        rest = audit_before(connection, page[-1][0].lsn, 2)

    assert [(row.lsn, *where) for row, *where in page] == [
        (last.lsn, NAMESPACE, "plan"),
        (last.lsn - 1, NAMESPACE, "notes"),
    ]
    assert [(row.rev, label) for row, _, label in rest] == [(1, "plan")]


@pytest.mark.parametrize("extra", [-1, 0, 1, 7])
def test_the_newest_rows_are_kept(store, extra):
    append(store, "plan", "one")
    # The last one is due for pruning; it is written by add_audit.
    newest = (AUDIT_ROWS // PRUNE_EACH + 2) * PRUNE_EACH
    first = newest - (AUDIT_ROWS + extra) + 1
    with store.writing() as transaction:
        connection = transaction.connection
        connection.execute("DELETE FROM audit")
        connection.execute(
            "INSERT INTO audit WITH RECURSIVE n(lsn) AS (VALUES(:first) UNION ALL"
            " SELECT lsn + 1 FROM n WHERE lsn + 1 < :newest)"
            " SELECT lsn, 1, 0, x'', '[]', 'append', 0, 0, 0, 0, '{}' FROM n",
            {"first": first, "newest": newest},
        )
        add_audit(connection, ROW._replace(lsn=newest))
        kept = connection.execute("SELECT count(*), min(lsn), max(lsn) FROM audit").get

    assert kept == (
        min(AUDIT_ROWS, AUDIT_ROWS + extra),
        max(first, newest - AUDIT_ROWS + 1),
        newest,
    )
