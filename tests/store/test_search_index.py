"""crdtmem.store.indexing, crdtmem.store.search: an index that stops nothing."""

import logging
from contextlib import closing

import apsw
import pytest

import crdtmem
from crdtmem.errors import StoreBusyError, StoreReadOnlyError
from crdtmem.limits import (
    INDEX_BATCH_CHARS,
    INDEX_BATCH_ROWS,
    INDEX_PENDING_ROWS,
)
from crdtmem.store.doctor import examine
from crdtmem.store.indexing import (
    count_pending,
    index_batch,
    index_faults,
    index_pending,
    index_quietly,
)
from crdtmem.store.lock import StoreLock
from crdtmem.store.placement import lock_path_for
from crdtmem.store.search import tokens_of
from crdtmem.store.store import Store

HINT = "run 'crdtmem doctor --repair'"


@pytest.fixture
def memory(folder):
    path = folder / "store.db"
    with crdtmem.open(path, lane="a", project="p", durability="normal") as memory:
        yield memory


@pytest.fixture
def facts(memory):
    return memory.bind(partition_key="k").memory_set("facts")


def pending(memory):
    with memory.store.reading() as connection:
        return count_pending(connection)


def faults(memory):
    with memory.store.snapshot() as connection:
        return index_faults(connection)


def rows(memory):
    with memory.store.reading() as connection:
        return dict(connection.execute("SELECT row, line FROM search_row"))


def damage(memory, statement):
    """Change the file behind the handle's back."""
    with closing(apsw.Connection(str(memory.path))) as connection:
        connection.execute(statement)


def search_check(memory, **options):
    found = examine(
        memory.store, namespaces=None, **{"repair": False, **options}, deep=False
    )
    return [(f.status, f.message, f.hint) for f in found if f.id == "search"]


def texts(result):
    return [hit.item.text for hit in result.hits]


def test_what_changes_is_pending_until_it_is_indexed(memory, facts):
    memory.create("plan", "fox")
    added = facts.add(["one fox", "two"])
    assert pending(memory) == 3

    assert index_pending(memory.store, 2, wait_s=5) == 2
    assert index_pending(memory.store, 100, wait_s=5) == 1
    assert index_pending(memory.store, 100, wait_s=5) == 0
    facts.delete(added.ids[0])
    memory.delete("plan")
    assert pending(memory) == 2
    index_pending(memory.store, 100, wait_s=5)
    assert len(rows(memory)) == 1
    assert faults(memory) == []


def test_an_append_leaves_the_rows_before_it_alone(memory):
    memory.create("plan", "# one\nfox\n# two\nbear", size_limit=9_000)
    index_pending(memory.store, 100, wait_s=5)
    before = rows(memory)
    memory.slot("plan").append("# three\nwolf")
    index_pending(memory.store, 100, wait_s=5)
    after = rows(memory)

    assert sorted(after.values()) == [1, 3, 5]
    assert before.items() <= after.items()
    memory.slot("plan").replace("# none\n# two\nbear", expected_rev=1)
    index_pending(memory.store, 100, wait_s=5)
    # No number is used again.
    assert min(rows(memory)) > max(after)
    assert faults(memory) == []


def test_a_batch_ends_after_much_text(memory, facts):
    facts.add(["word " * 13_000] * 8)

    with memory.store.indexing(5) as connection:
        done = index_batch(connection, 100)
    assert 13_000 * 5 * (done - 1) <= INDEX_BATCH_CHARS < 13_000 * 5 * done


def test_a_word_that_is_there_very_often_counts_as_often_as_it_may(memory, facts):
    facts.add(["fox " * 300, "fox " * 255])
    before = facts.search("fox")
    memory.index()

    assert facts.search("fox") == before
    assert len({hit.score for hit in before.hits}) == 2


def test_a_long_text_is_not_remembered():
    assert tokens_of("a " * 1_000).w == ("a",) * 1_000
    assert tokens_of("a b") is tokens_of("a b")


def test_a_writer_that_sees_many_pending_texts_indexes_a_batch(memory, facts):
    facts.add(["fox"] * INDEX_PENDING_ROWS)
    assert pending(memory) == INDEX_PENDING_ROWS - INDEX_BATCH_ROWS
    facts.add(["fox"] * INDEX_BATCH_ROWS)
    facts.add(["fox"])

    # It looks again only after so many changes that there may be as many again.
    assert pending(memory) == INDEX_PENDING_ROWS + 1


def test_a_batch_is_indexed_after_a_checkpoint(memory, facts):
    facts.add(["fox"] * 100)
    before = pending(memory)
    assert before == 100
    memory.create("big", size_limit=1_000_000)
    for number in range(9):
        # As much as a checkpoint takes, in what they write together.
        memory.slot("big").append(f"{number} {'x' * 100_000}")

    assert pending(memory) == before + 1 - INDEX_BATCH_ROWS


def test_a_held_lock_holds_up_no_search_and_its_indexing(memory, facts):
    facts.add(["fox"] * 100)
    with closing(Lock(memory.path)):
        found = facts.search("fox", 100)
        index_quietly(memory.store, 100)
        with pytest.raises(StoreBusyError):
            index_pending(memory.store, 100, wait_s=0)

    assert len(found.hits) == pending(memory) == 100


class Lock:
    """Another handle in the middle of a write."""

    def __init__(self, path):
        self._lock = StoreLock(lock_path_for(path))
        self._lock.acquire(5)

    def close(self):
        self._lock.release()
        self._lock.close()


def test_a_store_for_reading_is_not_indexed(memory):
    memory.create("plan", "fox")
    with closing(Store(memory.path, read_only=True)) as store:
        index_quietly(store, 1)
        with pytest.raises(StoreReadOnlyError):
            index_pending(store, 1, wait_s=5)

    assert pending(memory) == 1


@pytest.mark.requirement("sets-Q1")
def test_a_damaged_index_stops_no_write_and_no_search(memory, facts, caplog):
    facts.add(["one fox", "two foxes"])
    memory.create("plan", "fox")
    memory.index()
    damage(memory, "DELETE FROM search_index_data")
    memory.slot("plan").append("another fox")
    facts.add(["fox"] * INDEX_PENDING_ROWS)
    result = facts.search("fox -two", 1_000)

    assert len(result.hits) == INDEX_PENDING_ROWS + 1
    assert (result.degraded, memory.search("another").degraded) == (True, True)
    assert "could not be indexed" in caplog.text
    assert "cannot be read" in caplog.text
    assert pending(memory) == INDEX_PENDING_ROWS + 1


def test_doctor_makes_a_damaged_index_anew(memory, facts):
    facts.add(["one fox", "two foxes"])
    memory.create("plan", "fox")
    memory.index()
    healthy = facts.search("fox OR foxes")
    damage(memory, "DELETE FROM search_index_data")

    ((status, message, hint),) = search_check(memory)
    assert (status, hint) == ("fail", HINT)
    assert "cannot be read" in message
    ((status, message, hint),) = search_check(memory, repair=True)
    assert (status, hint) == ("fixed", "")
    assert search_check(memory)[0][0] == "ok"
    assert facts.search("fox OR foxes") == healthy
    assert pending(memory) == 0


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        (
            "UPDATE search_row SET length = 9 WHERE row = 1",
            "not that of its text, and 1",
        ),
        ("UPDATE search_row SET line = 9 WHERE row = 1", "and 1 more"),
        ("DELETE FROM search_row WHERE row = 1", "has no row, and 2 more"),
        ("UPDATE search_doc SET length = length + 1", "the sums of its rows are wrong"),
        ("DELETE FROM search_index WHERE rowid = 1", "not that of its text"),
    ],
)
def test_doctor_tells_what_is_wrong_with_an_index_that_can_be_read(
    memory, facts, statement, told
):
    facts.add(["one fox", "two foxes"])
    memory.create("plan", "fox")
    memory.index()
    damage(memory, statement)

    ((status, message, _),) = search_check(memory)
    assert (status, told in message) == ("fail", True), message
    assert search_check(memory, repair=True)[0][0] == "fixed"
    assert search_check(memory)[0][0] == "ok"
    assert faults(memory) == []


def test_a_text_that_is_no_text_hides_no_other(memory, facts):
    facts.add(["one fox", "two fox"])
    memory.create("plan", "fox")
    memory.create("notes", "fox")
    damage(memory, "UPDATE slot SET file = CAST(x'ff' AS TEXT) WHERE label = 'plan'")
    damage(memory, "UPDATE item SET text = CAST(x'ff' AS TEXT) WHERE text = 'one fox'")
    before = (
        [hit.label for hit in memory.search("fox").hits],
        texts(facts.search("fox")),
    )
    memory.index()

    assert before == (["notes"], ["two fox"])
    assert [hit.label for hit in memory.search("fox").hits] == ["notes"]
    assert texts(facts.search("fox")) == ["two fox"]
    assert faults(memory) == []


def test_a_pending_text_that_is_gone_is_taken_off(memory):
    damage(memory, "INSERT INTO search_pending VALUES (77, ''), (78, 'x')")

    assert memory.index().to_dict()["indexed"] == 2
    assert faults(memory) == []


def test_the_slots_of_an_older_store_are_found(memory):
    memory.create("plan", "fox")
    memory.index()
    with memory.store.writing() as transaction:
        later = ("editor_rescue", "editor_log", "editor_doc")
        for table in (*later, "search_index", "search_row", "search_doc"):
            transaction.connection.execute(f"DROP TABLE {table}")
        transaction.connection.pragma("user_version", 5)
    memory.close()

    with crdtmem.open(memory.path, lane="a", project="p") as again:
        assert [hit.label for hit in again.search("fox").hits] == ["plan"]
        assert again.index().indexed == 1
        assert faults(again) == []


def test_an_index_that_cannot_be_written_is_told_in_the_log(memory, facts, caplog):
    facts.add(["fox"] * 100)
    damage(memory, "DROP TABLE search_row")
    with caplog.at_level(logging.WARNING):
        found = facts.search("fox", 1_000)
        index_quietly(memory.store, 100)

    assert len(found.hits) == pending(memory) == 100
    assert found.degraded


def test_a_damaged_index_is_not_met_again_at_each_write(memory, facts, caplog):
    facts.add(["fox"] * (INDEX_PENDING_ROWS - 1))
    damage(memory, "DROP TABLE search_row")
    facts.add(["fox"] * INDEX_PENDING_ROWS)
    memory.create("plan", "one")
    memory.slot("plan").append("two")

    assert caplog.text.count("could not be indexed") == 1
