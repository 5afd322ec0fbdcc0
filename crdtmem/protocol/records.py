"""Records, the unit that stores and relays keep, and the ids that follow from them.

A record is a header of 60 bytes, a seal where it is encrypted, and a payload. A relay
reads headers alone, so nothing here looks into a payload: ``protocol.envelopes`` does.
The integers of a header are big-endian and of fixed width; in what is hashed, a string
has its length in front, as everywhere on the wire.
"""

import hashlib
import struct
from dataclasses import dataclass
from enum import IntEnum

from crdtmem.errors import LocalProtocolError, RecordMalformedError
from crdtmem.limits import DOC_NAME_BYTES, RECORD_BYTES, U32_MAX, UINT_MAX
from crdtmem.protocol.codec import write_str

__all__ = [
    "HEADER_BYTES",
    "NO_DOC_TAG",
    "DocKind",
    "Header",
    "RecordKind",
    "build_record",
    "chain_next",
    "chain_start",
    "client_id",
    "doc_identity",
    "doc_tag",
    "genesis_client_id",
    "parse_header",
    "record_id",
    "write_fixed",
]

# version, kind, alg, flags, doc_tag, replica_id, replica_seq, base, key_id, payload_len
LAYOUT = struct.Struct(">4B16s16s2Q2I")
VERSION = 1

HEADER_BYTES = LAYOUT.size
NO_DOC_TAG = bytes(16)
"""The doc tag of a record that belongs to no doc."""

# By alg: plain records have no seal; encrypted ones a salt and a commitment.
SEAL_BYTES = {0: 0, 1: 32 + 16}


class RecordKind(IntEnum):
    """What a record is for."""

    UPDATE = 1
    SNAPSHOT = 2
    DOC_DELETE = 3
    KEY_NOTICE = 4
    RECEIPT = 5
    SNAPSHOT_VOID = 6


class DocKind(IntEnum):
    """What a doc holds."""

    SLOT = 1
    MEMORY_SET = 2


KINDS = frozenset(RecordKind)
KINDS_WITHOUT_DOC = {RecordKind.KEY_NOTICE, RecordKind.RECEIPT}
KINDS_WITH_BASE = {RecordKind.DOC_DELETE, RecordKind.SNAPSHOT_VOID}


@dataclass(frozen=True, slots=True)
class Header:
    """What the relay knows of a record.

    Attributes:
        kind: A RecordKind.
        alg: 0 for a plain payload, 1 for an encrypted one.
        doc_tag: 16 bytes that stand for the doc; NO_DOC_TAG for the kinds without one.
        replica_id: 16 bytes: the store that wrote it.
        replica_seq: Its place among the records of that store in this namespace.
        base: Highest seq that was applied when it was made; for a snapshot and a doc
            delete the seq up to which it covers the doc, for a void the snapshot's seq.
        key_id: Which key it is encrypted with; 0 exactly where it is plain.

    """

    kind: int
    alg: int
    doc_tag: bytes
    replica_id: bytes
    replica_seq: int
    base: int
    key_id: int

    @property
    def payload_start(self) -> int:
        """Index of the payload in the record; the seal lies between header and it."""
        return HEADER_BYTES + SEAL_BYTES[self.alg]


def parse_header(record: bytes) -> Header:
    """Decode and check the header of a whole record.

    Raises:
        RecordMalformedError: For the first rule that is broken, in the order of its
            details; a record too short for a header is a ``length``.

    """
    if len(record) < HEADER_BYTES:
        raise RecordMalformedError(
            "length", f"record has {len(record)} of the {HEADER_BYTES} header bytes"
        )
    version, kind, alg, flags, *rest, payload_len = LAYOUT.unpack_from(record)
    header = Header(kind, alg, *rest)
    broken = _broken_rule(header, version=version, flags=flags)
    if broken:
        raise RecordMalformedError(*broken)
    found = len(record) - header.payload_start
    if payload_len != found:
        raise RecordMalformedError(
            "length", f"payload of {payload_len} bytes is announced, and {found} follow"
        )
    return header


def build_record(header: Header, payload: bytes, seal: bytes = b"") -> bytes:
    """Return the record that parse_header reads as this header.

    Raises:
        LocalProtocolError: If the header breaks a rule, the seal is not of the length
            that alg asks for, or the payload is too long for any relay.

    """
    write_fixed(header.replica_id, 16)
    write_fixed(header.doc_tag, 16)
    broken = _broken_rule(header, version=VERSION, flags=0)
    if broken:
        raise LocalProtocolError(broken[1])
    write_fixed(seal, SEAL_BYTES[header.alg])
    if len(payload) > RECORD_BYTES:
        raise LocalProtocolError(
            f"payload of {len(payload)} bytes exceeds the limit of {RECORD_BYTES}"
        )
    head = LAYOUT.pack(
        VERSION,
        header.kind,
        header.alg,
        0,
        header.doc_tag,
        header.replica_id,
        header.replica_seq,
        header.base,
        header.key_id,
        len(payload),
    )
    return head + seal + payload


def record_id(namespace: str, record: bytes) -> bytes:
    """Return the 32 bytes that name a record within its namespace."""
    return _sha256("record", write_str(namespace), record)


def chain_start(relay_id: bytes, namespace: str) -> bytes:
    """Return the chain of a namespace before its first record."""
    return _sha256("chain", write_fixed(relay_id, 16), write_str(namespace))


def chain_next(previous: bytes, seq: int, record_id: bytes) -> bytes:
    """Return the chain after a record.

    Args:
        previous: The chain after the record before it, or the start of the chain.
        seq: Its place in the log, from 1.
        record_id: See record_id.

    Raises:
        LocalProtocolError: If an argument has not its length or range.

    """
    place = _within("seq", seq, 1, UINT_MAX).to_bytes(8, "big")
    link = write_fixed(previous, 32) + place + write_fixed(record_id, 32)
    return hashlib.sha256(link).digest()


def doc_tag(doc_kind: int, name: str) -> bytes:
    """Return the 16 bytes that stand for a doc in the headers of plain records.

    Raises:
        LocalProtocolError: As for doc_identity.

    """
    return _sha256("doc", doc_identity(doc_kind, name))[:16]


def doc_identity(doc_kind: int, name: str) -> bytes:
    """Return a doc's kind and name as they stand in hashes and in envelopes.

    Raises:
        LocalProtocolError: If there is no such kind of doc, or the name is empty or
            longer than 255 bytes.

    """
    kind = _within("kind of doc", doc_kind, DocKind.SLOT, DocKind.MEMORY_SET)
    encoded = write_str(name)
    _within("length of a doc's name", len(name.encode()), 1, DOC_NAME_BYTES)
    return bytes([kind]) + encoded


def client_id(replica_id: bytes, counter: int) -> int:
    """Return a Yjs client id of a replica, from 1 to 2^53-1.

    Args:
        replica_id: 16 bytes.
        counter: 0 is the id that all its writes have; the others are reserved.

    Raises:
        LocalProtocolError: If an argument has not its length or range.

    """
    number = _within("counter", counter, 0, U32_MAX).to_bytes(4, "big")
    digest = hashlib.sha256(write_fixed(replica_id, 16) + number).digest()
    # Yjs takes 0 for "no client"; one replica in 2^53 would otherwise have it.
    return int.from_bytes(digest, "big") % (UINT_MAX + 1) or 1


def genesis_client_id(
    namespace: str, doc_kind: int, label: str, file_bytes: bytes
) -> int:
    """Return the Yjs client id of the first text of a doc, from 1 to 2^53-1.

    Two replicas that import the same file into the same doc get the same id, and so
    their docs merge into one text.

    Args:
        namespace: The project id, or ``global``: the same on every machine.
        doc_kind: A DocKind.
        label: The doc's name.
        file_bytes: The text file, in UTF-8.

    Raises:
        LocalProtocolError: As for doc_identity.

    """
    identity = write_str(namespace) + doc_identity(doc_kind, label)
    digest = _sha256("genesis", identity, file_bytes)
    return 1 + int.from_bytes(digest, "big") % UINT_MAX


def write_fixed(data: bytes, size: int) -> bytes:
    """Return the bytes as they are.

    Raises:
        LocalProtocolError: If they are not as many as this.

    """
    if len(data) != size:
        raise LocalProtocolError(f"{len(data)} bytes where {size} are due")
    return data


def _broken_rule(header: Header, *, version: int, flags: int) -> tuple[str, str] | None:
    """Return the first rule that a header breaks and a sentence, or None."""
    has_doc = header.kind not in KINDS_WITHOUT_DOC
    least_base = 1 if header.kind in KINDS_WITH_BASE else 0
    least_key, most_key = (1, U32_MAX) if header.alg else (0, 0)
    rules = (
        ("version", version, version == VERSION),
        ("kind", header.kind, header.kind in KINDS),
        ("alg", header.alg, header.alg in SEAL_BYTES),
        ("flags", flags, flags == 0),
        ("doc-tag", header.doc_tag.hex(), (header.doc_tag != NO_DOC_TAG) == has_doc),
        ("replica-seq", header.replica_seq, 1 <= header.replica_seq <= UINT_MAX),
        ("base", header.base, least_base <= header.base <= UINT_MAX),
        ("key-id", header.key_id, least_key <= header.key_id <= most_key),
    )
    for detail, value, holds in rules:
        if not holds:
            return detail, f"{detail} {value} in a record of kind {header.kind}"
    return None


def _within(what: str, value: int, least: int, most: int) -> int:
    if not least <= value <= most:
        raise LocalProtocolError(
            f"{what} is {value:d}, not within {least:d} and {most:d}"
        )
    return value


def _sha256(purpose: str, *parts: bytes) -> bytes:
    """Hash parts for one purpose: no value can be passed off as one of another."""
    digest = hashlib.sha256(b"crdtmem/1/%b\x00" % purpose.encode())
    for part in parts:
        digest.update(part)
    return digest.digest()
