"""crdtmem.store.about"""

import pytest

from crdtmem.errors import StoreCorruptError
from crdtmem.store.about import (
    StoreFigures,
    about_store,
    data_version,
    store_figures,
)
from crdtmem.store.schema import MIGRATIONS
from crdtmem.store.store import Store
from tests.store.writes import append, contents_of, damage, is_lock_free, texts


def test_a_store_knows_its_replica_its_place_and_its_newest_step(store):
    with store.reading() as connection:
        before = about_store(connection, str(store.path))
    append(store, "plan", "one", "two")
    with store.reading() as connection:
        after = about_store(connection, str(store.path))

    assert (before.lsn, before.context, before.history_keep) == (0, store.context, 20)
    assert len(before.replica) == 16
    assert after == before._replace(lsn=2)


def test_a_store_tells_its_version_its_records_and_its_size(store, folder):
    append(store, "plan", "one", "two")
    store.checkpoint()
    with store.reading() as connection:
        figures = store_figures(connection)

    assert figures == StoreFigures(
        schema=len(MIGRATIONS),
        records=2,
        size_bytes=(folder / "store.db").stat().st_size,
    )


def test_a_number_changes_with_what_others_commit(store, folder):
    other = Store(folder / "store.db")
    append(store, "plan", "one")
    with store.reading() as connection:
        before = data_version(connection)
        append(store, "plan", "my own")
        own = data_version(connection)
        append(other, "plan", "theirs")
        after = data_version(connection)
    other.close()

    assert own == before
    assert after != before


def test_a_store_without_its_row_about_itself_is_corrupt(store, folder):
    append(store, "plan", "one")
    damage(store, "DELETE FROM store")
    with pytest.raises(StoreCorruptError) as raised:
        append(store, "plan", "two")

    assert raised.value.code == "store-corrupt"
    assert str(store.path) in raised.value.message
    assert "its row about itself is missing" in raised.value.message
    assert texts(store) == {"plan": "one\n"}
    assert is_lock_free(store)
    store.close()
    assert sorted(contents_of(folder)) == ["store.db", "store.lock"]
