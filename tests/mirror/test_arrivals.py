"""crdtmem.mirror.arrivals"""

from itertools import pairwise

import pytest
from hypothesis import example, given, strategies as st

from crdtmem.errors import UnreadableFileError
from crdtmem.limits import MIRROR_GONE_S, MIRROR_NEVER_SETTLED_S, MIRROR_SETTLE_S
from crdtmem.mirror.arrivals import Arrival, judge, nearest
from crdtmem.mirror.texts import decode_file

SPANS = st.sampled_from([0.0, 0.1, 0.25, 0.3, 1.9, 2.0, 9.9, 10.0, 11.0])
PIECES = st.sampled_from([b"a", b"b\n", b"\n", b"\xc3", b"\xa9", b"\r\n", b"\xff"])
DATA = st.lists(PIECES, max_size=6).map(b"".join)
LINES = st.lists(st.sampled_from("aé日🎉\n"), max_size=12).map("".join)


def seen(base, data, unchanged_s=0.0, changing_s=0.0):
    return judge(base, data, unchanged_s=unchanged_s, changing_s=changing_s)


def kind_by_table(base, data, settled, gone):
    """The table of the module, read row by row."""
    if data is None:
        return "gone" if gone else "wait"
    if data == base:
        return "nothing"
    if data == b"":
        return "emptied" if gone else "wait"
    if data.startswith(base):
        grown = data[: data.rfind(b"\n") + 1]
        return "append" if settled or len(grown) > len(base) else "wait"
    return "rewrite" if settled else "wait"


@given(DATA, DATA | st.none() | DATA.map(lambda data: b"a\n" + data), SPANS)
def test_a_file_that_comes_to_rest_is_judged_by_the_table(base, data, unchanged_s):
    arrival = seen(base, data, unchanged_s, unchanged_s)
    settled, gone = unchanged_s >= MIRROR_SETTLE_S, unchanged_s >= MIRROR_GONE_S

    assert arrival.kind == kind_by_table(base, data, settled, gone)
    assert (arrival.data != b"") == (arrival.kind in ("append", "rewrite"))


@given(DATA, DATA | st.none(), SPANS, SPANS)
def test_what_is_not_taken_now_is_looked_at_again_before_long(base, data, span, more):
    arrival = seen(base, data, span, span + more)
    is_partial = arrival.kind == "append" and arrival.data != data

    assert (arrival.again_s is not None) == (arrival.kind == "wait" or is_partial)
    assert arrival.again_s is None or 0 < arrival.again_s <= MIRROR_GONE_S


@given(DATA, DATA, SPANS, SPANS)
def test_what_is_taken_is_a_beginning_of_the_file(base, data, span, more):
    arrival = seen(base, data, span, span + more)

    assert data.startswith(arrival.data)
    if arrival.kind == "append":
        assert arrival.data.startswith(base)
        assert len(arrival.data) > len(base)
    if arrival.kind == "rewrite":
        assert arrival.data == data


def test_appended_lines_are_taken_at_once():
    assert seen(b"a\n", b"a\nb\n") == Arrival("append", b"a\nb\n")
    assert seen(b"", b"a\n") == Arrival("append", b"a\n")


@pytest.mark.parametrize("rest", [b"c", b"c\xc3", b"\xf0\x9f"])
def test_an_unfinished_line_waits_until_the_file_is_at_rest(rest):
    data = b"a\nb\n" + rest

    assert seen(b"a\n", data, 0.05) == Arrival("append", b"a\nb\n", again_s=0.2)
    assert seen(b"a\nb\n", data, 0.05) == Arrival("wait", again_s=0.2)
    assert seen(b"a\nb\n", data, 0.25) == Arrival("append", data)


def test_the_rest_of_a_line_that_was_taken_in_part_continues_it():
    assert seen(b"a\nb", b"a\nbc", 0.0).kind == "wait"
    assert seen(b"a\nb", b"a\nbc\nd", 0.0) == Arrival("append", b"a\nbc\n", 0.25)


def test_an_emptied_and_rewritten_file_never_looks_like_a_deletion():
    """O_TRUNC and two writes, 100 ms apart."""
    base = b"a\nb\nc\n"

    assert seen(base, b"", 0.1).kind == "wait"
    assert seen(base, b"a\n", 0.1, 0.2).kind == "wait"
    assert seen(base, b"a\nB\nc\n", 0.1, 0.3).kind == "wait"
    assert seen(base, b"a\nB\nc\n", 0.25, 0.45) == Arrival("rewrite", b"a\nB\nc\n")


@pytest.mark.parametrize(("data", "kind"), [(None, "gone"), (b"", "emptied")])
def test_an_empty_or_absent_file_counts_after_two_seconds_only(data, kind):
    waits = seen(b"a\n", data, 1.5, 60.0)

    assert waits == Arrival("wait", again_s=0.5)
    assert seen(b"a\n", data, 2.0, 2.0) == Arrival(kind)


def test_an_empty_file_that_was_empty_is_nothing_and_an_absent_one_is_gone():
    assert seen(b"", b"", 60.0, 60.0) == Arrival("nothing")
    assert seen(b"", None, 2.0, 2.0) == Arrival("gone")


def test_a_file_that_never_settles_is_taken_after_ten_seconds():
    late_s = MIRROR_NEVER_SETTLED_S

    assert seen(b"a\n", b"b\n", 0.0, late_s - 0.1).kind == "wait"
    assert seen(b"a\n", b"b\n", 0.0, late_s) == Arrival("rewrite", b"b\n")
    assert seen(b"a\n", b"a\nb", 0.0, late_s) == Arrival("append", b"a\nb")


def test_whole_lines_are_taken_at_once_whatever_becomes_of_the_rest():
    data = b"a\nb\n\xffc"

    assert seen(b"a\n", data, 0.0, MIRROR_NEVER_SETTLED_S).data == b"a\nb\n"


def test_a_file_that_never_settles_is_taken_in_whole_code_points():
    late_s = MIRROR_NEVER_SETTLED_S

    assert seen(b"a", b"ab\xc3", 0.0, late_s) == Arrival("append", b"ab", 0.25)
    assert seen(b"a", b"a\xc3", 0.0, late_s).kind == "wait"
    assert seen(b"b", b"a\xc3", 0.0, late_s).kind == "wait"
    assert seen(b"a", b"ab\xffc", 0.0, late_s).kind == "wait"


def read_along(chunks, pauses_s):
    """Look at a file after each append, as a mirror would; return what it took."""
    base, style, data, age_s = b"", None, b"", 0.0
    taken = []
    for chunk, pause_s in zip(chunks, pauses_s, strict=True):
        data += chunk
        age_s = pause_s if data[: -len(chunk)] == base else age_s + pause_s
        arrival = judge(base, data, unchanged_s=pause_s, changing_s=age_s)
        if not arrival.data:
            continue
        try:
            read = decode_file(arrival.data, base=style, base_data=base)
        except UnreadableFileError:
            continue  # Blocked: its base stays.
        base, style = arrival.data, read.style
        taken.append(read.file)
    return taken


@st.composite
def streams(draw):
    """Text, cut anywhere, with a pause after each piece; at last it rests."""
    text = draw(LINES).replace("\n", draw(st.sampled_from(["\n", "\r\n"])))
    data = text.encode()
    cuts = sorted(draw(st.sets(st.integers(1, max(1, len(data))), max_size=8)))
    edges = [0, *(cut for cut in cuts if cut < len(data)), len(data)]
    chunks = [data[a:b] for a, b in pairwise(edges) if a < b]
    pauses_s = [draw(SPANS) for _ in chunks[1:]]
    return text, chunks, [*pauses_s, 0.25][: len(chunks)]


@pytest.mark.requirement("mirror-2", "mirror-3")
@given(streams())
@example(("é\n", [b"\xc3", b"\xa9\n"], [0.1, 0.25]))
@example(("é\n", [b"\xc3", b"\xa9\n"], [5.0, 0.25]))
@example(("ab\n", [b"a", b"b\n"], [1.0, 0.0]))
@example(("a\r\nb\r\n", [b"a\r\nb\r", b"\n"], [1.0, 0.25]))
@example(("a\r\n", [b"a\r", b"\n"], [1.0, 0.25]))
def test_a_text_that_comes_in_pieces_arrives_as_it_was_sent(stream):
    text, chunks, pauses_s = stream
    taken = read_along(chunks, pauses_s)
    whole = decode_file(text.encode(), base=None, base_data=b"")

    assert taken[-1:] == ([whole.file] if chunks else [])
    for earlier, later in pairwise(taken):
        # All lines but the last, which may have been continued, are there for good.
        assert later.startswith(earlier[: earlier.rstrip("\n").rfind("\n") + 1])
    assert not [text for text in taken if "\ufffd" in text]


def test_the_text_that_a_save_was_made_from_is_the_one_with_the_fewest_changes():
    ring = ["a\nb\n", "a\nb\nc\n", "a\nb\nc\nd\n"]

    assert nearest(ring, "a\nb\nx\n") == 0
    assert nearest(ring, "A\nb\nc\n") == 1
    assert nearest(ring, "a\nb\nc\nd\ne\n") == 2
    assert nearest(ring, "") == 0


def test_of_texts_that_are_equally_near_the_newest_is_taken():
    assert nearest(["a\n", "a\n"], "a\nb\n") == 1
    assert nearest(["a\n", "b\n"], "c\n") == 1
    assert nearest(["a\nb\n", "b\n"], "a\n") == 0


@given(st.lists(LINES, min_size=1, max_size=4), st.integers(0, 3))
def test_an_unchanged_older_text_is_recognised(ring, index):
    index %= len(ring)

    assert ring[nearest(ring, ring[index])] == ring[index]


def test_nothing_is_nearest_among_no_texts():
    with pytest.raises(ValueError, match="empty"):
        nearest([], "a\n")
