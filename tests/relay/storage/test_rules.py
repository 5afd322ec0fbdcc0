"""relay.storage.rules: which of several faults is told."""

import itertools

import pytest

from crdtmem.protocol.records import Header, RecordKind
from crdtmem.protocol.relaying import Grant, Scope
from relay.storage.rules import Standing, StorageLimits, is_cover, refusal_of

LIMITS = StorageLimits(quota_bytes=1_000, docs_max=5)
FITS = {
    "head": 10,
    "max_seq": 3,
    "live_bytes": 900,
    "docs": 5,
    "is_new_doc": False,
    "covered": 4,
}
COVER = {"kind": RecordKind.SNAPSHOT, "base": 4}
GRANT = Grant("t", "*", Scope.WRITE | Scope.COMPACT, max_replicas=2)


def refusal(size_bytes=100, grant=GRANT, *, header=(), **standing):
    fields = {"kind": 2, "base": 4, "replica_seq": 4, **dict(header)}
    made = Header(
        fields["kind"],
        0,
        b"d" * 16,
        b"r" * 16,
        fields["replica_seq"],
        fields["base"],
        0,
    )
    found = Standing(**{**FITS, **standing})
    return refusal_of(made, size_bytes, grant, found, LIMITS)


FAULTS = [
    ("replica-gap", {"header": {"replica_seq": 5}}),
    ("base-ahead", {"head": 3}),
    ("forbidden", {"grant": Grant("t", "*", Scope.WRITE)}),
    ("quota-exceeded", {"live_bytes": 1_001}),
    ("snapshot-stale", {"covered": 5}),
]


def test_what_has_no_fault_is_taken():
    assert refusal() == ""


@pytest.mark.parametrize("faults", [*itertools.combinations(FAULTS, 2)])
def test_of_two_faults_the_first_of_the_table_is_told(faults):
    (first, one), (second, other) = faults

    assert refusal(**one) == first
    assert refusal(**other) == second
    assert refusal(**{**other, **one}) == first


@pytest.mark.parametrize(
    ("kind", "base", "most"),
    [(1, 4, 1_000), (2, 0, 1_000), (2, 4, 1_100), (3, 4, 1_100), (6, 4, 1_000)],
)
def test_what_makes_room_may_pass_the_quota_by_a_tenth(kind, base, most):
    header = {"kind": kind, "base": base}
    fits, too_long = most - 900, most - 900 + 1

    assert refusal(fits, header=header) == ""
    assert refusal(too_long, header=header) == "quota-exceeded"


def test_only_a_new_doc_is_one_too_many():
    assert refusal(is_new_doc=True) == "quota-exceeded"
    assert refusal(is_new_doc=True, docs=4) == ""


def test_only_a_new_replica_is_one_too_many():
    assert refusal(other_replicas=2) == "forbidden"
    assert refusal(other_replicas=1) == ""
    unbounded = Grant("t", "*", Scope.WRITE | Scope.COMPACT)
    assert refusal(grant=unbounded, other_replicas=99) == ""


@pytest.mark.parametrize(
    ("kind", "base", "covers"), [(2, 1, True), (2, 0, False), (1, 1, False)]
)
def test_a_snapshot_with_a_base_is_a_cover(kind, base, covers):
    assert is_cover(Header(kind, 0, b"d" * 16, b"r" * 16, 1, base, 0)) is covers
