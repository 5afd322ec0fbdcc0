"""What waits to be sent to one client beside records.

Whatever is newer replaces what is older: one acknowledgement for each namespace, one
heartbeat, one presence for each replica. What cannot be replaced, answers and errors,
is counted in bytes: a client that asks without ever reading is given up.
"""

from collections.abc import Iterable, Sequence

from crdtmem.limits import CONTROL_BYTES, ERROR_TEXT_BYTES, FRAME_MESSAGES_MAX
from crdtmem.protocol.messages import (
    Ack,
    Action,
    ErrorMessage,
    Head,
    Heartbeat,
    Message,
    encode_message,
)
from crdtmem.protocol.relaying import PutRefusal

__all__ = ["Answers", "PresenceKey"]

PresenceKey = tuple[int, bytes, bytes]
"""Whose presence it is: ns_no, replica_id, incarnation."""

# Each is 1 KiB and a little: together they are no longer than a quarter of a frame.
PRESENCES_AT_ONCE = 48


class Answers:
    """The messages that go before the next frame of records (R3).

    Attributes:
        errors: Codes of the errors that were said; whoever counts them empties it.

    """

    def __init__(self) -> None:
        self.errors: list[str] = []
        self._acks: dict[int, Ack] = {}
        self._once: list[bytes] = []
        self._once_bytes = 0
        self._heartbeat: int | None = None
        self._presences: dict[PresenceKey, bytes] = {}

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return (
            self._heartbeat is None
            and not self._once
            and not self._acks
            and not self._presences
        )

    @property
    def is_overfull(self) -> bool:
        """Whether more waits than any client that reads would let wait."""
        return self._once_bytes > CONTROL_BYTES

    def say(self, message: Message) -> None:
        """Add a message that nothing replaces."""
        data = encode_message(message)
        self._once.append(data)
        self._once_bytes += len(data)

    def refuse(
        self,
        namespace: str,
        what: tuple[Action, int],
        refusal: PutRefusal,
        text: str = "",
    ) -> None:
        """Add an error.

        Args:
            namespace: Which it is about; empty for the connection.
            what: What the client does, and after how many milliseconds.
            refusal: Its code, and which record it is about; zeros for none.
            text: For people; cut to what the protocol allows.

        """
        self.errors.append(refusal.code)
        short = text.encode()[:ERROR_TEXT_BYTES].decode(errors="ignore")
        number, expected = refusal.replica_seq, refusal.expected
        code = refusal.code
        self.say(ErrorMessage(namespace, number, expected, *what, code, short))

    def acknowledge(self, ack: Ack) -> None:
        """Add an acknowledgement; of one namespace the highest number is sent."""
        waiting = self._acks.get(ack.ns_no)
        if waiting is None or waiting.replica_seq < ack.replica_seq:
            self._acks[ack.ns_no] = ack

    def beat(self, flags: int) -> None:
        """Add a heartbeat; one that asks for an answer is not replaced by another."""
        self._heartbeat = flags | (self._heartbeat or 0)

    def show(self, key: PresenceKey, presence: bytes) -> None:
        """Add an encoded presence."""
        self._presences[key] = presence

    def leave(self, ns_no: int) -> None:
        """Forget what would be replaced by a later join of this namespace."""
        self._acks.pop(ns_no, None)
        for key in [key for key in self._presences if key[0] == ns_no]:
            del self._presences[key]

    def clear(self) -> None:
        """Forget everything."""
        self._acks.clear()
        self._once.clear()
        self._once_bytes = 0
        self._heartbeat = None
        self._presences.clear()

    def take(self, heads: Iterable[Head]) -> list[bytes]:
        """Return what waits, in frames; of many presences the first.

        Args:
            heads: For a heartbeat; looked at only if there is one.

        """
        messages = [encode_message(ack) for ack in self._acks.values()] + self._once
        if self._heartbeat is not None:
            messages.append(encode_message(Heartbeat(self._heartbeat, tuple(heads))))
        presences = list(self._presences.items())
        messages += [data for _, data in presences[:PRESENCES_AT_ONCE]]
        self.clear()
        self._presences.update(presences[PRESENCES_AT_ONCE:])
        return _framed(messages)


def _framed(messages: Sequence[bytes]) -> list[bytes]:
    return [
        b"".join(messages[at : at + FRAME_MESSAGES_MAX])
        for at in range(0, len(messages), FRAME_MESSAGES_MAX)
    ]
