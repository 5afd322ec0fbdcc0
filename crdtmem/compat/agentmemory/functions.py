"""The functions of the compatible system, by their ids.

Each reads its payload, calls one verb and shows the result; ``call`` turns a refusal
into a result, as its callers expect.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from crdtmem.compat.agentmemory.payload import (
    checked_payload,
    count_of,
    creation_of,
    flag_of,
    guards_of,
    target_of,
)
from crdtmem.compat.agentmemory.reflecting import (
    OBSERVATIONS_DEFAULT_MAX,
    OBSERVATIONS_MAX,
    reflect,
)
from crdtmem.errors import CrdtmemError, HistoryNotFoundError, InvalidArgumentError
from crdtmem.limits import CONTEXT_MAX_TOKENS, HISTORY_PAGE_MAX
from crdtmem.memory import Memory
from crdtmem.models import History, HistoryEntry, SlotView, WriteResult
from crdtmem.slot import Slot

__all__ = ["AgentMemorySlots", "Observations", "failure"]

Payload = Mapping[str, object]
Observations = Callable[[str], Sequence[Mapping[str, object]]]
"""Takes a session's id, returns what was observed in it."""

_HEADROOM = {
    *("size", "sizeLimit", "free", "pctUsed", "rev", "contentHash", "warning"),
}
_SLOT_FIELDS = {*_HEADROOM, "label", "scope", "content"}
# What the compatible system puts beside the sentence, where the details have it.
_LIFTED = ("current", "currentSize", "sizeLimit")


class AgentMemorySlots:
    """The slots of a Memory, for who calls agentmemory's functions.

    Args:
        memory: Where the slots are; stays the caller's, who closes it.
        observations: Where ``mem::slot-reflect`` finds what a session observed.

    """

    def __init__(
        self, memory: Memory, *, observations: Observations | None = None
    ) -> None:
        self._memory = memory
        self._observations = observations

    def call(self, function_id: str, payload: Payload) -> dict[str, object]:
        """Do a function; a refusal is a result with ``success: false``.

        Never raises for what the caller or the state of the store can cause.
        """
        try:
            return self.perform(function_id, payload)
        except CrdtmemError as exc:
            return failure(exc)

    def perform(self, function_id: str, payload: Payload) -> dict[str, object]:
        """Do a function, and return its successful result.

        Raises:
            CrdtmemError: If it is refused; nothing was written then.

        """
        # Whatever it is: a list, say, cannot be looked up.
        function = _FUNCTIONS.get(str(function_id))
        if function is None:
            known = ", ".join(_FUNCTIONS)
            raise InvalidArgumentError(
                "function_id",
                f"unknown function {function_id!r:.60}",
                hint=f"the functions are {known}",
            )
        return {"success": True, **function(self, checked_payload(payload))}

    def render_pinned_context(self) -> str:
        """Return the pinned slots that hold a text, each below a heading."""
        view = self._memory.context(CONTEXT_MAX_TOKENS, style="headings")
        return view.text

    def _list(self, payload: Payload) -> dict[str, object]:
        scope: Any = payload.get("scope")
        views = self._memory.slots(scope)
        return {"slots": [view.to_dict() for view in views]}

    def _get(self, payload: Payload) -> dict[str, object]:
        return _shown(self._slot(payload).read())

    def _create(self, payload: Payload) -> dict[str, object]:
        label, scope = target_of(payload)
        settings = creation_of(payload)
        content: Any = payload.get("content")
        result = self._memory.create(
            label,
            "" if content is None else content,
            scope=scope or "project",
            **settings,
        )
        return self._written(result)

    def _append(self, payload: Payload) -> dict[str, object]:
        guards = guards_of(payload, "expectedRev", "expectedHash", "requestId")
        text: Any = payload.get("text")
        return self._written(self._slot(payload).append(text, **guards))

    def _replace(self, payload: Payload) -> dict[str, object]:
        guards = guards_of(
            payload, "expectedRev", "expectedHash", "baseRev", "requestId"
        )
        content: Any = payload.get("content")
        return self._written(self._slot(payload).replace(content, **guards))

    def _delete(self, payload: Payload) -> dict[str, object]:
        label, scope = target_of(payload)
        guards = guards_of(payload, "expectedRev", "expectedHash", "requestId")
        return self._memory.delete(label, scope, **guards).to_dict()

    def _history(self, payload: Payload) -> dict[str, object]:
        slot = self._slot(payload)
        limit: Any = count_of(payload.get("limit", HISTORY_PAGE_MAX))
        history = slot.history(limit)
        if not _flag_in(payload, "restore"):
            return history.to_dict()
        entry = _entry_to_restore(slot, history, payload.get("id"))
        return {
            "entry": entry.to_dict(),
            "restoreWith": self._call_that_restores(slot, history, entry),
        }

    def _undo(self, payload: Payload) -> dict[str, object]:
        slot = self._slot(payload)
        guards = guards_of(payload, "expectedRev", "expectedHash", "requestId")
        entry_id: Any = payload.get("id")
        if _flag_in(payload, "restore"):
            return self._written(slot.restore(entry_id, **guards))
        is_dry_run = _flag_in(payload, "dryRun")
        return self._written(slot.undo(entry_id, dry_run=is_dry_run, **guards))

    def _reflect(self, payload: Payload) -> dict[str, object]:
        session_id = payload.get("sessionId")
        if not isinstance(session_id, str) or not session_id.strip():
            raise InvalidArgumentError("sessionId", "sessionId required")
        most = count_of(payload.get("maxObservations", OBSERVATIONS_DEFAULT_MAX))
        if not isinstance(most, int) or isinstance(most, bool) or most < 1:
            raise InvalidArgumentError(
                "maxObservations",
                f"maxObservations must be a positive integer, not {most!r:.40}",
            )
        if self._observations is None:
            return {"applied": 0, "reason": "no source of observations"}
        found = self._observations(session_id)
        if not found:
            return {"applied": 0, "reason": "no observations for session"}
        return reflect(self._memory, found, min(most, OBSERVATIONS_MAX))

    def _call_that_restores(
        self, slot: Slot, history: History, entry: HistoryEntry
    ) -> dict[str, object]:
        """Return the call that puts a kept text back, unless somebody writes first."""
        target = {"label": slot.label, "scope": slot.scope}
        guard = {"expectedRev": history.current.rev}
        views = self._memory.slots(slot.scope, content=False)
        if any(view.label == slot.label for view in views):
            call = {"function_id": "mem::slot-replace", **target}
            return {**call, "content": entry.content, **guard}
        # Deleted: a replace would find no slot, and a restore brings it back.
        call = {"function_id": "mem::slot-undo", **target}
        return {**call, "id": entry.id, "restore": True, **guard}

    def _slot(self, payload: Payload) -> Slot:
        return self._memory.slot(*target_of(payload))

    def _written(self, result: WriteResult) -> dict[str, object]:
        """Return a write's result, with the slot as the write left it."""
        # Without the text: nobody is shown what came after the write.
        views = self._memory.slots(result.scope, content=False)
        found = (view.to_dict() for view in views if view.label == result.label)
        fields = result.to_dict()
        left = {key: value for key, value in fields.items() if key in _SLOT_FIELDS}
        slot = {k: v for k, v in next(found, {}).items() if k not in _HEADROOM}
        del fields["content"]
        return {**fields, "slot": {**slot, **left}}


def failure(error: CrdtmemError) -> dict[str, object]:
    """Return a refusal as a result: sentence, code, hint, and what callers look for."""
    body: dict[str, object] = {
        "success": False,
        "error": error.message,
        "code": error.code,
        "details": error.details,
    }
    if error.hint:
        body["hint"] = error.hint
    return body | {key: error.details[key] for key in _LIFTED if key in error.details}


def _flag_in(payload: Payload, name: str) -> bool:
    value = flag_of(payload.get(name))
    if value is None or isinstance(value, bool):
        return bool(value)
    message = f"{name} must be true or false, not {value!r:.40}"
    raise InvalidArgumentError(name, message)


def _shown(view: SlotView) -> dict[str, object]:
    slot = view.to_dict()
    headroom = {key: value for key, value in slot.items() if key in _HEADROOM}
    return {"slot": slot, "scope": view.scope, **headroom}


def _entry_to_restore(slot: Slot, history: History, entry_id: object) -> HistoryEntry:
    """Return the entry of an id, or else the newest, with its text."""
    if not entry_id:
        if not history.entries:
            raise HistoryNotFoundError(label=slot.label, id="newest")
        entry_id = history.entries[0].id
    wanted: Any = entry_id
    return slot.history_entry(wanted)


_FUNCTIONS: Mapping[str, Callable[[AgentMemorySlots, Payload], dict[str, object]]] = {
    "mem::slot-list": AgentMemorySlots._list,
    "mem::slot-get": AgentMemorySlots._get,
    "mem::slot-create": AgentMemorySlots._create,
    "mem::slot-append": AgentMemorySlots._append,
    "mem::slot-replace": AgentMemorySlots._replace,
    "mem::slot-delete": AgentMemorySlots._delete,
    "mem::slot-reflect": AgentMemorySlots._reflect,
    "mem::slot-history": AgentMemorySlots._history,
    "mem::slot-undo": AgentMemorySlots._undo,
}
