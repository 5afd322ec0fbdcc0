"""The browsers that are signed in, and the one-time URLs that lead there.

Pure: time and randomness are passed in. Of a cookie and of a one-time token only the
hash is kept, so that nothing in this process's memory opens a door.
"""

import base64
import hashlib
import hmac
from collections import deque
from collections.abc import Callable
from typing import Final

from crdtmem.errors import InvalidArgumentError
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
from crdtmem.scope import parse_lane
from crdtmem.serve.answers import HttpError

__all__ = ["Session", "Sessions", "csrf_of", "digest_of"]

SECRET_BYTES: Final = 32


class Session:
    """A browser that is signed in.

    Attributes:
        id: The hash of its cookie.
        name: Who sits there.

    """

    def __init__(self, session_id: str, name: str, now_s: float) -> None:
        self.id = session_id
        self.name = name
        self.begun_s = self.used_s = now_s

    @property
    def lane(self) -> str:
        """Who writes."""
        return f"web:{self.name}"


class Sessions:
    """Who is signed in.

    Args:
        user_name: What a person is called who has not said.
        now: A clock that never goes back, in seconds.
        random_bytes: Where secrets come from.

    """

    def __init__(
        self,
        *,
        user_name: str,
        now: Callable[[], float],
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._user_name = user_name
        self._now = now
        self._random_bytes = random_bytes
        self._invites: dict[str, float] = {}
        self._sessions: dict[str, Session] = {}
        self._failures: dict[str, deque[float]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def invite(self) -> str:
        """Return the token of a new one-time URL."""
        token = self._secret()
        self._invites[digest_of(token)] = self._now() + SERVE_INVITE_S
        if len(self._invites) > SERVE_INVITES_MAX:
            del self._invites[next(iter(self._invites))]
        return token

    def sign_in(self, token: str, address: str) -> str:
        """Use up a one-time token; return the value of the new session's cookie.

        Args:
            token: That was brought.
            address: Who brought it.

        Raises:
            HttpError: ``unauthorized`` if it is unknown, used or old;
                ``too-many-requests``.

        """
        now_s = self._now()
        self._check_rate(address, now_s)
        # Looked up by its hash: how long that takes says nothing of the token.
        until_s = self._invites.pop(digest_of(token), 0.0)
        if until_s <= now_s:
            self._note_failure(address, now_s)
            raise HttpError(
                401,
                "unauthorized",
                "this address has been used, or is too old",
                hint="run 'crdtmem serve --url' for a new one",
            )
        cookie = self._secret()
        session = Session(digest_of(cookie), self._user_name, now_s)
        self._sessions[session.id] = session
        if len(self._sessions) > SERVE_SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]
        return cookie

    def find(self, cookie: str) -> Session | None:
        """Return the session of a cookie, which counts as used; None if there is none.

        The longest unused stands first.
        """
        session = self._sessions.pop(digest_of(cookie), None)
        if session is None or not self._is_fresh(session):
            return None
        session.used_s = self._now()
        self._sessions[session.id] = session
        return session

    def is_open(self, session_id: str) -> bool:
        """Tell whether a session lasts; that counts as no use of it."""
        session = self._sessions.get(session_id)
        return session is not None and self._is_fresh(session)

    def sign_out(self, session_id: str) -> None:
        """End a session. Idempotent."""
        self._sessions.pop(session_id, None)

    def rename(self, session_id: str, name: str) -> None:
        """Have a person called otherwise from now on.

        Raises:
            InvalidArgumentError: If it cannot be part of a lane's name.

        """
        if not name.strip() or len(name.encode("utf-16-le")) > 2 * SERVE_NAME_UNITS:
            message = f"name must be 1 to {SERVE_NAME_UNITS} characters"
            raise InvalidArgumentError("name", message)
        parse_lane(f"web:{name}")
        if (session := self._sessions.get(session_id)) is not None:
            session.name = name

    def _is_fresh(self, session: Session) -> bool:
        now_s = self._now()
        is_used = now_s - session.used_s < SERVE_SESSION_IDLE_S
        return is_used and now_s - session.begun_s < SERVE_SESSION_S

    def _check_rate(self, address: str, now_s: float) -> None:
        times = self._failures.get(address, deque())
        while times and now_s - times[0] >= SERVE_LOGIN_WINDOW_S:
            times.popleft()
        if len(times) >= SERVE_LOGIN_FAILURES_MAX:
            raise HttpError(
                429,
                "too-many-requests",
                f"{SERVE_LOGIN_FAILURES_MAX} wrong addresses within a minute",
                hint="wait a minute",
                headers={"Retry-After": f"{SERVE_LOGIN_WINDOW_S:.0f}"},
            )

    def _note_failure(self, address: str, now_s: float) -> None:
        times = self._failures.pop(address, deque(maxlen=SERVE_LOGIN_FAILURES_MAX))
        times.append(now_s)
        self._failures[address] = times
        if len(self._failures) > SERVE_LOGIN_ADDRESSES_MAX:
            del self._failures[next(iter(self._failures))]

    def _secret(self) -> str:
        return base64.urlsafe_b64encode(self._random_bytes(SECRET_BYTES))[:-1].decode()


def csrf_of(cookie: str) -> str:
    """Return what forms of a session must send along."""
    mac = hmac.new(cookie.encode("utf-8", "replace"), b"csrf", hashlib.sha256)
    return mac.hexdigest()


def digest_of(secret: str) -> str:
    """Return what is kept of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
