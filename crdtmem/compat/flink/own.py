"""What stands for flink-agents' classes where that package is not installed.

Fields, verbs and defaults are those of its release 0.3.1; pydantic is not needed.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from crdtmem.errors import UnboundError

__all__ = ["BaseLongTermMemory", "MemorySet", "MemorySetItem"]

Metadata = Mapping[str, Any]


@dataclass(kw_only=True)
class MemorySetItem:
    """An item as it is shown.

    Attributes:
        memory_set_name: The set that it is in.
        id: Its id.
        value: Its text.
        created_at: When it was added.
        updated_at: When it was last changed.
        additional_metadata: Its metadata, or None where it has none.

    """

    memory_set_name: str
    id: str
    value: str
    created_at: datetime | None = None
    updated_at: datetime | None = None
    additional_metadata: dict[str, Any] | None = None


@dataclass(kw_only=True)
class MemorySet:
    """A named set of items, with the verbs of the memory that it came from.

    Attributes:
        name: Its name.
        ltm: The memory; without one every verb raises UnboundError.

    """

    name: str
    ltm: "BaseLongTermMemory | None" = field(default=None, repr=False)

    def add(
        self,
        items: str | Sequence[str],
        metadatas: Metadata | Sequence[Metadata] | None = None,
    ) -> list[str]:
        """Add items; return their ids. See `BaseLongTermMemory.add`."""
        return self._memory.add(
            memory_set=self, memory_items=items, metadatas=metadatas
        )

    def get(
        self,
        ids: str | Sequence[str] | None = None,
        filters: Metadata | None = None,
        limit: int = 100,
    ) -> list[MemorySetItem]:
        """Return items. See `BaseLongTermMemory.get`."""
        return self._memory.get(memory_set=self, ids=ids, filters=filters, limit=limit)

    def search(
        self,
        query: str,
        limit: int,
        filters: Metadata | None = None,
        **kwargs: Any,
    ) -> list[MemorySetItem]:
        """Return the items that match. See `BaseLongTermMemory.search`."""
        return self._memory.search(
            memory_set=self, query=query, limit=limit, filters=filters, **kwargs
        )

    def delete(self, ids: str | Sequence[str] | None = None) -> None:
        """Delete items, all where no id is given. See `BaseLongTermMemory.delete`."""
        self._memory.delete(memory_set=self, ids=ids)

    @property
    def _memory(self) -> "BaseLongTermMemory":
        if self.ltm is None:
            raise UnboundError(name=self.name)
        return self.ltm


class BaseLongTermMemory(ABC):
    """What an agent may ask of a long-term memory; `CrdtLongTermMemory` says how."""

    @abstractmethod
    def get_memory_set(self, name: str) -> MemorySet:
        """Return a set; it exists from its first item on."""

    @abstractmethod
    def delete_memory_set(self, name: str) -> bool:
        """Delete a set with all its items; return whether it was there."""

    @abstractmethod
    def add(
        self,
        memory_set: MemorySet,
        memory_items: str | Sequence[str],
        metadatas: Metadata | Sequence[Metadata] | None = None,
    ) -> list[str]:
        """Add items to a set; return their ids in that order."""

    @abstractmethod
    def get(
        self,
        memory_set: MemorySet,
        ids: str | Sequence[str] | None = None,
        filters: Metadata | None = None,
        limit: int = 100,
    ) -> list[MemorySetItem]:
        """Return items: those of some ids, or the newest that pass the filters."""

    @abstractmethod
    def delete(
        self, memory_set: MemorySet, ids: str | Sequence[str] | None = None
    ) -> None:
        """Delete the items of some ids, or all items."""

    @abstractmethod
    def search(
        self,
        memory_set: MemorySet,
        query: str,
        limit: int,
        filters: Metadata | None = None,
        **kwargs: Any,
    ) -> list[MemorySetItem]:
        """Return the items that match a query, the best first."""

    @abstractmethod
    def close(self) -> None:
        """End the use of this memory."""
