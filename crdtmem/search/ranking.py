"""Which candidates are hits, and in which order: BM25 over the searched scope."""

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from math import log
from typing import NamedTuple

from crdtmem.search.query import Query
from crdtmem.search.values import Matched, Mode, Sort
from crdtmem.store.search import Totals

__all__ = ["Candidate", "Ranked", "ranked"]

K1 = 1.2
B = 0.75
_DIGITS = 6


Candidate = tuple[int, str, int, int, int, bytes, bool]
"""A row in which at least one of the terms occurs; plain, for there may be very many.

What it is of, as a number among all places that are searched; the item, empty outside
of sets; where the row begins in its text; how many words it has; when the text was
written; how often each term of the query occurs, a byte each; whether it has what must
not be there.
"""


class Ranked(NamedTuple):
    """A hit: the place, item and line of its candidate, and how good it is."""

    place: int
    item: str
    line: int
    score: float
    matched: Matched


def ranked(
    query: Query,
    candidates: Sequence[Candidate],
    totals: Totals,
    names: Sequence[tuple[str, ...]],
    *,
    mode: Mode,
    sort: Sort,
    most: int | None,
) -> Iterator[Ranked]:
    """Yield the hits, best first.

    Args:
        query: What is looked for.
        candidates: All rows of the scope that hold a term.
        totals: Of all rows of the scope.
        names: Of each place: decides between rows that are equal in all else.
        mode: ``auto`` puts those with all terms before the others.
        sort: ``recent`` looks at no score.
        most: How many at most; None for all.

    """
    distinct = Counter([candidate[5] for candidate in candidates])
    has_all = {counts: _has_all(query, counts) for counts in distinct}
    score_of = _scores(_weights(query, distinct, totals), totals)
    scores: dict[tuple[bytes, int], float] = {}
    is_auto, is_scored = mode == "auto", sort == "relevance"
    hits = []
    for place, item, line, length, updated_ms, counts, is_excluded in candidates:
        is_whole = has_all[counts]
        if is_excluded or (mode == "all" and not is_whole):
            continue
        key = counts, length
        if key not in scores:
            scores[key] = score_of(counts, length)
        # What makes a hit come earlier; equals come the newest first.
        score = scores[key] if is_scored else 0.0
        order = is_auto and is_whole, score, updated_ms, item, names[place], -line
        hits.append((*order, place, key))
    best = sorted(hits, reverse=True) if most is None else heapq.nlargest(most, hits)
    for *_, item, _, minus_line, place, key in best:
        matched: Matched = "all" if has_all[key[0]] else "any"
        yield Ranked(place, item, -minus_line, scores[key], matched)


def _has_all(query: Query, counts: bytes) -> bool:
    """Tell whether of each group a term occurs."""
    start = 0
    for group in query.groups:
        if not any(counts[start : start + len(group)]):
            return False
        start += len(group)
    return True


def _scores(weights: Sequence[float], totals: Totals) -> Callable[[bytes, int], float]:
    """Return what gives a row its score by its counts and its length."""
    mean = totals.length / totals.rows if totals.length else 1.0

    def score(counts: bytes, length: int) -> float:
        room = K1 * (1 - B + B * length / mean)
        whole = sum(
            weight * count * (K1 + 1) / (count + room)
            for weight, count in zip(weights, counts, strict=True)
        )
        return round(whole, _DIGITS)

    return score


def _weights(query: Query, distinct: Counter[bytes], totals: Totals) -> list[float]:
    """Return how much each term says: the less, the more rows have it."""
    rows = [0] * len(query.terms)
    for counts, times in distinct.items():
        for term, count in enumerate(counts):
            if count:
                rows[term] += times
    return [log(1 + (totals.rows - n + 0.5) / (n + 0.5)) for n in rows]
