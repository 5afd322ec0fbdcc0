"""crdtmem.store.log"""

from typing import Any

import pytest

from crdtmem.errors import DocError
from crdtmem.protocol.records import DocKind
from crdtmem.store.log import (
    Checkpoint,
    count_rows,
    find_doc,
    forget_rows,
    load_checkpoint,
    log_of,
    make_doc,
    require_intact,
    save_checkpoint,
    targets_of,
)
from tests.store.writes import NAMESPACE, append, log

FIELDS: dict[str, Any] = {
    "lsn": 99,
    "doc": 9,
    "replica": b"other",
    "is_genesis": 1,
    "lane": "b",
    "at_ms": 0,
    "operation": "x",
    "content": b"",
    "delta": "[]",
    "undoes": "[1]",
    "digest": b"",
}


def test_an_intact_row_is_given_back(store):
    append(store, "plan", "one")
    (row,) = log(store, "plan")

    assert require_intact(row) == row


@pytest.mark.parametrize("field", FIELDS)
def test_a_change_of_any_field_is_found(store, field):
    append(store, "plan", "one")
    (row,) = log(store, "plan")
    changed = row._replace(**{field: FIELDS[field]})
    with pytest.raises(DocError) as raised:
        require_intact(changed)

    assert raised.value.message == f"record {changed.lsn} is damaged"


def test_the_number_that_a_record_gets_when_it_is_sealed_is_no_damage(store):
    append(store, "plan", "one")
    (row,) = log(store, "plan")

    assert require_intact(row._replace(replica_seq=4, place=2)).replica_seq == 4


def test_rows_come_in_log_order_between_two_steps(store):
    append(store, "plan", "one")
    append(store, "notes", "two")
    append(store, "plan", "three", "four")
    with store.reading() as connection:
        doc = find_doc(connection, NAMESPACE, DocKind.SLOT, "plan")
        found = [row.lsn for row in log_of(connection, doc, after=1)]
        until = [row.lsn for row in log_of(connection, doc, after=0, until=3)]
        count = count_rows(connection, doc)

    assert (found, until, count) == ([3, 4], [1, 3], 3)


def test_forgotten_rows_are_those_of_the_doc_up_to_the_step(store):
    append(store, "plan", "one")
    append(store, "notes", "two")
    append(store, "plan", "three", "four")
    with store.writing() as transaction:
        forget_rows(transaction.connection, 1, until=3)

    assert [row.lsn for row in log(store, "plan")] == [4]
    assert [row.lsn for row in log(store, "notes")] == [2]


def test_only_an_undo_has_targets(store):
    append(store, "plan", "one")
    (row,) = log(store, "plan")

    assert targets_of(row) is None
    assert targets_of(row._replace(undoes="[1, 2]")) == frozenset({1, 2})
    assert targets_of(row._replace(undoes="[]")) == frozenset()


def test_a_doc_is_known_by_namespace_kind_and_name(store):
    with store.writing() as transaction:
        connection = transaction.connection
        made = [
            make_doc(connection, namespace, kind, name)
            for namespace, kind, name in (
                ("p", DocKind.SLOT, "plan"),
                ("q", DocKind.SLOT, "plan"),
                ("p", DocKind.MEMORY_SET, "plan"),
            )
        ]
        found = find_doc(connection, "q", DocKind.SLOT, "plan")
        missing = find_doc(connection, "r", DocKind.SLOT, "plan")

    assert made == [1, 2, 3]
    assert (found, missing) == (2, 0)


def test_a_checkpoint_is_loaded_as_it_was_saved(store):
    checkpoint = Checkpoint("p", "plan", b"state", 7, "text\n", b"blame", "{}")
    with store.writing() as transaction:
        connection = transaction.connection
        doc = make_doc(connection, "p", DocKind.SLOT, "plan")
        fresh = load_checkpoint(connection, doc)
        save_checkpoint(connection, doc, checkpoint)
        saved = load_checkpoint(connection, doc)

    assert fresh == Checkpoint("p", "plan", b"", 0, "", b"", "{}")
    assert saved == checkpoint._replace(digest=checkpoint.expected_digest)


@pytest.mark.parametrize(
    "fields",
    [
        {"namespace": "q"},
        {"name": "notes"},
        {"state": b"other"},
        {"lsn": 8},
        {"file": "other\n"},
        {"blame": b"other"},
        {"genesis": "[]"},
    ],
)
def test_a_checkpoint_has_a_digest_over_all_that_it_says(fields):
    checkpoint = Checkpoint("p", "plan", b"state", 7, "text\n", b"blame", "{}")
    other = checkpoint._replace(**fields)

    assert checkpoint.expected_digest != other.expected_digest
    assert len(checkpoint.expected_digest) == 16
    assert checkpoint._replace(lsn=0).expected_digest == b""


def test_a_doc_that_is_missing_has_no_checkpoint(store):
    with store.reading() as connection, pytest.raises(DocError, match="doc 9 is miss"):
        load_checkpoint(connection, 9)
