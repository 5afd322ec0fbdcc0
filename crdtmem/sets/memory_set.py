"""One memory set: what can be read of it and written to it.

A handle holds no items: every call sees the newest commit, whichever process made it.
Where it works is decided by its binding alone, which it was made with. What the verbs
need is loaded when they are called.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from crdtmem.arguments import checked_bool, checked_count, checked_rev
from crdtmem.errors import InvalidArgumentError, StoreClosedError, UnboundError
from crdtmem.limits import (
    ITEM_HISTORY_ROWS,
    SEARCH_SNIPPET_UNITS,
    SET_PAGE_MAX,
    SET_PAGE_ROWS,
    SET_SEARCH_ROWS,
    UINT_MAX,
)
from crdtmem.model import UNSET, Unset
from crdtmem.partition import checked_set_name
from crdtmem.session import Session
from crdtmem.sets import recording
from crdtmem.sets.arguments import (
    NewItem,
    checked_filters,
    checked_id,
    checked_ids,
    checked_items,
    checked_known_id,
    checked_new_ids,
    checked_order,
    checked_text,
    require_call_size,
)
from crdtmem.sets.owners import OwnerCheck, no_owner_check
from crdtmem.sets.place import BoundSet
from crdtmem.sets.values import (
    AddResult,
    Binding,
    CompactionPolicy,
    CompactResult,
    DropResult,
    ItemDeleteResult,
    ItemHistory,
    ItemPage,
    ItemUndoResult,
    SetHeadroom,
    UpdateResult,
)

if TYPE_CHECKING:
    from crdtmem.search.values import SearchResult

__all__ = ["MemorySet"]


class MemorySet:
    """A named collection of items under one partition key.

    Made by ``BoundMemory.memory_set``, and bound for ever to that memory's key. Made
    directly, or unpickled, it has a name and no binding: each operation raises
    UnboundError before anything is read. Safe from any thread.

    Args:
        name: 1 to 256 bytes of UTF-8 without control characters.

    Raises:
        InvalidArgumentError: ``invalid-name``.

    """

    __slots__ = ("__weakref__", "_bound", "_name", "_owner")

    def __init__(self, name: str) -> None:
        self._name = checked_set_name(name)
        self._bound: BoundSet | None = None
        self._owner: OwnerCheck = no_owner_check

    @classmethod
    def bound(
        cls, session: Session, binding: Binding, name: str, owner: OwnerCheck
    ) -> "MemorySet":
        """Make a handle that works; for ``BoundMemory.memory_set``."""
        made = cls(name)
        made._bound = BoundSet(session, binding, made._name)
        made._owner = owner
        return made

    @property
    def name(self) -> str:
        """The set's name."""
        return self._name

    @property
    def binding(self) -> Binding | None:
        """Where it works; None for a handle that does not."""
        return self._bound.binding if self._bound else None

    def __repr__(self) -> str:
        if self._bound is None:
            return f"MemorySet({self._name!r}, unbound)"
        binding = self._bound.binding
        where = f"{binding.namespace!r}, {binding.partition_key!r}"
        return f"MemorySet({where}, {self._name!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MemorySet):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __reduce__(self) -> tuple[object, ...]:
        # The name alone: a binding never travels by serialisation.
        return MemorySet, (self._name,)

    def __copy__(self) -> "MemorySet":
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> "MemorySet":
        return self

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form: the name, and nothing of where the handle works."""
        return {"name": self._name}

    def add(
        self,
        items: str | Sequence[str],
        metadatas: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        *,
        ids: str | Sequence[str] | None = None,
        request_id: str | Unset = UNSET,
    ) -> AddResult:
        """Add items: all of them in one commit, or none.

        When this returns they are on disk. Items added at the same time, here or
        elsewhere, stay beside them; equal texts are items of their own.

        Args:
            items: A text, or several; "" is one, too. Kept exactly.
            metadatas: For each item a mapping, or one for all of them.
            ids: For each item an id of the caller's; they are made where none are
                given.
            request_id: Names this call, so that a repetition returns the first result.

        Raises:
            InvalidArgumentError: If an argument is malformed.
            ItemConflictError: ``item-exists``.
            SetLimitError: If an item or the set would be too large.
            StoreBusyError: If the lock was not had in time.
                After any of them the set, its rev and its history are as they were.

        """
        from crdtmem.sets.writing import add_items  # noqa: PLC0415 - see the module

        place = self._ready()
        added = checked_items(items, metadatas)
        given = checked_new_ids(ids, len(added))
        request = place.request("add", request_id, items=added, ids=given)
        result = add_items(place, added, given, request)
        if not result.replayed:
            recording.added(place, result.ids, added)
        return result

    def get(
        self,
        ids: str | Sequence[str] | None = None,
        filters: Mapping[str, Any] | None = None,
        limit: int = SET_PAGE_ROWS,
        *,
        order: Literal["newest", "oldest"] = "newest",
        cursor: str | None = None,
    ) -> ItemPage:
        """Return items: those of some ids, or a page of all.

        Takes no lock and never waits for a writer.

        Args:
            ids: Those items, in this order, each once; without filters, and without
                regard to limit, order and cursor.
            filters: Which items; None for all.
            limit: How many, 1 to 10,000.
            order: By the time of their making, the newest or the oldest first.
            cursor: Where a former page ended.

        Raises:
            InvalidArgumentError: If an argument is malformed; ``invalid-filter``,
                ``invalid-cursor``.

        """
        from crdtmem.sets import reading  # noqa: PLC0415 - see the module

        place = self._ready()
        wanted = checked_ids(ids)
        chosen = checked_filters(filters)
        limit = checked_count(limit, "limit", SET_PAGE_MAX)
        order = checked_order(order)
        after = reading.checked_cursor(place, cursor, order)
        if wanted is None:
            page = reading.page_of(place, chosen, limit, order, after)
        elif chosen is not None:
            message = "ids and filters cannot be given together"
            raise InvalidArgumentError("filters", message)
        else:
            page = reading.items_of(place, wanted)
        recording.got(place, page)
        return page

    def search(
        self,
        query: str,
        limit: int = SET_SEARCH_ROWS,
        filters: Mapping[str, Any] | None = None,
        *,
        mode: Literal["auto", "all", "any"] = "auto",
        sort: Literal["relevance", "recent"] = "relevance",
        semantic: bool | Unset = UNSET,
        snippet: int = SEARCH_SNIPPET_UNITS,
    ) -> "SearchResult":
        """Return the items that match a query, the best first.

        Args:
            query: Words, ``"phrases"``, ``prefixes*``, ``-exclusions``, ``a OR b``.
            limit: How many, 1 to 1,000.
            filters: Which items count at all.
            mode: With all the words, with any, or first the ones and then the others.
            sort: By relevance, or the newest first.
            semantic: For an embedder to come; True is refused (``no-embedder``).
            snippet: Length of what a hit shows, 20 to 300 UTF-16 units.

        Raises:
            InvalidArgumentError: If an argument is malformed; ``empty-query``.

        """
        from crdtmem.search.searching import search_items  # noqa: PLC0415 - see the module

        place = self._ready()
        return search_items(
            place.session,
            place.binding,
            query,
            sets=(place.name,),
            recorded=place.name,
            limit=limit,
            filters=filters,
            mode=mode,
            sort=sort,
            semantic=semantic,
            snippet=snippet,
        )

    def delete(
        self,
        ids: str | Sequence[str] | None = None,
        *,
        request_id: str | Unset = UNSET,
    ) -> ItemDeleteResult:
        """Delete items, in one commit; ``undo`` brings them back.

        What others add or update at the same time, without having seen the deletion,
        stays.

        Args:
            ids: Those items; None for all that are seen here, [] for none.
            request_id: Names this call, so that a repetition returns the first result.

        Raises:
            InvalidArgumentError: If an argument is malformed.

        """
        from crdtmem.sets.writing import delete_items  # noqa: PLC0415 - see the module

        place = self._ready()
        wanted = checked_ids(ids)
        request = place.request("delete", request_id, ids=wanted)
        result = delete_items(place, wanted, request)
        if not result.replayed:
            recording.deleted(place, wanted, result.missing)
        return result

    def update(
        self,
        id: str,  # noqa: A002 - the public name
        text: str | Unset = UNSET,
        metadata: Mapping[str, Any] | Unset = UNSET,
        *,
        create: bool = False,
        expected_rev: int | Unset = UNSET,
        request_id: str | Unset = UNSET,
    ) -> UpdateResult:
        """Change an item's text, its metadata, or both; what is not given stays.

        Args:
            id: Which item.
            text: Its new text.
            metadata: Its new metadata, as a whole.
            create: Add the item under this id if it is not there.
            expected_rev: Refuse unless the item is still at this rev; with ``create``,
                0 stands for an item that is not there.
            request_id: Names this call, so that a repetition returns the first result.

        Raises:
            InvalidArgumentError: If an argument is malformed, or nothing is given.
            ItemNotFoundError: If the item is not there.
            ItemConflictError: If it is at another rev; carries the item.
            SetLimitError: If the item or the set would be too large.
                After any of them the set, its rev and its history are as they were.

        """
        from crdtmem.filters import checked_metadata  # noqa: PLC0415 - see the module
        from crdtmem.sets.writing import update_item  # noqa: PLC0415 - see the module

        place = self._ready()
        checked_bool(create, "create")
        item = checked_id(id) if create else checked_known_id(id)
        new_text = None if isinstance(text, Unset) else checked_text(text)
        meta = None if isinstance(metadata, Unset) else checked_metadata(metadata)
        if new_text is None and meta is None:
            message = "text or metadata required: there is nothing to update"
            raise InvalidArgumentError("text", message)
        require_call_size([NewItem(new_text or "", meta or "")], "text")
        rev = None
        if not isinstance(expected_rev, Unset):
            rev = checked_rev(expected_rev, "expected_rev")
        request = place.request(
            "update",
            request_id,
            id=item,
            text=new_text,
            meta=meta,
            create=create,
            expected_rev=rev,
        )
        result, item_text = update_item(
            place, item, new_text, meta, create=create, rev=rev, request=request
        )
        if not result.replayed:
            recording.updated(place, result, item_text)
        return result

    def drop(self, *, request_id: str | Unset = UNSET) -> DropResult:
        """Delete the set with all its items; only for the binding's owner.

        It is no longer listed. ``undo`` brings it back, and so does any later write,
        here or merged.

        Raises:
            OwnerThreadError: If this is not the owner; another check's own error.

        """
        from crdtmem.sets.writing import drop_set  # noqa: PLC0415 - see the module

        place = self._ready()
        self._owner()
        result = drop_set(place, place.request("drop", request_id))
        if result.existed and not result.replayed:
            recording.deleted(place, None, ())
        return result

    def history(
        self,
        id: str | None = None,  # noqa: A002 - the public name
        *,
        limit: int = 100,
        before: int | None = None,
    ) -> ItemHistory:
        """Return what changed in this store, newest first, with the old values.

        Args:
            id: Only changes of this item.
            limit: How many, 1 to 50,000.
            before: Only those of revs before this one. Where a page has ended within a
                commit, pass the rev of its last entry plus one.

        Raises:
            InvalidArgumentError: If an argument is malformed.

        """
        from crdtmem.sets.history import set_history  # noqa: PLC0415 - see the module

        place = self._ready()
        item = None if id is None else checked_known_id(id)
        limit = checked_count(limit, "limit", ITEM_HISTORY_ROWS)
        if before is not None:
            checked_count(before, "before", UINT_MAX)
        return set_history(place, item, limit, before)

    def as_of(
        self, rev: int, *, limit: int = SET_PAGE_ROWS, cursor: str | None = None
    ) -> ItemPage:
        """Return the items as they were at a rev, newest first.

        Rev, count and size of the page are those of then; ``set_hash`` is empty, for it
        is kept of today's versions only.

        Args:
            rev: Not before the one under ``oldest_rev`` of the history.
            limit: How many, 1 to 10,000.
            cursor: Where a former page ended.

        Raises:
            InvalidArgumentError: If an argument is malformed; ``invalid-cursor``.
            RevNotKeptError: If what happened since is not kept in full.

        """
        from crdtmem.sets import history, reading  # noqa: PLC0415 - see the module

        place = self._ready()
        rev = checked_rev(rev, "rev")
        limit = checked_count(limit, "limit", SET_PAGE_MAX)
        after = reading.checked_cursor(place, cursor, f"rev {rev}")
        return history.page_as_of(place, rev, limit, after)

    def undo(self, rev: int, *, request_id: str | Unset = UNSET) -> ItemUndoResult:
        """Take back what a commit did, item by item.

        An item that has changed since is left alone. The undo is a commit of its own
        and can be undone.

        Args:
            rev: Of the commit, from the history.
            request_id: Names this call, so that a repetition returns the first result.

        Raises:
            HistoryNotFoundError: If no such commit is kept.
            SetLimitError: If the set would be too large.
                After any of them the set, its rev and its history are as they were.

        """
        from crdtmem.sets.undoing import undo_commit  # noqa: PLC0415 - see the module

        place = self._ready()
        rev = checked_rev(rev, "rev")
        request = place.request("undo", request_id, rev=rev)
        result, texts, was_there = undo_commit(place, rev, request)
        if not result.replayed:
            recording.undone(place, result, texts, was_there)
        return result

    def compact(
        self, policy: CompactionPolicy, *, request_id: str | Unset = UNSET
    ) -> CompactResult:
        """Have items summarised, and put the summaries in their place.

        The summariser runs in this thread, outside of any lock and transaction. A
        summary of items that were changed or deleted meanwhile is skipped as a whole,
        and items that were added stay. What was summarised is archived, and ``undo``
        brings it back.

        Args:
            policy: What is summarised, and by whom.
            request_id: Names this call, so that a repetition returns the first result.

        Raises:
            InvalidArgumentError: If the policy is malformed.
            ItemConflictError: ``compaction-busy``: another one is running.
            SummaryError: ``summariser-failed`` or ``summary-invalid``.
            SetLimitError: If the set would be too large.
                After any of them the set, its rev and its history are as they were.

        """
        from crdtmem.sets.compacting import Compaction  # noqa: PLC0415 - see the module

        place = self._ready()
        return Compaction(place, policy, request_id).run()

    def headroom(self) -> SetHeadroom:
        """Return how full the set is."""
        from crdtmem.sets.reading import headroom_now  # noqa: PLC0415 - see the module

        return headroom_now(self._ready())

    def _ready(self) -> BoundSet:
        """Return where this handle works.

        Raises:
            UnboundError: If it was made without a binding.
            StoreClosedError: If the memory is closed.

        """
        if self._bound is None:
            self._refuse()
        store = self._bound.session.store
        if store.is_closed:
            raise StoreClosedError(path=str(store.path))
        return self._bound

    def _refuse(self) -> NoReturn:
        raise UnboundError(name=self._name)

    def _identity(self) -> tuple[object, ...]:
        if self._bound is None:
            return None, None, self._name
        return self._bound.session.store.path, self._bound.binding, self._name
