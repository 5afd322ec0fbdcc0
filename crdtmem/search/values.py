"""What a search returns: the JSON contract of every front end."""

from typing import Literal

from crdtmem.model import UNSET, Model, Unset
from crdtmem.scope import Scope
from crdtmem.sets.values import Item

__all__ = [
    "HitKind",
    "IndexReport",
    "Kind",
    "Matched",
    "Mode",
    "SearchHit",
    "SearchResult",
    "Semantic",
    "SnippetCut",
    "Sort",
]

Kind = Literal["slot", "history", "archive"]
HitKind = Literal["slot", "item", "history", "archive"]
Matched = Literal["all", "any", "vector"]
Mode = Literal["auto", "all", "any"]
Sort = Literal["relevance", "recent"]
Semantic = Literal["off", "on", "partial", "failed"]


class SnippetCut(Model):
    """Whether the text goes on before a snippet, and behind it."""

    start: bool
    end: bool


class SearchHit(Model):
    """A text that was found: an item, or a part of a slot.

    Attributes:
        kind: What the text is: a slot's, an item, one from a slot's history, or what a
            condense pass took out of it.
        label: The slot, or the set of the item.
        scope: Where that is.
        line: Where the first match is, from 1; absent where no word was found.
        item_id: Of an item.
        item: The item as it is.
        snippet: A piece of the text, as it stands there, around the most matches.
        cut: Whether the snippet is not all.
        matches: Where words stand in the snippet: first and behind the last, in
            characters.
        matched: ``all`` or ``any`` of the words; ``vector``: none, but its meaning.
        score: Higher is better; of use only among the hits of one search.
        rank: Place among the hits, from 1.
        updated_at: When the text came to be, ISO 8601, UTC.
        lane: Who wrote it last; for history and archives, who replaced it.
        text_rank: Place by words alone, where vectors counted, too.
        vector_rank: Place by meaning alone.
        history_id: Of the kept text.
        pass_id: Of the condense pass.

    """

    kind: HitKind
    label: str
    scope: Scope
    line: int | Unset = UNSET
    item_id: str | Unset = UNSET
    item: Item | Unset = UNSET
    snippet: str
    cut: SnippetCut
    matches: tuple[tuple[int, int], ...]
    matched: Matched
    score: float
    rank: int
    updated_at: str
    lane: str
    text_rank: int | Unset = UNSET
    vector_rank: int | Unset = UNSET
    history_id: str | Unset = UNSET
    pass_id: str | Unset = UNSET

    def __repr__(self) -> str:
        # Without the snippet: no text belongs in a log line.
        return f"SearchHit({self.kind!r}, {self.label!r}, rank={self.rank})"


class SearchResult(Model):
    """The hits, best first.

    Attributes:
        hits: At most as many as were asked for.
        more: Whether there is another one.
        semantic: Whether meanings counted: ``off``, ``on``; ``partial`` where some
            texts have no vector yet, ``failed`` where the embedder did.
        unembedded: How many those are.
        degraded: The index cannot be read, and all texts were looked at instead.

    """

    hits: tuple[SearchHit, ...]
    more: bool
    semantic: Semantic
    unembedded: int
    degraded: bool | Unset = UNSET


class IndexReport(Model):
    """What a call has brought up to date, and what is left."""

    indexed: int
    pending: int
    embedded: int
    unembedded: int
