"""What is searched: slots as a read sees them, sets of a key, the past of one slot."""

from collections.abc import Sequence
from typing import NamedTuple

from crdtmem.errors import SlotNotFoundError
from crdtmem.limits import HISTORY_PAGE_MAX, SETS_MAX
from crdtmem.model import UNSET, Unset
from crdtmem.models import Scope
from crdtmem.partition import short_form
from crdtmem.scope import namespace_of, scope_of
from crdtmem.search.values import HitKind
from crdtmem.session import Session
from crdtmem.sets.values import Binding
from crdtmem.store.condensed import parts_of_pass
from crdtmem.store.connection import Connection
from crdtmem.store.history import entries_of
from crdtmem.store.passes import passes_of
from crdtmem.store.search import (
    SlotPlace,
    doc_token,
    partition_token,
    slot_places,
    slots_token,
)
from crdtmem.store.sets import SetPlace, find_set, sets_of
from crdtmem.store.slots import find_slot

__all__ = ["Place", "Searched", "archives_of", "past_of", "sets_in", "slots_in"]

# Up to so many docs the index is asked for each of them, instead of for all of a
# namespace or a key.
_NAMED_DOCS = 8


class Place(NamedTuple):
    """A text, or a set of texts, that is searched.

    Attributes:
        kind: Of its hits.
        doc: Where its texts are; 0 if they are in ``file``.
        label: Of the slot, or the set's name.
        scope: Of either.
        updated_ms: Of the text; a set's items have their own.
        lane: Likewise.
        file: A text that no doc has any more.
        history_id: Of a kept text.
        pass_id: Of a condense pass.

    """

    kind: HitKind
    doc: int
    label: str
    scope: Scope
    updated_ms: int = 0
    lane: str = ""
    file: str = ""
    history_id: str | Unset = UNSET
    pass_id: str | Unset = UNSET

    @property
    def name(self) -> tuple[str, ...]:
        """What tells it from all others."""
        ids = str(self.history_id), str(self.pass_id)
        return (self.label, self.scope, self.kind, *ids)


class Searched(NamedTuple):
    """All places of a search, and the scopes of the index that hold their rows."""

    places: list[Place]
    scopes: list[str]

    def joined(self, other: "Searched") -> "Searched":
        """Return the places of both."""
        return Searched(self.places + other.places, self.scopes + other.scopes)


def slots_in(
    connection: Connection, session: Session, scope: Scope | None, label: str | None
) -> Searched:
    """Return the slots that a read would find: without a scope, hidden ones not."""
    scopes: list[Scope] = [scope] if scope else ["project", "global"]
    found: dict[str, SlotPlace] = {}
    for each in scopes:
        for slot in slot_places(connection, namespace_of(each, session.project)):
            if label in (None, slot.label):
                found.setdefault(slot.label, slot)
    places = [
        Place(
            "slot",
            slot.doc,
            slot.label,
            scope_of(slot.namespace),
            slot.updated_ms,
            slot.lane,
        )
        for slot in found.values()
    ]
    namespaces = {slot.namespace for slot in found.values()}
    return _searched(places, [slots_token(name) for name in sorted(namespaces)])


def sets_in(
    connection: Connection, binding: Binding, names: Sequence[str] | None
) -> Searched:
    """Return the sets of a key: all of them, or those of some names."""
    key_short = short_form(binding.encoded_key)
    if names is None:
        rows = sets_of(connection, binding.namespace, key_short, SETS_MAX)
        # Another key with the same short form has its sets for itself.
        docs = {
            row.name: row.doc for row in rows if row.key_long == binding.encoded_key
        }
    else:
        where = binding.namespace, binding.encoded_key
        found = {name: find_set(connection, SetPlace(*where, name)) for name in names}
        docs = {name: row.doc for name, row in found.items() if row is not None}
    places = [Place("item", doc, name, binding.scope) for name, doc in docs.items()]
    return _searched(places, [partition_token(binding.namespace, key_short)])


def _searched(places: list[Place], wide: list[str]) -> Searched:
    few = [doc_token(place.doc) for place in places]
    return Searched(places, few if len(few) <= _NAMED_DOCS else wide)


def past_of(session: Session, label: str, scope: Scope | None) -> Searched:
    """Return the kept past texts of a slot, deleted or not.

    Raises:
        SlotNotFoundError: If there is no such slot.

    """
    place = session.find_place(label, scope, with_deleted=True)
    if place is None:
        raise SlotNotFoundError(label=label, scope=scope)
    with session.store.snapshot() as connection:
        row = find_slot(connection, *place)
        entries = entries_of(connection, row.doc) if row else []
    return Searched(
        [
            Place(
                "history",
                0,
                label,
                scope_of(place.namespace),
                entry.at_ms,
                entry.lane,
                entry.file,
                history_id=entry.id,
            )
            for entry in entries
        ],
        [],
    )


def archives_of(session: Session, label: str, scope: Scope | None) -> Searched:
    """Return what the newest condense passes took out of a slot."""
    scopes: list[Scope] = [scope] if scope else ["project", "global"]
    namespaces = tuple(namespace_of(each, session.project) for each in scopes)
    with session.store.snapshot() as connection:
        passes = passes_of(
            connection, namespaces, label=label, state=None, limit=HISTORY_PAGE_MAX
        )
        places = [
            Place(
                "archive",
                0,
                label,
                scope_of(row.namespace),
                row.begun_ms,
                row.lane,
                "".join(part.text for part in parts_of_pass(connection, row)),
                pass_id=row.pass_id,
            )
            for row in passes
        ]
    return Searched(places, [])
