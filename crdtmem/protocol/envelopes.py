"""Envelopes: what the payload of a record says, once it is decrypted.

A record holds consecutive writes of one doc, or its whole state, or a word between
stores. The updates within are opaque here: ``crdtmem.updates`` checks them. A relay
never comes here. What is decoded was written by others: it has the shape and the
lengths of the protocol, and nothing more is known of it.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from crdtmem.errors import LocalProtocolError
from crdtmem.limits import (
    BLAME_BYTES,
    DOC_NAME_BYTES,
    LANE_BYTES,
    NOTE_BYTES,
    OP_BYTES,
    REASON_BYTES,
    RECEIPT_MAX,
    STATE_BYTES,
    U32_MAX,
    UINT_MAX,
    UPDATE_BYTES,
    WRITES_PER_RECORD_MAX,
)
from crdtmem.protocol.codec import Reader, write_bytes, write_str, write_uint
from crdtmem.protocol.fields import bad_value
from crdtmem.protocol.records import DocKind, RecordKind, doc_identity, write_fixed

__all__ = [
    "Envelope",
    "KeyNotice",
    "Receipt",
    "ReceiptDoc",
    "ReceiptReplica",
    "StateEnvelope",
    "UndoTarget",
    "UpdateEnvelope",
    "Write",
    "decode_envelope",
    "encode_envelope",
    "read_undo_targets",
    "undo_note",
]

VERSION = 1
FLAG_GENESIS = 1
FLAG_NOTE = 2
FLAGS = FLAG_GENESIS | FLAG_NOTE

DOC_KINDS = frozenset(DocKind)

_Item = TypeVar("_Item")

REPLICA_HEX = re.compile(r"[0-9a-fA-F]{32}")


@dataclass(frozen=True, slots=True)
class Write:
    """One write of a doc.

    Attributes:
        is_genesis: Whether it is the first text of its doc, under the genesis id.
        counter: Which client id of the replica it uses.
        lane: Who wrote it, at most 128 bytes.
        at_ms: When, by the writer's clock, in milliseconds since 1970.
        op: What it was, at most 32 bytes.
        update: The Yjs update.
        note: A JSON object for other stores, at most 1,024 bytes.

    """

    is_genesis: bool
    counter: int
    lane: str
    at_ms: int
    op: str
    # Updates and states hold text, which belongs in no log line: not in the repr.
    update: bytes = field(repr=False)
    note: str | None = None


@dataclass(frozen=True, slots=True)
class UpdateEnvelope:
    """Consecutive writes of one doc (update)."""

    doc_kind: int
    name: str
    writes: tuple[Write, ...]


@dataclass(frozen=True, slots=True)
class StateEnvelope:
    """The whole state of a doc (snapshot, doc-delete, snapshot-void).

    Attributes:
        doc_kind: A DocKind.
        name: The doc's name, 1 to 255 bytes.
        text_sha256: Of the view's UTF-8; zeros for a memory set.
        state: A squashed Yjs update.
        blame: Who wrote which run of the text, encoded; may be empty.
        reason: Why a snapshot is void; None for the other two.

    """

    doc_kind: int
    name: str
    text_sha256: bytes
    state: bytes = field(repr=False)
    blame: bytes = field(repr=False)
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class KeyNotice:
    """From now on this store seals with another key."""

    new_key_id: int
    note: str


@dataclass(frozen=True, slots=True)
class ReceiptReplica:
    """How far the writer of a receipt has applied a replica's records."""

    replica_id: bytes
    max_seq: int


@dataclass(frozen=True, slots=True)
class ReceiptDoc:
    """What text the writer of a receipt has in a doc."""

    doc_tag: bytes
    text_sha256: bytes


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a store holds after applying everything up to ``seq``."""

    seq: int
    chain: bytes
    replicas: tuple[ReceiptReplica, ...]
    docs: tuple[ReceiptDoc, ...]


Envelope = UpdateEnvelope | StateEnvelope | KeyNotice | Receipt

UndoTarget = tuple[bytes, int, int]
"""A write that an undo takes back: replica_id, replica_seq, place within the record."""


def encode_envelope(envelope: Envelope) -> bytes:
    """Return the bytes that decode_envelope reads as this envelope.

    Raises:
        LocalProtocolError: If a field breaks its rule: decode_envelope would refuse it.

    """
    return write_uint(VERSION) + _body(envelope)


def decode_envelope(kind: int, data: bytes) -> Envelope:
    """Decode the payload of a plain record, or what an encrypted one was opened to.

    Whether the envelope's doc is that of the header's tag is for the caller to check.

    Args:
        kind: The RecordKind of the record's header.
        data: The whole envelope.

    Raises:
        RemoteProtocolError: With the detail of the first rule that is broken.
        LocalProtocolError: If there is no such kind; a parsed header has none such.

    """
    if kind not in READERS:
        raise LocalProtocolError(f"{kind} is not a kind of record")
    reader = Reader(data)
    version = reader.read_uint()
    if version != VERSION:
        raise bad_value(f"envelope has version {version}, and {VERSION} is known")
    envelope = READERS[kind](reader)
    reader.expect_end()
    return envelope


def undo_note(targets: Sequence[UndoTarget]) -> str:
    """Return the note of a write that undoes others.

    Raises:
        LocalProtocolError: If there is no target, a target is none that a record can
            have, or there are too many for a note.

    """
    members = [[replica_id.hex(), seq, at] for replica_id, seq, at in targets]
    note = json.dumps({"undo": members}, separators=(",", ":"))
    if read_undo_targets(note) is None:
        raise LocalProtocolError(
            f"note of {len(note)} bytes cannot name {len(members)} targets: {note:.80}"
        )
    return note


def read_undo_targets(note: str | None) -> tuple[UndoTarget, ...] | None:
    """Return which writes a write undoes, or None where its note does not say so.

    Never raises: a note is a hint from another store, and one that cannot be read
    makes its write an ordinary one. Other members of the note don't matter; a single
    bad target voids all.
    """
    if note is None or len(note.encode(errors="replace")) > NOTE_BYTES:
        return None
    try:
        value = json.loads(note)
    except (ValueError, RecursionError):
        # Brackets nested 1,000 deep fit in a note, and older Pythons recurse there.
        return None
    members = value.get("undo") if isinstance(value, dict) else None
    if not isinstance(members, list) or not members:
        return None
    targets = tuple(t for t in map(_undo_target, members) if t is not None)
    return targets if len(targets) == len(members) else None


def _undo_target(member: object) -> UndoTarget | None:
    match member:
        case [str(replica), int(seq), int(at)]:
            # A bool is an int to Python, and not to JSON.
            is_number = not isinstance(seq, bool) and not isinstance(at, bool)
            in_range = 1 <= seq <= UINT_MAX and 0 <= at < WRITES_PER_RECORD_MAX
            if is_number and in_range and REPLICA_HEX.fullmatch(replica):
                return bytes.fromhex(replica), seq, at
    return None


def _body(envelope: Envelope) -> bytes:
    if isinstance(envelope, UpdateEnvelope):
        writes = _list(envelope.writes, _write, WRITES_PER_RECORD_MAX, least=1)
        return doc_identity(envelope.doc_kind, envelope.name) + writes
    if isinstance(envelope, StateEnvelope):
        return doc_identity(envelope.doc_kind, envelope.name) + _state(envelope)
    if isinstance(envelope, KeyNotice):
        return _uint(envelope.new_key_id, U32_MAX) + _str(envelope.note, REASON_BYTES)
    return b"".join(
        [
            write_uint(envelope.seq),
            write_fixed(envelope.chain, 32),
            _list(envelope.replicas, _receipt_replica, RECEIPT_MAX),
            _list(envelope.docs, _receipt_doc, RECEIPT_MAX),
        ]
    )


def _write(write: Write) -> bytes:
    flags = FLAG_GENESIS if write.is_genesis else 0
    note = b""
    if write.note is not None:
        flags |= FLAG_NOTE
        note = _str(write.note, NOTE_BYTES)
    return b"".join(
        [
            write_uint(flags),
            _uint(write.counter, U32_MAX),
            _str(write.lane, LANE_BYTES),
            write_uint(write.at_ms),
            _str(write.op, OP_BYTES),
            _bytes(write.update, UPDATE_BYTES),
            note,
        ]
    )


def _state(envelope: StateEnvelope) -> bytes:
    state = write_fixed(envelope.text_sha256, 32)
    state += _bytes(envelope.state, STATE_BYTES)
    state += _bytes(envelope.blame, BLAME_BYTES)
    if envelope.reason is not None:
        state += _str(envelope.reason, REASON_BYTES)
    return state


def _receipt_replica(replica: ReceiptReplica) -> bytes:
    return write_fixed(replica.replica_id, 16) + write_uint(replica.max_seq)


def _receipt_doc(doc: ReceiptDoc) -> bytes:
    return write_fixed(doc.doc_tag, 16) + write_fixed(doc.text_sha256, 32)


def _uint(value: int, limit: int) -> bytes:
    if value > limit:
        raise LocalProtocolError(f"{value} exceeds the limit of {limit}")
    return write_uint(value)


def _bytes(data: bytes, limit: int) -> bytes:
    if len(data) > limit:
        raise LocalProtocolError(f"{len(data)} bytes exceed the limit of {limit}")
    return write_bytes(data)


def _str(text: str, limit: int) -> bytes:
    encoded = write_str(text)
    size_bytes = len(text.encode())
    if size_bytes > limit:
        raise LocalProtocolError(f"{size_bytes} bytes exceed the limit of {limit}")
    return encoded


def _list(
    items: Sequence[_Item],
    encode: Callable[[_Item], bytes],
    most: int,
    *,
    least: int = 0,
) -> bytes:
    if not least <= len(items) <= most:
        raise LocalProtocolError(
            f"list has {len(items)} entries, not within {least} and {most}"
        )
    return write_uint(len(items)) + b"".join(map(encode, items))


def _read_update(reader: Reader) -> UpdateEnvelope:
    doc_kind, name = _read_doc(reader)
    writes = _read_list(reader, _read_write, WRITES_PER_RECORD_MAX, least=1)
    return UpdateEnvelope(doc_kind, name, writes)


def _read_write(reader: Reader) -> Write:
    flags = reader.read_uint()
    if flags & ~FLAGS:
        raise bad_value(f"write has flags {flags}, and {FLAGS} are known")
    return Write(
        is_genesis=bool(flags & FLAG_GENESIS),
        counter=reader.read_uint(U32_MAX),
        lane=reader.read_str(LANE_BYTES),
        at_ms=reader.read_uint(),
        op=reader.read_str(OP_BYTES),
        update=reader.read_bytes(UPDATE_BYTES),
        note=reader.read_str(NOTE_BYTES) if flags & FLAG_NOTE else None,
    )


def _read_state(reader: Reader) -> StateEnvelope:
    doc_kind, name = _read_doc(reader)
    return StateEnvelope(
        doc_kind,
        name,
        text_sha256=reader.read_fixed(32),
        state=reader.read_bytes(STATE_BYTES),
        blame=reader.read_bytes(BLAME_BYTES),
    )


def _read_void(reader: Reader) -> StateEnvelope:
    return replace(_read_state(reader), reason=reader.read_str(REASON_BYTES))


def _read_key_notice(reader: Reader) -> KeyNotice:
    return KeyNotice(reader.read_uint(U32_MAX), reader.read_str(REASON_BYTES))


def _read_receipt(reader: Reader) -> Receipt:
    return Receipt(
        seq=reader.read_uint(),
        chain=reader.read_fixed(32),
        replicas=_read_list(reader, _read_receipt_replica, RECEIPT_MAX),
        docs=_read_list(reader, _read_receipt_doc, RECEIPT_MAX),
    )


def _read_receipt_replica(reader: Reader) -> ReceiptReplica:
    return ReceiptReplica(reader.read_fixed(16), reader.read_uint())


def _read_receipt_doc(reader: Reader) -> ReceiptDoc:
    return ReceiptDoc(reader.read_fixed(16), reader.read_fixed(32))


def _read_doc(reader: Reader) -> tuple[int, str]:
    doc_kind = reader.read_uint()
    if doc_kind not in DOC_KINDS:
        raise bad_value(f"{doc_kind} is not a kind of doc")
    name = reader.read_str(DOC_NAME_BYTES)
    if not name:
        raise bad_value("name of the doc is empty")
    return doc_kind, name


def _read_list(
    reader: Reader, read_one: Callable[[Reader], _Item], most: int, *, least: int = 0
) -> tuple[_Item, ...]:
    count = reader.read_uint(most)
    if count < least:
        raise bad_value(f"list has {count} entries, and {least} is the least")
    return tuple(read_one(reader) for _ in range(count))


READERS: dict[int, Callable[[Reader], Envelope]] = {
    RecordKind.UPDATE: _read_update,
    RecordKind.SNAPSHOT: _read_state,
    RecordKind.DOC_DELETE: _read_state,
    RecordKind.KEY_NOTICE: _read_key_notice,
    RecordKind.RECEIPT: _read_receipt,
    RecordKind.SNAPSHOT_VOID: _read_void,
}
