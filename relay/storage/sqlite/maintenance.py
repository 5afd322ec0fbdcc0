"""What a command does to a relay's folder, whether a process serves it or not.

Each call opens a connection of its own, for as long as it takes. None of them writes
the log, which belongs to the process that serves the folder.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import apsw

from crdtmem.errors import (
    InvalidArgumentError,
    PermissionDeniedError,
    TokenNotFoundError,
)
from relay.auth import check_token
from relay.storage import TokenRow
from relay.storage.checking import ChainCheck, NamespaceCheck
from relay.storage.sqlite.connection import connect, mapped_errors
from relay.storage.sqlite.folder import database_of, sync_folder
from relay.storage.sqlite.schema import SEQ_BITS
from relay.storage.sqlite.tokens import insert_token, list_tokens, revoke_token

__all__ = ["add_token", "back_up", "check_log", "end_token", "tokens_of"]


def add_token(folder: Path, row: TokenRow, digest: bytes) -> None:
    """Add a token; ``digest`` is the SHA-256 of its secret.

    Raises:
        InvalidArgumentError: If it means nothing, or there is one of this id.
        RelayFolderError: If the folder holds no relay.
        StorageError: If the file cannot be written.

    """
    check_token(row)
    with _writing(folder) as connection:
        insert_token(connection, row, digest)


def tokens_of(folder: Path) -> list[TokenRow]:
    """Return all tokens, oldest first; raises what add_token does."""
    with _reading(folder) as connection:
        return list_tokens(connection)


def end_token(folder: Path, token_id: str, now_ms: int) -> None:
    """Revoke a token; a serving process closes its connections within seconds.

    Raises:
        TokenNotFoundError: If there is no such token.
        RelayFolderError: If the folder holds no relay.
        StorageError: If the file cannot be written.

    """
    with _writing(folder) as connection:
        if not revoke_token(connection, token_id, now_ms):
            raise TokenNotFoundError(token_id=token_id)


def back_up(folder: Path, target: Path) -> int:
    """Copy the relay's file as of one moment; return the bytes of the copy.

    When it returns the copy is whole and on disk; when it raises there is none. It may
    take the place of ``relay.db`` only where no ``relay.db-wal`` lies beside it: that
    belongs to the file that was there, and would be played into the copy.

    Raises:
        InvalidArgumentError: If something of that name exists, or its folder does not.
        RelayFolderError: If the folder holds no relay.
        PermissionDeniedError: If the copy may not be written.
        StorageError: If the file cannot be read, or the disk is full.

    """
    # Made first, for its owner alone: tokens' digests and everybody's texts go there.
    try:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL, 0o600))
    except (FileExistsError, FileNotFoundError, NotADirectoryError) as exc:
        raise InvalidArgumentError(
            "file", f"file {str(target)!r} exists, or its folder does not"
        ) from exc
    except PermissionError as exc:
        raise PermissionDeniedError(path=str(target), action="write") from exc
    try:
        with _reading(folder) as connection:
            # Forbidden with query_only, although it only writes elsewhere.
            connection.pragma("query_only", 0)
            connection.execute("VACUUM INTO :target", {"target": str(target)})
        _sync(target)
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    return target.stat().st_size


def check_log(folder: Path) -> list[NamespaceCheck]:
    """Compute all ids and chains anew; raises what back_up does."""
    with _reading(folder) as connection:
        connection.execute("BEGIN")
        try:
            rows: list[Any] = connection.execute(
                "SELECT ns_no, name, head, chain, floor, floor_chain FROM ns"
                " ORDER BY name"
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


@contextmanager
def _reading(folder: Path) -> Iterator[apsw.Connection]:
    path = database_of(folder)
    with (
        mapped_errors(path),
        closing(connect(path, read_only=True)) as connection,
    ):
        yield connection


@contextmanager
def _writing(folder: Path) -> Iterator[apsw.Connection]:
    path = database_of(folder)
    with closing(connect(path)) as connection, mapped_errors(path, connection):
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")


def _sync(target: Path) -> None:
    fd = os.open(target, os.O_RDWR)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    sync_folder(target.parent)
