"""Where an edit's text stands, and what the text becomes."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from crdtmem.errors import EditError
from crdtmem.limits import MATCH_LINES_MAX
from crdtmem.models import LineSpan, Unset
from crdtmem.textdiff import (
    find_matches,
    find_matches_any_eol,
    first_eol,
    is_all_crlf,
    line_at,
    near_miss,
    with_eol,
)

__all__ = ["Match", "edited", "matches_in"]


class Match(NamedTuple):
    """A region of a view, in code points; ``is_loose`` where line ends differed."""

    start_chars: int
    end_chars: int
    is_loose: bool


def matches_in(
    view: str,
    old: str,
    which: int | Literal["all"] | Unset,
    span: tuple[int, int] | None,
    *,
    label: str,
) -> list[Match]:
    """Return the matches that an edit means: one, or all that do not overlap.

    Raises:
        EditError: ``text-not-found`` with what nearly matched, or ``text-ambiguous``
            with the lines of the matches.

    """
    found = [m for m in _all_matches(view, old) if _is_within(view, m, span)]
    if which == "all" and found:
        return _without_overlaps(found)
    if isinstance(which, int) and which <= len(found):
        return [found[which - 1]]
    if len(found) == 1 and isinstance(which, Unset):
        return found
    if found and isinstance(which, Unset):
        raise _ambiguous(view, found, label)
    raise _not_found(view, old, len(found), label)


def edited(view: str, matches: Sequence[Match], new: str) -> tuple[str, LineSpan]:
    """Return the view with the matches replaced, and the lines of the new text."""
    parts: list[str] = []
    at_chars = 0
    first_chars = last_chars = 0
    size_chars = 0
    for number, match in enumerate(matches):
        before = view[at_chars : match.start_chars]
        text = _with_line_ends(view, match, new)
        parts += [before, text]
        size_chars += len(before)
        if number == 0:
            first_chars = size_chars
        size_chars += len(text)
        last_chars = size_chars
        at_chars = match.end_chars
    content = "".join([*parts, view[at_chars:]])
    return content, (line_at(content, first_chars), line_at(content, last_chars))


def _all_matches(view: str, old: str) -> list[Match]:
    size_chars = len(old)
    exact = [
        Match(at, at + size_chars, is_loose=False) for at in find_matches(view, old)
    ]
    # Half a "\r\n" is no line break: what begins with one is looked for with all of it.
    starts = [view[match.start_chars - 1 : match.start_chars] for match in exact]
    if exact and not (old.startswith("\n") and "\r" in starts):
        return exact
    loose = find_matches_any_eol(view, old)
    return [Match(start, end, is_loose=True) for start, end in loose] or exact


def _is_within(view: str, match: Match, span: tuple[int, int] | None) -> bool:
    if span is None:
        return True
    # A match that ends in a newline ends on that line, not at the start of the next.
    last_chars = max(match.start_chars, match.end_chars - 1)
    first_line, last_line = line_at(view, match.start_chars), line_at(view, last_chars)
    return span[0] <= first_line and last_line <= span[1]


def _without_overlaps(matches: Sequence[Match]) -> list[Match]:
    kept: list[Match] = []
    for match in matches:
        if not kept or match.start_chars >= kept[-1].end_chars:
            kept.append(match)
    return kept


def _with_line_ends(view: str, match: Match, new: str) -> str:
    if match.is_loose:
        region = view[match.start_chars : match.end_chars]
        return with_eol(new, first_eol(region))
    return with_eol(new, "\r\n") if is_all_crlf(view) else new


def _ambiguous(view: str, found: Sequence[Match], label: str) -> EditError:
    lines = [line_at(view, m.start_chars) for m in found[:MATCH_LINES_MAX]]
    shown = ", ".join(map(str, lines))
    return EditError(
        f"the text stands {len(found)} times in slot {label!r}, in lines {shown}",
        code="text-ambiguous",
        hint="pass more of the text around it, or say which with --occurrence or --all",
        details={"count": len(found), "lines": lines},
    )


def _not_found(view: str, old: str, count: int, label: str) -> EditError:
    details: dict[str, object] = {"count": count}
    near = None if count else near_miss(view, old)
    tail = f", which has {count} of it" if count else ""
    if near is not None:
        details |= {"hint": near[0], "line": near[1]}
        tail = f"; line {near[1]} differs only in {near[0]}"
    return EditError(
        f"the text is not in slot {label!r}{tail}",
        hint=f"run 'crdtmem get {label}' and copy the text exactly",
        details=details,
    )
