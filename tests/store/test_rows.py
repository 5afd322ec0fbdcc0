"""crdtmem.store.rows"""

import pytest

from crdtmem.store.rows import PLACE_BITS
from tests.store.writes import append, entries, slot


@pytest.mark.parametrize(
    ("deleted", "file", "is_deleted"),
    [
        (1, "", True),
        (1, "\n", True),
        (1, "text\n", False),
        (0, "", False),
        (0, "text\n", False),
    ],
)
def test_a_slot_is_deleted_while_it_is_marked_and_empty(
    store, deleted, file, is_deleted
):
    append(store, "plan", "one")
    row = slot(store, "plan")._replace(deleted=deleted, file=file)

    assert row.is_deleted == is_deleted


def test_an_entry_is_named_by_the_step_of_its_commit(store):
    append(store, "notes", "one")
    row = append(store, "plan", "two")
    (entry,) = entries(store, "plan")

    assert entry.place == row.doc << PLACE_BITS | row.lsn
    assert entry.lsn == row.lsn == 2
    assert entry.id == f"h2-{entry.mark}"
