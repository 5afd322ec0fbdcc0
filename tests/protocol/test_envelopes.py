"""crdtmem.protocol.envelopes"""

import contextlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from crdtmem.errors import LocalProtocolError, RemoteProtocolError
from crdtmem.limits import (
    BLAME_BYTES,
    STATE_BYTES,
    U32_MAX,
    UINT_MAX,
    UPDATE_BYTES,
)
from crdtmem.protocol.codec import write_bytes, write_str, write_uint
from crdtmem.protocol.envelopes import (
    KeyNotice,
    Receipt,
    ReceiptDoc,
    ReceiptReplica,
    StateEnvelope,
    UpdateEnvelope,
    Write,
    decode_envelope,
    encode_envelope,
    read_undo_targets,
    undo_note,
)
from crdtmem.protocol.records import DocKind, RecordKind, doc_tag, parse_header

WIRE = Path(__file__).parents[1] / "conformance" / "wire.json"
VECTORS = json.loads(WIRE.read_text(encoding="utf-8"))

WRITE = Write(
    is_genesis=False, counter=0, lane="lane-1", at_ms=1, op="append", update=b"\0\0"
)
UPDATE = UpdateEnvelope(DocKind.SLOT, "plan", (WRITE,))
STATE = StateEnvelope(DocKind.SLOT, "plan", bytes(32), state=b"\0\0", blame=b"")
RECEIPT = Receipt(1, bytes(32), (), ())
REPLICA = bytes(range(0xA0, 0xB0))
TARGET = (REPLICA, 7, 0)


def write_of(fields):
    return Write(
        is_genesis=fields["flags"] == 1,
        counter=fields["counter"],
        lane=fields["lane"],
        at_ms=fields["at_ms"],
        op=fields["op"],
        update=bytes.fromhex(fields["update"]),
    )


def envelope_of(kind, fields):
    """Build an envelope from a vector's fields."""
    if kind == RecordKind.UPDATE:
        writes = tuple(map(write_of, fields["writes"]))
        return UpdateEnvelope(fields["doc_kind"], fields["name"], writes)
    if kind == RecordKind.KEY_NOTICE:
        return KeyNotice(**fields)
    if kind == RecordKind.RECEIPT:
        replicas = [
            ReceiptReplica(bytes.fromhex(each["replica_id"]), each["max_seq"])
            for each in fields["replicas"]
        ]
        docs = [ReceiptDoc(*map(bytes.fromhex, d.values())) for d in fields["docs"]]
        chain = bytes.fromhex(fields["chain"])
        return Receipt(fields["seq"], chain, tuple(replicas), tuple(docs))
    decoded = {
        key: bytes.fromhex(fields[key]) for key in ("text_sha256", "state", "blame")
    }
    return StateEnvelope(**{**fields, **decoded})


def fixed(size):
    return st.binary(min_size=size, max_size=size)


def texts(*, least=0):
    """Texts short enough for every field: eight characters of at most four bytes."""
    return st.text(st.characters(codec="utf-8"), min_size=least, max_size=8)


UINTS = st.integers(0, UINT_MAX)
WRITES = st.builds(
    Write,
    is_genesis=st.booleans(),
    counter=st.integers(0, U32_MAX),
    lane=texts(),
    at_ms=UINTS,
    op=texts(),
    update=st.binary(max_size=40),
    note=st.none() | texts(),
)
DOC_KINDS = st.sampled_from(DocKind)
NAMES = texts(least=1)
STATES = st.builds(
    StateEnvelope,
    DOC_KINDS,
    NAMES,
    text_sha256=fixed(32),
    state=st.binary(max_size=40),
    blame=st.binary(max_size=40),
)
ENVELOPES = {
    RecordKind.UPDATE: st.builds(
        UpdateEnvelope,
        DOC_KINDS,
        NAMES,
        st.lists(WRITES, min_size=1, max_size=3).map(tuple),
    ),
    RecordKind.SNAPSHOT: STATES,
    RecordKind.DOC_DELETE: STATES,
    RecordKind.KEY_NOTICE: st.builds(KeyNotice, st.integers(0, U32_MAX), texts()),
    RecordKind.RECEIPT: st.builds(
        Receipt,
        UINTS,
        fixed(32),
        st.lists(st.builds(ReceiptReplica, fixed(16), UINTS), max_size=3).map(tuple),
        st.lists(st.builds(ReceiptDoc, fixed(16), fixed(32)), max_size=3).map(tuple),
    ),
    RecordKind.SNAPSHOT_VOID: st.builds(
        lambda state, reason: replace(state, reason=reason), STATES, texts()
    ),
}
KINDS = st.sampled_from(RecordKind)
KINDS_WITH_ENVELOPES = KINDS.flatmap(
    lambda kind: st.tuples(st.just(kind), ENVELOPES[kind])
)
TARGETS = st.tuples(fixed(16), st.integers(1, UINT_MAX), st.integers(0, 255))


@pytest.mark.parametrize("vector", VECTORS["envelope"])
def test_an_envelope_has_the_bytes_of_its_vector(vector):
    envelope = envelope_of(vector["kind"], vector["fields"])
    data = bytes.fromhex(vector["hex"])

    assert encode_envelope(envelope) == data
    assert decode_envelope(vector["kind"], data) == envelope


@pytest.mark.parametrize("vector", VECTORS["record"], ids=lambda v: v["name"])
def test_the_payload_of_a_plain_record_is_an_envelope_of_its_doc(vector):
    header = parse_header(bytes.fromhex(vector["hex"]))
    payload = bytes.fromhex(vector["payload"])
    envelope = decode_envelope(header.kind, payload)

    assert encode_envelope(envelope) == payload
    if isinstance(envelope, UpdateEnvelope | StateEnvelope):
        assert doc_tag(envelope.doc_kind, envelope.name) == header.doc_tag


@given(KINDS_WITH_ENVELOPES)
def test_an_envelope_survives_the_round_trip(kind_and_envelope):
    kind, envelope = kind_and_envelope

    assert decode_envelope(kind, encode_envelope(envelope)) == envelope


@given(KINDS, st.binary(max_size=40))
def test_any_bytes_are_decoded_or_refused(kind, data):
    """Nothing but RemoteProtocolError leaves, whatever another store wrote."""
    with contextlib.suppress(RemoteProtocolError):
        decode_envelope(kind, b"\x01" + data)


@given(KINDS_WITH_ENVELOPES, st.data())
def test_an_envelope_with_a_changed_byte_is_refused_or_is_another(
    kind_and_envelope, data
):
    kind, envelope = kind_and_envelope
    encoded = bytearray(encode_envelope(envelope))
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] ^= data.draw(st.integers(1, 255))

    with contextlib.suppress(RemoteProtocolError):
        assert encode_envelope(decode_envelope(kind, bytes(encoded))) == encoded


@given(KINDS_WITH_ENVELOPES, st.data())
def test_an_envelope_that_was_cut_short_is_refused(kind_and_envelope, data):
    kind, envelope = kind_and_envelope
    encoded = encode_envelope(envelope)
    with pytest.raises(RemoteProtocolError) as raised:
        decode_envelope(kind, encoded[: data.draw(st.integers(0, len(encoded) - 1))])

    assert raised.value.detail == "truncated"


def doc(doc_kind=1, name="plan"):
    return write_uint(1) + write_uint(doc_kind) + write_str(name)


def one_write(*, flags=0, counter=0, lane="", op="", update=b"", note=b""):
    fields = [
        write_uint(flags),
        write_uint(counter),
        write_str(lane),
        write_uint(0),
        write_str(op),
        write_bytes(update),
        note,
    ]
    return doc() + write_uint(1) + b"".join(fields)


def state(*, size=0, blame=0, reason=b""):
    """Announce a state and a blame of these lengths; only short ones are there."""
    parts = [write_uint(size) + bytes(size if size < 9 else 0)]
    parts += [write_uint(blame), bytes(blame if blame < 9 else 0), reason]
    return doc() + bytes(32) + b"".join(parts)


def receipt(*, replicas=0, docs=0):
    return b"\x01\x01" + bytes(32) + write_uint(replicas) + write_uint(docs)


@pytest.mark.parametrize(
    ("kind", "data", "detail", "message"),
    [
        (1, b"", "truncated", "1 bytes are missing, at byte 0"),
        (1, b"\x02", "bad-value", "envelope has version 2, and 1 is known"),
        (1, doc(0), "bad-value", "0 is not a kind of doc"),
        (2, doc(3), "bad-value", "3 is not a kind of doc"),
        (1, doc(name=""), "bad-value", "name of the doc is empty"),
        (2, doc(name="n" * 256), "too-large", "256 exceeds the limit of 255"),
        (1, doc() + b"\0", "bad-value", "list has 0 entries, and 1 is the least"),
        (1, doc() + write_uint(257), "too-large", "257 exceeds the limit of 256"),
        (1, one_write(flags=4), "bad-value", "write has flags 4, and 3 are known"),
        (
            1,
            one_write(counter=U32_MAX + 1),
            "too-large",
            "4294967296 exceeds the limit of 4294967295",
        ),
        (1, one_write(lane="l" * 129), "too-large", "129 exceeds the limit of 128"),
        (1, one_write(op="o" * 33), "too-large", "33 exceeds the limit of 32"),
        (1, one_write(flags=2), "truncated", "1 bytes are missing"),
        (
            1,
            one_write(flags=2, note=write_uint(1_025)),
            "too-large",
            "1025 exceeds the limit of 1024",
        ),
        (
            1,
            one_write()[:-1] + write_uint(UPDATE_BYTES + 1),
            "too-large",
            "4194305 exceeds the limit of 4194304",
        ),
        (1, one_write() + b"!", "trailing-bytes", "1 bytes are left over"),
        (
            2,
            state(size=STATE_BYTES + 1),
            "too-large",
            "16777217 exceeds the limit of 16777216",
        ),
        (
            3,
            state(blame=BLAME_BYTES + 1),
            "too-large",
            "4194305 exceeds the limit of 4194304",
        ),
        (2, state(reason=write_str("r")), "trailing-bytes", "2 bytes are left over"),
        (6, state(), "truncated", "1 bytes are missing"),
        (6, state(reason=write_uint(257)), "too-large", "257 exceeds the limit of 256"),
        (6, state(reason=b"\x01\xff"), "bad-utf8", "invalid start byte"),
        (4, b"\x01" + write_uint(U32_MAX + 1), "too-large", "4294967296 exceeds"),
        (4, b"\x01\x02" + write_uint(257), "too-large", "257 exceeds the limit of 256"),
        (5, receipt(replicas=1_025), "too-large", "1025 exceeds the limit of 1024"),
        (5, receipt(docs=1_025), "too-large", "1025 exceeds the limit of 1024"),
    ],
)
def test_a_malformed_envelope_is_refused_with_its_reason(kind, data, detail, message):
    with pytest.raises(RemoteProtocolError, match=message) as raised:
        decode_envelope(kind, data)

    assert raised.value.detail == detail


@pytest.mark.parametrize("kind", [0, 7])
def test_there_is_no_envelope_of_an_unknown_kind(kind):
    with pytest.raises(LocalProtocolError, match=f"{kind} is not a kind of record"):
        decode_envelope(kind, encode_envelope(UPDATE))


def with_write(**changes):
    return replace(UPDATE, writes=(replace(WRITE, **changes),))


@pytest.mark.parametrize(
    ("envelope", "message"),
    [
        (replace(UPDATE, doc_kind=3), "kind of doc is 3, not within 1 and 2"),
        (replace(STATE, name=""), "length of a doc's name is 0"),
        (replace(UPDATE, writes=()), "list has 0 entries, not within 1 and 256"),
        (replace(UPDATE, writes=(WRITE,) * 257), "list has 257 entries, not within 1"),
        (with_write(counter=U32_MAX + 1), "4294967296 exceeds the limit of 4294967295"),
        (with_write(counter=-1), "-1 is not an unsigned 53-bit integer"),
        (with_write(at_ms=UINT_MAX + 1), "not an unsigned 53-bit integer"),
        (with_write(lane="é" * 65), "130 bytes exceed the limit of 128"),
        (with_write(lane="\ud800"), "lone surrogate at character 0"),
        (with_write(op="o" * 33), "33 bytes exceed the limit of 32"),
        (with_write(note="n" * 1_025), "1025 bytes exceed the limit of 1024"),
        (with_write(update=bytes(UPDATE_BYTES + 1)), "4194305 bytes exceed the limit"),
        (replace(STATE, text_sha256=bytes(16)), "16 bytes where 32 are due"),
        (replace(STATE, state=bytes(STATE_BYTES + 1)), "16777217 bytes exceed"),
        (replace(STATE, blame=bytes(BLAME_BYTES + 1)), "4194305 bytes exceed"),
        (replace(STATE, reason="r" * 257), "257 bytes exceed the limit of 256"),
        (KeyNotice(U32_MAX + 1, ""), "4294967296 exceeds the limit of 4294967295"),
        (KeyNotice(2, "n" * 257), "257 bytes exceed the limit of 256"),
        (replace(RECEIPT, chain=b""), "0 bytes where 32 are due"),
        (
            replace(RECEIPT, replicas=(ReceiptReplica(REPLICA, 1),) * 1_025),
            "list has 1025 entries, not within 0 and 1024",
        ),
        (
            replace(RECEIPT, docs=(ReceiptDoc(REPLICA, bytes(31)),)),
            "31 bytes where 32 are due",
        ),
    ],
)
def test_an_envelope_that_no_reader_would_take_is_not_sent(envelope, message):
    with pytest.raises(LocalProtocolError, match=message):
        encode_envelope(envelope)


def test_fields_of_the_longest_lengths_are_sent_and_read():
    write = replace(
        WRITE, counter=U32_MAX, lane="é" * 64, op="o" * 32, note="n" * 1_024
    )
    envelope = UpdateEnvelope(DocKind.MEMORY_SET, "n" * 255, (write,) * 256)

    assert decode_envelope(1, encode_envelope(envelope)) == envelope


def test_an_envelope_shows_no_text_where_it_is_printed():
    shown = repr([with_write(update=b"secret"), replace(STATE, state=b"secret")])

    assert "secret" not in shown
    assert "append" in shown


@given(st.lists(TARGETS, min_size=1, max_size=5))
def test_the_targets_of_an_undo_survive_the_round_trip(targets):
    note = undo_note(targets)

    assert read_undo_targets(note) == tuple(targets)


def test_as_many_targets_as_a_note_holds_are_noted():
    note = undo_note([TARGET] * 24)

    assert len(note) <= 1_024
    assert read_undo_targets(note) == (TARGET,) * 24


def test_an_undo_note_is_compact_json():
    assert undo_note([TARGET, (bytes(16), 1, 255)]) == (
        '{"undo":[["a0a1a2a3a4a5a6a7a8a9aaabacadaeaf",7,0],'
        '["00000000000000000000000000000000",1,255]]}'
    )


def test_members_that_a_reader_does_not_know_are_ignored():
    note = json.loads(undo_note([TARGET]))
    note["pass"] = {"after": ["\ud800", 1.5, None]}

    assert read_undo_targets(json.dumps(note)) == (TARGET,)


def test_the_hex_digits_of_a_target_may_be_capitals():
    assert read_undo_targets(undo_note([TARGET]).replace("a", "A")) == (TARGET,)


def undo(*members):
    return json.dumps({"undo": members})


HEX = REPLICA.hex()


@pytest.mark.parametrize(
    "note",
    [
        None,
        "",
        "{}",
        "[]",
        "null",
        "{",
        '{"pass": 1}',
        '{"undo": {}}',
        '{"undo": null}',
        "[" * 1_024,
        "\ud800",
        undo(),
        undo(HEX),
        undo([HEX, 1]),
        undo([HEX, 1, 0, 0]),
        undo([HEX[:-1], 1, 0]),
        undo([HEX + "0", 1, 0]),
        undo([HEX[:-1] + "g", 1, 0]),
        undo([HEX[:-2] + "\uff11\uff11", 1, 0]),
        undo([f"{HEX[:-1]}\n", 1, 0]),
        undo([1, 1, 0]),
        undo([HEX, 0, 0]),
        undo([HEX, UINT_MAX + 1, 0]),
        undo([HEX, 1.0, 0]),
        undo([HEX, True, 0]),
        undo([HEX, "1", 0]),
        undo([HEX, 1, -1]),
        undo([HEX, 1, 256]),
        undo([HEX, 1, False]),
        undo([HEX, 1, None]),
        undo([HEX, 1, 0], [HEX, 0, 0]),
        undo(*[[HEX, 1, 0]] * 30),
    ],
)
def test_a_note_that_names_no_targets_makes_no_undo(note):
    assert read_undo_targets(note) is None


@given(st.text(max_size=100) | st.text('{}[]",:undo019', max_size=100))
def test_any_note_is_read_without_an_error(note):
    assert not read_undo_targets(note)


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ([], "cannot name 0 targets"),
        ([(b"short", 1, 0)], "cannot name 1 targets"),
        ([(REPLICA, 0, 0)], "cannot name 1 targets"),
        ([(REPLICA, 1, 256)], "cannot name 1 targets"),
        ([TARGET] * 25, "note of 1035 bytes cannot name 25 targets"),
    ],
)
def test_targets_that_no_reader_would_take_are_not_noted(targets, message):
    with pytest.raises(LocalProtocolError, match=message):
        undo_note(targets)
