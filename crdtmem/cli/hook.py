"""``crdtmem hook``: what a host's session is told at its events.

A hook never harms its host. Whatever is wrong, with the input, the settings or the
store, is one line on stderr and exit status 0. Where somebody holds the store, or stdin
is not closed, ``time_limit`` ends the process.

The memory is read without a lock. What the session has then seen is written down by a
second handle, after the context was printed, since that may be shown twice but not
missed, and before a report of changes is, since it comes again with the next prompt.
"""

import json
import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from crdtmem.cli.phrases import CONTEXT_HEAD, change_line
from crdtmem.cli.running import Call, internal_error
from crdtmem.config import Config
from crdtmem.doc.text_form import units_of
from crdtmem.errors import CrdtmemError, InvalidArgumentError
from crdtmem.limits import (
    CONTEXT_MIN_TOKENS,
    HOOK_INPUT_BYTES,
    HOOK_LOCK_S,
    HOOK_NEWS_UNITS,
    HOOK_UNITS,
)
from crdtmem.memory import Memory
from crdtmem.models import UNSET, Change, ContextSlot

__all__ = ["hook"]

# The hosts, and what each calls an event of which it puts the answer into a session.
_HOSTS = {
    "claude": {"session-start": "SessionStart", "prompt": "UserPromptSubmit"},
    "codex": {"session-start": "SessionStart", "prompt": "UserPromptSubmit"},
    "cursor": {"session-start": "sessionStart"},
}
_SESSION_CHARS = 8
_UNITS_PER_TOKEN = 3
_LOST = "[its text at rev {} is no longer kept; read slot {}]"


def hook(call: Call, *, host: str | None, event: str | None) -> None:
    """Answer an event of a host; tell on stderr why there is no answer."""
    try:
        _answer(call, host or "", event or "")
        call.out.flush()
    except CrdtmemError as error:
        _tell(error.message)
    except Exception as error:  # noqa: BLE001 - logged and told; a host must go on
        _tell(internal_error(error).message)


class _Asked(NamedTuple):
    """What a host tells about its session."""

    session: str
    folder: Path


def _answer(call: Call, host: str, event: str) -> None:
    if host not in _HOSTS:
        known = ", ".join(_HOSTS)
        raise InvalidArgumentError("host", f"host must be of {known}, not {host!r:.40}")
    if event not in _EVENTS:
        known = ", ".join(_EVENTS)
        message = f"event must be of {known}, not {event!r:.40}"
        raise InvalidArgumentError("event", message)
    asked = _asked(sys.stdin.buffer.read(HOOK_INPUT_BYTES + 1))
    call.folder = asked.folder
    config = call.config
    config = config._replace(busy_timeout=min(HOOK_LOCK_S, config.busy_timeout))
    if config.sources["lane"] == "default":
        config = config._replace(lane=f"{host}-{asked.session}")
    _EVENTS[event](call, config, host)


def _asked(raw: bytes) -> _Asked:
    """Read what a host sends; fields that nobody asks for may hold anything."""
    if len(raw) > HOOK_INPUT_BYTES:
        raise _bad_input(f"stdin holds more than {HOOK_INPUT_BYTES} bytes")
    try:
        fields: Any = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise _bad_input("stdin holds no JSON") from error
    if not isinstance(fields, dict):
        raise _bad_input("stdin holds no JSON object")
    # Cursor has names of its own for both.
    session = fields.get("session_id") or fields.get("conversation_id")
    roots = fields.get("workspace_roots")
    folder = fields.get("cwd") or (roots[0] if isinstance(roots, list) and roots else 0)
    name = re.sub(r"[^A-Za-z0-9_-]", "", session) if isinstance(session, str) else ""
    if not name:
        raise _bad_input("stdin names no session_id")
    if not isinstance(folder, str) or not os.path.isabs(folder):
        raise _bad_input("stdin names no cwd, as an absolute path")
    if "\0" in folder or not os.path.isdir(folder):
        raise _bad_input(f"cwd is no folder: {folder!r:.200}")
    return _Asked(name[:_SESSION_CHARS], Path(folder))


def _bad_input(message: str) -> InvalidArgumentError:
    return InvalidArgumentError("stdin", message)


def _session_start(call: Call, config: Config, host: str) -> None:
    """Give a session what it should know; what is shown whole counts as seen."""
    with _opened(config, read_only=True) as memory:
        reply, slots = _context(call, memory, config, host)
    if not reply:
        return
    call.out.json(reply)
    call.out.flush()
    _note(config, [slot for slot in slots if slot.state == "full"])


def _prompt(call: Call, config: Config, host: str) -> None:
    """Report, once, what others have changed in the slots that a session has seen."""
    if "prompt" not in _HOSTS[host]:
        raise InvalidArgumentError("event", f"{host} adds nothing to a prompt")
    with _opened(config, read_only=True) as memory:
        changes = [c for c in memory.unread() if call.scope in (None, c.scope)]
        news = _news(memory, changes)
    if changes:
        _note(config, changes)
        call.out.json(_reply(host, "prompt", news))


def _pre_compact(call: Call, config: Config, host: str) -> None:
    """Forget what a session has seen: it is about to forget it as well."""
    from crdtmem.feed import forget_seen  # noqa: PLC0415 - as in the memory

    with _opened(config, read_only=False) as memory:
        forget_seen(memory.store, memory.lane)


_EVENTS: dict[str, Callable[[Call, Config, str], None]] = {
    "session-start": _session_start,
    "prompt": _prompt,
    "pre-compact": _pre_compact,
}


def _context(
    call: Call, memory: Memory, config: Config, host: str
) -> tuple[dict[str, object], tuple[ContextSlot, ...]]:
    """Return the answer with the context, and what it shows of each slot.

    What JSON adds to a text is known when it is made, so a smaller budget is tried
    until all of it fits.
    """
    most = (HOOK_UNITS - len(CONTEXT_HEAD)) // _UNITS_PER_TOKEN
    tokens = min(config.context_budget, most)
    while True:
        view = memory.context(tokens, scope=call.scope, labels=config.context_labels)
        if not view.text:
            return {}, ()
        reply = _reply(host, "session-start", CONTEXT_HEAD + view.text)
        size_units = units_of(json.dumps(reply, ensure_ascii=False)) + 1
        if size_units <= HOOK_UNITS:
            return reply, view.slots
        smaller = tokens * HOOK_UNITS // size_units - 1
        tokens = max(CONTEXT_MIN_TOKENS, smaller)


def _reply(host: str, event: str, text: str) -> dict[str, object]:
    if host == "cursor":
        return {"additional_context": text}
    name = _HOSTS[host][event]
    return {"hookSpecificOutput": {"hookEventName": name, "additionalContext": text}}


def _news(memory: Memory, changes: Iterable[Change]) -> str:
    """Return changes with their diffs, as much of them as there is room for.

    Each change has one line before any has more; what they leave is shared, and what
    one diff does not need goes to those behind it.
    """
    from crdtmem.context import escape_tags  # noqa: PLC0415 - with the first change

    room_units = HOOK_NEWS_UNITS - len(CONTEXT_HEAD)
    lines = [(escape_tags(change_line(change)), change) for change in changes]
    shown: list[tuple[str, Change]] = []
    for line, change in lines:
        if _cost(line) + _cost(_more(len(lines))) > room_units:
            break
        room_units -= _cost(line)
        shown.append((line, change))
    found = [CONTEXT_HEAD.removesuffix("\n")]
    rest = len(lines) - len(shown)
    room_units -= _cost(_more(rest)) if rest else 0
    for number, (line, change) in enumerate(shown):
        share_units = room_units // (len(shown) - number)
        part = _cut(escape_tags(_diff(memory, change)), share_units, change)
        room_units -= sum(map(_cost, part))
        found += [line, *part]
    return "\n".join([*found, _more(rest)] if rest else found)


def _diff(memory: Memory, change: Change) -> str:
    if change.deleted is not UNSET:
        return ""
    slot = memory.slot(change.label, change.scope)
    try:
        unified = slot.diff(change.since_rev, change.rev).unified
    except CrdtmemError:
        # Pruned or damaged, but no reason to keep the others' changes back.
        return _LOST.format(change.since_rev, change.label)
    # Without the two lines that name the slot and its revs once more.
    return "\n".join(unified.removesuffix("\n").split("\n")[2:])


def _cut(diff: str, share_units: int, change: Change) -> list[str]:
    """Return the lines of a diff that have room, and a note where not all have."""
    lines = diff.split("\n") if diff else []
    if sum(map(_cost, lines)) <= share_units:
        return lines
    note = f"[more lines; read slot {change.label}]"
    left_units = share_units - _cost(note)
    if left_units < 0:
        return []
    kept: list[str] = []
    # Not all have room, so this ends before they do.
    while (left_units := left_units - _cost(lines[len(kept)])) >= 0:
        kept.append(lines[len(kept)])
    return [*kept, note]


def _more(count: int) -> str:
    return f"[{count} more slots have changed]"


def _cost(line: str) -> int:
    """Return the units of a line and its newline."""
    return units_of(line) + 1


def _note(config: Config, shown: Iterable[Change | ContextSlot]) -> None:
    from crdtmem.feed import note_seen  # noqa: PLC0415 - as in the memory

    with _opened(config, read_only=False) as memory:
        note_seen(memory.store, memory.lane, memory.project, shown)


def _opened(config: Config, *, read_only: bool) -> Memory:
    from crdtmem import opening  # noqa: PLC0415 - loads the store, 2 x a bare start

    return opening.open_with(config, read_only=read_only, create=False)


def _tell(message: str) -> None:
    line = f"crdtmem hook: {' '.join(message.split())}\n"
    sys.stderr.buffer.write(line.encode("utf-8", "backslashreplace"))
    sys.stderr.flush()
