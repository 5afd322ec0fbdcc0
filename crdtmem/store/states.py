"""Whole states of docs, as records carry them: made here, and merged in.

A state brings a doc to whoever lacks its records. What it says becomes part of the
checkpoint: the rows behind it are forgotten, since the doc's log as it is here would no
longer give its text. So one whose content is here already changes nothing.
"""

import json
from dataclasses import dataclass

import apsw

from crdtmem.doc.blame import (
    Author,
    Run,
    apply_to_runs,
    decode_runs,
    encode_runs,
    overlay_runs,
)
from crdtmem.doc.delta import Delta
from crdtmem.doc.slot_doc import SlotDoc
from crdtmem.doc.text_form import units_of, view_of
from crdtmem.errors import DocError
from crdtmem.headroom import content_hash
from crdtmem.limits import BLAME_BYTES
from crdtmem.protocol.envelopes import StateEnvelope
from crdtmem.protocol.records import DocKind, RecordKind
from crdtmem.store.documents import (
    NO_REPLICA,
    Genesis,
    blame_of,
    intact_checkpoint,
    replayed,
)
from crdtmem.store.log import (
    forget_rows,
    kind_of,
    load_checkpoint,
    log_of,
    mark_unsealed,
    save_checkpoint,
)
from crdtmem.store.pins import keep_state_step
from crdtmem.store.set_states import make_set_state
from crdtmem.store.write import Transaction

__all__ = [
    "MergedState",
    "has_unsent",
    "make_state",
    "merge_state",
    "must_wait",
    "save_state",
]


@dataclass(frozen=True, slots=True)
class MergedState:
    """A state that a document has taken in, not yet written.

    Attributes:
        state: Squashed state of both.
        file: Their text.
        delta: What it changed in the text here.
        runs: Who wrote the text of both, as far as the sender said.

    """

    state: bytes
    file: str
    delta: Delta
    runs: tuple[Run, ...]


def make_state(transaction: Transaction, doc: int) -> StateEnvelope:
    """Return a doc's whole state at its newest; of a slot with the authors of its text.

    Authors that do not fit into a record are left out; a state that does not fit makes
    an envelope that cannot be encoded.

    Raises:
        DocError: If the doc has neither slot nor set.
        SlotQuarantinedError: If one of its records is damaged.

    """
    connection = transaction.connection
    if kind_of(connection, doc) == DocKind.MEMORY_SET:
        return make_set_state(transaction, doc)
    checkpoint = load_checkpoint(connection, doc)
    row = transaction.slot(checkpoint.namespace, checkpoint.name)
    if row is None:
        raise DocError(f"doc {doc} has no slot")
    document = transaction.document(row)
    blame = encode_runs(blame_of(connection, doc))
    return StateEnvelope(
        DocKind.SLOT,
        row.label,
        text_sha256=_digest_of(document.file),
        state=document.state(),
        blame=blame if len(blame) <= BLAME_BYTES else b"",
    )


def merge_state(document: SlotDoc, envelope: StateEnvelope) -> MergedState | None:
    """Merge a state into a document; None if the document has all of it already.

    Raises:
        UpdateRejectedError: If the scanner refuses the state.
        RemoteProtocolError: If the authors of its text are malformed.
        DocError: If it does not give the text that its sender had, or pycrdt fails; the
            document is spent.

    """
    sent = SlotDoc.load(document.client_id, envelope.state)
    sent_file = sent.file
    if _digest_of(sent_file) != envelope.text_sha256:
        reason = "a state gives another text than its sender had"
        raise DocError(reason, code="text-differs")
    runs = _runs_of(envelope.blame, sent_file)
    if document.holds(envelope.state):
        return None
    rest = document.state()
    delta = document.apply_state(envelope.state)
    runs = apply_to_runs(runs, sent_file, sent.apply_state(rest), None)
    if sent.file != document.file:
        raise DocError("a state and the records here give two texts")
    return MergedState(document.state(), document.file, delta, tuple(runs))


def save_state(
    transaction: Transaction, doc: int, merged: MergedState
) -> tuple[int, frozenset[str]]:
    """Make a merged state the doc's checkpoint and forget the rows behind it.

    Returns:
        Its step of the log, and the lanes whose text it brought.

    Raises:
        DocError: If a row or the checkpoint is damaged.

    """
    connection = transaction.connection
    checkpoint = intact_checkpoint(connection, doc)
    rows = log_of(connection, doc, after=checkpoint.lsn)
    runs, genesis, file = replayed(checkpoint, rows)
    overlay = _Overlay(genesis)
    try:
        runs = apply_to_runs(runs, file, merged.delta, None)
        runs = overlay_runs(runs, merged.runs, overlay.author)
    except ValueError as exc:
        raise DocError("the records change another text than they say") from exc
    if any(row.replica_seq is None for row in rows):
        mark_unsealed(connection, doc)
    lsn = transaction.next_lsn()
    save_checkpoint(
        connection,
        doc,
        checkpoint._replace(
            state=merged.state,
            lsn=lsn,
            file=merged.file,
            blame=encode_runs(runs),
            genesis=json.dumps(overlay.genesis),
        ),
    )
    forget_rows(connection, doc, until=lsn)
    keep_state_step(connection, doc, lsn, merged.delta)
    return lsn, frozenset(overlay.lanes)


def has_unsent(connection: apsw.Connection, doc: int) -> bool:
    """Tell whether the relay lacks own writes to a doc, sealed or not."""
    return bool(
        connection.execute(
            "SELECT EXISTS (SELECT 1 FROM log WHERE doc = :doc AND replica_seq IS NULL)"
            " OR EXISTS (SELECT 1 FROM outbox WHERE doc = :doc AND kind = :update"
            " AND record IS NOT NULL)",
            {"doc": doc, "update": RecordKind.UPDATE},
        ).get
    )


def must_wait(connection: apsw.Connection, doc: int) -> bool:
    """Tell whether a state must wait: the rows that it replaces are still needed.

    They are while the relay lacks them, unless a state is to bring it what they say.
    """
    is_state_due = connection.execute(
        "SELECT 1 FROM link CROSS JOIN sync_doc USING (link)"
        " WHERE doc = :doc AND state_needed",
        {"doc": doc},
    ).get
    return not is_state_due and has_unsent(connection, doc)


class _Overlay:
    """Decides whom a part is by that a state has an author for, too.

    Two authors of one part are told apart only for first texts, which several may have
    written: the least of them counts, in whatever order states and records come.
    """

    def __init__(self, genesis: Genesis) -> None:
        self.genesis = genesis
        self.lanes: set[str] = set()

    def author(self, local: Author | None, sent: Author | None) -> Author | None:
        if sent is None or sent.replica == NO_REPLICA:
            return local
        if local is None:
            self.lanes.add(sent.lane)
            return sent
        first = _claim(local), _claim(sent)
        if local.replica != NO_REPLICA:
            return local if first[0] <= first[1] else sent
        # A first text stays under its client id: records may still name its author.
        known = self.genesis.get(local.at_ms, first[1])
        self.genesis[local.at_ms] = min(known, first[1])
        return local


def _claim(author: Author) -> tuple[int, str, str]:
    return author.at_ms, author.replica.hex(), author.lane


def _runs_of(blame: bytes, file: str) -> list[Run]:
    size_units = units_of(file)
    runs = decode_runs(blame)
    if not runs and size_units:
        return [Run(size_units)]
    covered_units = sum(run.units for run in runs)
    if covered_units != size_units:
        raise DocError(
            f"the authors of a state are those of {covered_units} units, and its text"
            f" has {size_units}"
        )
    return runs


def _digest_of(file: str) -> bytes:
    return bytes.fromhex(content_hash(view_of(file)))
