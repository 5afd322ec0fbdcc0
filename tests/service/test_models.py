import copy
import dataclasses
import io
import pickle
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from crdtmem import models
from crdtmem.errors import ConflictError
from crdtmem.model import UNSET, Model, ModelType, camel_case
from crdtmem.models import (
    AuditEntry,
    Headroom,
    LineRange,
    SlotView,
    Unseen,
)
from tests.replica import exchange_records

HEADROOM = "size sizeLimit free pctUsed rev contentHash warning?"
CALL = "requestId? replayed?"
WRITE = (
    f"{HEADROOM} label scope operation changed content previousSize previousRev durable"
    f" historyId? merged? diff? overwrote? unseen? lines? {CALL}"
)
# Every key of every result, in the order of the contract; "?" may be absent.
NAMES = {
    "AuditEntry": "id at lane replica operation label scope rev sizeBefore sizeAfter"
    " details",
    "BackupReport": "path bytes",
    "BadRecord": "line code reason",
    "BlameLine": "line text lane at replica others",
    "Change": "label scope rev sinceRev size contentHash at operation lanes deleted?"
    " quarantined?",
    "ChangeFeed": "changes cursor more reset",
    "Commit": "lane at operation rev",
    "CompactReport": "docs recordsBefore recordsAfter bytesBefore bytesAfter",
    "Conflict": "reason expectedRev? expectedHash? baseRev? diff diffTruncated"
    " changedBy current",
    "ContextSlot": "label scope rev state shownLines totalLines",
    "ContextView": "text tokens budget slots",
    "DeleteResult": "label scope deleted previousSize previousRev rev historyId durable"
    f" uncovers? {CALL}",
    "Diff": "fromRev toRev unified added removed truncated",
    "DoctorCheck": "id status label? scope? message hint",
    "DoctorReport": "ok checks",
    "ExportReport": "slots history bytes items?",
    "Headroom": HEADROOM,
    "History": "label scope entries current more",
    "HistoryEntry": "id label scope at operation lane size rev contentHash preview"
    " undoable undone? content?",
    "ImportReport": "slots bad ignored truncated dryRun sets?",
    "ImportedSet": "set partition scope action added updated same differing deleted"
    " code?",
    "ImportedSlot": "label scope action code?",
    "LeaseStatus": "held pid command since",
    "LineRange": "from to total",
    "LinkStatus": "local remote url state since cursor head lag unsent lastError"
    " lastInSyncAt quarantined held blocked locked skipped alarms",
    "ObservationStatus": "buffered dropped",
    "ProjectInfo": "project slots updatedAt",
    "SlotView": f"{HEADROOM} label scope content? description pinned readOnly"
    f" appendOnly createdAt updatedAt template? shadows? quarantined? unseen? lines?"
    f" {CALL}",
    "StoreStatus": "path replica project projectSource lane durability schema"
    " schemaVersion slots records bytes walBytes historyKeep readOnly warnings"
    " sync observations",
    "SyncAlarm": "code at detail",
    "SyncFault": "code message at permanent",
    "SyncStatus": "lease links",
    "Undone": "id lane at",
    "UndoneEntry": "id operation lane at rev",
    "UndoResult": f"{WRITE} undone exact dryRun?",
    "Unseen": "sinceRev commits lanes at",
    "UnsentWrites": "writes bytes oldestAt",
    "WriteResult": WRITE,
}
MODELS = {
    name: value
    for name, value in vars(models).items()
    if isinstance(value, ModelType) and value is not Model
}
HALF = Headroom(
    size=1, size_limit=2, free=1, pct_used=50, rev=0, content_hash="ca978112ca1bbdca"
)


def results_of(memory, other, remote):
    """Call every verb that returns a result and return what they gave."""
    memory.slots()
    slot = memory.slot("pending_items")
    given = [slot.append(f"line {n}", request_id=f"r{n}") for n in range(3)]
    given += [slot.append("line 2", request_id="r2"), *memory.slots(content=False)]
    other.slot("pending_items").append("theirs")
    given += memory.unread()
    given += [slot.read(lines=(1, 2)), slot.read(at_rev=1), slot.set_meta(pinned=False)]
    given += [slot.edit("line 1", "LINE"), slot.replace("line 0", base_rev=1)]
    given += [memory.slot("pending_items").replace("mine"), slot.undo(dry_run=True)]
    given += [slot.undo(), slot.history(), slot.diff(0)]
    given += [slot.history_entry(slot.history().entries[-1].id), *slot.blame()]
    given += [memory.create("plan", "x" * 75, size_limit=100)]
    given += [memory.create("plan", scope="global"), memory.slot("plan").read()]
    given += [memory.delete("plan"), memory.changes(), *memory.audit()]
    given += [memory.context(), memory.status(), *memory.projects(), memory.doctor()]
    export = io.StringIO()
    given += [memory.export(export), memory.compact()]
    bad = export.getvalue() + '{"type": "slot"}\n'
    given += [remote.import_(io.StringIO(bad)), memory.backup(memory.path.parent / "b")]
    exchange_records([[memory], [remote]])
    with pytest.raises(ConflictError) as caught:
        slot.append("x", expected_rev=1)
    return given, caught.value.conflict


def test_every_result_has_the_names_of_the_contract():
    assert {
        name: " ".join(
            camel_case(field) + "?" * (field in model.defaults) for field in model.names
        )
        for name, model in MODELS.items()
    } == NAMES


def test_results_of_a_real_run_are_valid_and_take_no_other_key(
    memory, other, open_lane
):
    results, conflict = results_of(memory, other, open_lane(store="r"))

    seen = {type(result).__name__ for result in results}
    inner = {
        "BadRecord",
        "Commit",
        "ContextSlot",
        "DoctorCheck",
        "Headroom",
        "LineRange",
    }
    inner |= {"ImportedSet", "ImportedSlot", "Undone", "UndoneEntry", "Unseen"}
    inner |= {"Conflict"}
    # Held against their schema where a relay runs: tests/cli/test_sync.py.
    inner |= {"LeaseStatus", "LinkStatus", "SyncAlarm", "SyncFault", "SyncStatus"}
    inner |= {"ObservationStatus", "UnsentWrites"}
    assert seen | inner == set(NAMES)
    for result in results:
        adapter = TypeAdapter(type(result))
        form = result.to_dict()
        assert adapter.validate_python(form).to_dict() == form
        with pytest.raises(ValidationError, match="novelty"):
            adapter.validate_python(form | {"novelty": 1})
    assert TypeAdapter(models.Conflict).validate_python(conflict).to_dict() == conflict


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_model_is_a_dataclass_to_all_who_ask(name):
    model = MODELS[name]
    described: Any = model
    fields = dataclasses.fields(described)

    assert dataclasses.is_dataclass(model)
    assert tuple(field.name for field in fields) == model.names
    for field in fields:
        absent = field.default is dataclasses.MISSING
        assert absent == (field.name not in model.defaults)
    assert (
        TypeAdapter(model).json_schema(by_alias=True)["additionalProperties"] is False
    )


def test_dataclass_functions_work_on_a_value():
    changed = dataclasses.replace(HALF, rev=4)

    assert (changed.rev, changed.size, HALF.rev) == (4, 1, 0)
    assert changed == HALF.replaced(rev=4)
    assert dataclasses.asdict(HALF)["pct_used"] == 50


def test_values_are_equal_by_type_and_fields():
    twin = pickle.loads(pickle.dumps(HALF))

    assert (twin == HALF, hash(twin) == hash(HALF)) == (True, True)
    assert HALF.replaced(rev=1) != HALF
    assert HALF.to_dict() != HALF
    assert copy.deepcopy(HALF) == HALF


def test_what_is_unset_stays_unset_between_processes():
    assert pickle.loads(pickle.dumps(HALF)).warning is UNSET


def test_a_value_with_a_mapping_in_it_has_no_hash():
    values: dict[str, Any] = dict.fromkeys(AuditEntry.names, "")

    with pytest.raises(TypeError):
        hash(AuditEntry(**values | {"details": {}}))


def test_a_value_is_frozen():
    with pytest.raises(AttributeError, match="Headroom is frozen: rev"):
        setattr(HALF, "rev", 1)  # noqa: B010 - as a caller could
    with pytest.raises(AttributeError, match="Headroom is frozen: rev"):
        del HALF.rev
    with pytest.raises(AttributeError):
        setattr(HALF, "novelty", 1)  # noqa: B010 - likewise


def test_a_missing_or_unknown_field_is_a_type_error():
    with pytest.raises(TypeError, match="LineRange needs total"):
        LineRange(**dict.fromkeys(["from_", "to"], 1))
    with pytest.raises(TypeError, match="LineRange has no novelty, other"):
        LineRange(**dict.fromkeys(["from_", "to", "total", "other", "novelty"], 1))


def test_a_value_shows_its_fields():
    assert (
        repr(LineRange(from_=1, to=2, total=3)) == "LineRange(from_=1, to=2, total=3)"
    )
    assert repr(UNSET) == "UNSET"


def test_absent_keys_are_left_out_and_null_ones_are_not():
    unseen = Unseen(since_rev=1, commits=2, lanes=("b",), at=None)

    assert unseen.to_dict() == {
        "sinceRev": 1,
        "commits": 2,
        "lanes": ["b"],
        "at": None,
    }
    assert "warning" not in HALF.to_dict()


def test_nested_values_become_their_json_form(memory):
    memory.slot("persona").append("x")
    history = memory.slot("persona").history().to_dict()

    assert history["current"]["rev"] == 1
    assert [entry["rev"] for entry in history["entries"]] == [0]


def test_unset_is_false_and_is_none_of_the_values():
    values: tuple[object, ...] = (None, False, 0, "")

    assert not UNSET
    assert UNSET not in values


def test_fields_come_from_deferred_annotations_as_well():
    class Deferred(Model):
        __annotate__ = staticmethod(lambda form: {"size": int, "_note": str})

    class Plain(Deferred):
        pass

    assert Deferred(size=1).to_dict() == {"size": 1}
    assert (Deferred.names, Plain.names) == (("size",), ("size",))


def test_a_view_without_content_leaves_the_key_out(memory):
    views = [view.to_dict() for view in memory.slots(content=False)]

    assert [view.keys() & {"content"} for view in views] == [set()] * 8
    assert {type(view) for view in memory.slots()} == {SlotView}
