"""Documents made from their checkpoint and their log; authors of their text.

A doc is its squashed state with the rows after it applied in log order, one by one:
many in one pycrdt transaction would be quadratic, and out of order could give another
text.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar

import apsw

from crdtmem.doc.blame import (
    Author,
    Run,
    apply_to_runs,
    decode_runs,
    encode_runs,
    replace_author,
)
from crdtmem.doc.delta import apply_delta, decode_delta
from crdtmem.doc.document import Document
from crdtmem.doc.slot_doc import SlotDoc
from crdtmem.doc.trace import Step, Trace
from crdtmem.errors import DocError
from crdtmem.protocol.records import client_id
from crdtmem.store.log import (
    Checkpoint,
    forget_rows,
    load_checkpoint,
    log_of,
    mark_unsealed,
    require_intact,
    save_checkpoint,
    targets_of,
)
from crdtmem.store.rows import EntryRow, LogRow
from crdtmem.updates import scan_genesis

__all__ = [
    "NO_REPLICA",
    "SLOT_LOADING",
    "Genesis",
    "Loading",
    "blame_of",
    "catch_up",
    "intact_checkpoint",
    "load_doc",
    "replayed",
    "squash",
    "trace_from",
    "writer_id",
]


NO_REPLICA = b"crdtmem/genesis\0"
"""Stands in a run for the author of a first text, whose client id is the time."""


_Doc = TypeVar("_Doc", bound=Document)


@dataclass(frozen=True, slots=True)
class Loading(Generic[_Doc]):
    """How documents of one kind come into memory.

    Attributes:
        load: Makes one from its checkpoint and its rows, for a replica to write to.
        catch_up: Applies newer rows and returns it.

    """

    load: Callable[[apsw.Connection, int, bytes], _Doc]
    catch_up: Callable[[_Doc, list[LogRow]], _Doc]


@lru_cache(maxsize=1_024)
def writer_id(replica: bytes) -> int:
    """Return the Yjs client id under which a replica writes."""
    return client_id(replica, 0)


def load_doc(
    connection: apsw.Connection, doc: int, replica: bytes, *, until: int | None = None
) -> SlotDoc:
    """Make a document from its checkpoint and its rows, up to a step.

    Raises:
        DocError: If a row or the state is damaged.
        UpdateRejectedError: If the scanner refuses one.

    """
    checkpoint = intact_checkpoint(connection, doc)
    document = SlotDoc.load(writer_id(replica), checkpoint.state)
    if document.file != checkpoint.file:
        raise DocError("the checkpoint's text differs from its state")
    rows = log_of(connection, doc, after=checkpoint.lsn, until=until)
    return catch_up(document, rows)


def catch_up(document: SlotDoc, rows: list[LogRow]) -> SlotDoc:
    """Apply logged rows to a slot's document and return it.

    That the client id of a first text is its own was seen when it came: it may follow
    from what the project is called on another machine, which no row says.

    Raises:
        DocError: If a row is damaged.
        UpdateRejectedError: If the scanner refuses one: what another process wrote is
            no more trusted than what came by wire.

    """
    pending: list[tuple[bytes, int]] = []
    for row in rows:
        require_intact(row)
        if not row.is_genesis:
            pending.append((row.content, writer_id(row.replica)))
            continue
        document.replay(pending)
        pending.clear()
        found = document.replay_genesis(row.content)
        if found != decode_delta(row.delta):
            raise DocError(f"record {row.lsn} changes another text")
    document.replay(pending)
    return document


SLOT_LOADING = Loading(load_doc, catch_up)
"""How documents of slots come into memory."""


def squash(connection: apsw.Connection, doc: int, replica: bytes, until: int) -> None:
    """Move a doc's checkpoint forward to a step and forget the rows behind it.

    Nothing is forgotten before the squashed state, loaded again, has given the same
    text and state vector.

    Raises:
        DocError: If anything differs; nothing was changed.

    """
    checkpoint = load_checkpoint(connection, doc)
    rows = log_of(connection, doc, after=checkpoint.lsn, until=until)
    if not rows:
        return
    document = load_doc(connection, doc, replica, until=until)
    document.check()
    runs, genesis, file = replayed(checkpoint, rows)
    if file != document.file:
        raise DocError("the records change another text than they say")
    if any(row.replica_seq is None for row in rows):
        mark_unsealed(connection, doc)
    save_checkpoint(
        connection,
        doc,
        checkpoint._replace(
            state=document.state(),
            lsn=rows[-1].lsn,
            file=document.file,
            blame=encode_runs(runs),
            genesis=json.dumps(genesis),
        ),
    )
    forget_rows(connection, doc, until=until)


def blame_of(connection: apsw.Connection, doc: int) -> list[Run]:
    """Return who wrote each part of a doc's present text, in text order.

    Raises:
        DocError: If the checkpoint or a row is damaged.

    """
    checkpoint = intact_checkpoint(connection, doc)
    rows = log_of(connection, doc, after=checkpoint.lsn)
    runs, genesis, _ = replayed(checkpoint, rows)
    for first, (at_ms, replica, lane) in genesis.items():
        author = Author(lane, at_ms, bytes.fromhex(replica))
        runs = replace_author(runs, _placeholder(first), author)
    return runs


def trace_from(connection: apsw.Connection, doc: int, entry: EntryRow) -> Trace:
    """Return the text before an entry's commit with all later writes replayed on it.

    The rows from the entry on must still be kept.
    """
    rows = [
        require_intact(row)
        for row in log_of(connection, doc, after=entry.first_lsn - 1)
    ]
    trace = Trace(entry.file)
    trace.replay([Step(r.lsn, decode_delta(r.delta), targets_of(r)) for r in rows])
    return trace


def intact_checkpoint(connection: apsw.Connection, doc: int) -> Checkpoint:
    """Return what stands behind a doc's rows.

    Raises:
        DocError: If it is not what was saved.

    """
    checkpoint = load_checkpoint(connection, doc)
    if checkpoint.digest != checkpoint.expected_digest:
        raise DocError("the checkpoint is damaged")
    return checkpoint


Genesis = dict[int, tuple[int, str, str]]
"""Client id of a first text to its author: at_ms, replica in hex, lane."""


def replayed(
    checkpoint: Checkpoint, rows: list[LogRow]
) -> tuple[list[Run], Genesis, str]:
    """Return runs and text after some rows, first texts still under their client ids.

    Several replicas may write one first text under one id. Its author is the least of
    them, by time and replica, as far as they are known; so it is looked up at the end.
    """
    runs = decode_runs(checkpoint.blame)
    genesis: Genesis = {
        int(key): (at_ms, replica, lane)
        for key, (at_ms, replica, lane) in json.loads(checkpoint.genesis).items()
    }
    file = checkpoint.file
    for row in rows:
        require_intact(row)
        delta = decode_delta(row.delta)
        author = Author(row.lane, row.at_ms, row.replica)
        if row.is_genesis:
            first, _ = scan_genesis(row.content, state={})
            claim = (row.at_ms, row.replica.hex(), row.lane)
            genesis[first] = min(genesis.get(first, claim), claim)
            author = _placeholder(first)
        runs = apply_to_runs(runs, file, delta, author)
        file = apply_delta(file, delta)
    return runs, genesis, file


def _placeholder(first: int) -> Author:
    return Author("", first, NO_REPLICA)
