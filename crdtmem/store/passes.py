"""Condense passes, others' too, and who waits before the next one.

A pass is a row from its begin to its end, and after it: it names what it took out, and
its result, so that a repeated commit returns the first one.
"""

from collections.abc import Sequence
from typing import NamedTuple

import apsw

from crdtmem.store.archives import ArchivePart, save_archive

__all__ = [
    "PassRow",
    "Wait",
    "add_pass",
    "add_remote_pass",
    "clear_wait",
    "end_pass",
    "find_pass",
    "find_wait",
    "mark_pass_of_write",
    "newest_committed",
    "open_pass",
    "passes_of",
    "set_wait",
]


class PassRow(NamedTuple):
    """A pass as it is stored; see the table.

    ``state`` is open, committed, aborted, expired or undone. ``after`` is the pass
    whose condensed text this one began from. ``settings`` and ``result`` are JSON,
    ``reply`` the digest of the reply that ended it, ``lsn`` the step of its record.
    """

    number: int
    pass_id: str
    doc: int
    namespace: str
    label: str
    lane: str
    summariser: str
    state: str
    reason: str
    after: str | None
    is_remote: int
    base_rev: int
    base_hash: str
    pin: int | None
    archive: bytes
    settings: str
    reply: bytes | None
    result: str | None
    lsn: int | None
    begun_ms: int
    expires_ms: int
    ended_ms: int | None


class Wait(NamedTuple):
    """Who waits before the next attempt; all zero and empty for nobody.

    Attributes:
        reason: Why.
        failures: In a row.
        until_ms: Until when.
        size_bytes: Of the text that came out not smaller; 0 for another reason.

    """

    reason: str = ""
    failures: int = 0
    until_ms: int = 0
    size_bytes: int = 0


def add_pass(connection: apsw.Connection, row: PassRow) -> None:
    """Write a new pass; its number is SQLite's to give."""
    connection.execute(
        "INSERT INTO condense_pass VALUES (NULL, :pass_id, :doc, :namespace, :label,"
        " :lane, :summariser, :state, :reason, :after, :is_remote, :base_rev,"
        " :base_hash, :pin, :archive, :settings, :reply, :result, :lsn, :begun_ms,"
        " :expires_ms, :ended_ms)",
        row._asdict(),
    )


def add_remote_pass(
    connection: apsw.Connection,
    *,
    pass_id: str,
    doc: int,
    namespace: str,
    label: str,
    lane: str,
    after: str | None,
    parts: Sequence[ArchivePart],
    lsn: int,
    now_ms: int,
) -> None:
    """Note a pass that another store has committed, with what its record removed here.

    One whose id is known is left as it is.

    Args:
        connection: In the transaction that takes the record in.
        pass_id: As the record's note names it.
        doc: The doc of the record.
        namespace: Of the slot.
        label: Of the slot.
        lane: Whose record it is.
        after: The pass it began from, by its note.
        parts: What the record removed, in the order of the file.
        lsn: The step of the record here.
        now_ms: When it came.

    """
    if find_pass(connection, pass_id) is not None:
        return
    row = PassRow(
        number=0,
        pass_id=pass_id,
        doc=doc,
        namespace=namespace,
        label=label,
        lane=lane,
        summariser="",
        state="committed",
        reason="condensed",
        after=after,
        is_remote=1,
        base_rev=0,
        base_hash="",
        pin=None,
        archive=save_archive(connection, doc, parts, now_ms),
        settings="{}",
        reply=None,
        result=None,
        lsn=lsn,
        begun_ms=now_ms,
        expires_ms=now_ms,
        ended_ms=now_ms,
    )
    add_pass(connection, row)


def find_pass(connection: apsw.Connection, pass_id: str) -> PassRow | None:
    """Return a pass by its id."""
    for row in connection.execute(
        "SELECT * FROM condense_pass WHERE pass = :pass", {"pass": pass_id}
    ):
        return PassRow(*row)
    return None


def open_pass(connection: apsw.Connection, doc: int) -> PassRow | None:
    """Return the open pass of a doc, expired or not."""
    for row in connection.execute(
        "SELECT * FROM condense_pass WHERE doc = :doc AND state = 'open'", {"doc": doc}
    ):
        return PassRow(*row)
    return None


def newest_committed(connection: apsw.Connection, doc: int) -> str | None:
    """Return the id of the newest pass whose work is in a doc, undone ones left out.

    That is the one that none began from yet. After two passes apart there are two such:
    then the smaller id, so that stores that know the same passes name the same one.
    """
    found: str | None = connection.execute(
        "SELECT pass FROM condense_pass AS newest"
        " WHERE doc = :doc AND state = 'committed' AND NOT EXISTS (SELECT 1"
        " FROM condense_pass AS later WHERE later.doc = :doc"
        " AND later.after = newest.pass AND later.state = 'committed')"
        " ORDER BY pass LIMIT 1",
        {"doc": doc},
    ).get
    return found


def end_pass(connection: apsw.Connection, row: PassRow) -> None:
    """Write how an open pass ended: state, reason, reply, result, step and time.

    Args:
        connection: In a transaction.
        row: The pass, with those fields as they are now.

    """
    connection.execute(
        "UPDATE condense_pass SET state = :state, reason = :reason, reply = :reply,"
        " result = :result, lsn = :lsn, ended_ms = :ended_ms, pin = NULL"
        " WHERE pass = :pass_id",
        row._asdict(),
    )


def mark_pass_of_write(
    connection: apsw.Connection, doc: int, first_lsn: int, lsn: int, *, is_undone: bool
) -> None:
    """Note that a pass was undone, or redone, if the write of these steps is of one."""
    connection.execute(
        "UPDATE condense_pass SET state = :state WHERE doc = :doc"
        " AND lsn BETWEEN :first AND :last AND state IN ('committed', 'undone')",
        {
            "state": "undone" if is_undone else "committed",
            "doc": doc,
            "first": first_lsn,
            "last": lsn,
        },
    )


def passes_of(
    connection: apsw.Connection,
    namespaces: Sequence[str],
    *,
    label: str | None = None,
    state: str | None = None,
    limit: int = 50,
) -> list[PassRow]:
    """Return the newest passes of slots, newest first.

    Args:
        connection: The store's.
        namespaces: One or two of them.
        label: Only of this slot.
        state: Only those in this state.
        limit: At most so many.

    """
    rows = connection.execute(
        "SELECT * FROM condense_pass WHERE namespace IN (:first, :last)"
        " AND (:label IS NULL OR label = :label)"
        " AND (:state IS NULL OR state = :state)"
        " ORDER BY number DESC LIMIT :limit",
        {
            "first": namespaces[0],
            "last": namespaces[-1],
            "label": label,
            "state": state,
            "limit": limit,
        },
    )
    return [PassRow(*row) for row in rows]


def find_wait(connection: apsw.Connection, who: str) -> Wait:
    """Return how long a slot (``doc/N``) or a summariser (``summariser/X``) waits."""
    for row in connection.execute(
        "SELECT reason, failures, until_ms, size_bytes FROM condense_wait"
        " WHERE who = :who",
        {"who": who},
    ):
        return Wait(*row)
    return Wait()


def set_wait(connection: apsw.Connection, who: str, wait: Wait) -> None:
    """Write how long somebody waits from now on."""
    connection.execute(
        "INSERT INTO condense_wait VALUES"
        " (:who, :reason, :failures, :until_ms, :size_bytes)"
        " ON CONFLICT DO UPDATE SET reason = :reason, failures = :failures,"
        " until_ms = :until_ms, size_bytes = :size_bytes",
        {"who": who, **wait._asdict()},
    )


def clear_wait(connection: apsw.Connection, who: str) -> None:
    """Let somebody wait no longer, and forget the failures."""
    connection.execute("DELETE FROM condense_wait WHERE who = :who", {"who": who})
