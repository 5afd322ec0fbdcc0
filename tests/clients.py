"""A client's session for tests, and the frames of a relay that talks to it."""

from dataclasses import replace
from typing import Any

from crdtmem.protocol import messages as wire
from crdtmem.protocol.client import ClientSession
from crdtmem.protocol.client_events import JoinCursor
from crdtmem.protocol.records import (
    DocKind,
    Header,
    RecordKind,
    build_record,
    chain_next,
    chain_start,
    doc_tag,
    record_id,
)

__all__ = [
    "AGENT",
    "AT_3",
    "CHAIN",
    "EPOCH",
    "FRESH",
    "INCARNATION",
    "LEAVE",
    "LOG",
    "NO_CHAIN",
    "RELAY",
    "REPLICA",
    "ack",
    "chain_of",
    "full",
    "give",
    "joined",
    "joined_session",
    "known",
    "make_record",
    "numbers_of",
    "open_session",
    "records",
    "refusal",
    "said",
    "welcome",
]

REPLICA = bytes(range(16))
INCARNATION = bytes(range(16, 32))
RELAY = b"R" * 16
EPOCH = b"E" * 16
NO_CHAIN = bytes(32)
AGENT = "tests"
FRESH = JoinCursor("team", bytes(16), 0, NO_CHAIN, own_seq=0)


def make_record(replica_seq, payload=b"payload", *, kind=RecordKind.UPDATE, base=0):
    """Build a record of the session's replica."""
    tag = doc_tag(DocKind.SLOT, "plan")
    header = Header(kind, 0, tag, REPLICA, replica_seq, base, 0)
    return build_record(header, payload)


def chain_of(records, namespace="team"):
    """Return the chain of the relay's log after these records, from its first."""
    chain = chain_start(RELAY, namespace)
    for seq, record in enumerate(records, 1):
        chain = chain_next(chain, seq, record_id(namespace, record))
    return chain


def welcome(**changes):
    """Build the relay's answer to hello."""
    fields: dict[str, Any] = {
        "features": 0,
        "relay_id": RELAY,
        "epoch": EPOCH,
        "heartbeat_ms": 15_000,
        "max_frame": 262_144,
        "part_size": 131_072,
        "max_update": 1_048_576,
        "max_snapshot": 16_777_216,
        "window_records": 256,
        "window_bytes": 4_194_304,
        "max_joins": 64,
        "agent": "relay",
    }
    return wire.Welcome(**fields | changes)


def joined(namespace="team", **changes):
    """Build the relay's answer to a join; by default of a fresh namespace."""
    fields: dict[str, Any] = {
        "ns_no": 1,
        "scopes": 15,
        "head": 0,
        "floor": 0,
        "resume_seq": 0,
        "resume_chain": chain_start(RELAY, namespace),
        "own_max": 0,
        "own_id": wire.NO_RECORD_ID,
    }
    return wire.Joined(namespace, **fields | changes)


def refusal(code, action, **changes):
    """Build an error about the namespace ``team``."""
    fields: dict[str, Any] = {"namespace": "team", "replica_seq": 0, "expected": 0}
    fields["retry_ms"] = 0
    return wire.ErrorMessage(action=action, code=code, text="t", **fields | changes)


def open_session(*, limits=None, now=0.0, **changes):
    """Return a session that has been welcomed; its events and output are taken."""
    session = ClientSession(REPLICA, INCARNATION, limits=limits, agent=AGENT, now=now)
    give(session, welcome(**changes), now=now)
    said(session)
    return session


def joined_session(cursor=FRESH, *, of_relay=None, **changes):
    """Return a session that has joined ``team``; its events and output are taken."""
    session = open_session(**changes)
    session.join(cursor)
    give(session, of_relay or joined())
    said(session)
    return session


def give(session, *messages, now=0.0):
    """Have a session receive messages in one frame; return its events."""
    session.receive(wire.encode_frame(messages), now)
    return session.events()


def said(session):
    """Return all that a session has to say, in order."""
    found = []
    while frames := session.data_to_send():
        for frame in frames:
            found += wire.decode_frame(frame)
    return found


LOG = [make_record(number, bytes([number])) for number in range(1, 6)]
CHAIN = [chain_of(LOG[:count]) for count in range(len(LOG) + 1)]
AT_3 = replace(FRESH, epoch=EPOCH, seq=3, chain=CHAIN[3])
LEAVE = wire.Leave(1)


def full(record):
    return wire.Item(wire.Form.FULL, record)


def known(record):
    """What the session makes of a full record: with its id."""
    return replace(full(record), record_id=record_id("team", record))


def records(first, last):
    """Build the message with these seqs of the log."""
    items = tuple(map(full, LOG[first - 1 : last]))
    return wire.Records(1, first, items, CHAIN[last])


def ack(replica_seq):
    return wire.Ack(1, replica_seq, replica_seq, CHAIN[replica_seq])


def numbers_of(messages):
    """Return the replica_seqs of the records in puts, and ids and offsets of parts."""
    found: list[object] = []
    for message in messages:
        if isinstance(message, wire.Put):
            found += [
                int.from_bytes(record[36:44], "big") for record in message.records
            ]
        elif isinstance(message, wire.Part):
            found.append((message.id, message.offset))
    return found
