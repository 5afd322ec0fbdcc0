"""The scanner for what editors send."""

from random import Random
from typing import Any

import pytest
from pycrdt import Array, Doc, Map, Text

from crdtmem.doc.editor_doc import EditorDoc
from crdtmem.errors import DocError, UpdateRejectedError
from crdtmem.limits import CLOCK_MAX, EDITOR_STEP2_BYTES, STATE_CLIENTS_MAX, UINT_MAX
from crdtmem.protocol.codec import write_bytes, write_str, write_uint
from crdtmem.protocol.editors import EditorSession, UpdateOffered
from crdtmem.updates import scan_editor, scan_other
from tests.conftest import PROFILE

ANCHOR = (1 << 32) + 5
ANA, BEN = 70_000, 80_000
GC, DELETED, STRING, ANY, SKIP = 0, 1, 4, 8, 10
KEYED, RIGHT, LEFT = 0x20, 0x40, 0x80
LIMIT = 1 << 20
MUTATED = {"default": 300, "campaign": 10_000}[PROFILE]


def scanned(update, state=None, limit=LIMIT, halves=frozenset()):
    return scan_editor(
        update,
        state=state or {},
        reserved=frozenset((ANCHOR,)),
        halves=halves,
        limit_bytes=limit,
    )


def code_of(update, state=None, limit=LIMIT):
    with pytest.raises(UpdateRejectedError) as caught:
        scanned(update, state, limit)
    return caught.value.code


def uints(*values):
    return b"".join(map(write_uint, values))


def section(client, clock, *structs):
    return uints(len(structs), client, clock) + b"".join(structs)


def update(*sections, deletes=b"\0"):
    return uints(len(sections)) + b"".join(sections) + deletes


def text(words, root="content", *, info=STRING, key=None):
    found = uints(info, 1) + write_str(root)
    return found + (write_str(key) if key else b"") + write_str(words)


def after(client, clock, words, *, info=STRING | LEFT):
    return bytes([info]) + uints(client, clock) + write_str(words)


def editor_doc(words="one\n"):
    return EditorDoc.make(gid=7, anchor=ANCHOR, incarnation="f" * 32, text=words)


def editor(document, client=ANA):
    doc: Doc[Any] = Doc(client_id=client)
    doc.apply_update(document.diff(b""))
    return doc, doc.get("content", type=Text)


def test_what_an_editor_types_and_deletes_is_accepted():
    document = editor_doc("one\ntwo\n")
    doc, content = editor(document)
    have = doc.get_state()
    content.insert(len(content), "é😀")
    del content[0:2]

    found = scanned(doc.get_update(have), document.clocks)

    assert found.clients == {ANA: 3}


def test_all_that_an_editor_holds_is_accepted_with_what_is_known():
    document = editor_doc()
    doc, content = editor(document)
    content += "more"

    found = scanned(doc.get_update(), document.clocks)

    assert found.clients == {**document.clocks, ANA: 4}


def test_an_editor_may_carry_the_text_of_others():
    document = editor_doc()
    doc, content = editor(document)
    content += "ana"
    other, others = editor(document, BEN)
    other.apply_update(doc.get_update())
    others += " ben"

    assert scanned(other.get_update(), document.clocks).clients[ANA] == 3


def test_remains_of_deleted_text_are_accepted():
    remains = update(
        section(ANA, 0, uints(GC, 2), uints(DELETED, 1) + write_str("content") + b"\3"),
        deletes=uints(1, ANA, 1, 0, 5),
    )

    assert scanned(remains).clients == {ANA: 5}


@pytest.mark.requirement("serve-21")
@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (update(section(ANA, 0, text("x", "other"))), "unsupported-content"),
        (update(section(ANA, 0, text("x", key="k", info=STRING | KEYED))),
         "unsupported-content"),
        (update(section(ANA, 0, uints(STRING, 0, ANA, 0) + write_str("x"))),
         "unsupported-content"),
        (update(section(ANA, 0, uints(ANY, 1) + write_str("content") + b"\1\x7e")),
         "unsupported-content"),
        (update(section(ANA, 0, uints(6, 1) + write_str("content") + b"\0")),
         "unsupported-content"),
        (update(section(ANA, 0, text("x", "crdtmem", key="k", info=STRING | KEYED))),
         "other-incarnation"),
        (update(section(ANA, 0, text("x"), after(ANA, 0, "y", info=0xA4))),
         "unsupported-content"),
        (update(section(ANA, 0, after(ANCHOR, 0, "x"))), "unsupported-content"),
        (update(deletes=uints(1, ANCHOR, 1, 0, 1)), "unsupported-content"),
        (update(section(7, 0, text("x"))), "update-client"),
        (update(section(ANCHOR, 0, text("x"))), "update-client"),
        (uints(1, 1) + b"\xff" * 7 + b"\x1f\0", "update-client"),
        (update(section(ANA, 1, text("x"))), "update-gap"),
        (update(section(ANA, 0, uints(SKIP, 3), text("x"))), "update-gap"),
        (update(section(ANA, 0, after(BEN, 0, "x"))), "update-gap"),
        (update(section(ANA, 0, after(ANA, 0, "x"))), "update-gap"),
        (update(section(ANA, 0, after(ANA, 4, "x", info=STRING | RIGHT))),
         "update-gap"),
        (update(deletes=uints(1, ANA, 1, 0, 1)), "update-gap"),
        (update(section(ANA, 0)), "update-malformed"),
        (update(section(ANA, 0, text("x")), section(ANA, 0, text("x"))),
         "update-malformed"),
        (update(section(ANA, 0, text(""))), "update-malformed"),
        (update(section(ANA, 0, b"\x80\1")), "update-malformed"),
        (update(section(ANA, 0, uints(GC, CLOCK_MAX + 1))), "update-malformed"),
        (update(section(ANA, 0, text("x")), deletes=uints(1, ANA, 1, 0, 0)),
         "update-malformed"),
        (uints(STATE_CLIENTS_MAX + 1), "update-malformed"),
        (update() + b"\0", "update-malformed"),
        (b"", "update-malformed"),
        (update(section(ANA, 0, uints(STRING, 1) + write_str("content") + b"\1\xff")),
         "update-text"),
    ],
)  # fmt: skip
def test_what_no_editor_of_text_sends_is_refused_with_its_rule(bad, code):
    assert code_of(bad) == code


SMILE = update(section(ANA, 0, text("a😀z")))


@pytest.mark.requirement("serve-21")
@pytest.mark.parametrize(
    "cut",
    [
        update(section(BEN, 0, after(ANA, 1, "x"))),
        update(section(BEN, 0, after(ANA, 2, "x", info=STRING | RIGHT))),
        update(deletes=uints(1, ANA, 1, 1, 1)),
        update(deletes=uints(1, ANA, 1, 2, 1)),
        update(deletes=uints(1, ANA, 1, 0, 2)),
        update(section(ANA, 4, text("x")), section(BEN, 0, after(ANA, 1, "x"))),
    ],
)
def test_what_would_cut_a_character_in_two_is_refused(cut):
    halves = scanned(SMILE).halves
    assert halves == {(ANA, 2)}
    with pytest.raises(UpdateRejectedError) as caught:
        scanned(cut, {ANA: 4}, halves=halves)
    assert caught.value.code == "update-half"
    # Also where the character comes along, whole or in part.
    assert code_of(SMILE[:-1] + uints(1, ANA, 1, 2, 1)) == "update-half"
    assert code_of(SMILE, {ANA: 2}) == "update-half"


def test_whole_characters_are_deleted_and_stood_between():
    halves = scanned(SMILE).halves
    good = update(
        section(BEN, 0, after(ANA, 0, "x"), after(ANA, 2, "y")),
        deletes=uints(1, ANA, 1, 1, 2),
    )
    assert scanned(good, {ANA: 4}, halves=halves).clients == {BEN: 2}


def test_an_id_may_be_as_large_as_javascript_counts():
    assert scanned(update(section(UINT_MAX, 0, text("x")))).clients == {UINT_MAX: 1}


def test_an_update_that_is_too_large_is_refused():
    assert code_of(update(section(ANA, 0, text("x" * 50))), limit=50) == (
        "update-too-large"
    )


@pytest.mark.requirement("serve-21")
def test_formats_embeds_and_nested_types_are_refused():
    for change in (
        lambda _, content: content.format(0, 2, {"bold": True}),
        lambda _, content: content.insert_embed(0, {"image": "x"}),
        lambda doc, _: doc.get("list", type=Array).append("x"),
        lambda doc, _: doc.get("map", type=Map).update({"a": 1}),
    ):
        document = editor_doc()
        doc, content = editor(document)
        have = doc.get_state()
        change(doc, content)

        assert code_of(doc.get_update(have), document.clocks) == "unsupported-content"


@pytest.mark.requirement("serve-19")
def test_an_editor_with_another_document_is_told_apart_and_its_text_is_read():
    ours = editor_doc()
    theirs = EditorDoc.make(gid=9, anchor=ANCHOR + 1, incarnation="e" * 32, text="x\n")
    doc, content = editor(theirs)
    content += "typed"
    whole = doc.get_update(ours.state_vector())

    assert code_of(whole, ours.clocks) == "other-incarnation"
    scan_other(whole, limit_bytes=EDITOR_STEP2_BYTES)


def test_another_document_with_more_than_text_is_not_read():
    with pytest.raises(UpdateRejectedError):
        scan_other(update(section(ANA, 0, text("x", "other"))), limit_bytes=LIMIT)


@pytest.mark.requirement("serve-20")
def test_mutated_frames_are_refused_or_leave_a_sound_document():
    document = editor_doc("one\ntwo 😀\n")
    state = document.state()
    doc, content = editor(document)
    content.insert(4, "é😀x")
    del content[0:3]
    good = doc.get_update(document.state_vector())
    taken = 0
    for seed in range(MUTATED):
        random = Random(seed)
        frame = b"\0\2" + write_bytes(mutated(good, random))
        if random.random() < 0.2:
            frame = mutated(frame, random)
        session = EditorSession(anchor=ANCHOR, now=0.0)
        for one in session.receive(frame, 0.0):
            if isinstance(one, UpdateOffered):
                taken += is_sound_with(EditorDoc.load(7, state), one.update)
    assert 0 < taken < MUTATED


def mutated(frame, random):
    found = bytearray(frame)
    for _ in range(random.randint(1, 3)):
        place = random.randrange(len(found))
        if random.random() < 0.5:
            found[place] = random.randrange(256)
        else:
            del found[place]
    return bytes(found)


def is_sound_with(document, update):
    """Tell whether a document takes an update; if so, it is as good as before."""
    try:
        found = scanned(update, document.clocks, halves=document.halves())
        document.take(update, found.clients)
    except (DocError, UpdateRejectedError):
        return False
    assert EditorDoc.load(7, document.state()).text == document.text
    return True
