from typing import Any

import pytest

from crdtmem import CompactionPolicy, Summary
from crdtmem.errors import RequestIdReusedError, SetLimitError
from crdtmem.limits import (
    ITEM_TEXT_UNITS,
    METADATA_BYTES,
    SET_VERSION_BYTES,
)
from crdtmem.sets import reading, writing
from tests.replica import exchange_records


@pytest.fixture
def limit(monkeypatch):
    """Set another limit, wherever it is looked at."""

    def limit(**values):
        for name, value in values.items():
            for module in (reading, writing):
                monkeypatch.setattr(module, name, value, raising=False)

    return limit


def joined(request):
    return [Summary(" | ".join(item.text for item in request.items))]


@pytest.mark.requirement("sets-L1")
@pytest.mark.parametrize("char", ["x", "é", "🚀"])
def test_a_text_may_be_so_long_and_no_longer(facts, char, refusal):
    longest = char * (ITEM_TEXT_UNITS // len(char.encode("utf-16-le")) * 2)

    (item,) = facts.add(longest).ids
    assert facts.get(item).items[0].size == ITEM_TEXT_UNITS
    for verb, *args in (
        (facts.add, f"{longest}x"),
        (facts.update, item, f"{longest}x"),
    ):
        error = refusal(verb, *args)
        assert isinstance(error, SetLimitError)
        assert error.code == "item-too-large"
        assert f"{ITEM_TEXT_UNITS + 1} > {ITEM_TEXT_UNITS}" in str(error)


@pytest.mark.requirement("sets-L1")
def test_metadata_may_be_so_long_and_no_longer(facts, refusal):
    around = len('{"m":"é"}'.encode())
    longest = "é" + "x" * (METADATA_BYTES - around)

    (item,) = facts.add("t", {"m": longest}).ids
    assert facts.get(item).items[0].metadata == {"m": longest}
    longer = {"m": f"{longest}x"}
    for verb, *args in (
        (facts.add, "t", longer),
        (facts.update, item, "t", longer),
    ):
        error = refusal(verb, *args)
        assert error.code == "metadata-too-large"
        assert f"{METADATA_BYTES + 1} > {METADATA_BYTES}" in str(error)


@pytest.mark.requirement("sets-L1")
def test_a_set_may_have_so_many_items(facts, limit, refusal):
    limit(SET_ITEMS_MAX=3)
    ids = facts.add(["p", "q", "r"]).ids

    for verb, *args in (
        (facts.add, "s"),
        (facts.update, "new", "s"),
    ):
        options = {"create": True} if verb == facts.update else {}
        error = refusal(verb, *args, **options)
        assert (error.code, error.details["reason"]) == ("set-full", "items")
        assert "(4 > 3 items)" in str(error)
    assert facts.headroom().pct_used == 100
    assert facts.update(ids[0], "longer than it was").changed
    rev = facts.delete(ids[0]).rev
    facts.add("s")
    assert refusal(facts.undo, rev).code == "set-full"


@pytest.mark.requirement("sets-L1")
def test_a_set_may_have_so_much_text_and_metadata(facts, limit, refusal):
    limit(SET_SIZE_UNITS=10)
    (item,) = facts.add("🚀", {"n": 1}).ids
    assert facts.headroom().free == 1
    (last,) = facts.add("x").ids

    for verb, *args in ((facts.add, "y"), (facts.update, item, "🚀+")):
        error = refusal(verb, *args)
        assert (error.code, error.details["reason"]) == ("set-full", "size")
        assert "(11 > 10 units)" in str(error)
    assert facts.add("").item_count == 3
    assert facts.update(last, "y").size == 10
    assert facts.update(item, metadata={}).size == 3


@pytest.mark.requirement("sets-L1")
def test_a_set_may_have_so_much_state_whatever_is_deleted(facts, limit, refusal):
    (item,) = facts.add("x").ids
    with_one = 1 + SET_VERSION_BYTES
    limit(SET_STATE_BYTES=2 * with_one + SET_VERSION_BYTES)
    while True:
        try:
            facts.update(item, "y" if facts.get().items[0].text == "x" else "x")
        except SetLimitError as full:
            error = full
            break

    assert (error.code, error.details["reason"]) == ("set-full", "state")
    assert refusal(facts.add, "z").details["reason"] == "state"
    assert "use another set" in facts.headroom().warning
    assert facts.delete().deleted == 1


@pytest.mark.requirement("sets-L1")
def test_a_namespace_may_have_so_many_sets(memory, limit, refusal):
    limit(SETS_MAX=2)
    bound = memory.bind(partition_key="k")
    for name in "ab":
        bound.memory_set(name).add("x")

    error = refusal(bound.memory_set("c").add, "x")
    assert error.code == "too-many-sets"
    assert "(3 > 2 sets)" in str(error)
    assert bound.memory_set("a").add("y").item_count == 2
    bound.drop_memory_set("a")
    assert bound.memory_set("c").add("x").item_count == 1
    assert refusal(bound.memory_set("a").add, "again").code == "too-many-sets"
    other = memory.bind(partition_key="k", scope="global").memory_set("c")
    assert other.add("x").item_count == 1


@pytest.mark.requirement("sets-L1")
def test_a_merge_may_go_over_the_limits_and_then_only_less_is_written(open_lane, limit):
    memories = [open_lane("a"), open_lane("b", store="t")]
    handles = [m.bind(partition_key="k").memory_set("facts") for m in memories]
    limit(SET_ITEMS_MAX=3, SET_SIZE_UNITS=12)
    for lane, handle in zip("ab", handles, strict=True):
        handle.add([f"{lane}234", f"{lane}678", f"{lane}"])
    exchange_records([[memory] for memory in memories])

    for handle in handles:
        headroom = handle.headroom()
        assert (headroom.item_count, headroom.size, headroom.free) == (6, 18, 0)
        assert "200 % full (items), 0 characters free" in headroom.warning
    handle, other = handles
    ids = [item.id for item in handle.get(order="oldest").items]
    for change in (
        lambda: handle.add(""),
        lambda: handle.update(ids[0], "5678"),
        lambda: handle.update(ids[2], "longer"),
        lambda: handle.update("new", "", create=True),
    ):
        with pytest.raises(SetLimitError):
            change()
    assert handle.update(ids[0], "").size == 14
    assert handle.delete(ids[2:]).item_count == 2
    exchange_records([[memory] for memory in memories])
    assert other.headroom().set_hash == handle.headroom().set_hash


VERBS = {
    "add": lambda ids: (["new", "two"], {"n": 1}),
    "update": lambda ids: (ids[0], "changed"),
    "delete": lambda ids: ([ids[0], "none"],),
    "clear": lambda ids: (),
    "drop": lambda ids: (),
    "undo": lambda ids: (1,),
    "compact": lambda ids: (CompactionPolicy(joined, capacity=1),),
}


@pytest.mark.requirement("sets-L2")
@pytest.mark.parametrize("verb", VERBS)
def test_a_call_that_is_repeated_has_one_effect(facts, drained, verb, unchanged):
    ids = facts.add(["p", "q"]).ids
    method = getattr(facts, "delete" if verb == "clear" else verb)
    args = VERBS[verb](ids)

    first = method(*args, request_id="r")
    records = drained()
    with unchanged():
        again = method(*args, request_id="r")

    assert first.request_id == "r"
    assert "replayed" not in first.to_dict()
    assert again == first.replaced(replayed=True)
    assert records
    assert drained() == []
    facts.add("later")
    assert method(*args, request_id="r") == again
    assert "later" in [item.text for item in facts.get().items]


@pytest.mark.requirement("sets-L2")
@pytest.mark.parametrize("verb", VERBS)
def test_an_id_of_another_call_is_refused(facts, memory, verb, refusal):
    ids = facts.add(["p", "q"]).ids
    facts.add("first", request_id="r")
    name = "delete" if verb == "clear" else verb
    args = VERBS[verb](ids)

    error = refusal(getattr(facts, name), *args, request_id="r")
    assert isinstance(error, RequestIdReusedError)
    assert "'r' was already used for another call (set add)" in str(error)
    for handle in (
        memory.bind(partition_key="k").memory_set("other"),
        memory.bind(partition_key="other").memory_set("facts"),
        memory.bind(partition_key="k", scope="global").memory_set("facts"),
    ):
        error = refusal(handle.add, "first", request_id="r")
        assert error.code == "request-id-reused"
    assert refusal(facts.add, "x", request_id="é").code == "invalid-request-id"


@pytest.mark.requirement("sets-L2")
def test_a_call_that_changed_nothing_is_replayed_too(facts):
    (item,) = facts.add("same").ids
    for verb, *args in (
        ("update", item, "same"),
        ("delete", ["none"]),
        ("add", []),
    ):
        first = getattr(facts, verb)(*args, request_id=f"r-{verb}")
        facts.add("more")
        again = getattr(facts, verb)(*args, request_id=f"r-{verb}")
        assert again == first.replaced(replayed=True)


@pytest.mark.requirement("sets-L2")
def test_a_summary_is_not_asked_for_again(facts):
    facts.add(["p", "q"])
    asked = []

    def summarise(request):
        asked.append(request)
        facts.update(request.items[0].id, "changed meanwhile")
        return joined(request)

    policy = CompactionPolicy(summarise, capacity=1)
    first = facts.compact(policy, request_id="r")
    again = facts.compact(policy, request_id="r")

    assert again == first.replaced(replayed=True)
    assert again.skipped == first.skipped != ()
    assert len(asked) == 1


@pytest.mark.requirement("sets-L2")
def test_a_compaction_that_another_made_meanwhile_is_replayed(memory, facts):
    facts.add(["p", "q"])
    inner: list[Any] = []

    def summarise(request):
        if not inner:
            inner.append(None)
            with memory.store.writing() as transaction:
                transaction.connection.execute("UPDATE set_claim SET until_ms = 0")
            inner[0] = facts.compact(policy, request_id="r")
        return joined(request)

    policy = CompactionPolicy(summarise, capacity=1)
    outer = facts.compact(policy, request_id="r")

    assert outer == inner[0].replaced(replayed=True)
    assert facts.get().item_count == 1
