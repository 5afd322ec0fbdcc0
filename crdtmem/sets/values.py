"""What the verbs of memory sets take and return: the JSON contract of every front end.

Frozen values without behaviour, as in ``crdtmem.models``.
"""

from collections.abc import Awaitable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol

from crdtmem.limits import COMPACTION_ARCHIVE_DAYS, COMPACTION_CAPACITY_ROWS
from crdtmem.model import UNSET, Model, Unset
from crdtmem.scope import Scope

__all__ = [
    "OBSERVED",
    "AddResult",
    "Binding",
    "CompactResult",
    "CompactionPolicy",
    "CompactionRequest",
    "DropResult",
    "Item",
    "ItemChange",
    "ItemConflict",
    "ItemDeleteResult",
    "ItemHistory",
    "ItemPage",
    "ItemUndoResult",
    "ItemValue",
    "Observation",
    "ObservedKind",
    "PartitionInfo",
    "SetHeadroom",
    "SetInfo",
    "SkippedSummary",
    "Summariser",
    "Summary",
    "UpdateResult",
]

ObservedKind = Literal["update", "get", "search"]

OBSERVED: tuple[ObservedKind, ...] = ("update", "get", "search")
"""All kinds of operations that leave records."""

_NO_METADATA: Mapping[str, object] = MappingProxyType({})


class _OfKey(Model):
    """What names a partition; its JSON form has no bytes, tuples and UUIDs."""

    # A PartitionKey, which is recursive: no schema could be made of it.
    partition_key: Any
    encoded_key: str

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form; what is no JSON in the key, as text or a list."""
        return {**super().to_dict(), "partitionKey": _json_key(self.partition_key)}


class Binding(_OfKey):
    """Where the handles made from it work, and what they record; never changes.

    Attributes:
        partition_key: As the caller gave it.
        encoded_key: Its long form; equal if and only if the keys are.
        namespace: The project's id, or ``global``.
        scope: Which of the two.
        observation_id: Under which records are kept; none are where it is empty.
        observation_suppressed: Keep none all the same.
        observe: The kinds of operations that leave records.

    """

    namespace: str
    scope: Scope
    observation_id: str = ""
    observation_suppressed: bool = False
    observe: frozenset[ObservedKind] = frozenset(OBSERVED)

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        return {**super().to_dict(), "observe": sorted(self.observe)}


class PartitionInfo(_OfKey):
    """A partition that has sets: how many, and items in all of them."""

    sets: int
    item_count: int


class SetHeadroom(Model):
    """How full a set is. Sizes are UTF-16 units of text and metadata.

    Attributes:
        item_count: Items it holds.
        item_limit: The most that local writes may make of it.
        size: Of all live versions.
        size_limit: The most that local writes may make of it.
        free: Units left, never negative; 0 where a merge took the set over a limit.
        pct_used: Whole percent of the limit that is nearest: items, size or state.
        rev: Counts the commits that changed the set in this store.
        set_hash: Equal on all replicas that saw the same writes.
        tombstones: Versions that are no more and take room for ever.
        warning: A sentence from 70 percent on.

    """

    item_count: int
    item_limit: int
    size: int
    size_limit: int
    free: int
    pct_used: int
    rev: int
    set_hash: str
    tombstones: int
    warning: str | Unset = UNSET


class ItemConflict(Model):
    """What another lane made of an item at the same time."""

    text: str
    metadata: Mapping[str, object]
    updated_at: str
    lane: str


class Item(Model):
    """A text with metadata.

    Attributes:
        rev: The set's, at the item's last change here.
        size: Of the text and the metadata that are shown.
        conflicts: Newest first; the next update, delete or compaction resolves them.
        sources: Of a summary: how many items it stands for.

    """

    id: str
    set: str
    text: str
    metadata: Mapping[str, object]
    created_at: str
    updated_at: str
    lane: str
    rev: int
    size: int
    conflicts: tuple[ItemConflict, ...] | Unset = UNSET
    sources: int | Unset = UNSET


class ItemPage(SetHeadroom):
    """Items, and where to go on.

    Attributes:
        missing: Ids that were asked for and are not there.
        cursor: Leads to the next page, where there is more.

    """

    items: tuple[Item, ...]
    more: bool
    missing: tuple[str, ...] | Unset = UNSET
    cursor: str | Unset = UNSET


class AddResult(SetHeadroom):
    """A set after items were added; their ids in the order of the items."""

    ids: tuple[str, ...]
    durable: bool
    request_id: str | Unset = UNSET
    replayed: bool | Unset = UNSET


class UpdateResult(SetHeadroom):
    """A set after an item was updated, or added under its id."""

    id: str
    changed: bool
    created: bool
    durable: bool
    request_id: str | Unset = UNSET
    replayed: bool | Unset = UNSET


class ItemDeleteResult(SetHeadroom):
    """A set after items were deleted; ``missing`` are the ids that were not there."""

    deleted: int
    missing: tuple[str, ...]
    durable: bool
    request_id: str | Unset = UNSET
    replayed: bool | Unset = UNSET


class DropResult(SetHeadroom):
    """A set that was dropped, with so many items, if it existed."""

    existed: bool
    deleted: int
    durable: bool
    request_id: str | Unset = UNSET
    replayed: bool | Unset = UNSET


class ItemValue(Model):
    """What an item was."""

    text: str
    metadata: Mapping[str, object]


class ItemChange(Model):
    """One change of one item; ``old`` or ``new`` is absent where the item was."""

    rev: int
    item_id: str
    operation: str
    lane: str
    at: str
    old: ItemValue | Unset = UNSET
    new: ItemValue | Unset = UNSET


class ItemHistory(Model):
    """Changes, newest first; from ``oldest_rev`` on none is missing."""

    entries: tuple[ItemChange, ...]
    more: bool
    oldest_rev: int


class ItemUndoResult(SetHeadroom):
    """A set after an undo: ids that got their old value, went, or were left alone."""

    restored: tuple[str, ...]
    removed: tuple[str, ...]
    kept: tuple[str, ...]
    request_id: str | Unset = UNSET
    replayed: bool | Unset = UNSET


class SkippedSummary(Model):
    """A summary that was not taken, by its place in the reply, from 0."""

    summary: int
    reason: str


class CompactResult(SetHeadroom):
    """A set after a compaction.

    Attributes:
        ran: Whether there was enough to summarise.
        added: Ids of the summaries.
        removed: How many items they stand for.
        skipped: Summaries of items that changed meanwhile.
        pass_id: Names the archive of the originals.

    """

    ran: bool
    added: tuple[str, ...]
    removed: int
    skipped: tuple[SkippedSummary, ...]
    pass_id: str | Unset = UNSET
    request_id: str | Unset = UNSET
    replayed: bool | Unset = UNSET


class SetInfo(SetHeadroom):
    """A set of a partition."""

    name: str
    created_at: str
    updated_at: str


class Observation(Model):
    """What an operation did, for whoever drains the records of an action.

    Attributes:
        op: ADD, UPDATE, DELETE, DELETE_SET, GET or SEARCH.
        set: The set's name.
        id: The item's, or None for a whole set or a search.
        query: Of a search.
        value: The text; of a search, its hits.
        version: Of this form.

    """

    op: str
    set: str
    id: str | None
    query: str | None
    value: object
    version: int = 1


class CompactionRequest(NamedTuple):
    """What a summariser is to summarise; the items oldest first."""

    items: tuple[Item, ...]
    limit: int
    prompt: str | None
    set_name: str


class Summary(NamedTuple):
    """A summary of some items: of all that were offered where no ids are given."""

    text: str
    source_ids: Sequence[str] | None = None
    metadata: Mapping[str, object] = _NO_METADATA


class Summariser(Protocol):
    """Makes summaries of items; may take minutes, and may raise."""

    def __call__(
        self, request: CompactionRequest, /
    ) -> Sequence[Summary] | Awaitable[Sequence[Summary]]:
        """Return 1 to ``request.limit`` summaries; awaited in ``crdtmem.aio`` alone."""


class CompactionPolicy(NamedTuple):
    """How a set is compacted.

    Attributes:
        summarise: What makes the summaries.
        capacity: The least number of items in the set for it to run.
        limit: Most summaries, 1 to 100.
        prompt: For the summariser.
        keep_newest: Items left alone, of those that match.
        filters: Which items are offered; None for all.
        archive_days: How long the originals are kept; never less than 90 days, or what
            the policy of the set's newest compaction says.

    """

    summarise: Summariser
    capacity: int = COMPACTION_CAPACITY_ROWS
    limit: int = 1
    prompt: str | None = None
    keep_newest: int = 0
    filters: Mapping[str, object] | None = None
    archive_days: int = COMPACTION_ARCHIVE_DAYS


def _json_key(key: object) -> object:
    if isinstance(key, (tuple, list)):
        return [_json_key(element) for element in key]
    if isinstance(key, bytes):
        return key.hex()
    is_json = isinstance(key, (str, int, float))
    return key if is_json else str(key)
