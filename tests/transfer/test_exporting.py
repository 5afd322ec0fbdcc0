import io
import json
import os
import stat

import pytest

import crdtmem
from crdtmem.errors import InvalidArgumentError


@pytest.fixture
def memory(tmp_path):
    with crdtmem.open(tmp_path / "store" / "s.db", lane="a", project="p") as memory:
        yield memory


def records_in(text):
    return [json.loads(line) for line in text.splitlines()]


def kinds_in(text):
    return [(r["type"], r.get("label"), r.get("rev")) for r in records_in(text)]


def exported(memory, **choice):
    stream = io.StringIO()
    memory.export(stream, **choice)
    return stream.getvalue()


def test_slots_come_by_scope_and_label_each_before_its_kept_texts(memory):
    memory.slot("persona").append("me")
    memory.slot("pending_items").append("1")
    memory.slot("pending_items").append("2")
    memory.create("alpha", "x")

    text = exported(memory)

    assert kinds_in(text) == [
        ("header", None, None),
        ("slot", "alpha", 0),
        ("slot", "pending_items", 2),
        ("history", "pending_items", 0),
        ("history", "pending_items", 1),
        ("slot", "persona", 1),
        ("history", "persona", 0),
        ("end", None, None),
    ]


def test_a_slot_is_written_with_all_that_it_is(memory):
    memory.create(
        "plan", "v1", size_limit=99, description="d", pinned=False, append_only=True
    )
    memory.slot("plan").append("ü\u2028😀")

    header, slot, past, end = records_in(exported(memory))

    view = memory.slot("plan").read()
    assert header == {
        "type": "header",
        "format": "crdtmem-slots",
        "version": 1,
        "at": header["at"],
        "replica": memory.status().replica,
    }
    assert slot == {
        "type": "slot",
        "label": "plan",
        "scope": "project",
        "project": "p",
        "content": "v1\nü\u2028😀",
        "contentHash": slot["contentHash"],
        "rev": 1,
        "description": "d",
        "sizeLimit": 99,
        "pinned": False,
        "readOnly": False,
        "appendOnly": True,
        "createdAt": view.created_at,
        "updatedAt": view.updated_at,
        "deleted": False,
    }
    assert slot["contentHash"].startswith(view.content_hash)
    assert past | {"at": ""} == {
        "type": "history",
        "label": "plan",
        "scope": "project",
        "project": "p",
        "at": "",
        "operation": "append",
        "lane": "a",
        "rev": 0,
        "content": "v1",
        "contentHash": past["contentHash"],
    }
    assert end == {"type": "end", "slots": 1, "history": 1}


def test_only_what_was_chosen_is_written(memory):
    memory.slot("persona").append("me")
    memory.create("alpha", "x")
    memory.create("beta", "y")

    assert [k[1] for k in kinds_in(exported(memory, scope="project"))[1:-1]] == [
        "alpha",
        "beta",
    ]
    assert kinds_in(exported(memory, labels=["persona", "beta"], history=False)) == [
        ("header", None, None),
        ("slot", "beta", 0),
        ("slot", "persona", 1),
        ("end", None, None),
    ]


def test_a_deleted_slot_is_written_for_its_kept_texts(memory):
    memory.create("plan", "v1")
    memory.delete("plan")

    _, slot, past, _ = records_in(exported(memory))

    assert (slot["deleted"], slot["content"]) == (True, "")
    assert past["content"] == "v1"


def test_other_projects_are_not_written(memory):
    memory.create("mine", "x")
    with crdtmem.open(memory.path, lane="a", project="q") as other:
        other.create("theirs", "y")

    assert "theirs" not in exported(memory)


def test_a_file_is_replaced_as_a_whole_for_its_owner_alone(memory, tmp_path):
    memory.create("plan", "é")
    target = tmp_path / "out.jsonl"
    target.write_text("old", encoding="utf-8")
    target.chmod(0o644)

    report = memory.export(target)

    assert (report.slots, report.history) == (1, 0)
    assert report.bytes == target.stat().st_size
    assert target.read_bytes().isascii()
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert sorted(os.listdir(tmp_path)) == ["out.jsonl", "store"]


def test_an_export_that_cannot_be_written_leaves_what_was_there(memory, tmp_path):
    with pytest.raises(InvalidArgumentError, match="no regular file"):
        memory.export(tmp_path)

    assert os.listdir(tmp_path) == ["store"]


def test_a_stream_that_fails_ends_the_export_and_not_the_handle(memory):
    memory.create("plan", "v1")
    stream = io.StringIO()
    stream.close()

    with pytest.raises(ValueError, match="closed file"):
        memory.export(stream)

    assert memory.slot("plan").append("v2").content == "v1\nv2"
