"""crdtmem.condense.regions"""

import pytest
from hypothesis import given, settings, strategies as st

from crdtmem.condense.regions import parse, plan_pass, scan_fences
from crdtmem.doc.text_form import lines_of, units_of
from tests.condense.notes import LIMITS, PLANS, TEXTS, UNIT_MAX, plan_of, texts

PINNED = "## Pinned facts (never condensed)\n- p\n\n"
CONDENSED = "## Condensed history\nold\n\n"


def parsed(file, size_limit=100_000, unit_max=2_048):
    return parse(file, size_limit=size_limit, unit_max=unit_max)


def kinds(file, size_limit=100_000, unit_max=2_048):
    """Return the parts of a file with what they are."""
    regions = parsed(file, size_limit, unit_max)
    return [(region.kind, region.text_in(file)) for region in regions]


def units(file, size_limit=100_000, unit_max=2_048):
    return [text for kind, text in kinds(file, size_limit, unit_max) if kind == "unit"]


@pytest.mark.requirement("condense-17")
@settings(max_examples=max(1_000, settings().max_examples))
@given(TEXTS, LIMITS, UNIT_MAX)
def test_the_regions_of_any_notes_are_the_whole_text_in_whole_lines(
    file, size_limit, unit_max
):
    regions = parsed(file, size_limit, unit_max)

    assert "".join(texts(file, regions)) == file
    assert all(region.start_chars < region.end_chars for region in regions)
    assert all(text.endswith("\n") for text in texts(file, regions[:-1]))
    starts = [0, *(region.end_chars for region in regions)]
    assert [region.start_chars for region in regions] == starts[:-1]


@pytest.mark.requirement("condense-17")
@given(st.text("#`~ \n\r\tx📌é\x00\x85"), LIMITS, UNIT_MAX)
def test_the_regions_of_any_text_are_the_whole_text(file, size_limit, unit_max):
    assert "".join(texts(file, parsed(file, size_limit, unit_max))) == file


@given(TEXTS, LIMITS, UNIT_MAX)
def test_no_unit_is_longer_than_allowed_unless_it_cannot_be_cut(
    file, size_limit, unit_max
):
    for region in parsed(file, size_limit, unit_max):
        text = region.text_in(file)
        if region.kind == "unit" and units_of(text) > unit_max:
            lines = lines_of(text)
            fences = scan_fences(lines).spans
            rest = [*lines[1:]] if region.begins_with_heading(file) else []
            is_one = len(lines) == 1 or fences[:1] == ((0, len(lines)),)
            assert is_one or not "".join(rest).strip()


def test_an_empty_text_has_no_regions():
    assert kinds("") == []


@pytest.mark.parametrize(
    ("line", "is_heading"),
    [
        ("## a\n", True),
        ("##\ta\n", True),
        ("##  a", True),
        ("## \n", True),
        ("##a\n", False),
        ("##\n", False),
        ("# a\n", False),
        ("### a\n", False),
        (" ## a\n", False),
        ("x ## a\n", False),
    ],
)
def test_a_heading_has_two_signs_and_a_blank(line, is_heading):
    found = [region.heading for region in parsed(f"## z\n{line}")]

    assert found == (["## z", line.removesuffix("\n")] if is_heading else ["## z"])


def test_a_heading_is_given_without_its_line_end():
    regions = parsed("## a b \r\nx\n## c\n")

    assert [region.heading for region in regions] == ["## a b ", "## c"]
    assert all(region.begins_with_heading("## a b \r\nx\n## c\n") for region in regions)


@pytest.mark.parametrize(
    ("opening", "closing"),
    [
        ("```", "```"),
        ("```py", "```"),
        ("   ```", "   ````  "),
        ("~~~ `x`", "~~~"),
        ("````", "````\r"),
        ("~~~~", "~~~~~~"),
    ],
)
@pytest.mark.requirement("condense-16")
def test_a_heading_in_a_fence_is_none(opening, closing):
    file = f"## a\n{opening}\n## b\n{closing}\n## c\n"

    assert units(file) == [f"## a\n{opening}\n## b\n{closing}\n", "## c\n"]


@pytest.mark.parametrize(
    ("opening", "closing"),
    [
        ("```", ""),
        ("``", "``"),
        ("    ```", "```"),
        ("```", "    ```"),
        ("```", "~~~"),
        ("````", "```"),
        ("```", "``` x"),
        ("``` a`b", "```"),
        ("x ```", "```"),
    ],
)
@pytest.mark.requirement("condense-16")
def test_a_fence_that_nothing_closes_is_none(opening, closing):
    file = f"## a\n{opening}\n## b\n{closing}\n"

    assert units(file) == [f"## a\n{opening}\n", f"## b\n{closing}\n"]


@pytest.mark.parametrize(
    ("text", "spans", "first_open"),
    [
        ("", (), None),
        ("x\n```\ny\n```\nz\n", ((1, 4),), None),
        # The first that closes it, and another one behind it.
        ("```\n```\n```\n```\n", ((0, 2), (2, 4)), None),
        ("```\n```\n```\n", ((0, 2),), 2),
        # Within a fence, other marks are text.
        ("```\n~~~\n```\n~~~\n", ((0, 3),), 3),
        ("~~~~\n~~~\n```\n```\n", ((2, 4),), 0),
        ("````\n```\n````\n", ((0, 3),), None),
        ("~~~ a\n~~~ b\n~~~\n", ((0, 3),), None),
    ],
)
def test_fences_are_found(text, spans, first_open):
    assert scan_fences(lines_of(text)) == (spans, first_open)


@given(st.lists(st.sampled_from(["```\n", "````x\n", "~~~\n", "`\n", "a\n"])))
def test_fences_are_those_that_a_search_for_each_would_find(lines):
    def closing_of(at):
        mark = lines[at].strip("x\n")
        return next(
            (
                place
                for place in range(at + 1, len(lines))
                if lines[place].startswith(mark) and "x" not in lines[place]
            ),
            None,
        )

    spans, opens, at = [], [], 0
    while at < len(lines):
        last = closing_of(at) if lines[at][:3] in ("```", "~~~") else at
        if last is None:
            opens.append(at)
        elif last > at:
            spans.append((at, last + 1))
            at = last
        at += 1

    assert scan_fences(lines) == (tuple(spans), opens[0] if opens else None)


@pytest.mark.parametrize("size", [999, 1_000])
def test_a_short_text_above_the_first_heading_is_the_header(size):
    # A quarter of the limit at most: 1,000.
    header = "x" * (size - 1) + "\n"

    assert kinds(f"{header}## a\n", 4_000) == [("header", header), ("unit", "## a\n")]


@pytest.mark.parametrize(("size_limit", "most"), [(4_000, 1_000), (100_000, 1_024)])
def test_a_long_text_above_the_first_heading_is_loose_but_for_its_title(
    size_limit, most
):
    # Counted in UTF-16 units: two for each.
    rest = "🎉" * (most // 2) + "\n"
    file = f"# t\n\n_intro\nof two_\n\n{rest}## a\n"

    assert kinds(file, size_limit) == [
        ("header", "# t\n\n_intro\nof two_\n\n"),
        ("unit", rest),
        ("unit", "## a\n"),
    ]


@pytest.mark.parametrize(
    ("file", "header"),
    [
        ("x\n", ""),
        ("\n\nx\n", "\n\n"),
        ("\n# t\nx\n", "\n# t\n"),
        ("#\tt\n\nx\n", "#\tt\n\n"),
        ("#t\nx\n", ""),
        ("# t\n# u\nx\n", "# t\n"),
        ("> q\nr\n\nx\n", "> q\nr\n\n"),
        ("# t\n> q\n\nx\n", "# t\n> q\n\n"),
        ("# t\n\n  _x_\n", "# t\n\n"),
        ("# t\n", "# t\n"),
        ("_a_\n", "_a_\n"),
        ("_a_\n\n_b_\n", "_a_\n\n"),
    ],
)
def test_the_header_of_a_text_without_headings(file, header):
    found = [text for kind, text in kinds(file) if kind == "header"]

    assert "".join(found) == header


@pytest.mark.parametrize(
    ("file", "header"),
    [
        ("# t\n\n> " + "x" * 100 + "\n\ny\n", "# t\n\n"),
        ("# " + "x" * 100 + "\n", ""),
        ("\n\n# " + "x" * 100 + "\n", "\n\n"),
        ("\n" * 101 + "x\n", ""),
        ("\n" * 100 + "x\n", "\n" * 100),
    ],
)
def test_no_giant_line_hides_in_a_header(file, header):
    found = [text for kind, text in kinds(file, 400) if kind == "header"]

    assert "".join(found) == header


@pytest.mark.parametrize(
    ("title", "kind"),
    [
        ("Pinned facts", "pinned"),
        ("Pinned facts (never condensed)", "pinned"),
        ("  Pinned facts \r", "pinned"),
        ("📌 Durable facts", "pinned"),
        ("📌 Durable facts, always", "pinned"),
        ("📌\ufe0f Durable facts", "pinned"),
        ("Durable facts", "unit"),
        ("Pinned facts of old", "unit"),
        ("pinned facts", "unit"),
        ("📌 TODO", "unit"),
        ("Condensed history", "condensed"),
        ("🗜 Condensed history", "condensed"),
        ("🗜\ufe0f Condensed history", "condensed"),
        ("Condensed history 2", "unit"),
        ("🗜 Other", "unit"),
        ("Recent", "divider"),
        ("Recent events", "unit"),
    ],
)
@pytest.mark.requirement("condense-16")
def test_the_kind_of_a_section_is_that_of_its_heading(title, kind):
    assert kinds(f"## {title}\n") == [(kind, f"## {title}\n")]


def test_all_pinned_and_condensed_sections_are_such():
    file = f"{PINNED}{CONDENSED}## a\n{PINNED}{CONDENSED}"

    assert [kind for kind, _ in kinds(file)] == [
        "pinned",
        "condensed",
        "unit",
        "pinned",
        "condensed",
    ]


@pytest.mark.requirement("condense-16")
def test_text_under_the_divider_is_loose_and_a_second_divider_a_section():
    file = "## Recent\n\none\ntwo\n\n\nthree\n## Recent\nx\n\ny\n"

    assert kinds(file) == [
        ("divider", "## Recent\n\n"),
        ("unit", "one\ntwo\n\n\n"),
        ("unit", "three\n"),
        ("unit", "## Recent\nx\n\ny\n"),
    ]
    assert [region.heading for region in parsed(file)] == [
        "## Recent",
        "",
        "",
        "## Recent",
    ]


@pytest.mark.requirement("condense-16")
def test_loose_text_is_cut_at_blank_lines_outside_fences():
    file = "a\n```\n\nb\n```\n\nc\n   \nd\n"

    assert units(file) == ["a\n```\n\nb\n```\n\n", "c\n   \n", "d\n"]


def test_a_section_that_fits_is_one_unit():
    file = "## a\n" + "x\n\n" * 5

    assert units(file, unit_max=20) == [file]


@pytest.mark.requirement("condense-16")
def test_a_long_section_is_cut_at_blank_lines_into_as_few_pieces_as_fit():
    file = "## a\n\n" + "xx\n\n" * 5 + "## b\n"
    regions = parsed(file, unit_max=8)

    assert texts(file, regions) == [
        "## a\n\n",
        "xx\n\nxx\n\n",
        "xx\n\nxx\n\n",
        "xx\n\n",
        "## b\n",
    ]
    assert [region.heading for region in regions] == ["## a"] * 4 + ["## b"]
    assert [region.begins_with_heading(file) for region in regions] == [
        True,
        False,
        False,
        False,
        True,
    ]
    assert [region.body_start_chars(file) for region in regions] == [5, 6, 14, 22, 31]


@pytest.mark.requirement("condense-16")
def test_a_paragraph_that_fits_is_not_cut_to_fill_the_piece_before():
    assert units("## h\naa\nbb\n\ncc\ndd\n", unit_max=10) == [
        "## h\n",
        "aa\nbb\n\n",
        "cc\ndd\n",
    ]


@pytest.mark.requirement("condense-16")
def test_a_long_paragraph_is_cut_at_line_ends():
    assert units("aa\nbb\ncc\ndd\n", unit_max=8) == ["aa\nbb\n", "cc\ndd\n"]
    # Next to others, its lines are packed with them.
    assert units("## h\naa\nbb\ncc\ndd\n\ne\n", unit_max=8) == [
        "## h\n",
        "aa\nbb\n",
        "cc\ndd\n\n",
        "e\n",
    ]


@pytest.mark.requirement("condense-16")
def test_a_huge_line_and_a_huge_fence_are_never_cut():
    line = "x" * 50 + "\n"
    fence = "```\na\n\n## b\n\nc\n```\n"

    assert units(f"a\n{line}b\n", unit_max=8) == ["a\n", line, "b\n"]
    assert units(f"## h\na\n{fence}b\n", unit_max=8) == ["## h\n", "a\n", fence, "b\n"]


def test_a_section_that_is_a_long_heading_alone_is_one_unit():
    assert units("## aaaaaaaaaa\n\n## b\n", unit_max=8) == [
        "## aaaaaaaaaa\n\n",
        "## b\n",
    ]


def test_units_are_counted_in_utf_16():
    assert units("🎉🎉\n🎉\n", unit_max=8) == ["🎉🎉\n🎉\n"]
    assert units("🎉🎉\n🎉🎉\n", unit_max=8) == ["🎉🎉\n", "🎉🎉\n"]


@given(TEXTS, PLANS, UNIT_MAX)
def test_a_plan_puts_every_region_into_one_list(file, limits, unit_max):
    plan = plan_of(file, limits, unit_max)
    single = [region for region in (plan.header, plan.divider) if region]
    listed = [*single, *plan.pinned, *plan.condensed, *plan.evicted, *plan.kept]

    assert sorted(listed, key=lambda region: region.start_chars) == list(plan.regions)
    for group in (plan.pinned, plan.condensed, plan.evicted, plan.kept):
        assert list(group) == [region for region in plan.regions if region in group]


@given(TEXTS, PLANS, UNIT_MAX)
def test_what_is_kept_are_the_newest_units_and_the_headings_of_their_pieces(
    file, limits, unit_max
):
    plan = plan_of(file, limits, unit_max)
    found = [region for region in plan.regions if region.kind == "unit"]
    assert found[-1:] == list(plan.kept[-1:])

    oldest_kept = [unit in plan.kept for unit in found].count(False)
    newest = found[oldest_kept:]
    extra = [unit for unit in plan.kept if unit not in newest]
    missing = [unit for unit in newest if unit not in plan.kept]
    # At most a heading is kept out of order, in place of the first piece.
    assert len(extra) == len(missing) <= 1
    assert all(unit.begins_with_heading(file) for unit in extra)


def test_at_most_so_many_units_are_kept():
    file = "## a\n## b\n## c\n## d\n"
    plan = plan_of(file, (100_000, 2, 25))

    assert texts(file, plan.evicted) == ["## a\n", "## b\n"]
    assert texts(file, plan.kept) == ["## c\n", "## d\n"]
    assert plan.sections == 4


@pytest.mark.parametrize(("size_limit", "kept"), [(100, 2), (99, 1), (1, 1)])
def test_at_most_so_much_is_kept_but_the_newest_always(size_limit, kept):
    # 10 units of 100 at 10 %.
    file = "## a\n## b\n## c\n"

    assert len(plan_of(file, (size_limit, 12, 10)).kept) == kept


def test_a_unit_that_does_not_fit_ends_what_is_kept():
    file = "## a\n## big\n" + "x" * 50 + "\n## c\n"
    plan = plan_of(file, (200, 12, 10))

    assert [region.heading for region in plan.kept] == ["## c"]


@pytest.mark.requirement("condense-16")
def test_the_heading_of_a_cut_section_stays_with_its_last_piece():
    file = "## a\n## b\n" + "x\n\n" * 6
    plan = plan_of(file, (100_000, 1, 25), unit_max=9)

    assert texts(file, plan.evicted) == ["## a\n", "x\n\nx\n\nx\n\n"]
    assert texts(file, plan.kept) == ["## b\n", "x\n\nx\n\nx\n\n"]
    # It takes no place among those that are kept, and is one section.
    assert texts(file, plan_of(file, (100_000, 3, 25), unit_max=9).evicted) == []
    longer = plan_of(f"{file}## c\n", (100_000, 4, 25), unit_max=9)
    assert longer.evicted == ()
    assert plan.sections == 2


def test_the_heading_of_a_cut_section_goes_with_all_its_pieces():
    file = "## b\n" + "x\n\n" * 6 + "## c\n"
    plan = plan_of(file, (100_000, 1, 25), unit_max=9)

    assert texts(file, plan.evicted) == ["## b\n", "x\n\nx\n\nx\n\n", "x\n\nx\n\nx\n\n"]


def test_two_sections_of_one_name_are_two():
    file = "## b\n## b\n## c\n"
    plan = plan_of(file, (100_000, 2, 25))

    assert texts(file, plan.evicted) == ["## b\n"]
    assert plan.sections == 3


@pytest.mark.parametrize(
    ("file", "is_idle"),
    [
        ("", True),
        ("## a\n", True),
        (f"# t\n\n{PINNED}{CONDENSED}## Recent\nx\n", True),
        (f"{PINNED}{CONDENSED}", True),
        ("## a\n## b\n", False),
        # Of two passes that were merged: they are made one.
        (f"{CONDENSED}{CONDENSED}## a\n", False),
    ],
)
def test_a_plan_knows_whether_there_is_anything_to_do(file, is_idle):
    assert plan_of(file).is_idle == is_idle


def test_a_plan_names_all_parts_of_a_file():
    file = f"# t\n\n{PINNED}{CONDENSED}## Recent\n\n## a\nx\n## b\n{CONDENSED}"
    plan = plan_pass(
        file, size_limit=100_000, keep_sections=1, keep_pct=25, unit_max=2_048
    )

    assert plan.header is not None
    assert plan.header.text_in(file) == "# t\n\n"
    assert texts(file, plan.pinned) == [PINNED]
    assert texts(file, plan.condensed) == [CONDENSED, CONDENSED]
    assert plan.divider is not None
    assert plan.divider.text_in(file) == "## Recent\n\n"
    assert texts(file, plan.evicted) == ["## a\nx\n"]
    assert texts(file, plan.kept) == ["## b\n"]
    assert plan.sections == 2


@pytest.mark.requirement("condense-16")
def test_a_file_without_headings_can_be_condensed():
    file = "one\n\ntwo\n\nthree\n"

    assert texts(file, plan_of(file).evicted) == ["one\n\n", "two\n\n"]


@pytest.mark.requirement("condense-16")
def test_a_giant_last_section_can_be_condensed():
    file = "## log\n" + "".join(f"line {n}\n" for n in range(100))
    plan = plan_of(file, (400, 12, 25), unit_max=50)

    assert texts(file, plan.kept)[0] == "## log\n"
    assert texts(file, plan.kept)[-1].endswith("line 99\n")
    assert "line 80\n" in "".join(texts(file, plan.evicted))
