"""Terms counted in texts that are in memory: what is not indexed yet, and the past.

The index must find what this finds, and count as this does.
"""

from collections.abc import Sequence

from crdtmem.limits import SEARCH_COUNT_MAX
from crdtmem.search.query import Term
from crdtmem.tokens import TextTokens

__all__ = ["count_of", "counts_of"]


def counts_of(terms: Sequence[Term], tokens: TextTokens) -> bytes:
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
