"""An oracle of search: what a query must find, worked out from the texts alone."""

from collections.abc import Sequence
from math import log
from typing import Any, NamedTuple

from hypothesis import strategies as st

from crdtmem.errors import InvalidArgumentError
from crdtmem.search.candidates import count_of
from crdtmem.search.query import Query, parse_query
from crdtmem.tokens import tokens
from tests.conftest import PROFILE

__all__ = [
    "EXAMPLES",
    "PIECES",
    "Text",
    "asked_of",
    "expected",
    "found",
    "queries",
    "texts",
]

EXAMPLES = {"default": 40, "campaign": 20_000}[PROFILE]
"""How many are tried of whatever is made of such words."""

PIECES = (
    *("deploy", "Deploy", "deploys", "parse_http", "parseHttp", "parsehttp", "HTTP"),
    *("http-response", "store/log.py", "v1.2.3", "E0433", "naïve", "NAÏVE", "straße"),
    *(
        "東京都庁",
        "東京",
        "京",
        "メモリ",
        "한국어",
        "東京deploy",
        "🚀",
        "❤️",
        "👩\u200d💻",
    ),
    *("🇩🇪", "e\u0301", "\u0301", "_", "__init__", "x" * 70, "a" * 300, "OR", "AND"),
    *(
        "NOT",
        "NEAR(a b)",
        "w:x",
        "s:d1",
        "{a b}",
        "^a",
        '"',
        '""',
        "*",
        "a*",
        "-a",
        "-",
    ),
    *("--dry-run", "(", ")", "'; DROP TABLE item; --", "\x00", "\n", "a", "b", "c"),
)
"""Words of texts and of queries, and what is hostile in a query."""

# Half a surrogate pair is refused where a text comes in.
_CHARACTERS = st.characters(exclude_categories=["Cs"])
_WORD = st.one_of(st.sampled_from(PIECES), st.text(_CHARACTERS, max_size=3))
_GLUE = st.sampled_from([" ", " ", " ", "", "\n", " OR ", ' "', '" ', "*", " -"])


@st.composite
def texts(draw: st.DrawFn, most: int = 8) -> str:
    """Make a text of such words."""
    words = draw(st.lists(_WORD, max_size=most))
    return "".join(word + draw(_GLUE) for word in words)


queries = texts(5)
"""Queries are texts as well: whatever is typed is one."""


class Text(NamedTuple):
    """A text that is searched; the last ones decide between equals."""

    name: str
    text: str
    updated: Any
    line: int = 1


def asked_of(query: str) -> Query | str:
    """Return what a query asks for, or the code of its refusal."""
    try:
        return parse_query(query)
    except InvalidArgumentError as error:
        return error.code


def expected(
    query: str, all_texts: Sequence[Text], mode: str = "auto", sort: str = "relevance"
) -> list[tuple[str, int, float, str]] | str:
    """Return name, line, score and what matched of each hit; or a code."""
    asked = asked_of(query)
    if isinstance(asked, str):
        return asked
    rows = [(text, tokens(text.text)) for text in all_texts]
    mean = sum(len(found.w) for _, found in rows) / max(len(rows), 1) or 1.0
    weights = []
    for term in asked.terms:
        having = sum(1 for _, found in rows if count_of(term, found))
        weights.append(log(1 + (len(rows) - having + 0.5) / (having + 0.5)))
    hits = []
    for text, found in rows:
        counts = [count_of(term, found) for term in asked.terms]
        room = 1.2 * (0.25 + 0.75 * len(found.w) / mean)
        score = sum(
            weight * count * 2.2 / (count + room)
            for weight, count in zip(weights, counts, strict=True)
        )
        has_all = all(any(count_of(t, found) for t in group) for group in asked.groups)
        is_excluded = any(count_of(term, found) for term in asked.excluded)
        if any(counts) and not is_excluded and (has_all or mode != "all"):
            hits.append((text, round(score, 6), "all" if has_all else "any"))
    hits.sort(
        key=lambda hit: (
            mode == "auto" and hit[2] == "all",
            hit[1] if sort == "relevance" else 0,
            hit[0].updated,
            hit[0].name,
            -hit[0].line,
        ),
        reverse=True,
    )
    return [(text.name, text.line, score, matched) for text, score, matched in hits]


def found(
    search: Any, query: str, **options: Any
) -> list[tuple[str, float, str]] | str:
    """Return item id, score and what matched of each hit; or the code of a refusal."""
    try:
        result = search(query, **options)
    except InvalidArgumentError as error:
        return error.code
    return [(str(hit.item_id), hit.score, hit.matched) for hit in result.hits]
