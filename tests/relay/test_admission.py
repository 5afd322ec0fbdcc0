"""relay.admission"""

import pytest

from relay.admission import Admission, Arrival, Verdict

OLD = Arrival(b"r" * 16, b"old", "token")
NEW = Arrival(b"r" * 16, b"new", "token")
NEXT = Arrival(b"r" * 16, b"next", "token")


@pytest.fixture
def admission():
    return Admission(probe_s=5)


def test_who_is_alone_is_welcome(admission):
    other = Arrival(b"o" * 16, b"new", "token")

    assert admission.arrive(1, OLD, 0) == Verdict()
    assert admission.arrive(2, other, 0) == Verdict()


def test_the_same_lease_and_token_replaces(admission):
    admission.arrive(1, OLD, 0)
    elsewhere = Arrival(OLD.replica_id, OLD.incarnation, "other token")

    assert admission.arrive(2, elsewhere, 0) == Verdict()
    assert admission.arrive(3, OLD, 0) == Verdict(replaced=(1,))


def test_another_lease_has_its_rivals_asked(admission):
    admission.arrive(1, OLD, 0)
    verdict = admission.arrive(2, NEW, 10)

    assert verdict == Verdict(rivals=(1,))
    assert admission.next_deadline() == 15
    assert (admission.overdue(14.9), admission.overdue(15)) == ([], [1])
    assert (admission.alive(1), admission.alive(2)) == ([2], [])


def test_who_waits_is_free_when_its_last_rival_is_gone(admission):
    admission.arrive(1, OLD, 0)
    admission.arrive(2, Arrival(OLD.replica_id, b"old", "other token"), 0)
    admission.arrive(3, NEW, 0)

    assert admission.gone(1) == []
    assert admission.gone(2) == [(3, NEW)]
    assert admission.arrive(3, NEW, 1) == Verdict()
    assert admission.overdue(99) == []


def test_of_two_that_wait_the_second_then_has_the_first_for_a_rival(admission):
    admission.arrive(1, OLD, 0)
    admission.arrive(2, NEW, 0)
    admission.arrive(3, NEXT, 0)
    free = admission.gone(1)

    assert free == [(2, NEW), (3, NEXT)]
    assert admission.arrive(2, NEW, 1) == Verdict()
    assert admission.arrive(3, NEXT, 1) == Verdict(rivals=(2,))


def test_who_gives_up_waiting_is_forgotten(admission):
    admission.arrive(1, OLD, 0)
    admission.arrive(2, NEW, 0)

    assert admission.gone(2) == []
    assert (admission.alive(1), admission.overdue(99)) == ([], [])
    assert admission.gone(1) == []
    assert admission.gone(9) == []


def test_a_rival_is_given_up_also_if_who_came_did_not_wait(admission):
    admission.arrive(1, OLD, 0)
    admission.arrive(2, NEW, 0)
    admission.gone(2)
    admission.arrive(3, NEW, 4)

    assert admission.overdue(5) == [1]


def test_a_rival_that_has_shown_that_it_lives_is_asked_anew_later(admission):
    admission.arrive(1, OLD, 0)
    admission.arrive(2, NEW, 0)
    admission.alive(1)
    admission.gone(2)
    admission.arrive(3, NEXT, 100)

    assert (admission.overdue(104), admission.overdue(105)) == ([], [1])


def test_a_rival_of_somebody_else_does_not_matter(admission):
    other = Arrival(b"o" * 16, b"old", "token")
    admission.arrive(1, OLD, 0)
    admission.arrive(2, other, 0)
    admission.arrive(3, NEW, 0)

    assert admission.gone(2) == []
    assert admission.alive(1) == [3]
