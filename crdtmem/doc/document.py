"""What the documents of all kinds share: their clocks, and the updates in and out.

pycrdt shapes the habits. One transaction that raises keeps what it had done so far, so
a document that raised is spent. What waits for others is left out of a state, so the
scanner lets nothing in that would have to wait.
"""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from crdtmem.doc.guard import doc_errors
from crdtmem.errors import DocError
from crdtmem.limits import REPLAYED_TOGETHER_MAX
from crdtmem.updates import Roots, Scan, scan

if TYPE_CHECKING:
    from pycrdt import TransactionEvent

__all__ = ["Document"]


class Document(ABC):
    """One document in memory, at one place of its log.

    1. ``clocks`` is its state vector, always: what came in was scanned against it.
    2. After a DocError the object is spent.

    Args:
        client_id: The Yjs client id of local edits.

    Attributes:
        client_id: See above.
        clocks: The state vector: next clock of each client id.

    """

    roots: ClassVar[Roots]

    def __init__(self, client_id: int) -> None:
        # pycrdt is loaded with the first document: it takes several times as long as
        # starting Python, and who only reads never needs one.
        from pycrdt import Doc  # noqa: PLC0415 - see above

        self.client_id = client_id
        self.clocks: dict[int, int] = {}
        self._doc: Doc[Any] = Doc(client_id=client_id)

    @property
    def weight(self) -> int:
        """How much memory it takes, in members of a memory set; 0 for a slot."""
        return 0

    def replay(self, writes: Sequence[tuple[bytes, int]]) -> None:
        """Apply logged writes in log order, each with its client id.

        All in one transaction: there are some tens of them at a time, and pycrdt's own
        share of applying one is a tenth of what its transaction takes. Thousands at
        once would be quadratic.

        Raises:
            UpdateRejectedError: If the scanner refuses one.
            DocError: If pycrdt fails.

        """
        # A repetition is skipped whole, as when it came: its deletes count for nothing.
        fresh: list[bytes] = []
        for update, client_id in writes:
            found = self._scanned(update, client_id)
            if not found.is_known:
                fresh.append(update)
            self._advance(found)
        with doc_errors("apply records"):
            for start in range(0, len(fresh), REPLAYED_TOGETHER_MAX):
                with self._doc.transaction():
                    for update in fresh[start : start + REPLAYED_TOGETHER_MAX]:
                        self._doc.apply_update(update)

    @abstractmethod
    def is_same(self, other: Self) -> bool:
        """Tell whether two documents have the same clocks and the same content."""

    def holds(self, state: bytes) -> bool:
        """Tell whether applying a whole state would change nothing, deletes included.

        Raises:
            UpdateRejectedError: If the scanner refuses it.

        """
        found = self._scanned_state(state)
        for client, (_, end) in found.clients.items():
            if end > self.clocks.get(client, 0):
                return False
        gone = _ranges(self._scanned_state(self.state()).deletes)
        return all(
            _is_within(part, gone.get(client, []))
            for client, parts in _ranges(found.deletes).items()
            for part in parts
        )

    def state(self) -> bytes:
        """Return the squashed state.

        pycrdt leaves structs out that wait for others, so it is whole only because the
        scanner lets nothing in that would have to wait.
        """
        with doc_errors("squash"):
            return bytes(self._doc.get_update())

    def _edited(self, change: Callable[[], None]) -> bytes:
        """Make a change in one transaction and return its update."""
        updates: list[bytes] = []
        with doc_errors("make an edit"):
            # The event's update, not get_update(state): that one carries the whole
            # delete set of the document each time.
            subscription = self._doc.observe(lambda event: _keep_update(event, updates))
            try:
                with self._doc.transaction():
                    change()
            finally:
                # An observed doc that is never unobserved is never freed.
                self._doc.unobserve(subscription)
        if len(updates) != 1:
            raise DocError(f"an edit gave {len(updates)} updates")
        self._advance(self._scanned(updates[0], self.client_id))
        return updates[0]

    def _scanned(self, update: bytes, client_id: int) -> Scan:
        return scan(
            update,
            client_ids=frozenset((client_id,)),
            state=self.clocks,
            snapshot=False,
            roots=self.roots,
        )

    @classmethod
    def _scanned_state(cls, state: bytes) -> Scan:
        return scan(state, client_ids=None, state={}, snapshot=True, roots=cls.roots)

    def _advance(self, found: Scan) -> None:
        for client, (_, end) in found.clients.items():
            self.clocks[client] = max(self.clocks.get(client, 0), end)


_Range = tuple[int, int]


def _ranges(deletes: Iterable[tuple[int, int, int]]) -> dict[int, list[_Range]]:
    """Return what is deleted of each client, as first clocks and ends, ascending."""
    found: dict[int, list[_Range]] = {}
    for client, start, length in sorted(deletes):
        ranges = found.setdefault(client, [])
        end = start + length
        if ranges and start <= ranges[-1][1]:
            start, last = ranges.pop()
            end = max(end, last)
        ranges.append((start, end))
    return found


def _is_within(part: _Range, ranges: list[_Range]) -> bool:
    at = bisect_right(ranges, part[0], key=lambda one: one[0]) - 1
    return at >= 0 and part[1] <= ranges[at][1]


def _keep_update(event: "TransactionEvent", updates: list[bytes]) -> None:
    updates.append(bytes(event.update))
