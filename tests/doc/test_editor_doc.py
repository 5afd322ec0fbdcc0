"""The document that the editors of a slot share."""

from typing import Any

import pytest
from hypothesis import given, strategies as st
from pycrdt import Doc, Text

from crdtmem.doc.delta import Splice, apply_delta
from crdtmem.doc.editor_doc import EditorDoc, following_delta, text_of_other
from crdtmem.errors import DocError, UpdateRejectedError
from crdtmem.protocol.codec import write_str, write_uint

ANCHOR = (1 << 32) + 5
ANA = 70_000
LINES = st.lists(
    st.sampled_from(["a\n", "b c\n", "b d\n", "é 😀 x\n", "\n", "z"]), max_size=6
).map("".join)


def made(text="one\n", gid=7):
    return EditorDoc.make(gid=gid, anchor=ANCHOR, incarnation="f" * 32, text=text)


def editor(document, client=ANA):
    doc: Doc[Any] = Doc(client_id=client)
    doc.apply_update(document.diff(b""))
    return doc, doc.get("content", type=Text)


def test_a_new_document_has_the_text_and_its_own_entry():
    document = made("é\n")

    assert (document.text, document.clocks) == ("é\n", {7: 2, ANCHOR: 1})
    assert EditorDoc.load(7, document.state()).text == "é\n"


def test_a_document_of_an_empty_slot_has_its_entry_alone():
    assert made("").clocks == {ANCHOR: 1}


def test_an_update_gives_what_was_new_of_it_and_its_change():
    document = made()
    doc, content = editor(document)
    content += "é😀"

    effect = document.take(doc.get_update(), {ANA: 3})

    assert effect is not None
    assert effect.delta == (Splice(4, 4, "é😀"),)
    assert len(effect.update) < len(doc.get_update())
    assert document.text == "one\né😀"
    assert document.take(doc.get_update(), {ANA: 3}) is None


def test_a_row_replayed_gives_the_same_document():
    document, again = made(), made()
    doc, content = editor(document)
    content += "x"
    effect = document.take(doc.get_update(), {ANA: 1})

    again.replay(effect.update)

    assert again.diff(document.state_vector()) == b"\0\0"
    assert again.text == document.text


def test_an_edit_is_made_under_the_gateways_id():
    document = made()
    doc, content = editor(document)

    doc.apply_update(document.edit((Splice(0, 4, "é\n"),)))

    assert str(content) == document.text == "é\n"
    assert document.clocks[7] == 6


def test_what_would_wait_for_more_is_refused():
    document = made()
    circle = b"".join(map(write_uint, (2, 1, ANA + 1, 0, 0x84, ANA, 0)))
    circle += write_str("x")
    circle += b"".join(map(write_uint, (1, ANA, 0, 0x84, ANA + 1, 0)))
    circle += write_str("y") + b"\0"

    with pytest.raises(DocError):
        document.take(circle, {ANA: 1, ANA + 1: 1})


def test_no_state_vector_is_refused():
    with pytest.raises(UpdateRejectedError):
        made().diff(b"\x05")


def test_a_state_that_is_none_is_refused():
    with pytest.raises(DocError):
        EditorDoc.load(7, b"nonsense")


def test_a_spent_document_is_not_squashed():
    document = made()
    document.text = "other"

    with pytest.raises(DocError):
        document.state()


@pytest.mark.requirement("serve-19")
def test_the_text_of_another_document_can_be_read():
    assert text_of_other(made("theirs\n").state()) == "theirs\n"


@given(LINES, LINES)
def test_the_editors_text_becomes_the_slots(old, new):
    assert apply_delta(old, following_delta(old, new)) == new


@pytest.mark.parametrize(
    ("old", "new", "delta"),
    [
        ("a b c\n", "a x c\n", (Splice(2, 3, "x"),)),
        ("typed", "typed\nlane\n", (Splice(5, 5, "\nlane\n"),)),
        ("a\nb\n", "a\nb\nc\n", (Splice(4, 4, "c\n"),)),
        ("gone\n", "new\n", (Splice(0, 5, "new\n"),)),
        ("a b\n", "a c\nlane\n", (Splice(0, 4, "a c\nlane\n"),)),
    ],
)
def test_only_words_of_a_changed_line_are_replaced(old, new, delta):
    assert following_delta(old, new) == delta


@pytest.mark.requirement("serve-17")
@pytest.mark.parametrize("gid", [7, 65_535])
def test_lines_that_follow_stand_whole_before_what_is_typed_at_the_end(gid):
    document = made("one\n", gid)
    doc, content = editor(document)
    content += "typed"
    update = doc.get_update(document.state_vector())
    for line in ("lane 1\n", "lane 2\n"):
        text = document.text + line
        document.edit(following_delta(document.text, text))

    document.take(update, {ANA: 5})

    assert document.text == "one\nlane 1\nlane 2\ntyped"


@pytest.mark.requirement("serve-17")
def test_under_a_large_id_lines_would_be_glued_to_what_is_typed():
    document = made("one\n", ANA + 1)
    doc, content = editor(document)
    content += "typed"
    update = doc.get_update(document.state_vector())
    document.edit(following_delta(document.text, "one\nlane\n"))

    document.take(update, {ANA: 5})

    assert document.text == "one\ntypedlane\n"
