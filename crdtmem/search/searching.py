"""The verbs of search: check, look, rank, show."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from crdtmem.arguments import checked_bool, checked_count
from crdtmem.doc.parts import parts_of
from crdtmem.doc.text_form import view_of
from crdtmem.errors import EmbeddingError, InvalidArgumentError
from crdtmem.filters import matches
from crdtmem.limits import (
    INDEX_BATCH_ROWS,
    INDEX_SEARCH_MAX,
    INDEX_SEARCH_ROWS,
    SEARCH_LIMIT_ROWS,
    SEARCH_ROWS,
    SEARCH_SNIPPET_LEAST_UNITS,
    SEARCH_SNIPPET_MOST_UNITS,
    SEARCH_SNIPPET_UNITS,
    UINT_MAX,
)
from crdtmem.model import UNSET, Unset
from crdtmem.models import Scope
from crdtmem.partition import checked_set_name
from crdtmem.scope import parse_label, parse_scope
from crdtmem.search.candidates import find_candidates
from crdtmem.search.query import Query, parse_query
from crdtmem.search.ranking import Ranked, ranked
from crdtmem.search.scopes import (
    Place,
    Searched,
    archives_of,
    past_of,
    sets_in,
    slots_in,
)
from crdtmem.search.snippets import places_of, snippet
from crdtmem.search.values import (
    IndexReport,
    Kind,
    Mode,
    SearchHit,
    SearchResult,
    SnippetCut,
    Sort,
)
from crdtmem.session import Session
from crdtmem.sets import recording
from crdtmem.sets.arguments import checked_filters
from crdtmem.sets.reading import filter_item, item_view
from crdtmem.sets.values import Binding
from crdtmem.store.connection import Connection
from crdtmem.store.indexing import count_pending, index_pending, index_quietly
from crdtmem.store.search import slot_file
from crdtmem.store.sets import ItemRow, find_items
from crdtmem.views import iso_time

__all__ = ["index_texts", "search_items", "search_slots"]

_Choice = TypeVar("_Choice", bound=str)

_KINDS: tuple[Kind, ...] = ("slot", "history", "archive")
_MODES: tuple[Mode, ...] = ("auto", "all", "any")
_SORTS: tuple[Sort, ...] = ("relevance", "recent")
# Hits whose items are read at once, where a filter may refuse most of them.
_CHUNK = 512
# Of what is pending a search indexes a part, so that it takes not much longer for it.
_PENDING_SHARE = 8

_Items = dict[tuple[int, str], ItemRow]


class _Wanted(NamedTuple):
    """What a caller wants of a search, checked."""

    query: Query
    limit: int
    filters: Mapping[str, Any] | None
    mode: Mode
    sort: Sort
    snippet_units: int


def search_slots(
    session: Session,
    query: str,
    *,
    kinds: Sequence[Kind] = ("slot",),
    label: str | None = None,
    scope: Scope | None = None,
    limit: int = SEARCH_ROWS,
    mode: Mode = "auto",
    sort: Sort = "relevance",
    semantic: bool | Unset = UNSET,
    snippet: int = SEARCH_SNIPPET_UNITS,
) -> SearchResult:
    """Return parts of slots, or past texts of one, that hold words; see Memory.search.

    Raises:
        InvalidArgumentError: If an argument is malformed; ``empty-query``.
        SlotNotFoundError: If the slot of a history is not there.

    """
    wanted = _checked(query, limit, None, mode, sort, semantic, snippet)
    where = parse_scope(scope, optional=True)
    name = None if label is None else parse_label(label)
    chosen = _checked_kinds(kinds, name)
    past = Searched([], [])
    if name is not None and "history" in chosen:
        past = past_of(session, name, where)
    if name is not None and "archive" in chosen:
        past = past.joined(archives_of(session, name, where))

    def searched(connection: Connection) -> Searched:
        if "slot" in chosen:
            return slots_in(connection, session, where, name).joined(past)
        return past

    return _search(session, searched, wanted)


def search_items(
    session: Session,
    binding: Binding,
    query: str,
    *,
    sets: Sequence[str] | None,
    limit: int,
    filters: Mapping[str, Any] | None,
    mode: Mode,
    sort: Sort,
    semantic: bool | Unset,
    snippet: int,
    slots: bool = False,
    recorded: str | None = None,
) -> SearchResult:
    """Return items of a key's sets that hold words, and record that they were sought.

    See ``BoundMemory.search``; ``recorded`` is the one set of a handle, whose search is
    recorded also where nothing was found.

    Raises:
        InvalidArgumentError: If an argument is malformed; ``empty-query``.

    """
    wanted = _checked(query, limit, filters, mode, sort, semantic, snippet)
    names = None if sets is None else _checked_names(sets)
    if checked_bool(slots, "slots") and wanted.filters is not None:
        message = "slots have no metadata: filters and slots cannot be given together"
        raise InvalidArgumentError("slots", message)

    def searched(connection: Connection) -> Searched:
        found = sets_in(connection, binding, names)
        if slots:
            found = found.joined(slots_in(connection, session, binding.scope, None))
        return found

    result = _search(session, searched, wanted)
    hits: dict[str, list[SearchHit]] = {} if recorded is None else {recorded: []}
    for hit in result.hits:
        if hit.kind == "item":
            hits.setdefault(hit.label, []).append(hit)
    recording.searched(session, binding, query, hits)
    return result


def index_texts(session: Session, rows: int, vectors: int) -> IndexReport:
    """Index texts that have changed; see Memory.index.

    Raises:
        InvalidArgumentError: If an argument is malformed.
        StoreError: If the lock is not had in time, or the store is for reading.

    """
    most = checked_count(rows, "rows", UINT_MAX, 0)
    checked_count(vectors, "vectors", UINT_MAX, 0)
    store = session.store
    done = index_pending(store, most, wait_s=store.busy_timeout_s)
    with store.reading() as connection:
        pending = count_pending(connection)
    return IndexReport(indexed=done, pending=pending, embedded=0, unembedded=0)


def _search(
    session: Session, searched_in: Callable[[Connection], Searched], wanted: _Wanted
) -> SearchResult:
    with session.store.snapshot() as connection:
        searched = searched_in(connection)
        found = find_candidates(connection, searched, wanted.query)
        chosen, more = _chosen(
            connection,
            searched.places,
            ranked(
                wanted.query,
                found.candidates,
                found.totals,
                [place.name for place in searched.places],
                mode=wanted.mode,
                sort=wanted.sort,
                most=wanted.limit + 1 if wanted.filters is None else None,
            ),
            wanted,
        )
        hits = [
            _hit(connection, searched.places[hit.place], item, hit, wanted)
            for hit, item in chosen
        ]
    if found.pending > INDEX_SEARCH_ROWS and not session.store.read_only:
        share = found.pending // _PENDING_SHARE
        most = max(INDEX_BATCH_ROWS, min(share, INDEX_SEARCH_MAX))
        index_quietly(session.store, most)
    return SearchResult(
        hits=tuple(hit.replaced(rank=n) for n, hit in enumerate(hits, 1)),
        more=more,
        semantic="off",
        unembedded=0,
        degraded=found.is_degraded or UNSET,
    )


def _chosen(
    connection: Connection,
    places: Sequence[Place],
    hits: Iterator[Ranked],
    wanted: _Wanted,
) -> tuple[list[tuple[Ranked, ItemRow | None]], bool]:
    """Return the first hits that the filters let through, and if there is another."""
    chosen: list[tuple[Ranked, ItemRow | None]] = []
    while len(chosen) <= wanted.limit and (some := list(islice(hits, _CHUNK))):
        items = _items_of(connection, places, some)
        for hit in some:
            item = items.get((hit.place, hit.item))
            if wanted.filters is None or (
                item is not None and matches(wanted.filters, filter_item(item))
            ):
                chosen.append((hit, item))
    return chosen[: wanted.limit], len(chosen) > wanted.limit


def _items_of(
    connection: Connection, places: Sequence[Place], hits: Sequence[Ranked]
) -> _Items:
    by_place: dict[int, list[str]] = {}
    for hit in hits:
        if hit.item:
            by_place.setdefault(hit.place, []).append(hit.item)
    return {
        (place, item): row
        for place, ids in by_place.items()
        for item, row in find_items(connection, places[place].doc, ids).items()
    }


def _hit(
    connection: Connection,
    place: Place,
    item: ItemRow | None,
    hit: Ranked,
    wanted: _Wanted,
) -> SearchHit:
    line, text, is_last = _text_of(connection, place, item, hit.line)
    found = places_of(text, wanted.query.terms)
    piece = snippet(text, found, wanted.snippet_units)
    return SearchHit(
        kind=place.kind,
        label=place.label,
        scope=place.scope,
        line=line + text.count("\n", 0, found[0][0]) if found else UNSET,
        item_id=item.id if item else UNSET,
        item=item_view(item, place.label) if item else UNSET,
        snippet=piece.text,
        cut=SnippetCut(
            start=piece.is_cut_before or line > 1,
            end=piece.is_cut_behind or not is_last,
        ),
        matches=piece.matches,
        matched=hit.matched,
        score=hit.score,
        rank=0,
        updated_at=iso_time(item.updated_ms if item else place.updated_ms),
        lane=item.lane if item else place.lane,
        history_id=place.history_id,
        pass_id=place.pass_id,
    )


def _text_of(
    connection: Connection, place: Place, item: ItemRow | None, line: int
) -> tuple[int, str, bool]:
    """Return the line where a row begins, its text, and whether the text ends there."""
    if item is not None:
        return 1, item.text, True
    if not place.doc:
        return 1, view_of(place.file), True
    parts = list(parts_of(slot_file(connection, place.doc)))
    part = next(part for part in parts if part.line == line)
    return line, view_of(part.text), part is parts[-1]


def _checked(
    query: object,
    limit: object,
    filters: object,
    mode: object,
    sort: object,
    semantic: object,
    snippet: object,
) -> _Wanted:
    parsed = parse_query(query)
    _check_semantic(semantic)
    return _Wanted(
        parsed,
        checked_count(limit, "limit", SEARCH_LIMIT_ROWS),
        checked_filters(filters),
        _checked_choice(mode, "mode", _MODES),
        _checked_choice(sort, "sort", _SORTS),
        checked_count(
            snippet,
            "snippet",
            SEARCH_SNIPPET_MOST_UNITS,
            SEARCH_SNIPPET_LEAST_UNITS,
        ),
    )


def _check_semantic(semantic: object) -> None:
    """Refuse a search by meaning: no store has vectors yet.

    Raises:
        EmbeddingError: ``no-embedder``.
        InvalidArgumentError: If it is no truth value.

    """
    if semantic is not UNSET and checked_bool(semantic, "semantic"):
        raise EmbeddingError(
            "semantic search needs an embedder, and there is none",
            code="no-embedder",
            hint="search by words, without semantic",
        )


def _checked_choice(
    value: object, argument: str, choices: tuple[_Choice, ...]
) -> _Choice:
    for choice in choices:
        if value == choice:
            return choice
    wanted = ", ".join(map(repr, choices))
    message = f"{argument} must be one of {wanted}, not {value!r:.40}"
    raise InvalidArgumentError(argument, message)


def _checked_kinds(kinds: object, label: str | None) -> set[Kind]:
    if isinstance(kinds, str) or not isinstance(kinds, Iterable):
        message = f"kinds must be a list, not a value of type {type(kinds).__name__}"
        raise InvalidArgumentError("kinds", message)
    chosen = {_checked_choice(kind, "kinds", _KINDS) for kind in kinds}
    if not chosen:
        message = f"kinds must hold at least one of {', '.join(_KINDS)}"
        raise InvalidArgumentError("kinds", message)
    if label is None and chosen != {"slot"}:
        message = "label required: history and archive are searched in one slot"
        raise InvalidArgumentError("label", message, code="invalid-label")
    return chosen


def _checked_names(sets: object) -> list[str]:
    if isinstance(sets, str) or not isinstance(sets, Iterable):
        message = f"sets must be a list of names, not a {type(sets).__name__}"
        raise InvalidArgumentError("sets", message)
    return list(dict.fromkeys(checked_set_name(name) for name in sets))
