"""What one connection puts into one namespace: what is in flight, what is discarded.

The first record of a stream that is refused blocks the stream: what the client had sent
behind it is discarded without a word, until a put begins at the number that is due. So
one fault makes one error, whoever notices it, this side or the storage.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from crdtmem.errors import RecordMalformedError, RemoteProtocolError
from crdtmem.limits import UINT_MAX
from crdtmem.protocol.parts import RecordLimits
from crdtmem.protocol.records import parse_header, record_id
from crdtmem.protocol.relaying import PutRecord, PutRefusal, PutResult

__all__ = ["Fault", "Settled", "Upload", "Window"]


# Where a record's header has its replica_seq.
SEQ_AT = slice(36, 44)


@dataclass(frozen=True, slots=True)
class Window:
    """Most records, and most bytes of them, that wait for an acknowledgement."""

    records: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Fault:
    """What a client is told of a record that was refused."""

    refusal: PutRefusal
    text: str


@dataclass(frozen=True, slots=True)
class Settled:
    """What is to be told after a put: an acknowledgement, an error, both or neither."""

    acked: PutResult | None = None
    fault: Fault | None = None


@dataclass(slots=True)
class _Flight:
    """A put on its way to the storage, or a fault whose turn has not come yet."""

    first: int
    records: int = 0
    size_bytes: int = 0
    fault: Fault | None = None
    is_void: bool = False


class Upload:
    """One stream: the records of one replica in one namespace, on one connection.

    Puts are settled in the order in which they were accepted (R5), and what this side
    finds wrong with a record is told only when everything before it has been stored
    (R6): if one of those is refused, that is the fault.

    Args:
        namespace: Its name; record ids depend on it.
        replica_id: Of the connection.
        limits: Longest records.
        window: Most that may be in flight.

    """

    def __init__(
        self, namespace: str, replica_id: bytes, *, limits: RecordLimits, window: Window
    ) -> None:
        self._namespace = namespace
        self._replica_id = replica_id
        self._limits = limits
        self._window = window
        self._flights: deque[_Flight] = deque()
        self._records = 0
        self._size_bytes = 0
        self._next = 1
        self._blocked_at: int | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in flight."""
        return not self._flights

    @property
    def is_blocked(self) -> bool:
        """Whether what comes is discarded, unless it begins at the number due."""
        return self._blocked_at is not None

    def begin(self, own_max: int) -> None:
        """Start with a join: the relay has this replica's records up to ``own_max``."""
        self._next = own_max + 1
        self._blocked_at = None

    def leave(self) -> None:
        """Keep nothing but count: the client no longer listens."""
        self._void(None)

    def expects(self, replica_seq: int) -> bool:
        """Tell whether a put that begins with this number is not discarded."""
        return self._blocked_at is None or replica_seq == self._blocked_at

    def accept(self, records: Sequence[bytes]) -> tuple[PutRecord, ...]:
        """Return what is to be stored of a put: its records before the first bad one.

        Raises:
            RemoteProtocolError: ``replica-mismatch`` or ``window-exceeded``; the
                connection ends then.

        """
        first = self._number(records[0])
        if not self.expects(first):
            return ()
        self._open_window(len(records), sum(map(len, records)))
        self._blocked_at = None
        parsed: list[PutRecord] = []
        fault = None
        for at, record in enumerate(records, first):
            fault = self._fault_of(record, at, parsed)
            if fault:
                break
        if parsed:
            size_bytes = sum(len(record.record) for record in parsed)
            self._flights.append(_Flight(first, len(parsed), size_bytes))
            self._records += len(parsed)
            self._size_bytes += size_bytes
            self._next = first + len(parsed)
        if fault:
            self.refuse(fault)
        return tuple(parsed)

    def refuse(self, fault: Fault) -> None:
        """Take up a fault that was found here, at the end of what is in flight."""
        number = fault.refusal.replica_seq
        self._flights.append(_Flight(number, fault=fault))
        self._block(number)

    def settle(self, result: PutResult) -> Settled:
        """Take the result of the oldest put in flight, and say what to tell of it.

        Then it may be the turn of a fault that stands behind it: see ``next_fault``.
        """
        flight = self._flights.popleft()
        if flight.is_void:
            return Settled()
        self._forget(flight)
        acked = result if result.acked else None
        if result.refusal is None:
            return Settled(acked)
        before = self._blocked_at, self._next
        self._block(result.refusal.expected)
        if self._void(result.refusal.expected):
            self._blocked_at, self._next = before
        return Settled(acked, Fault(result.refusal, ""))

    def next_fault(self) -> Fault | None:
        """Return the next fault whose turn has come, once."""
        while self._flights and self._flights[0].fault:
            flight = self._flights.popleft()
            if not flight.is_void:
                return flight.fault
        return None

    def _block(self, expected: int) -> None:
        self._blocked_at = self._next = expected

    def _void(self, expected: int | None) -> bool:
        """Have what is in flight end in silence, up to a put that begins at a number.

        Returns:
            Whether there is one: the client has gone on already.

        """
        for flight in self._flights:
            if flight.first == expected and not flight.fault:
                return True
            if not flight.is_void:
                flight.is_void = True
                self._forget(flight)
        return False

    def _forget(self, flight: _Flight) -> None:
        self._records -= flight.records
        self._size_bytes -= flight.size_bytes

    def _open_window(self, records: int, size_bytes: int) -> None:
        is_alone = not self._records and records == 1
        if self._records + records > self._window.records or (
            self._size_bytes + size_bytes > self._window.size_bytes and not is_alone
        ):
            raise RemoteProtocolError(
                "window-exceeded",
                f"{self._records + records} records of"
                f" {self._size_bytes + size_bytes} bytes in flight",
            )

    def _fault_of(
        self, record: bytes, number: int, parsed: list[PutRecord]
    ) -> Fault | None:
        """Add a record to those that are to be stored, or say why not."""
        try:
            header = parse_header(record)
        except RecordMalformedError as exc:
            return self._fault("record-malformed", number, f"{exc.detail}: {exc}")
        if header.replica_id != self._replica_id:
            raise RemoteProtocolError(
                "replica-mismatch",
                f"record of replica {header.replica_id.hex()}"
                f" on a connection of {self._replica_id.hex()}",
            )
        limit = self._limits.limit(record)
        if len(record) > limit:
            text = f"record of {len(record)} bytes exceeds the limit of {limit}"
            return self._fault("record-too-large", number, text)
        name = record_id(self._namespace, record)
        parsed.append(PutRecord(header, name, record))
        return None

    def _fault(self, code: str, number: int, text: str) -> Fault:
        return Fault(PutRefusal(code, number, number), text)

    def _number(self, record: bytes) -> int:
        """Return a record's replica_seq; of one that has none, the one that is due."""
        number = int.from_bytes(record[SEQ_AT])
        return number if 1 <= number <= UINT_MAX else self._next
