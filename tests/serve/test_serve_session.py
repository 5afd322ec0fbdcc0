"""Browsers that are signed in, and one-time URLs."""

import pytest

from crdtmem.errors import CrdtmemError, InvalidArgumentError
from crdtmem.limits import (
    SERVE_INVITE_S,
    SERVE_INVITES_MAX,
    SERVE_LOGIN_ADDRESSES_MAX,
    SERVE_LOGIN_FAILURES_MAX,
    SERVE_LOGIN_WINDOW_S,
    SERVE_NAME_UNITS,
    SERVE_SESSION_IDLE_S,
    SERVE_SESSION_S,
    SERVE_SESSIONS_MAX,
)
from crdtmem.serve.answers import HttpError
from crdtmem.serve.session import Sessions, csrf_of, digest_of
from tests.serve.desk import Clock

HERE = "127.0.0.1"


def made(clock=None):
    numbers = iter(range(1, 10_000))
    return Sessions(
        user_name="ana",
        now=clock or Clock(),
        random_bytes=lambda size: next(numbers).to_bytes(size),
    )


def refused(sessions, token, address=HERE):
    with pytest.raises(HttpError) as caught:
        sessions.sign_in(token, address)
    return caught.value.status, caught.value.code


@pytest.mark.requirement("serve-3")
def test_a_one_time_url_is_good_once():
    sessions = made()
    token = sessions.invite()

    cookie = sessions.sign_in(token, HERE)

    assert len(token) == 43
    assert sessions.find(cookie).lane == "web:ana"
    assert refused(sessions, token) == (401, "unauthorized")


@pytest.mark.requirement("serve-3")
def test_a_one_time_url_is_good_for_ten_minutes():
    clock = Clock()
    sessions = made(clock)
    first, second = sessions.invite(), sessions.invite()

    clock.now_s += SERVE_INVITE_S - 1
    sessions.sign_in(first, HERE)
    clock.now_s += 1

    assert refused(sessions, second) == (401, "unauthorized")


def test_only_the_newest_one_time_urls_are_kept():
    sessions = made()
    first, *_, last = [sessions.invite() for _ in range(SERVE_INVITES_MAX + 1)]

    assert refused(sessions, first)[0] == 401
    assert sessions.sign_in(last, HERE)


def test_who_guesses_has_to_wait():
    clock = Clock()
    sessions = made(clock)
    good = sessions.invite()

    statuses = [refused(sessions, "x")[0] for _ in range(SERVE_LOGIN_FAILURES_MAX + 1)]

    assert statuses == [401] * SERVE_LOGIN_FAILURES_MAX + [429]
    assert refused(sessions, good) == (429, "too-many-requests")
    assert refused(sessions, "x", "10.0.0.1")[0] == 401
    clock.now_s += SERVE_LOGIN_WINDOW_S
    assert sessions.sign_in(good, HERE)


def test_failures_of_a_thousand_addresses_are_remembered():
    sessions = made()
    for _ in range(SERVE_LOGIN_FAILURES_MAX):
        refused(sessions, "x")
    for number in range(SERVE_LOGIN_ADDRESSES_MAX):
        refused(sessions, "x", f"10.0.{number}")

    assert refused(sessions, "x")[0] == 401


@pytest.mark.parametrize(
    ("pause_s", "times"),
    [(SERVE_SESSION_IDLE_S, 1), (SERVE_SESSION_IDLE_S - 1, 15)],
)
def test_a_session_ends_when_it_is_idle_or_old(pause_s, times):
    clock = Clock()
    sessions = made(clock)
    cookie = sessions.sign_in(sessions.invite(), HERE)

    found = []
    for _ in range(times):
        clock.now_s += pause_s
        found.append(sessions.find(cookie))

    assert found[-1] is None
    assert None not in found[:-1]
    assert times * pause_s >= min(SERVE_SESSION_IDLE_S, SERVE_SESSION_S)


def test_looking_whether_a_session_lasts_is_no_use_of_it():
    clock = Clock()
    sessions = made(clock)
    cookie = sessions.sign_in(sessions.invite(), HERE)
    session_id = digest_of(cookie)

    clock.now_s += SERVE_SESSION_IDLE_S - 1
    is_open = sessions.is_open(session_id)
    clock.now_s += 1

    assert is_open
    assert not sessions.is_open(session_id)
    assert not sessions.is_open("no such")


def test_the_longest_unused_of_too_many_sessions_is_signed_out():
    sessions = made()
    cookies = [
        sessions.sign_in(sessions.invite(), HERE) for _ in range(SERVE_SESSIONS_MAX)
    ]
    sessions.find(cookies[0])

    sessions.sign_in(sessions.invite(), HERE)

    assert len(sessions) == SERVE_SESSIONS_MAX
    assert sessions.find(cookies[1]) is None
    assert sessions.find(cookies[0])


def test_a_session_that_is_signed_out_is_gone():
    sessions = made()
    cookie = sessions.sign_in(sessions.invite(), HERE)

    sessions.sign_out(digest_of(cookie))
    sessions.sign_out(digest_of(cookie))

    assert sessions.find(cookie) is None


def test_a_person_says_what_to_be_called():
    sessions = made()
    cookie = sessions.sign_in(sessions.invite(), HERE)

    sessions.rename(digest_of(cookie), "Bo")
    sessions.rename("no such", "Bo")

    assert sessions.find(cookie).lane == "web:Bo"


@pytest.mark.parametrize("name", ["", "  ", "a" * (SERVE_NAME_UNITS + 1), "a\nb"])
def test_a_name_that_is_no_part_of_a_lane_is_refused(name):
    sessions = made()
    cookie = sessions.sign_in(sessions.invite(), HERE)

    with pytest.raises(InvalidArgumentError):
        sessions.rename(digest_of(cookie), name)

    assert sessions.find(cookie).name == "ana"


@pytest.mark.requirement("serve-4")
def test_each_session_has_a_form_value_of_its_own():
    assert csrf_of("a") == csrf_of("a")
    assert csrf_of("a") != csrf_of("b")
    assert isinstance(HttpError(400, "x", "y"), CrdtmemError)
