"""The pieces of work on a connection: each one transaction of the store."""

from random import Random

from crdtmem.limits import ACK_WAIT_S, SNAPSHOT_WAIT_MAX_S, SNAPSHOT_WAIT_MIN_S
from crdtmem.protocol.client import ClientSession
from crdtmem.protocol.messages import Welcome
from crdtmem.store.compaction import due_docs, seal_snapshot
from crdtmem.store.intake import apply_items
from crdtmem.store.outbox import acknowledge, seal, unsent
from crdtmem.store.rejoin import finish_rebase
from crdtmem.store.store import Store
from crdtmem.sync.namespace import Namespace, Work

__all__ = ["Worker"]


class Worker:
    """Carries out what a namespace has decided on, on one connection.

    Args:
        store: The store.
        session: The connection.
        welcome: The relay's bounds.
        rng: Spreads the snapshots of several stores.

    """

    def __init__(
        self, store: Store, session: ClientSession, welcome: Welcome, rng: Random
    ) -> None:
        self._store = store
        self._session = session
        self._welcome = welcome
        self._rng = rng

    def do(self, namespace: Namespace, work: Work, now: float) -> bool:
        """Do a piece of work.

        Returns:
            Whether the connection can go on; not if the store has taken new ids.

        Raises:
            LinkChangedError: If the store has other ids by now.
            LinkNotFoundError: If the link was removed.
            StoreError: If the store cannot be used now.

        """
        match work:
            case Work.APPLY:
                self._apply(namespace, now)
            case Work.ACKNOWLEDGE:
                self._acknowledge(namespace, now)
            case Work.FINISH_REBASE:
                # Unless it waits for a key, with which the next connection begins.
                namespace.has_tried_rebase = True
                return not finish_rebase(self._store, namespace.link)
            case Work.OFFER:
                self._offer(namespace)
            case Work.SEAL:
                self._seal(namespace)
            case Work.FIND_DUE:
                self._find_due(namespace, now)
            case _:
                self._snapshot(namespace, now)
        return True

    def _apply(self, namespace: Namespace, now: float) -> None:
        was_caught_up = namespace.is_caught_up
        batch = namespace.take_batch()
        items = [item for message in batch for item in message.items]
        report = apply_items(
            self._store, namespace.link, batch[0].first_seq, items, batch[-1].chain
        )
        namespace.cursor = report.cursor
        self._session.applied(namespace.remote, report.cursor)
        if namespace.acks and namespace.acks[0].seq <= report.cursor:
            # The record itself has come by, which says as much.
            namespace.acks.clear()
        namespace.note_change(now, is_own=not report.applied)
        if namespace.is_caught_up and not was_caught_up:
            namespace.is_dirty = True

    def _acknowledge(self, namespace: Namespace, now: float) -> None:
        ack = namespace.acks.pop()
        acknowledge(self._store, namespace.link, ack.replica_seq, ack.seq, ack.chain)
        namespace.note_change(now, is_own=True)

    def _offer(self, namespace: Namespace) -> None:
        room = self._welcome.window_records - self._session.in_flight(namespace.remote)
        offered = unsent(
            self._store,
            namespace.link,
            after=namespace.sent,
            records=max(1, room),
            octets=self._welcome.window_bytes,
        )
        taken = self._session.put(namespace.remote, [o.record for o in offered])
        if taken:
            namespace.sent = offered[taken - 1].replica_seq
        namespace.has_offer = taken > 0
        namespace.is_window_full = taken < len(offered)

    def _seal(self, namespace: Namespace) -> None:
        sealed = seal(
            self._store,
            namespace.link,
            max_update_bytes=self._welcome.max_update,
            max_snapshot_bytes=self._welcome.max_snapshot,
            may_seal_states=namespace.is_caught_up,
        )
        if sealed:
            namespace.has_offer = True
            return
        namespace.is_dirty = False
        if namespace.is_shut and namespace.is_caught_up:
            namespace.is_shut = False
            self._session.resume_puts(namespace.remote)

    def _find_due(self, namespace: Namespace, now: float) -> None:
        """Plan snapshots: at once if the change was ours, else if nobody else does."""
        found = due_docs(self._store, namespace.link)
        wait_s = 0.0
        if not namespace.wrote_last:
            wait_s = self._rng.uniform(SNAPSHOT_WAIT_MIN_S, SNAPSHOT_WAIT_MAX_S)
        namespace.take_due(found, now + wait_s)

    def _snapshot(self, namespace: Namespace, now: float) -> None:
        """Make the next snapshot, unless another store has made it meanwhile."""
        doc = min(namespace.due, key=namespace.due.__getitem__)
        del namespace.due[doc]
        if namespace.acks or self._session.in_flight(namespace.remote):
            # The one before is noted first: none is sealed while anything is unsent.
            namespace.due[doc] = now + ACK_WAIT_S
            return
        if doc not in due_docs(self._store, namespace.link):
            return
        if seal_snapshot(
            self._store,
            namespace.link,
            doc,
            max_snapshot_bytes=self._welcome.max_snapshot,
        ):
            namespace.has_offer = True
        else:
            # Something is on its way, or the doc cannot be sealed just now.
            namespace.note_change(now, is_own=namespace.wrote_last)
