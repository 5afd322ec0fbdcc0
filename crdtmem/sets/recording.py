"""The records that each verb of a set leaves; see ``observing`` for where they go.

Made only where somebody wants them, after the operation has succeeded.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from crdtmem.model import Unset
from crdtmem.sets.arguments import NewItem
from crdtmem.sets.observing import observe
from crdtmem.sets.place import BoundSet
from crdtmem.sets.values import (
    Binding,
    ItemPage,
    ItemUndoResult,
    Observation,
    UpdateResult,
)

if TYPE_CHECKING:
    from crdtmem.search.values import SearchHit
    from crdtmem.session import Session

__all__ = [
    "added",
    "compacted",
    "deleted",
    "got",
    "searched",
    "undone",
    "updated",
]


def added(place: BoundSet, ids: Sequence[str], items: Sequence[NewItem]) -> None:
    """Record items that were added."""
    _observe_writing(
        place,
        lambda: [
            _record("ADD", place, item, new.text)
            for item, new in zip(ids, items, strict=True)
        ],
    )


def updated(place: BoundSet, result: UpdateResult, text: str) -> None:
    """Record an item that was updated, or added by it."""
    if result.changed:
        op = "ADD" if result.created else "UPDATE"
        _observe_writing(place, lambda: [_record(op, place, result.id, text)])


def deleted(
    place: BoundSet, ids: Sequence[str] | None, missing: Collection[str]
) -> None:
    """Record items that were deleted; with None for the ids, the whole set."""
    if ids is None:
        _observe_writing(place, lambda: [_record("DELETE_SET", place, None, None)])
        return
    absent = frozenset(missing)
    _observe_writing(
        place,
        lambda: [
            _record("DELETE", place, item, None) for item in ids if item not in absent
        ],
    )


def got(place: BoundSet, page: ItemPage) -> None:
    """Record items that were read."""
    observe(
        place.session,
        place.binding,
        "get",
        lambda: [_record("GET", place, item.id, item.text) for item in page.items],
    )


def searched(
    session: "Session",
    binding: Binding,
    query: str,
    hits: "Mapping[str, Sequence[SearchHit]]",
) -> None:
    """Record a search, for each set that it was made in.

    Args:
        session: The handle's.
        binding: The handle's.
        query: As it was given.
        hits: Of each set by its name, in the order of the result.

    """
    observe(
        session,
        binding,
        "search",
        lambda: [
            Observation(
                op="SEARCH",
                set=name,
                id=None,
                query=query,
                value=tuple(
                    {"id": hit.item.id, "value": hit.item.text, "score": hit.score}
                    for hit in found
                    if not isinstance(hit.item, Unset)
                ),
            )
            for name, found in hits.items()
        ],
    )


def undone(
    place: BoundSet,
    result: ItemUndoResult,
    texts: Mapping[str, str],
    was_there: Collection[str],
) -> None:
    """Record what an undo brought back, changed, and took away."""

    def records() -> Iterable[Observation]:
        for item in result.restored:
            op = "UPDATE" if item in was_there else "ADD"
            yield _record(op, place, item, texts[item])
        for item in result.removed:
            yield _record("DELETE", place, item, None)

    _observe_writing(place, records)


def compacted(
    place: BoundSet, summaries: Mapping[str, str], sources: Iterable[str]
) -> None:
    """Record the summaries that were added, and the items that they replace."""

    def records() -> Iterable[Observation]:
        for item, text in summaries.items():
            yield _record("ADD", place, item, text)
        for item in sources:
            yield _record("DELETE", place, item, None)

    _observe_writing(place, records)


def _observe_writing(
    place: BoundSet, make: Callable[[], Iterable[Observation]]
) -> None:
    observe(place.session, place.binding, "update", make)


def _record(op: str, place: BoundSet, item: str | None, value: object) -> Observation:
    return Observation(op=op, set=place.name, id=item, query=None, value=value)
