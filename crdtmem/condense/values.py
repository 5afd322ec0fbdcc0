"""What a condense pass is described by: values that callers get and give."""

from collections.abc import Awaitable, Callable

from crdtmem.model import UNSET, Model, Unset
from crdtmem.models import Headroom, Scope

__all__ = [
    "ArchivedSection",
    "CondenseArchive",
    "CondensePass",
    "CondenseReply",
    "CondenseResult",
    "DueSlot",
    "PassInfo",
    "RateLimitedError",
    "Section",
    "Summarise",
]


class Section(Model):
    """A part of a slot's file, in whole lines.

    Attributes:
        heading: Its heading line without the end; empty for text without one.
        text: The part itself.
        start: Where it begins in the file, in bytes.
        end: Where it ends.

    """

    heading: str
    text: str
    start: int
    end: int


class CondensePass(Model):
    """A pass that has begun: what to summarise, and what the reply must name.

    Attributes:
        id: Names the pass; a reply counts only with it.
        label: The slot.
        scope: Of the slot.
        base_rev: The rev of the text that it began from.
        base_hash: Its content hash.
        prompt: What to give a model; it holds instructions, texts and the frame.
        target: How long the summary should be at most, in units.
        expires_at: When the pass ends by itself, ISO 8601, UTC.
        archive: SHA-256 of what it takes out, which is on disk already.
        pinned: The pinned sections, which stay.
        condensed: What was condensed before, without its heading.
        evicted: What the summary is to stand for, oldest first.
        kept: The newest units, which stay.

    """

    id: str
    label: str
    scope: Scope
    base_rev: int
    base_hash: str
    prompt: str
    target: int
    expires_at: str
    archive: str
    pinned: tuple[str, ...]
    condensed: str
    evicted: tuple[Section, ...]
    kept: tuple[Section, ...]


class CondenseReply(Model):
    """A summariser's reply.

    Attributes:
        pass_id: Of the pass.
        summary: Markdown, in place of all that is condensed or evicted.
        hoisted: Facts to pin, one line each.

    """

    pass_id: str
    summary: str
    hoisted: tuple[str, ...] = ()


class CondenseResult(Model):
    """What became of a pass; a refusal is a result with its reason.

    Attributes:
        pass_id: Of the pass; not there where none was begun.
        label: The slot.
        scope: Of the slot.
        condensed: Whether the slot has been rewritten.
        reason: ``condensed``, or why not.
        detail: More about the reason.
        section: Headings of the units that others have changed meanwhile.
        base_rev: The rev of the text that the pass began from.
        rev: The slot's rev now.
        old_bytes: Size of the text that the pass began from.
        new_bytes: Size of the text that it makes of that.
        carried_bytes: What others have added meanwhile, if anything.
        final_bytes: Size of the slot's text after it.
        evicted: Units taken out.
        kept: Units left.
        hoisted: Facts pinned.
        hoist_deferred: Facts that went to the end of the summary for want of room.
        history_id: Names the write, for undo.
        retry_at: When another attempt may be made, ISO 8601, UTC.
        diff: From the text before to the one after, cut.
        headroom: The slot now.
        dry_run: Whether nothing was written.

    """

    pass_id: str | Unset = UNSET
    label: str
    scope: Scope
    condensed: bool
    reason: str
    detail: str | Unset = UNSET
    section: str | Unset = UNSET
    base_rev: int | Unset = UNSET
    rev: int
    old_bytes: int | Unset = UNSET
    new_bytes: int | Unset = UNSET
    carried_bytes: int | Unset = UNSET
    final_bytes: int | Unset = UNSET
    evicted: int | Unset = UNSET
    kept: int | Unset = UNSET
    hoisted: int | Unset = UNSET
    hoist_deferred: int | Unset = UNSET
    history_id: str | Unset = UNSET
    retry_at: str | Unset = UNSET
    diff: str | Unset = UNSET
    headroom: Headroom
    dry_run: bool | Unset = UNSET


class DueSlot(Model):
    """A slot that should be condensed.

    Attributes:
        label: The slot.
        scope: Of the slot.
        due: Whether a pass would begin now.
        reason: Why it is due (``full``, ``sections``), or why it is not yet.
        retry_at: When it may be tried, if it waits; ISO 8601, UTC.
        pct_used: How full it is.

    """

    label: str
    scope: Scope
    due: bool
    reason: str
    retry_at: str | Unset = UNSET
    pct_used: int


class PassInfo(Model):
    """A pass, as the store keeps it.

    Attributes:
        id: Its id.
        label: The slot.
        scope: Of the slot.
        lane: Who began it.
        summariser: Who was to summarise; empty if not said.
        state: open, committed, aborted, expired or undone.
        reason: Why it ended so; ``duplicate`` if another store has condensed the same
            text apart from it, so that both summaries stand until the next pass.
        is_remote: Whether another store made it.
        base_rev: The rev that it began from; 0 for another store's.
        begun_at: When; ISO 8601, UTC.
        ended_at: When it ended.
        expires_at: When it ends by itself.
        archive: SHA-256 of what it took out.
        result: Its result, as JSON values, once it has one.

    """

    id: str
    label: str
    scope: Scope
    lane: str
    summariser: str
    state: str
    reason: str
    is_remote: bool
    base_rev: int
    begun_at: str
    ended_at: str | Unset = UNSET
    expires_at: str
    archive: str
    result: dict[str, object] | Unset = UNSET


class ArchivedSection(Model):
    """A part that a pass took out.

    Attributes:
        kind: ``evicted``, or ``condensed`` for what was condensed before.
        heading: Its heading line, or empty.
        text: The part.

    """

    kind: str
    heading: str
    text: str


class CondenseArchive(Model):
    """What a pass took out of its slot.

    Attributes:
        pass_id: Of the pass.
        sha256: Of the parts.
        sections: The parts, in the order of the file.

    """

    pass_id: str
    sha256: str
    sections: tuple[ArchivedSection, ...]


class RateLimitedError(Exception):
    """Raised by a summariser that is out of quota; the pass ends and waits.

    Args:
        retry_after: Seconds until another attempt makes sense; None if unknown.

    """

    def __init__(self, retry_after: float | None = None) -> None:
        super().__init__("the summariser is rate-limited")
        self.retry_after = retry_after


Summarise = Callable[
    [CondensePass], "str | CondenseReply | Awaitable[str | CondenseReply]"
]
"""Makes a reply of a pass; a string is a framed one."""
