"""crdtmem.doc.slot_doc"""

import pytest
from hypothesis import given, strategies as st
from pycrdt import Doc, Text

from crdtmem.doc.delta import Splice, apply_delta
from crdtmem.doc.slot_doc import SlotDoc, genesis_id_of, genesis_update
from crdtmem.doc.text_form import bytes_of
from crdtmem.errors import DocError, UpdateRejectedError
from crdtmem.protocol.records import DocKind, genesis_client_id
from crdtmem.textdiff import diff_lines
from tests.doc.histories import FILES
from tests.yjs_bytes import text, uint, update

OWN, OTHER = 7, 9


def line_at(start_chars, line):
    return (Splice(start_chars, start_chars, line),)


def lines_from(old, new):
    return tuple(Splice(*op) for op in diff_lines(old, new))


def doc_with(*lines):
    """Make a document, each line an edit of its own."""
    doc = SlotDoc(OWN)
    for line in lines:
        doc.edit(line_at(len(doc.file), line), {})
    return doc


def what_others_read(updates):
    """Return the text that another replica has after some updates."""
    doc: Doc[Text] = Doc()
    for one in updates:
        doc.apply_update(one)
    return str(doc.get("content", type=Text))


def known_of(doc):
    return doc.file, dict(doc.clocks), doc.meta, doc.state()


@pytest.mark.parametrize("before", ["", "plain", "é", "漢字", "🎉", "e\u0301 👨‍👩‍👧 é"])
@pytest.mark.parametrize(
    ("delta", "after"),
    [
        ((0, 0, "new\n"), "a\nb\nc\n"),
        ((2, 4, "new é\n"), "a\nc\n"),
        ((0, 2, ""), "b\nc\n"),
        ((6, 6, "🎉\n"), "a\nb\nc\n"),
    ],
)
def test_an_edit_behind_text_of_any_width_lands_where_it_should(before, delta, after):
    doc = SlotDoc(OWN)
    shift = len(before) + 1
    start, end, insert = delta
    first = doc.edit(line_at(0, f"{before}\na\nb\nc\n"), {})
    second = doc.edit((Splice(start + shift, end + shift, insert),), {})
    kept = after[:start], after[start:]

    assert doc.file == f"{before}\n{kept[0]}{insert}{kept[1]}"
    assert what_others_read([first, second]) == doc.file
    doc.check()


@given(st.lists(FILES, min_size=1, max_size=3))
def test_texts_after_any_edits_are_the_same_for_everybody(files):
    doc = SlotDoc(OWN)
    # A setting with each: an edit that changes nothing is refused.
    updates = [doc.edit(lines_from(doc.file, file), {"pinned": True}) for file in files]

    assert doc.file == files[-1]
    assert what_others_read(updates) == files[-1]
    assert SlotDoc.load(OWN, doc.state()).file == files[-1]
    doc.check()


def test_new_text_stands_in_front_of_what_it_replaces():
    doc = doc_with("old\n")
    other = SlotDoc.load(OTHER, doc.state())
    appended = other.edit(line_at(4, "appended\n"), {})
    doc.edit((Splice(0, 4, "new\n"),), {})
    doc.apply(appended, OTHER)

    assert doc.file == "new\nappended\n"


def test_whole_numbers_of_the_settings_are_integers():
    doc = SlotDoc(OWN)
    doc.edit((), {"sizeLimit": 2_000, "pinned": True, "description": "é"})
    settings = SlotDoc.load(OWN, doc.state()).meta

    assert settings == {"sizeLimit": 2_000, "pinned": True, "description": "é"}
    assert {type(value) for value in settings.values()} == {int, bool, str}


def test_the_update_of_an_edit_holds_that_edit_alone():
    doc = SlotDoc(OWN)
    for number in range(50):
        doc.edit(line_at(0, f"kept {number}\n"), {})
        doc.edit(line_at(0, "gone\n"), {})
        doc.edit((Splice(0, 5, ""),), {})
    end = doc.clocks[OWN]
    added = doc.edit(line_at(0, "new\n"), {})

    # The first character of the text is the one behind which nothing was deleted.
    assert b"new\n" in added
    assert added[-1:] == uint(0), "no deletes"
    assert len(added) < len("new\n") + 20
    assert doc.clocks[OWN] == end + 4


def test_an_edit_of_part_of_a_line_is_refused():
    doc = doc_with("one\n", "two\n")
    before = known_of(doc)
    with pytest.raises(DocError) as raised:
        doc.edit((Splice(1, 2, "x"),), {"pinned": True})

    assert raised.value.message == "an edit would write a part of a line"
    assert known_of(doc) == before


def test_an_edit_that_changes_nothing_is_refused():
    doc = doc_with("one\n")
    before = known_of(doc)
    with pytest.raises(DocError) as raised:
        doc.edit((), {})

    assert raised.value.message == "an edit gave 0 updates"
    assert known_of(doc) == before


def test_an_edit_that_pycrdt_refuses_leaves_the_document_spent():
    doc = doc_with("one\n")
    with pytest.raises(DocError, match="could not make an edit"):
        doc.edit(line_at(0, "zero\n"), {"description": object()})

    assert doc.file == "one\n"
    with pytest.raises(DocError):
        doc.check()


def test_empty_bytes_are_an_empty_document():
    doc = SlotDoc.load(OWN, b"")

    assert (doc.file, doc.clocks, doc.meta) == ("", {}, {})
    doc.check()


def test_a_loaded_document_writes_on_under_its_client_id():
    doc = doc_with("é\n", "b\n")
    doc.edit((), {"pinned": True})
    again = SlotDoc.load(OWN, doc.state())
    again.edit(line_at(2, "c\n"), {})

    assert again.file == "é\nc\nb\n"
    assert list(again.clocks) == [OWN]
    again.check()


@pytest.mark.parametrize("place", [0, 5, 10, -1])
def test_a_damaged_state_is_refused(place):
    state = bytearray(doc_with("one\n").state())
    state[place] ^= 0x80
    with pytest.raises((UpdateRejectedError, DocError)):
        SlotDoc.load(OWN, bytes(state)).check()


@given(FILES, FILES)
def test_what_another_replica_wrote_is_applied_and_told(before, after):
    doc = SlotDoc(OWN)
    doc.edit(line_at(0, f"{before}end\n"), {})
    mine = doc.file
    other = SlotDoc.load(OTHER, doc.state())
    sent = other.edit(lines_from(mine, f"{after}end \n"), {})
    delta = doc.apply(sent, OTHER)

    assert doc.file == other.file == apply_delta(mine, delta)
    assert doc.clocks == other.clocks
    doc.check()


def test_settings_of_another_replica_change_no_text():
    doc = doc_with("one\n")
    sent = SlotDoc.load(OTHER, doc.state()).edit((), {"sizeLimit": 9})
    delta = doc.apply(sent, OTHER)

    assert (delta, doc.file, doc.meta) == ((), "one\n", {"sizeLimit": 9})


def test_a_repeated_write_changes_nothing():
    doc = doc_with("one\n")
    sent = SlotDoc.load(OTHER, doc.state()).edit(line_at(4, "two\n"), {})
    doc.apply(sent, OTHER)
    before = known_of(doc)
    delta = doc.apply(sent, OTHER)

    assert delta == ()
    assert known_of(doc) == before


@pytest.mark.parametrize("verb", ["apply", "replay"])
def test_a_repetition_is_skipped_with_the_deletes_that_it_alone_has(verb):
    doc = doc_with("mine\n")
    struct = text("two\n", origin=(OWN, 4))
    doc.apply(update((OTHER, 0, [struct])), OTHER)
    before = known_of(doc)
    repeated = update((OTHER, 0, [struct]), deletes=[(OWN, [(0, 5)])])
    if verb == "apply":
        doc.apply(repeated, OTHER)
    else:
        doc.replay([(repeated, OTHER)])

    assert known_of(doc) == before
    doc.check()


BEHIND = {"origin": (OWN, 3)}


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (update((OTHER, 0, [text("x\n", origin=(8, 0))])), "update-origin"),
        (update((OTHER, 0, [text("x\n", origin=(OWN, 4))])), "update-origin"),
        (update((OTHER, 1, [text("x\n", **BEHIND)])), "update-clock"),
        (update((OWN, 4, [text("x\n", **BEHIND)])), "update-client"),
        (update((8, 0, [text("x\n", **BEHIND)])), "update-client"),
        (update(deletes=[(OWN, [(4, 10)])]), "update-delete"),
        (update(deletes=[(8, [(0, 1)])]), "update-delete"),
        (update((OTHER, 0, [text("x\n", **BEHIND)])) + b"\0", "update-malformed"),
        (update((OTHER, 0, [text(b"\xff\n", **BEHIND)])), "update-text"),
        (update((OTHER, 0, [text("x\n", root="other")])), "update-root"),
        (b"\x01\x01\x09\x00\x00\x05\x00", "update-content"),
    ],
)
@pytest.mark.parametrize("verb", ["apply", "replay"])
def test_a_refused_update_changes_nothing(verb, sent, code):
    doc = doc_with("one\n")
    before = known_of(doc)
    with pytest.raises(UpdateRejectedError) as raised:
        if verb == "apply":
            doc.apply(sent, OTHER)
        else:
            doc.replay([(sent, OTHER)])

    assert raised.value.code == code
    assert known_of(doc) == before
    doc.check()


def test_nothing_waits_in_a_document_that_a_state_would_leave_out():
    doc = doc_with("one\n")
    early = update((OTHER, 2, [text("late\n", origin=(OTHER, 1))]))
    first = update((OTHER, 0, [text("x\n", origin=(OWN, 3))]))
    with pytest.raises(UpdateRejectedError):
        doc.apply(early, OTHER)
    doc.apply(first, OTHER)
    without = SlotDoc.load(OWN, doc.state())
    doc.apply(early, OTHER)

    assert without.file == "one\nx\n"
    assert without.clocks == {OWN: 4, OTHER: 2}
    assert doc.file == "one\nx\nlate\n"
    assert SlotDoc.load(OWN, doc.state()).file == doc.file


@pytest.mark.parametrize(
    ("lines", "sent", "complaint"),
    [
        # The scanner reads bytes: it cannot know that a place is inside an emoji.
        ("a🎉b\n", update(deletes=[(OWN, [(2, 3)])]), "a squashed document differs"),
        (
            "🎉\n",
            update(
                (OTHER, 0, [text("\n", origin=(OWN, 1))]),
                deletes=[(OWN, [(0, 1)])],
            ),
            "a document differs from what its records say",
        ),
    ],
)
def test_half_an_emoji_deleted_is_found_by_the_check(lines, sent, complaint):
    doc = doc_with(lines)
    doc.apply(sent, OTHER)
    with pytest.raises(DocError) as raised:
        doc.check()

    assert complaint in raised.value.message


def test_a_squashed_document_that_no_scanner_lets_in_is_found_by_the_check():
    """What hangs on half an emoji that is gone hangs on nothing."""
    doc = doc_with("a🎉b\n")
    doc.apply(update((OTHER, 0, [text("x\n", origin=(OWN, 4))])), OTHER)
    doc.apply(update(deletes=[(OWN, [(1, 1)])]), OTHER)
    with pytest.raises(DocError) as raised:
        doc.check()

    assert raised.value.message == "a squashed document differs from its records"
    assert isinstance(raised.value.__cause__, UpdateRejectedError)


def test_a_clock_that_no_record_gave_is_found_by_the_check():
    doc = doc_with("one\n")
    doc.clocks[OTHER] = 1
    with pytest.raises(DocError):
        doc.check()


def test_a_document_replayed_from_its_log_is_the_one_that_wrote_it():
    doc = SlotDoc(OWN)
    deltas = line_at(0, "é\n"), line_at(2, "🎉\n"), (Splice(0, 2, "a\n漢\n"),)
    log = [(doc.edit(delta, {}), delta) for delta in deltas]
    again = SlotDoc(OTHER)
    again.replay([(sent, OWN) for sent, _ in log])

    assert (again.file, again.clocks) == (doc.file, doc.clocks)
    again.check()


NAME = {"namespace": "p", "label": "plan"}


def genesis_of(file, label="plan"):
    return genesis_update(
        genesis_client_id("p", DocKind.SLOT, label, file.encode()), file
    )


def test_a_first_text_made_by_two_replicas_is_there_once():
    file = "é\n🎉\n"
    docs = [SlotDoc(OWN), SlotDoc(OTHER)]
    deltas = [doc.apply_genesis(genesis_of(file), **NAME) for doc in docs]
    again = docs[0].apply_genesis(genesis_of(file), **NAME)

    assert deltas == [line_at(0, file)] * 2
    assert again == ()
    assert [doc.file for doc in docs] == [file, file]
    assert docs[0].state() == docs[1].state()


@pytest.mark.parametrize(
    ("sent", "code", "reason"),
    [
        (genesis_of("one\n", label="other"), "update-client", "not the one of this"),
        (genesis_of("one\n").replace(b"one", b"two"), "update-client", "not the one"),
        (genesis_update(OTHER, "one\n"), "update-client", f"client {OTHER} is not"),
        (update(), "update-client", "not one string at the root"),
        (update(deletes=[(OWN, [(0, 1)])]), "update-delete", "clock 1"),
        (genesis_of("one\n") + b"\0", "update-malformed", "1 bytes left over"),
    ],
)
def test_a_first_text_that_does_not_fit_its_client_id_is_refused(sent, code, reason):
    doc = doc_with("kept\n")
    before = known_of(doc)
    with pytest.raises(UpdateRejectedError) as raised:
        doc.apply_genesis(sent, **NAME)

    assert raised.value.code == code
    assert reason in raised.value.message
    assert known_of(doc) == before


def test_the_client_id_of_a_first_text_follows_from_its_slot_and_its_words():
    found = genesis_id_of(genesis_of("one\n"), **NAME)

    assert found == genesis_client_id("p", DocKind.SLOT, "plan", b"one\n")
    assert genesis_of("one\n") == genesis_of("one\n")


def test_a_state_holds_a_text_of_many_edits_in_few_bytes():
    doc = doc_with(*("line é\n" for _ in range(200)))

    assert len(doc.state()) < bytes_of(doc.file) + 50


def test_a_first_text_from_the_log_keeps_the_client_id_that_it_came_with():
    elsewhere = genesis_update(OTHER, "é\n")
    doc = SlotDoc(OWN)
    delta = doc.replay_genesis(elsewhere)

    assert (delta, doc.clocks) == (line_at(0, "é\n"), {OTHER: 2})
    assert doc.replay_genesis(elsewhere) == ()
    with pytest.raises(UpdateRejectedError):
        doc.replay_genesis(update((OTHER, 2, [text("x\n", origin=(OTHER, 1))])))
    doc.check()


@given(st.lists(FILES, min_size=1, max_size=3), FILES, FILES)
def test_a_state_brings_what_it_holds_and_tells_what_that_changed(shared, here, there):
    doc = SlotDoc(OWN)
    for file in shared:
        doc.edit(lines_from(doc.file, file), {"pinned": True})
    other = SlotDoc.load(OTHER, doc.state())
    doc.edit(lines_from(doc.file, here), {"description": "here"})
    other.edit(lines_from(other.file, there), {"sizeLimit": 9})
    before, sent = doc.file, other.state()
    back = doc.state()
    assert not doc.holds(sent)
    delta = doc.apply_state(sent)
    other.apply_state(back)

    assert doc.file == other.file == apply_delta(before, delta)
    assert doc.clocks == other.clocks
    assert doc.meta == {"pinned": True, "description": "here", "sizeLimit": 9}
    assert doc.holds(sent)
    assert doc.holds(back)
    assert doc.apply_state(sent) == ()
    doc.check()


def test_a_document_without_a_delete_does_not_hold_the_state_that_has_it():
    doc = doc_with("one\n", "two\n", "three\n")
    before = SlotDoc.load(OTHER, doc.state())
    doc.edit((Splice(0, 4, ""),), {})
    first = SlotDoc.load(OTHER, doc.state())
    doc.edit((Splice(4, 10, ""),), {})
    state = doc.state()

    assert [one.holds(state) for one in (before, first, doc)] == [False, False, True]
    assert doc.holds(before.state())
    assert before.clocks == first.clocks == doc.clocks
    assert SlotDoc(OTHER).holds(update())


def test_touching_deletes_of_a_state_count_as_one():
    doc = doc_with("one\n", "two\n", "three\n")
    doc.edit((Splice(0, 8, ""),), {})
    struct = text("one\ntwo\nthree\n", root="content")
    parts = [[(0, 4), (4, 4)], [(0, 6), (2, 6)], [(1, 2), (0, 8)]]

    for ranges in parts:
        assert doc.holds(update((OWN, 0, [struct]), deletes=[(OWN, ranges)]))
    beyond = update((OWN, 0, [struct]), deletes=[(OWN, [(0, 9)])])
    assert not doc.holds(beyond)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"", "update-malformed"),
        (update((OTHER, 1, [text("x\n", root="content")])), "update-clock"),
        (update((OTHER, 0, [text("x\n", origin=(OWN, 3))])), "update-origin"),
        (update(deletes=[(OWN, [(0, 1)])]), "update-delete"),
        (update((OTHER, 0, [text("x\n", root="other")])), "update-root"),
    ],
)
@pytest.mark.parametrize("verb", ["apply_state", "holds"])
def test_a_refused_state_changes_nothing(verb, sent, code):
    doc = doc_with("one\n")
    before = known_of(doc)
    with pytest.raises(UpdateRejectedError) as raised:
        getattr(doc, verb)(sent)

    assert raised.value.code == code
    assert known_of(doc) == before
    doc.check()
