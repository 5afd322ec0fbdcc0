"""crdtmem.protocol.records"""

import contextlib
import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from crdtmem.errors import LocalProtocolError, RecordMalformedError
from crdtmem.limits import RECORD_BYTES, U32_MAX, UINT_MAX
from crdtmem.protocol.records import (
    HEADER_BYTES,
    NO_DOC_TAG,
    DocKind,
    Header,
    RecordKind,
    build_record,
    chain_next,
    chain_start,
    client_id,
    doc_identity,
    doc_tag,
    genesis_client_id,
    parse_header,
    record_id,
    write_fixed,
)

WIRE = Path(__file__).parents[1] / "conformance" / "wire.json"
VECTORS = json.loads(WIRE.read_text(encoding="utf-8"))

REPLICA = bytes(range(0xA0, 0xB0))
HEADER = Header(
    kind=RecordKind.UPDATE,
    alg=0,
    doc_tag=doc_tag(DocKind.SLOT, "plan"),
    replica_id=REPLICA,
    replica_seq=1,
    base=0,
    key_id=0,
)
PAYLOAD = b"payload"
RECORD = build_record(HEADER, PAYLOAD)


def header_of(fields):
    """Build a header from a vector's fields."""
    ids = {key: bytes.fromhex(fields[key]) for key in ("doc_tag", "replica_id")}
    return Header(**{**fields, **ids})


@st.composite
def headers(draw):
    kind = draw(st.sampled_from(RecordKind))
    has_doc = kind not in (RecordKind.KEY_NOTICE, RecordKind.RECEIPT)
    has_base = kind in (RecordKind.DOC_DELETE, RecordKind.SNAPSHOT_VOID)
    tags = st.binary(min_size=16, max_size=16).filter(any)
    alg = draw(st.sampled_from([0, 1]))
    return Header(
        kind=kind,
        alg=alg,
        doc_tag=draw(tags) if has_doc else NO_DOC_TAG,
        replica_id=draw(st.binary(min_size=16, max_size=16)),
        replica_seq=draw(st.integers(1, UINT_MAX)),
        base=draw(st.integers(int(has_base), UINT_MAX)),
        key_id=draw(st.integers(1, U32_MAX)) if alg else 0,
    )


@pytest.mark.parametrize("vector", VECTORS["record"], ids=lambda v: v["name"])
def test_a_record_has_the_bytes_and_the_id_of_its_vector(vector):
    header = header_of(vector["fields"])
    record = bytes.fromhex(vector["hex"])

    assert build_record(header, bytes.fromhex(vector["payload"])) == record
    assert parse_header(record) == header
    assert record[header.payload_start :].hex() == vector["payload"]
    assert record_id(vector["namespace"], record).hex() == vector["record_id"]


@pytest.mark.parametrize("vector", VECTORS["record_id"], ids=lambda v: v["namespace"])
def test_the_id_of_a_record_depends_on_its_namespace(vector):
    record = bytes.fromhex(vector["record"])

    assert record_id(vector["namespace"], record).hex() == vector["record_id"]


@pytest.mark.parametrize("vector", VECTORS["record_invalid"], ids=lambda v: v["why"])
def test_a_malformed_vector_is_refused_with_its_reason(vector):
    with pytest.raises(RecordMalformedError) as raised:
        parse_header(bytes.fromhex(vector["hex"]))

    assert raised.value.detail == vector["why"]


@pytest.mark.parametrize("vector", VECTORS["chain"])
def test_a_chain_has_the_value_of_its_vector(vector):
    if vector["seq"]:
        previous = bytes.fromhex(vector["previous"])
        chain = chain_next(previous, vector["seq"], bytes.fromhex(vector["record_id"]))
    else:
        chain = chain_start(bytes.fromhex(vector["relay_id"]), vector["namespace"])

    assert chain.hex() == vector["chain"]


def test_the_chain_of_the_first_record_follows_from_the_start():
    """The vectors lack seq 1; the one of seq 2 says what it must be."""
    start, second = VECTORS["chain"][0], VECTORS["chain"][1]
    first = VECTORS["record"][0]["record_id"]
    chain = chain_next(bytes.fromhex(start["chain"]), 1, bytes.fromhex(first))

    assert chain.hex() == second["previous"]


@pytest.mark.parametrize("vector", VECTORS["doc_tag"])
def test_a_doc_tag_has_the_value_of_its_vector(vector):
    assert doc_tag(vector["doc_kind"], vector["name"]).hex() == vector["doc_tag"]


@pytest.mark.parametrize("vector", VECTORS["client_id"])
def test_a_client_id_has_the_value_of_its_vector(vector):
    replica_id = bytes.fromhex(vector["replica_id"])

    assert client_id(replica_id, vector["counter"]) == vector["client_id"]


@given(headers(), st.binary(max_size=100), st.binary(min_size=48, max_size=48))
def test_a_header_survives_the_round_trip(header, payload, salt_and_commit):
    seal = salt_and_commit if header.alg else b""
    record = build_record(header, payload, seal)

    assert parse_header(record) == header
    assert record[HEADER_BYTES : header.payload_start] == seal
    assert record[header.payload_start :] == payload


@given(st.binary(max_size=150))
def test_any_bytes_are_parsed_or_refused(data):
    """Nothing but RecordMalformedError leaves, and what is parsed builds the same."""
    with contextlib.suppress(RecordMalformedError):
        parse_header(data)


@given(headers(), st.data())
def test_a_record_with_a_changed_byte_is_refused_or_is_another(header, data):
    record = bytearray(build_record(header, PAYLOAD, bytes(48 if header.alg else 0)))
    at = data.draw(st.integers(0, len(record) - 1))
    record[at] ^= data.draw(st.integers(1, 255))

    with contextlib.suppress(RecordMalformedError):
        parsed = parse_header(bytes(record))
        seal = record[HEADER_BYTES : parsed.payload_start]
        payload = record[parsed.payload_start :]
        assert build_record(parsed, bytes(payload), bytes(seal)) == record


@given(headers(), st.data())
def test_a_record_that_was_cut_short_is_refused(header, data):
    record = build_record(header, PAYLOAD, bytes(48 if header.alg else 0))
    with pytest.raises(RecordMalformedError) as raised:
        parse_header(record[: data.draw(st.integers(0, len(record) - 1))])

    assert (raised.value.code, raised.value.detail) == ("record-malformed", "length")


@pytest.mark.parametrize(
    ("changes", "detail", "message"),
    [
        ({"kind": 7}, "kind", "kind 7 in a record of kind 7"),
        ({"alg": 2}, "alg", "alg 2 in a record of kind 1"),
        (
            {"doc_tag": NO_DOC_TAG},
            "doc-tag",
            "doc-tag 00000000000000000000000000000000 in a record of kind 1",
        ),
        (
            {"kind": 5},
            "doc-tag",
            f"doc-tag {HEADER.doc_tag.hex()} in a record of kind 5",
        ),
        ({"replica_seq": 0}, "replica-seq", "replica-seq 0 in a record of kind 1"),
        (
            {"replica_seq": UINT_MAX + 1},
            "replica-seq",
            "replica-seq 9007199254740992 in a record of kind 1",
        ),
        (
            {"base": UINT_MAX + 1},
            "base",
            "base 9007199254740992 in a record of kind 1",
        ),
        ({"kind": 3}, "base", "base 0 in a record of kind 3"),
        ({"kind": 6}, "base", "base 0 in a record of kind 6"),
        ({"key_id": 1}, "key-id", "key-id 1 in a record of kind 1"),
        ({"alg": 1}, "key-id", "key-id 0 in a record of kind 1"),
    ],
)
def test_a_header_that_breaks_a_rule_is_neither_read_nor_built(
    changes, detail, message
):
    header = replace(HEADER, **changes)
    with pytest.raises(LocalProtocolError) as not_built:
        build_record(header, PAYLOAD, b"")
    with pytest.raises(RecordMalformedError) as not_read:
        parse_header(packed(header))

    assert str(not_built.value) == str(not_read.value) == message
    assert not_read.value.detail == detail
    assert not_read.value.details == {"detail": detail}


def packed(header):
    """Lay out a header without checking it, with nothing behind it."""
    return b"".join(
        [
            bytes([1, header.kind, header.alg, 0]),
            header.doc_tag,
            header.replica_id,
            header.replica_seq.to_bytes(8, "big"),
            header.base.to_bytes(8, "big"),
            header.key_id.to_bytes(4, "big"),
            bytes(4),
        ]
    )


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (b"\x02" + RECORD[1:], "version 2 in a record of kind 1"),
        (RECORD[:3] + b"\x01" + RECORD[4:], "flags 1 in a record of kind 1"),
        (RECORD[:59], "record has 59 of the 60 header bytes"),
        (RECORD[:-1], "payload of 7 bytes is announced, and 6 follow"),
        (RECORD + b"!", "payload of 7 bytes is announced, and 8 follow"),
    ],
)
def test_a_refusal_of_a_record_gives_the_values(record, message):
    with pytest.raises(RecordMalformedError) as raised:
        parse_header(record)

    assert str(raised.value) == message


def test_a_sealed_record_too_short_for_its_seal_is_refused():
    sealed = build_record(replace(HEADER, alg=1, key_id=1), b"", bytes(48))
    with pytest.raises(RecordMalformedError) as raised:
        parse_header(sealed[:-1])

    assert str(raised.value) == "payload of 0 bytes is announced, and -1 follow"


@pytest.mark.parametrize(
    ("changes", "seal", "message"),
    [
        ({"replica_id": b"short"}, b"", "5 bytes where 16 are due"),
        ({"doc_tag": b"x" * 17}, b"", "17 bytes where 16 are due"),
        ({"key_id": -1}, b"", "key-id -1 in a record of kind 1"),
        ({"alg": 1, "key_id": U32_MAX + 1}, b"", "key-id 4294967296 in a record"),
        ({}, bytes(48), "48 bytes where 0 are due"),
        ({"alg": 1, "key_id": 1}, bytes(47), "47 bytes where 48 are due"),
    ],
)
def test_a_record_that_no_reader_would_take_is_not_built(changes, seal, message):
    with pytest.raises(LocalProtocolError, match=message):
        build_record(replace(HEADER, **changes), PAYLOAD, seal)


def test_a_payload_longer_than_any_relay_takes_is_not_sent():
    with pytest.raises(
        LocalProtocolError,
        match="payload of 67108865 bytes exceeds the limit of 67108864",
    ):
        build_record(HEADER, bytes(RECORD_BYTES + 1))


@pytest.mark.parametrize(
    ("previous", "seq", "record_id", "message"),
    [
        (bytes(31), 1, bytes(32), "31 bytes where 32 are due"),
        (bytes(32), 1, bytes(16), "16 bytes where 32 are due"),
        (bytes(32), 0, bytes(32), "seq is 0, not within 1 and 9007199254740991"),
        (bytes(32), UINT_MAX + 1, bytes(32), "seq is 9007199254740992, not within"),
    ],
)
def test_a_chain_takes_no_link_of_another_shape(previous, seq, record_id, message):
    with pytest.raises(LocalProtocolError, match=message):
        chain_next(previous, seq, record_id)


def test_a_chain_starts_at_no_relay_id_of_another_length():
    with pytest.raises(LocalProtocolError, match="15 bytes where 16 are due"):
        chain_start(bytes(15), "team")


@pytest.mark.parametrize(
    ("doc_kind", "name", "message"),
    [
        (0, "plan", "kind of doc is 0, not within 1 and 2"),
        (3, "plan", "kind of doc is 3, not within 1 and 2"),
        (1, "", "length of a doc's name is 0, not within 1 and 255"),
        (1, "é" * 128, "length of a doc's name is 256, not within 1 and 255"),
        (1, "\ud800", "lone surrogate at character 0"),
    ],
)
def test_a_doc_of_no_kind_or_name_has_no_tag(doc_kind, name, message):
    for ids in (doc_identity, doc_tag):
        with pytest.raises(LocalProtocolError, match=message):
            ids(doc_kind, name)
    with pytest.raises(LocalProtocolError, match=message):
        genesis_client_id("global", doc_kind, name, b"text\n")


@pytest.mark.parametrize(
    ("replica_id", "counter", "message"),
    [
        (bytes(15), 0, "15 bytes where 16 are due"),
        (REPLICA, -1, "counter is -1, not within 0 and 4294967295"),
        (REPLICA, U32_MAX + 1, "counter is 4294967296, not within 0"),
    ],
)
def test_a_client_id_is_made_of_a_replica_id_and_a_counter(
    replica_id, counter, message
):
    with pytest.raises(LocalProtocolError, match=message):
        client_id(replica_id, counter)


@given(st.binary(min_size=16, max_size=16), st.integers(0, U32_MAX))
def test_a_client_id_is_one_that_yjs_can_hold(replica_id, counter):
    assert 1 <= client_id(replica_id, counter) <= UINT_MAX


def test_a_genesis_id_is_the_hash_of_project_doc_and_file():
    """There is no vector of it; the construction is written out here once more."""
    preimage = b"crdtmem/1/genesis\x00" + b"\x04proj" + b"\x01" + b"\x04plan" + b"a\n"
    number = int(hashlib.sha256(preimage).hexdigest(), 16)

    assert genesis_client_id("proj", 1, "plan", b"a\n") == 1 + number % (2**53 - 1)


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=60), st.binary())
def test_the_same_file_has_the_same_genesis_id_only_in_the_same_place(label, data):
    ids = [
        genesis_client_id("p", 1, label, data),
        genesis_client_id("q", 1, label, data),
        genesis_client_id("p", 2, label, data),
        genesis_client_id("p", 1, f"{label}x", data),
        genesis_client_id("p", 1, label, data + b"\n"),
    ]

    assert ids[0] == genesis_client_id("p", 1, label, data)
    assert len(set(ids)) == len(ids)
    assert all(1 <= each <= UINT_MAX for each in ids)


def test_bytes_of_fixed_size_are_written_as_they_are():
    assert write_fixed(REPLICA, 16) is REPLICA
