"""crdtmem.compat.flink.binding: which key a set is of, in which threads"""

import copy
import json
import pickle

import pytest

from crdtmem.errors import (
    OwnerThreadError,
    UnboundError,
)
from crdtmem.sets import owner_thread
from tests.compat import long_term
from tests.compat.long_term import (
    ALL_OBSERVED,
    OPERATIONS,
    UNBOUND,
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


# -- F4: no key, no operation


def made_before_any_key(kind, ltm):
    early = ltm.get_memory_set("notes")
    ltm.switch_context("key")
    return early


def constructed(kind, ltm):
    return kind.rebuilt("notes", ltm=ltm)


def without_a_memory(kind, ltm):
    return kind.rebuilt("notes")


def unpickled(kind, ltm):
    return pickle.loads(pickle.dumps(on_key(ltm, "key")))


@pytest.mark.requirement("sets-F4")
@pytest.mark.parametrize(
    "make", [made_before_any_key, constructed, without_a_memory, unpickled]
)
def test_a_set_that_is_bound_to_no_key_is_refused(
    kind, memory, ltm, unchanged, make, job
):
    on_key(ltm, "key").add("kept")
    on_key(ltm, "").add("kept")
    elsewhere = kind.memory(memory, job)
    memory_set = make(kind, elsewhere)

    with unchanged(memory):
        for operation in OPERATIONS.values():
            with pytest.raises(ValueError, match=f"'notes' is {UNBOUND}") as caught:
                operation(elsewhere, memory_set)
            assert isinstance(caught.value, UnboundError)


@pytest.mark.requirement("sets-F4")
def test_a_set_that_was_read_from_json_is_refused(ltm, notes):
    if hasattr(notes, "model_dump_json"):
        text = notes.model_dump_json()
        again = type(notes).model_validate_json(text)
    else:
        # The own classes have no JSON; their fields say the same.
        text = json.dumps({"name": notes.name})
        again = type(notes)(**json.loads(text))

    assert json.loads(text) == {"name": "notes"}
    with pytest.raises(ValueError, match=UNBOUND):
        ltm.add(again, "text")


@pytest.mark.requirement("sets-F4")
def test_a_set_without_a_memory_refuses_its_own_verbs():
    with own_classes() as module:
        alone = module.MemorySet(name="notes")
        calls = [
            lambda: alone.add("x"),
            alone.get,
            lambda: alone.search("x", 1),
            alone.delete,
        ]

        for call in calls:
            with pytest.raises(ValueError, match=UNBOUND):
                call()


@pytest.mark.requirement("sets-F4")
def test_a_copy_of_a_set_keeps_its_key(ltm, notes):
    copies = [copy.copy(notes), copy.deepcopy(notes)]
    ltm.switch_context("other")
    for each in copies:
        each.add("x")

    assert copies == [notes, notes]
    assert values(notes.get()) == ["x", "x"]


@pytest.mark.requirement("sets-F4")
def test_no_set_is_deleted_before_there_is_a_key(memory, ltm, unchanged):
    with unchanged(memory), pytest.raises(ValueError, match=UNBOUND):
        ltm.delete_memory_set("notes")


# -- F6: suppression


@pytest.mark.requirement("sets-F6")
def test_suppression_goes_with_the_set_and_not_with_what_is_current(ltm):
    ltm.configure_observation(**ALL_OBSERVED)
    quiet = on_key(ltm, "k", observation_id="quiet", observation_suppressed=True)
    live = on_key(ltm, "k", observation_id="live")
    operate(ltm, quiet)
    while_live = [operations_of(ltm, "k", name) for name in ("quiet", "live")]
    ltm.switch_context("k", observation_id="quiet", observation_suppressed=True)
    operate(ltm, live)

    assert while_live == [[], []]
    assert operations_of(ltm, "k", "quiet") == []
    assert operations_of(ltm, "k", "live") == ["ADD", "GET", "SEARCH", "DELETE_SET"]


# -- F7: threads


@pytest.mark.requirement("sets-F7")
def test_sets_are_managed_in_the_owners_thread_only(ltm, memory, notes, unchanged, job):
    notes.add("kept")
    calls = [
        lambda: ltm.get_memory_set("notes"),
        lambda: ltm.delete_memory_set("notes"),
        lambda: ltm.switch_context("other"),
        lambda: ltm.configure_observation(**ALL_OBSERVED),
    ]
    with unchanged(memory):
        for call in calls:
            with pytest.raises(OwnerThreadError, match="owner thread"):
                in_thread(call)
    operate(ltm, notes, in_thread)

    assert notes == ltm.get_memory_set("notes")
    assert texts_of(memory, job, "key") == []


class NotTheMailboxError(Exception):
    """As the runtime's own check raises."""


@pytest.mark.requirement("sets-F7")
def test_another_check_of_the_owner_decides_and_passes_through(kind, memory, job):
    allowed = [True]

    def owner():
        if not allowed:
            raise NotTheMailboxError

    ltm = kind.memory(memory, job, owner=owner)
    notes = in_thread(lambda: on_key(ltm, "key"))
    allowed.clear()

    for call in (lambda: ltm.get_memory_set("x"), lambda: ltm.switch_context("y")):
        with pytest.raises(NotTheMailboxError):
            call()
    operate(ltm, notes)


@pytest.mark.requirement("sets-F7")
def test_a_check_made_for_another_thread_is_obeyed(kind, memory, job):
    ltm = kind.memory(memory, job, owner=in_thread(owner_thread))

    with pytest.raises(OwnerThreadError):
        ltm.switch_context("key")


# -- F8: sets that a bridge has made anew


def has_fields(kind):
    return kind.set_type is not None


@pytest.mark.requirement("sets-F8")
def test_a_rebuilt_set_works_on_the_key_in_its_fields(kind, memory, ltm, job):
    ltm.configure_observation(**ALL_OBSERVED)
    made = on_key(ltm, "a", observation_id="action")
    fields = {"partition_key": "a", "observation_id": "action"}
    ltm.switch_context("b")
    if not has_fields(kind):
        assert not hasattr(made, "partition_key")
        return
    rebuilt = kind.rebuilt("notes", **fields)
    quiet = kind.rebuilt("notes", **fields, observation_suppressed=True)
    in_thread(lambda: ltm.add(rebuilt, "text"))
    ltm.add(quiet, "more")

    assert {name: getattr(made, name) for name in fields} == fields
    assert made.observation_suppressed is False
    assert texts_of(memory, job, "a") == ["text", "more"]
    assert operations_of(ltm, "a", "action") == ["ADD"]
    assert texts_of(memory, job, "b") == []


@pytest.mark.requirement("sets-F8")
def test_a_set_of_another_key_than_a_string_cannot_be_rebuilt(
    kind, memory, ltm, unchanged, job
):
    on_key(ltm, "1").add("kept")
    keys = (1, b"1", True, ("1",))
    made = [on_key(ltm, key) for key in keys]
    for each in made:
        each.add("kept")
    with unchanged(memory):
        for each in made:
            fields = {"partition_key": each.partition_key} if has_fields(kind) else {}
            assert set(fields.values()) <= {None}
            with pytest.raises(ValueError, match=UNBOUND):
                ltm.get(kind.rebuilt("notes", ltm=ltm, **fields))

    assert [texts_of(memory, job, key) for key in keys] == [["kept"]] * 4


@pytest.mark.requirement("sets-F8")
def test_a_set_of_another_memory_is_refused(kind, memory, ltm, notes, unchanged, job):
    elsewhere = kind.memory(memory, f"not {job}")

    with (
        unchanged(memory),
        pytest.raises(ValueError, match="another long-term memory"),
    ):
        elsewhere.add(notes, "text")
