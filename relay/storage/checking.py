"""Holds a relay's log against itself: every id and every link of the chain. No I/O."""

from dataclasses import dataclass

from crdtmem.errors import LocalProtocolError, RecordMalformedError
from crdtmem.protocol.records import chain_next, parse_header, record_id

__all__ = ["ChainCheck", "NamespaceCheck"]


@dataclass(frozen=True, slots=True)
class NamespaceCheck:
    """What was found of one namespace.

    Attributes:
        namespace: Its name.
        records: How many records were looked at.
        dropped: How many of them have lost their payload, so that their id was taken
            as it stands.
        bad_seq: The first place where something is wrong; None if nothing is.
        reason: What is wrong there, or empty.

    """

    namespace: str
    records: int
    dropped: int
    bad_seq: int | None = None
    reason: str = ""


class ChainCheck:
    """Takes the records of one namespace in their order.

    Args:
        namespace: Its name.
        seq: Seq below which rows are gone.
        chain: The chain there.

    """

    def __init__(self, namespace: str, seq: int, chain: bytes) -> None:
        self._namespace = namespace
        self._seq = seq
        self._chain = chain
        self._records = 0
        self._dropped = 0
        self._reason = ""

    def add(
        self,
        seq: int,
        found_id: bytes,
        found_chain: bytes,
        header: bytes,
        payload: bytes | None,
    ) -> bool:
        """Look at the next record; False where it is bad, and the rest has no sense."""
        self._seq += 1
        self._records += 1
        self._dropped += payload is None
        self._chain = _link(self._chain, self._seq, found_id)
        if seq != self._seq:
            self._reason = "a record is missing"
        elif payload is not None and not self._is_sound(header + payload, found_id):
            self._reason = "the record is not the one that its id names"
        elif self._chain != found_chain:
            self._reason = "the chain is broken"
        return not self._reason

    def result(self, head: int, chain: bytes) -> NamespaceCheck:
        """Return what was found, where the log is to end like this."""
        seq = self._seq
        reason = self._reason
        if not reason and (seq, self._chain) != (head, chain):
            seq, reason = head, "the head is not the end of the log"
        return NamespaceCheck(
            self._namespace,
            self._records,
            self._dropped,
            seq if reason else None,
            reason,
        )

    def _is_sound(self, record: bytes, expected_id: bytes) -> bool:
        try:
            parse_header(record)
        except RecordMalformedError:
            return False
        return record_id(self._namespace, record) == expected_id


def _link(chain: bytes, seq: int, found_id: bytes) -> bytes:
    try:
        return chain_next(chain, seq, found_id)
    except LocalProtocolError:
        # An id that has lost its length, and so no chain fits it.
        return b""
