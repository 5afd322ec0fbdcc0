"""What the syncing process notes of each link, for whoever asks for the status.

A note is a write to the store, so little is noted: what a person wants to know when it
changes, and how far the relay is once a second at most.
"""

import logging
from typing import NamedTuple

from crdtmem.errors import StoreError
from crdtmem.limits import SYNC_STATUS_S
from crdtmem.store.link_status import save_notes
from crdtmem.store.links import links_of
from crdtmem.store.store import Store
from crdtmem.sync.namespace import Fault

__all__ = ["Journal", "note_fault"]

_LOGGER = logging.getLogger(__name__)


class _Note(NamedTuple):
    """How a link stands; times are in milliseconds since 1970."""

    state: str
    since_ms: int
    head: int = 0
    fault: Fault | None = None
    fault_ms: int = 0
    is_in_sync: bool = False
    in_sync_ms: int | None = None

    def to_json(self) -> dict[str, object]:
        fault = None
        if self.fault is not None:
            fault = {
                "code": self.fault.code,
                "message": self.fault.message,
                "permanent": self.fault.is_permanent,
                "at_ms": self.fault_ms,
            }
        return {
            "state": self.state,
            "since_ms": self.since_ms,
            "head": self.head,
            "fault": fault,
            "is_in_sync": self.is_in_sync,
            "in_sync_ms": self.in_sync_ms,
        }


class Journal:
    """Collects how links stand and writes it down.

    Args:
        store: Where to.

    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._notes: dict[int, _Note] = {}
        self._written: dict[int, _Note] = {}
        self._written_at = 0.0

    def note(
        self,
        link: int,
        state: str,
        *,
        head: int = 0,
        fault: Fault | None = None,
        is_in_sync: bool = False,
    ) -> None:
        """Take note of how a link stands; ``flush`` writes it."""
        now_ms = self._store.clock_ms()
        last = self._notes.get(link) or _Note("", now_ms)
        self._notes[link] = _Note(
            state=state,
            since_ms=last.since_ms if state == last.state else now_ms,
            head=max(head, last.head),
            fault=fault,
            fault_ms=last.fault_ms if fault == last.fault else now_ms,
            is_in_sync=is_in_sync,
            in_sync_ms=now_ms
            if is_in_sync and not last.is_in_sync
            else last.in_sync_ms,
        )

    def flush(self, now: float) -> None:
        """Write what has changed: at once what matters, the rest after a while."""
        changed = {
            link: note
            for link, note in self._notes.items()
            if note != self._written.get(link)
        }
        is_due = now >= self._written_at + SYNC_STATUS_S
        if not changed or not (is_due or any(map(self._is_news, changed))):
            return
        self._written_at = now
        try:
            save_notes(
                self._store, {link: note.to_json() for link, note in changed.items()}
            )
        except StoreError:
            # Sync itself goes on: who asks is told later.
            _LOGGER.warning("the state of sync could not be noted", exc_info=True)
            return
        self._written.update(changed)

    def _is_news(self, link: int) -> bool:
        new, old = self._notes[link], self._written.get(link)
        return old is None or (new.state, new.fault, new.is_in_sync) != (
            old.state,
            old.fault,
            old.is_in_sync,
        )


def note_fault(store: Store, code: str, message: str) -> None:
    """Note on every link why nothing is synced for now."""
    journal = Journal(store)
    for link in links_of(store):
        fault = Fault(code, message, is_permanent=False)
        journal.note(link.link, "waiting", fault=fault)
    journal.flush(0.0)
