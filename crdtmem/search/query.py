"""Queries: what was typed, as terms, and as an expression of FTS5.

Words, all wanted; ``"a phrase"``, ``word*``, ``-word``, ``a OR b``. Everything else is
text: each word goes through the tokens of texts, so that an expression of FTS5 holds
characters of tokens only, and nothing that was typed is syntax there.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from crdtmem.doc.text_form import lone_surrogate
from crdtmem.errors import InvalidArgumentError
from crdtmem.limits import SEARCH_QUERY_CHARS, SEARCH_TERMS_MAX, SEARCH_TOKEN_CHARS
from crdtmem.tokens import pieces, word_parts

__all__ = ["Query", "Term", "columns_of", "match_of", "parse_query"]

# A minus before another one is text: options of commands are looked for, too.
_WORD = re.compile(r'(-(?!-))?(?:"([^"]*)"?|(\S+))')
_OR = "OR"
# The columns of the index by number: scopes come before them.
_W_AND_X = bytes([1, 2])


class Term(NamedTuple):
    """A word or phrase to look for.

    Attributes:
        words: Its tokens, which stand side by side among the words of a text.
        joined: The token that would do as well among a text's joined identifiers; empty
            where the term is not one word.
        is_prefix: Whether the last token, and the joined one, need only begin so.

    """

    words: tuple[str, ...]
    joined: str
    is_prefix: bool


class Query(NamedTuple):
    """What is looked for.

    Attributes:
        groups: Of each group at least one term, for a text to have all.
        excluded: None of these.

    """

    groups: tuple[tuple[Term, ...], ...]
    excluded: tuple[Term, ...]

    @property
    def terms(self) -> tuple[Term, ...]:
        """All wanted terms, in order."""
        return tuple(term for group in self.groups for term in group)


def parse_query(query: object) -> Query:
    """Return what a query asks for.

    Raises:
        InvalidArgumentError: ``invalid-text`` if it holds half a surrogate pair;
            ``query-too-long``; ``empty-query`` if it has no word that is wanted.

    """
    groups: list[tuple[Term, ...]] = []
    excluded: list[Term] = []
    is_or = False
    for sign, term in _terms_in(_checked(query)):
        if term is None:
            is_or = bool(groups)
        elif sign:
            excluded.append(term)
        elif is_or:
            groups[-1] += (term,)
            is_or = False
        else:
            groups.append((term,))
    found = Query(tuple(groups), tuple(excluded))
    if not groups:
        message = "query has no word that is to be found"
        raise InvalidArgumentError("query", message, code="empty-query")
    _require_few(len(found.terms) + len(excluded), SEARCH_TERMS_MAX, "terms")
    return found


def columns_of(terms: Sequence[Term]) -> bytes:
    """Return for each phrase of an expression the column that it is looked for in."""
    return b"".join(_W_AND_X if term.joined else _W_AND_X[:1] for term in terms)


def match_of(terms: Sequence[Term]) -> str:
    """Return the expression of rows that hold any of some terms.

    It has for each term a phrase among the words and, where the term has one, one among
    the joined identifiers.
    """
    return " OR ".join(phrase for term in terms for phrase in _phrases(term))


def _phrases(term: Term) -> Iterator[str]:
    star = " *" if term.is_prefix else ""
    yield f'w : "{" ".join(term.words)}"{star}'
    if term.joined:
        yield f'x : "{term.joined}"{star}'


def _checked(query: object) -> str:
    if not isinstance(query, str):
        message = f"query must be a string, not {type(query).__name__}"
        raise InvalidArgumentError("query", message)
    _require_few(len(query), SEARCH_QUERY_CHARS, "characters")
    if (position := lone_surrogate(query)) is not None:
        raise InvalidArgumentError(
            "query",
            f"query holds half a surrogate pair, at character {position}",
            code="invalid-text",
        )
    return query


def _require_few(count: int, most: int, unit: str) -> None:
    if count > most:
        message = f"query is too long ({count} > {most} {unit})"
        details = {"size": count, "limit": most, "unit": unit}
        raise InvalidArgumentError(
            "query", message, code="query-too-long", details=details
        )


def _terms_in(query: str) -> Iterator[tuple[str, Term | None]]:
    """Yield each word's sign and term, and None for each ``OR``."""
    for sign, phrase, bare in _WORD.findall(query):
        if bare == _OR and not sign:
            yield "", None
            continue
        text = bare.rstrip("*")
        term = _term_of(phrase or text, is_prefix=text != bare)
        if term is not None:
            yield sign, term


def _term_of(text: str, *, is_prefix: bool) -> Term | None:
    """Return the term of a word or phrase, or None if it has no tokens."""
    words: list[str] = []
    joined = ""
    run_chars = 0
    for piece in pieces(text):
        found = _tokens_of(piece.kind, piece.text)
        if found:
            is_first_word = not words and piece.kind == "word"
            joined = "".join(found) if is_first_word else ""
            run_chars = len(found) if piece.kind == "run" else 0
            words += found
    if not words:
        return None
    if run_chars == 1:
        # Whatever comes behind it: in a text it is the beginning of a pair.
        is_prefix = True
    elif run_chars:
        # A text that goes on behind the run has a pair where the run has a single.
        words.pop()
    cut = tuple(word[:SEARCH_TOKEN_CHARS] for word in words)
    return Term(cut, joined[:SEARCH_TOKEN_CHARS], is_prefix)


def _tokens_of(kind: str, piece: str) -> list[str]:
    if kind == "word":
        return word_parts(piece)
    if kind == "run":
        return [piece[i : i + 2] for i in range(len(piece))]
    return [piece]
