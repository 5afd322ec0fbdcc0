"""Rows that hold a term: from the index, and from texts that are looked at themselves.

Both are of one read transaction, so what is found is what a store would find that has
indexed everything.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from crdtmem.doc.parts import Part, parts_of
from crdtmem.limits import SEARCH_COUNT_MAX
from crdtmem.search.query import Query, Term, columns_of, match_of
from crdtmem.search.ranking import Candidate
from crdtmem.search.scopes import Place, Searched
from crdtmem.store.connection import Connection
from crdtmem.store.search import (
    Asked,
    Indexed,
    Totals,
    item_texts,
    look_up,
    slot_file,
    tokens_of,
)
from crdtmem.tokens import TextTokens

__all__ = ["Found", "count_of", "find_candidates"]


class Found(NamedTuple):
    """What a search has to choose from.

    Attributes:
        candidates: Rows that hold a term.
        totals: Of all rows.
        pending: How many texts were looked at because they are not indexed.
        is_degraded: Whether the index could not be read.

    """

    candidates: list[Candidate]
    totals: Totals
    pending: int
    is_degraded: bool


class _Row(NamedTuple):
    """A row that is looked at itself."""

    place: int
    item: str
    updated_ms: int
    part: Part


def find_candidates(connection: Connection, searched: Searched, query: Query) -> Found:
    """Return the rows of what is searched that hold a term of a query."""
    numbers = {place.doc: i for i, place in enumerate(searched.places) if place.doc}
    indexed = Indexed([], frozenset(), Totals(0, 0), {})
    known: Indexed | None = indexed
    if numbers:
        known = look_up(
            connection,
            Asked(
                docs=numbers.keys(),
                scopes=searched.scopes,
                wanted=match_of(query.terms),
                columns=columns_of(query.terms),
                excluded=match_of(query.excluded),
            ),
        )
    indexed = known or indexed
    rows = _rows_to_look_at(connection, searched.places, known)
    evaluated, totals = _evaluated(rows, query)
    return Found(
        _from_index(indexed, query.terms, numbers) + evaluated,
        Totals(*map(sum, zip(indexed.totals, totals, strict=True))),
        sum(map(len, indexed.pending.values())),
        known is None,
    )


def _from_index(
    indexed: Indexed, terms: Sequence[Term], numbers: dict[int, int]
) -> list[Candidate]:
    widths = [2 if term.joined else 1 for term in terms]
    distinct = {row[-1] for row in indexed.rows}
    counts = {phrases: _by_term(phrases, widths) for phrases in distinct}
    pending, excluded, nothing = indexed.pending, indexed.excluded, frozenset[str]()
    return [
        (
            numbers[doc],
            item,
            line,
            length,
            updated_ms,
            counts[phrases],
            row in excluded,
        )
        for row, doc, item, line, length, updated_ms, phrases in indexed.rows
        if doc in numbers and item not in pending.get(doc, nothing)
    ]


def _by_term(phrases: bytes, widths: Sequence[int]) -> bytes:
    """Return the count of each term: the larger one of its phrases."""
    start = 0
    found = []
    for width in widths:
        found.append(max(phrases[start : start + width]))
        start += width
    return bytes(found)


def _rows_to_look_at(
    connection: Connection, places: Sequence[Place], indexed: Indexed | None
) -> Iterator[_Row]:
    """Yield the rows of texts that are not indexed; all where there is no index."""
    for number, place in enumerate(places):
        is_pending = indexed is None or place.doc in indexed.pending
        if not place.doc:
            yield _Row(number, "", place.updated_ms, Part(1, place.file))
        elif is_pending and place.kind == "slot":
            for part in parts_of(slot_file(connection, place.doc)):
                yield _Row(number, "", place.updated_ms, part)
        elif is_pending:
            for item, text, updated_ms in item_texts(
                connection, place.doc, pending=indexed is not None
            ):
                yield _Row(number, item, updated_ms, Part(1, text))


def _evaluated(rows: Iterator[_Row], query: Query) -> tuple[list[Candidate], Totals]:
    terms, excluded = query.terms, query.excluded
    candidates: list[Candidate] = []
    count = length = 0
    for place, item, updated_ms, part in rows:
        tokens = tokens_of(part.text)
        count += 1
        length += len(tokens.w)
        counts = _counts_of(terms, tokens)
        if any(counts):
            is_excluded = any(count_of(term, tokens) for term in excluded)
            candidates.append(
                (
                    place,
                    item,
                    part.line,
                    len(tokens.w),
                    updated_ms,
                    counts,
                    is_excluded,
                )
            )
    return candidates, Totals(count, length)


def _counts_of(terms: Sequence[Term], tokens: TextTokens) -> bytes:
    """Return how often each term occurs, a byte each; see count_of."""
    return bytes([count_of(term, tokens) for term in terms])


def count_of(term: Term, tokens: TextTokens) -> int:
    """Return how often a term occurs, at most SEARCH_COUNT_MAX.

    Among the words or among the joined identifiers, whichever is more.
    """
    found = _in_words(term, tokens.w)
    if term.joined and tokens.x:
        found = max(
            found, _in_words(Term((term.joined,), "", term.is_prefix), tokens.x)
        )
    return min(found, SEARCH_COUNT_MAX)


def _in_words(term: Term, words: tuple[str, ...]) -> int:
    *first, last = term.words
    if term.is_prefix:
        ends = [i for i, word in enumerate(words) if word.startswith(last)]
    elif not first:
        return words.count(last)
    else:
        ends = [i for i, word in enumerate(words) if word == last]
    before = tuple(first)
    size = len(before)
    return sum(1 for i in ends if i >= size and words[i - size : i] == before)
