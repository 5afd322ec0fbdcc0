"""The rows that the store's modules hand each other."""

import json
from typing import NamedTuple

__all__ = [
    "PLACE_BITS",
    "AuditRow",
    "EntryRow",
    "LogRow",
    "SlotRow",
    "read_targets",
]

PLACE_BITS = 40
"""A history row's key is ``doc << 40 | lsn``: one clustered tree for all slots."""


class SlotRow(NamedTuple):
    """A slot as materialised; times in milliseconds, sizes in UTF-16 units.

    ``file`` is the text file, ``hash`` the 64 hex digits of its view; ``lsn`` the
    newest step of its doc, with the operation and the lane of that step.
    """

    doc: int
    namespace: str
    label: str
    file: str
    rev: int
    hash: str
    size: int
    size_limit: int
    description: str
    pinned: int
    read_only: int
    append_only: int
    deleted: int
    created_ms: int
    updated_ms: int
    lsn: int
    operation: str
    lane: str
    quarantined: str | None

    @property
    def is_deleted(self) -> bool:
        """Whether the mark is set and the text is empty: a function of the doc."""
        return bool(self.deleted) and self.file in ("", "\n")


class LogRow(NamedTuple):
    """A write in the log.

    ``delta`` is the change it made to the text here, as ``doc.delta`` encodes it,
    ``undoes`` the lsns of the writes that it took back, as JSON, or None, and ``note``
    what it tells other stores besides, as JSON, or None.
    """

    lsn: int
    doc: int
    replica: bytes
    replica_seq: int | None
    place: int | None
    is_genesis: int
    lane: str
    at_ms: int
    operation: str
    content: bytes
    delta: str
    undoes: str | None
    digest: bytes
    note: str | None = None


class EntryRow(NamedTuple):
    """A history entry: the text before a commit, and what became of the commit.

    ``first_lsn`` is the first step of the commit and the low bits of ``place`` its
    last. ``undone_by``, ``undoes`` and ``living`` are places of other entries: of the
    undo that took it back, of what it took back, and of the redo that holds it now.
    """

    place: int
    first_lsn: int
    mark: str
    at_ms: int
    operation: str
    lane: str
    rev: int
    file: str
    hash: str
    size: int
    is_imported: int
    undone_by: int | None
    undoes: int | None
    living: int | None

    @property
    def lsn(self) -> int:
        """The last step of the commit."""
        return self.place & ((1 << PLACE_BITS) - 1)

    @property
    def id(self) -> str:
        """The public id: unique in the store for ever, and no other store's."""
        return f"h{self.lsn}-{self.mark}"


class AuditRow(NamedTuple):
    """One change without its text; ``lanes`` is a JSON array."""

    lsn: int
    doc: int
    at_ms: int
    replica: bytes
    lanes: str
    operation: str
    rev_before: int
    rev: int
    size_before: int
    size: int
    details: str


def read_targets(undoes: str | None) -> frozenset[int] | None:
    """Return the steps that a write took back, from their column; None for no undo."""
    return None if undoes is None else frozenset(json.loads(undoes))
