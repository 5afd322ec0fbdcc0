"""Errors of memory sets: refused, and nothing was written."""

from collections.abc import Mapping

from crdtmem.errors.tree import CrdtmemError

__all__ = [
    "EmbeddingError",
    "ItemConflictError",
    "ItemNotFoundError",
    "OwnerThreadError",
    "SetError",
    "SetLimitError",
    "SummaryError",
    "UnboundError",
]


class SetError(CrdtmemError):
    """The memory set refused a read or a write; nothing was written."""

    code = "set-error"


class UnboundError(SetError, ValueError):
    """The handle of a set was made without a binding; nothing was read.

    Args:
        name: The set.

    """

    code = "not-bound"
    hint = "get the set from Memory.bind(partition_key=...).memory_set(name)"
    exit_status = 2
    http_status = 400

    def __init__(self, *, name: str) -> None:
        super().__init__(
            f"memory set {name!r} is not bound to a partition key",
            details={"set": name},
        )


class OwnerThreadError(SetError, RuntimeError):
    """Sets are managed by their binding's owner only; nothing was done.

    Args:
        owner: What owns the binding: a thread, or a task.

    """

    code = "not-owner-thread"
    hint = "manage sets where bind() was called; items may be used anywhere"
    exit_status = 2
    http_status = 400

    def __init__(self, *, owner: str = "thread") -> None:
        super().__init__(
            "sets are managed in the owner thread of their binding only"
            if owner == "thread"
            else "sets are managed in the owner thread and task of their binding only",
            details={"owner": owner},
        )


class ItemNotFoundError(SetError, LookupError):
    """The set holds no item of that id under this key, wherever else there is one.

    Args:
        set_name: The set.
        id: The id that was asked for.

    """

    code = "item-not-found"
    hint = "run 'crdtmem set get' with its name to see the items there are"
    exit_status = 3
    http_status = 404

    def __init__(self, *, set_name: str, id: str) -> None:  # noqa: A002 - the public name
        super().__init__(
            f"no item {id!r} in memory set {set_name!r}",
            details={"set": set_name, "id": id},
        )


class ItemConflictError(SetError):
    """What is there now is not what the caller took for granted.

    Its codes: ``item-exists`` (a given id is live, or stands twice in the call),
    ``item-conflict`` (the item's rev is another; the item is in the details),
    ``compaction-busy`` (another compaction of the set is running) and
    ``partition-key-collision`` (another key has the same short form).
    """

    code = "item-conflict"
    exit_status = 4
    http_status = 409


class SetLimitError(SetError):
    """A text, its metadata, a set or a namespace would be larger than it may be.

    Args:
        code: ``item-too-large``, ``metadata-too-large``, ``set-full`` or
            ``too-many-sets``.
        what: What would be too large, as the sentence begins.
        size: How large it would be.
        limit: How large it may be.
        unit: What is counted.
        details: More values, such as ``reason``.

    """

    code = "set-full"
    exit_status = 5
    http_status = 413

    def __init__(
        self,
        *,
        code: str,
        what: str,
        size: int,
        limit: int,
        unit: str,
        details: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(
            f"{what} is too large ({size} > {limit} {unit})",
            code=code,
            hint=_LIMIT_HINTS[code],
            details={"size": size, "limit": limit, "unit": unit, **(details or {})},
        )


class SummaryError(SetError):
    """A summariser failed, or its summaries cannot be used.

    Its codes: ``summariser-failed`` (its error is the cause) and
    ``summary-invalid``.
    """

    code = "summary-invalid"
    exit_status = 2
    http_status = 400


class EmbeddingError(SetError):
    """An embedder is missing, or what it gave are no vectors; nothing was stored.

    Its codes: ``bad-embedding`` and ``no-embedder``.
    """

    code = "bad-embedding"
    exit_status = 2
    http_status = 400


_LIMIT_HINTS = {
    "item-too-large": "split the text into several items",
    "metadata-too-large": "keep metadata short; long text belongs into the item",
    "set-full": "delete or compact items, or use another set",
    "too-many-sets": "drop sets that are not needed, or put items into fewer sets",
}
