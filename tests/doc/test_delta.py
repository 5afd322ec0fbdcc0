"""crdtmem.doc.delta"""

import pytest
from hypothesis import given, strategies as st
from pycrdt import Doc, Text

from crdtmem.doc.delta import (
    Splice,
    apply_delta,
    check_delta,
    decode_delta,
    delta_of_event,
    encode_delta,
    in_whole_lines,
    is_line_start,
    is_whole_lines,
    joined,
)
from crdtmem.doc.text_form import append_splice, view_of
from crdtmem.textdiff import diff_lines
from tests.doc.histories import FILES, PICKS, ROUGH_CHANGES, ROUGH_TEXTS, rough_delta


def test_a_splice_inserts_in_front_of_what_it_deletes():
    delta = (Splice(1, 3, "é"), Splice(3, 3, "!"), Splice(4, 5, ""))

    assert apply_delta("abcde", delta) == "aé!d"
    assert apply_delta("", ()) == ""


@pytest.mark.parametrize(
    ("delta", "words"),
    [
        ((Splice(0, 6, ""),), "reaches to 6 in a text of 5 characters"),
        ((Splice(3, 2, ""),), "splice 3..2 does not ascend from 0"),
        ((Splice(0, 2, ""), Splice(1, 3, "")), "splice 1..3 does not ascend from 2"),
        ((Splice(-1, 2, ""),), "splice -1..2 does not ascend from 0"),
    ],
)
def test_splices_that_are_no_delta_over_the_text_are_refused(delta, words):
    with pytest.raises(ValueError, match=words):
        apply_delta("abcde", delta)

    assert not is_whole_lines("abcde", delta)


def test_a_delta_can_be_checked_without_its_text():
    check_delta((Splice(7, 9, ""),))

    with pytest.raises(ValueError, match=r"9\.\.7"):
        check_delta((Splice(9, 7, ""),))


def test_joining_keeps_the_order_of_inserted_and_deleted_text():
    splices = [
        Splice(0, 0, ""),
        Splice(1, 1, "a"),
        Splice(1, 1, "b"),
        Splice(1, 2, ""),
        Splice(2, 3, ""),
        Splice(3, 3, "behind"),
        Splice(3, 4, ""),
        Splice(6, 7, ""),
    ]

    assert joined(splices) == (
        Splice(1, 3, "ab"),
        Splice(3, 4, "behind"),
        Splice(6, 7, ""),
    )


@given(ROUGH_TEXTS, st.lists(st.tuples(PICKS, PICKS, ROUGH_TEXTS), max_size=4))
def test_an_event_of_pycrdt_becomes_what_it_did_to_the_text(old, edits):
    doc: Doc[Text] = Doc()
    doc["content"] = text = Text(old)
    events: list[dict[str, object]] = []
    subscription = text.observe(
        lambda event: events.extend(event.delta)  # type: ignore[attr-defined]  # a gap of the stub
    )
    with doc.transaction():
        for first, second, insert in edits:
            now = str(text)
            start, end = sorted(pick % (len(now) + 1) for pick in (first, second))
            start_bytes, end_bytes = len(now[:start].encode()), len(now[:end].encode())
            text.insert(end_bytes, insert)
            del text[start_bytes:end_bytes]
    text.unobserve(subscription)

    assert apply_delta(old, delta_of_event(old, events)) == str(text)


def test_an_event_that_inserts_behind_a_deletion_keeps_that_order():
    kept, gone, new = {"retain": 2}, {"delete": 4}, {"insert": "x"}
    behind: list[dict[str, object]] = [{**kept}, {**gone}, {**new}]
    in_front: list[dict[str, object]] = [{**kept}, {**new}, {**gone}]

    assert delta_of_event("é🎉", behind) == (Splice(1, 2, ""), Splice(2, 2, "x"))
    assert delta_of_event("é🎉", in_front) == (Splice(1, 2, "x"),)
    assert delta_of_event("abcdef", behind) == (Splice(2, 6, ""), Splice(6, 6, "x"))


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ([{"retain": 3}], "can't decode"),
        ([{"delete": 9}], "counts 9 bytes where 6 are left"),
        ([{"retain": 2}, {"delete": 5}], "counts 5 bytes where 4 are left"),
        ([{"retain": -1}], "counts -1 bytes"),
        ([{"insert": {"image": "x"}}], "an item of .'insert'."),
        ([{"attributes": {}}], "an item of .'attributes'."),
    ],
)
def test_an_event_that_does_not_fit_the_text_is_refused(event, words):
    with pytest.raises(ValueError, match=words):
        delta_of_event("é🎉", event)


@given(ROUGH_TEXTS, ROUGH_CHANGES)
def test_a_delta_survives_the_database(text, change):
    delta = rough_delta(text, change)

    assert decode_delta(encode_delta(delta)) == delta


def test_a_delta_is_stored_compactly():
    delta = (Splice(0, 2, "é\n"), Splice(7, 7, "\x00"))

    assert encode_delta(delta) == r'[[0,2,"é\n"],[7,7,"\u0000"]]'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[[0,1]]",
        '[[0,1,"a",2]]',
        "[[0,1,null]]",
        '[[0,1.0,"a"]]',
        '[[false,1,""]]',
        '[[0,true,""]]',
        '["abc"]',
        '[[3,2,""]]',
        '[[0,4,""],[2,5,""]]',
        '[[-1,2,""]]',
        "[" * 100_000,
    ],
)
def test_a_malformed_delta_is_refused(text):
    with pytest.raises(ValueError, match=r".") as caught:
        decode_delta(text)

    assert type(caught.value).__name__ in ("ValueError", "JSONDecodeError")


@pytest.mark.parametrize(
    ("old", "delta", "is_whole"),
    [
        ("a\nb\n", (), True),
        ("a\nb\n", (Splice(0, 2, "x\ny\n"),), True),
        ("a\nb\n", (Splice(4, 4, "x\n"),), True),
        ("a\nb\n", (Splice(2, 2, "x\n"), Splice(2, 4, "")), True),
        ("a\nb\n", (Splice(0, 1, ""),), False),
        ("a\nb\n", (Splice(0, 1, "x\n"),), False),
        ("a\nb\n", (Splice(1, 2, ""),), False),
        ("a\nb\n", (Splice(1, 3, ""),), False),
        ("a\nb\n", (Splice(1, 1, "x\n"),), False),
        ("a\nb\n", (Splice(2, 2, "x"),), False),
        ("a\nb\n", (Splice(4, 4, "x"),), False),
        ("a\nb\n", (Splice(0, 4, "x"),), False),
        # A blank line's newline is a whole line.
        ("a\n\n", (Splice(2, 3, "x\n"),), True),
        ("a\n\n", (Splice(2, 3, ""), Splice(3, 3, "x\n")), True),
        ("\n", (Splice(0, 1, "x\n"),), True),
        ("\n\n", (Splice(0, 1, ""),), True),
        # An editor left no final newline.
        ("a\nb", (Splice(3, 3, "\nx\n"),), True),
        ("a\nb", (Splice(3, 3, "x\n"),), False),
        ("a\nb", (Splice(3, 3, "\nx"),), False),
        ("a\nb", (Splice(2, 3, ""),), True),
        ("a\nb", (Splice(2, 3, "x\n"),), True),
        ("a\nb", (Splice(2, 3, ""), Splice(3, 3, "x\n"), Splice(3, 3, "y\n")), True),
        ("a\nb", (Splice(0, 2, ""), Splice(3, 3, "x\n")), False),
        ("a\nb", (Splice(0, 2, ""), Splice(2, 3, "x\n")), True),
        ("", (Splice(0, 0, "x\n"),), True),
        ("", (Splice(0, 0, "x"),), False),
        # Only "\n" ends a line.
        ("a\rb\n", (Splice(2, 4, ""),), False),
        ("a\u2028b\n", (Splice(2, 4, ""),), False),
    ],
)
def test_whole_lines_are_told_from_parts(old, delta, is_whole):
    assert is_whole_lines(old, delta) is is_whole


@given(FILES, FILES, st.text("a\n", min_size=1, max_size=4))
def test_diffs_and_appends_are_of_whole_lines(old, new, text):
    diff = tuple(Splice(*op) for op in diff_lines(old, new))
    append = Splice(*append_splice(old, text))

    assert is_whole_lines(old, diff)
    assert is_whole_lines(old, (append,))
    assert is_whole_lines(view_of(old), (Splice(*append_splice(view_of(old), text)),))


@given(ROUGH_TEXTS, ROUGH_CHANGES)
def test_any_change_can_be_made_in_whole_lines(old, change):
    delta = rough_delta(old, change)
    widened = in_whole_lines(old, delta)

    assert is_whole_lines(old, widened)
    assert view_of(apply_delta(old, widened)) == view_of(apply_delta(old, delta))


@pytest.mark.parametrize(
    ("old", "delta", "widened"),
    [
        ("a\nbc\nd\n", (Splice(3, 4, "x"),), (Splice(2, 5, "bx\n"),)),
        ("a\nbc\nd\n", (Splice(0, 2, ""),), (Splice(0, 2, ""),)),
        ("ab cd\n", (Splice(0, 1, ""), Splice(3, 5, "")), (Splice(0, 6, "b \n"),)),
        ("ab\nc\n", (Splice(2, 3, ""),), (Splice(0, 5, "abc\n"),)),
        ("ab", (Splice(2, 2, "c"),), (Splice(0, 2, "abc\n"),)),
        ("", (Splice(0, 0, "x"),), (Splice(0, 0, "x\n"),)),
        ("", (Splice(0, 0, "x"), Splice(0, 0, "y")), (Splice(0, 0, "xy\n"),)),
        (
            "a\nb\nc\n",
            (Splice(0, 1, "x"), Splice(4, 6, "")),
            (Splice(0, 2, "x\n"), Splice(4, 6, "")),
        ),
    ],
)
def test_lines_that_are_changed_in_part_are_replaced_whole(old, delta, widened):
    assert in_whole_lines(old, delta) == widened


def test_a_line_starts_at_the_beginning_and_behind_each_newline():
    assert [is_line_start("a\n\nb", at) for at in range(5)] == [
        True,
        False,
        True,
        True,
        False,
    ]
