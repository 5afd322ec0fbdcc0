"""crdtmem.compat.flink: over its own classes, and over those of flink-agents"""

import functools
import inspect
import json
from collections.abc import Callable

import pytest

from crdtmem.errors import (
    CrdtmemError,
    InvalidArgumentError,
    SetLimitError,
    StoreClosedError,
)
from crdtmem.limits import ITEM_TEXT_UNITS
from crdtmem.sets.values import CompactionPolicy, Summary
from tests.compat import long_term
from tests.compat.long_term import (
    ALL_OBSERVED,
    BEGIN,
    OPERATIONS,
    UNBOUND,
    drained,
    here,
    in_thread,
    on_key,
    operate,
    operations_of,
    own_classes,
    texts_of,
    values,
)

job, kind, ltm = long_term.job, long_term.kind, long_term.ltm
memory, notes = long_term.memory, long_term.notes

VERBS = (
    "get_memory_set",
    "delete_memory_set",
    "add",
    "get",
    "search",
    "delete",
    "close",
)


# -- F1: the classes


@pytest.mark.requirement("sets-F1")
def test_it_is_a_long_term_memory(kind, ltm):
    assert isinstance(ltm, kind.module.BaseLongTermMemory)


@pytest.mark.requirement("sets-F1")
def test_each_verb_takes_what_the_class_it_stands_for_takes(kind):
    ours, theirs = (
        {
            verb: [
                (each.name, each.kind, each.default)
                for each in inspect.signature(getattr(owner, verb)).parameters.values()
            ]
            for verb in VERBS
        }
        for owner in (kind.module.CrdtLongTermMemory, kind.module.BaseLongTermMemory)
    )

    assert ours == theirs


@pytest.mark.requirement("sets-F1")
def test_the_state_is_in_no_json_and_no_representation(ltm, notes):
    notes.add("secret")

    assert "secret" not in repr(ltm) + repr(notes)
    assert "key" not in repr(ltm)


# -- F2: what agents do


@pytest.mark.requirement("sets-F2")
def test_a_set_that_is_got_twice_is_the_same(ltm, notes):
    again = ltm.get_memory_set("notes")

    assert again == notes
    assert notes != ltm.get_memory_set("others")
    assert notes != on_key(ltm, "another")
    assert notes.name == "notes"


@pytest.mark.requirement("sets-F2")
def test_texts_are_kept_exactly_under_ids_of_their_own(notes):
    (one,) = notes.add("The user prefers Python.\r\n ")
    two, three = notes.add(items=["likes coffee", "likes coffee"])

    assert len({one, two, three}) == 3
    assert values(notes.get(ids=[three, one])) == [
        "likes coffee",
        "The user prefers Python.\r\n ",
    ]
    assert values(notes.get(ids=one)) == ["The user prefers Python.\r\n "]
    assert len(notes.get()) == 3


@pytest.mark.requirement("sets-F2")
def test_an_item_is_shown_with_all_that_it_has(kind, notes):
    (plain,) = notes.add("plain")
    (tagged,) = notes.add("tagged", {"topic": "travel", "n": 1})
    first, second = notes.get([plain, tagged])

    assert isinstance(first, kind.module.MemorySetItem)
    assert (first.memory_set_name, first.id, first.value) == ("notes", plain, "plain")
    assert first.additional_metadata is None
    assert second.additional_metadata == {"topic": "travel", "n": 1}
    assert BEGIN <= first.created_at <= second.created_at == second.updated_at


@pytest.mark.requirement("sets-F2")
def test_filters_and_a_limit_narrow_what_is_got(notes):
    notes.add("meeting", metadatas={"category": "work"})
    notes.add(["milk", "bread"], [{"category": "home"}, {"category": "home", "n": 2}])

    assert values(notes.get(filters={"category": "work"})) == ["meeting"]
    assert values(notes.get(filters={"category": "home", "n": 2})) == ["bread"]
    assert values(notes.get(limit=1)) == ["bread"]
    assert notes.get(filters={"category": "none"}) == []


@pytest.mark.requirement("sets-F2")
def test_ids_come_before_filters_and_limit(notes):
    ids = notes.add(["a", "b", "c"])
    asked = [ids[2], "not there", ids[0]]

    assert values(notes.get(asked, {"category": "none"}, 1)) == ["c", "a"]
    assert notes.get([], limit=1) == []


@pytest.mark.requirement("sets-F2")
def test_a_search_finds_what_matches_only(notes):
    notes.add("The capital of France is Paris.", {"topic": "travel"})
    notes.add("Paris, in Texas, is a town.", {"topic": "towns"})
    notes.add("Python is a language.", {"topic": "code"})

    assert values(notes.search("France capital", limit=5)) == [
        "The capital of France is Paris."
    ]
    assert len(notes.search("paris", limit=5)) == 2
    assert len(notes.search("paris", limit=1)) == 1
    assert values(notes.search("paris", 5, {"topic": "towns"}, mode="all")) == [
        "Paris, in Texas, is a town."
    ]
    assert values(notes.search("paris", 5, sort="recent", semantic=False)) == [
        "Paris, in Texas, is a town.",
        "The capital of France is Paris.",
    ]


@pytest.mark.requirement("sets-F2")
def test_a_query_without_a_word_finds_nothing(notes):
    notes.add("Paris")

    for query in ("", "  ", "?!", "-paris"):
        assert notes.search(query, limit=5) == []


@pytest.mark.requirement("sets-F2")
def test_a_query_that_is_too_long_is_refused(notes):
    with pytest.raises(InvalidArgumentError) as caught:
        notes.search("word " * 1_000, limit=5)

    assert caught.value.code == "query-too-long"


@pytest.mark.requirement("sets-F2")
def test_deleted_items_are_gone(notes):
    one, two, three, _ = notes.add(["a", "b", "c", "d"])
    notes.delete(ids=two)
    notes.delete([one, "not there"])
    left = values(notes.get())
    notes.delete([])
    kept = values(notes.get())
    notes.delete()

    assert left == kept == ["d", "c"]
    assert notes.get() == []
    assert notes.get(three) == []


@pytest.mark.requirement("sets-F2")
def test_a_deleted_set_is_gone_and_can_be_written_again(ltm, notes):
    notes.add("old")
    first = ltm.delete_memory_set("notes")
    second = ltm.delete_memory_set(name="notes")
    gone = ltm.get_memory_set("notes").get()
    notes.add("new")

    assert (first, second, gone) == (True, False, [])
    assert values(ltm.get_memory_set("notes").get()) == ["new"]


# -- F3: a set keeps its key


@pytest.mark.requirement("sets-F3")
@pytest.mark.parametrize("run", [here, in_thread])
def test_a_set_stays_on_its_key_whichever_is_current(ltm, memory, unchanged, run, job):
    ltm.configure_observation(**ALL_OBSERVED)
    theirs = on_key(ltm, "other", observation_id="theirs")
    theirs.add("black kite")
    drained(ltm, "other", "theirs")
    ours = on_key(ltm, "owner", observation_id="ours")
    ltm.switch_context("other", observation_id="theirs")
    (found,) = run(lambda: (ours.add("red kite"), ours.search("kite", 5))[1:])
    run(ours.delete)
    drained(ltm, "owner", "ours")
    operate(ltm, ours, run)

    assert values(found) == ["red kite"]
    assert texts_of(memory, job, "owner") == []
    assert texts_of(memory, job, "other") == ["black kite"]
    assert operations_of(ltm, "owner", "ours") == [
        "ADD",
        "GET",
        "SEARCH",
        "DELETE_SET",
    ]
    assert drained(ltm, "other", "theirs") == []


@pytest.mark.requirement("sets-F3")
def test_a_record_has_the_fields_of_the_runtime_and_is_drained_once(ltm):
    ltm.configure_observation(**ALL_OBSERVED)
    notes = on_key(ltm, "key", observation_id="action")
    (one,) = notes.add("red kite 凧")
    notes.search("kite", 5)
    text = ltm.drain_ltm_observation_records(key="key", observation_id="action")
    added, searched = json.loads(text)

    assert added == {
        "op": "ADD",
        "set": "notes",
        "id": one,
        "query": None,
        "value": "red kite 凧",
        "version": 1,
    }
    assert (searched["op"], searched["query"], searched["id"]) == (
        "SEARCH",
        "kite",
        None,
    )
    assert [hit["id"] for hit in searched["value"]] == [one]
    assert ltm.drain_ltm_observation_records("key", "action") == "[]"


@pytest.mark.requirement("sets-F3")
def test_observation_is_off_until_it_is_configured(ltm):
    notes = on_key(ltm, "key", observation_id="action")
    operate(ltm, notes)
    before = drained(ltm, "key", "action")
    ltm.configure_observation(
        update_observation_enabled=False,
        get_observation_enabled=True,
        search_observation_enabled=False,
    )
    # The set that was got before keeps what it was got with.
    operate(ltm, notes)
    operate(ltm, ltm.get_memory_set("notes"))

    assert before == []
    assert operations_of(ltm, "key", "action") == ["GET"]


@pytest.mark.requirement("sets-F3")
def test_other_jobs_have_other_sets(kind, memory, ltm, notes, job):
    notes.add("ours")
    elsewhere = kind.memory(memory, f"not {job}")

    assert on_key(elsewhere, "key").get() == []
    assert texts_of(memory, job, "key") == ["ours"]


# -- F5: the empty key


@pytest.mark.requirement("sets-F5")
def test_the_empty_key_is_a_key_like_any_other(ltm, memory, job):
    on_key(ltm, "a").add("of a")
    empty = on_key(ltm, "")
    empty.add("of none")
    found = [values(empty.get()), values(empty.search("none", 5))]
    empty.delete()
    left = empty.get()
    empty.add("again")
    dropped = ltm.delete_memory_set("notes")

    assert found == [["of none"], ["of none"]]
    assert (left, dropped) == ([], True)
    assert texts_of(memory, job, "a") == ["of a"]
    assert texts_of(memory, job, "") == []


# -- F9: arguments


@pytest.mark.requirement("sets-F9")
def test_metadata_that_does_not_fit_its_texts_is_refused(memory, notes, unchanged):
    with unchanged(memory):
        for texts, count in ((["a", "b"], 1), (["a"], 2), ("a", 0), (["a", "b"], 0)):
            with pytest.raises(ValueError, match=str(count)) as caught:
                notes.add(texts, [{} for _ in range(count)])
            assert isinstance(caught.value, CrdtmemError)
            assert caught.value.code == "metadata-mismatch"


@pytest.mark.requirement("sets-F9")
def test_a_filter_can_only_narrow(ltm):
    on_key(ltm, "other").add("theirs")
    ours = on_key(ltm, "owner")
    names = ("agent_id", "partition_key", "user_id", "run_id")
    ours.add("ours", dict.fromkeys(names, "owner"))
    ours.add("ours, too")

    for name in names:
        assert ours.get(filters={name: "other"}) == []
        assert ours.search("theirs", 5, {name: "other"}) == []
        assert values(ours.get(filters={name: "owner"})) == ["ours"]


@pytest.mark.requirement("sets-F9")
def test_an_id_of_another_key_or_set_is_absent(ltm, memory, job):
    (foreign,) = on_key(ltm, "other").add("theirs")
    (elsewhere,) = on_key(ltm, "owner", "others").add("ours")
    ours = ltm.get_memory_set("notes")
    ours.add("ours")
    ours.delete([foreign, elsewhere, "never there"])

    assert ours.get([foreign, elsewhere, "never there"]) == []
    assert texts_of(memory, job, "other") == ["theirs"]
    assert texts_of(memory, job, "owner", name="others") == ["ours"]
    assert values(ours.get()) == ["ours"]


@pytest.mark.requirement("sets-F9")
def test_an_unknown_argument_of_a_search_is_refused(memory, notes, unchanged):
    with unchanged(memory), pytest.raises(ValueError, match=r"mode.*not threshold"):
        notes.search("kite", 5, threshold=0.5)


@pytest.mark.requirement("sets-F9")
def test_a_text_that_is_too_long_is_refused(memory, notes, unchanged):
    with unchanged(memory), pytest.raises(SetLimitError) as caught:
        notes.add(["short", "x" * (ITEM_TEXT_UNITS + 1)])

    assert caught.value.code == "item-too-large"


@pytest.mark.requirement("sets-F9")
def test_a_job_without_an_id_is_refused(kind, memory):
    for job_id in ("", None, 7):
        with pytest.raises(ValueError, match=f"job_id.*{job_id!r}") as caught:
            kind.memory(memory, job_id)
        assert isinstance(caught.value, InvalidArgumentError)


@pytest.mark.requirement("sets-F9")
def test_after_a_key_that_is_none_no_key_is_current(ltm, notes):
    for key in (None, 1.5j, object()):
        with pytest.raises(ValueError, match=type(key).__name__):
            ltm.switch_context(key)

        with pytest.raises(ValueError, match=UNBOUND):
            ltm.get_memory_set("notes").add("text")
    assert notes.get() == []


# -- F10: closing; and without the package


@pytest.mark.requirement("sets-F10")
def test_a_closed_memory_refuses_everything_and_leaves_the_store_open(
    memory, ltm, notes, job
):
    notes.add("kept")
    ltm.close()
    ltm.close()
    calls: list[Callable[[], object]] = [
        *(functools.partial(call, ltm, notes) for call in OPERATIONS.values()),
        lambda: ltm.get_memory_set("notes"),
        lambda: ltm.delete_memory_set("notes"),
        lambda: ltm.switch_context("key"),
        lambda: ltm.configure_observation(**ALL_OBSERVED),
        lambda: ltm.drain_ltm_observation_records("key", "x"),
    ]

    for call in calls:
        with pytest.raises(StoreClosedError):
            call()
    assert texts_of(memory, job, "key") == ["kept"]


@pytest.mark.requirement("sets-F10")
def test_without_flink_agents_the_classes_are_ours(memory, job):
    with own_classes() as module:
        ltm = module.CrdtLongTermMemory(memory, job)
        ltm.switch_context("key")
        notes = ltm.get_memory_set("notes")

    assert module.MemorySet.__module__ == "crdtmem.compat.flink.own"
    assert isinstance(notes, module.MemorySet)
    assert repr(notes) == "MemorySet(name='notes')"


# -- compaction


def joined(request):
    return [Summary(" | ".join(item.text for item in request.items))]


def failing(request):
    raise RuntimeError("no model")


def test_an_add_that_fills_a_set_compacts_it(kind, memory, job):
    policy = CompactionPolicy(joined, capacity=3)
    ltm = kind.memory(memory, job, compaction=policy)
    notes = on_key(ltm, "key")
    before = [len(notes.add(text)) for text in ("a", "b")]
    ids = notes.add("c")

    assert (before, len(ids)) == ([1, 1], 1)
    assert values(notes.get()) == ["a | b | c"]
    assert notes.get(ids) == []


def test_a_compaction_that_fails_is_logged_and_the_add_is_kept(
    kind, memory, caplog, job
):
    ltm = kind.memory(memory, job, compaction=CompactionPolicy(failing, capacity=1))
    notes = on_key(ltm, "key")
    (one,) = notes.add("secret words")

    assert values(notes.get(one)) == ["secret words"]
    (record,) = [each for each in caplog.records if "flink" in each.name]
    assert "summariser-failed" in record.getMessage()
    assert "secret words" not in caplog.text
