"""Errors of slots and of their history: refused, and nothing was written."""

from collections.abc import Mapping

from crdtmem.errors.tree import CrdtmemError
from crdtmem.limits import CONDENSE_TRIGGER_PCT

__all__ = [
    "ConflictError",
    "EditError",
    "HistoryError",
    "HistoryNotFoundError",
    "ImportRefusedError",
    "RequestIdReusedError",
    "RevNotKeptError",
    "SizeLimitError",
    "SlotError",
    "SlotExistsError",
    "SlotNotFoundError",
    "SlotQuarantinedError",
    "SlotRefusedError",
]


class SlotError(CrdtmemError):
    """The slot refused a read or a write; nothing was written."""

    code = "slot-error"


class SlotNotFoundError(SlotError, LookupError):
    """There is no live slot of this label.

    Args:
        label: What was looked for.
        scope: Where, or None for everywhere.

    """

    code = "slot-not-found"
    exit_status = 3
    http_status = 404

    def __init__(self, *, label: str, scope: str | None = None) -> None:
        where = f" in {scope} scope" if scope else ""
        super().__init__(
            f"slot not found: {label!r}{where}",
            hint="run 'crdtmem list' to see the slots there are,"
            f" or 'crdtmem create {label}' to make it",
            details={"label": label, "scope": scope},
        )


class SlotExistsError(SlotError):
    """The label is taken in that scope.

    Args:
        label: The label that was to be made.
        scope: Where it is taken.

    """

    code = "slot-exists"
    exit_status = 4
    http_status = 409

    def __init__(self, *, label: str, scope: str) -> None:
        super().__init__(
            f"slot {label!r} already exists in {scope} scope",
            hint=f"run 'crdtmem get {label} --scope {scope}' to see it",
            details={"label": label, "scope": scope},
        )


class SlotRefusedError(SlotError):
    """The slot is read-only, or append-only and this was no append.

    Args:
        label: The slot.
        code: ``slot-read-only`` or ``slot-append-only``.

    """

    code = "slot-read-only"
    exit_status = 8
    http_status = 403

    def __init__(self, *, label: str, code: str = "slot-read-only") -> None:
        is_read_only = code == "slot-read-only"
        option = "--writable" if is_read_only else "--free"
        super().__init__(
            f"slot is {'read-only' if is_read_only else 'append-only'}: {label!r}",
            code=code,
            hint=f"run 'crdtmem meta {label} {option}' if you may lift it",
            details={"label": label},
        )


class SlotQuarantinedError(SlotError):
    """A record of the slot is damaged: reads give its last good text, writes stop.

    Args:
        label: The slot.
        reason: What is wrong with the record.
        kind: What is damaged, where it is no slot.

    """

    code = "slot-quarantined"
    hint = "run 'crdtmem doctor --repair'"
    exit_status = 7
    http_status = 500

    def __init__(self, *, label: str, reason: str, kind: str = "slot") -> None:
        super().__init__(
            f"{kind} {label!r} is quarantined: {reason}",
            details={"label": label, "reason": reason},
        )


class SizeLimitError(SlotError):
    """The text would be longer than the slot allows.

    Args:
        label: The slot.
        size: Length that the text would have, in UTF-16 units.
        limit: The slot's sizeLimit, in UTF-16 units.
        is_append: Whether the text was to be appended; it decides the wording.
        current: The slot's headroom now, in its JSON form.

    """

    code = "size-limit-exceeded"
    exit_status = 5
    http_status = 413

    def __init__(
        self,
        *,
        label: str,
        size: int,
        limit: int,
        is_append: bool,
        current: Mapping[str, object],
    ) -> None:
        what = "append would exceed" if is_append else "text exceeds"
        # Only a slot that is due can be condensed.
        is_due = 100 * int(str(current.get("size", 0))) >= limit * CONDENSE_TRIGGER_PCT
        shorten = f"condense {label} --begin" if is_due else f"edit {label}"
        super().__init__(
            f"slot {label!r} is full: the {what} sizeLimit ({size} > {limit})",
            hint=f"shorten it with 'crdtmem {shorten}', or run"
            f" 'crdtmem meta {label} --size-limit {max(size, 2 * limit)}'",
            details={
                "label": label,
                "size": size,
                "currentSize": current.get("size", 0),
                "sizeLimit": limit,
                "current": dict(current),
            },
        )


class ConflictError(SlotError):
    """The slot has changed since the caller read it; nothing was written.

    Args:
        label: The slot.
        conflict: The Conflict, in its JSON form: reason, diff from the caller's base
            to now, who changed it, and the headroom now.

    """

    code = "conflict"
    exit_status = 4
    http_status = 409

    def __init__(self, *, label: str, conflict: Mapping[str, object]) -> None:
        super().__init__(
            f"slot changed since you read it: {label!r}",
            hint=f"run 'crdtmem get {label}' and repeat the change on that text,"
            " or pass the rev you read with --base-rev to merge",
            details=conflict,
        )
        self.conflict = dict(conflict)


class RevNotKeptError(SlotError, LookupError):
    """The text of that rev is no longer kept, or never was here.

    Args:
        label: The slot.
        rev: The rev that was asked for.
        oldest_rev: The oldest rev whose text is kept.
        current_rev: The rev now.
        reason: ``pruned``, ``ahead`` or ``recreated``.
        kind: What is meant, where it is no slot.

    """

    code = "rev-not-kept"
    exit_status = 4
    http_status = 409

    def __init__(
        self,
        *,
        label: str,
        rev: int,
        oldest_rev: int,
        current_rev: int,
        reason: str,
        kind: str = "slot",
    ) -> None:
        why = {
            "pruned": "it is no longer kept",
            "ahead": f"the {kind} is at rev {current_rev}",
            "recreated": f"the {kind} was deleted after it",
        }[reason]
        command = "get" if kind == "slot" else "set history"
        super().__init__(
            f"rev {rev} of {kind} {label!r} cannot be used: {why};"
            f" the oldest kept rev is {oldest_rev}",
            hint=f"run 'crdtmem {command} {label}' and work from the rev it shows",
            details={
                "label": label,
                "rev": rev,
                "oldestRev": oldest_rev,
                "currentRev": current_rev,
                "reason": reason,
            },
        )


class EditError(SlotError):
    """The text to be replaced is missing or stands in several places."""

    code = "text-not-found"
    exit_status = 4
    http_status = 409


class RequestIdReusedError(SlotError):
    """The request id already names another call; nothing was written.

    Args:
        request_id: The id.
        verb: The verb of the call that it names.

    """

    code = "request-id-reused"
    hint = "give each new write a request id of its own"
    exit_status = 4
    http_status = 409

    def __init__(self, *, request_id: str, verb: str) -> None:
        super().__init__(
            f"request id {request_id!r} was already used for another call ({verb})",
            details={"requestId": request_id, "verb": verb},
        )


class ImportRefusedError(SlotError):
    """The source cannot be imported as it is; nothing was written."""

    code = "import-refused"
    exit_status = 10
    http_status = 400


class HistoryError(CrdtmemError):
    """A kept write cannot be undone; nothing was written."""

    code = "history-not-undoable"
    exit_status = 4
    http_status = 409


class HistoryNotFoundError(HistoryError, LookupError):
    """No history entry of that id is kept for the slot.

    Args:
        label: The slot.
        id: The id that was asked for.
        kind: What is meant, where it is no slot.

    """

    code = "history-not-found"
    exit_status = 3
    http_status = 404

    def __init__(
        self,
        *,
        label: str,
        id: str,  # noqa: A002 - the public name
        kind: str = "slot",
    ) -> None:
        command = "log" if kind == "slot" else "set history"
        super().__init__(
            f"no history entry {id!r} of {kind} {label!r}",
            hint=f"run 'crdtmem {command} {label}' to see what is kept",
            details={"label": label, "id": id},
        )
