"""relay.auth"""

import hashlib
import re

import pytest
from hypothesis import given, strategies as st

from crdtmem.errors import InvalidArgumentError
from crdtmem.limits import ADDRESSES_WATCHED_MAX
from crdtmem.protocol.relaying import Grant, Scope
from crdtmem.protocol.tokens import format_token, parse_token
from relay.auth import (
    SCOPES,
    FailureLimit,
    check_token,
    digest_of,
    draw_token,
    grant_for,
)
from relay.storage import TokenRow

SECRET = b"s" * 32


def token_row(**values):
    defaults = {
        "token_id": "aaaaaaaaaa",
        "pattern": "*",
        "scopes": ("read",),
        "label": "",
        "not_after_ms": None,
        "max_replicas": None,
        "created_ms": 0,
        "revoked_ms": None,
    }
    return TokenRow(**{**defaults, **values})


def granted(**values):
    return grant_for((token_row(**values), digest_of(SECRET)), SECRET, 50)


def test_a_drawn_token_has_the_form_of_one():
    drawn = [draw_token() for _ in range(100)]

    assert len({token_id for token_id, _ in drawn}) == 100
    assert len({secret for _, secret in drawn}) == 100
    for token_id, secret in drawn:
        assert parse_token(format_token(token_id, secret)) == (token_id, secret)


def test_of_a_secret_the_sha256_is_kept():
    assert digest_of(SECRET) == hashlib.sha256(SECRET).digest()


@pytest.mark.parametrize(
    ("names", "scopes"),
    [
        ((), Scope(0)),
        (("read",), Scope.READ),
        (("write",), Scope.READ | Scope.WRITE),
        (("compact",), Scope(0)),
        (("compact", "write"), Scope.READ | Scope.WRITE | Scope.COMPACT),
        (("presence",), Scope.PRESENCE),
        (("metrics",), Scope(0)),
        (("", "READ", "admin", "write "), Scope(0)),
    ],
)
def test_a_scope_that_is_missing_or_unknown_allows_nothing(names, scopes):
    grant = granted(scopes=names)

    assert (grant.scopes, grant.may_read_metrics) == (scopes, "metrics" in names)


def test_a_grant_carries_the_bounds_of_its_token():
    assert granted(pattern="p-*", not_after_ms=51, max_replicas=2) == Grant(
        "aaaaaaaaaa", "p-*", Scope.READ, not_after_ms=51, max_replicas=2
    )


@pytest.mark.parametrize("values", [{"revoked_ms": 0}, {"not_after_ms": 50}])
def test_a_token_that_has_ended_grants_nothing(values):
    assert granted(**values) is None


@given(st.binary(max_size=40).filter(lambda secret: secret != SECRET))
def test_no_other_secret_is_let_in(secret):
    found = token_row(), digest_of(SECRET)

    assert grant_for(found, secret, 0) is None
    assert grant_for(None, secret, 0) is None


@pytest.mark.parametrize("pattern", ["*", "a", "a*", "p-0.9_x", "a" * 64, "a.*"])
def test_a_pattern_is_a_name_or_its_beginning(pattern):
    check_token(token_row(pattern=pattern))


@pytest.mark.parametrize(
    "pattern", ["", "A", "a-", "-a", "**", "*a", "a*b", "a/b", "a\n", "é", "a" * 65]
)
def test_what_fits_no_namespace_is_no_pattern(pattern):
    with pytest.raises(InvalidArgumentError) as refused:
        check_token(token_row(pattern=pattern))

    assert refused.value.argument == "namespace"
    assert repr(pattern) in str(refused.value)


@pytest.mark.parametrize(
    ("scopes", "sentence"),
    [
        ((), "scope is empty, not one of"),
        (("read", "admin"), "scope is 'admin', not one of"),
        (("compact", "read"), "scope 'compact' needs 'write' beside it"),
    ],
)
def test_a_scope_that_allows_nothing_is_refused_when_a_token_is_made(scopes, sentence):
    with pytest.raises(InvalidArgumentError, match=sentence) as refused:
        check_token(token_row(scopes=scopes))

    assert refused.value.argument == "scope"


@pytest.mark.parametrize("label", ["x" * 129, "a\x1b[2J", "a\nb", "\u202e"])
def test_a_label_is_short_and_harmless(label):
    with pytest.raises(InvalidArgumentError, match=rf"label has {len(label)} "):
        check_token(token_row(label=label))


def test_the_scopes_are_those_of_the_protocol():
    assert list(SCOPES) == ["read", "write", "compact", "presence", "metrics"]
    assert all(re.fullmatch("[a-z]+", name) for name in SCOPES)


def test_an_address_waits_after_ten_failures_within_a_minute():
    limit = FailureLimit()
    for number in range(9):
        limit.failed("a", number)
    early = limit.is_blocked("a", 9.0)
    limit.failed("a", 9.0)
    waits = [limit.is_blocked("a", now) for now in (9.0, 68.9, 69.0)]

    assert (early, waits) == (False, [True, True, False])
    assert not limit.is_blocked("b", 9.0)


def test_failures_that_are_far_apart_block_nobody():
    limit = FailureLimit()
    for number in range(100):
        limit.failed("a", number * 7.0)

    assert not limit.is_blocked("a", 700.0)


def test_failures_during_the_wait_make_it_longer():
    limit = FailureLimit()
    for number in range(20):
        limit.failed("a", float(number))

    assert limit.is_blocked("a", 78.0)


def test_the_memory_of_failures_is_bounded():
    limit = FailureLimit()
    for _ in range(10):
        limit.failed("first", 0.0)
    for number in range(ADDRESSES_WATCHED_MAX):
        limit.failed(str(number), 1.0)

    assert len(limit._failures) == ADDRESSES_WATCHED_MAX
    assert not limit.is_blocked("first", 1.0)
