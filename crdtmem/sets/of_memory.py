"""What a Memory offers of memory sets, and the search of all it sees.

A part of ``crdtmem.memory``, which inherits it. What these verbs need is loaded when
they are called, like the rest of what a plain read does without.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from crdtmem.limits import (
    INDEX_ROWS,
    INDEX_VECTORS_ROWS,
    SEARCH_ROWS,
    SEARCH_SNIPPET_UNITS,
    SETS_ROWS,
)
from crdtmem.models import UNSET, Scope, Unset
from crdtmem.session import Session

if TYPE_CHECKING:
    from crdtmem.partition import PartitionKey
    from crdtmem.search.values import IndexReport, Kind, Mode, SearchResult, Sort
    from crdtmem.sets.binding import BoundMemory, OwnerCheck
    from crdtmem.sets.values import Observation, ObservedKind, PartitionInfo

__all__ = ["SetVerbs"]


class SetVerbs:
    """The verbs of a Memory that lead to memory sets."""

    _session: Session

    def bind(
        self,
        *,
        partition_key: "PartitionKey",
        observation_id: str = "",
        observation_suppressed: bool = False,
        scope: Scope = "project",
        observe: "Collection[ObservedKind]" = ("update", "get", "search"),
        owner: "OwnerCheck | None" = None,
    ) -> "BoundMemory":
        """Return the memory sets of one partition key.

        The binding never changes and is carried by every handle made from it: no later
        ``bind``, no argument, filter or metadata makes a handle work elsewhere.

        Args:
            partition_key: Whose sets; "" is a key like any other, None is none. A tuple
                holds several names, such as those of a job and of a user.
            observation_id: Under which the operations of its handles are recorded,
                for ``drain_observations``; "" for no records.
            observation_suppressed: Record nothing all the same.
            scope: In the project, or for all projects.
            observe: Which kinds of operations are recorded.
            owner: Returns where sets may be managed, and raises elsewhere; by default
                only this thread may. See ``crdtmem.sets``.

        Raises:
            InvalidArgumentError: ``invalid-partition-key``, ``invalid-scope``, or
                ``invalid-argument``.

        """
        from crdtmem.sets.binding import bind  # noqa: PLC0415 - see the module

        return bind(
            self._session,
            partition_key=partition_key,
            observation_id=observation_id,
            observation_suppressed=observation_suppressed,
            scope=scope,
            observe=observe,
            owner=owner,
        )

    def partitions(
        self,
        scope: Scope = "project",
        *,
        prefix: "tuple[PartitionKey, ...]" = (),
        limit: int = SETS_ROWS,
    ) -> "list[PartitionInfo]":
        """Return the keys that have sets, with counts, and no items.

        Args:
            scope: Of the project, or of all projects.
            prefix: Only keys that are tuples and begin with these elements.
            limit: How many, 1 to 20,000.

        Raises:
            InvalidArgumentError: If an argument is malformed.

        """
        from crdtmem.sets.reading import partition_infos  # noqa: PLC0415 - see the module

        return partition_infos(self._session, scope, prefix, limit)

    def search(
        self,
        query: str,
        *,
        kinds: "Sequence[Kind]" = ("slot",),
        label: str | None = None,
        scope: Scope | None = None,
        limit: int = SEARCH_ROWS,
        mode: "Mode" = "auto",
        sort: "Sort" = "relevance",
        semantic: bool | Unset = UNSET,
        snippet: int = SEARCH_SNIPPET_UNITS,
    ) -> "SearchResult":
        """Return the parts of slots that match a query, the best first; never items.

        Args:
            query: Words, ``"phrases"``, ``prefixes*``, ``-exclusions``, ``a OR b``.
            kinds: ``slot``; ``history`` and ``archive``, which are of one slot.
            label: Only this slot.
            scope: Only slots of this scope; a global one that a project's hides is
                seen with ``global`` only.
            limit: How many, 1 to 1,000.
            mode: With all the words, with any, or first the ones and then the others.
            sort: By relevance, or the newest first.
            semantic: For an embedder to come; True is refused (``no-embedder``).
            snippet: Length of what a hit shows, 20 to 300 UTF-16 units.

        Raises:
            InvalidArgumentError: If an argument is malformed; ``empty-query``.
            SlotNotFoundError: If the slot of a history or an archive is not there.

        """
        from crdtmem.search.searching import search_slots  # noqa: PLC0415 - see the module

        return search_slots(
            self._session,
            query,
            kinds=kinds,
            label=label,
            scope=scope,
            limit=limit,
            mode=mode,
            sort=sort,
            semantic=semantic,
            snippet=snippet,
        )

    def index(
        self, *, rows: int = INDEX_ROWS, vectors: int = INDEX_VECTORS_ROWS
    ) -> "IndexReport":
        """Bring the search index up to date, as after an import.

        No search needs it: texts that are not indexed yet are looked at themselves.

        Args:
            rows: How many texts to index at most.
            vectors: For an embedder to come; nothing is embedded yet.

        Raises:
            InvalidArgumentError: If an argument is malformed.
            StoreError: If the lock was not had in time, or the store is for reading.

        """
        from crdtmem.search.searching import index_texts  # noqa: PLC0415 - see the module

        return index_texts(self._session, rows, vectors)

    def drain_observations(
        self,
        partition_key: "PartitionKey",
        observation_id: str,
        *,
        scope: Scope = "project",
    ) -> "list[Observation]":
        """Return the records of one key and id, and forget them.

        Raises:
            InvalidArgumentError: If an argument is malformed.

        """
        from crdtmem.sets.binding import bind, no_owner_check  # noqa: PLC0415 - see the module

        bound = bind(
            self._session,
            partition_key=partition_key,
            observation_id=observation_id,
            observation_suppressed=True,
            scope=scope,
            owner=no_owner_check,
        )
        return bound.drain_observations()
