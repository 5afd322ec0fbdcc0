"""Errors of the documents that editors share."""

from crdtmem.errors.tree import CrdtmemError

__all__ = ["OtherIncarnationError"]


class OtherIncarnationError(CrdtmemError, LookupError):
    """The editors of a slot have begun a new document since this one was opened.

    Args:
        label: The slot.

    """

    code = "other-incarnation"
    hint = "open the slot in the editor again"
    http_status = 409

    def __init__(self, *, label: str) -> None:
        super().__init__(
            f"the editors of slot {label!r} share another document by now",
            details={"label": label},
        )
