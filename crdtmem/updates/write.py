"""One write: structs of one client, on top of a state."""

from collections.abc import Mapping

from crdtmem.limits import UPDATE_BYTES
from crdtmem.updates.content import Place, Roots
from crdtmem.updates.reader import ANY, KEYED, STRING, StructReader

__all__ = ["WriteReader"]


class WriteReader(StructReader):
    """One write: structs of one client, on top of a state.

    Of the structs in the state only the clocks are known, so the place of one that
    hangs on them does not show.
    """

    size_limit_bytes = UPDATE_BYTES
    forms = frozenset({STRING, ANY | KEYED})

    def __init__(
        self,
        data: bytes,
        *,
        client_ids: frozenset[int] | None,
        state: Mapping[int, int],
        roots: Roots,
    ) -> None:
        super().__init__(data, client_ids=client_ids, roots=roots)
        self.state = state
        self.first = 0
        self.places: dict[int, Place | None] = {}

    def check_sections(self, count: int) -> None:
        """Refuse a second client: a write has one author."""
        if count > 1:
            raise self.refusal("update-client", f"{count} clients in one write")

    def begin(self, client: int, clock: int) -> None:
        """Refuse a gap between the state and the first clock."""
        self.first = clock
        have = self.state.get(client, 0)
        if clock > have:
            reason = f"clock {clock} of client {client} comes before {have} is written"
            raise self.refusal("update-clock", reason)

    def refer(self, clock: int, keyed: int, client: int, target: int) -> Place | None:
        """Refuse what is neither in the state nor earlier in this write."""
        is_own = client == self.client
        if target >= (clock if is_own else self.state.get(client, 0)):
            raise self.missing(client, target)
        if not is_own or target < self.first:
            return None
        if bool(keyed) != (target in self.places):
            raise self.refusal("update-content", "hangs on a struct of another kind")
        return self.places.get(target)

    def hold(
        self, clock: int, end: int, place: Place | None, kind: type | None
    ) -> None:
        """Check the value; a key that the state holds does not show."""
        self.check_kind(place, kind)
        self.places[clock] = place

    def settle(self) -> None:
        """Refuse a write that the state holds in part."""
        for client, (start, end) in self.clients.items():
            have = self.state.get(client, 0)
            self.is_known = end <= have
            if start < have < end:
                reason = f"clocks {start} to {end} of client {client} overlap {have}"
                raise self.refusal("update-clock", reason)

    def next_clock(self, client: int) -> int:
        """Return the clock after the last of state and write."""
        # A repetition writes nothing beyond the state.
        have = self.state.get(client, 0)
        return max(have, self.clients.get(client, (0, 0))[1])
