"""A slot's text that is worth condensing, and what is done with it.

It has a header, a pinned section, six sections that a pass of these tests takes out,
and two that it keeps. All but the headings is text of several scripts.
"""

import json

from crdtmem.store.events import events_of

__all__ = [
    "BODY",
    "CONDENSED",
    "PLAN",
    "SUMMARY",
    "begin",
    "commit",
    "events",
    "framed",
    "pins",
    "section",
]

BODY = "ça et là: 日本 🗻 was written at some length\n" * 4
HEAD = "# Plan ✓\nwhat we do\n\n## Pinned facts (never condensed)\n- keep mé\n"
SUMMARY = "the summary: 要約"


def section(name: str) -> str:
    """Return a section."""
    return f"## {name}\n{BODY}"


PLAN = f"{HEAD}\n## Recent\n\n{''.join(map(section, 'abcdefgh'))}".removesuffix("\n")
CONDENSED = (
    f"{HEAD}- a fact\n\n## Condensed history\n{SUMMARY}\n\n## Recent\n\n"
    f"{section('g')}{section('h')}"
).removesuffix("\n")
"""The text when nobody else has written: ``a`` to ``f`` are gone."""


def begin(slot, **options):
    """Begin a pass that keeps two sections."""
    return slot.begin_condense(
        **{"force": True, "keep_sections": 2, "keep_pct": 50, **options}
    )


def commit(slot, begun, summary=SUMMARY, facts=("a fact",)):
    """Commit a pass."""
    return slot.commit_condense(begun.id, summary, facts)


def framed(pass_id, summary=SUMMARY, facts="- a fact"):
    """Return a reply as a model is told to give it."""
    return (
        f"<<<crdtmem:summary {pass_id}>>>\n{summary}\n"
        f"<<<crdtmem:facts {pass_id}>>>\n{facts}\n<<<crdtmem:end {pass_id}>>>\n"
    )


def events(memory, *kinds):
    """Return kind and details of the events, oldest first."""
    with memory.store.reading() as connection:
        found = events_of(connection, kinds=kinds)
    return [(event.kind, json.loads(event.details)) for event in found]


def pins(memory):
    """Return how many pins and kept steps there are."""
    with memory.store.reading() as connection:
        return (
            connection.execute("SELECT count(*) FROM pin").get,
            connection.execute("SELECT count(*) FROM pin_step").get,
        )
