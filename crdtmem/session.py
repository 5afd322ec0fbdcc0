"""What a Memory and its Slots share: the store, who asks, and what they have seen."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from crdtmem.errors import SlotNotFoundError, StoreError
from crdtmem.models import UNSET, Scope, SlotView, Unseen, Unset
from crdtmem.scope import (
    GLOBAL_NAMESPACE,
    TEMPLATES,
    namespace_of,
    scope_of,
    template_for,
)
from crdtmem.store.connection import Connection
from crdtmem.store.history import entries_of
from crdtmem.store.rows import EntryRow, SlotRow
from crdtmem.store.seen import load_seen as stored_seen, save_seen
from crdtmem.store.slots import empty_slot, find_slot, find_slot_and_hidden, slots_of
from crdtmem.store.store import Reading, Store
from crdtmem.views import iso_time, lanes_in, slot_view

if TYPE_CHECKING:
    from crdtmem.sets.observing import Observations
    from crdtmem.store.write import Transaction

__all__ = ["Place", "Seen", "Session", "Writing", "others_since"]


class Place(NamedTuple):
    """Where a slot is: bound once, so that nothing redirects a handle later."""

    namespace: str
    label: str


class Seen:
    """Which rev of each slot the lane last saw.

    Read from the store at first use, written with the lane's next commit. A crash in
    between makes it older: then too much is reported as unseen, never too little.
    """

    def __init__(self) -> None:
        self.revs: dict[Place, int] = {}
        self.unsaved: dict[Place, int | None] = {}
        self.is_loaded = False

    def saw(self, place: Place, rev: int) -> None:
        """Note that the lane has seen a slot's text at a rev."""
        if self.revs.get(place) != rev:
            self.revs[place] = self.unsaved[place] = rev

    def forget(self) -> None:
        """Note that the lane has seen nothing."""
        self.unsaved.update(dict.fromkeys(self.revs))
        self.revs.clear()


class Writing:
    """A write transaction, and what the lane will have seen when it is committed."""

    def __init__(self, transaction: "Transaction") -> None:
        self.transaction = transaction
        self.saw: dict[Place, int] = {}


class Session:
    """One handle's view of a store.

    Args:
        store: The store.
        lane: Who writes.
        project: The project id; also the namespace of project slots.
        project_source: How the project was found.
        condense: Knobs of CondenseConfig, where they are not its defaults.

    Attributes:
        seen: What the lane has seen.
        observations: Records of memory sets that wait; None before the first.

    """

    observations: "Observations | None" = None

    def __init__(
        self,
        store: Store,
        lane: str,
        project: str,
        project_source: str = "option",
        *,
        condense: Mapping[str, Any] | None = None,
    ) -> None:
        self.store = store
        self.lane = lane
        self.project = project
        self.project_source = project_source
        # Not the class itself, which would be loaded by who only reads.
        self.condense = dict(condense or {})
        self.seen = Seen()

    def place_of(self, label: str, scope: Scope) -> Place:
        """Return where a label of a scope is."""
        return Place(namespace_of(scope, self.project), label)

    def reading(self) -> Reading:
        """Give the connection, with what the lane has seen at hand."""
        if not self.seen.is_loaded:
            with self.store.reading() as connection:
                self.load_seen(connection)
        return self.store.reading()

    @contextmanager
    def writing(self) -> Iterator["Writing"]:
        """Give a write transaction; what was seen is saved with it."""
        with self.store.writing() as transaction:
            self.load_seen(transaction.connection)
            writing = Writing(transaction)
            yield writing
            if transaction.has_written:
                self._save_seen(transaction, writing.saw)
        # Only now: a rev that was not committed may come to mean another text.
        for place, rev in writing.saw.items():
            self.seen.saw(place, rev)
        if transaction.has_written:
            self.seen.unsaved.clear()

    def close(self) -> None:
        """Save what the lane has seen, if nobody is in the way, and close the store.

        Without it more is reported as unseen, so it is worth no wait and no error.
        """
        is_worth_it = self.seen.unsaved and not self.store.is_closed
        try:
            if is_worth_it and not self.store.read_only:
                self.store.busy_timeout_s = 0
                with suppress(StoreError), self.store.writing() as transaction:
                    self._save_seen(transaction, {})
        finally:
            self.store.close()

    def _save_seen(self, transaction: "Transaction", more: dict[Place, int]) -> None:
        places = {
            (place.namespace, place.label): rev
            for place, rev in (self.seen.unsaved | more).items()
        }
        save_seen(transaction.connection, self.lane, places)

    def load_seen(self, connection: Connection) -> None:
        """Read what the lane has seen, once."""
        if self.seen.is_loaded:
            return
        for (namespace, label), rev in stored_seen(connection, self.lane).items():
            self.seen.revs.setdefault(Place(namespace, label), rev)
        self.seen.is_loaded = True

    def find(self, connection: Connection, place: Place) -> SlotRow | None:
        """Return a live slot: its row, that of its template, or None."""
        row = find_slot(connection, place.namespace, place.label)
        if row is None:
            return self.template(place)
        return None if row.is_deleted else row

    def view(self, place: Place) -> SlotView:
        """Return a live slot as a reader sees it, which counts as seen.

        Raises:
            SlotNotFoundError: If it is deleted, or was never made.

        """
        with self.reading() as connection:
            row, shadows = self.look(connection, place)
            if row is None:
                scope = scope_of(place.namespace)
                raise SlotNotFoundError(label=place.label, scope=scope)
            unseen = self.unseen(connection, row, self.seen.revs.get(place))
            self.seen.saw(place, row.rev)
        return slot_view(row, shadows=shadows, unseen=unseen)

    def look(self, connection: Connection, place: Place) -> tuple[SlotRow | None, bool]:
        """Return a live slot, and whether it hides a global one; see find."""
        if place.namespace != self.project:
            return self.find(connection, place), False
        row, hidden = find_slot_and_hidden(connection, *place, GLOBAL_NAMESPACE)
        if row is None:
            row = self.template(place)
            return row, row is not None and self.shadows(connection, row)
        if hidden is None:
            hidden = template_for("global", place.label) is not None
        return (None, False) if row.is_deleted else (row, hidden)

    def visible_rows(self, scope: Scope | None, *, templates: bool) -> list[SlotRow]:
        """Return live rows by label; without a scope, hidden ones are left out."""
        scopes: list[Scope] = [scope] if scope else ["global", "project"]
        rows: dict[str, SlotRow] = {}
        for each in scopes:
            for row in self.live_rows(each, templates=templates):
                # A template, which has no doc, hides no slot that somebody wrote.
                if row.doc or row.label not in rows:
                    rows[row.label] = row
        return [rows[label] for label in sorted(rows)]

    def live_rows(self, scope: Scope, *, templates: bool = True) -> list[SlotRow]:
        """Return the live rows of a scope, by label; templates have none, but count."""
        namespace = namespace_of(scope, self.project)
        with self.store.reading() as connection:
            rows = slots_of(connection, namespace)
        written = {row.label for row in rows}
        live = [row for row in rows if not row.is_deleted]
        if templates:
            for template in TEMPLATES.values():
                if template.scope == scope and template.label not in written:
                    place = Place(namespace, template.label)
                    row = self.template(place)
                    live += [row] if row else []
        return live

    def find_place(
        self, label: str, scope: Scope | None, *, with_deleted: bool
    ) -> Place | None:
        """Return where a label is, or None; see slot for the order."""
        scopes: list[Scope] = [scope] if scope else ["project", "global"]
        places = [self.place_of(label, each) for each in scopes]
        with self.store.reading() as connection:
            rows = [find_slot(connection, p.namespace, p.label) for p in places]
        for place, row in zip(places, rows, strict=True):
            if row is not None and not row.is_deleted:
                return place
        for place, row in zip(places, rows, strict=True):
            if row is None and self.template(place) is not None:
                return place
        for place, row in zip(places, rows, strict=True):
            if row is not None and with_deleted:
                return place
        return None

    def shadows(self, connection: Connection, row: SlotRow) -> bool:
        """Tell whether a slot is one of the project and hides a global one."""
        if row.namespace != self.project:
            return False
        hidden = self.find(connection, self.place_of(row.label, "global"))
        return hidden is not None

    def template(self, place: Place) -> SlotRow | None:
        """Return the row that a default slot would have before its first write."""
        scope: Scope = "project" if place.namespace == self.project else "global"
        if template_for(scope, place.label) is None:
            return None
        return empty_slot(place.namespace, place.label, self.store.clock_ms())

    def unseen(
        self, connection: Connection, row: SlotRow, since: int | None
    ) -> Unseen | Unset:
        """Return what others changed since a rev; UNSET for nothing, or no rev."""
        if since is None or row.rev <= since:
            return UNSET
        # Not those of a commit that came after the row was read.
        entries = [e for e in entries_of(connection, row.doc) if e.rev < row.rev]
        others = others_since(entries, since, self.lane)
        pruned = (row.rev - since) - sum(1 for e in entries if e.rev >= since)
        if not others and not pruned:
            return UNSET
        lanes = {lane for entry in others for lane in lanes_in(entry)}
        return Unseen(
            since_rev=since,
            commits=len(others) + pruned,
            lanes=tuple(sorted(lanes)),
            at=iso_time(others[0].at_ms) if others else iso_time(row.updated_ms),
        )


def others_since(entries: list[EntryRow], since: int, lane: str) -> list[EntryRow]:
    """Return the commits after a rev that are not all by one lane, newest first."""
    return [e for e in entries if e.rev >= since and lanes_in(e) != [lane]]
