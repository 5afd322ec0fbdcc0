"""The byte vectors of the wire protocol: each group, and how it is checked.

A group without a checker is left out, and the runner says so: its vectors count neither
as passed nor as failed. A ``*_invalid`` vector must be refused with the detail that
stands beside it.
"""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from crdtmem.errors import RecordMalformedError, RemoteProtocolError
from crdtmem.protocol import records
from crdtmem.protocol.codec import Reader, write_str, write_uint
from crdtmem.protocol.envelopes import decode_envelope, encode_envelope
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
}
