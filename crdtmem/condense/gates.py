"""Gates: why a text that a pass has made must not be committed.

They look at the new text as a reader would, parsed anew, and know nothing of how it was
made: whatever a summariser or a mistake of ours does, no line that stays is lost.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from crdtmem.condense.rebuild import Rebuilt
from crdtmem.condense.regions import Plan, Region, is_blank, parse
from crdtmem.doc.text_form import bytes_of
from crdtmem.limits import CONDENSED_MIN_BYTES

__all__ = ["Failure", "failed_gate", "failed_text_gate"]

Failure = tuple[str, str]
"""Why a text is refused: the reason, and a sentence."""

_NEEDED = {
    "pinned": "## Pinned facts",
    "condensed": "## Condensed history",
    "divider": "## Recent",
}


def failed_gate(
    file: str,
    plan: Plan,
    rebuilt: Rebuilt,
    *,
    size_limit: int,
    unit_max: int,
    not_smaller: float,
) -> Failure | None:
    """Return why a rebuilt file must not be committed; None if it may.

    Args:
        file: The text that the pass began from.
        plan: What the pass was to do to it.
        rebuilt: What it made of it.
        size_limit: The slot's limit, in units.
        unit_max: Longest section that is one unit, in units.
        not_smaller: The new size must be below this share of the old one.

    """
    new = rebuilt.file
    regions = parse(new, size_limit=size_limit, unit_max=unit_max)
    return (
        _failed_structure(new, regions)
        or _failed_size(file, new, not_smaller)
        or _failed_pinned(file, plan, new, regions, rebuilt.hoisted)
        or _failed_recent(file, plan, new, regions)
    )


def failed_text_gate(
    base_file: str, content_file: str, plan: Plan, *, not_smaller: float
) -> Failure | None:
    """Return why a whole rewritten text must not be committed; None if it may.

    Args:
        base_file: The text that it was made of.
        content_file: The rewritten text, as a file.
        plan: Of the base file.
        not_smaller: The new size must be below this share of the old one.

    """
    lost = _first_lost(_lines_in(base_file, plan.pinned), content_file.split("\n"))
    if lost is not None:
        return "pinned-line-dropped", f"a pinned line is gone: {lost}"
    if plan.kept:
        newest = plan.kept[-1].text_in(base_file).rstrip()
        # With line ends on both sides, it can only be found as whole lines.
        if f"\n{newest}\n" not in f"\n{content_file}\n":
            return "recent-section-altered", "the newest section is not as it was"
    return _failed_size(base_file, content_file, not_smaller)


def _failed_structure(new: str, regions: Sequence[Region]) -> Failure | None:
    for kind, heading in _NEEDED.items():
        if all(region.kind != kind for region in regions):
            return "structure-missing-region", f"the new text has no {heading}"
    condensed = next(region for region in regions if region.kind == "condensed")
    if is_blank(new[condensed.body_start_chars(new) : condensed.end_chars]):
        return "empty-condensed", "the summary is empty"
    return None


def _failed_size(old: str, new: str, not_smaller: float) -> Failure | None:
    old_bytes, new_bytes = bytes_of(old), bytes_of(new)
    if new_bytes <= CONDENSED_MIN_BYTES:
        return "too-small", f"the new text has {new_bytes} bytes"
    if new_bytes >= not_smaller * old_bytes:
        return "not-smaller", f"{new_bytes} bytes, after {old_bytes}"
    return None


def _failed_pinned(
    old: str, plan: Plan, new: str, regions: Sequence[Region], hoisted: int
) -> Failure | None:
    before = _lines_in(old, plan.pinned)
    after = _lines_in(new, [region for region in regions if region.kind == "pinned"])
    lost = _first_lost(before, after)
    if lost is not None:
        return "pinned-line-dropped", f"a pinned line is gone: {lost}"
    added = len(after) - len(before) - (0 if plan.pinned else 1)
    rest = iter(after)
    if added != hoisted or not all(line in rest for line in before):
        return "pinned-merge-mismatch", f"{added} pinned lines more, not {hoisted}"
    return None


def _failed_recent(
    old: str, plan: Plan, new: str, regions: Sequence[Region]
) -> Failure | None:
    units = [region for region in regions if region.kind == "unit"]
    count = sum(unit.begins_with_heading(new) for unit in units)
    expected = sum(unit.begins_with_heading(old) for unit in plan.kept)
    if count != expected:
        return "recent-count-mismatch", f"{count} sections stay, not {expected}"
    # A short text under no heading is a header now if a long part of it went.
    header = [region for region in regions if region.kind == "header"]
    before = [] if plan.header is None else [plan.header]
    if _lines_in(old, [*before, *plan.kept]) != _lines_in(new, [*header, *units]):
        return "recent-section-altered", "a section that stays is not as it was"
    return None


def _lines_in(file: str, regions: Iterable[Region]) -> list[str]:
    """Return the lines of regions that are not blank, without their ends."""
    return [
        line
        for region in regions
        for line in region.text_in(file).split("\n")
        if not is_blank(line)
    ]


def _first_lost(before: Iterable[str], after: Iterable[str]) -> str | None:
    left = Counter(after)
    for line in before:
        if not left[line]:
            return line
        left[line] -= 1
    return None
