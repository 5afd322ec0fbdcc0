"""What a session's observations have to say to the default slots.

The rules are those of the compatible system: what is to do goes to ``pending_items``,
how often what happened replaces ``session_patterns``, and the files that were touched
go to ``project_context``. Each slot is one transaction, and its text is looked at and
changed within it. What does not fit goes in whole lines, the oldest first; the history
keeps it.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from crdtmem.doc.text_form import units_of, view_of
from crdtmem.editing import line_delta, slot_write
from crdtmem.errors import SlotError
from crdtmem.memory import Memory
from crdtmem.views import iso_time

__all__ = ["OBSERVATIONS_DEFAULT_MAX", "OBSERVATIONS_MAX", "reflect"]

OBSERVATIONS_DEFAULT_MAX = 50
"""Newest observations that are looked at, as in the compatible system."""

OBSERVATIONS_MAX = 200
"""The most that may be asked for, as in the compatible system."""

_FILES_MAX = 20
_KINDS = {"error": "errors", "command_run": "commands"}
_FILES_HEAD = "Files touched in recent sessions:"

Lines = Sequence[str]


class _Findings(NamedTuple):
    """What was found, the newest last."""

    todos: Lines
    counts: Mapping[str, int]
    files: Lines
    reviewed: int


_Rewrite = Callable[[str, int, str, _Findings], str]
"""Takes a text, its slot's limit and the time; returns the text as it should be."""


def reflect(
    memory: Memory, observations: Sequence[Mapping[str, object]], most: int
) -> dict[str, object]:
    """Write the newest observations into the default slots; say how many took some.

    A slot that is gone, or takes no such write, is left alone and named.
    """
    found = _findings_in(observations, most)
    matters: list[tuple[str, object, _Rewrite]] = [
        ("pending_items", found.todos, _with_todos),
        ("session_patterns", found.counts, _patterns),
        ("project_context", found.files, _with_files),
    ]
    applied, skipped = 0, []
    for label, matter, rewrite in matters:
        if not matter:
            continue
        try:
            applied += _write(memory, label, rewrite, found)
        except SlotError as exc:
            skipped.append({"label": label, "code": exc.code, "error": exc.message})
    result: dict[str, object] = {
        "applied": applied,
        "observationsReviewed": found.reviewed,
    }
    return result | ({"skipped": skipped} if skipped else {})


def _write(memory: Memory, label: str, rewrite: _Rewrite, found: _Findings) -> bool:
    """Change a slot's text in one transaction; tell whether it did change.

    Not by a read and a guarded replace: the read would count as the lane's having seen
    what nobody was shown.
    """
    slot = memory.slot(label)
    with slot_write(slot._session, slot._place, None) as write:
        row = write.live_slot()
        view = view_of(row.file)
        now = iso_time(write.writing.transaction.now_ms)
        content = rewrite(view, row.size_limit, now, found)
        if content == view:
            return False
        details = {"before": row.size, "after": units_of(content)}
        write.commit("replace", line_delta(row.file, content), details=details)
        return True


def _findings_in(observations: Sequence[Mapping[str, object]], most: int) -> _Findings:
    newest = sorted(observations, key=lambda one: _text(one, "timestamp"))[-most:]
    todos: dict[str, None] = {}
    counts: Counter[str] = Counter()
    files: dict[str, None] = {}
    for one in newest:
        title = _text(one, "title")
        if "todo" in f"{title}\n{_text(one, 'narrative')}".lower():
            todos[f"- {title or _text(one, 'id')}"] = None
        if (kind := _text(one, "type")) in _KINDS:
            counts[_KINDS[kind]] += 1
        touched = one.get("files")
        for name in touched if isinstance(touched, (list, tuple)) else ():
            if isinstance(name, str) and name:
                files[_plain(name)] = None
    return _Findings(list(todos), counts, list(files), len(newest))


def _text(observation: Mapping[str, object], name: str) -> str:
    value = observation.get(name)
    return _plain(value) if isinstance(value, str) else ""


def _plain(value: str) -> str:
    """Return a text as a part of one line; half a surrogate pair becomes a "?"."""
    return value.encode("utf-8", "replace").decode().replace("\n", " ")


def _with_todos(text: str, limit: int, _: str, found: _Findings) -> str:
    already = set(text.split("\n"))
    return _added(text, [line for line in found.todos if line not in already], limit)


def _patterns(text: str, limit: int, now: str, found: _Findings) -> str:
    counts = [
        f"- {kind}: {count} in last {found.reviewed} observations"
        for kind, count in found.counts.items()
    ]
    lines = [f"last reflection: {now}", *counts]
    while lines and units_of("\n".join(lines)) > limit:
        lines.pop()
    return "\n".join(lines) or text


def _with_files(text: str, limit: int, _: str, found: _Findings) -> str:
    fresh = [f"- {name}" for name in found.files if name not in text][-_FILES_MAX:]
    head = [_FILES_HEAD] if fresh and not text else []
    return _added(text, [*head, *fresh], limit)


def _added(text: str, fresh: Lines, limit: int) -> str:
    """Return a text with lines at its end, without the first ones that do not fit."""
    new = [line for line in fresh if units_of(line) <= limit]
    if not new:
        return text
    # As an append: onto the blank last line, if there is one.
    lines = [*text.removesuffix("\n").split("\n"), *new] if text else new
    sizes = [units_of(line) + 1 for line in lines]
    over = sum(sizes) - 1 - limit
    first = 0
    while over > 0:
        over -= sizes[first]
        first += 1
    return "\n".join(lines[first:])
