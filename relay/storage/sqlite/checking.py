"""Holds the log of a relay's file against itself."""

from collections.abc import Sequence
from typing import Any

import apsw

from relay.storage.checking import ChainCheck, NamespaceCheck
from relay.storage.sqlite.schema import SEQ_BITS

__all__ = ["check_namespaces"]


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
    ns_no, name, head, chain, floor, floor_chain = ns
    check = ChainCheck(name, floor, floor_chain)
    for row_id, *record in connection.execute(
        "SELECT id, record_id, chain, header, payload FROM log"
        " WHERE id > :low AND id < :high ORDER BY id",
        {"low": ns_no << SEQ_BITS, "high": (ns_no + 1) << SEQ_BITS},
    ):
        if not check.add(row_id - (ns_no << SEQ_BITS), *record):
            break
    return check.result(head, chain)
