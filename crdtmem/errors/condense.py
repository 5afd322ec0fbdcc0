"""Errors of condense: no pass was begun, or there is none; nothing was written."""

from collections.abc import Mapping

from crdtmem.errors.slots import SlotError
from crdtmem.errors.tree import CrdtmemError

__all__ = ["CondensePassUnknownError", "CondenseSkippedError"]

_WHY = {
    "archive-failed": "what it would take out cannot be stored",
    "backoff": "the last attempts failed",
    "condense-busy": "another pass is open",
    "not-due": "it is neither full nor long enough",
    "not-smaller-backoff": "it has hardly grown since a pass made it no smaller",
    "nothing-to-evict": "all of it is new, pinned or condensed already",
    "source-encoding-invalid": "its mirrored file cannot be read as UTF-8",
}


class CondenseSkippedError(SlotError):
    """No pass was begun, and the slot is as it was.

    Args:
        label: The slot.
        code: Why: ``not-due``, ``nothing-to-evict``, ``not-smaller-backoff``,
            ``backoff``, ``condense-busy``, ``archive-failed`` or
            ``source-encoding-invalid``.
        detail: More about it.
        retry_at: When it may be tried again, ISO 8601, UTC; empty if not by time.
        more: More values for the details, by their JSON names.

    """

    code = "not-due"
    exit_status = 4
    http_status = 409

    def __init__(
        self,
        *,
        label: str,
        code: str,
        detail: str = "",
        retry_at: str = "",
        more: Mapping[str, object] | None = None,
    ) -> None:
        why = f"{_WHY[code]} ({detail})" if detail else _WHY[code]
        until = f"; try again at {retry_at}" if retry_at else ""
        super().__init__(
            f"slot {label!r} is not condensed: {why}{until}",
            code=code,
            hint=_hint(code, label),
            details={"label": label, "retryAt": retry_at or None, **(more or {})},
        )
        self.label = label
        self.detail = detail
        self.retry_at = retry_at


class CondensePassUnknownError(CrdtmemError, LookupError):
    """No pass of that id is known for the slot.

    Args:
        pass_id: The id that was given.
        label: The slot, where it was named.

    """

    code = "condense-pass-unknown"
    hint = "run 'crdtmem condense passes' to see the passes there are"
    exit_status = 3
    http_status = 404

    def __init__(self, *, pass_id: str, label: str | None = None) -> None:
        where = f" of slot {label!r}" if label else ""
        super().__init__(
            f"no condense pass {pass_id!r}{where}",
            details={"passId": pass_id, "label": label},
        )


def _hint(code: str, label: str) -> str:
    if code in ("not-due", "backoff", "not-smaller-backoff"):
        return f"run 'crdtmem condense {label} --begin --force' to do it all the same"
    if code == "condense-busy":
        return "run 'crdtmem condense passes' to see it, and '--abort' to end it"
    if code == "source-encoding-invalid":
        return "run 'crdtmem mirror status' to see the file, and mend it"
    return ""
