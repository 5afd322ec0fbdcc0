import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from uuid import UUID

import pytest

from crdtmem import CompactionPolicy, MemorySet
from crdtmem.errors import (
    HistoryNotFoundError,
    InvalidArgumentError,
    OwnerThreadError,
    StoreClosedError,
    UnboundError,
)
from crdtmem.sets import no_owner_check
from tests.sets.set_scripts import joined

KEYS = [
    *("", "a", "b", "s.", "s.a", "A", " ", "%", "a/n.b", "../x", "\0", "é", "e\u0301"),
    *(0, 1, -1, 2**100, 0.0, -0.0, 1.0, False, True, b"", b"a", b"\xff\0"),
    *((), ("",), ("a",), ("a", "b"), ("a,b",), (("a",), "b"), ("a", ("b",)), (1,)),
    *((True,), (1.0,), UUID(int=5), "u." + "0" * 31 + "5", "x" * 200, "y" * 200),
    *("1", "0", "t.1", "i.1", "l()", "l(s.a)", "h." + "0" * 64, "None", "null", "[]"),
    "job",
]
MANAGEMENT = {
    "memory_set": lambda bound, _: bound.memory_set("facts"),
    "memory_sets": lambda bound, _: bound.memory_sets(),
    "drop_memory_set": lambda bound, _: bound.drop_memory_set("facts"),
    "drop": lambda _, handle: handle.drop(),
}
ITEM_VERBS = {
    "add": lambda handle: handle.add("x"),
    "get": lambda handle: handle.get(),
    "search": lambda handle: handle.search("x"),
    "delete": lambda handle: handle.delete(["none"]),
    "update": lambda handle: handle.update("u", "x", create=True),
    "history": lambda handle: handle.history(),
    "as_of": lambda handle: handle.as_of(0),
    "undo": lambda handle: handle.undo(1),
    "compact": lambda handle: handle.compact(CompactionPolicy(joined, capacity=9)),
    "headroom": lambda handle: handle.headroom(),
}
VERBS = ITEM_VERBS | {"drop": lambda handle: handle.drop()}


def elsewhere(call, *args):
    """Return what a call raises in a thread of its own, or None."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call, *args).exception()


@pytest.mark.requirement("sets-S4")
def test_no_verb_under_one_key_touches_another_whatever_the_keys_look_like(memory):
    handles = {}
    for number, key in enumerate(KEYS):
        bound = memory.bind(partition_key=key)
        handles[bound.binding.encoded_key] = bound.memory_set("facts")
        assert handles[bound.binding.encoded_key].add(f"text {number}").rev == 1
    assert len(handles) == len(KEYS) == 50
    hashes = {key: handle.headroom().set_hash for key, handle in handles.items()}

    for key, name in (("", "facts"), ("never wrote", "facts"), ("never wrote", "n")):
        handle = memory.bind(partition_key=key).memory_set(name)
        encoded = handle.binding.encoded_key
        for verb in (*ITEM_VERBS.values(), lambda h: h.delete(), VERBS["drop"]):
            with suppress(HistoryNotFoundError):
                verb(handle)
            now = {k: h.headroom().set_hash for k, h in handles.items()}
            own = {encoded: now[encoded]} if encoded in now else {}
            assert now == hashes | own
            hashes |= own

    assert [p.encoded_key for p in memory.partitions()] == sorted(
        key for key in handles if key != "s."
    )


@pytest.mark.requirement("sets-S5")
def test_an_operation_that_waits_for_the_lock_ends_under_its_own_key(open_lane):
    memory, other = open_lane(busy_timeout=60), open_lane("b")
    bound = memory.bind(partition_key="first", observation_id="o1")
    handle = bound.memory_set("facts")
    with ThreadPoolExecutor(1) as pool:
        with other.store.writing():
            added = pool.submit(handle.add, "waited")
            later = memory.bind(partition_key="second", observation_id="o2")
            later.memory_set("facts")
            assert not added.done()
        added.result()

    assert [item.text for item in handle.get().items] == ["waited"]
    assert memory.bind(partition_key="second").memory_set("facts").get().items == ()
    records = memory.drain_observations("first", "o1")
    assert [record.op for record in records] == ["ADD", "GET"]
    assert memory.drain_observations("second", "o2") == []


@pytest.mark.requirement("sets-S6")
@pytest.mark.parametrize("verb", VERBS)
def test_a_set_without_a_binding_refuses_all_before_any_statement(
    memory, facts, verb, unchanged
):
    facts.add("kept")
    seen: list[str] = []
    made = [MemorySet("facts"), pickle.loads(pickle.dumps(facts))]
    made.append(MemorySet(**facts.to_dict()))
    with memory.store.reading() as connection:
        connection.trace_v2(0x01, seen.append)

    for handle in made:
        assert (handle.name, handle.binding) == ("facts", None)
        with pytest.raises(UnboundError) as caught:
            VERBS[verb](handle)
        assert isinstance(caught.value, ValueError)
        assert caught.value.code == "not-bound"
        text = "memory set 'facts' is not bound to a partition key"
        assert text in str(caught.value)
    assert seen == []


@pytest.mark.requirement("sets-S7")
@pytest.mark.parametrize("verb", MANAGEMENT)
def test_sets_are_managed_in_the_thread_that_bound_the_memory(memory, verb, facts):
    bound = memory.bind(partition_key="k")
    handle = bound.memory_set("facts")
    facts.add("x")

    error = elsewhere(MANAGEMENT[verb], bound, handle)

    assert isinstance(error, OwnerThreadError)
    assert facts.get().item_count == 1
    MANAGEMENT[verb](bound, handle)


@pytest.mark.requirement("sets-S7")
@pytest.mark.parametrize("verb", ITEM_VERBS)
def test_items_are_used_in_any_thread(facts, verb):
    facts.add("x")

    error = elsewhere(ITEM_VERBS[verb], facts)

    assert error is None


@pytest.mark.requirement("sets-S7")
def test_a_check_of_the_callers_decides_and_its_error_passes_through(memory):
    class NotNowError(Exception):
        pass

    def check():
        if not_now:
            raise NotNowError

    not_now = []
    bound = memory.bind(partition_key="k", owner=check)
    handle = bound.memory_set("facts")
    assert elsewhere(bound.memory_sets) is None
    not_now.append(True)

    for call in MANAGEMENT.values():
        with pytest.raises(NotNowError):
            call(bound, handle)
    handle.add("x")
    free = memory.bind(partition_key="k", owner=no_owner_check)
    assert elsewhere(free.drop_memory_set, "facts") is None


def test_closed_comes_before_owner_and_owner_before_arguments(memory):
    bound = memory.bind(partition_key="k")

    assert isinstance(elsewhere(bound.memory_set, ""), OwnerThreadError)
    memory.close()
    assert isinstance(elsewhere(bound.memory_set, ""), StoreClosedError)
    for call in (
        bound.memory_sets,
        bound.drain_observations,
        lambda: bound.search("x"),
        lambda: memory.bind(partition_key=None),
        lambda: memory.drain_observations("k", "o"),
    ):
        with pytest.raises(StoreClosedError):
            call()


@pytest.mark.parametrize("verb", VERBS)
def test_a_closed_memory_refuses_every_verb_of_its_sets(memory, facts, verb):
    memory.close()

    with pytest.raises(StoreClosedError):
        VERBS[verb](facts)


def test_a_binding_says_where_its_handles_work_and_never_changes(memory):
    bound = memory.bind(
        partition_key=("job", b"\xff", UUID(int=1)),
        observation_id="o",
        observation_suppressed=True,
        scope="global",
        observe=["get"],
    )

    assert bound.binding.to_dict() == {
        "partitionKey": ["job", "ff", str(UUID(int=1))],
        "encodedKey": f"l(s.job,b.%FF,u.{UUID(int=1).hex})",
        "namespace": "global",
        "scope": "global",
        "observationId": "o",
        "observationSuppressed": True,
        "observe": ["get"],
    }
    with pytest.raises(AttributeError):
        bound.binding.namespace = "p"
    assert repr(bound) == f"BoundMemory('global', {bound.binding.partition_key!r})"


@pytest.mark.parametrize(
    ("argument", "value", "code"),
    [
        ("partition_key", None, "invalid-partition-key"),
        ("partition_key", ["k"], "invalid-partition-key"),
        ("scope", "everywhere", "invalid-scope"),
        ("observation_id", None, "invalid-argument"),
        ("observation_suppressed", 1, "invalid-argument"),
        ("observe", "get", "invalid-argument"),
        ("owner", 7, "invalid-argument"),
    ],
)
def test_a_malformed_binding_is_refused(memory, argument, value, code, refusal):
    error = refusal(memory.bind, **{"partition_key": "k", argument: value})

    assert isinstance(error, InvalidArgumentError)
    assert (error.code, error.argument) == (code, argument)


def test_handles_compare_by_binding_and_name(memory, open_lane):
    bound = memory.bind(partition_key=1)
    handle = bound.memory_set("facts")
    same = memory.bind(partition_key=1).memory_set("facts")

    assert handle == same
    assert hash(handle) == hash(same)
    for other in (
        bound.memory_set("g"),
        memory.bind(partition_key=True).memory_set("facts"),
        memory.bind(partition_key=1, observation_id="o").memory_set("facts"),
        memory.bind(partition_key=1, scope="global").memory_set("facts"),
        open_lane(store="t").bind(partition_key=1).memory_set("facts"),
        MemorySet("facts"),
        "facts",
    ):
        assert handle != other
    assert MemorySet("facts") == MemorySet("facts")
    assert repr(handle) == "MemorySet('p', 1, 'facts')"
    assert repr(MemorySet("facts")) == "MemorySet('facts', unbound)"


def test_a_copy_in_the_process_keeps_the_binding(facts):
    assert copy.copy(facts).binding == facts.binding
    assert copy.deepcopy([facts]) == [facts]


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 257, "\udc00", None, 7])
def test_a_name_that_no_set_can_have_is_refused(memory, name, refusal):
    bound = memory.bind(partition_key="k")

    assert refusal(bound.memory_set, name).code == "invalid-name"
    assert refusal(bound.drop_memory_set, name).code == "invalid-name"
    assert refusal(MemorySet, name).code == "invalid-name"


def test_handles_and_reads_make_nothing(memory, unchanged):
    # A first write: the store of a test is a copy, which takes ids of its own then.
    memory.configure(history_keep=20)
    with unchanged():
        bound = memory.bind(partition_key="k")
        handle = bound.memory_set("facts")
        page = handle.get()
        assert handle.get("x").missing == ("x",)
        assert handle.history().entries == ()
        assert handle.as_of(0).items == ()
        assert handle.delete().deleted == 0
        assert handle.delete("x").missing == ("x",)
        assert not handle.drop().existed
        assert handle.add([]).ids == ()
        assert not handle.compact(CompactionPolicy(joined, capacity=1)).ran
        assert bound.memory_sets() == memory.partitions() == []

    assert page.to_dict() == {
        "itemCount": 0,
        "itemLimit": 50_000,
        "size": 0,
        "sizeLimit": 4_194_304,
        "free": 4_194_304,
        "pctUsed": 0,
        "rev": 0,
        "setHash": "0" * 16,
        "tombstones": 0,
        "items": [],
        "more": False,
    }


def test_sets_are_listed_by_name_until_they_are_dropped(memory):
    bound = memory.bind(partition_key="k")
    for name in ("b", "a", "c"):
        bound.memory_set(name).add(name)
    memory.bind(partition_key="other").memory_set("z").add("z")

    assert [info.name for info in bound.memory_sets()] == ["a", "b", "c"]
    assert [info.name for info in bound.memory_sets(limit=2)] == ["a", "b"]
    assert bound.drop_memory_set("b") is True
    assert bound.drop_memory_set("b") is False
    assert [info.name for info in bound.memory_sets()] == ["a", "c"]
    bound.memory_set("b").add("again")
    (info,) = [one for one in bound.memory_sets() if one.name == "b"]
    assert (info.rev, info.item_count) == (3, 1)
    with pytest.raises(InvalidArgumentError):
        bound.memory_sets(limit=0)


def test_partitions_are_listed_with_counts_by_the_beginning_of_their_keys(memory):
    for key in (("job", "a"), ("job", "a", 1), ("job-2", "a"), "job", ("job",)):
        for name in ("x", "y"):
            memory.bind(partition_key=key).memory_set(name).add(["1", "2"])
    memory.bind(partition_key="g", scope="global").memory_set("x").add("1")

    def keys(*args, **options):
        return [one.partition_key for one in memory.partitions(*args, **options)]

    assert keys(prefix=("job",)) == [("job",), ("job", "a"), ("job", "a", 1)]
    assert keys(prefix=("job", "a")) == [("job", "a"), ("job", "a", 1)]
    assert len(keys()) == 5
    assert len(keys(limit=2)) == 2
    assert [one.to_dict() for one in memory.partitions("global")] == [
        {"partitionKey": "g", "encodedKey": "s.g", "sets": 1, "itemCount": 1}
    ]
    assert memory.partitions(prefix=("job",))[0].item_count == 4
    for wrong in ({"prefix": ["job"]}, {"prefix": (None,)}, {"limit": 0}):
        with pytest.raises(InvalidArgumentError):
            memory.partitions(**wrong)


def test_one_handle_is_used_by_many_threads_at_once(facts):
    ready = threading.Barrier(4)

    def work(number):
        ready.wait()
        return [facts.add(f"{number} {n}").ids[0] for n in range(10)]

    with ThreadPoolExecutor(4) as pool:
        added = [one for ids in pool.map(work, range(4)) for one in ids]

    page = facts.get()
    assert {item.id for item in page.items} == set(added)
    assert (page.item_count, page.rev) == (40, 40)
