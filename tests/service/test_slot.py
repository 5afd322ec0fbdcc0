"""The verbs of one slot: append, replace, edit, insert, restore, set_meta, read."""

import inspect

import pytest
from hypothesis import assume, given, strategies as st
from pycrdt import Doc, Text

from crdtmem.doc.text_form import file_of, view_lines
from crdtmem.headroom import content_hash
from crdtmem.limits import UINT_MAX
from crdtmem.models import UNSET
from crdtmem.protocol.envelopes import UpdateEnvelope, Write, encode_envelope
from crdtmem.protocol.records import DocKind, client_id
from crdtmem.rewriting import with_lines
from crdtmem.slot import Slot
from tests.exchange import Record, receive
from tests.replica import FOREIGN, insert_at_the_end

HEADROOM = ("size", "sizeLimit", "free", "pctUsed", "rev", "contentHash")

# Each row appends to what the rows before have left.
APPENDS = [
    ("a", "a", 1),
    ("b", "a\nb", 3),
    ("c\n", "a\nb\nc\n", 6),
    ("d", "a\nb\nc\nd", 7),
    ("\ne", "a\nb\nc\nd\n\ne", 10),
    ("\n", "a\nb\nc\nd\n\ne\n\n", 12),
    ("\n", "a\nb\nc\nd\n\ne\n\n\n", 13),
    (" ", "a\nb\nc\nd\n\ne\n\n\n ", 14),
    ("x\r\n", "a\nb\nc\nd\n\ne\n\n\n \nx\r\n", 18),
    ("y\r", "a\nb\nc\nd\n\ne\n\n\n \nx\r\ny\r", 20),
    ("z", "a\nb\nc\nd\n\ne\n\n\n \nx\r\ny\r\nz", 22),
]


def test_appends_add_a_newline_only_where_it_is_needed(memory):
    memory.create("t")
    slot = memory.slot("t")

    for rev, (text, view, size) in enumerate(APPENDS, 1):
        result = slot.append(text)
        assert (result.content, result.size, result.rev) == (view, size, rev)
        assert result.content_hash == content_hash(view)[:16]
        assert slot.read().content == view


def test_an_append_to_a_foreign_file_begins_a_line(memory):
    memory.create("t")
    insert_at_the_end(memory, "t", "abc")

    assert memory.slot("t").append("d").content == "abc\nd"


def test_an_append_to_a_lone_newline_takes_its_place(memory):
    memory.create("t")
    insert_at_the_end(memory, "t", "\n")

    assert memory.slot("t").read().content == ""
    assert memory.slot("t").append("a").content == "a"


@given(st.lists(st.text("ab\n\r\x00é😀", min_size=1, max_size=4), max_size=6))
def test_appended_texts_all_stand_in_the_view_in_order(texts):
    view = ""
    for text in texts:
        view += ("" if not view or view.endswith("\n") else "\n") + text
    lines = view_lines(view)

    assert "\n".join(lines) == view
    at_chars = 0
    for text in texts:
        at_chars = view.index(text, at_chars) + len(text)


@pytest.mark.requirement("P5")
def test_every_result_tells_how_full_the_slot_is(memory):
    made = memory.create("t", "x" * 60, size_limit=100)
    slot = memory.slot("t")

    results = [
        made,
        slot.append("y" * 10),
        slot.replace("x" * 71),
        slot.edit("x" * 71, "z" * 71),
        slot.insert(0, "top"),
        slot.undo(),
        slot.undo(dry_run=True),
        slot.restore(slot.history().entries[0].id, expected_rev=5),
        slot.set_meta(size_limit=101),
        slot.read(),
        slot.read(at_rev=1),
        slot.read(lines=(1, 1)),
        slot.history().current,
        *memory.slots(),
    ]

    for result in results:
        form = result.to_dict()
        assert set(HEADROOM) <= form.keys()
        assert form["free"] == max(0, form["sizeLimit"] - form["size"])
        assert ("warning" in form) == (form["pctUsed"] >= 70)
    assert "compact before the next large append" in results[1].warning


def test_a_write_tells_what_was_before_it(memory):
    memory.create("t", "one")

    result = memory.slot("t").append("two")

    assert result.to_dict() == {
        **{key: result.to_dict()[key] for key in HEADROOM},
        "label": "t",
        "scope": "project",
        "operation": "append",
        "changed": True,
        "content": "one\ntwo",
        "previousSize": 3,
        "previousRev": 0,
        "durable": False,
        "historyId": memory.slot("t").history().entries[0].id,
    }


def test_a_write_is_durable_where_the_handle_is(open_lane):
    with open_lane(durability="full") as memory:
        assert memory.slot("persona").append("x").durable is True
        assert memory.delete("persona").durable is True


def test_an_empty_replace_empties_the_slot(memory):
    memory.create("t", "a\nb")

    result = memory.slot("t").replace("")

    assert (result.content, result.size, result.rev) == ("", 0, 1)


def test_a_replace_keeps_the_authors_of_lines_that_stay(memory, other):
    memory.create("t", "a\nb\nc")
    other.slot("t").replace("a\nB\nc")

    assert [line.lane for line in memory.slot("t").blame()] == ["a", "b", "a"]


# -- edit


def test_an_edit_replaces_one_passage_and_names_its_lines(memory):
    memory.create("t", "a\nb\nc")

    result = memory.slot("t").edit("b", "x\ny")

    assert (result.content, result.lines) == ("a\nx\ny\nc", (2, 3))
    assert result.operation == "edit"


def test_an_edit_may_delete(memory):
    memory.create("t", "a\nb\nc")

    assert memory.slot("t").edit("b\n", "").content == "a\nc"


def test_an_edit_can_name_its_match_or_mean_all(memory):
    memory.create("t", "k1 k2\nk3")
    slot = memory.slot("t")

    assert slot.edit("k", "K", occurrence=2).content == "k1 K2\nk3"
    assert slot.edit("k", "q", occurrence="all").content == "q1 K2\nq3"
    assert slot.edit("3", "4", lines=(2, 2)).content == "q1 K2\nq4"


def test_an_edit_that_finds_what_it_writes_changes_nothing(memory, unchanged):
    memory.create("t", "a")

    with unchanged(memory):
        result = memory.slot("t").edit("a", "a")

    assert (result.changed, result.rev, result.lines) == (False, 0, UNSET)


@pytest.mark.parametrize(
    ("args", "options", "code"),
    [
        (("x", "y"), {}, "text-not-found"),
        (("k", "y"), {}, "text-ambiguous"),
        (("k", "y"), {"occurrence": 4}, "text-not-found"),
        (("k1", "y"), {"lines": (2, 2)}, "text-not-found"),
    ],
)
def test_an_edit_without_its_match_is_refused(memory, refusal, args, options, code):
    memory.create("t", "k1 k2\nk3")

    error = refusal(memory, memory.slot("t").edit, *args, **options)

    assert error.code == code
    assert "slot 't'" in error.message


# -- insert


@pytest.mark.parametrize(
    ("view", "line", "text", "after", "lines"),
    [
        ("", 0, "x", "x", (1, 1)),
        ("a", 0, "x\n", "x\na", (1, 1)),
        ("a", 1, "x\ny", "a\nx\ny", (2, 3)),
        ("a\nb", 1, "\n", "a\n\nb", (2, 2)),
        ("a\nb", 1, "b\nx", "a\nb\nx\nb", (2, 3)),
        ("a\n", 2, "x", "a\n\nx", (3, 3)),
        ("a\r\nb", 1, "x\ny\r\n", "a\r\nx\r\ny\r\nb", (2, 3)),
        ("a\nb", 1, "x\r\ny", "a\nx\r\ny\nb", (2, 3)),
    ],
)
def test_an_insert_puts_whole_lines_behind_a_line(
    memory, view, line, text, after, lines
):
    memory.create("t", view)

    result = memory.slot("t").insert(line, text, expected_rev=0)

    assert (result.content, result.lines) == (after, lines)


def test_a_blank_line_changes_nothing_in_an_empty_slot(memory, unchanged):
    memory.create("t")

    with unchanged(memory):
        assert memory.slot("t").insert(0, "\n").changed is False


def test_an_insert_anywhere_but_at_the_top_needs_a_guard(memory, refusal):
    memory.create("t", "a\nb")
    slot = memory.slot("t")

    error = refusal(memory, slot.insert, 1, "x")

    assert error.code == "invalid-precondition"
    assert error.details["reason"] == "guard-required"
    assert slot.insert(0, "top").content == "top\na\nb"


def test_a_line_that_is_not_there_is_refused_with_the_last_one(memory, refusal):
    memory.create("t", "a\nb")

    error = refusal(memory, memory.slot("t").insert, 3, "x", expected_rev=0)

    assert (error.code, error.details) == (
        "invalid-argument",
        {"argument": "line", "max": 2},
    )
    assert "line must be between 0 and 2, not 3" in error.message


def test_a_line_number_may_be_one_of_an_older_text(memory, other):
    memory.create("t", "a\nb")
    other.slot("t").insert(0, "top")

    result = memory.slot("t").insert(1, "x\ny", base_rev=0)

    assert (result.content, result.merged) == ("top\na\nx\ny\nb", True)
    assert result.lines == (3, 4)


def test_a_line_number_may_be_one_of_the_newest_text(memory):
    memory.create("t", "a\nb")

    assert memory.slot("t").insert(1, "x", base_rev=0).content == "a\nx\nb"


def test_an_insert_into_an_older_text_may_change_nothing(memory, unchanged):
    memory.create("t")
    memory.slot("t").append("x")

    with unchanged(memory):
        result = memory.slot("t").insert(0, "\n", base_rev=0)

    assert (result.changed, result.content) == (False, "x")


@given(st.text("a\n", max_size=6), st.integers(0, 4), st.text("b\n", min_size=1))
def test_inserted_lines_part_no_other_line(view, line, text):
    line = min(line, len(view_lines(view)))
    new = view_lines(with_lines(view, line, text))
    count = len(new) - len(view_lines(view))

    # A view of one blank line is a view of none.
    assume(file_of("\n".join(new)))

    assert count == max(1, text.removesuffix("\n").count("\n") + 1)
    assert new[:line] + new[line + count :] == view_lines(view)


# -- restore


def test_a_restore_writes_a_kept_text_again(memory, other):
    memory.create("t", "one")
    entry = other.slot("t").replace("two").history_id

    result = memory.slot("t").restore(entry, expected_rev=1)

    assert (result.content, result.operation, result.rev) == ("one", "restore", 2)
    assert memory.audit(limit=1)[0].details == {"target": entry}
    assert memory.slot("t").history().entries[0].operation == "restore"


def test_a_restore_needs_a_guard(memory, refusal):
    memory.create("t", "one")
    entry = memory.slot("t").replace("two").history_id

    error = refusal(memory, memory.slot("t").restore, entry)

    assert error.details["reason"] == "guard-required"


@pytest.mark.parametrize("text", ["one", ""])
def test_a_restore_brings_a_deleted_slot_back_with_its_settings(memory, text):
    memory.create("t", text, size_limit=77, description="d", pinned=False)
    entry = memory.delete("t").history_id

    result = memory.slot("t").restore(entry, expected_rev=1)
    view = memory.slot("t").read()

    assert (result.changed, result.rev, view.content) == (True, 2, text)
    assert (view.size_limit, view.description, view.pinned) == (77, "d", False)


def test_a_restore_of_what_differs_in_no_way_that_is_seen_writes_nothing(
    memory, unchanged
):
    memory.create("t", "abc")
    insert_at_the_end(memory, "t", "def")
    entry = memory.slot("t").replace("abc\ndef2").history_id
    memory.slot("t").replace("abc\ndef")

    with unchanged(memory):
        result = memory.slot("t").restore(entry, expected_rev=3)

    assert (result.changed, result.rev) == (False, 3)


@pytest.mark.parametrize("entry", ["h1-none", "", 5, None, "x" * 99, "h٣-1", "h"])
def test_an_unknown_entry_cannot_be_restored(memory, refusal, entry):
    memory.create("t", "one")
    memory.slot("t").append("two")

    error = refusal(memory, memory.slot("t").restore, entry, expected_rev=1)

    assert error.code == "history-not-found"
    assert "no history entry" in error.message
    assert "crdtmem log t" in error.hint


# -- set_meta


def test_settings_change_neither_text_nor_rev(memory):
    memory.create("t", "x")
    before = memory.slot("t").read()

    after = memory.slot("t").set_meta(
        description="d", size_limit=50, pinned=False, read_only=True, append_only=True
    )

    assert (after.rev, after.content_hash, after.content) == (
        0,
        before.content_hash,
        "x",
    )
    assert (after.description, after.size_limit, after.pinned) == ("d", 50, False)
    assert (after.read_only, after.append_only) == (True, True)
    assert after.updated_at > before.updated_at
    assert memory.slot("t").read() == after


def test_settings_can_be_lifted_from_a_read_only_slot(memory):
    memory.create("t", "x", read_only=True)

    assert memory.slot("t").set_meta(read_only=False).read_only is False
    assert memory.slot("t").append("y").changed


def test_an_audit_row_has_the_old_and_the_new_settings(memory):
    memory.create("t", "x")
    memory.slot("t").set_meta(pinned=False, size_limit=2000, description="d")

    assert memory.audit(limit=1)[0].details == {
        "old": {"pinned": True, "description": ""},
        "new": {"pinned": False, "description": "d"},
    }


def test_settings_that_are_so_already_write_nothing(memory, unchanged):
    with unchanged(memory):
        view = memory.slot("persona").set_meta(size_limit=1000)

    assert view.template is True


def test_the_first_setting_makes_the_slot_of_a_template(memory):
    view = memory.slot("persona").set_meta(size_limit=50)

    assert (view.template, view.rev, view.pinned) == (UNSET, 0, True)
    assert view.description.startswith("Who the agent is")


def test_at_least_one_setting_is_needed(memory, refusal):
    error = refusal(memory, memory.slot("persona").set_meta)

    assert error.code == "invalid-argument"
    assert "description, size_limit, pinned, read_only or append_only" in error.message


def test_a_limit_below_the_size_may_be_set(memory):
    memory.create("t", "x" * 20)

    view = memory.slot("t").set_meta(size_limit=10)

    assert (view.free, view.pct_used) == (0, 200)
    assert "over its sizeLimit by 10" in view.warning


# -- read


def test_lines_are_cut_from_the_text_and_size_stays_that_of_the_whole(memory):
    memory.create("t", "a\nb\u2028\r\nc\n")

    view = memory.slot("t").read(lines=(2, 3))

    assert (view.content, view.lines.to_dict()) == (
        "b\u2028\r\nc",
        {"from": 2, "to": 3, "total": 4},
    )
    assert (view.size, view.content_hash) == (8, content_hash("a\nb\u2028\r\nc\n")[:16])
    assert memory.slot("t").read(at_rev=0, lines=[4, 9]).content == ""


def test_a_kept_text_can_be_read_by_its_rev(memory, refusal):
    memory.create("t", "one")
    memory.slot("t").append("two")

    view = memory.slot("t").read(at_rev=0)

    assert (view.content, view.rev, view.size) == ("one", 0, 3)
    assert memory.slot("t").read(at_rev=1).content == "one\ntwo"
    assert refusal(memory, memory.slot("t").read, at_rev=2).details["reason"] == "ahead"
    assert refusal(memory, memory.slot("t").read, at_rev=None).argument == "at_rev"


def test_a_deleted_slot_shows_only_its_past(memory, refusal):
    memory.create("t", "one")
    memory.slot("t").append("two")
    memory.delete("t")
    slot = memory.slot("t")

    reads = [(slot.read, {}), (slot.read, {"at_rev": 0}), (slot.blame, {})]
    writes = [(slot.append, ("x",)), (slot.replace, ("x",)), (slot.edit, ("o", "x"))]
    for verb, options in reads:
        assert refusal(memory, verb, **options).code == "slot-not-found"
    for verb, args in [*writes, (slot.insert, (0, "x"))]:
        assert refusal(memory, verb, *args).code == "slot-not-found"
    assert refusal(memory, slot.set_meta, pinned=True).code == "slot-not-found"
    assert [e.rev for e in slot.history().entries] == [1, 0]
    assert slot.history_entry(slot.history().entries[0].id).content == "one\ntwo"
    assert slot.diff(0, 1).unified.endswith("+two")
    assert slot.undo().content == "one\ntwo"


@pytest.mark.requirement("P9")
def test_a_handle_stays_bound_to_what_it_found(memory):
    memory.create("t", "global", scope="global")
    slot = memory.slot("t")
    memory.create("t", "project")

    slot.append("more")

    assert (slot.scope, slot.read().content) == ("global", "global\nmore")
    assert memory.slot("t").read().content == "project"


def test_a_handle_shows_its_label_and_scope_and_no_text(memory):
    assert repr(memory.slot("persona")) == "Slot('persona', 'global')"


@pytest.mark.parametrize(
    "verb", [name for name in vars(Slot) if not name.startswith("_")]
)
@pytest.mark.requirement("P7")
def test_an_unknown_keyword_is_a_type_error(memory, verb):
    needed = {
        name: "x"
        for name, parameter in inspect.signature(getattr(Slot, verb)).parameters.items()
        if parameter.default is parameter.empty and name != "self"
    }

    with pytest.raises(TypeError, match="novelty"):
        getattr(memory.slot("persona"), verb)(**needed, novelty=1)


@pytest.mark.requirement("P8")
def test_a_record_of_any_time_can_be_shown(memory):
    """Of the far future, too: the clock of its writer is not ours to trust."""
    doc: Doc[Text] = Doc(client_id=client_id(FOREIGN, 0))
    doc.get("content", type=Text).insert(0, "late\n")
    write = Write(
        is_genesis=False,
        counter=0,
        lane="z",
        at_ms=UINT_MAX,
        op="edit",
        update=doc.get_update(),
    )
    envelope = UpdateEnvelope(DocKind.SLOT, "t", (write,))
    receive(
        memory.store, "p", [Record(FOREIGN, 1, encode_envelope(envelope), origin=0)]
    )

    line = memory.slot("t").blame()[0]
    overwrote = memory.slot("t").replace("mine").overwrote

    assert (line.lane, line.at) == ("z", "9999-12-31T23:59:59.999Z")
    assert [commit.at for commit in overwrote] == [line.at]
