"""A memory bound to one partition key: makes the handles of its sets."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from crdtmem.arguments import checked_bool, checked_count
from crdtmem.errors import InvalidArgumentError, StoreClosedError
from crdtmem.limits import SEARCH_ROWS, SEARCH_SNIPPET_UNITS, SETS_MAX, SETS_ROWS
from crdtmem.model import UNSET, Unset
from crdtmem.partition import encode_key
from crdtmem.scope import Scope, namespace_of, parse_scope
from crdtmem.session import Session
from crdtmem.sets.arguments import checked_observation_id, checked_observe
from crdtmem.sets.memory_set import MemorySet
from crdtmem.sets.observing import ObservedPlace, observations_of
from crdtmem.sets.owners import OwnerCheck, no_owner_check, owner_task, owner_thread
from crdtmem.sets.values import OBSERVED, Binding, Observation, ObservedKind, SetInfo

if TYPE_CHECKING:
    from crdtmem.search.values import SearchResult

__all__ = [
    "BoundMemory",
    "OwnerCheck",
    "bind",
    "drain",
    "no_owner_check",
    "owner_task",
    "owner_thread",
]


class BoundMemory:
    """The sets of one partition key, as one binding uses them.

    Made by ``Memory.bind``. Its verbs but ``search`` and ``drain_observations`` are
    *management*: they are for the binding's owner only.

    Attributes:
        binding: Where it works; never changes.

    """

    __slots__ = ("_owner", "_session", "binding")

    def __init__(self, session: Session, binding: Binding, owner: OwnerCheck) -> None:
        self.binding = binding
        self._session = session
        self._owner = owner

    def __repr__(self) -> str:
        binding = self.binding
        return f"BoundMemory({binding.namespace!r}, {binding.partition_key!r})"

    def memory_set(self, name: str) -> MemorySet:
        """Return a handle on a set. Nothing is read or made: a set begins with a write.

        Args:
            name: 1 to 256 bytes of UTF-8 without control characters.

        Raises:
            OwnerThreadError: If this is not the owner; another check's own error.
            InvalidArgumentError: ``invalid-name``.

        """
        self._require_owner()
        return MemorySet.bound(self._session, self.binding, name, self._owner)

    def memory_sets(self, *, limit: int = SETS_ROWS) -> list[SetInfo]:
        """Return the sets of this key, by name.

        Args:
            limit: How many, 1 to 20,000.

        Raises:
            OwnerThreadError: If this is not the owner; another check's own error.
            InvalidArgumentError: If the limit is out of its bounds.

        """
        from crdtmem.sets.reading import set_infos  # noqa: PLC0415 - see Memory

        self._require_owner()
        limit = checked_count(limit, "limit", SETS_MAX)
        return set_infos(self._session, self.binding, limit)

    def drop_memory_set(self, name: str) -> bool:
        """Delete a set with all its items; tell whether it existed.

        What was there can be brought back by undo, and a later write, here or merged,
        brings the set back by itself.

        Raises:
            OwnerThreadError: If this is not the owner; another check's own error.
            InvalidArgumentError: ``invalid-name``.

        """
        return self.memory_set(name).drop().existed

    def search(
        self,
        query: str,
        *,
        sets: Sequence[str] | None = None,
        slots: bool = False,
        limit: int = SEARCH_ROWS,
        filters: Mapping[str, Any] | None = None,
        mode: Literal["auto", "all", "any"] = "auto",
        sort: Literal["relevance", "recent"] = "relevance",
        semantic: bool | Unset = UNSET,
        snippet: int = SEARCH_SNIPPET_UNITS,
    ) -> "SearchResult":
        """Return the items of this key's sets that match a query, the best first.

        Args:
            query: Words, ``"phrases"``, ``prefixes*``, ``-exclusions``, ``a OR b``.
            sets: Only these sets; [] for none.
            slots: Also the slots of the namespace; not with filters.
            limit: How many, 1 to 1,000.
            filters: Which items count at all.
            mode: With all the words, with any, or first the ones and then the others.
            sort: By relevance, or the newest first.
            semantic: For an embedder to come; True is refused (``no-embedder``).
            snippet: Length of what a hit shows, 20 to 300 UTF-16 units.

        Raises:
            InvalidArgumentError: If an argument is malformed; ``empty-query``.

        """
        from crdtmem.search.searching import search_items  # noqa: PLC0415 - see Memory

        self._require_open()
        return search_items(
            self._session,
            self.binding,
            query,
            sets=sets,
            slots=slots,
            limit=limit,
            filters=filters,
            mode=mode,
            sort=sort,
            semantic=semantic,
            snippet=snippet,
        )

    def drain_observations(self) -> list[Observation]:
        """Return the records of this binding's key and id, and forget them.

        They are those of all handles with that key and id, in the order in which the
        operations ended.
        """
        self._require_open()
        return drain(
            self._session,
            self.binding.namespace,
            self.binding.encoded_key,
            self.binding.observation_id,
        )

    def _require_open(self) -> None:
        store = self._session.store
        if store.is_closed:
            raise StoreClosedError(path=str(store.path))

    def _require_owner(self) -> None:
        self._require_open()
        self._owner()


def bind(
    session: Session,
    *,
    partition_key: object,
    observation_id: str,
    observation_suppressed: bool,
    scope: Scope,
    observe: Collection[ObservedKind] = OBSERVED,
    owner: OwnerCheck | None,
) -> BoundMemory:
    """Return the memory of one key; see ``Memory.bind``."""
    if session.store.is_closed:
        raise StoreClosedError(path=str(session.store.path))
    encoded = encode_key(partition_key)
    where = parse_scope(scope, optional=True) or "project"
    if owner is not None and not callable(owner):
        kind = type(owner).__name__
        message = f"owner must be a function or None, not a value of type {kind}"
        raise InvalidArgumentError("owner", message)
    binding = Binding(
        partition_key=partition_key,
        encoded_key=encoded,
        namespace=namespace_of(where, session.project),
        scope=where,
        observation_id=checked_observation_id(observation_id),
        observation_suppressed=checked_bool(
            observation_suppressed, "observation_suppressed"
        ),
        observe=checked_observe(observe),
    )
    return BoundMemory(session, binding, owner or owner_thread())


def drain(
    session: Session, namespace: str, encoded_key: str, observation_id: str
) -> list[Observation]:
    """Return the records of one key and id, and forget them."""
    place = ObservedPlace(namespace, encoded_key, observation_id)
    return observations_of(session).drain(place)
