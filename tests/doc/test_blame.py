"""crdtmem.doc.blame"""

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from crdtmem.doc.blame import (
    Author,
    BlamedLine,
    Run,
    apply_to_runs,
    blame_lines,
    decode_runs,
    encode_runs,
    overlay_runs,
    replace_author,
)
from crdtmem.doc.delta import Splice
from crdtmem.doc.text_form import units_of, view_lines, view_of
from crdtmem.errors import LocalProtocolError, RemoteProtocolError
from crdtmem.limits import LANE_BYTES
from tests.doc.histories import FILES, ROUGH_CHANGES, ROUGH_TEXTS, History, rough_delta

ANN = Author("ann", 1_000, b"a" * 16)
BOB = Author("bob", 2_000, b"b" * 16)
CY = Author("cy", 3_000, b"c" * 16)
AUTHORS = st.binary(min_size=1, max_size=9).map(
    lambda picks: [(ANN, BOB, CY, None)[pick % 4] for pick in picks]
)


def runs_of(*parts):
    return [Run(units, *(author or ())) for units, author in parts]


def each_unit(runs):
    return [run.author for run in runs for _ in range(run.units)]


def cover_of(size_units, authors):
    """Return runs that cover a text of this size, as a store would keep them."""
    units = [(1, authors[unit % len(authors)]) for unit in range(size_units)]
    # Replacing nobody joins equal neighbours.
    return replace_author(runs_of(*units), ANN, ANN)


@given(ROUGH_TEXTS, AUTHORS, ROUGH_CHANGES)
def test_each_unit_belongs_to_the_write_that_inserted_it(base, authors, change):
    runs = cover_of(units_of(base), authors)
    delta = rough_delta(base, change)
    units = each_unit(runs)
    expected, at = [], 0
    for splice in delta:
        start, end = (
            units_of(base[:n]) for n in (splice.start_chars, splice.end_chars)
        )
        expected += units[at:start] + [CY] * units_of(splice.insert)
        at = end
    after = apply_to_runs(runs, base, delta, CY)

    assert each_unit(after) == expected + units[at:]
    assert all(run.units for run in after)
    assert all(run.author != behind.author for run, behind in pairwise(after))


def test_blame_follows_a_history_of_writes():
    history = History("")
    runs: list[Run] = []
    for author, text in [(ANN, "a"), (BOB, "🎉"), (ANN, "c"), (None, "d")]:
        old = history.now
        history.append(text)
        runs = apply_to_runs(runs, old, history.deltas[-1], author)
    old = history.now
    history.replace("a\nc\nd\n")
    runs = apply_to_runs(runs, old, history.deltas[-1], CY)

    assert runs == runs_of((4, ANN), (2, None))


def test_runs_that_meet_when_what_was_between_them_goes_become_one():
    runs = runs_of((2, ANN), (1, BOB), (2, ANN))

    assert apply_to_runs(runs, "aabaa", (Splice(2, 3, ""),), CY) == runs_of((4, ANN))
    assert apply_to_runs(runs, "aabaa", (Splice(2, 3, "xy"),), ANN) == runs_of((6, ANN))


def test_an_unknown_author_is_no_author():
    run = Run(3)

    assert run.author is None
    assert (run.lane, run.at_ms, run.replica) == (None, None, None)
    assert Run(3, *ANN).author == ANN


@pytest.mark.parametrize("runs", [[], [Run(3)], [Run(2), Run(3, *ANN)]])
def test_runs_that_do_not_cover_the_text_are_refused(runs):
    covered = sum(run.units for run in runs)
    words = f"blame covers {covered} units of a text of 4"

    with pytest.raises(ValueError, match=words):
        apply_to_runs(runs, "ab🎉", (), ANN)
    with pytest.raises(ValueError, match=words):
        blame_lines(runs, "a🎉\n")


def test_a_delta_over_another_text_is_refused():
    with pytest.raises(ValueError, match="reaches to 3"):
        apply_to_runs([Run(2)], "ab", (Splice(1, 3, ""),), ANN)


def test_an_earlier_first_writer_takes_the_place_of_a_later_one():
    runs = runs_of((2, CY), (1, BOB), (3, CY), (1, ANN))

    assert replace_author(runs, CY, BOB) == runs_of((6, BOB), (1, ANN))
    assert replace_author(runs, ANN, CY) == runs_of((2, CY), (1, BOB), (4, CY))
    assert replace_author(runs, Author("cy", 3_001, CY.replica), ANN) == runs


@given(st.integers(0, 9), AUTHORS, AUTHORS)
def test_two_attributions_of_a_text_become_the_one_that_is_chosen(size, first, second):
    runs, over = cover_of(size, first), cover_of(size, second)
    units = zip(each_unit(runs), each_unit(over), strict=True)
    found = overlay_runs(runs, over, lambda a, b: b or a)

    assert each_unit(found) == [b or a for a, b in units]
    assert all(run.author != behind.author for run, behind in pairwise(found))


def test_attributions_of_two_texts_are_not_laid_over_each_other():
    with pytest.raises(ValueError, match="blame covers 3 units of a text of 4"):
        overlay_runs([Run(3)], [Run(4)], lambda a, b: b or a)


@given(st.integers(0, 9), AUTHORS)
def test_runs_survive_the_wire(size, authors):
    runs = cover_of(size, authors)

    assert decode_runs(encode_runs(runs)) == runs


def test_runs_have_the_bytes_of_the_protocol():
    runs = runs_of((300, Author("é", 1, b"r" * 16)), (2, None))
    rows = ["02", "ac02", "02c3a9", "01", "72" * 16, "02", "00", "00", "00" * 16]

    assert encode_runs(runs).hex() == "".join(rows)
    assert encode_runs([]) == b""
    assert decode_runs(b"\x00") == []


def test_a_replica_id_of_another_length_has_no_bytes():
    with pytest.raises(LocalProtocolError, match="15 bytes where 16 are due"):
        encode_runs([Run(1, "ann", 1, b"a" * 15)])


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        (b"\x01", "truncated"),
        (encode_runs([Run(1)])[:-1], "truncated"),
        (b"\xff\xff\xff\xff\x0f" + encode_runs([Run(1)])[1:], "truncated"),
        (encode_runs([Run(1)]) + b"\x00", "trailing-bytes"),
        (encode_runs([Run(0)]), "bad-value"),
        (encode_runs([Run(1, "x" * (LANE_BYTES + 1), 1, b"a" * 16)]), "too-large"),
    ],
)
def test_malformed_runs_are_refused(data, detail):
    with pytest.raises(RemoteProtocolError) as caught:
        decode_runs(data)

    assert caught.value.detail == detail


def test_the_author_of_a_line_is_who_wrote_its_first_character():
    # Newlines belong to their lines, and count only where nothing else is there.
    parts = [(3, ANN), (2, BOB), (1, ANN), (1, CY), (1, BOB), (1, None), (2, ANN)]
    file = "ab\n🎉c\n\nxy\n"

    assert blame_lines(runs_of(*parts), file) == [
        BlamedLine("ab", ANN, ()),
        BlamedLine("🎉c", BOB, ("ann",)),
        BlamedLine("", BOB, ()),
        BlamedLine("xy", None, ("ann",)),
    ]


def test_an_unterminated_last_line_has_an_author_too():
    assert blame_lines(runs_of((2, ANN), (1, BOB)), "a\nb") == [
        BlamedLine("a", ANN, ()),
        BlamedLine("b", BOB, ()),
    ]


def test_the_newline_behind_a_line_is_no_part_of_it():
    assert blame_lines(runs_of((3, ANN), (3, BOB)), "abc\nd\n") == [
        BlamedLine("abc", ANN, ()),
        BlamedLine("d", BOB, ()),
    ]


@given(FILES, AUTHORS)
def test_every_line_of_the_view_has_an_author(file, authors):
    runs = cover_of(units_of(file), authors)

    assert [line.text for line in blame_lines(runs, file)] == view_lines(view_of(file))
