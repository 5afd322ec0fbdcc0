"""Search: which texts hold all words of a query, newest first.

A plain scan without an index: substrings of the folded text. It takes time by the size
of what is kept, within the bounds of SEARCH_TEXTS and SEARCH_UNITS.
"""

import re
import unicodedata
from collections.abc import Iterator
from typing import Literal, NamedTuple

from crdtmem.arguments import checked_count
from crdtmem.doc.text_form import cut_units, lines_of, lone_surrogate, units_of
from crdtmem.errors import InvalidArgumentError, SlotNotFoundError
from crdtmem.limits import (
    HISTORY_PAGE_MAX,
    SEARCH_LEAD_CHARS,
    SEARCH_PAGE_MAX,
    SEARCH_QUERY_UNITS,
    SEARCH_ROWS,
    SEARCH_SNIPPET_UNITS,
    SEARCH_TEXTS,
    SEARCH_UNITS,
)
from crdtmem.memory import Memory
from crdtmem.model import UNSET, Model, Unset
from crdtmem.models import Scope
from crdtmem.scope import parse_label, parse_scope, scope_of
from crdtmem.store.history import entries_of
from crdtmem.store.slots import find_slot
from crdtmem.views import iso_time

__all__ = ["Kind", "SearchHit", "SearchResult", "SnippetCut", "search_memory"]

Kind = Literal["slot", "history", "archive"]

_WORD = re.compile(r'(-?)(?:"([^"]*)"?|(\S+))')


class SnippetCut(Model):
    """Whether the text goes on before a snippet, and behind it."""

    start: bool
    end: bool


class SearchHit(Model):
    """A text that holds all words.

    Attributes:
        kind: What the text is: a slot's, one from its history, or what a condense pass
            took out of it.
        label: The slot.
        scope: Of the slot.
        line: Where the first word is found, from 1.
        snippet: A piece of the text around it, as it stands there.
        cut: Whether the snippet is not all.
        matches: Where words stand in the snippet: first and behind the last, in
            characters.
        matched: ``all``: every word.
        score: How often the words occur in the text.
        rank: Place among the hits, from 1.
        updated_at: When the text came to be, ISO 8601, UTC.
        lane: Who wrote it last; for history and archives, who replaced it.
        history_id: Of the kept text.
        pass_id: Of the condense pass.

    """

    kind: Kind
    label: str
    scope: Scope
    line: int | Unset = UNSET
    snippet: str
    cut: SnippetCut
    matches: tuple[tuple[int, int], ...]
    matched: Literal["all"]
    score: float
    rank: int
    updated_at: str
    lane: str
    history_id: str | Unset = UNSET
    pass_id: str | Unset = UNSET

    def __repr__(self) -> str:
        # Without the snippet: no text of slots belongs in a log line.
        return f"SearchHit({self.kind!r}, {self.label!r}, rank={self.rank})"


class SearchResult(Model):
    """The hits, newest first.

    Attributes:
        hits: At most as many as were asked for.
        more: Whether there are others, or texts that were not looked at.
        semantic: ``off``: words were compared, not meanings.
        unembedded: Texts that a search by meaning would have left out.

    """

    hits: tuple[SearchHit, ...]
    more: bool
    semantic: Literal["off"]
    unembedded: int


class _Text(NamedTuple):
    """A text to look at."""

    kind: Kind
    label: str
    scope: Scope
    file: str
    at: str
    lane: str
    history_id: str | Unset = UNSET
    pass_id: str | Unset = UNSET


class _Query(NamedTuple):
    """Folded words: all of the wanted, none of the others."""

    wanted: list[str]
    unwanted: list[str]

    def count_in(self, folded: str) -> int:
        """Return how often the words occur in a text that matches, else 0."""
        if any(word in folded for word in self.unwanted):
            return 0
        counts = [folded.count(word) for word in self.wanted]
        return sum(counts) if all(counts) else 0


def search_memory(
    memory: Memory,
    query: str,
    *,
    kind: Kind = "slot",
    label: str | None = None,
    scope: Scope | None = None,
    limit: int = SEARCH_ROWS,
) -> SearchResult:
    """Return the texts that hold all words of a query, newest first.

    Words are compared without regard to case and to the form of composed characters,
    and also within longer words. ``"a phrase"`` is one word, ``-word`` must not occur.
    What is found does not count as seen.

    Args:
        memory: Whose slots.
        query: The words.
        kind: Which texts: those of slots, kept past ones, or what condense passes took
            out. The latter two are looked for in one slot.
        label: Only this slot.
        scope: Only slots of this scope; without it a hidden slot is not looked at.
        limit: How many, 1 to 100.

    Raises:
        InvalidArgumentError: If an argument is malformed; ``empty-query`` if it has no
            word that is wanted.
        SlotNotFoundError: If the slot of a history or archive is not there.

    """
    words = _parse(query)
    wanted_scope = parse_scope(scope, optional=True)
    name = None if label is None else parse_label(label)
    limit = checked_count(limit, "limit", SEARCH_PAGE_MAX)
    texts = _texts(memory, kind, name, wanted_scope)
    return _found(texts, words, limit)


def _parse(query: object) -> _Query:
    if not isinstance(query, str) or lone_surrogate(query) is not None:
        message = "query must be a string without half a surrogate pair"
        raise InvalidArgumentError("query", message)
    if (size := units_of(query)) > SEARCH_QUERY_UNITS:
        message = f"query is too long ({size} > {SEARCH_QUERY_UNITS})"
        raise InvalidArgumentError("query", message, code="query-too-long")
    found = _Query([], [])
    for sign, phrase, bare in _WORD.findall(query):
        word = _folded(phrase or bare.removesuffix("*"))
        if any(character.isalnum() for character in word):
            (found.unwanted if sign else found.wanted).append(word)
    if not found.wanted:
        message = "query has no word that is to be found"
        raise InvalidArgumentError("query", message, code="empty-query")
    return found


def _found(texts: Iterator[_Text], words: _Query, limit: int) -> SearchResult:
    hits: list[SearchHit] = []
    units = 0
    more = False
    for number, text in enumerate(texts):
        units += len(text.file)
        if number >= SEARCH_TEXTS or units > SEARCH_UNITS:
            more = True
            break
        count = words.count_in(_folded(text.file))
        if count and len(hits) == limit:
            more = True
            break
        if count:
            hits.append(_hit(text, words, count, rank=len(hits) + 1))
    return SearchResult(hits=tuple(hits), more=more, semantic="off", unembedded=0)


def _texts(
    memory: Memory, kind: Kind, label: str | None, scope: Scope | None
) -> Iterator[_Text]:
    """Return what is to be looked at, newest first."""
    if kind == "slot":
        return _slot_texts(memory, label, scope)
    if kind not in ("history", "archive"):
        message = f"kind must be 'slot', 'history' or 'archive', not {kind!r:.40}"
        raise InvalidArgumentError("kind", message)
    if label is None:
        message = f"label required: {kind} is searched in one slot"
        raise InvalidArgumentError("label", message, code="invalid-label")
    of_kind = _history_texts if kind == "history" else _archive_texts
    return of_kind(memory, label, scope)


def _slot_texts(
    memory: Memory, label: str | None, scope: Scope | None
) -> Iterator[_Text]:
    rows = memory._session.visible_rows(scope, templates=False)
    for row in sorted(rows, key=lambda row: -row.updated_ms):
        if label in (None, row.label):
            where, at = scope_of(row.namespace), iso_time(row.updated_ms)
            yield _Text("slot", row.label, where, row.file, at, row.lane)


def _history_texts(memory: Memory, label: str, scope: Scope | None) -> Iterator[_Text]:
    session = memory._session
    place = session.find_place(label, scope, with_deleted=True)
    if place is None:
        raise SlotNotFoundError(label=label, scope=scope)
    with session.store.snapshot() as connection:
        row = find_slot(connection, *place)
        entries = entries_of(connection, row.doc, limit=SEARCH_TEXTS) if row else []
    for entry in entries:
        where, at = scope_of(place.namespace), iso_time(entry.at_ms)
        yield _Text("history", label, where, entry.file, at, entry.lane, entry.id)


def _archive_texts(memory: Memory, label: str, scope: Scope | None) -> Iterator[_Text]:
    for info in memory.condense_passes(label=label, limit=HISTORY_PAGE_MAX):
        if scope in (None, info.scope):
            parts = memory.condense_archive(info.id).sections
            file = "".join(part.text for part in parts)
            yield _Text(
                "archive",
                label,
                info.scope,
                file,
                info.begun_at,
                info.lane,
                pass_id=info.id,
            )


def _hit(text: _Text, words: _Query, count: int, *, rank: int) -> SearchHit:
    number, before_chars, line = _first_line(text.file, words)
    places = _places(line, words)
    start_chars = before_chars + _snippet_start(line, places[0][0] if places else 0)
    snippet = cut_units(text.file[start_chars:], SEARCH_SNIPPET_UNITS)
    is_rest = start_chars + len(snippet) >= len(text.file)
    return SearchHit(
        kind=text.kind,
        label=text.label,
        scope=text.scope,
        line=number or UNSET,
        snippet=snippet.removesuffix("\n") if is_rest else snippet,
        cut=SnippetCut(start=start_chars > 0, end=not is_rest),
        matches=tuple(_places(snippet, words)),
        matched="all",
        score=float(count),
        rank=rank,
        updated_at=text.at,
        lane=text.lane,
        history_id=text.history_id,
        pass_id=text.pass_id,
    )


def _first_line(file: str, words: _Query) -> tuple[int, int, str]:
    """Return the number of the first line with a word, where it begins, and itself.

    A phrase may go over the end of a line: then there is none, number 0.
    """
    before_chars = 0
    for number, line in enumerate(lines_of(file), 1):
        folded = _folded(line)
        if any(word in folded for word in words.wanted):
            return number, before_chars, line
        before_chars += len(line)
    return 0, 0, file


def _snippet_start(line: str, match_chars: int) -> int:
    """Return where a snippet begins: with the line, or with a word not far before."""
    if match_chars <= SEARCH_LEAD_CHARS:
        return 0
    lead = line[match_chars - SEARCH_LEAD_CHARS : match_chars]
    blank = lead.find(" ")
    return match_chars - SEARCH_LEAD_CHARS + blank + 1 if blank >= 0 else match_chars


def _places(text: str, words: _Query) -> list[tuple[int, int]]:
    """Return where words stand, in characters of the text itself, from the left."""
    folded: list[str] = []
    origins: list[int] = []
    for index, character in enumerate(text):
        piece = _folded(character)
        folded.append(piece)
        origins += [index] * len(piece)
    whole = "".join(folded)
    found: list[tuple[int, int]] = []
    for start, end in sorted(
        (origins[match.start()], origins[match.end() - 1] + 1)
        for word in words.wanted
        for match in re.finditer(re.escape(word), whole)
    ):
        if found and start < found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def _folded(text: str) -> str:
    """Return a text as it is compared."""
    if text.isascii():
        return text.lower()
    folded = unicodedata.normalize("NFC", text).casefold()
    return unicodedata.normalize("NFC", folded)
