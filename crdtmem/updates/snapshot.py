"""A whole state: structs of many clients that refer to each other alone."""

from array import array
from bisect import bisect_right
from dataclasses import dataclass

from crdtmem.limits import CLOCK_MAX, STATE_BYTES, STATE_CLIENTS_MAX, UINT_MAX
from crdtmem.updates.content import Place, Roots
from crdtmem.updates.reader import ANY, DELETED, KEYED, STRING, StructReader

__all__ = ["SnapshotReader"]


@dataclass(slots=True)
class _Held:
    """A map item of a snapshot; its place is inherited where it has an origin."""

    end: int
    place: Place | None
    kind: type | None


class SnapshotReader(StructReader):
    """A whole state: structs of many clients that refer to each other alone.

    The sections come in any order, so references are noted while reading and followed
    afterwards in the order in which yrs integrates: a client goes on until it needs one
    that is behind, which then goes on first. Two that need each other would wait for
    ever, and yrs would leave both out of the next state.
    """

    size_limit_bytes = STATE_BYTES
    forms = frozenset({DELETED, DELETED | KEYED, STRING, ANY | KEYED})

    def __init__(
        self,
        data: bytes,
        *,
        client_ids: frozenset[int] | None,
        roots: Roots,
    ) -> None:
        super().__init__(data, client_ids=client_ids, roots=roots)
        # For each client flat triples (own clock, client, clock), in machine words
        # because a hostile state has millions of them; how many words were followed,
        # and up to which clock.
        self.references: dict[int, array[int]] = {}
        self.followed: dict[int, int] = {}
        self.reached: dict[int, int] = {}
        # For each client its map items, and the clocks that they start at.
        self.held: dict[int, list[_Held]] = {}
        self.starts: dict[int, list[int]] = {}

    def check_sections(self, count: int) -> None:
        """Refuse more clients than a state may have."""
        if count > STATE_CLIENTS_MAX:
            raise self.refusal("update-clock", f"{count} clients")

    def begin(self, client: int, clock: int) -> None:
        """Refuse a client that does not start at clock 0, or occurs twice."""
        if client in self.clients:
            raise self.refusal("update-malformed", f"client {client} occurs twice")
        if clock:
            reason = f"snapshot starts at clock {clock} of client {client}"
            raise self.refusal("update-clock", reason)
        self.references[client] = array("Q")
        self.followed[client] = self.reached[client] = 0

    def refer(self, clock: int, keyed: int, client: int, target: int) -> Place | None:
        """Note a reference, to be followed in settle."""
        limit = clock if client == self.client else CLOCK_MAX
        if target >= limit or client > UINT_MAX:
            raise self.missing(client, target)
        self.references[self.client].extend((clock, client, target))
        return None

    def hold(
        self, clock: int, end: int, place: Place | None, kind: type | None
    ) -> None:
        """Keep a map item; its value is checked once its key is known."""
        if place:
            self.check_kind(place, kind)
        self.starts.setdefault(self.client, []).append(clock)
        self.held.setdefault(self.client, []).append(_Held(end, place, kind))

    def settle(self) -> None:
        """Refuse references in a circle, to nowhere, or to another kind."""
        for first, (_, end) in self.clients.items():
            path = [(first, end - 1)]
            waiting = {first}
            while path:
                client, clock = path[-1]
                if self._advance(client) > clock:
                    path.pop()
                    waiting.discard(client)
                    continue
                at = self.followed[client]
                _, other, target = self.references[client][at : at + 3]
                if other in waiting or target >= self.next_clock(other):
                    raise self.missing(other, target)
                path.append((other, target))
                waiting.add(other)

    def next_clock(self, client: int) -> int:
        """Return the clock after the last of this client in the snapshot."""
        return self.clients.get(client, (0, 0))[1]

    def _advance(self, client: int) -> int:
        """Follow a client's references up to one that is behind; return its clock."""
        references = self.references[client]
        for at in range(self.followed[client], len(references), 3):
            clock, other, target = references[at : at + 3]
            self.followed[client], self.reached[client] = at, clock
            if self.reached.get(other, 0) <= target:
                return clock
            self._inherit(self._find(client, clock), self._find(other, target))
        self.followed[client] = len(references)
        self.reached[client] = self.next_clock(client)
        return self.reached[client]

    def _inherit(self, held: _Held | None, origin: _Held | None) -> None:
        """Give a map item the place of its origin; both are None in a text."""
        if (held is None) != (origin is None):
            raise self.refusal("update-content", "hangs on a struct of another kind")
        if held and origin and held.place != origin.place:
            if held.place:
                raise self.refusal("update-content", "origins under two keys")
            held.place = origin.place
            self.check_kind(held.place, held.kind)

    def _find(self, client: int, clock: int) -> _Held | None:
        """Return the map item that covers this clock."""
        if client not in self.held:
            return None
        at = bisect_right(self.starts[client], clock) - 1
        held = self.held[client][at] if at >= 0 else None
        return held if held and clock < held.end else None
