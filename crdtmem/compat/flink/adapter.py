"""A long-term memory of flink-agents over a Memory.

The runtime switches one object from key to key, in one thread, while what actions have
begun runs on in others. So nothing here reads the current key but the verbs that the
runtime's thread may use alone: a set carries its own from the moment it was made.
"""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from crdtmem.compat.flink.binding import Context, bound_items, bound_set, context_of
from crdtmem.compat.flink.classes import BaseLongTermMemory, MemorySet, MemorySetItem
from crdtmem.errors import (
    CrdtmemError,
    InvalidArgumentError,
    StoreClosedError,
    UnboundError,
)
from crdtmem.sets import no_owner_check, owner_thread
from crdtmem.sets.values import Item

if TYPE_CHECKING:
    from crdtmem.memory import Memory
    from crdtmem.sets.binding import BoundMemory, OwnerCheck
    from crdtmem.sets.memory_set import MemorySet as Items
    from crdtmem.sets.values import CompactionPolicy, ObservedKind

__all__ = ["CrdtLongTermMemory"]

logger = logging.getLogger(__name__)

Metadata = Mapping[str, Any]

_SEARCH_OPTIONS = frozenset({"mode", "semantic", "sort"})


class CrdtLongTermMemory(BaseLongTermMemory):
    """The memory sets of a job: one partition for each key of its stream.

    ``get_memory_set``, ``delete_memory_set`` and ``switch_context`` are for the thread
    that made it, or for whom ``owner`` lets pass. ``add``, ``get``, ``search`` and
    ``delete`` run in any thread, and work on the key under which their set was got.
    A set that was got before the first ``switch_context``, made by hand or read from
    JSON or pickle is bound to no key: they refuse it and touch nothing.

    Args:
        memory: Where the sets are; stays the caller's, who closes it.
        job_id: Outermost part of every key; jobs of other ids see nothing of these.
        owner: Raises where sets must not be managed; None for the present thread.
        set_type: Class of the sets it makes; None for that of flink-agents.
        compaction: What compacts a set after an ``add`` that fills it to capacity.

    Raises:
        InvalidArgumentError: If job_id is empty or no string.

    """

    # pydantic takes these for private attributes: not fields, and in no JSON.
    _memory: "Memory"
    _job_id: str
    _owner: "OwnerCheck"
    _set_type: type[MemorySet]
    _compaction: "CompactionPolicy | None"
    _observe: "frozenset[ObservedKind]"
    _current: "tuple[Context, BoundMemory] | None"
    _is_closed: bool

    def __init__(
        self,
        memory: "Memory",
        job_id: str,
        *,
        owner: "OwnerCheck | None" = None,
        set_type: type[MemorySet] | None = None,
        compaction: "CompactionPolicy | None" = None,
    ) -> None:
        super().__init__()
        if type(job_id) is not str or job_id == "":
            raise InvalidArgumentError(
                "job_id", f"job_id must be a string that is not empty, not {job_id!r}"
            )
        self._memory = memory
        self._job_id = job_id
        self._owner = owner or owner_thread()
        self._set_type = set_type or MemorySet
        self._compaction = compaction
        self._observe = frozenset()
        self._current = None
        self._is_closed = False

    # -- what the runtime calls

    def configure_observation(
        self,
        *,
        update_observation_enabled: bool,
        get_observation_enabled: bool,
        search_observation_enabled: bool,
    ) -> None:
        """Say which operations leave records; at first none does.

        Holds for the sets that are got from now on.
        """
        self._check_owner()
        enabled: dict[ObservedKind, bool] = {
            "update": update_observation_enabled,
            "get": get_observation_enabled,
            "search": search_observation_enabled,
        }
        self._observe = frozenset(kind for kind, is_on in enabled.items() if is_on)
        if self._current is not None:
            self._switch(self._current[0])

    def switch_context(
        self,
        key: Any,
        *,
        observation_id: str = "",
        observation_suppressed: bool = False,
    ) -> None:
        """Make a key the one under which sets are got; sets got before keep theirs.

        Args:
            key: Any partition key, ``""`` included.
            observation_id: Under which the records of the action are drained.
            observation_suppressed: Whether it leaves none.

        Raises:
            InvalidArgumentError: If key is no partition key; then none is current.

        """
        self._check_owner()
        # First: an action must not go on under the key of the one before.
        self._current = None
        self._switch(Context(key, observation_id, observation_suppressed))

    def drain_ltm_observation_records(self, key: Any, observation_id: str) -> str:
        """Return, and forget, the records of an action, as a JSON array."""
        self._check_open()
        records = self._memory.drain_observations((self._job_id, key), observation_id)
        found = [record.to_dict() for record in records]
        return json.dumps(found, ensure_ascii=False, allow_nan=False)

    # -- sets

    def get_memory_set(self, name: str) -> MemorySet:
        """Return a set of the current key; it exists from its first item on.

        Raises:
            OwnerThreadError: If this is not the owner's thread.

        """
        self._check_owner()
        if self._current is None:
            return self._set_type(name=name, ltm=self)
        context, bound = self._current
        return bound_set(self._set_type, self, bound.memory_set(name), context)

    def delete_memory_set(self, name: str) -> bool:
        """Delete a set of the current key; return whether it was there.

        Raises:
            OwnerThreadError: If this is not the owner's thread.
            UnboundError: If no key is current.

        """
        self._check_owner()
        if self._current is None:
            raise UnboundError(name=name)
        return self._current[1].drop_memory_set(name)

    # -- items, from any thread

    def add(
        self,
        memory_set: MemorySet,
        memory_items: str | Sequence[str],
        metadatas: Metadata | Sequence[Metadata] | None = None,
    ) -> list[str]:
        """Add texts to a set, all or none; return their ids in that order.

        Args:
            memory_set: The set.
            memory_items: A text, or several; equal ones are items of their own.
            metadatas: For each text one mapping, or one for all of them.

        Raises:
            UnboundError: If the set is bound to no key.
            InvalidArgumentError: If there are not as many mappings as texts.
            SetLimitError: If a text, or the set, would be too large.

        """
        items = self._items_of(memory_set)
        result = items.add(memory_items, metadatas)
        if self._compaction and result.item_count >= self._compaction.capacity:
            self._compact(items, self._compaction)
        return list(result.ids)

    def get(
        self,
        memory_set: MemorySet,
        ids: str | Sequence[str] | None = None,
        filters: Metadata | None = None,
        limit: int = 100,
    ) -> list[MemorySetItem]:
        """Return the items of some ids, or the newest that pass the filters.

        Args:
            memory_set: The set.
            ids: Which; those that are not there are left out, filters and limit do
                not count.
            filters: As for `crdtmem.sets`; only ever narrow.
            limit: Most items.

        Raises:
            UnboundError: If the set is bound to no key.

        """
        items = self._items_of(memory_set)
        page = items.get(ids) if ids is not None else items.get(None, filters, limit)
        return _shown(page.items)

    def search(
        self,
        memory_set: MemorySet,
        query: str,
        limit: int,
        filters: Metadata | None = None,
        **kwargs: Any,
    ) -> list[MemorySetItem]:
        """Return the items that match a query, the best first.

        Args:
            memory_set: The set.
            query: Words, phrases, prefixes and exclusions; without a word: no items.
            limit: Most items.
            filters: As for `get`.
            **kwargs: ``mode``, ``sort`` and ``semantic``, as for `crdtmem.sets`.

        Raises:
            UnboundError: If the set is bound to no key.
            InvalidArgumentError: If there is another argument.

        """
        items = self._items_of(memory_set)
        if unknown := sorted(kwargs.keys() - _SEARCH_OPTIONS):
            raise InvalidArgumentError(
                unknown[0],
                f"search takes {', '.join(sorted(_SEARCH_OPTIONS))},"
                f" not {', '.join(unknown)}",
            )
        try:
            result = items.search(query, limit, filters, **kwargs)
        except InvalidArgumentError as exc:
            if exc.code != "empty-query":
                raise
            return []
        found = (hit.item for hit in result.hits)
        return _shown(item for item in found if isinstance(item, Item))

    def delete(
        self, memory_set: MemorySet, ids: str | Sequence[str] | None = None
    ) -> None:
        """Delete the items of some ids, or all; ids that are not there do nothing.

        Raises:
            UnboundError: If the set is bound to no key.

        """
        self._items_of(memory_set).delete(ids)

    def close(self) -> None:
        """End the use of this object, not of the Memory; idempotent."""
        self._is_closed = True

    # -- within

    def _items_of(self, memory_set: MemorySet) -> "Items":
        """Return what an operation on a set works on.

        Raises:
            UnboundError: If the set is bound to nothing.
            InvalidArgumentError: If it is another memory's.

        """
        self._check_open()
        if memory_set.ltm is not None and memory_set.ltm is not self:
            raise InvalidArgumentError(
                "memory_set",
                f"memory set {memory_set.name!r} was got from another long-term memory",
            )
        items = bound_items(memory_set)
        if items is not None:
            return items
        context = context_of(memory_set)
        if context is None:
            raise UnboundError(name=memory_set.name)
        # Whoever rebuilt it may work in any thread, as with a set that was got here.
        return self._bound(context, no_owner_check).memory_set(memory_set.name)

    def _switch(self, context: Context) -> None:
        # In one step: no set is ever made of half a context.
        self._current = (context, self._bound(context, self._owner))

    def _bound(self, context: Context, owner: "OwnerCheck") -> "BoundMemory":
        return self._memory.bind(
            partition_key=(self._job_id, context.partition_key),
            observation_id=context.observation_id,
            observation_suppressed=context.observation_suppressed,
            observe=self._observe,
            owner=owner,
        )

    def _compact(self, items: "Items", policy: "CompactionPolicy") -> None:
        try:
            items.compact(policy)
        except CrdtmemError as exc:
            # What was added is kept, and must not be added again.
            logger.warning(
                "memory set %r was not compacted (%s); the next add tries again",
                items.name,
                exc.code,
            )

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreClosedError(path=str(self._memory.path))

    def _check_owner(self) -> None:
        self._check_open()
        self._owner()


def _shown(items: Iterable[Item]) -> list[MemorySetItem]:
    return [
        MemorySetItem(
            memory_set_name=item.set,
            id=item.id,
            value=item.text,
            created_at=datetime.fromisoformat(item.created_at),
            updated_at=datetime.fromisoformat(item.updated_at),
            additional_metadata=dict(item.metadata) or None,
        )
        for item in items
    ]
