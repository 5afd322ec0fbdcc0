"""The handle on all slots: lists, resolution, life-cycle, and what it passes on."""

import inspect
import io
from typing import Any

import pytest

import crdtmem
from crdtmem.memory import Memory
from crdtmem.models import UNSET
from crdtmem.scope import TEMPLATES

VERBS = [
    name
    for name, value in vars(Memory).items()
    if inspect.isfunction(value) and not name.startswith("_")
]


def labels(views):
    return [view.label for view in views]


def test_a_handle_knows_who_and_where_it_is(memory, tmp_path):
    assert (memory.lane, memory.project) == ("a", "p")
    assert memory.path == tmp_path / "s" / "store.db"
    assert repr(memory) == f"Memory({str(memory.path)!r}, lane='a')"


def test_slots_are_listed_by_label_with_unwritten_templates(memory):
    memory.create("aaa", "x")
    memory.create("zzz", "y", scope="global")

    listed = memory.slots()

    assert labels(listed) == sorted(["aaa", "zzz", *(label for _, label in TEMPLATES)])
    assert {v.label for v in listed if v.template is UNSET} == {"aaa", "zzz"}
    assert labels(memory.slots(templates=False)) == ["aaa", "zzz"]
    assert labels(memory.slots("global", templates=False)) == ["zzz"]
    assert labels(memory.slots("project", templates=False)) == ["aaa"]
    assert [v.content for v in memory.slots(content=False)] == [UNSET] * len(listed)


def test_templates_are_as_the_contract_says(memory):
    assert [
        (v.label, v.scope, v.size_limit, v.pinned, v.rev, v.created_at, v.updated_at)
        for v in memory.slots()
    ] == [
        ("guidance", "project", 1500, True, 0, None, None),
        ("pending_items", "project", 2000, True, 0, None, None),
        ("persona", "global", 1000, True, 0, None, None),
        ("project_context", "project", 3000, True, 0, None, None),
        ("self_notes", "project", 1500, False, 0, None, None),
        ("session_patterns", "project", 1500, False, 0, None, None),
        ("tool_guidelines", "global", 1500, True, 0, None, None),
        ("user_preferences", "global", 2000, True, 0, None, None),
    ]


@pytest.mark.parametrize(
    ("options", "code", "argument"),
    [
        ({"scope": "all"}, "invalid-scope", "scope"),
        ({"scope": ""}, "invalid-scope", "scope"),
        ({"scope": 5}, "invalid-scope", "scope"),
        ({"templates": None}, "invalid-argument", "templates"),
        ({"content": "no"}, "invalid-argument", "content"),
    ],
)
def test_a_malformed_list_is_refused(memory, refusal, options, code, argument):
    error = refusal(memory, memory.slots, **options)

    assert (error.code, error.argument) == (code, argument)
    assert argument in error.message


def test_a_scope_is_one_of_two(memory, refusal):
    for verb in (memory.slot, memory.delete):
        error = refusal(memory, verb, "t", "Global")
        assert error.code == "invalid-scope"
        assert "scope must be 'project' or 'global'" in error.message
        assert "'Global'" in error.message


def test_a_label_is_resolved_in_order(memory):
    def scope():
        return memory.slot("guidance").scope

    order = [scope()]
    memory.create("guidance", "g", scope="global")
    order.append(scope())
    memory.slot("guidance", "project").append("p")
    order.append(scope())
    memory.delete("guidance", "project")
    order.append(scope())
    memory.delete("guidance", "global")
    order.append(scope())

    assert order == ["project", "global", "project", "global", "project"]
    assert memory.slot("persona").scope == "global"
    assert memory.slot("persona", "project").scope == "project"


def test_a_deleted_slot_is_found_last(memory):
    memory.create("t", "g", scope="global")
    memory.delete("t")

    assert memory.slot("t").scope == "global"
    assert [e.operation for e in memory.slot("t").history().entries] == ["delete"]


@pytest.mark.requirement("P9")
def test_projects_share_only_what_is_global(memory, open_lane):
    elsewhere = open_lane(project="q")
    memory.create("t", "mine")
    memory.create("u", "shared", scope="global")

    assert labels(elsewhere.slots(templates=False)) == ["u"]
    assert elsewhere.create("t", "theirs").changed
    assert memory.slot("t").read().content == "mine"


def test_projects_are_listed_with_their_live_slots(memory, open_lane):
    elsewhere = open_lane(project="q")
    elsewhere.create("t")
    elsewhere.create("u")
    elsewhere.delete("u")
    memory.create("g", scope="global")
    memory.create("gone")
    memory.delete("gone")

    assert [(p.project, p.slots) for p in memory.projects()] == [("q", 1)]
    updated = [v.updated_at for v in elsewhere.slots(templates=False) if v.label == "t"]
    assert [p.updated_at for p in memory.projects()] == updated


# -- life-cycle


def test_a_closed_handle_refuses_every_verb(memory, tmp_path):
    memory.create("t", "x")
    slot = memory.slot("t")
    memory.close()
    memory.close()

    calls = {
        "audit": (),
        "backup": (tmp_path / "b",),
        "compact": (),
        "condense_archive": ("cp_x",),
        "condense_due": (),
        "condense_passes": (),
        "context": (),
        "create": ("u",),
        "cursor": (),
        "changes": (),
        "delete": ("t",),
        "delete_many": (["t"],),
        "doctor": (),
        "export": (io.StringIO(),),
        "forget_seen": (),
        "import_": (io.StringIO('{"type":"header"}\n'),),
        "mark_seen": (),
        "projects": (),
        "rename": ([("t", "u")],),
        "slot": ("t",),
        "slots": (),
        "status": (),
        "unread": (),
    }
    for name, args in calls.items():
        with pytest.raises(crdtmem.CrdtmemError) as caught:
            getattr(memory, name)(*args)
        assert (name, caught.value.code) in {
            (name, "store-closed"),
            ("import_", "import-refused"),
        }
    with pytest.raises(crdtmem.StoreClosedError) as caught:
        memory.configure(history_keep=5)
    assert str(memory.path) in caught.value.message
    assert caught.value.hint == "open the store again"
    assert {*calls, "configure", "close"} == set(VERBS)
    for verb, args in {"read": (), "append": ("y",), "undo": (), "blame": ()}.items():
        with pytest.raises(crdtmem.StoreClosedError):
            getattr(slot, verb)(*args)


def test_a_block_closes_its_handle(open_lane):
    with open_lane() as memory:
        memory.create("t")

    assert memory.store.is_closed


def test_a_handle_for_reading_reads_and_refuses_every_write(memory, open_lane, refusal):
    memory.create("t", "x")
    entry = memory.slot("t").append("y").history_id
    reader = open_lane("b", read_only=True)
    slot = reader.slot("t")

    calls: list[tuple[Any, Any, Any]] = [
        (slot.append, ("z",), {"expected_rev": 9}),
        (slot.replace, ("x\ny",), {}),
        (slot.edit, ("absent", "z"), {}),
        (slot.insert, (0, "z"), {}),
        (slot.restore, (entry,), {"expected_rev": 1}),
        (slot.undo, (), {}),
        (slot.set_meta, (), {"pinned": False}),
        (reader.create, ("t",), {}),
        (reader.delete, ("t",), {}),
        (reader.rename, ([("t", "u")],), {}),
        (reader.delete_many, (["absent"],), {}),
        (reader.configure, (), {"history_keep": 5}),
        (reader.slot("absent").append, ("z",), {}),
    ]
    for verb, args, options in calls:
        error = refusal(memory, verb, *args, **options)
        assert error.code == "store-read-only"
        assert str(memory.path) in error.message
        assert error.hint == "open the store without read_only"
    assert slot.read().content == "x\ny"
    assert reader.status().read_only is True
    assert [c.label for c in reader.changes().changes] == ["t"]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.requirement("P7")
def test_an_unknown_keyword_is_a_type_error(memory, verb):
    with pytest.raises(TypeError, match="novelty"):
        getattr(memory, verb)(novelty=1)


# -- context


def test_a_context_shows_pinned_slots_or_those_that_are_named(memory):
    memory.create("pin", "pinned text")
    memory.create("loose", "loose text", pinned=False)
    memory.create("blank", " \n")
    memory.create("glob", "global text", scope="global")

    def shown(**options):
        return [s.label for s in memory.context(**options).slots]

    assert shown() == ["glob", "pin"]
    assert shown(scope="global") == ["glob"]
    assert shown(labels=["loose", "absent"]) == ["loose"]
    assert "# crdtmem pinned slots" in memory.context(style="headings").text


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"budget_tokens": 63}, "budget_tokens"),
        ({"budget_tokens": 200_001}, "budget_tokens"),
        ({"budget_tokens": None}, "budget_tokens"),
        ({"style": "html"}, "style"),
        ({"style": None}, "style"),
        ({"scope": "all"}, "scope"),
        ({"labels": ["BAD"]}, "label"),
        ({"labels": "persona"}, "labels"),
    ],
)
def test_a_malformed_context_is_refused(memory, refusal, options, argument):
    error = refusal(memory, memory.context, **options)

    assert error.argument == argument
    assert argument in error.message


# -- what is passed on


def test_slots_go_out_and_come_in(memory, open_lane):
    memory.create("t", "x")
    memory.create("u", "y", scope="global")
    target = io.StringIO()

    report = memory.export(target, labels=["t"], history=False, scope="project")
    taken = open_lane(store="r").import_(io.StringIO(target.getvalue()))

    assert (report.slots, report.history) == (1, 0)
    assert [(s.label, s.action) for s in taken.slots] == [("t", "created")]


def test_an_export_names_its_labels_as_several(memory, refusal):
    error = refusal(memory, memory.export, io.StringIO(), labels="persona")

    assert error.argument == "labels"


def test_a_store_is_examined_squashed_and_copied(memory, tmp_path):
    memory.create("t", "x")
    memory.create("u", scope="global")

    doctor = memory.doctor()
    compacted = memory.compact()
    backup = memory.backup(tmp_path / "copy.db")

    assert doctor.ok
    scopes = {c.label: c.scope for c in doctor.checks if c.label is not UNSET}
    assert scopes in ({}, {"t": "project", "u": "global"})
    assert (compacted.docs, compacted.records_before) == (2, 3)
    assert backup.path == str(tmp_path / "copy.db")
    assert backup.bytes > 0


def test_a_doctor_that_finds_damage_is_not_ok(memory):
    memory.create("t", "x")
    with memory.store.writing() as transaction:
        transaction.connection.execute("UPDATE slot SET size = 7")

    report = memory.doctor()

    assert not report.ok
    assert ("t", "project", "fail") in {
        (c.label, c.scope, c.status) for c in report.checks
    }
