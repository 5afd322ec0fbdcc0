"""crdtmem.protocol.messages and crdtmem.protocol.fields"""

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import example, given, strategies as st

from crdtmem.errors import LocalProtocolError, RemoteProtocolError
from crdtmem.limits import FRAME_BYTES, UINT_MAX
from crdtmem.protocol import messages as wire
from crdtmem.protocol.codec import write_bytes, write_uint
from crdtmem.protocol.relaying import Sample

WIRE = Path(__file__).parents[1] / "conformance" / "wire.json"
VECTORS = json.loads(WIRE.read_text(encoding="utf-8"))

LEAVE = wire.Leave(1)
HELLO = wire.Hello(0, bytes(16), bytes(16), "agent")
JOIN = wire.Join("team", 0, bytes(16), 0, bytes(32), 0)
BYE = wire.Bye(0, "done")
ERROR = wire.ErrorMessage("", 0, 0, 3, 0, "code", "text")
PART = wire.Part(1, 1, 10, 0, b"x")
PRESENCE = wire.Presence(1, bytes(16), bytes(16), 1, 0, b"")
RECORDS = wire.Records(1, 1, (wire.Item(1),), bytes(32))

uints = st.integers(0, UINT_MAX)
numbers = st.integers(1, UINT_MAX)
fix16 = st.binary(min_size=16, max_size=16)
fix32 = st.binary(min_size=32, max_size=32)
names = st.from_regex(r"[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?", fullmatch=True)
words = st.text(max_size=16)
items = st.one_of(
    st.builds(wire.Item, st.just(0), record=st.binary(max_size=100)),
    st.builds(wire.Item, st.just(1), record_id=fix32),
    st.builds(wire.Item, st.sampled_from([2, 3]), record_id=fix32, doc_tag=fix16),
)


@st.composite
def falling(draw):
    seqs = sorted(draw(st.sets(uints, max_size=5)), reverse=True)
    return tuple(Sample(seq, draw(fix32)) for seq in seqs)


@st.composite
def parts(draw):
    data = draw(st.binary(min_size=1, max_size=50))
    offset = draw(st.integers(0, 1_000))
    total = offset + len(data) + draw(st.integers(0, 1_000))
    return wire.Part(draw(numbers), draw(uints), total, offset, data)


any_message = st.one_of(
    st.builds(wire.Hello, uints, fix16, fix16, words),
    st.builds(wire.Welcome, uints, fix16, fix16, *[uints] * 8, words),
    st.builds(wire.Join, names, st.integers(0, 3), fix16, uints, fix32, uints),
    st.builds(
        wire.Joined, names, numbers, uints, uints, uints, uints, fix32, uints, fix32
    ),
    st.builds(wire.Rewind, names, st.integers(1, 2), uints, uints),
    st.builds(wire.Samples, names, falling()),
    st.builds(wire.Leave, numbers),
    st.builds(
        wire.Put,
        numbers,
        st.lists(st.binary(max_size=50), min_size=1, max_size=4).map(tuple),
    ),
    st.builds(wire.Ack, numbers, uints, uints, fix32),
    st.builds(
        wire.Records,
        numbers,
        st.integers(1, UINT_MAX - 10),
        st.lists(items, min_size=1, max_size=4).map(tuple),
        fix32,
    ),
    parts(),
    st.builds(
        wire.Heartbeat,
        st.integers(0, 1),
        st.lists(st.builds(wire.Head, numbers, uints), max_size=4).map(tuple),
    ),
    st.builds(
        wire.Presence,
        numbers,
        fix16,
        fix16,
        uints,
        st.integers(0, 45_000),
        st.binary(max_size=1_024),
    ),
    st.builds(
        wire.ErrorMessage,
        st.just("") | names,
        uints,
        uints,
        st.integers(0, 3),
        uints,
        words,
        words,
    ),
    st.builds(wire.Bye, uints, words),
)


def framed(number, body):
    return write_uint(number) + write_bytes(body)


@pytest.mark.parametrize("vector", VECTORS["message"], ids=lambda v: v["name"])
def test_a_message_of_the_vectors_is_encoded_as_it_was(vector):
    (message,) = wire.decode_frame(bytes.fromhex(vector["hex"]))

    assert wire.encode_message(message).hex() == vector["hex"]
    assert type(message) is get_args(wire.Message)[vector["type"] - 1]


@pytest.mark.parametrize("vector", VECTORS["frame_invalid"], ids=lambda v: v["why"])
def test_a_bad_frame_of_the_vectors_is_refused_with_its_detail(vector):
    with pytest.raises(RemoteProtocolError) as caught:
        wire.decode_frame(bytes.fromhex(vector["hex"]))

    assert caught.value.detail == vector["why"]


@given(st.lists(any_message, min_size=1, max_size=5))
def test_every_frame_is_read_as_it_was_written(messages):
    frame = wire.encode_frame(messages)

    assert wire.decode_frame(frame) == messages
    assert wire.encode_frame(wire.decode_frame(frame)) == frame


@given(st.binary(max_size=200))
@example(b"\x40\x00")
def test_any_bytes_are_messages_or_a_remote_protocol_error(data):
    with contextlib.suppress(RemoteProtocolError):
        assert all(
            isinstance(one, get_args(wire.Message)) for one in wire.decode_frame(data)
        )


@given(any_message, st.data())
def test_a_changed_byte_gives_messages_or_a_remote_protocol_error(message, data):
    frame = bytearray(wire.encode_message(message))
    at = data.draw(st.integers(0, len(frame) - 1))
    frame[at] = data.draw(st.integers(0, 255))

    with contextlib.suppress(RemoteProtocolError):
        decoded = wire.decode_frame(bytes(frame))
        assert b"".join(map(wire.encode_message, decoded)) in (bytes(frame), b"")


@pytest.mark.parametrize("number", [64, 127, 2**53 - 1])
def test_a_type_of_a_later_version_is_skipped(number):
    frame = framed(number, b"anything") + wire.encode_message(LEAVE)

    assert wire.decode_frame(frame) == [LEAVE]


def test_a_frame_longer_than_the_limit_is_refused_before_it_is_read():
    frame = wire.encode_frame([LEAVE] * 2)

    assert wire.decode_frame(frame, max_frame=len(frame)) == [LEAVE] * 2
    with pytest.raises(
        RemoteProtocolError, match="6 bytes exceeds the limit of 5"
    ) as e:
        wire.decode_frame(frame, max_frame=len(frame) - 1)
    assert e.value.detail == "too-large"


def test_skipped_messages_count_towards_the_most_of_a_frame():
    assert wire.decode_frame(framed(64, b"") * 64) == []
    with pytest.raises(RemoteProtocolError, match="more than 64"):
        wire.decode_frame(framed(64, b"") * 65)


@pytest.mark.parametrize("count", [0, 65])
def test_a_frame_of_none_or_of_too_many_messages_is_not_written(count):
    with pytest.raises(LocalProtocolError, match=f"frame of {count} messages"):
        wire.encode_frame([LEAVE] * count)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (wire.Leave(0), "number of a namespace is 0"),
        (replace(HELLO, replica_id=b"short"), "5 bytes where 16 are due"),
        (replace(HELLO, agent="x" * 65), "65 bytes exceed the limit of 64"),
        (replace(HELLO, features=-1), "-1 is not an unsigned"),
        (replace(JOIN, namespace="Team"), "name is no namespace's"),
        (replace(JOIN, flags=4), "flag is not known"),
        (replace(JOIN, seq=2**53), "9007199254740992 exceeds the limit"),
        (replace(ERROR, namespace="a/b"), "name is no namespace's"),
        (replace(ERROR, action=4), "action is not known"),
        (replace(ERROR, text="x" * 513), "513 bytes exceed the limit of 512"),
        (replace(ERROR, text="\ud800"), "lone surrogate at character 0"),
        (wire.Rewind("team", 0, 0, 0), "cause is not known"),
        (wire.Heartbeat(2, ()), "flag is not known"),
        (wire.Heartbeat(0, (wire.Head(1, 1),) * 65), "list has 65 entries"),
        (wire.Put(1, ()), "list has 0 entries, not within 1 and 256"),
        (replace(PART, data=b""), "part of 0 bytes at 0 of 10"),
        (replace(PART, offset=10), "part of 1 bytes at 10 of 10"),
        (replace(PRESENCE, ttl_ms=45_001), "45001 exceeds the limit of 45000"),
        (replace(PRESENCE, blob=bytes(1_025)), "blob over 1024 bytes"),
        (replace(RECORDS, first_seq=0), "1 records begin at seq 0"),
        (replace(RECORDS, first_seq=UINT_MAX, items=(wire.Item(1),) * 2), "2 records"),
        (replace(RECORDS, items=(wire.Item(4),)), "4 is no form of a record"),
        (
            wire.Samples("team", (Sample(1, bytes(32)), Sample(1, bytes(32)))),
            "samples do not fall",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_field_that_breaks_its_rule_is_not_sent(message, words):
    with pytest.raises(LocalProtocolError, match=words):
        wire.encode_message(message)


@pytest.mark.parametrize(
    ("number", "body", "detail"),
    [
        (7, b"\x00", "bad-value"),
        (5, b"\x04team\x03\x00\x00", "bad-value"),
        (6, b"\x04team\x02\x01" + bytes(32) + b"\x01" + bytes(32), "bad-value"),
        (6, b"\x04team\x81\x01", "too-large"),
        (8, b"\x01\x00", "bad-value"),
        (8, b"\x01\x81\x02", "too-large"),
        (10, b"\x01\x01\x01\x04" + bytes(32), "bad-value"),
        (10, b"\x01\x00\x01\x00\x00" + bytes(32), "bad-value"),
        (10, b"\x01\x01\x81\x04", "too-large"),
        (11, b"\x01\x01\x05\x05\x01x", "bad-value"),
        (12, b"\x00\x01\x00\x01", "bad-value"),
        (12, b"\x00\x41", "too-large"),
        (13, b"\x01" + bytes(32) + b"\x01\xc9\xdf\x02\x00", "too-large"),
        (14, b"\x04Team\x00\x00\x00\x00\x00\x00", "bad-value"),
        (14, b"\x00\x00\x00\x04\x00\x00\x00", "bad-value"),
        (15, b"\x00\x41" + b"x" * 65, "too-large"),
    ],
)
def test_a_field_that_breaks_its_rule_is_refused(number, body, detail):
    with pytest.raises(RemoteProtocolError) as caught:
        wire.decode_frame(framed(number, body))

    assert caught.value.detail == detail


def test_frames_are_packed_up_to_their_length_and_count():
    leave = wire.encode_message(LEAVE)

    assert wire.pack_frames([], max_frame=FRAME_BYTES) == []
    assert wire.pack_frames([leave] * 3, max_frame=7) == [leave * 2, leave]
    assert wire.pack_frames([leave] * 65, max_frame=FRAME_BYTES) == [leave * 64, leave]
    assert wire.pack_frames([leave] * 2, max_frame=1) == [leave, leave]


@pytest.mark.parametrize("vector", VECTORS["namespace"], ids=lambda v: repr(v["name"]))
def test_a_namespace_has_a_plain_name(vector):
    assert wire.is_namespace(vector["name"]) is vector["valid"]


def test_no_secret_or_text_stands_in_a_repr():
    secret = b"slot text"
    shown = repr(
        [
            wire.Put(1, (secret,)),
            wire.Item(0, secret),
            wire.Part(1, 1, 9, 0, secret),
            replace(PRESENCE, blob=secret),
        ]
    )

    assert "slot text" not in shown
