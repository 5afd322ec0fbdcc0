"""crdtmem.protocol.tokens"""

import json
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from crdtmem.errors import LocalProtocolError
from crdtmem.protocol.tokens import format_token, parse_token

WIRE = Path(__file__).parents[1] / "conformance" / "wire.json"
VECTORS = json.loads(WIRE.read_text(encoding="utf-8"))["token"]

ids = st.text("abcdefghijklmnopqrstuvwxyz234567", min_size=10, max_size=10)
secrets = st.binary(min_size=32, max_size=32)


@pytest.mark.parametrize("vector", [v for v in VECTORS if v["valid"]])
def test_a_token_of_the_vectors_is_read(vector):
    parsed = parse_token(vector["token"])

    assert parsed is not None
    assert parsed[0] == vector["id"]
    assert sha256(parsed[1]).hexdigest() == vector["sha256"]


@pytest.mark.parametrize("vector", [v for v in VECTORS if not v["valid"]])
def test_what_is_no_token_in_the_vectors_is_none(vector):
    assert parse_token(vector["token"]) is None


@given(ids, secrets)
def test_a_token_is_read_as_it_was_written(token_id, secret):
    assert parse_token(format_token(token_id, secret)) == (token_id, secret)


@pytest.mark.parametrize("last", "9-_")
def test_a_second_spelling_of_a_secret_is_none(last):
    token = format_token("abcdefgh27", bytes(range(32)))

    assert token.endswith("8")
    assert parse_token(token[:-1] + last) is None


@given(st.text(max_size=70))
def test_any_text_is_a_token_or_none(text):
    parsed = parse_token(text)

    assert parsed is None or format_token(*parsed) == text


@pytest.mark.parametrize("token", ["\n", " ", "x"])
def test_nothing_may_stand_behind_a_token(token):
    assert parse_token(format_token("abcdefgh27", bytes(32)) + token) is None


@pytest.mark.parametrize(
    ("token_id", "secret"),
    [("abcdefgh27", bytes(31)), ("abcdefgh2", bytes(32)), ("abcdefgh21", bytes(32))],
)
def test_what_would_not_be_read_is_not_written(token_id, secret):
    with pytest.raises(LocalProtocolError) as caught:
        format_token(token_id, secret)

    assert token_id in str(caught.value)
    assert f"{len(secret)} bytes of secret" in str(caught.value)
