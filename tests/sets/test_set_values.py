import json
from typing import Any
from uuid import UUID

import pytest
from pydantic import TypeAdapter, ValidationError

from crdtmem import CompactionPolicy, CompactionRequest, Summary
from crdtmem.model import Model, ModelType, camel_case
from crdtmem.sets import values

HEADROOM = (
    "itemCount itemLimit size sizeLimit free pctUsed rev setHash tombstones warning?"
)
CALL = "requestId? replayed?"
NAMES = {
    "AddResult": f"{HEADROOM} ids durable {CALL}",
    "Binding": "partitionKey encodedKey namespace scope observationId?"
    " observationSuppressed? observe?",
    "CompactResult": f"{HEADROOM} ran added removed skipped passId? {CALL}",
    "DropResult": f"{HEADROOM} existed deleted durable {CALL}",
    "Item": "id set text metadata createdAt updatedAt lane rev size conflicts?"
    " sources?",
    "ItemChange": "rev itemId operation lane at old? new?",
    "ItemConflict": "text metadata updatedAt lane",
    "ItemDeleteResult": f"{HEADROOM} deleted missing durable {CALL}",
    "ItemHistory": "entries more oldestRev",
    "ItemPage": f"{HEADROOM} items more missing? cursor?",
    "ItemUndoResult": f"{HEADROOM} restored removed kept {CALL}",
    "ItemValue": "text metadata",
    "Observation": "op set id query value version?",
    "PartitionInfo": "partitionKey encodedKey sets itemCount",
    "SetHeadroom": HEADROOM,
    "SetInfo": f"{HEADROOM} name createdAt updatedAt",
    "SkippedSummary": "summary reason",
    "UpdateResult": f"{HEADROOM} id changed created durable {CALL}",
}
MODELS = {
    name: value
    for name, value in vars(values).items()
    if isinstance(value, ModelType) and value is not Model and name[0] != "_"
}


def joined(request):
    return [Summary(" | ".join(item.text for item in request.items))]


def test_every_result_has_the_names_of_the_contract():
    assert {
        name: " ".join(
            camel_case(field) + "?" * (field in model.defaults) for field in model.names
        )
        for name, model in MODELS.items()
    } == NAMES


def test_results_of_a_real_run_are_json_that_takes_no_other_key(memory, facts):
    bound = memory.bind(partition_key=("k", b"\xff", UUID(int=1)), observation_id="o")
    handle = bound.memory_set("facts")
    given = [bound.binding, handle.add(["p", "q"], {"n": 1})]
    ids = given[-1].ids
    given += [handle.update(ids[0], "p2"), handle.get(), *handle.get().items]
    given += [handle.delete(ids[1], request_id="r"), handle.undo(3), handle.history()]
    given += [*handle.history().entries, handle.headroom(), *bound.memory_sets()]
    given += [handle.compact(CompactionPolicy(joined, capacity=1))]
    given += [*memory.partitions(), handle.drop(), *bound.drain_observations()]
    seen = {type(result).__name__ for result in given}

    assert seen | {"ItemConflict", "ItemValue", "SkippedSummary"} == set(NAMES)
    for result in given:
        form = result.to_dict()
        assert json.loads(json.dumps(form)) == form
        adapter = TypeAdapter(type(result))
        assert adapter.validate_python(form).to_dict() == form
        with pytest.raises(ValidationError, match="novelty"):
            adapter.validate_python(form | {"novelty": 1})


def test_what_a_summariser_gets_and_gives_has_its_order_and_defaults():
    assert CompactionRequest._fields == ("items", "limit", "prompt", "set_name")
    assert Summary("x") == ("x", None, {})
    policy = CompactionPolicy(joined)
    assert policy[1:] == (100, 1, None, 0, None, 90)
    metadata: Any = Summary("x").metadata
    with pytest.raises(TypeError):
        metadata["n"] = 1
