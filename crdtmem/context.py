"""The context block: chosen slots as one text within a budget, for a prompt.

Pure: which slots are shown is decided above, and what they hold is passed in. Their
texts come from many hands, so nothing in them can end the block or begin a slot.

A token is counted as three UTF-16 units of the whole block, which is more than a real
tokenizer makes of prose. The block never exceeds its budget, a line is never cut, and
what is left out is named or at least counted.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

from crdtmem.doc.text_form import units_of, view_of
from crdtmem.models import ContextSlot, ContextView
from crdtmem.scope import scope_of
from crdtmem.store.rows import SlotRow

__all__ = ["ContextStyle", "escape_tags", "render_context"]

ContextStyle = Literal["tags", "headings"]

UNITS_PER_TOKEN = 3


def render_context(
    slots: Sequence[SlotRow], budget_tokens: int, style: ContextStyle
) -> ContextView:
    """Write slots as one block, by label; blank ones are left out.

    If not all fit, each gets what it needs up to an equal share of the budget, and what
    small ones leave goes to the others. A slot with less than it needs keeps its last
    lines below a note, because appends are newest at the end. A slot whose share holds
    not even one line is omitted, the lowest rank first, and the last line says so. Rank
    is: project before global, then the newer change, then the label.

    Args:
        slots: Live slots, at most one of a label.
        budget_tokens: Most tokens of the block; at least CONTEXT_MIN_TOKENS, where the
            frame and one line always have room.
        style: ``tags``, or the ``headings`` of the compatible system.

    """
    form = _STYLES[style]
    sections = [
        _Section.of(row, form)
        for row in sorted(slots, key=lambda row: row.label)
        if view_of(row.file).strip()
    ]
    if not sections:
        return ContextView(text="", tokens=0, budget=budget_tokens, slots=())
    plan = _plan(sections, form, budget_tokens * UNITS_PER_TOKEN)
    text = _written(sections, plan, form)
    return ContextView(
        text=text,
        tokens=-(-units_of(text) // UNITS_PER_TOKEN),
        budget=budget_tokens,
        slots=tuple(
            _slot_of(section, plan.shown[section.label]) for section in sections
        ),
    )


class _Style(NamedTuple):
    """How a block is framed, and what its texts may not hold."""

    head: str
    foot: str | None
    opening: Callable[[SlotRow], str]
    closing: str
    escape: Callable[[str], str]

    @property
    def frame_units(self) -> int:
        """Units of an empty block, without the newline behind its head."""
        return len(self.head) + (0 if self.foot is None else 1 + len(self.foot))


# Possessive, so that a long run of blanks behind a "<" is looked at once.
_TAG = re.compile(r"<(?=\s*+(?:/\s*+)?+memory-(?:slot|context))", re.IGNORECASE)
_BLOCK_TAG = re.compile(r"<(?=\s*+(?:/\s*+)?+agentmemory-context)", re.IGNORECASE)
# Bidirectional controls let a text look as if it stood elsewhere on the line.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
# Markdown readers differ in what else ends a line, so every such character does here.
_BREAK = "\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
_HEADING = re.compile(rf"(\A|[{_BREAK}])( {{0,3}})(?=##?(?:[ \t{_BREAK}]|\Z))")


def escape_tags(text: str) -> str:
    """Return text in which nothing can end or begin a part of the tagged block."""
    return _CONTROL.sub(
        lambda found: rf"\u{{{ord(found[0]):X}}}", _TAG.sub("&lt;", text)
    )


def _escape_headings(text: str) -> str:
    return _HEADING.sub(r"\1\2\\", _BLOCK_TAG.sub("&lt;", text))


_STYLES: dict[str, _Style] = {
    "tags": _Style(
        head="<memory-context>",
        foot="</memory-context>",
        opening=lambda row: (
            f'<memory-slot label="{row.label}" scope="{scope_of(row.namespace)}"'
            f' rev="{row.rev}">'
        ),
        closing="</memory-slot>",
        escape=escape_tags,
    ),
    "headings": _Style(
        head="# crdtmem pinned slots\n",
        foot=None,
        opening=lambda row: f"## {row.label}",
        closing="",
        escape=_escape_headings,
    ),
}


class _Section(NamedTuple):
    """A slot as the block could show it.

    Attributes:
        row: The slot.
        lines: Its escaped text without blank lines at either end.
        frame_units: Of its opening and closing, with the newlines around them.
        units: Of the whole section, all lines shown, with the newline in front.

    """

    row: SlotRow
    lines: tuple[str, ...]
    frame_units: int
    units: int

    @classmethod
    def of(cls, row: SlotRow, form: _Style) -> "_Section":
        lines = form.escape(_trimmed(view_of(row.file))).split("\n")
        # A newline in front of the opening, and one in front of the closing.
        frame_units = len(form.opening(row)) + len(form.closing) + 2
        return cls(row, tuple(lines), frame_units, frame_units + _units_in(lines))

    @property
    def label(self) -> str:
        """Names the slot, and in one block no other."""
        return self.row.label

    @property
    def rank(self) -> tuple[bool, int, str]:
        """Sorts the one that is kept longest first."""
        is_global = scope_of(self.row.namespace) == "global"
        return is_global, -self.row.updated_ms, self.label

    def fitting(self, share_units: int) -> int:
        """Return how many of the last lines a share holds, below the note or all."""
        if self.units <= share_units:
            return len(self.lines)
        left_units = share_units - self.frame_units
        shown = 0
        while shown + 1 < len(self.lines):
            left_units -= 1 + units_of(self.lines[-1 - shown])
            # A line more takes its newline at least and saves the note a digit at most:
            # where one does not fit, more do not fit either.
            if left_units < 1 + len(self.note(shown + 1)):
                break
            shown += 1
        return shown

    def note(self, shown: int) -> str:
        """Return what stands in place of the lines that are not shown."""
        hidden = len(self.lines) - shown
        return f"[{hidden} earlier lines omitted; read slot {self.label}]"


class _Plan(NamedTuple):
    """How many lines are shown, by label, and the line about the omitted slots."""

    shown: dict[str, int]
    omission: str | None


def _plan(sections: Sequence[_Section], form: _Style, budget_units: int) -> _Plan:
    room_units = budget_units - form.frame_units
    # What could not be shown alone would only take others down with it.
    alone_units = room_units - (1 + len(_counted(1)) if len(sections) > 1 else 0)
    kept = [section for section in sections if section.fitting(alone_units)]
    while True:
        labels = {section.label for section in kept}
        omitted = [section for section in sections if section.label not in labels]
        counted = _counted(len(omitted)) if omitted else None
        shown = _shares(kept, room_units, counted)
        failing = [section for section in kept if not shown[section.label]]
        if not failing:
            break
        kept.remove(max(failing, key=lambda section: section.rank))
    if omitted:
        named = _named(omitted)
        better = _shares(kept, room_units, named)
        # The names are worth a few lines of text, but no slot.
        if _is_room_for(named, room_units) and all(better.values()):
            shown, counted = better, named
    return _Plan(dict.fromkeys((s.label for s in omitted), 0) | shown, counted)


def _counted(omitted: int) -> str:
    return f"[omitted: {omitted} slots]"


def _named(omitted: Iterable[_Section]) -> str:
    sizes = [f"{section.label} ({section.row.size} chars)" for section in omitted]
    return f"[omitted: {', '.join(sizes)}]"


def _is_room_for(line: str, room_units: int) -> bool:
    return 1 + len(line) <= room_units


def _shares(
    kept: Sequence[_Section], room_units: int, omission: str | None
) -> dict[str, int]:
    """Share the room by water-filling; return how many lines are shown, by label."""
    left_units = room_units - (0 if omission is None else 1 + len(omission))
    shown: dict[str, int] = {}
    # Of equal needs the highest rank comes last, where the remainders gather.
    by_rank = sorted(kept, key=lambda section: section.rank, reverse=True)
    by_need = sorted(by_rank, key=lambda section: section.units)
    for number, section in enumerate(by_need):
        share_units = min(section.units, left_units // (len(by_need) - number))
        shown[section.label] = section.fitting(share_units)
        left_units -= share_units
    return shown


def _written(sections: Iterable[_Section], plan: _Plan, form: _Style) -> str:
    parts = [form.head]
    for section in sections:
        shown = plan.shown[section.label]
        if not shown:
            continue
        parts.append(form.opening(section.row))
        if shown < len(section.lines):
            parts.append(section.note(shown))
        parts += section.lines[-shown:]
        parts.append(form.closing)
    parts += [part for part in (plan.omission, form.foot) if part is not None]
    return "\n".join(parts)


def _slot_of(section: _Section, shown: int) -> ContextSlot:
    total = len(section.lines)
    state: Literal["full", "trimmed", "omitted"] = "full"
    if shown < total:
        state = "trimmed" if shown else "omitted"
    return ContextSlot(
        label=section.label,
        scope=scope_of(section.row.namespace),
        rev=section.row.rev,
        state=state,
        shown_lines=shown,
        total_lines=total,
    )


def _trimmed(view: str) -> str:
    """Return the text without blank lines at either end; indentation stays."""
    lines = view.split("\n")
    filled = [number for number, line in enumerate(lines) if line.strip()]
    return "\n".join(lines[filled[0] : filled[-1] + 1])


def _units_in(lines: Iterable[str]) -> int:
    return sum(1 + units_of(line) for line in lines)
