"""crdtmem.condense.rebuild"""

import pytest
from hypothesis import given

from crdtmem.condense.gates import failed_gate
from crdtmem.condense.rebuild import Rebuilt, rebuild
from crdtmem.condense.regions import parse
from crdtmem.doc.delta import Splice, apply_delta, is_whole_lines
from crdtmem.doc.rebase import carried_delta
from crdtmem.doc.text_form import closed
from crdtmem.doc.trace import Trace
from tests.condense.notes import PLANS, TEXTS, UNIT_MAX, plan_of

P = "## Pinned facts (never condensed)\n"
C = "## Condensed history\n"
R = "## Recent\n"


def rebuilt(file, summary="new", facts=(), size_limit=100_000, pinned_max_pct=25):
    """Rebuild a file, and check that only whole lines change, as R says."""
    plan = plan_of(file)
    found = rebuild(
        file,
        plan,
        summary,
        facts,
        size_limit=size_limit,
        pinned_max_pct=pinned_max_pct,
    )
    assert is_whole_lines(closed(file), found.ops)
    return found


@pytest.mark.requirement("condense-1")
@given(TEXTS, PLANS, UNIT_MAX)
def test_the_edits_make_the_rebuilt_file_and_leave_what_stays(file, limits, unit_max):
    plan = plan_of(file, limits, unit_max)
    found = rebuild(
        file, plan, "s\n\n🎉", ["f", "g"], size_limit=limits[0], pinned_max_pct=25
    )

    assert is_whole_lines(closed(file), found.ops)
    delta = carried_delta(Trace(file), file, found.ops)
    assert apply_delta(file, delta) == found.file
    assert apply_delta(closed(file), found.ops) == closed(found.file)
    deleted = {at for op in found.ops for at in range(op.start_chars, op.end_chars)}
    gone = [(r.start_chars, r.end_chars) for r in (*plan.evicted, *plan.condensed[1:])]
    gone += [(r.body_start_chars(file), r.end_chars) for r in plan.condensed[:1]]
    # Of a text without an end, also the newline that it lacks.
    assert deleted - {len(file)} == {at for part in gone for at in range(*part)}
    assert found.hoisted + found.hoist_deferred == 2


@pytest.mark.requirement("condense-15")
@given(TEXTS, PLANS, UNIT_MAX)
def test_no_gate_refuses_what_is_rebuilt_of_any_notes(file, limits, unit_max):
    plan = plan_of(file, limits, unit_max)
    # A summary of some length, with a fence, so that only the structure can fail.
    summary = "s\n" * 200 + "```\n## code\n```"
    found = rebuild(file, plan, summary, ["f"], size_limit=limits[0], pinned_max_pct=25)

    assert plan.is_idle or (
        failed_gate(
            file,
            plan,
            found,
            size_limit=limits[0],
            unit_max=unit_max,
            not_smaller=1e9,
        )
        is None
    )


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        # All headings are there: the old body and the evicted units go.
        (
            f"# t\n\n{P}- p\n\n{C}old\nmore\n\n{R}\n## a\n## b\n",
            f"# t\n\n{P}- p\n\n{C}new\n\n{R}\n## b\n",
        ),
        # None is: they stand behind the header, in order.
        ("# t\n\n## a\n## b\n", f"# t\n\n{P}\n{C}new\n\n{R}\n## b\n"),
        ("# t\n## a\n## b\n", f"# t\n\n{P}\n{C}new\n\n{R}\n## b\n"),
        ("## a\n## b\n", f"{P}\n{C}new\n\n{R}\n## b\n"),
        ("one\n\ntwo\n", f"{P}\n{C}new\n\n{R}\ntwo\n"),
        # Some are.
        (f"{P}- p\n\n## a\n## b\n", f"{P}- p\n\n{C}new\n\n{R}\n## b\n"),
        (f"# t\n{P}- p\n## a\n## b\n", f"# t\n{P}- p\n\n{C}new\n\n{R}\n## b\n"),
        (f"{C}old\n## a\n## b\n", f"{P}\n{C}new\n\n{R}\n## b\n"),
        (f"# t\n{C}old\n{R}## a\n## b\n", f"# t\n\n{P}\n{C}new\n\n{R}## b\n"),
        (f"{R}\none\n\ntwo\n", f"{P}\n{C}new\n\n{R}\ntwo\n"),
        (f"{P}- p\n{R}## a\n## b\n", f"{P}- p\n\n{C}new\n\n{R}## b\n"),
        # Pinned and condensed sections may stand anywhere.
        (f"## a\n## b\n{P}- p\n", f"{C}new\n\n{R}\n## b\n{P}- p\n"),
        (f"## a\n## b\n{C}old\n", f"{P}\n## b\n{C}new\n\n{R}"),
        (f"## a\n## b\n{P}{C}old\n{R}", f"## b\n{P}{C}new\n\n{R}"),
        (f"{R}## a\n## b\n{P}{C}old\n", f"{R}## b\n{P}{C}new\n"),
        (f"{P}{P}- p\n{R}## a\n## b\n", f"{P}{P}- p\n\n{C}new\n\n{R}## b\n"),
        # Two passes that were merged: one text of both.
        (
            f"{P}{C}one\n{R}## a\n{C}two\n## b\n",
            f"{P}{C}new\n\n{R}## b\n",
        ),
        # An empty body, also at the very end.
        (f"{P}{C}{R}## a\n## b\n", f"{P}{C}new\n\n{R}## b\n"),
        (f"{P}{R}## a\n## b\n{C}", f"{P}{R}## b\n{C}new\n"),
        (f"{P}{R}## a\n## b\n{C}"[:-1], f"{P}{R}## b\n{C}new\n"),
        (f"{P}## a\n## b\n{C}"[:-1], f"{P}## b\n{C}new\n\n{R}"),
        # A last line without an end has one only if something is behind it.
        ("## a\n## b\nx", f"{P}\n{C}new\n\n{R}\n## b\nx"),
        (f"{P}{R}## a\n## b\n{C}old", f"{P}{R}## b\n{C}new\n"),
        (f"{P}{C}x\n{R}## b\n{C}old", f"{P}{C}new\n\n{R}## b\n"),
        ("## a\r\n\r\n## b\r\n", f"{P}\n{C}new\n\n{R}\n## b\r\n"),
    ],
)
@pytest.mark.requirement("condense-1")
def test_a_file_is_rebuilt(file, expected):
    assert rebuilt(file).file == expected


LOOSE = "x" * 1_100 + "\n\n"


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        # A new divider is where loose text belongs.
        ("## b\n", f"{P}\n{C}new\n\n{R}\n{LOOSE}## b\n"),
        # Else the headings go behind it.
        (f"{R}## b\n", f"{LOOSE}{P}\n{C}new\n\n{R}## b\n"),
        (f"{C}old\n## b\n", f"{LOOSE}{P}\n{C}new\n\n{R}\n## b\n"),
        (f"{P}{R}## b\n", f"{LOOSE}{P}\n{C}new\n\n{R}## b\n"),
        (f"{P}{C}old\n## b\n", f"{LOOSE}{P}{C}new\n\n{R}\n## b\n"),
    ],
)
@pytest.mark.requirement("condense-16")
def test_loose_text_comes_under_no_heading_that_is_not_its_own(rest, expected):
    file = f"# t\n\n{LOOSE}{rest}"
    plan = plan_of(file, (100_000, 12, 25))
    found = rebuild(file, plan, "new", (), size_limit=100_000, pinned_max_pct=25)
    assert plan.evicted == ()

    assert found.file == f"# t\n\n{expected}"


@pytest.mark.requirement("condense-16")
def test_the_heading_of_a_cut_section_stays_with_its_newest_piece():
    file = f"{P}{C}{R}## log\n" + "x\n\n" * 6
    plan = plan_of(file, unit_max=9)
    found = rebuild(file, plan, "new", (), size_limit=100_000, pinned_max_pct=25)

    assert found.file == f"{P}{C}new\n\n{R}## log\n" + "x\n\n" * 3
    assert found.ops == (
        Splice(len(P + C), len(P + C), "new\n\n"),
        Splice(len(P + C + R) + 7, len(P + C + R) + 16, ""),
    )


@pytest.mark.parametrize(
    ("pinned", "expected"),
    [
        (f"{P}- p\n\n", f"{P}- p\n- f\n- g\n\n"),
        (f"{P}- p\n", f"{P}- p\n- f\n- g\n"),
        (P, f"{P}- f\n- g\n"),
        (f"{P}\n", f"{P}- f\n- g\n\n"),
        (f"{P}- p\n\ntext\n   \n\n", f"{P}- p\n\ntext\n- f\n- g\n   \n\n"),
        (f"{P}```\nx\n```\n", f"{P}```\nx\n```\n- f\n- g\n"),
        (f"{P}- p\n{P}- q\n", f"{P}- p\n- f\n- g\n{P}- q\n"),
    ],
)
@pytest.mark.requirement("condense-15")
def test_facts_are_added_to_the_first_pinned_section(pinned, expected):
    found = rebuilt(f"{pinned}{C}{R}## a\n## b\n", facts=["f", "g"])

    assert found.file == f"{expected}{C}new\n\n{R}## b\n"
    assert (found.hoisted, found.hoist_deferred) == (2, 0)


def test_facts_are_added_to_a_pinned_section_that_is_new_or_at_the_end():
    assert rebuilt("## a\n## b\n", facts=["f"]).file.startswith(f"{P}- f\n\n{C}")
    for end in ("- p\n", "- p"):
        found = rebuilt(f"## a\n## b\n{P}{end}", facts=["f"])
        assert found.file.endswith(f"## b\n{P}- p\n- f\n")


def test_facts_and_new_headings_at_one_place_stand_in_order():
    found = rebuilt(f"{P}- p\n## a\n## b\n", facts=["f"])

    assert found.file == f"{P}- p\n- f\n\n{C}new\n\n{R}\n## b\n"


@pytest.mark.requirement("condense-15")
def test_facts_for_which_there_is_no_room_end_the_summary():
    # "- four\n" has 7 units, "- 🎉🎉🎉\n" 9; the pinned section has 34 + 4.
    file = f"{P}- p\n{C}{R}## a\n## b\n"
    facts = ["four", "🎉🎉🎉", "ab"]
    at_most = {
        38 + 6: ["four", "🎉🎉🎉"],
        38 + 7: ["🎉🎉🎉", "ab"],
        38 + 15: ["🎉🎉🎉"],
        38 + 16: ["ab"],
        38 + 21: [],
        0: facts,
    }
    for room, deferred in at_most.items():
        found = rebuilt(file, facts=facts, size_limit=room * 4)
        kept = [fact for fact in facts if fact not in deferred]
        pinned = "".join(f"- {fact}\n" for fact in kept)
        tail = "".join(f"- {fact}\n" for fact in deferred)
        gap = "\n" if deferred else ""
        assert found.file == f"{P}- p\n{pinned}{C}new\n{gap}{tail}\n{R}## b\n"
        assert (found.hoisted, found.hoist_deferred) == (len(kept), len(deferred))


def test_the_share_of_pinned_facts_is_of_the_limit():
    file = "## a\n## b\n"

    assert rebuilt(file, facts=["f"], size_limit=100, pinned_max_pct=3).hoisted == 0
    assert rebuilt(file, facts=["f"], size_limit=100, pinned_max_pct=4).hoisted == 1


def test_an_empty_summary_leaves_an_empty_section_also_with_facts():
    # So that the gate sees it.
    found = rebuilt("## a\n## b\n", summary="", facts=["f"], size_limit=4)

    assert found.file == f"{P}\n{C}\n{R}\n## b\n"
    assert found.hoist_deferred == 1


@pytest.mark.requirement("condense-16")
@pytest.mark.parametrize(
    ("above", "is_indented"),
    [
        ("# t\n```\n\n", True),
        (f"# t\n\n{P}~~~~\n", True),
        ("# t\n```\nx\n```\n", False),
        ("# t\n", False),
    ],
)
def test_code_of_a_summary_does_not_close_a_fence_above_it(above, is_indented):
    file = f"{above}{C}old\n{R}## a\n## b\n"
    found = rebuilt(file, summary="x\n```\n## y\n```\nz")
    code = ["    ```", "    ## y", "    ```"] if is_indented else ["```", "## y", "```"]

    assert "\n".join([f"{C}x", *code, "z", "", R]) in found.file
    kinds = [r.kind for r in parse(found.file, size_limit=100_000, unit_max=2_048)]
    assert [kind for kind in kinds if kind != "header"] == [
        "pinned",
        "condensed",
        "divider",
        "unit",
    ]


def test_an_open_fence_that_goes_or_stands_below_does_not_matter():
    summary = "```\ncode\n```"
    for file in (
        f"## a\n```\n{P}{C}old\n{R}## b\n",
        f"{P}{C}old\n```\n{R}## a\n## b\n",
        f"{P}{C}old\n{R}## a\n## b\n```\n",
    ):
        assert f"{C}{summary}\n\n{R}" in rebuilt(file, summary=summary).file


def test_an_open_fence_above_new_headings_is_seen():
    found = rebuilt("# t\n```\n## a\n## b\n", summary="```\ncode\n```")

    assert f"{C}    ```\n    code\n    ```\n\n{R}" in found.file


def test_what_stays_is_touched_by_no_edit():
    file = f"# t\n\n{P}- p\n\n{C}old\n\n{R}\n## a\n## b\nx\n"
    found = rebuilt(file, facts=["f"])
    at = file.index("- p\n") + 4
    body = file.index("old")
    evicted = file.index("## a")

    assert found == Rebuilt(
        ops=(
            Splice(at, at, "- f\n"),
            Splice(body, body + 5, "new\n\n"),
            Splice(evicted, evicted + 5, ""),
        ),
        file=f"# t\n\n{P}- p\n- f\n\n{C}new\n\n{R}\n## b\nx\n",
        hoisted=1,
        hoist_deferred=0,
    )
