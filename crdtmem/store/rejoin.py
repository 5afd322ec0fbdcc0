"""What a join tells: go on, give the relay back what it lost, or leave ids behind.

A relay that was restored, or that is another one, lacks records that it had
acknowledged. Whoever has what they said sends it again as states (re-establish).

Ids that were used elsewhere with other content are worse: one clock of one client has
two contents, and whoever has met one of them never takes the other. It happens to a
store that was put back to an older copy, or that lives twice. Then what the relay does
not have yet is taken back out of its docs and written anew under ids of its own, once
all that the relay has is here (rebase). Readers see the text with those writes in it
all the while.

Each function is one transaction, and may be repeated after a crash.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any

import apsw

from crdtmem.errors import CrdtmemError
from crdtmem.limits import SAMPLES_MAX
from crdtmem.protocol.messages import NO_RECORD_ID, Joined
from crdtmem.protocol.relaying import Sample
from crdtmem.store.forked import note_locked
from crdtmem.store.intake import take_held, take_unlocked
from crdtmem.store.links import (
    Link,
    add_alarm,
    complete_tags,
    docs_with_content,
    link_at,
    link_in,
    link_of,
    links_in,
    mark_state_needed,
    note_doc,
)
from crdtmem.store.log import advance_stream
from crdtmem.store.outbox import acknowledge_through, block_doc, reseal_from
from crdtmem.store.rebase import rebase_doc
from crdtmem.store.records import durable_writing
from crdtmem.store.store import Store
from crdtmem.store.write import Transaction

__all__ = [
    "JoinAction",
    "JoinCursor",
    "JoinOutcome",
    "accept_join",
    "decide_join",
    "finish_rebase",
    "join_cursor",
    "ready_links",
    "samples",
    "start_rebase",
]


class JoinAction(Enum):
    """What follows from a join."""

    CONTINUE = "continue"
    REESTABLISH = "reestablish"
    REBASE = "rebase"


@dataclass(frozen=True, slots=True)
class JoinCursor:
    """What the store says of itself in a join; the fields are those of the message."""

    namespace: str
    epoch: bytes
    seq: int
    chain: bytes
    own_seq: int


@dataclass(frozen=True, slots=True)
class JoinOutcome:
    """What a join means.

    Attributes:
        action: What is done.
        needs_new_ids: Whether the store takes new ids: its connections end with that.
        loses_cursor: Whether what was applied may be no longer in the relay's log.
        alarms: Codes of what must not have happened.

    """

    action: JoinAction
    needs_new_ids: bool
    loses_cursor: bool
    alarms: tuple[str, ...]


def ready_links(store: Store) -> list[Link]:
    """Return all links, each on the store's present ids: call it before connecting.

    A store that was copied, moved or started anew since has new ids. What the old
    stream of a link has not brought to the relay goes up as states in the new one.
    What waited for a key that is at hand now is taken in.
    """
    with durable_writing(store) as transaction:
        connection = transaction.connection
        for link in links_in(connection, store.sealers):
            if link.replica_id != transaction.replica:
                _reset_stream(transaction, link)
        for link in links_in(connection, store.sealers):
            if link.sealer is not None:
                complete_tags(connection, link)
                take_unlocked(transaction, store, link)
        return links_in(connection, store.sealers)


def join_cursor(store: Store, link: Link, *, relay_id: bytes) -> JoinCursor:
    """Return what to join with; at another relay than the last, from its beginning.

    Raises:
        LinkChangedError: If the store has other ids by now.
        LinkNotFoundError: If the link was removed.

    """
    with store.snapshot() as connection:
        found = link_at(connection, link)
    cursor = found.cursor
    if relay_id != found.relay_id or not cursor.seq:
        cursor = Sample(0, NO_RECORD_ID)
    return JoinCursor(
        namespace=found.remote,
        epoch=found.epoch or bytes(16),
        seq=cursor.seq,
        chain=cursor.chain,
        own_seq=found.sealed_seq,
    )


def samples(store: Store, link: Link) -> list[Sample]:
    """Return places of the relay's log that are known here, newest first."""
    with store.reading() as connection:
        rows = connection.execute(
            "SELECT seq, chain FROM chain_sample WHERE link = :link"
            " ORDER BY seq DESC LIMIT :most",
            {"link": link.link, "most": SAMPLES_MAX},
        )
        return [Sample(seq, chain) for seq, chain in rows]


def decide_join(
    link: Link,
    joined: Joined,
    *,
    relay_id: bytes,
    epoch: bytes,
    is_rewound: bool,
    own_id: bytes,
) -> JoinOutcome:
    """Say what a join means (protocol, section 5).

    Args:
        link: The link as it is now.
        joined: The relay's answer.
        relay_id: Who the relay is.
        epoch: Since which restore.
        is_rewound: Whether the relay did not know the link's cursor.
        own_id: Id of the store's record that has the answer's ``own_max``; zeros if
            that is 0, or if there is no such record.

    """
    is_lost = joined.own_max < link.acked_seq
    is_other_relay = bool(link.relay_id) and relay_id != link.relay_id
    alarms: list[str] = []
    action = JoinAction.CONTINUE
    if is_other_relay:
        alarms.append("relay-changed")
    elif is_rewound or is_lost:
        alarms.append("relay-restored" if epoch != link.epoch else "relay-forked")
    if alarms:
        action = JoinAction.REESTABLISH
    if not is_lost and joined.own_max > link.sealed_seq:
        alarms.append("store-rolled-back")
        action = JoinAction.REBASE
    elif not is_lost and joined.own_id != own_id:
        alarms.append("replica-fork")
        action = JoinAction.REBASE
    return JoinOutcome(
        action=action,
        needs_new_ids=is_lost or action is JoinAction.REBASE,
        loses_cursor=is_other_relay or is_rewound,
        alarms=tuple(alarms),
    )


def accept_join(
    store: Store,
    link: Link,
    joined: Joined,
    *,
    relay_id: bytes,
    epoch: bytes,
    is_rewound: bool,
) -> JoinOutcome:
    """Do what a join asks for, all of it at once.

    Whoever the relay is, its log is read on from where it said. Docs that were blocked
    are tried again.

    Raises:
        LinkChangedError: If the store has other ids by now.
        LinkNotFoundError: If the link was removed.

    """
    with durable_writing(store) as transaction:
        found = link_in(transaction, link)
        connection = transaction.connection
        outcome = decide_join(
            found,
            joined,
            relay_id=relay_id,
            epoch=epoch,
            is_rewound=is_rewound,
            own_id=_own_id(connection, found, joined.own_max),
        )
        _follow(transaction, found, joined, relay_id=relay_id, epoch=epoch)
        if outcome.loses_cursor:
            _rewind(store, transaction, found, _kept_place(found, joined, relay_id))
        _change_stream(transaction, found, joined, outcome)
        detail = f"cursor {found.cursor.seq}, head {joined.head}"
        for code in outcome.alarms:
            add_alarm(transaction, found.link, code, detail)
        return outcome


def start_rebase(store: Store, link: Link, *, alarm: str) -> None:
    """Leave the store's ids behind: the relay has other content of them than this.

    For all links, since ids belong to the store. From here on what comes for the docs
    with unsent writes waits; ``finish_rebase`` takes it, once all that the relay has
    has been read under the new ids.

    Args:
        store: The store.
        link: Whose relay said so.
        alarm: Why: ``replica-fork`` or ``replica-duplicate``.

    Raises:
        LinkChangedError: If the store has other ids by now.
        LinkNotFoundError: If the link was removed.

    """
    with durable_writing(store) as transaction:
        found = link_in(transaction, link)
        _leave_ids(transaction, found.replica_id)
        add_alarm(transaction, found.link, alarm, f"record {found.acked_seq + 1}")


def finish_rebase(store: Store, link: Link) -> bool:
    """Write unsent writes of forked docs anew, then take what has waited for that.

    Call it when the relay's log has been read to its head. The store takes new ids
    once more, so its connections end with it. While a record of such a doc waits for a
    key nothing is done: it may hold a write that would be there twice.

    Returns:
        Whether it was done.

    Raises:
        LinkChangedError: If the store has other ids by now.
        LinkNotFoundError: If the link was removed.

    """
    with durable_writing(store) as transaction:
        found = link_in(transaction, link)
        if not found.is_rebase_due:
            return False
        connection = transaction.connection
        docs = _docs_to_rebase(connection, found)
        locked = [doc for doc in docs if note_locked(connection, found, doc)]
        if locked:
            return False
        connection.execute(
            "UPDATE link SET rebase_due = 0 WHERE link = :link", {"link": found.link}
        )
        transaction.take_new_ids()
        _reset_stream(transaction, found)
        fresh = link_of(connection, found.namespace, store.sealers)
        for doc in docs:
            try:
                with connection:
                    rebase_doc(transaction, found, doc)
            except CrdtmemError as exc:
                # It goes on as it is, and never up; the others need not wait for it.
                store.docs.pop(doc, None)
                transaction.mark_damaged()
                block_doc(connection, found, doc, exc.code)
                continue
            take_held(transaction, store, fresh, doc)
        return True


def _own_id(connection: apsw.Connection, link: Link, replica_seq: int) -> bytes:
    """Return the id of the own record of a number; zeros if there is none."""
    if replica_seq and replica_seq == link.acked_seq:
        return link.acked_id
    found = connection.execute(
        "SELECT record_id FROM outbox WHERE link = :link AND replica_seq = :seq",
        {"link": link.link, "seq": replica_seq},
    ).get
    return NO_RECORD_ID if found is None else bytes(found)


def _follow(
    transaction: Transaction,
    link: Link,
    joined: Joined,
    *,
    relay_id: bytes,
    epoch: bytes,
) -> None:
    """Note who the relay is and where its log is read on; docs are tried again."""
    connection = transaction.connection
    connection.execute(
        "UPDATE link SET relay_id = :relay, epoch = :epoch, cursor_seq = :seq,"
        " cursor_chain = :chain WHERE link = :link",
        {
            "relay": relay_id,
            "epoch": epoch,
            "seq": joined.resume_seq,
            "chain": joined.resume_chain,
            "link": link.link,
        },
    )
    _unblock(connection, link.link)


def _kept_place(link: Link, joined: Joined, relay_id: bytes) -> int:
    """Return up to where what was read is the relay's log still."""
    return joined.resume_seq if relay_id == link.relay_id else 0


def _change_stream(
    transaction: Transaction, link: Link, joined: Joined, outcome: JoinOutcome
) -> None:
    """Go on with the stream from what the relay has of it, or begin another."""
    connection = transaction.connection
    if outcome.action is JoinAction.REBASE:
        _leave_ids(transaction, link.replica_id)
        return
    if outcome.action is JoinAction.CONTINUE:
        acknowledge_through(transaction, link, joined.own_max)
        return
    if outcome.needs_new_ids:
        # What the relay had acknowledged of them it has no more.
        mark_state_needed(connection, link, _outbox_docs(connection, link))
        transaction.take_new_ids()
        _reset_stream(transaction, link)
    else:
        acknowledge_through(transaction, link, joined.own_max)
        reseal_from(transaction, link, joined.own_max + 1)
    unsent = _unsealed_docs(connection, link.namespace)
    mark_state_needed(connection, link, unsent)


def _unblock(connection: apsw.Connection, link: int) -> None:
    """Let all docs be sealed again that were blocked."""
    connection.execute(
        "UPDATE sync_doc INDEXED BY sync_doc_blocked SET blocked = ''"
        " WHERE link = :link AND blocked != ''",
        {"link": link},
    )
    if connection.changes():
        connection.execute(
            "UPDATE link SET sealed_lsn = 0 WHERE link = :link", {"link": link}
        )


def _rewind(store: Store, transaction: Transaction, link: Link, to: int) -> None:
    """Forget what was read behind a place, and mark the docs that it was of.

    Records that have waited there are applied, or put aside: the relay may not have
    them any more, and a doc that goes up as a state need not wait.
    """
    connection = transaction.connection
    values = {"link": link.link, "seq": to, "now": transaction.now_ms}
    mark_state_needed(connection, link, _docs_behind(connection, link, to))
    if not link.is_rebase_due:
        for doc in _docs_held_behind(connection, link, to):
            take_held(transaction, store, link, doc)
    connection.execute(
        "INSERT INTO quarantine(doc, lsn, replica, code, content, at_ms)"
        " SELECT doc, 0, substr(record, 21, 16), iif(code = '', 'rewound', code),"
        " record, :now FROM held WHERE link = :link AND seq > :seq",
        values,
    )
    connection.execute(
        "DELETE FROM held WHERE link = :link AND seq > :seq;"
        "DELETE FROM sync_seen WHERE link = :link AND seq > :seq;"
        "DELETE FROM chain_sample WHERE link = :link AND seq > :seq;"
        "UPDATE sync_doc SET snap_seq = :seq, snap_size = 0 WHERE link = :link"
        " AND snap_seq > :seq;"
        "UPDATE sync_doc SET last_seq = min(last_seq, :seq), live_bytes = 0,"
        " live_records = 0 WHERE link = :link;"
        "UPDATE sync_doc SET held_from = iif(:first, :seq + 1, NULL)"
        " WHERE link = :link AND held_from > :seq",
        {**values, "first": link.rebase_lsn},
    )


def _docs_behind(connection: apsw.Connection, link: Link, seq: int) -> list[int]:
    """Return the docs that records behind a place were of; all, if not known."""
    if seq >= link.cursor.seq:
        return []
    values = {"link": link.link, "seq": seq}
    oldest = connection.execute(
        "SELECT min(seq) FROM sync_seen WHERE link = :link", values
    ).get
    if oldest is None or oldest > seq + 1:
        return docs_with_content(connection, link.namespace)
    rows: list[Any] = connection.execute(
        "SELECT doc FROM sync_doc WHERE link = :link AND doc_tag IN"
        " (SELECT doc_tag FROM sync_seen WHERE link = :link AND seq > :seq)",
        values,
    ).fetchall()
    return [int(doc) for (doc,) in rows]


def _docs_held_behind(connection: apsw.Connection, link: Link, seq: int) -> list[int]:
    rows: list[Any] = connection.execute(
        "SELECT DISTINCT doc FROM held WHERE link = :link AND seq > :seq",
        {"link": link.link, "seq": seq},
    ).fetchall()
    return [int(doc) for (doc,) in rows]


def _outbox_docs(connection: apsw.Connection, link: Link) -> list[int]:
    rows: list[Any] = connection.execute(
        "SELECT DISTINCT doc FROM outbox WHERE link = :link", {"link": link.link}
    ).fetchall()
    return [int(doc) for (doc,) in rows]


def _unsealed_docs(connection: apsw.Connection, namespace: str) -> list[int]:
    rows: list[Any] = connection.execute(
        "SELECT DISTINCT doc FROM log JOIN doc USING (doc)"
        " WHERE replica_seq IS NULL AND namespace = :namespace",
        {"namespace": namespace},
    ).fetchall()
    return [int(doc) for (doc,) in rows]


def _reset_stream(transaction: Transaction, link: Link) -> None:
    """Begin a link's stream anew, under the transaction's ids.

    What the old one did not bring to the relay has no numbers any more.
    """
    connection = transaction.connection
    reseal_from(transaction, link, link.acked_seq + 1)
    connection.execute("DELETE FROM outbox WHERE link = :link", {"link": link.link})
    connection.execute(
        "UPDATE link SET replica = :replica, sealed_seq = 0, sealed_lsn = 0,"
        " acked_seq = 0, acked_id = x'' WHERE link = :link",
        {"replica": transaction.replica, "link": link.link},
    )
    advance_stream(connection, link.namespace, transaction.replica, 0)


def _leave_ids(transaction: Transaction, replica: bytes) -> None:
    """Take new ids in all links, and hold the docs with unsent writes under the old."""
    connection = transaction.connection
    every = links_in(connection, transaction.sealers)
    links = [link for link in every if link.replica_id == replica]
    transaction.take_new_ids()
    for link in links:
        _reset_stream(transaction, link)
        rows: list[Any] = connection.execute(
            "SELECT doc, min(lsn) FROM log JOIN doc USING (doc)"
            " WHERE replica_seq IS NULL AND replica = :replica"
            " AND namespace = :namespace GROUP BY doc",
            {"replica": replica, "namespace": link.namespace},
        ).fetchall()
        for doc, _ in rows:
            note_doc(connection, link, doc)
            connection.execute(
                "UPDATE sync_doc SET held_from = coalesce(held_from, :seq)"
                " WHERE link = :link AND doc = :doc",
                {"seq": link.cursor.seq + 1, "link": link.link, "doc": doc},
            )
        if rows and not link.rebase_lsn:
            connection.execute(
                "UPDATE link SET rebase_due = :lsn WHERE link = :link",
                {"lsn": min(lsn for _, lsn in rows), "link": link.link},
            )


def _docs_to_rebase(connection: apsw.Connection, link: Link) -> list[int]:
    rows: list[Any] = connection.execute(
        "SELECT DISTINCT doc FROM log JOIN sync_doc USING (doc)"
        " WHERE link = :link AND held_from IS NOT NULL AND replica_seq IS NULL"
        " AND lsn >= :first ORDER BY doc",
        {"link": link.link, "first": link.rebase_lsn},
    ).fetchall()
    return [int(doc) for (doc,) in rows]
