"""crdtmem.sealing"""

import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from crdtmem import sealing
from crdtmem.errors import (
    InvalidArgumentError,
    LocalProtocolError,
    MissingExtraError,
    ProtocolError,
)
from crdtmem.protocol.codec import write_bytes
from crdtmem.protocol.records import (
    HEADER_BYTES,
    NO_DOC_TAG,
    Header,
    RecordKind,
    build_record,
    doc_tag,
    parse_header,
)
from crdtmem.sealing import (
    PLAIN,
    PRESENCE_SEAL_BYTES,
    UNKNOWN_KEY,
    WRONG_KEY,
    Keyring,
    PresencePlace,
    Sealer,
    check_available,
    derive_keys,
    padded_size,
    seal_record,
    sealed_doc_tag,
)
from tests.conftest import PROFILE

EXAMPLES = {"default": 25, "campaign": 1_000}[PROFILE]
NAMESPACE = "team"
RING = Keyring({1: b"a" * 32, 3: b"c" * 32})
SEALER = Sealer(NAMESPACE, RING)
REPLICA = bytes(range(16))
PLACE = PresencePlace(REPLICA, b"i" * 16, 7)
RANDOM = bytes(range(32))


def header_of(**changes):
    tag = SEALER.doc_tag(1, "plan")
    return replace(Header(RecordKind.UPDATE, 1, tag, REPLICA, 5, 4, 1), **changes)


def sealed(envelope=b"what was written", **changes):
    return SEALER.seal(header_of(**changes), envelope, RANDOM)


def code_of(record, sealer=SEALER):
    """Return why a record does not open; "" if it does."""
    try:
        sealer.open(parse_header(record), record)
    except ProtocolError as exc:
        return exc.code
    return ""


@pytest.mark.requirement("sealed-1")
@settings(max_examples=EXAMPLES)
@given(st.binary(max_size=3_000), st.binary(min_size=32, max_size=32))
def test_what_was_sealed_opens_to_what_it_was_and_looks_like_nothing(envelope, random):
    record = SEALER.seal(header_of(), envelope, random)
    header = parse_header(record)

    assert SEALER.open(header, record) == envelope
    payload = len(record) - header.payload_start
    assert payload == padded_size(len(write_bytes(envelope))) + 16
    assert envelope[:40] not in record or len(envelope) < 8


@settings(max_examples=EXAMPLES)
@given(st.integers(0, 2**26))
def test_padding_tells_little_and_costs_an_eighth_at_most(size):
    padded = padded_size(size)

    assert padded >= max(256, size)
    assert padded <= max(256, size) * 9 / 8
    assert padded_size(padded) == padded


@pytest.mark.requirement("sealed-2")
def test_a_record_of_which_any_bit_was_changed_does_not_open():
    record = sealed()
    codes = []
    for bit in range(8 * len(record)):
        changed = bytearray(record)
        changed[bit // 8] ^= 1 << bit % 8
        codes.append(code_of(bytes(changed)))
    parts = {
        "version": (0, 1, {"record-malformed"}),
        # Of kinds with a doc some are left, and 1 of a doc-delete's base.
        "kind": (1, 2, {"record-malformed", "tampered"}),
        "alg": (2, 3, {"record-malformed"}),
        "flags": (3, 4, {"record-malformed"}),
        "doc tag": (4, 20, {WRONG_KEY}),
        "replica id": (20, 36, {"tampered"}),
        "numbers": (36, 52, {"record-malformed", "tampered"}),
        "key id": (52, 56, {UNKNOWN_KEY, "record-malformed", WRONG_KEY}),
        "length": (56, 60, {"record-malformed"}),
        "salt and commitment": (60, 108, {WRONG_KEY}),
        "payload": (108, len(record), {"tampered"}),
    }
    for name, (start, end, stated) in parts.items():
        assert set(codes[8 * start : 8 * end]) == stated, name


@pytest.mark.requirement("sealed-2")
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"doc_tag": SEALER.doc_tag(1, "other")}, WRONG_KEY),
        ({"replica_id": bytes(16)}, "tampered"),
        ({"replica_seq": 6}, "tampered"),
        ({"base": 3}, "tampered"),
        ({"kind": RecordKind.SNAPSHOT}, "tampered"),
        ({"key_id": 3}, WRONG_KEY),
        ({"key_id": 2}, UNKNOWN_KEY),
    ],
)
def test_a_record_opens_only_where_it_belongs(changes, code):
    record = sealed()
    header = header_of(**changes)
    start = header.payload_start
    moved = build_record(header, record[start:], record[HEADER_BYTES:start])

    assert code_of(record) == ""
    assert code_of(moved) == code


@pytest.mark.requirement("sealed-2")
def test_a_record_opens_in_its_namespace_and_with_its_secret_alone():
    record = sealed()

    assert code_of(record, Sealer("other", RING)) == WRONG_KEY
    assert code_of(record, Sealer(NAMESPACE, Keyring({1: b"x" * 32}))) == WRONG_KEY
    assert code_of(sealed(key_id=3), Sealer(NAMESPACE, Keyring({1: b"a" * 32}))) == (
        UNKNOWN_KEY
    )


@pytest.mark.requirement("sealed-2")
def test_a_plain_record_is_none_of_an_encrypted_namespace():
    plain = build_record(header_of(alg=0, key_id=0), b"anybody")

    assert code_of(plain) == PLAIN


@pytest.mark.requirement("sealed-2")
def test_what_a_writer_pads_with_other_bytes_is_refused(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(sealing, "write_bytes", lambda data: write_bytes(data) + b"more")
        odd = sealed(b"x" * 10)

    assert code_of(sealed(b"x" * 10)) == ""
    assert code_of(odd) == "remote-protocol-error"


@pytest.mark.requirement("sealed-3")
@settings(max_examples=EXAMPLES)
@given(st.binary(max_size=600), st.binary(max_size=600))
def test_the_same_randomness_seals_two_texts_under_two_secrets(one, two):
    first, second = sealed(one), sealed(two)

    assert (first[60:108] == second[60:108]) == (one == two)
    assert sealed(one, replica_seq=6)[60:108] != first[60:108]


def test_the_tag_of_a_doc_is_the_same_under_every_key_and_tells_no_name():
    more = Sealer(NAMESPACE, RING.merged(Keyring({1: b"a" * 32, 9: b"z" * 32})))

    assert more.doc_tag(1, "plan") == SEALER.doc_tag(1, "plan")
    assert SEALER.doc_tag(1, "plan") != SEALER.doc_tag(2, "plan")
    assert SEALER.doc_tag(1, "plan") != doc_tag(1, "plan")
    assert Sealer("other", RING).doc_tag(1, "plan") != SEALER.doc_tag(1, "plan")
    keys = derive_keys(b"a" * 32, NAMESPACE)
    assert sealed_doc_tag(keys.name, 1, "plan") == SEALER.doc_tag(1, "plan")


@pytest.mark.parametrize(
    ("header", "random"),
    [(header_of(alg=0, key_id=0), RANDOM), (header_of(), RANDOM[1:])],
)
def test_nothing_is_sealed_without_a_key_or_enough_randomness(header, random):
    keys = derive_keys(b"a" * 32, NAMESPACE)

    with pytest.raises(LocalProtocolError, match="seal nothing"):
        seal_record(keys, NAMESPACE, header, b"x", random)


def test_the_newest_key_that_was_told_of_is_the_one_to_seal_with():
    assert [SEALER.key_id_within(newest) for newest in range(5)] == [1, 1, 1, 3, 3]
    assert SEALER.ids == RING.ids == (1, 3)


@pytest.mark.parametrize(
    ("secrets", "reason"),
    [
        ({}, "key 1 is missing"),
        ({2: b"b" * 32}, "key 1 is missing"),
        ({1: b"short"}, "key 1 must have"),
        ({0: b"b" * 32}, "key 0 must have"),
        ({2**32: b"b" * 32}, "key 4294967296 must have"),
    ],
)
def test_a_keyring_has_whole_secrets_and_the_first_one(secrets, reason):
    with pytest.raises(InvalidArgumentError, match=reason) as refusal:
        Keyring(secrets)

    assert "short" not in str(refusal.value.to_dict())


def test_two_keyrings_are_one_unless_they_differ():
    other = Keyring({1: b"a" * 32, 2: b"b" * 32})

    assert dict(RING.merged(other).reveal()) == {
        1: b"a" * 32,
        2: b"b" * 32,
        3: b"c" * 32,
    }
    with pytest.raises(InvalidArgumentError, match="two secrets have the id 1"):
        RING.merged(Keyring({1: b"x" * 32}))


def test_no_secret_is_in_what_python_shows():
    shown = f"{RING!r} {SEALER!r} {derive_keys(b'a' * 32, NAMESPACE)!r} {RING}"

    assert "ids=(1, 3)" in shown
    assert "aaa" not in shown
    assert "\\x" not in shown


@pytest.mark.requirement("sealed-2")
@settings(max_examples=EXAMPLES)
@given(st.binary(max_size=400))
def test_a_presence_opens_at_its_place_alone(plain):
    blob = SEALER.seal_presence(3, PLACE, plain, RANDOM)

    assert len(blob) == len(plain) + PRESENCE_SEAL_BYTES
    assert SEALER.open_presence(PLACE, blob) == plain
    assert SEALER.open_presence(PLACE._replace(counter=8), blob) is None
    assert SEALER.open_presence(PLACE._replace(incarnation=REPLICA), blob) is None
    assert SEALER.open_presence(PLACE._replace(replica_id=b"r" * 16), blob) is None
    assert Sealer("other", RING).open_presence(PLACE, blob) is None
    assert SEALER.open_presence(PLACE, blob[:-1]) is None
    assert SEALER.open_presence(PLACE, blob[:20]) is None
    assert SEALER.open_presence(PLACE, b"\0\0\0\2" + blob[4:]) is None
    assert SEALER.open_presence(PLACE, b"") is None


@pytest.mark.requirement("sealed-3")
def test_the_same_randomness_seals_two_presences_under_two_nonces():
    first = SEALER.seal_presence(1, PLACE, b"one", RANDOM)
    second = SEALER.seal_presence(1, PLACE, b"two", RANDOM)

    assert first[4:16] != second[4:16]


def test_without_the_package_the_extra_is_named(monkeypatch):
    check_available()
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.hashes", None)

    with pytest.raises(MissingExtraError, match="'e2ee'") as refusal:
        check_available()

    assert refusal.value.details == {"extra": "e2ee", "package": "cryptography"}


def test_a_word_between_stores_is_sealed_without_a_tag():
    record = sealed(kind=RecordKind.RECEIPT, doc_tag=NO_DOC_TAG)

    assert code_of(record) == ""
