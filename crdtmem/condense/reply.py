"""Replies of summarisers: read strictly, because they take the place of a text.

A reply is a frame of marker lines that carry the pass id, or one JSON object. What
stands in it is cleaned afterwards, so that it cannot change the layout of the slot.
"""

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from crdtmem.condense.regions import scan_fences
from crdtmem.condense.values import CondenseReply
from crdtmem.doc.text_form import cut_units, lines_of, lone_surrogate
from crdtmem.limits import FACT_UNITS

__all__ = ["ReplyError", "clean_facts", "clean_summary", "parse_reply"]

_MARKER_START, _MARKER_END = "<<<crdtmem:", ">>>"
_ORDER = ["summary", "facts", "end"]
_HEADING = re.compile(r"\A#{1,2}(?=[ \t]|$)")
_BULLET = re.compile(r"\A(?:[-*+\N{BULLET}](?:[ \t]+|$))+")
# How much of a foreign pass id is shown.
_SHOWN_CHARS = 60
_NO_FACTS = {"(none)", "none", "- (none)", "- none"}
# Models like to wrap what they were asked for.
_WRAPPED = re.compile(r"`{3,}(?:json)?[ \t]*\n(.*)\n`{3,}", re.DOTALL)


class ReplyError(Exception):
    """A reply that does not count.

    Args:
        reason: ``reply-empty``, ``reply-unframed``, ``reply-wrong-pass``,
            ``reply-duplicate-marker``, ``reply-truncated`` or ``invalid-text``.
        detail: What is wrong, in a sentence.

    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class _Marker(NamedTuple):
    line: int
    name: str
    pass_id: str | None


def parse_reply(text: str, pass_id: str) -> CondenseReply:
    """Read a reply. Costs time by its length, whatever it holds.

    What stands around the frame is ignored; so are markers of other passes within it.

    Args:
        text: What the summariser gave.
        pass_id: The pass that it must name.

    Raises:
        ReplyError: If it is none, or not one of this pass.

    """
    _check_text(text)
    text = text.replace("\r\n", "\n")
    if not text.strip():
        raise ReplyError("reply-empty", "the reply is empty")
    lines = text.split("\n")
    found = [m for at, line in enumerate(lines) if (m := _marker_of(at, line))]
    own: dict[str, int] = {}
    for at, name, marked_id in found:
        if marked_id != pass_id:
            continue
        if name in own:
            raise ReplyError(
                "reply-duplicate-marker", f"the marker {name} stands in it twice"
            )
        own[name] = at
    if not own and found:
        named = _shown(found[0].pass_id)
        raise ReplyError("reply-wrong-pass", f"the markers name the pass {named}")
    if not own:
        return _json_reply(text, pass_id)
    _check_order(own)
    return CondenseReply(
        pass_id=pass_id,
        summary="\n".join(lines[own["summary"] + 1 : own["facts"]]),
        hoisted=tuple(_facts_of(lines[own["facts"] + 1 : own["end"]])),
    )


def clean_summary(summary: str) -> str:
    """Return a summary that stays within its section.

    Headings of the two upper levels become ``###``, a fence that is left open is
    closed, and blank lines around it go. It has no final newline, and may be empty.

    Raises:
        ReplyError: If it holds a lone surrogate.

    """
    _check_text(summary)
    lines = lines_of(summary.replace("\r\n", "\n").rstrip())
    while lines and not lines[0].strip():
        del lines[0]
    scan = scan_fences(lines)
    end = len(lines) if scan.first_open is None else scan.first_open
    is_fenced = [False] * len(lines)
    for first, behind in scan.spans:
        is_fenced[first:behind] = [True] * (behind - first)
    for at in range(end):
        if not is_fenced[at]:
            lines[at] = _HEADING.sub("###", lines[at])
    if scan.first_open is not None:
        opening = lines[scan.first_open].lstrip(" ")
        size = len(opening) - len(opening.lstrip(opening[0]))
        lines.append(f"\n{opening[0] * size}")
    return "".join(lines)


def clean_facts(facts: Iterable[str], pinned_text: str) -> tuple[str, ...]:
    """Return facts as lines without bullets, less those that are pinned already.

    Args:
        facts: As the summariser gave them.
        pinned_text: The pinned sections. Equal is what differs in case, bullets,
            blanks, the form of composed characters and a final full stop only.

    Raises:
        ReplyError: If one holds a lone surrogate.

    """
    seen = {_key_of(line) for line in pinned_text.split("\n")} | {""}
    kept = []
    for fact in facts:
        _check_text(fact)
        line = cut_units(_squeezed(fact), FACT_UNITS).rstrip()
        key = _key_of(line)
        if key not in seen:
            seen.add(key)
            kept.append(line)
    return tuple(kept)


def _check_text(text: str) -> None:
    at_chars = lone_surrogate(text)
    if at_chars is not None:
        raise ReplyError(
            "invalid-text", f"the reply holds a lone surrogate, at character {at_chars}"
        )


def _marker_of(at: int, line: str) -> _Marker | None:
    line = line.strip()
    if not (line.startswith(_MARKER_START) and line.endswith(_MARKER_END)):
        return None
    match line[len(_MARKER_START) : -len(_MARKER_END)].split():
        case [name] if name in _ORDER:
            return _Marker(at, name, None)
        case [name, marked_id] if name in _ORDER:
            return _Marker(at, name, marked_id)
        case _:
            return None


def _check_order(own: dict[str, int]) -> None:
    if "end" not in own and "summary" in own:
        raise ReplyError("reply-truncated", "the reply has no end marker")
    missing = [name for name in _ORDER if name not in own]
    if missing:
        raise ReplyError("reply-unframed", f"the marker {missing[0]} is missing")
    if sorted(own, key=own.__getitem__) != _ORDER:
        raise ReplyError("reply-unframed", "the markers stand in another order")


def _facts_of(lines: Iterable[str]) -> Iterator[str]:
    """Yield facts; indented lines go on with the one above."""
    fact: list[str] = []
    for line in lines:
        text = line.strip()
        if not text or text.casefold() in _NO_FACTS or not text.strip("`"):
            continue
        if fact and line[0] in " \t":
            fact.append(text)
            continue
        if fact:
            yield " ".join(fact)
        fact = [_BULLET.sub("", text)]
    if fact:
        yield " ".join(fact)


def _json_reply(text: str, pass_id: str) -> CondenseReply:
    text = text.strip()
    wrapped = _WRAPPED.fullmatch(text)
    try:
        value = json.loads(wrapped[1] if wrapped else text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ReplyError(
            "reply-unframed", "the reply has no markers, nor is it one JSON object"
        )
    marked_id = value.get("passId")
    if marked_id != pass_id:
        raise ReplyError(
            "reply-wrong-pass", f"the reply names the pass {_shown(marked_id)}"
        )
    summary, facts = value.get("summary"), value.get("facts", [])
    if not isinstance(summary, str) or not _is_facts(facts):
        raise ReplyError(
            "reply-unframed", "the JSON reply has no summary, or facts that are no text"
        )
    for part in (summary, *facts):
        _check_text(part)
    return CondenseReply(pass_id=pass_id, summary=summary, hoisted=tuple(facts))


def _shown(marked_id: object) -> str:
    return ascii(marked_id)[:_SHOWN_CHARS]


def _is_facts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(fact, str) for fact in value)


def _squeezed(text: str) -> str:
    """Return it on one line, without bullets."""
    return _BULLET.sub("", " ".join(text.split()))


def _key_of(line: str) -> str:
    folded = unicodedata.normalize("NFC", line).casefold()
    squeezed = _squeezed(unicodedata.normalize("NFC", folded))
    return squeezed.removesuffix(".").rstrip()
