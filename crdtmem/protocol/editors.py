"""What a Yjs editor and the gateway say to each other: y-protocols, without any I/O.

A session is one connection. Bytes go in, requests come out; what was done about them
goes in, frames come out. It never raises on input: a peer that breaks a rule gets a
close. ``Awareness`` is what all connections of one slot tell of themselves.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from crdtmem.errors import RemoteProtocolError
from crdtmem.limits import (
    AWARENESS_BYTES,
    AWARENESS_ENTRIES_MAX,
    AWARENESS_IDS_MAX,
    AWARENESS_LEVELS,
    AWARENESS_PAUSE_S,
    AWARENESS_TTL_S,
    EDITOR_FRAME_BYTES,
    EDITOR_FRAME_MESSAGES_MAX,
    EDITOR_GAP_WINDOW_S,
    EDITOR_GAPS_MAX,
    STATE_CLIENTS_MAX,
    UINT_MAX,
)
from crdtmem.protocol.codec import Reader, write_bytes, write_str, write_uint

__all__ = [
    "Awareness",
    "AwarenessEntry",
    "AwarenessOffered",
    "AwarenessWanted",
    "Close",
    "DiffWanted",
    "EditorSession",
    "Request",
    "UpdateOffered",
    "close_of",
]

SYNC, AWARENESS, AUTH, QUERY = range(4)
STEP1, STEP2, UPDATE = range(3)
NOTHING = b"\0\0"
_EMPTY_VECTOR = b"\0"
_DENIED = frozenset({"permission-denied", "slot-read-only", "slot-append-only"})
_CLOSES = {
    "other-incarnation": 4409,
    "size-limit-exceeded": 4413,
    "unsupported-content": 4415,
}
_MALFORMED = 4400


class AwarenessEntry(NamedTuple):
    """What a client tells of itself: JSON, or ``null`` when it leaves."""

    client: int
    clock: int
    state: str


class DiffWanted(NamedTuple):
    """The editor asks for what it lacks."""

    state_vector: bytes


class UpdateOffered(NamedTuple):
    """The editor typed something; ``is_first`` as in ``gateway.Offer``."""

    update: bytes
    is_first: bool


class AwarenessOffered(NamedTuple):
    """The editor tells of itself, and repeats what it heard of others."""

    entries: tuple[AwarenessEntry, ...]


class AwarenessWanted(NamedTuple):
    """The editor asks who is there."""


Request = DiffWanted | UpdateOffered | AwarenessOffered | AwarenessWanted


class Close(NamedTuple):
    """Why the connection ends: a close code, and a word for the event."""

    code: int
    reason: str


def close_of(code: str) -> Close | None:
    """Return the close that a refused update leads to; None for those that go on."""
    if code in _DENIED or code in ("", "known", "update-gap"):
        return None
    return Close(_CLOSES.get(code, _MALFORMED), code)


class EditorSession:
    """One connection of an editor.

    Args:
        anchor: The client id of the editor doc's own entry.
        now: The time in seconds, as in all calls.

    Attributes:
        closing: Why the connection is to end; None while it goes on.
        is_live: Whether the editor has all up to now, and wants what comes.

    """

    def __init__(self, *, anchor: int, now: float) -> None:
        self.closing: Close | None = None
        self.is_live = False
        self._anchor = anchor
        self._out: list[bytes] = []
        self._held: bytes | None = None
        self._has_passed = False
        self._gaps: list[float] = []
        self._is_asked = False
        self._is_denied = False
        self._awareness: dict[int, AwarenessEntry] = {}
        self._awareness_s = now - AWARENESS_PAUSE_S

    @property
    def backlog(self) -> int:
        """How many frames wait to be sent."""
        return len(self._out)

    @property
    def has_to_tick(self) -> bool:
        """Whether something waits for its time."""
        return bool(self._awareness)

    def begin(self, state_vector: bytes) -> None:
        """Ask the editor for what the editor doc lacks, which has this much."""
        self._out.append(_sync(STEP1, state_vector))

    def receive(self, frame: bytes, now: float) -> list[Request]:
        """Take a binary frame and return what it asks for, in its order."""
        if len(frame) > EDITOR_FRAME_BYTES:
            self.closing = Close(1009, "frame-too-large")
        if self.closing is not None:
            return []
        found: list[Request] = []
        reader = Reader(frame)
        try:
            for _ in range(EDITOR_FRAME_MESSAGES_MAX):
                found += self._message(reader)
                if reader.is_at_end:
                    return found + self.tick(now)
            self.closing = Close(_MALFORMED, "too-many-messages")
        except RemoteProtocolError as exc:
            self.closing = Close(_MALFORMED, exc.detail)
        return found

    def receive_text(self) -> None:
        """Take a text frame, which no editor sends."""
        self.closing = Close(_MALFORMED, "text-frame")

    def tick(self, now: float) -> list[Request]:
        """Return what had to wait until now."""
        if not self._awareness or now < self._awareness_s + AWARENESS_PAUSE_S:
            return []
        entries = tuple(self._awareness.values())
        self._awareness.clear()
        self._awareness_s = now
        return [AwarenessOffered(entries)]

    def accepted(
        self, update: UpdateOffered, code: str, state_vector: bytes, now: float
    ) -> list[DiffWanted]:
        """Learn what became of an update that was offered.

        Args:
            update: The update.
            code: As in ``gateway.Accepted``.
            state_vector: What the editor doc has by now.
            now: The time.

        Returns:
            The question that was held until now.

        """
        self.closing = self.closing or close_of(code)
        if self.closing is not None:
            return []
        if update.is_first:
            self._is_asked = False
        if code == "update-gap":
            self._note_gap(state_vector, now)
            return []
        if code in _DENIED and not self._is_denied:
            self._is_denied = True
            self._out.append(write_uint(AUTH) + b"\0" + write_str(code))
        if not update.is_first:
            return []
        self._has_passed = True
        held, self._held = self._held, None
        return [] if held is None else [DiffWanted(held)]

    def diff_ready(self, update: bytes) -> None:
        """Answer the editor's question; from here on it is live."""
        self._out.append(_sync(STEP2, update))
        self.is_live = True

    def publish(self, update: bytes) -> None:
        """Send a row of the editor doc."""
        self._out.append(_sync(UPDATE, update))

    def tell(self, entries: Iterable[AwarenessEntry]) -> None:
        """Send what others tell of themselves."""
        if found := list(entries):
            self._out.append(write_uint(AWARENESS) + write_bytes(_entries(found)))

    def data_to_send(self) -> list[bytes]:
        """Return the frames that are to be sent: one message each."""
        # y-websocket 3.1 reads only the first message of a frame.
        out, self._out = self._out, []
        return out

    def _message(self, reader: Reader) -> list[Request]:
        kind = reader.read_uint()
        if kind == SYNC:
            step = reader.read_uint(UPDATE)
            return self._sync(step, reader.read_bytes(EDITOR_FRAME_BYTES))
        if kind == AWARENESS:
            self._hear(reader.read_bytes(EDITOR_FRAME_BYTES))
            return []
        if kind == QUERY:
            return [AwarenessWanted()]
        raise RemoteProtocolError("unknown-type", f"message type {kind}")

    def _sync(self, step: int, data: bytes) -> list[Request]:
        if step != STEP1:
            if data == NOTHING and step == UPDATE:
                return []
            return [UpdateOffered(data, is_first=step == STEP2)]
        is_safe = data in (b"", _EMPTY_VECTOR) or self._anchor in _clients(data)
        if is_safe or self._has_passed:
            return [DiffWanted(data)]
        # Two documents must not meet: its answer will show which one it has.
        self._held = data
        return []

    def _note_gap(self, state_vector: bytes, now: float) -> None:
        if self._is_asked:
            # Typed before it could answer, and part of its answer.
            return
        self._is_asked = True
        self._gaps = [at for at in self._gaps if at > now - EDITOR_GAP_WINDOW_S]
        self._gaps.append(now)
        if len(self._gaps) >= EDITOR_GAPS_MAX:
            self.closing = Close(_MALFORMED, "update-gap")
        else:
            self._out.append(_sync(STEP1, state_vector))

    def _hear(self, data: bytes) -> None:
        reader = Reader(data)
        count = reader.read_uint()
        if count > AWARENESS_ENTRIES_MAX:
            raise RemoteProtocolError("too-large", f"{count} awareness entries")
        for _ in range(count):
            client, clock = reader.read_uint(), reader.read_uint()
            state = reader.read_str(EDITOR_FRAME_BYTES)
            is_known = client in self._awareness
            has_room = is_known or len(self._awareness) < AWARENESS_ENTRIES_MAX
            if has_room and _is_good(state):
                self._awareness[client] = AwarenessEntry(client, clock, state)
        reader.expect_end()


class Awareness:
    """Who is at a slot: the latest word of each client, by the connection it came by.

    A connection speaks for the first few ids that it names and nobody else has, and
    what it says of others is ignored: clients repeat what they have heard.

    """

    def __init__(self) -> None:
        self._entries: dict[int, tuple[object, AwarenessEntry, float]] = {}

    def hear(
        self, speaker: object, entries: Sequence[AwarenessEntry], now: float
    ) -> list[AwarenessEntry]:
        """Take what a connection says and return what is new of it."""
        news = []
        for entry in entries:
            known = self._entries.get(entry.client)
            if known is None:
                own = sum(one is speaker for one, _, _ in self._entries.values())
                if own >= AWARENESS_IDS_MAX or entry.state == "null":
                    continue
            elif known[0] is not speaker or entry.clock < known[1].clock:
                continue
            if known is None or known[1] != entry:
                news.append(entry)
            if entry.state == "null":
                del self._entries[entry.client]
            else:
                self._entries[entry.client] = speaker, entry, now
        return news

    def leave(self, speaker: object) -> list[AwarenessEntry]:
        """Forget a connection and return what others are to be told."""
        return self._drop(
            [c for c, (one, _, _) in self._entries.items() if one is speaker]
        )

    def expire(self, now: float) -> list[AwarenessEntry]:
        """Forget who has said nothing for long; return what others are to be told."""
        return self._drop(
            [c for c, (_, _, at) in self._entries.items() if at < now - AWARENESS_TTL_S]
        )

    def all(self) -> list[AwarenessEntry]:
        """Return the latest word of everybody."""
        return [entry for _, entry, _ in self._entries.values()]

    def name_of(self, speaker: object) -> str:
        """Return the name that a connection's client gives itself, or nothing."""
        for one, entry, _ in self._entries.values():
            if one is speaker:
                user = json.loads(entry.state).get("user")
                name = user.get("name") if isinstance(user, dict) else None
                if isinstance(name, str):
                    return name
        return ""

    def _drop(self, clients: Sequence[int]) -> list[AwarenessEntry]:
        gone = [self._entries.pop(client)[1] for client in clients]
        return [AwarenessEntry(one.client, one.clock + 1, "null") for one in gone]


def _sync(step: int, data: bytes) -> bytes:
    return write_uint(SYNC) + write_uint(step) + write_bytes(data)


def _entries(entries: Sequence[AwarenessEntry]) -> bytes:
    found = write_uint(len(entries))
    for client, clock, state in entries:
        found += (
            write_uint(client) + write_uint(min(clock, UINT_MAX)) + write_str(state)
        )
    return found


def _clients(state_vector: bytes) -> Mapping[int, int]:
    """Return the clocks in a state vector."""
    reader = Reader(state_vector)
    found = {}
    for _ in range(reader.read_uint(STATE_CLIENTS_MAX)):
        client = reader.read_uint()
        found[client] = reader.read_uint()
    reader.expect_end()
    return found


def _is_good(state: str) -> bool:
    """Tell whether a state is JSON of an object, or null, small and not deep."""
    if len(state.encode()) > AWARENESS_BYTES:
        return False
    try:
        value = json.loads(state)
    except (ValueError, RecursionError):
        return False
    if value is not None and not isinstance(value, dict):
        return False
    return _depth(value) <= AWARENESS_LEVELS


def _depth(value: object) -> int:
    # Bounded: 2 KiB of JSON nest a thousand times at most, and the parser has passed.
    level: list[object] = [value]
    depth = 0
    while level:
        depth += 1
        level = [
            inner
            for one in level
            for inner in (
                one.values()
                if isinstance(one, dict)
                else one
                if isinstance(one, list)
                else ()
            )
        ]
    return depth
