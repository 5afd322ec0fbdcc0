"""What mirrors know of their files: tables, one row a file.

A pin may be shared: by a file, by the texts that the file had before, by files that
were swapped out. It goes with the last of them.
"""

import json
import zlib
from typing import Any, Literal, NamedTuple

import apsw

from crdtmem.store.pins import drop_pin

__all__ = [
    "FileRow",
    "Intent",
    "KeptText",
    "MirrorRow",
    "RetiredRow",
    "add_retired",
    "add_text",
    "blocked_files",
    "delete_file",
    "delete_mirror",
    "delete_retired",
    "files_of",
    "find_file",
    "find_file_of_inode",
    "find_mirror",
    "let_pin_go",
    "mirrors_of",
    "pending_files",
    "prune_texts",
    "rename_file",
    "require_file",
    "require_retired",
    "retired_of",
    "save_file",
    "save_mirror",
    "save_retired",
    "texts_of",
]

Eol = Literal["verbatim", "crlf"]

_LEVEL = 1
"""Of zlib: a base is written at each change, and read about as often."""


class MirrorRow(NamedTuple):
    """A folder whose files are slots of a namespace; the place is where it was last."""

    mirror: str
    namespace: str
    folder: str
    dev: int
    ino: int
    made_ms: int


class Intent(NamedTuple):
    """A swap that has begun.

    Attributes:
        swap_name: The file in the swap folder.
        ino: Of the new file, which is there; 0 where the old one is only moved away.
        bom: As in FileRow, of the new bytes.
        eol: As in FileRow, of the new bytes.
        pin: The slot's text when they were made.
        base: The new bytes.

    """

    swap_name: str
    ino: int
    bom: int
    eol: Eol
    pin: int
    base: bytes


class FileRow(NamedTuple):
    """A file and the slot it is bound to.

    Attributes:
        mirror: Whose file.
        name: Its name in the folder.
        label: The slot.
        dev: With the next four: the file as it was when it held ``base``, or what it
            is blocked for; zeros where it has to be read again.
        ino: See dev.
        size: See dev.
        mtime_ns: See dev.
        ctime_ns: See dev.
        bom: Whether the file begins with a byte order mark.
        eol: ``crlf`` where the file has other line ends than the slot, or ``verbatim``.
        base: The bytes last known to be both in the file and merged into the slot.
        is_stale: Whether a tool had made them from an older text of the file.
        pin: The slot's text then.
        blocked: Why it is left alone; empty where it is not.
        blocked_by: What it is blocked for: digest and rev.
        intent: The swap in progress.

    """

    mirror: str
    name: str
    label: str
    dev: int = 0
    ino: int = 0
    size: int = 0
    mtime_ns: int = 0
    ctime_ns: int = 0
    bom: int = 0
    eol: Eol = "verbatim"
    base: bytes = b""
    is_stale: int = 0
    pin: int = 0
    blocked: str = ""
    blocked_by: str = ""
    intent: Intent | None = None


class KeptText(NamedTuple):
    """A text that a file had before the one it has, and the slot's text then."""

    number: int
    text: str
    is_stale: int
    pin: int
    at_ms: int


class RetiredRow(NamedTuple):
    """A file that was swapped out and may still be written to by who has it open."""

    number: int
    mirror: str
    swap_name: str
    name: str
    label: str
    dev: int
    ino: int
    bom: int
    eol: Eol
    base: bytes
    pin: int
    at_ms: int


def blocked_files(
    connection: apsw.Connection, namespace: str, label: str
) -> list[tuple[str, str]]:
    """Return the path and the reason of each file of a slot that is left alone."""
    rows = connection.execute(
        "SELECT folder || '/' || name, blocked FROM mirror_file"
        " JOIN mirror USING (mirror) WHERE namespace = :namespace AND label = :label"
        " AND blocked != '' ORDER BY 1",
        {"namespace": namespace, "label": label},
    )
    return [(str(path), str(reason)) for path, reason in rows]


def pending_files(
    connection: apsw.Connection, namespace: str, label: str
) -> list[tuple[str, tuple[int, int, int, int]]]:
    """Return each mirrored file of a slot as it was when it was last read.

    A file that is another one now has not been imported yet.

    Returns:
        Its path and (ino, size, mtime_ns, ctime_ns).

    """
    rows = connection.execute(
        "SELECT folder || '/' || name, mirror_file.ino, size, mtime_ns, ctime_ns"
        " FROM mirror_file"
        " JOIN mirror USING (mirror) WHERE namespace = :namespace AND label = :label"
        " ORDER BY 1",
        {"namespace": namespace, "label": label},
    )
    return [
        (str(path), (ino, size, mtime, ctime)) for path, ino, size, mtime, ctime in rows
    ]


def mirrors_of(connection: apsw.Connection) -> list[MirrorRow]:
    """Return all mirrors of the store, by their folders."""
    rows = connection.execute(
        "SELECT mirror, namespace, folder, dev, ino, made_ms FROM mirror"
        " ORDER BY folder, mirror"
    )
    return [MirrorRow(*row) for row in rows]


def find_mirror(connection: apsw.Connection, mirror: str) -> MirrorRow | None:
    """Return a mirror by its id."""
    for row in connection.execute(
        "SELECT mirror, namespace, folder, dev, ino, made_ms FROM mirror"
        " WHERE mirror = :mirror",
        {"mirror": mirror},
    ):
        return MirrorRow(*row)
    return None


def save_mirror(connection: apsw.Connection, row: MirrorRow) -> None:
    """Write a mirror, new or moved."""
    connection.execute(
        "INSERT INTO mirror VALUES (:mirror, :namespace, :folder, :dev, :ino, :made_ms)"
        " ON CONFLICT(mirror) DO UPDATE SET folder = :folder, dev = :dev, ino = :ino",
        row._asdict(),
    )


def delete_mirror(connection: apsw.Connection, mirror: str) -> None:
    """Forget a mirror and all it knew; its files stay."""
    for row in files_of(connection, mirror):
        delete_file(connection, row)
    for retired in retired_of(connection, mirror):
        delete_retired(connection, retired)
    connection.execute("DELETE FROM mirror WHERE mirror = :mirror", {"mirror": mirror})


def files_of(connection: apsw.Connection, mirror: str) -> list[FileRow]:
    """Return all files of a mirror by name."""
    rows = connection.execute(
        "SELECT * FROM mirror_file WHERE mirror = :mirror ORDER BY name",
        {"mirror": mirror},
    )
    return [_file_row(*row) for row in rows]


def find_file(connection: apsw.Connection, mirror: str, name: str) -> FileRow | None:
    """Return a file of a mirror."""
    for row in connection.execute(
        "SELECT * FROM mirror_file WHERE mirror = :mirror AND name = :name",
        {"mirror": mirror, "name": name},
    ):
        return _file_row(*row)
    return None


def require_file(connection: apsw.Connection, mirror: str, name: str) -> FileRow:
    """Return a file of a mirror that is bound.

    Raises:
        LookupError: If it is not: a bug of the caller, who alone binds its files.

    """
    row = find_file(connection, mirror, name)
    if row is None:
        raise LookupError(f"{name!r} is bound to no slot")
    return row


def find_file_of_inode(
    connection: apsw.Connection, mirror: str, dev: int, ino: int
) -> FileRow | None:
    """Return the file that was this one when it was last read, whatever its name."""
    for row in connection.execute(
        "SELECT * FROM mirror_file"
        " WHERE mirror = :mirror AND ino = :ino AND dev = :dev",
        {"mirror": mirror, "dev": dev, "ino": ino},
    ):
        return _file_row(*row)
    return None


def save_file(connection: apsw.Connection, row: FileRow) -> None:
    """Write a file's row, new or changed; the pin it had before is not let go."""
    connection.execute(
        "INSERT INTO mirror_file VALUES (:mirror, :name, :label, :dev, :ino, :size,"
        " :mtime_ns, :ctime_ns, :bom, :eol, :base, :is_stale, :pin, :blocked,"
        " :blocked_by, :intent, :intent_base) ON CONFLICT(mirror, name) DO UPDATE SET"
        " dev = :dev, ino = :ino, size = :size, mtime_ns = :mtime_ns,"
        " ctime_ns = :ctime_ns, bom = :bom, eol = :eol, base = :base,"
        " is_stale = :is_stale, pin = :pin, blocked = :blocked,"
        " blocked_by = :blocked_by, intent = :intent, intent_base = :intent_base",
        {
            **row._asdict(),
            "base": zlib.compress(row.base, _LEVEL),
            "intent": None if row.intent is None else json.dumps(row.intent[:-1]),
            "intent_base": row.intent and zlib.compress(row.intent.base, _LEVEL),
        },
    )


def delete_file(connection: apsw.Connection, row: FileRow) -> None:
    """Forget a file, the texts it had, and the pins that nothing else needs."""
    key = {"mirror": row.mirror, "name": row.name}
    pins: list[int] = [text.pin for text in texts_of(connection, row.mirror, row.name)]
    for statement in (
        "DELETE FROM mirror_file WHERE mirror = :mirror AND name = :name",
        "DELETE FROM mirror_text WHERE mirror = :mirror AND name = :name",
    ):
        connection.execute(statement, key)
    if row.intent is not None:
        pins.append(row.intent.pin)
    for pin in (row.pin, *pins):
        let_pin_go(connection, pin)


def rename_file(
    connection: apsw.Connection, row: FileRow, name: str, label: str, pin: int
) -> None:
    """Move all that is known of a file to another name and slot.

    The pins of texts that it had before stay those of the slot that it was bound to.
    """
    key = {"mirror": row.mirror, "old": row.name, "name": name, "label": label}
    connection.execute(
        "UPDATE mirror_file SET name = :name, label = :label, pin = :pin"
        " WHERE mirror = :mirror AND name = :old",
        {**key, "pin": pin},
    )
    connection.execute(
        "UPDATE mirror_text SET name = :name WHERE mirror = :mirror AND name = :old",
        {"mirror": row.mirror, "old": row.name, "name": name},
    )
    connection.execute(
        "UPDATE mirror_retired SET name = :name, label = :label"
        " WHERE mirror = :mirror AND name = :old",
        key,
    )
    if pin != row.pin:
        let_pin_go(connection, row.pin)


def texts_of(connection: apsw.Connection, mirror: str, name: str) -> list[KeptText]:
    """Return the texts that a file had before, newest first."""
    rows = connection.execute(
        "SELECT number, base, is_stale, pin, at_ms FROM mirror_text"
        " WHERE mirror = :mirror AND name = :name ORDER BY number DESC",
        {"mirror": mirror, "name": name},
    )
    return [
        KeptText(number, zlib.decompress(base).decode(), is_stale, pin, at_ms)
        for number, base, is_stale, pin, at_ms in rows
    ]


def add_text(
    connection: apsw.Connection, source: FileRow | RetiredRow, text: str, at_ms: int
) -> None:
    """Keep the text of a base, which is that of its file no more."""
    connection.execute(
        "INSERT INTO mirror_text(mirror, name, base, is_stale, pin, at_ms)"
        " VALUES (:mirror, :name, :base, :is_stale, :pin, :at)",
        {
            "mirror": source.mirror,
            "name": source.name,
            "base": zlib.compress(text.encode(), _LEVEL),
            "is_stale": source.is_stale if isinstance(source, FileRow) else 0,
            "pin": source.pin,
            "at": at_ms,
        },
    )


def prune_texts(
    connection: apsw.Connection,
    mirror: str,
    name: str,
    *,
    keep: int,
    since_ms: int,
) -> None:
    """Keep only the newest texts that a file had, and none older than a moment."""
    rows: list[Any] = connection.execute(
        "DELETE FROM mirror_text WHERE mirror = :mirror AND name = :name"
        " AND (at_ms < :since OR number NOT IN (SELECT number FROM mirror_text"
        " WHERE mirror = :mirror AND name = :name ORDER BY number DESC LIMIT :keep))"
        " RETURNING pin",
        {"mirror": mirror, "name": name, "keep": keep, "since": since_ms},
    ).fetchall()
    for (pin,) in rows:
        let_pin_go(connection, pin)


def retired_of(connection: apsw.Connection, mirror: str) -> list[RetiredRow]:
    """Return the files that were swapped out, oldest first."""
    rows = connection.execute(
        "SELECT * FROM mirror_retired WHERE mirror = :mirror ORDER BY number",
        {"mirror": mirror},
    )
    return [
        RetiredRow._make((*head, zlib.decompress(base), pin, at_ms))
        for *head, base, pin, at_ms in rows
    ]


def require_retired(connection: apsw.Connection, number: int) -> RetiredRow:
    """Return a file that was swapped out, by its number.

    Raises:
        LookupError: If it is known no more: a bug of the caller, who alone drops them.

    """
    for *head, base, pin, at_ms in connection.execute(
        "SELECT * FROM mirror_retired WHERE number = :number", {"number": number}
    ):
        return RetiredRow._make((*head, zlib.decompress(base), pin, at_ms))
    raise LookupError(f"{number} is no file that was swapped out")


def add_retired(connection: apsw.Connection, row: RetiredRow) -> int:
    """Write the row of a file that was swapped out, and return its number."""
    connection.execute(
        "INSERT INTO mirror_retired(mirror, swap_name, name, label, dev, ino, bom,"
        " eol, base, pin, at_ms) VALUES (:mirror, :swap_name, :name, :label, :dev,"
        " :ino, :bom, :eol, :base, :pin, :at_ms)",
        {**row._asdict(), "base": zlib.compress(row.base, _LEVEL)},
    )
    return connection.last_insert_rowid()


def save_retired(connection: apsw.Connection, row: RetiredRow) -> None:
    """Write what has been merged of it; the pin it had before is not let go."""
    connection.execute(
        "UPDATE mirror_retired SET bom = :bom, eol = :eol, base = :base, pin = :pin"
        " WHERE number = :number",
        {**row._asdict(), "base": zlib.compress(row.base, _LEVEL)},
    )


def delete_retired(connection: apsw.Connection, row: RetiredRow) -> None:
    """Forget a file that was swapped out, and its pin."""
    connection.execute(
        "DELETE FROM mirror_retired WHERE number = :number", {"number": row.number}
    )
    let_pin_go(connection, row.pin)


def let_pin_go(connection: apsw.Connection, pin: int) -> None:
    """Drop a pin, unless a file or a text still needs it."""
    needed: int = connection.execute(
        "SELECT EXISTS (SELECT 1 FROM mirror_file WHERE pin = :pin)"
        " OR EXISTS (SELECT 1 FROM mirror_text WHERE pin = :pin)"
        " OR EXISTS (SELECT 1 FROM mirror_retired WHERE pin = :pin)",
        {"pin": pin},
    ).get
    if not needed:
        drop_pin(connection, pin)


def _file_row(*columns: Any) -> FileRow:
    *head, base, is_stale, pin, blocked, blocked_by, intent, intent_base = columns
    found = None
    if intent is not None:
        swap_name, ino, bom, eol, intent_pin = json.loads(intent)
        content = zlib.decompress(intent_base)
        found = Intent(swap_name, ino, bom, eol, intent_pin, content)
    rest = (zlib.decompress(base), is_stale, pin, blocked, blocked_by, found)
    return FileRow._make((*head, *rest))
