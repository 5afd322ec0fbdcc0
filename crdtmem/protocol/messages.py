"""The messages of a connection, one class each, and the frames that carry them.

A WebSocket binary message is a frame: messages back to back, each with its type and
its length in front. Types from 64 on are for later versions and are skipped. A value
that breaks a field's rule is refused in both directions: received, it is the peer's
fault; sent, it is ours.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from itertools import pairwise
from typing import Any, get_args

from crdtmem.errors import LocalProtocolError, RemoteProtocolError
from crdtmem.limits import (
    AGENT_BYTES,
    ERROR_CODE_BYTES,
    ERROR_TEXT_BYTES,
    FRAME_BYTES,
    FRAME_MESSAGES_MAX,
    JOINS_MAX,
    PRESENCE_BYTES,
    PRESENCE_TTL_MS,
    PUT_RECORDS_MAX,
    RECORDS_ITEMS_MAX,
    SAMPLES_MAX,
    UINT_MAX,
)
from crdtmem.protocol.codec import Reader, write_bytes, write_uint
from crdtmem.protocol.fields import (
    BYTES,
    FIX16,
    FIX32,
    STR,
    UINT,
    Codec,
    among,
    bad_value,
    checked,
    listing,
    most,
    struct,
    text,
)
from crdtmem.protocol.records import write_fixed
from crdtmem.protocol.relaying import Sample

__all__ = [
    "NO_RECORD_ID",
    "Ack",
    "Action",
    "Bye",
    "ErrorMessage",
    "Form",
    "Head",
    "Heartbeat",
    "Hello",
    "Item",
    "Join",
    "JoinFlag",
    "Joined",
    "Leave",
    "Message",
    "Part",
    "Presence",
    "Put",
    "Records",
    "Rewind",
    "Samples",
    "Welcome",
    "decode_frame",
    "encode_frame",
    "encode_message",
    "is_namespace",
    "pack_frames",
]

NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?")

# Types below are the protocol's own; a higher one that is unknown is skipped.
FIRST_OPTIONAL_TYPE = 64

NO_RECORD_ID = bytes(32)
"""Stands where there is no record."""


class JoinFlag(IntFlag):
    """What a join asks for."""

    PRESENCE = 1
    NO_WRITES = 2


class Form(IntEnum):
    """How a record goes down."""

    FULL = 0
    OWN = 1
    COVERED = 2
    REDUNDANT = 3


class Action(IntEnum):
    """What the client does about an error."""

    GO_ON = 0
    RETRY = 1
    STOP = 2
    CLOSE = 3


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of a client.

    Attributes:
        features: Bits of minor additions; version 1 has none.
        replica_id: 16 bytes: the store.
        incarnation: 16 random bytes, new with each lease.
        agent: The program, for logs.

    """

    features: int
    replica_id: bytes
    incarnation: bytes
    agent: str


@dataclass(frozen=True, slots=True)
class Welcome:
    """The relay's answer to hello: who it is, and its bounds."""

    features: int
    relay_id: bytes
    epoch: bytes
    heartbeat_ms: int
    max_frame: int
    part_size: int
    max_update: int
    max_snapshot: int
    window_records: int
    window_bytes: int
    max_joins: int
    agent: str


@dataclass(frozen=True, slots=True)
class Join:
    """A client asks to read and write a namespace from a cursor on.

    Attributes:
        namespace: See is_namespace.
        flags: JoinFlag.
        epoch: Of the cursor; zeros for none.
        seq: Of the cursor; 0 for none.
        chain: The chain at that seq.
        own_seq: Highest replica_seq that this store has sealed.

    """

    namespace: str
    flags: int
    epoch: bytes
    seq: int
    chain: bytes
    own_seq: int


@dataclass(frozen=True, slots=True)
class Joined:
    """The relay serves a namespace from ``resume_seq`` on.

    Attributes:
        namespace: As asked for.
        ns_no: Stands for it in every other message; not 0.
        scopes: What the token may do there; bits of relaying.Scope.
        head: Newest seq.
        floor: Seq up to which rows are gone.
        resume_seq: The client's position from now on.
        resume_chain: The chain there.
        own_max: Highest replica_seq that the relay has of this replica.
        own_id: Record id of that record; zeros for none.

    """

    namespace: str
    ns_no: int
    scopes: int
    head: int
    floor: int
    resume_seq: int
    resume_chain: bytes
    own_max: int
    own_id: bytes


@dataclass(frozen=True, slots=True)
class Rewind:
    """The cursor is not in the relay's log; samples are asked for.

    Attributes:
        namespace: As asked for.
        cause: relaying.RewindCause: 1 past head, 2 another chain.
        head: Newest seq.
        floor: Seq up to which rows are gone.

    """

    namespace: str
    cause: int
    head: int
    floor: int


@dataclass(frozen=True, slots=True)
class Samples:
    """Places that the client remembers, newest first."""

    namespace: str
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True)
class Leave:
    """The client is done with a namespace."""

    ns_no: int


@dataclass(frozen=True, slots=True)
class Put:
    """Records to be stored, consecutive in replica_seq."""

    ns_no: int
    records: tuple[bytes, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Ack:
    """Everything up to ``replica_seq`` is stored; ``seq`` and ``chain`` of the last."""

    ns_no: int
    replica_seq: int
    seq: int
    chain: bytes


@dataclass(frozen=True, slots=True)
class Item:
    """A record as it goes down.

    Attributes:
        form: A Form.
        record: All its bytes if it is FULL, else empty.
        record_id: Its id unless it is FULL; then zeros.
        doc_tag: Of its doc if it is COVERED or REDUNDANT, else zeros.

    """

    form: int
    record: bytes = field(default=b"", repr=False)
    record_id: bytes = NO_RECORD_ID
    doc_tag: bytes = bytes(16)


@dataclass(frozen=True, slots=True)
class Records:
    """Adjoining records of the log, and the chain after the last."""

    ns_no: int
    first_seq: int
    items: tuple[Item, ...]
    chain: bytes


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a record that is too long for one message.

    Attributes:
        ns_no: Of the namespace.
        id: Down the record's seq, up its replica_seq.
        total: Length of the record, in bytes.
        offset: Where in the record the piece begins.
        data: Not empty.

    """

    ns_no: int
    id: int
    total: int
    offset: int
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Head:
    """A namespace's place in a heartbeat: the relay's head, the client's applied."""

    ns_no: int
    seq: int


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A sign of life; ``flags`` 1 asks for one at once."""

    flags: int
    heads: tuple[Head, ...]


@dataclass(frozen=True, slots=True)
class Presence:
    """What somebody is at; never stored.

    Attributes:
        ns_no: Of the namespace.
        replica_id: Whose it is.
        incarnation: Of that replica's lease.
        counter: Rises with each of that incarnation.
        ttl_ms: How long it holds; 0 for gone.
        blob: For people and programs; the relay does not look inside.

    """

    ns_no: int
    replica_id: bytes
    incarnation: bytes
    counter: int
    ttl_ms: int
    blob: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ErrorMessage:
    """Something was refused.

    Attributes:
        namespace: Which; empty for the whole connection.
        replica_seq: Of the refused record; 0 where it is about none.
        expected: Next replica_seq that the relay takes.
        action: An Action.
        retry_ms: When to try again.
        code: As in section 6 of the protocol.
        text: For people.

    """

    namespace: str
    replica_seq: int
    expected: int
    action: int
    retry_ms: int
    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Bye:
    """The last message of a side; the client may come back after ``retry_ms``."""

    retry_ms: int
    code: str


Message = (
    Hello
    | Welcome
    | Join
    | Joined
    | Rewind
    | Samples
    | Leave
    | Put
    | Ack
    | Records
    | Part
    | Heartbeat
    | Presence
    | ErrorMessage
    | Bye
)


def is_namespace(name: str) -> bool:
    """Tell whether this may be the name of a namespace.

    1 to 64 of ``a-z 0-9 . _ -``, a letter or digit at both ends: so no two names that
    a file system or a person takes for one.
    """
    return NAMESPACE.fullmatch(name) is not None


def encode_message(message: Message) -> bytes:
    """Return a message with its type and length in front.

    Raises:
        LocalProtocolError: If a field breaks its rule.

    """
    number = TYPES[type(message)]
    body = LAYOUTS[number].write(message)
    broken = _broken_rule(message)
    if broken:
        raise LocalProtocolError(broken)
    return write_uint(number) + write_bytes(body)


def encode_frame(messages: Sequence[Message]) -> bytes:
    """Return the frame of these messages.

    Raises:
        LocalProtocolError: If there is none, there are too many, or a field of one
            breaks its rule. The length is for the caller to keep.

    """
    if not 1 <= len(messages) <= FRAME_MESSAGES_MAX:
        raise LocalProtocolError(
            f"frame of {len(messages)} messages, not within 1 and {FRAME_MESSAGES_MAX}"
        )
    return b"".join(map(encode_message, messages))


def pack_frames(messages: Iterable[bytes], *, max_frame: int) -> list[bytes]:
    """Return encoded messages in as few frames as their order allows.

    A message longer than a frame may be gets one of its own; the caller avoids that.
    """
    frames: list[bytearray] = []
    count = FRAME_MESSAGES_MAX
    for message in messages:
        if count == FRAME_MESSAGES_MAX or len(frames[-1]) + len(message) > max_frame:
            frames.append(bytearray())
            count = 0
        frames[-1] += message
        count += 1
    return [bytes(frame) for frame in frames]


def decode_frame(data: bytes, *, max_frame: int = FRAME_BYTES) -> list[Message]:
    """Decode a whole frame; messages of later versions are left out.

    Args:
        data: What one WebSocket binary message held.
        max_frame: Longest frame to accept, in bytes.

    Raises:
        RemoteProtocolError: With the detail of the first rule that is broken; none
            of the frame's messages counts then.

    """
    if not data:
        raise RemoteProtocolError("empty-frame", "frame holds no message")
    if len(data) > max_frame:
        raise RemoteProtocolError(
            "too-large", f"frame of {len(data)} bytes exceeds the limit of {max_frame}"
        )
    reader = Reader(data)
    messages = []
    left = FRAME_MESSAGES_MAX
    while not reader.is_at_end:
        if not left:
            raise RemoteProtocolError(
                "too-many-messages", f"frame holds more than {FRAME_MESSAGES_MAX}"
            )
        left -= 1
        message = _read_message(reader)
        if message is not None:
            messages.append(message)
    return messages


def _read_message(reader: Reader) -> Message | None:
    number = reader.read_uint()
    body = Reader(reader.read_bytes(UINT_MAX))
    if number not in LAYOUTS:
        if number < FIRST_OPTIONAL_TYPE:
            raise RemoteProtocolError("unknown-type", f"{number} is no message's type")
        return None
    message: Message = LAYOUTS[number].read(body)
    body.expect_end()
    broken = _broken_rule(message)
    if broken:
        raise bad_value(broken)
    return message


def _broken_rule(message: Message) -> str | None:
    """Return a sentence on the rule between its fields that a message breaks."""
    match message:
        case Samples(samples=samples):
            seqs = [sample.seq for sample in samples]
            if any(a <= b for a, b in pairwise(seqs)):
                return "samples do not fall"
        case Records(first_seq=first, items=items):
            if not 1 <= first <= UINT_MAX + 1 - len(items):
                return f"{len(items)} records begin at seq {first}"
        case Part(total=total, offset=offset, data=data):
            if not data or offset + len(data) > total:
                return f"part of {len(data)} bytes at {offset} of {total}"
        case _:
            pass
    return None


def _write_item(item: Item) -> bytes:
    match item.form:
        case Form.FULL:
            rest = write_bytes(item.record)
        case Form.OWN:
            rest = write_fixed(item.record_id, 32)
        case Form.COVERED | Form.REDUNDANT:
            rest = write_fixed(item.record_id, 32) + write_fixed(item.doc_tag, 16)
        case _:
            raise LocalProtocolError(f"{item.form} is no form of a record")
    return write_uint(item.form) + rest


def _read_item(reader: Reader) -> Item:
    match reader.read_uint():
        case Form.FULL:
            return Item(Form.FULL, record=reader.read_bytes(UINT_MAX))
        case Form.OWN:
            return Item(Form.OWN, record_id=reader.read_fixed(32))
        case Form.COVERED | Form.REDUNDANT as form:
            return Item(form, b"", reader.read_fixed(32), reader.read_fixed(16))
        case form:
            raise bad_value(f"{form} is no form of a record")


AGENT = text(AGENT_BYTES)
CODE = text(ERROR_CODE_BYTES)
NAMESPACE_NAME = checked(STR, is_namespace, "name is no namespace's")
NO_OR_NAMESPACE = checked(
    STR, lambda name: not name or is_namespace(name), "name is no namespace's"
)
NS_NO = checked(UINT, bool, "number of a namespace is 0")
BLOB = checked(
    BYTES, lambda blob: len(blob) <= PRESENCE_BYTES, f"blob over {PRESENCE_BYTES} bytes"
)
SAMPLE = struct(Sample, UINT, FIX32)
HEAD = struct(Head, NS_NO, UINT)
ITEM = Codec(_write_item, _read_item)

# By type; the fields stand in the order of their class.
LAYOUTS: dict[int, Codec[Any]] = {
    1: struct(Hello, UINT, FIX16, FIX16, AGENT),
    2: struct(Welcome, UINT, FIX16, FIX16, *[UINT] * 8, AGENT),
    3: struct(Join, NAMESPACE_NAME, among(range(4), "flag"), FIX16, UINT, FIX32, UINT),
    4: struct(
        Joined, NAMESPACE_NAME, NS_NO, UINT, UINT, UINT, UINT, FIX32, UINT, FIX32
    ),
    5: struct(Rewind, NAMESPACE_NAME, among(range(1, 3), "cause"), UINT, UINT),
    6: struct(Samples, NAMESPACE_NAME, listing(SAMPLE, SAMPLES_MAX)),
    7: struct(Leave, NS_NO),
    8: struct(Put, NS_NO, listing(BYTES, PUT_RECORDS_MAX, least=1)),
    9: struct(Ack, NS_NO, UINT, UINT, FIX32),
    10: struct(Records, NS_NO, UINT, listing(ITEM, RECORDS_ITEMS_MAX, least=1), FIX32),
    11: struct(Part, NS_NO, UINT, UINT, UINT, BYTES),
    12: struct(Heartbeat, among(range(2), "flag"), listing(HEAD, JOINS_MAX)),
    13: struct(Presence, NS_NO, FIX16, FIX16, UINT, most(PRESENCE_TTL_MS), BLOB),
    14: struct(
        ErrorMessage,
        NO_OR_NAMESPACE,
        UINT,
        UINT,
        among(range(4), "action"),
        UINT,
        CODE,
        text(ERROR_TEXT_BYTES),
    ),
    15: struct(Bye, UINT, CODE),
}
TYPES: dict[type[Message], int] = dict(
    zip(get_args(Message), range(1, len(LAYOUTS) + 1), strict=True)
)
