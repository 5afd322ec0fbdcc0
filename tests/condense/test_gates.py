"""crdtmem.condense.gates"""

import pytest

from crdtmem.condense.gates import failed_gate, failed_text_gate
from crdtmem.condense.rebuild import Rebuilt
from tests.condense.notes import plan_of, texts

OLD = "".join(f"## old {n}\n" + "words " * 20 + "\n\n" for n in range(8))
HEAD = "# t\n\n## Pinned facts\n- p\n- q\n\n"
BODY = "## Condensed history\nold\n\n"
RECENT = "## Recent\n\n"
KEPT = "## k\nkept é\n\n```\n## code\n```\n"
FILE = f"{HEAD}{BODY}{RECENT}{OLD}{KEPT}"
SUMMARY = "s" * 200
GOOD = f"{HEAD}## Condensed history\n{SUMMARY}\n\n{RECENT}{KEPT}"

pytestmark = pytest.mark.requirement("condense-15")


def failed(new, file=FILE, hoisted=0, not_smaller=0.95):
    return failed_gate(
        file,
        plan_of(file),
        Rebuilt((), new, hoisted, 0),
        size_limit=100_000,
        unit_max=2_048,
        not_smaller=not_smaller,
    )


def failed_text(new, file=FILE, not_smaller=0.95):
    return failed_text_gate(file, new, plan_of(file), not_smaller=not_smaller)


def test_what_has_all_and_is_smaller_passes():
    assert failed(GOOD) is None
    assert failed(GOOD.replace("- q\n", "- q\n- f\n"), hoisted=1) is None
    assert failed_text(GOOD) is None


@pytest.mark.parametrize(
    ("new", "reason", "detail"),
    [
        (
            GOOD.replace("## Pinned facts\n", ""),
            "structure-missing-region",
            "the new text has no ## Pinned facts",
        ),
        (
            GOOD.replace("## Condensed history\n", ""),
            "structure-missing-region",
            "the new text has no ## Condensed history",
        ),
        (
            GOOD.replace("## Recent\n", "Recent\n"),
            "structure-missing-region",
            "the new text has no ## Recent",
        ),
        # The structure comes first, and is read as a reader would.
        (f"```\n{GOOD}```\n", "structure-missing-region", "no ## Pinned facts"),
        (GOOD.replace(SUMMARY, ""), "empty-condensed", "the summary is empty"),
        (GOOD.replace(SUMMARY, " \n\t"), "empty-condensed", "the summary is empty"),
        (GOOD.replace("- p\n", ""), "pinned-line-dropped", "is gone: - p"),
        (GOOD.replace("- q\n", "- Q\n"), "pinned-line-dropped", "is gone: - q"),
        (
            GOOD.replace("- p\n", "").replace(SUMMARY, f"{SUMMARY}\n- p"),
            "pinned-line-dropped",
            "is gone: - p",
        ),
        (
            GOOD.replace("- q\n", "- q\n- f\n"),
            "pinned-merge-mismatch",
            "1 pinned lines more, not 0",
        ),
        (
            GOOD.replace("- p\n- q\n", "- q\n- p\n"),
            "pinned-merge-mismatch",
            "0 pinned lines more, not 0",
        ),
        (
            GOOD.replace("## k\n", "## j\n## k\n"),
            "recent-count-mismatch",
            "2 sections stay, not 1",
        ),
        (
            GOOD.replace("## k\n", "### k\n"),
            "recent-count-mismatch",
            "0 sections stay, not 1",
        ),
        (GOOD.replace("kept é", "kept e"), "recent-section-altered", "not as it was"),
        (GOOD.replace("kept é\n", ""), "recent-section-altered", "not as it was"),
        (GOOD.replace("## k\n", "## K\n"), "recent-section-altered", "not as it was"),
        (GOOD.replace("# t\n", "# T\n"), "recent-section-altered", "not as it was"),
        (GOOD.replace("kept", "  kept"), "recent-section-altered", "not as it was"),
        (GOOD.replace("## code", "##  code"), "recent-section-altered", "as it was"),
    ],
)
def test_what_lacks_something_is_refused(new, reason, detail):
    found = failed(new)

    assert found is not None
    assert found[0] == reason
    assert detail in found[1]


def test_pinned_lines_are_counted_each():
    file = FILE.replace("- q\n", "- p\n")

    assert failed(GOOD.replace("- q\n", ""), file=file) == (
        "pinned-line-dropped",
        "a pinned line is gone: - p",
    )
    missing = failed(GOOD, hoisted=1)
    assert missing == ("pinned-merge-mismatch", "0 pinned lines more, not 1")


def test_a_new_pinned_heading_is_no_fact():
    file = FILE.replace(HEAD, "# t\n\n")
    new = GOOD.replace("- p\n- q\n", "")

    assert failed(new, file=file) is None
    assert failed(new, file=file, hoisted=1) is not None
    assert failed(new.replace("facts\n", "facts\n- f\n"), file=file, hoisted=1) is None


def test_blank_lines_may_differ():
    assert (
        failed(GOOD.replace("# t\n\n", "# t\n").replace("kept é", "\nkept é")) is None
    )


def test_text_under_no_heading_may_become_a_header():
    loose = "x" * 1_500 + "\n\n"
    head, rest = "# t\n\n", HEAD.removeprefix("# t\n\n") + BODY + RECENT
    file = f"{head}{loose}y\n\n{rest}{KEPT}"
    plan = plan_of(file, (100_000, 2, 25))
    assert texts(file, plan.kept) == ["y\n\n", KEPT]

    new = f"{head}y\n\n{rest}{KEPT}".replace("old", SUMMARY)
    found = failed_gate(
        file,
        plan,
        Rebuilt((), new, 0, 0),
        size_limit=100_000,
        unit_max=2_048,
        not_smaller=0.95,
    )
    assert found is None


@pytest.mark.parametrize("check", [failed, failed_text])
def test_a_text_must_have_become_smaller(check):
    size, old_size = len(GOOD.encode()), len(FILE.encode())

    assert check(GOOD, not_smaller=(size + 1) / old_size) is None
    assert check(GOOD, not_smaller=size / old_size) == (
        "not-smaller",
        f"{size} bytes, after {old_size}",
    )


@pytest.mark.parametrize("check", [failed, failed_text])
def test_hardly_any_text_is_too_small(check):
    # 200 bytes, some of them of one character; a byte more passes.
    least = GOOD.replace(SUMMARY, "é" * 100)
    spare = 200 - len(least.encode())
    assert spare < 0
    least = least.replace("é" * 100, "é" * (100 + spare // 2))
    least += "\n" * (200 - len(least.encode()))

    assert check(least) == ("too-small", "the new text has 200 bytes")
    assert check(f"{least}\n") is None


def test_a_rewritten_text_may_be_laid_out_otherwise():
    text = f"# other\n{SUMMARY}\n## k\nkept é\n\n```\n## code\n```\n- q\n- p\n"
    text += "## Pinned facts\n"

    assert failed_text(text) is None


@pytest.mark.parametrize(
    ("new", "reason", "detail"),
    [
        (GOOD.replace("- p\n", ""), "pinned-line-dropped", "is gone: - p"),
        (GOOD.replace("- p\n", "- p.\n"), "pinned-line-dropped", "is gone: - p"),
        (
            GOOD.replace("## Pinned facts\n", ""),
            "pinned-line-dropped",
            "is gone: ## Pinned facts",
        ),
        (GOOD.replace("kept é", "kept"), "recent-section-altered", "newest section"),
        (GOOD.replace("é\n\n", "é\n"), "recent-section-altered", "newest section"),
        (GOOD.replace("## k", "x ## k"), "recent-section-altered", "newest section"),
        (
            GOOD.replace("```\n", "``` x\n"),
            "recent-section-altered",
            "the newest section is not as it was",
        ),
    ],
)
@pytest.mark.requirement("condense-30")
def test_a_rewritten_text_without_a_pinned_line_or_the_newest_is_refused(
    new, reason, detail
):
    found = failed_text(new)

    assert found is not None
    assert found[0] == reason
    assert detail in found[1]


@pytest.mark.requirement("condense-30")
def test_a_rewritten_text_may_lose_blank_lines_at_the_end_of_the_newest():
    assert failed_text(GOOD, file=f"{FILE}\n\n") is None
    assert failed_text(GOOD.removesuffix("\n")) is None
    assert failed_text(f"{GOOD}\n") is None


@pytest.mark.requirement("condense-30")
def test_a_text_without_units_can_be_rewritten():
    file = f"{HEAD}{BODY}{'old ' * 100}\n"

    assert failed_text(f"{HEAD}{SUMMARY}\n", file=file) is None
