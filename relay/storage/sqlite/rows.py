"""What the writer knows by heart of namespaces, replicas and docs, and their rows.

Only the process that serves a relay changes these rows, and in it one thread; so a copy
in memory stays true until a transaction is rolled back, and then all copies are
forgotten.
"""

from dataclasses import dataclass
from typing import Any

import apsw

__all__ = ["Doc", "Known", "Namespace", "Replica"]


@dataclass(slots=True)
class Namespace:
    """A namespace; see the table ``ns``. ``docs`` counts its docs."""

    ns_no: int
    head: int
    chain: bytes
    floor: int
    floor_chain: bytes
    live_bytes: int
    docs: int


@dataclass(slots=True)
class Replica:
    """A replica in a namespace; ``replica_no`` is 0 until it has a row."""

    replica_no: int
    max_seq: int
    last_id: bytes


@dataclass(slots=True)
class Doc:
    """A doc of a namespace; ``doc_no`` is 0 until it has a row."""

    doc_no: int
    snap_seq: int
    covered: int
    dropped_seq: int


class Known:
    """The rows that have been asked for, read once each.

    Args:
        connection: The writer's.

    """

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._namespaces: dict[int, Namespace] = {}
        self._replicas: dict[tuple[int, bytes], Replica] = {}
        self._docs: dict[tuple[int, bytes], Doc] = {}

    @property
    def rows(self) -> int:
        """How many rows are kept in memory."""
        return len(self._namespaces) + len(self._replicas) + len(self._docs)

    def forget(self) -> None:
        """Read everything again when it is asked for."""
        self._namespaces.clear()
        self._replicas.clear()
        self._docs.clear()

    def namespace(self, ns_no: int) -> Namespace:
        """Return a namespace; there is one, as none is ever removed."""
        found = self._namespaces.get(ns_no)
        if found is None:
            row: Any = self._connection.execute(
                "SELECT ns_no, head, chain, floor, floor_chain, live_bytes,"
                " (SELECT count(*) FROM doc WHERE doc.ns_no = ns.ns_no)"
                " FROM ns WHERE ns_no = :ns_no",
                {"ns_no": ns_no},
            ).fetchone()
            found = self._namespaces[ns_no] = Namespace(*row)
        return found

    def replica(self, ns_no: int, replica_id: bytes) -> Replica:
        """Return a replica, a new one where it has not written there."""
        found = self._replicas.get((ns_no, replica_id))
        if found is None:
            row: Any = self._connection.execute(
                "SELECT replica_no, max_seq, last_id FROM replica"
                " WHERE ns_no = :ns_no AND replica_id = :replica_id",
                {"ns_no": ns_no, "replica_id": replica_id},
            ).fetchone()
            found = Replica(*row) if row else Replica(0, 0, bytes(32))
            self._replicas[ns_no, replica_id] = found
        return found

    def doc(self, ns_no: int, doc_tag: bytes) -> Doc:
        """Return a doc, a new one where no record of it is there."""
        found = self._docs.get((ns_no, doc_tag))
        if found is None:
            row: Any = self._connection.execute(
                "SELECT doc_no, snap_seq, covered, dropped_seq FROM doc"
                " WHERE ns_no = :ns_no AND doc_tag = :doc_tag",
                {"ns_no": ns_no, "doc_tag": doc_tag},
            ).fetchone()
            found = Doc(*row) if row else Doc(0, 0, 0, 0)
            self._docs[ns_no, doc_tag] = found
        return found
