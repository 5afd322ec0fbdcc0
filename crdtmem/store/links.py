"""Links: which namespace of the store is synced with which relay, and how far it is.

A link is read once per connection and handed back with every call. Ids belong to a
store, and numbers to a stream of records under these ids: a call that comes with ids
which the store has given up meanwhile is refused, so nothing that was said about an
old stream is taken for the new one.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import apsw

from crdtmem.errors import (
    LinkChangedError,
    LinkExistsError,
    LinkNotFoundError,
    UnsentWritesError,
)
from crdtmem.limits import ALARMS_KEPT_MAX
from crdtmem.protocol.records import doc_tag
from crdtmem.protocol.relaying import Sample
from crdtmem.store.log import WITHIN_STATE, advance_stream
from crdtmem.store.store import Store

if TYPE_CHECKING:
    from crdtmem.sealing import Sealer
    from crdtmem.store.write import Transaction

    Sealers = Mapping[str, Sealer]

__all__ = [
    "Alarm",
    "Link",
    "UnsentCounts",
    "add_alarm",
    "add_link",
    "clear_alarms",
    "complete_tags",
    "count_unsent",
    "docs_with_content",
    "find_link",
    "link_at",
    "link_in",
    "link_of",
    "links_in",
    "links_of",
    "mark_state_needed",
    "note_doc",
    "remove_link",
    "tag_of",
]

NO_TAG = b""
"""Stands for the tag of a doc that cannot be told without a key."""

NO_SEALERS: "Sealers" = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something that must not happen, and did; stands until somebody clears it."""

    code: str
    at_ms: int
    detail: str


@dataclass(frozen=True, slots=True)
class Link:
    """A link as it was when it was read.

    Attributes:
        link: Its number; the key of everything that belongs to it.
        namespace: The namespace here: a project id, or ``global``.
        remote: What the relay calls it.
        url: Of the relay.
        token_file: Where the token lies; empty where the environment has it.
        options: What the user chose; JSON types.
        relay_id: Who the relay was at the last join; empty before the first.
        epoch: Since which restore; likewise.
        cursor: Up to where the relay's log has been applied here.
        replica_id: The store's ids under which its stream of records runs.
        sealed_seq: Newest record of that stream.
        sealed_lsn: Up to where the log has nothing to seal.
        acked_seq: Newest one that the relay has acknowledged.
        acked_id: Its record id; empty for none.
        rebase_lsn: First step that must be written anew under other ids; 0 for none.
        skipped: Records of kinds that this version leaves alone.
        alarms: Oldest first.
        key_id: Newest key that the writers of an encrypted namespace were told of.
        sealer: Opens and seals what is encrypted; None where its keys are not at hand.

    """

    link: int
    namespace: str
    remote: str
    url: str
    token_file: str
    options: Mapping[str, Any]
    relay_id: bytes
    epoch: bytes
    cursor: Sample
    replica_id: bytes
    sealed_seq: int
    sealed_lsn: int
    acked_seq: int
    acked_id: bytes
    rebase_lsn: int
    skipped: int
    alarms: tuple[Alarm, ...]
    key_id: int = 0
    sealer: "Sealer | None" = field(default=None, compare=False, repr=False)

    @property
    def is_encrypted(self) -> bool:
        """Whether the relay must not be able to read what it keeps."""
        return bool(self.options.get("encrypted"))

    @property
    def is_locked(self) -> bool:
        """Whether nothing can be sent or read, as no key is at hand."""
        return self.is_encrypted and self.sealer is None

    @property
    def is_rebase_due(self) -> bool:
        """Whether own writes wait to be written anew; nothing is sealed till then."""
        return self.rebase_lsn > 0


@dataclass(frozen=True, slots=True)
class UnsentCounts:
    """What the relay does not have yet; a state counts as one write.

    ``oldest_at_ms`` is when the oldest of the writes was made; None for none.
    """

    writes: int
    size_bytes: int
    oldest_at_ms: int | None


def add_link(
    store: Store,
    *,
    namespace: str,
    remote: str,
    url: str,
    token_file: str,
    options: Mapping[str, Any],
) -> Link:
    """Link a namespace to a relay.

    Every doc that it has by now goes up as a state, and from here on the log keeps
    what the relay does not have. A store that has given away records of this namespace
    under its present ids takes new ones: the same numbers must not be used twice.

    Args:
        store: The store.
        namespace: A project id, or ``global``.
        remote: What the relay calls it.
        url: Of the relay.
        token_file: Where the token lies; empty where the environment has it.
        options: JSON types.

    Raises:
        LinkExistsError: If it is linked already; nothing was changed.

    """
    sealer = store.sealers.get(namespace) if options.get("encrypted") else None
    with store.writing() as transaction:
        connection = transaction.connection
        for found in links_in(connection):
            if found.namespace == namespace:
                raise LinkExistsError(
                    local=namespace, remote=found.remote, url=found.url
                )
        if _has_stream(connection, namespace, transaction.replica):
            transaction.take_new_ids()
        connection.execute(
            "INSERT INTO link(namespace, remote, url, token_file, options, replica,"
            " created_ms, key_id) VALUES (:namespace, :remote, :url, :token_file,"
            " :options, :replica, :now, :key)",
            {
                "namespace": namespace,
                "remote": remote,
                "url": url,
                "token_file": token_file,
                "options": json.dumps(dict(options)),
                "replica": transaction.replica,
                "now": transaction.now_ms,
                "key": 0 if sealer is None else sealer.ids[-1],
            },
        )
        link = link_of(connection, namespace, store.sealers)
        advance_stream(connection, namespace, transaction.replica, 0)
        mark_state_needed(connection, link, docs_with_content(connection, namespace))
        return link


def remove_link(store: Store, link: Link, *, force: bool = False) -> None:
    """Take a link away; the data stays, and so do records that could not be applied.

    The store takes new ids: the stream that ends here is never taken up again.

    Args:
        store: The store.
        link: The link.
        force: Also while the relay lacks writes.

    Raises:
        LinkNotFoundError: If there is no such link.
        UnsentWritesError: If the relay lacks writes, without force; nothing was
            changed.

    """
    with store.writing() as transaction:
        connection = transaction.connection
        found = link_of(connection, link.namespace)
        unsent = count_unsent(connection, found).writes
        if unsent and not force:
            raise UnsentWritesError(local=found.namespace, writes=unsent)
        values = {"link": found.link, "now": transaction.now_ms}
        connection.execute(
            "INSERT INTO quarantine(doc, lsn, replica, code, content, at_ms)"
            " SELECT doc, 0, substr(record, 21, 16),"
            " iif(code = '', 'unlinked', code), record, :now"
            " FROM held WHERE link = :link",
            values,
        )
        connection.execute(
            "DELETE FROM held WHERE link = :link;"
            "DELETE FROM outbox WHERE link = :link;"
            "DELETE FROM sync_seen WHERE link = :link;"
            "DELETE FROM chain_sample WHERE link = :link;"
            "DELETE FROM sync_doc WHERE link = :link;"
            "DELETE FROM link WHERE link = :link",
            {"link": found.link},
        )
        connection.execute(
            "DELETE FROM stream WHERE namespace = :namespace",
            {"namespace": found.namespace},
        )
        transaction.take_new_ids()


def links_of(store: Store) -> list[Link]:
    """Return all links, oldest first."""
    with store.reading() as connection:
        return links_in(connection, store.sealers)


def find_link(store: Store, namespace: str) -> Link:
    """Return the link of a namespace.

    Raises:
        LinkNotFoundError: If it is not linked.

    """
    with store.reading() as connection:
        return link_of(connection, namespace, store.sealers)


def links_in(
    connection: apsw.Connection, sealers: "Sealers" = NO_SEALERS
) -> list[Link]:
    """Return all links, as links_of, where a connection is at hand."""
    rows = connection.execute(
        "SELECT link, namespace, remote, url, token_file, options, relay_id, epoch,"
        " cursor_seq, cursor_chain, replica, sealed_seq, sealed_lsn, acked_seq,"
        " acked_id, rebase_due, skipped, alarms, key_id FROM link ORDER BY link"
    )
    return [
        replace(link, sealer=sealers.get(link.namespace)) if link.is_encrypted else link
        for link in (_read(*row) for row in rows)
    ]


def link_of(
    connection: apsw.Connection, namespace: str, sealers: "Sealers" = NO_SEALERS
) -> Link:
    """Return a namespace's link, as find_link, where a connection is at hand."""
    for found in links_in(connection, sealers):
        if found.namespace == namespace:
            return found
    raise LinkNotFoundError(local=namespace)


def link_at(connection: apsw.Connection, link: Link) -> Link:
    """Return a link as it is now, for work that was begun with it.

    Raises:
        LinkNotFoundError: If it has been removed.
        LinkChangedError: If the store has other ids than when it was read.

    """
    replica = connection.execute("SELECT replica FROM store").get
    for found in links_in(connection):
        if found.link == link.link:
            if not link.replica_id == found.replica_id == replica:
                raise LinkChangedError(local=link.namespace)
            return replace(found, sealer=link.sealer)
    raise LinkNotFoundError(local=link.namespace)


def link_in(transaction: "Transaction", link: Link) -> Link:
    """Do what link_at does, in a write transaction."""
    return link_at(transaction.connection, link)


def add_alarm(transaction: "Transaction", link: int, code: str, detail: str) -> None:
    """Add an alarm to a link, unless it stands there."""
    connection = transaction.connection
    alarms = json.loads(
        connection.execute(
            "SELECT alarms FROM link WHERE link = :link", {"link": link}
        ).get
    )
    if any(alarm["code"] == code and alarm["detail"] == detail for alarm in alarms):
        return
    alarms.append({"code": code, "at": transaction.now_ms, "detail": detail})
    connection.execute(
        "UPDATE link SET alarms = :alarms WHERE link = :link",
        {"link": link, "alarms": json.dumps(alarms[-ALARMS_KEPT_MAX:])},
    )


def clear_alarms(store: Store) -> None:
    """Take the alarms off all links."""
    with store.writing() as transaction:
        transaction.connection.execute("UPDATE link SET alarms = '[]'")


def tag_of(link: Link, doc_kind: int, name: str) -> bytes:
    """Return what stands for a doc in the headers of its records; NO_TAG if unknown."""
    if not link.is_encrypted:
        return doc_tag(doc_kind, name)
    return NO_TAG if link.sealer is None else link.sealer.doc_tag(doc_kind, name)


def note_doc(connection: apsw.Connection, link: Link, doc: int) -> None:
    """Make the row of what sync knows of a doc, unless there is one."""
    for kind, name in connection.execute(
        "SELECT kind, name FROM doc WHERE doc = :doc", {"doc": doc}
    ):
        connection.execute(
            "INSERT OR IGNORE INTO sync_doc(link, doc, doc_tag)"
            " VALUES (:link, :doc, :tag)",
            {"link": link.link, "doc": doc, "tag": tag_of(link, kind, name)},
        )


def complete_tags(connection: apsw.Connection, link: Link) -> None:
    """Note the tags of docs that were noted while no key was at hand."""
    rows: list[Any] = connection.execute(
        "SELECT doc, kind, name FROM sync_doc INDEXED BY sync_doc_tag JOIN doc"
        " USING (doc) WHERE link = :link AND doc_tag = :none",
        {"link": link.link, "none": NO_TAG},
    ).fetchall()
    for doc, kind, name in rows:
        connection.execute(
            "UPDATE sync_doc SET doc_tag = :tag WHERE link = :link AND doc = :doc",
            {"tag": tag_of(link, kind, name), "link": link.link, "doc": doc},
        )


def mark_state_needed(
    connection: apsw.Connection, link: Link, docs: Iterable[int]
) -> None:
    """Note that others can have these docs only as a state."""
    for doc in docs:
        note_doc(connection, link, doc)
        connection.execute(
            "UPDATE sync_doc SET state_needed = 1 WHERE link = :link AND doc = :doc",
            {"link": link.link, "doc": doc},
        )


def docs_with_content(connection: apsw.Connection, namespace: str) -> list[int]:
    """Return the docs of a namespace that hold any record."""
    rows: list[Any] = connection.execute(
        "SELECT doc FROM doc WHERE namespace = :namespace AND (state_lsn > 0"
        " OR EXISTS (SELECT 1 FROM log WHERE log.doc = doc.doc)) ORDER BY doc",
        {"namespace": namespace},
    ).fetchall()
    return [int(doc) for (doc,) in rows]


def count_unsent(connection: apsw.Connection, link: Link) -> UnsentCounts:
    """Count what the relay of a link does not have, from the log and the outbox.

    Steps without a number are behind ``sealed_lsn`` or of a doc that is blocked; those
    with one that the relay lacks are of a doc in the outbox.
    """
    values = {
        "link": link.link,
        "namespace": link.namespace,
        "replica": link.replica_id,
        "sealed": link.sealed_lsn,
        "acked": link.acked_seq,
        "within": WITHIN_STATE,
    }
    # By the steps of the log: of itself SQLite would go through all docs.
    rows: list[Any] = connection.execute(
        "SELECT count(*), coalesce(sum(length(content)), 0), min(at_ms)"
        " FROM log NOT INDEXED CROSS JOIN doc USING (doc)"
        " WHERE lsn > :sealed AND replica_seq IS NULL AND namespace = :namespace"
        " UNION ALL SELECT count(*), coalesce(sum(length(content)), 0), min(at_ms)"
        " FROM log WHERE doc IN (SELECT doc FROM sync_doc INDEXED BY sync_doc_blocked"
        " WHERE link = :link AND blocked != '')"
        " AND lsn <= :sealed AND replica_seq IS NULL"
        " UNION ALL SELECT count(*), coalesce(sum(length(content)), 0), min(at_ms)"
        " FROM log WHERE doc IN (SELECT doc FROM outbox WHERE link = :link"
        " AND record IS NOT NULL) AND replica = :replica AND replica_seq > :acked"
        " AND place != :within"
        " UNION ALL SELECT count(*), coalesce(sum(length(record)), 0), NULL"
        " FROM outbox WHERE link = :link AND record IS NOT NULL AND kind = 2"
        " UNION ALL SELECT count(*), 0, NULL"
        " FROM sync_doc INDEXED BY sync_doc_state_needed"
        " WHERE link = :link AND state_needed AND blocked = '' AND NOT EXISTS"
        " (SELECT 1 FROM log WHERE log.doc = sync_doc.doc AND replica_seq IS NULL)",
        values,
    ).fetchall()
    return UnsentCounts(
        writes=sum(int(writes) for writes, _, _ in rows),
        size_bytes=sum(int(size) for _, size, _ in rows),
        oldest_at_ms=min((at for *_, at in rows if at is not None), default=None),
    )


def _has_stream(connection: apsw.Connection, namespace: str, replica: bytes) -> bool:
    found = connection.execute(
        "SELECT 1 FROM stream WHERE namespace = :namespace AND replica = :replica",
        {"namespace": namespace, "replica": replica},
    ).get
    return found is not None


def _read(*row: Any) -> Link:
    number, namespace, remote, url, token_file, options, relay_id, epoch = row[:8]
    seq, chain, replica, sealed_seq, sealed_lsn, acked_seq, acked_id = row[8:15]
    rebase_lsn, skipped, alarms, key_id = row[15:]
    return Link(
        link=number,
        namespace=namespace,
        remote=remote,
        url=url,
        token_file=token_file,
        options=json.loads(options),
        relay_id=relay_id,
        epoch=epoch,
        cursor=Sample(seq, chain),
        replica_id=replica,
        sealed_seq=sealed_seq,
        sealed_lsn=sealed_lsn,
        acked_seq=acked_seq,
        acked_id=acked_id,
        rebase_lsn=rebase_lsn,
        skipped=skipped,
        alarms=tuple(
            Alarm(a["code"], a["at"], a["detail"]) for a in json.loads(alarms)
        ),
        key_id=key_id,
    )
