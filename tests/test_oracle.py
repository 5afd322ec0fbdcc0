"""The judge of appended lines finds each kind of fault and passes what is right."""

import pytest

from tests.oracle import Verdict, judge, token

A = [token("a", number) for number in range(3)]
B = [token("b", number) for number in range(2)]
LANES = {"a": A, "b": B}
HEAD, TAIL = A[1].split("=")


def test_interleaved_lanes_are_stable():
    verdict = judge("\n".join([A[0], B[0], A[1], A[2], B[1]]), LANES)

    assert verdict == Verdict(stable=(*A, *B))
    assert verdict.faults == {}


@pytest.mark.parametrize(
    ("lines", "faults"),
    [
        ([], {"lost": (*A, *B)}),
        ([A[0], A[2], *B], {"lost": (A[1],)}),
        ([*A, *B, A[1]], {"doubled": (A[1],)}),
        ([A[0], A[1] + A[2], *B], {"torn": (A[1], A[2])}),
        ([A[0], HEAD, A[2], *B], {"torn": (A[1],)}),
        ([A[0], TAIL, A[2], *B], {"torn": (A[1],)}),
        ([*A, *B, HEAD], {"torn": (A[1],)}),
        ([A[0], A[2], A[1], *B], {"reordered": (A[1],)}),
        ([*A, *B, "who?"], {"phantom": ("who?",)}),
        ([*A, *B, ""], {"phantom": ("",)}),
    ],
)
def test_a_fault_is_found_and_named(lines, faults):
    assert judge("\n".join(lines), LANES).faults == faults


def test_a_token_in_doubt_may_be_whole_or_absent_but_not_torn():
    def faults(*lines):
        return judge("\n".join([A[0], *lines, *B]), LANES, acknowledged=[A[0], *B])

    assert faults().faults == {}
    assert faults(A[1], A[2]).faults == {}
    assert faults(HEAD).faults == {"torn": (A[1],)}


def test_other_lines_may_stand_between():
    verdict = judge("\n".join(["title", *A, *B]), LANES, other_lines=["title"])

    assert verdict.faults == {}
