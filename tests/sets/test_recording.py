import threading

import pytest

from crdtmem import CompactionPolicy, CrdtmemError, Summary
from crdtmem.sets.observing import Observations


def joined(request):
    return [Summary(" | ".join(item.text for item in request.items))]


def brief(records):
    """Return operation, id and value of each record."""
    return [(one["op"], one["id"], one["value"]) for one in records]


def test_a_record_has_its_form(facts, drained):
    (item,) = facts.add("hello").ids

    assert drained() == [
        {
            "op": "ADD",
            "set": "facts",
            "id": item,
            "query": None,
            "value": "hello",
            "version": 1,
        }
    ]
    assert drained() == []


def test_each_verb_leaves_its_records_in_order(facts, drained):
    ids = facts.add(["p", "q"]).ids
    assert brief(drained()) == [("ADD", ids[0], "p"), ("ADD", ids[1], "q")]
    facts.update(ids[0], "p2")
    facts.update(ids[0], metadata={"n": 1})
    facts.update(ids[0], "p2")
    facts.update("mine", "m", create=True)
    assert brief(drained()) == [
        ("UPDATE", ids[0], "p2"),
        ("UPDATE", ids[0], "p2"),
        ("ADD", "mine", "m"),
    ]
    facts.get([ids[1], "none", ids[0]])
    facts.get(limit=1)
    assert brief(drained()) == [
        ("GET", ids[1], "q"),
        ("GET", ids[0], "p2"),
        ("GET", "mine", "m"),
    ]
    facts.delete([ids[0], "none"])
    facts.delete(["none"])
    facts.delete()
    facts.delete()
    assert brief(drained()) == [
        ("DELETE", ids[0], None),
        ("DELETE_SET", None, None),
        ("DELETE_SET", None, None),
    ]
    facts.drop()
    facts.drop()
    assert brief(drained()) == [("DELETE_SET", None, None)]


def test_an_undo_and_a_compaction_leave_what_they_add_change_and_delete(facts, drained):
    ids = facts.add(["p", "q"]).ids
    drained()
    facts.undo(facts.update(ids[0], "p2").rev)
    assert brief(drained())[1:] == [("UPDATE", ids[0], "p")]
    facts.undo(facts.delete(ids[1]).rev)
    assert brief(drained())[1:] == [("ADD", ids[1], "q")]
    result = facts.compact(CompactionPolicy(joined, capacity=1))
    (summary,) = result.added
    assert brief(drained()) == [
        ("ADD", summary, "p | q"),
        ("DELETE", ids[0], None),
        ("DELETE", ids[1], None),
    ]
    facts.undo(result.rev)
    assert brief(drained()) == [
        ("ADD", ids[0], "p"),
        ("ADD", ids[1], "q"),
        ("DELETE", summary, None),
    ]


def test_a_search_is_one_record_with_its_hits_in_order(memory, facts, drained):
    ids = facts.add(["tea and cake", "tea"]).ids
    bound = memory.bind(partition_key="k", observation_id="o")
    bound.memory_set("g").add("green tea")
    drained()

    result = facts.search("tea")
    (record,) = drained()
    assert (record["op"], record["id"], record["query"]) == ("SEARCH", None, "tea")
    assert record["value"] == [
        {"id": hit.item_id, "value": hit.item.text, "score": hit.score}
        for hit in result.hits
    ]
    assert {hit["id"] for hit in record["value"]} == set(ids)
    facts.search("nothing")
    assert [one["value"] for one in drained()] == [[]]
    memory.slot("guidance").append("tea")
    found = bound.search("tea", slots=True)
    assert {hit.kind for hit in found.hits} == {"slot", "item"}
    assert {one["set"]: len(one["value"]) for one in drained()} == {"facts": 2, "g": 1}
    bound.search("nothing")
    assert drained() == []


def test_records_go_to_the_binding_of_the_handle_that_was_used(memory, facts, drained):
    def handle(**binding):
        return memory.bind(partition_key="k", **binding).memory_set("facts")

    other = handle(observation_id="o2")
    facts.add("x", ids="i")
    for quiet in (
        handle(),
        handle(observation_id="o", observation_suppressed=True),
        handle(observation_id="o", observe=["get"]),
    ):
        quiet.add("quiet")
    other.get("i")
    handle(observation_id="o", observe=["update"]).get("i")

    assert brief(drained()) == [("ADD", "i", "x")]
    assert brief(drained(observation_id="o2")) == [("GET", "i", "x")]
    assert drained(observation_id="") == []
    facts.add("y")
    bound = memory.bind(partition_key="k", observation_id="o", scope="global")
    assert bound.drain_observations() == []
    bound = memory.bind(partition_key="k", observation_id="o")
    assert len(bound.drain_observations()) == 1


def test_what_fails_leaves_no_record(facts, drained):
    for verb, *args in (
        (facts.update, "none", "x"),
        (facts.add, 7),
        (facts.search, ""),
        (facts.undo, 1),
        (facts.get, None, {"$x": 1}),
    ):
        with pytest.raises(CrdtmemError):
            verb(*args)

    assert drained() == []


@pytest.mark.requirement("sets-O1")
def test_threads_that_work_at_once_leave_each_record_once(memory, facts, drained):
    ready = threading.Barrier(2)

    def work(number):
        ready.wait()
        for n in range(100):
            if n % 10:
                facts.search(f"word{n}")
            else:
                facts.add(f"{number} {n}")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    records = drained()
    assert len(records) == 200
    adds = [one["value"] for one in records if one["op"] == "ADD"]
    assert sorted(adds) == sorted(
        f"{t} {n}" for t in range(2) for n in range(0, 100, 10)
    )
    for number in range(2):
        own = [value for value in adds if value.startswith(f"{number} ")]
        assert own == [f"{number} {n}" for n in range(0, 100, 10)]
    assert memory.status().observations.to_dict() == {"buffered": 0, "dropped": 0}


@pytest.mark.requirement("sets-O1")
def test_a_queue_that_raises_leaves_the_operations_as_they_are(
    memory, facts, monkeypatch
):
    def broken(*_):
        raise OSError

    monkeypatch.setattr(Observations, "put", broken)

    assert facts.add("x").item_count == 1
    assert len(facts.get().items) == 1
    assert memory.status().observations.to_dict() == {"buffered": 0, "dropped": 2}


def test_a_status_without_records_says_so(memory):
    assert memory.status().to_dict()["observations"] == {"buffered": 0, "dropped": 0}


def test_no_text_is_shown_where_values_are_logged(facts, drained):
    facts.add("a secret")

    (item,) = facts.get().items
    records = facts.binding and facts._bound.session.observations
    assert "a secret" not in repr(item)
    assert "a secret" not in repr(records.drain(next(iter(records._lists))))
