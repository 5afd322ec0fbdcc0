"""crdtmem.condense.overlay"""

import pytest
from hypothesis import given, strategies as st

from crdtmem.condense.overlay import carried, overlaps
from crdtmem.condense.rebuild import rebuild
from crdtmem.doc.delta import Splice, apply_delta, is_whole_lines
from crdtmem.doc.rebase import carried_delta
from crdtmem.doc.text_form import append_splice, bytes_of, view_of
from crdtmem.doc.trace import Trace
from tests.condense.notes import (
    PLANS,
    TEXTS,
    UNIT_MAX,
    WRITES,
    plan_of,
    texts,
    whole_line_writes,
    written,
)

HEAD = "# t\n\n## Pinned facts\n- p\n\n## Condensed history\nold\n\n## Recent\n\n"
FILE = f"{HEAD}## a\none é\n## b\ntwo\n## c\nthree\n"


def place(text, file=FILE):
    assert file.count(text) == 1
    return file.index(text)


def inserted(at, text):
    return (Splice(at, at, text),)


def deleted(text, file=FILE):
    start = place(text, file)
    return (Splice(start, start + len(text), ""),)


def appended(file, text):
    return (Splice(*append_splice(file, text)),)


def hit(*deltas, file=FILE, plan=None):
    """Return the texts of what others have changed."""
    return texts(file, overlaps(plan or plan_of(file), written(file, *deltas)))


def carry(*deltas, file=FILE, summary="new"):
    """Rebuild a file, carry that over others' writes, and check it against rebase."""
    rebuilt = rebuild(
        file, plan_of(file), summary, [], size_limit=100_000, pinned_max_pct=25
    )
    trace = written(file, *deltas)
    text, size_bytes = carried(file, rebuilt.ops, trace)
    assert text == apply_delta(trace.text(), carried_delta(trace, file, rebuilt.ops))
    return text, size_bytes, rebuilt.file


@pytest.mark.requirement("condense-9")
@given(TEXTS, PLANS, UNIT_MAX, WRITES)
def test_what_is_carried_is_what_the_edit_makes_if_nothing_overlaps(
    file, limits, unit_max, writes
):
    plan = plan_of(file, limits, unit_max)
    rebuilt = rebuild(
        file, plan, "s\n\n🎉", ["f"], size_limit=limits[0], pinned_max_pct=25
    )
    trace = whole_line_writes(file, writes)
    if overlaps(plan, trace):
        # Then only what others did not touch.
        trace = Trace(file)

    text, size_bytes = carried(file, rebuilt.ops, trace)

    assert text == apply_delta(trace.text(), carried_delta(trace, file, rebuilt.ops))
    foreign = [r.text for r in trace.runs if r.inserted_by is not None and r.is_live]
    assert size_bytes == sum(map(bytes_of, foreign)) or not file.endswith("\n")


@pytest.mark.requirement("condense-17")
@given(TEXTS, PLANS, UNIT_MAX, st.lists(st.sampled_from(["x", "\n", "é\n", "a\nb"])))
def test_appends_are_never_an_overlap_and_stand_behind_all_else(
    file, limits, unit_max, appends
):
    plan = plan_of(file, limits, unit_max)
    rebuilt = rebuild(file, plan, "s", [], size_limit=limits[0], pinned_max_pct=25)
    trace, now = Trace(file), file
    for number, text in enumerate(appends):
        trace.step(number, appended(now, text))
        now = trace.text()

    blank_end = any(run.inserted_by is None and not run.is_live for run in trace.runs)
    if not blank_end:
        assert overlaps(plan, trace) == ()
        text, _ = carried(file, rebuilt.ops, trace)
        added = now[len(file) :]
        assert text.endswith(view_of(added.removeprefix("\n")) + "\n" * bool(added))


@pytest.mark.requirement("condense-10")
@pytest.mark.parametrize(
    ("deltas", "parts"),
    [
        # An edit, a deletion, an edit of equal length, and the same text typed again.
        ([inserted(place("two"), "x")], ["## b\ntwo\n"]),
        ([deleted("two\n")], ["## b\ntwo\n"]),
        ([deleted("## b\ntwo\n")], ["## b\ntwo\n"]),
        ([deleted("## b\n")], ["## b\ntwo\n"]),
        ([(Splice(place("two"), place("two") + 3, "TWO"),)], ["## b\ntwo\n"]),
        (
            [deleted("two\n"), inserted(place("## c") - 4, "two\n")],
            ["## b\ntwo\n"],
        ),
        ([(Splice(place("two"), place("two") + 4, "two\n"),)], ["## b\ntwo\n"]),
        # A line in the middle, in front of the first and behind the last.
        ([inserted(place("two"), "new\n")], ["## b\ntwo\n"]),
        # In several.
        ([deleted("one é\n"), deleted("two\n", FILE.replace("one é\n", ""))], None),
        ([deleted("one é\n## b\n")], None),
        # Of the old condensed text: the body, or its heading line.
        ([deleted("old\n")], ["## Condensed history\nold\n\n"]),
        ([inserted(place("old") + 4, "x\n")], ["## Condensed history\nold\n\n"]),
        ([deleted("## Condensed history\n")], ["## Condensed history\nold\n\n"]),
        ([inserted(place("history"), "x")], ["## Condensed history\nold\n\n"]),
        # A border without a line end: the first, the last line is another one now.
        ([inserted(place("## b"), "x")], ["## a\none é\n", "## b\ntwo\n"]),
        ([inserted(place("## c"), "y\nx")], ["## b\ntwo\n"]),
        ([inserted(place("## b") - 1, "x")], ["## a\none é\n"]),
        ([(Splice(place("## a") - 1, place("## a"), ""),) * 1], []),
        ([(Splice(place("## a") - 2, place("## a"), ""),)], ["## a\none é\n"]),
    ],
)
def test_a_change_of_what_goes_is_an_overlap(deltas, parts):
    assert hit(*deltas) == (
        ["## a\none é\n", "## b\ntwo\n"] if parts is None else parts
    )


@pytest.mark.requirement("condense-9")
@pytest.mark.parametrize(
    "delta",
    [
        appended(FILE, "new"),
        appended(FILE, "x\n\ny\n"),
        inserted(len(FILE), "without an end"),
        # In what stays.
        inserted(place("three"), "x"),
        deleted("three\n"),
        deleted("## c\nthree\n"),
        inserted(0, "first\n"),
        inserted(2, "x"),
        deleted("# t\n"),
        inserted(place("- p"), "- q\n"),
        deleted("- p\n"),
        deleted("## Pinned facts\n- p\n\n"),
        deleted("## Recent\n\n"),
        inserted(place("ecent"), "x"),
        # Whole lines between two that go.
        inserted(place("## a"), "x\n"),
        inserted(place("## b"), "## new\nx\n"),
        inserted(place("## c"), "x\ny\n"),
        inserted(place("old"), "x\n"),
        inserted(place("## Recent"), "x\n"),
        inserted(place("## Condensed"), "x\n"),
    ],
)
def test_a_change_of_what_stays_or_between_is_none(delta):
    assert hit(delta) == []
    text, size_bytes, _ = carry(delta)
    assert size_bytes == sum(bytes_of(splice.insert) for splice in delta)
    assert "two" not in text
    assert all(line in text for splice in delta for line in splice.insert.split("\n"))


def test_an_insert_that_is_gone_again_is_no_overlap():
    at = place("two")
    assert hit(inserted(at, "x\n"), (Splice(at, at + 2, ""),)) == []


def test_unfinished_text_of_two_that_makes_whole_lines_is_none():
    at = place("## c")
    # The second goes behind the first.
    assert hit(inserted(at, "x"), inserted(at + 1, "y\n")) == []
    assert hit(inserted(at, "x\n"), inserted(at + 2, "y")) == ["## b\ntwo\n"]


@pytest.mark.requirement("condense-10")
@pytest.mark.parametrize("above", ["", "# é\n"])
def test_text_without_an_end_is_an_append_only_at_the_very_end(above):
    file = "## a\n## b\n## Condensed history\nold\n"
    first = inserted(0, above)
    end = len(above) + len(file)

    assert hit(first, inserted(end, "x"), file=file) == []
    # The same, but others have gone on behind it.
    more = "## c\n## d\n"
    assert hit(first, inserted(end, "x"), file=file + more) == [
        "## Condensed history\nold\n",
        "## c\n",
    ]


def test_a_deleted_line_end_in_front_of_what_goes_is_an_overlap():
    file = "## Recent\na\nb\n"
    plan = plan_of(f"{file}\nc\n")
    assert texts(f"{file}\nc\n", plan.evicted) == ["a\nb\n\n"]

    at = len("## Recent")
    assert hit((Splice(at, at + 1, ""),), file=f"{file}\nc\n") == ["a\nb\n\n"]


def test_a_later_condensed_section_goes_whole():
    file = "## Condensed history\nx\n## Condensed history\ny\n## a\n## b\n"
    second = "## Condensed history\ny\n"
    at = file.rindex("## Cond")

    assert hit((Splice(at, at + 21, ""),), file=file) == [second]
    assert hit((Splice(at + 21, at + 23, ""),), file=file) == [second]


def test_an_empty_condensed_body_has_nothing_to_overlap():
    file = "## Condensed history\n## a\n## b\n"

    assert hit(inserted(len("## Condensed history\n"), "x\n"), file=file) == []


@pytest.mark.parametrize(
    ("text", "is_overlap"),
    [("\nmore\n", False), ("\nmore", False), ("more\n", True), ("more", True)],
)
def test_what_goes_on_with_a_last_line_without_an_end_changes_it(text, is_overlap):
    file = "## a\n## b\n## Condensed history\nold"
    expected = ["## Condensed history\nold"] if is_overlap else []

    assert hit(inserted(len(file), text), file=file) == expected


@pytest.mark.parametrize("text", ["\nmore\n", "\n"])
def test_a_last_line_that_got_its_end_meanwhile_goes_with_it(text):
    file = "## Recent\n\n## a\n## b\n## Condensed history\nold"
    carry_text, size_bytes, rebuilt = carry(inserted(len(file), text), file=file)

    assert rebuilt.endswith("## b\n## Condensed history\nnew\n")
    assert carry_text == rebuilt + text[1:]
    assert size_bytes == len(text) - 1


def test_a_last_line_that_stays_keeps_the_end_it_got():
    file = "## a\nx\n## b\ny"
    text, size_bytes, rebuilt = carry(inserted(len(file), "\nmore\n"), file=file)

    assert rebuilt.endswith("## b\ny")
    assert (text, size_bytes) == (f"{rebuilt}\nmore\n", 6)


def test_what_is_inserted_behind_a_last_line_without_an_end_begins_a_line():
    file = "## a\n## b\n## Pinned facts\n- p"
    rebuilt = rebuild(
        file, plan_of(file), "s", ["f"], size_limit=1_000, pinned_max_pct=25
    )
    assert rebuilt.file.endswith("- p\n- f\n")

    for text, end in (("\nx\n", "- p\n- f\nx\n"), ("x", "- px\n- f\n")):
        trace = written(file, inserted(len(file), text))
        got, _ = carried(file, rebuilt.ops, trace)
        delta = carried_delta(trace, file, rebuilt.ops)
        assert got == apply_delta(trace.text(), delta)
        assert got.endswith(end)


@pytest.mark.requirement("condense-9")
def test_what_is_inserted_waits_for_the_end_of_a_line_that_others_made():
    # An editor has joined the header with the pinned heading.
    at = place("## Recent")
    text, _, _ = carry((Splice(at - 1, at, ""),))
    assert "new\n\n## Recent\n" in text

    file = "# t\nx\n## a\n## b\n"
    joined_lines = (Splice(3, 4, ""),)
    plan = plan_of(file)
    rebuilt = rebuild(file, plan, "s", [], size_limit=1_000, pinned_max_pct=25)
    trace = written(file, joined_lines)
    got, _ = carried(file, rebuilt.ops, trace)
    assert got == apply_delta(trace.text(), carried_delta(trace, file, rebuilt.ops))


@pytest.mark.parametrize("base", ["a\nb\nc\n", "a\nb\nc"])
@pytest.mark.parametrize(
    "ops",
    [
        [],
        [Splice(0, 0, "X\n")],
        [Splice(0, 2, "X\n")],
        [Splice(2, 4, "")],
        [Splice(2, 4, "X\n"), Splice(4, 4, "Y\n")],
        [Splice(4, 6, "X\n")],
        [Splice(6, 6, "X\n")],
        [Splice(2, 2, "X\n"), Splice(4, 4, "Y\n")],
        [Splice(0, 6, "")],
        [Splice(4, 6, "X\n"), Splice(6, 6, "Y\n")],
        [Splice(0, 2, ""), Splice(2, 2, "X\n"), Splice(4, 6, "")],
    ],
)
@pytest.mark.parametrize(
    "writes",
    [
        [],
        [Splice(2, 2, "x\n")],
        [Splice(1, 2, "")],
        [Splice(1, 2, ""), Splice(3, 4, "")],
        [Splice(5, 5, "\n")],
        [Splice(5, 5, "\nx\n")],
        [Splice(5, 5, "x")],
        [Splice(0, 0, "é\n"), Splice(4, 4, "y\nz")],
    ],
)
def test_small_edits_are_carried_as_they_are_made(base, ops, writes):
    # Where others tear lines that go, it is an overlap and never carried.
    is_torn = not is_whole_lines(base, tuple(writes)) and any(
        op.end_chars > op.start_chars for op in ops
    )
    trace = written(base, tuple(writes))

    text, _ = carried(base, ops, trace)
    made = apply_delta(trace.text(), carried_delta(trace, base, ops))
    assert is_torn or text == made


@pytest.mark.requirement("condense-5")
def test_bytes_of_others_are_those_that_are_in_the_text():
    trace = written(FILE, appended(FILE, "é日本🎉"))
    trace.step(1, appended(trace.text(), "gone"))
    now = trace.text()
    trace.step(2, (Splice(len(now) - 5, len(now), ""),))

    text, size_bytes = carried(FILE, (), trace)
    assert text == f"{FILE}é日本🎉\n"
    assert size_bytes == 2 + 6 + 4 + 1


@pytest.mark.requirement("condense-9")
def test_an_append_behind_the_old_condensed_text_comes_under_the_new_divider():
    file = "## a\nx\n## b\ny\n## Condensed history\nold\n"
    text, _, _ = carry(appended(file, "new note"), file=file)

    assert text.endswith("## Condensed history\nnew\n\n## Recent\nnew note\n")


@pytest.mark.requirement("condense-9")
def test_a_section_between_two_that_go_stays_at_its_place():
    text, size_bytes, rebuilt = carry(inserted(place("## b"), "## new\nx\n"))

    assert text == rebuilt.replace("## c", "## new\nx\n## c")
    assert size_bytes == 9


@pytest.mark.requirement("condense-9")
def test_edits_of_pinned_lines_and_of_the_header_stay():
    deltas = (
        (Splice(place("- p"), place("- p") + 4, "- P\n"),),
        inserted(0, "above\n"),
    )
    text, _, rebuilt = carry(*deltas)

    assert text == "above\n" + rebuilt.replace("- p\n", "- P\n")
