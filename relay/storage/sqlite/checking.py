"""Holds a relay's whole log against itself: every id and every link of the chain."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import apsw

from crdtmem.errors import LocalProtocolError, RecordMalformedError
from crdtmem.protocol.records import chain_next, parse_header, record_id
from relay.storage.sqlite.schema import SEQ_BITS

__all__ = ["NamespaceCheck", "check_namespaces"]


@dataclass(frozen=True, slots=True)
class NamespaceCheck:
    """What was found of one namespace.

    Attributes:
        namespace: Its name.
        records: How many records were looked at.
        dropped: How many of them have lost their payload, so that their id was taken
            as it stands.
        bad_seq: The first place where something is wrong; None if nothing is.
        reason: What is wrong there, or empty.

    """

    namespace: str
    records: int
    dropped: int
    bad_seq: int | None = None
    reason: str = ""


def check_namespaces(connection: apsw.Connection) -> list[NamespaceCheck]:
    """Check every namespace, in the order of their names, as of one moment."""
    connection.execute("BEGIN")
    try:
        rows: list[Any] = connection.execute(
            "SELECT ns_no, name, head, chain, floor, floor_chain FROM ns ORDER BY name"
        ).fetchall()
        return [_check(connection, row) for row in rows]
    finally:
        connection.execute("ROLLBACK")


def _check(connection: apsw.Connection, ns: Sequence[Any]) -> NamespaceCheck:
    ns_no, name, head, last_chain, seq, chain = ns
    records = dropped = 0
    for row_id, found_id, found_chain, header, payload in connection.execute(
        "SELECT id, record_id, chain, header, payload FROM log"
        " WHERE id > :low AND id < :high ORDER BY id",
        {"low": ns_no << SEQ_BITS, "high": (ns_no + 1) << SEQ_BITS},
    ):
        seq += 1
        records += 1
        dropped += payload is None
        chain = _link(chain, seq, found_id)
        reason = ""
        if row_id != ns_no << SEQ_BITS | seq:
            reason = "a record is missing"
        elif payload is not None and not _is_sound(name, header + payload, found_id):
            reason = "the record is not the one that its id names"
        elif chain != found_chain:
            reason = "the chain is broken"
        if reason:
            return NamespaceCheck(name, records, dropped, seq, reason)
    if (seq, chain) != (head, last_chain):
        reason = "the head is not the end of the log"
        return NamespaceCheck(name, records, dropped, head, reason)
    return NamespaceCheck(name, records, dropped)


def _link(chain: bytes, seq: int, found_id: bytes) -> bytes:
    try:
        return chain_next(chain, seq, found_id)
    except LocalProtocolError:
        # An id that has lost its length, and so no chain fits it.
        return b""


def _is_sound(namespace: str, record: bytes, expected_id: bytes) -> bool:
    try:
        parse_header(record)
    except RecordMalformedError:
        return False
    return record_id(namespace, record) == expected_id
