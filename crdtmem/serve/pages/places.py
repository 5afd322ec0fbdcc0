"""Which slot an address names, and how a slot, a lane and a size look everywhere."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Final, cast

from crdtmem.models import Headroom, Scope
from crdtmem.scope import parse_scope
from crdtmem.serve.markup import Child, h
from crdtmem.serve.pages.layout import Visit
from crdtmem.serve.text import inline, shown_line
from crdtmem.slot import Slot

__all__ = [
    "editor_states",
    "editors_of",
    "hue_of",
    "lane_tag",
    "lines_of",
    "meter",
    "place_of",
    "slot_path",
]

_HUES: Final = 24


def place_of(visit: Visit) -> Slot:
    """Return the slot that the address names.

    Raises:
        InvalidArgumentError: If the label or the scope is malformed.

    """
    scope: Scope | None = parse_scope(visit.ask.params["scope"], optional=True)
    return visit.memory.slot(visit.ask.params["label"], scope)


def slot_path(visit: Visit, slot: Slot, *more: str, **query: str | int | None) -> str:
    """Return the address of a page of a slot."""
    return visit.path("slots", slot.scope, slot.label, *more, **query)


def meter(room: Headroom) -> Child:
    """Return how full something is, as a bar and in figures."""
    bar = h(
        "meter",
        {
            "min": 0,
            "max": max(1, room.size_limit),
            "low": max(1, room.size_limit * 7 // 10),
            "high": max(1, room.size_limit * 9 // 10),
            "optimum": 0,
            "value": room.size,
            "aria-label": f"{room.pct_used} % used",
        },
    )
    figures = f" {room.pct_used} % · {room.free:,} free"
    return h("span", {"class": "room"}, bar, figures)


def lane_tag(lane: str | None) -> Child:
    """Return a lane's name in its colour; the name is what tells."""
    if lane is None:
        return h("span", {"class": "lane"}, "unknown")
    return h("span", {"class": f"lane {hue_of(lane)}"}, inline(lane))


@lru_cache(maxsize=1024)
def hue_of(lane: str | None) -> str:
    """Return the class of a lane's colour."""
    digest = sha256((lane or "").encode()).digest()
    hue = int.from_bytes(digest[:4], "big") % _HUES
    return f"hue{hue}"


def lines_of(text: str) -> Child:
    """Return a text without numbers and authors, to read and to copy from."""
    lines = [
        h("div", {"class": "line", "dir": "auto"}, shown_line(line)[0])
        for line in text.removesuffix("\n").split("\n")
    ]
    return h("div", {"class": "text plain"}, lines)


def editor_states(visit: Visit, label: str, scope: Scope) -> list[Mapping[str, object]]:
    """Return what is known of those who have a slot open in an editor."""
    return [
        state
        for state in visit.editors
        if (state["label"], state["scope"]) == (label, scope)
    ]


def editors_of(visit: Visit, label: str, scope: Scope) -> list[str]:
    """Return the names of those who have a slot open in an editor."""
    return [
        str(editor["lane"])
        for state in editor_states(visit, label, scope)
        for editor in cast("Sequence[Mapping[str, object]]", state["editors"])
    ]
