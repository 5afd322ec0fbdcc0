"""The byte vectors of the wire protocol: each group, and how it is checked.

A group without a checker is left out, and the runner says so: its vectors count neither
as passed nor as failed. A ``*_invalid`` vector must be refused with the detail that
stands beside it.
"""

import hashlib
from collections.abc import Callable
from dataclasses import asdict, fields
from typing import Any, get_args

from crdtmem import sealing
from crdtmem.errors import RecordMalformedError, RemoteProtocolError
from crdtmem.protocol import messages, records
from crdtmem.protocol.client import ClientSession
from crdtmem.protocol.client_events import Closed, JoinCursor, RecordsReceived
from crdtmem.protocol.codec import Reader, write_str, write_uint
from crdtmem.protocol.envelopes import decode_envelope, encode_envelope
from crdtmem.protocol.relaying import Sample
from crdtmem.protocol.tokens import format_token, parse_token
from tests.conformance.matchers import differences

__all__ = ["CHECKERS", "check_vector"]


def check_vector(group: str, vector: dict[str, Any]) -> list[str]:
    """Return what is wrong with the code's treatment of a vector, a line each."""
    try:
        return CHECKERS[group](vector)
    except Exception as exc:  # noqa: BLE001 - one bad vector stops no other
        return [f"raised {type(exc).__name__}: {exc}"]


def _decoded(vector: dict[str, Any], read: Callable[[Reader], object]) -> object:
    reader = Reader(bytes.fromhex(vector["hex"]))
    value = read(reader)
    reader.expect_end()
    return value


def _refused(vector: dict[str, Any], decode: Callable[[], object]) -> list[str]:
    try:
        value = decode()
    except (RecordMalformedError, RemoteProtocolError) as exc:
        return differences(vector["why"], exc.detail, "detail")
    return [f"was accepted as {value!r}"]


def _uint(vector: dict[str, Any]) -> list[str]:
    return [
        *differences(vector["hex"], write_uint(vector["value"]).hex(), "encoded"),
        *differences(vector["value"], _decoded(vector, Reader.read_uint), "decoded"),
    ]


def _str(vector: dict[str, Any]) -> list[str]:
    text = vector["text"]
    limit = len(text.encode())
    return [
        *differences(vector["hex"], write_str(text).hex(), "encoded"),
        *differences(text, _decoded(vector, lambda r: r.read_str(limit)), "decoded"),
    ]


def _uint_invalid(vector: dict[str, Any]) -> list[str]:
    return _refused(vector, lambda: _decoded(vector, Reader.read_uint))


def _str_invalid(vector: dict[str, Any]) -> list[str]:
    return _refused(vector, lambda: _decoded(vector, lambda r: r.read_str(1_000)))


def _doc_tag(vector: dict[str, Any]) -> list[str]:
    tag = records.doc_tag(vector["doc_kind"], vector["name"])
    return differences(vector["doc_tag"], tag.hex(), "doc_tag")


def _client_id(vector: dict[str, Any]) -> list[str]:
    replica_id = bytes.fromhex(vector["replica_id"])
    found = records.client_id(replica_id, vector["counter"])
    return differences(vector["client_id"], found, "client_id")


def _fields_of(value: Any) -> Any:
    """Return the vector's form of a decoded value: bytes as hex, a write's flags."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple):
        return [_fields_of(item) for item in value]
    if not isinstance(value, dict):
        return value
    fields = {name: _fields_of(item) for name, item in value.items()}
    if "is_genesis" in fields:
        flags = (1 if fields["is_genesis"] else 0) | (2 if fields["note"] else 0)
        fields |= {"flags": flags}
    return fields


def _envelope(vector: dict[str, Any]) -> list[str]:
    envelope = decode_envelope(vector["kind"], bytes.fromhex(vector["hex"]))
    return [
        *differences(vector["fields"], _fields_of(asdict(envelope)), "decoded"),
        *differences(vector["hex"], encode_envelope(envelope).hex(), "encoded"),
    ]


def _record(vector: dict[str, Any]) -> list[str]:
    record = bytes.fromhex(vector["hex"])
    header = records.parse_header(record)
    payload = record[header.payload_start :]
    name = records.record_id(vector["namespace"], record)
    built = records.build_record(header, bytes.fromhex(vector["payload"]))
    return [
        *differences(vector["fields"], _fields_of(asdict(header)), "decoded"),
        *differences(vector["payload"], payload.hex(), "payload"),
        *differences(vector["hex"], built.hex(), "encoded"),
        *differences(vector["record_id"], name.hex(), "record_id"),
    ]


def _record_id(vector: dict[str, Any]) -> list[str]:
    name = records.record_id(vector["namespace"], bytes.fromhex(vector["record"]))
    return differences(vector["record_id"], name.hex(), "record_id")


def _record_invalid(vector: dict[str, Any]) -> list[str]:
    return _refused(vector, lambda: records.parse_header(bytes.fromhex(vector["hex"])))


def _chain(vector: dict[str, Any]) -> list[str]:
    if vector["seq"] == 0:
        relay_id = bytes.fromhex(vector["relay_id"])
        found = records.chain_start(relay_id, vector["namespace"])
    else:
        previous = bytes.fromhex(vector["previous"])
        name = bytes.fromhex(vector["record_id"])
        found = records.chain_next(previous, vector["seq"], name)
    return differences(vector["chain"], found.hex(), "chain")


def _namespace(vector: dict[str, Any]) -> list[str]:
    found = messages.is_namespace(vector["name"])
    return differences(vector["valid"], found, "valid")


# By the name in a vector: ``error`` is ErrorMessage.
MESSAGES = {
    cls.__name__.lower().removesuffix("message"): cls
    for cls in get_args(messages.Message)
}
PARTS = {"samples": Sample, "heads": messages.Head, "items": messages.Item}
HEX_FIELDS = {
    "blob",
    "chain",
    "data",
    "doc_tag",
    "epoch",
    "incarnation",
    "own_id",
    "record",
    "record_id",
    "relay_id",
    "replica_id",
    "resume_chain",
}


def _value_of(name: str, value: Any) -> Any:
    """Return a field of a message from the vector's form of it."""
    if name == "records":
        return tuple(map(bytes.fromhex, value))
    if name in PARTS:
        return tuple(_built(PARTS[name], part) for part in value)
    return bytes.fromhex(value) if name in HEX_FIELDS else value


def _built(cls: Callable[..., Any], values: dict[str, Any]) -> Any:
    return cls(**{name: _value_of(name, value) for name, value in values.items()})


def _same_message(name: str, values: dict[str, Any], decoded: Any) -> list[str]:
    """Return what differs between a decoded message and the vector's fields."""
    cls = MESSAGES[name]
    wanted = _built(cls, values)
    return [
        *differences(sorted(each.name for each in fields(cls)), sorted(values)),
        *([] if decoded == wanted else [f"expected {wanted}, got {decoded}"]),
    ]


def _message(vector: dict[str, Any]) -> list[str]:
    (decoded,) = messages.decode_frame(bytes.fromhex(vector["hex"]))
    built = _built(MESSAGES[vector["name"]], vector["fields"])
    encoded = messages.encode_message(built)
    return [
        *_same_message(vector["name"], vector["fields"], decoded),
        *differences(vector["hex"], encoded.hex(), "encoded"),
        *differences(vector["type"], encoded[0], "type"),
    ]


def _frame(vector: dict[str, Any]) -> list[str]:
    decoded = messages.decode_frame(bytes.fromhex(vector["hex"]))
    wanted = vector["messages"]
    found = differences(len(wanted), len(decoded), "messages")
    for want, have in zip(wanted, decoded, strict=False):
        found += _same_message(want["name"], want["fields"], have)
    built = [_built(MESSAGES[want["name"]], want["fields"]) for want in wanted]
    encoded = messages.encode_frame(built)
    return [*found, *differences(vector["hex"], encoded.hex(), "encoded")]


def _frame_invalid(vector: dict[str, Any]) -> list[str]:
    data = bytes.fromhex(vector["hex"])
    return _refused(vector, lambda: messages.decode_frame(data))


WELCOME = messages.Welcome(
    features=0,
    relay_id=bytes(range(0x20, 0x30)),
    epoch=bytes(range(0x30, 0x40)),
    heartbeat_ms=15_000,
    max_frame=262_144,
    part_size=131_072,
    max_update=4_194_304,
    max_snapshot=16_777_216,
    window_records=256,
    window_bytes=4_194_304,
    max_joins=64,
    agent="vectors",
)


def _stream(vector: dict[str, Any]) -> list[str]:
    """Have a client receive the frames, joined where the vector starts."""
    seq, chain = vector["start_seq"], bytes.fromhex(vector["start_chain"])
    cursor = JoinCursor(vector["namespace"], WELCOME.epoch, seq, chain, own_seq=0)
    joined = messages.Joined(
        vector["namespace"], 1, 3, seq, 0, seq, chain, 0, messages.NO_RECORD_ID
    )
    session = ClientSession(bytes(16), bytes(16), agent="vectors", now=0.0)
    session.receive(messages.encode_message(WELCOME), 0.0)
    session.join(cursor)
    session.receive(messages.encode_message(joined), 0.0)
    for frame in vector["frames"]:
        session.receive(bytes.fromhex(frame), 0.0)
    outcome = "ok"
    for event in session.events():
        if isinstance(event, RecordsReceived):
            seq = event.first_seq + len(event.items) - 1
        elif isinstance(event, Closed):
            outcome = event.code
    return [
        *differences(vector["end_seq"], seq, "end_seq"),
        *differences(vector["outcome"], outcome, "outcome"),
    ]


def _token(vector: dict[str, Any]) -> list[str]:
    parsed = parse_token(vector["token"])
    if parsed is None:
        return differences(vector["valid"], False, "valid")
    token_id, secret = parsed
    digest = hashlib.sha256(secret).hexdigest()
    return [
        *differences(vector["valid"], True, "valid"),
        *differences(vector["id"], token_id, "id"),
        *differences(vector["sha256"], digest, "sha256"),
        *differences(vector["token"], format_token(token_id, secret), "formatted"),
    ]


def _key(vector: dict[str, Any]) -> list[str]:
    keys = sealing.derive_keys(bytes.fromhex(vector["nk"]), vector["namespace"])
    return [
        line
        for name, value in keys._asdict().items()
        for line in differences(vector[f"k_{name}"], value.hex(), name)
    ]


def _enc_doc_tag(vector: dict[str, Any]) -> list[str]:
    name_key = bytes.fromhex(vector["k_name"])
    tag = sealing.sealed_doc_tag(name_key, vector["doc_kind"], vector["name"])
    return differences(vector["doc_tag"], tag.hex(), "doc_tag")


def _sealed_record(vector: dict[str, Any]) -> list[str]:
    namespace, record = vector["namespace"], bytes.fromhex(vector["hex"])
    keys = sealing.derive_keys(bytes.fromhex(vector["nk"]), namespace)
    header = records.parse_header(record)
    envelope = bytes.fromhex(vector["envelope"])
    random = bytes.fromhex(vector["random"])
    sealed = sealing.seal_record(keys, namespace, header, envelope, random)
    opened = sealing.open_record(keys, namespace, header, record)
    name = records.record_id(namespace, record)
    return [
        *differences(vector["fields"], _fields_of(asdict(header)), "decoded"),
        *differences(vector["envelope"], opened.hex(), "opened"),
        *differences(vector["hex"], sealed.hex(), "sealed"),
        *differences(vector["record_id"], name.hex(), "record_id"),
    ]


def _padme(vector: dict[str, Any]) -> list[str]:
    return differences(
        vector["padded"], sealing.padded_size(vector["length"]), "padded"
    )


CHECKERS: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "uint": _uint,
    "uint_invalid": _uint_invalid,
    "str": _str,
    "str_invalid": _str_invalid,
    "doc_tag": _doc_tag,
    "client_id": _client_id,
    "envelope": _envelope,
    "record": _record,
    "record_id": _record_id,
    "record_invalid": _record_invalid,
    "chain": _chain,
    "namespace": _namespace,
    "message": _message,
    "frame": _frame,
    "frame_invalid": _frame_invalid,
    "stream": _stream,
    "token": _token,
    "key": _key,
    "enc_doc_tag": _enc_doc_tag,
    "sealed_record": _sealed_record,
    "padme": _padme,
}
