"""The verbs of the scanner."""

from collections.abc import Mapping
from dataclasses import dataclass

from crdtmem.errors import UpdateRejectedError
from crdtmem.limits import CLOCK_MAX, STATE_CLIENTS_MAX, UINT_MAX
from crdtmem.protocol.codec import write_str, write_uint
from crdtmem.updates.content import SLOT_ROOTS, Roots
from crdtmem.updates.cursor import Cursor
from crdtmem.updates.reader import STRING, StructReader
from crdtmem.updates.snapshot import SnapshotReader
from crdtmem.updates.write import WriteReader

__all__ = ["Scan", "read_state_vector", "scan", "scan_genesis"]


@dataclass(frozen=True, slots=True)
class Scan:
    """What an accepted update holds.

    Attributes:
        clients: First clock, and the clock after the last, of each client's structs.
        deletes: Client, first clock and length of each deleted range.
        text: The inserted text, in the order of the update and not of the document.
        is_known: Whether the state holds all structs already. Such an update is a
            repetition, to be skipped whole: deletes that it alone has aren't the
            writer's.

    """

    clients: Mapping[int, tuple[int, int]]
    deletes: tuple[tuple[int, int, int], ...]
    text: str
    is_known: bool


def scan(
    data: bytes,
    *,
    client_ids: frozenset[int] | None,
    state: Mapping[int, int],
    snapshot: bool,
    roots: Roots = SLOT_ROOTS,
) -> Scan:
    """Accept an update, or refuse it.

    An accepted one applies to a document at ``state`` with nothing left pending. Time
    and memory grow with the length of the update alone.

    Args:
        data: The update, or the squashed state of a document.
        client_ids: Who may have written it; None for anybody.
        state: The document's state vector: the next clock of each client. A snapshot
            stands alone, and the state is not asked.
        snapshot: Whether it is the whole state of a document, with any number of
            clients from clock 0 and with deleted structs, and not one write.
        roots: What the document may hold.

    Raises:
        UpdateRejectedError: ``update-too-large``, ``update-malformed``,
            ``update-content``, ``update-text``, ``update-root``, ``update-client``,
            ``update-clock``, ``update-delete`` or ``update-origin``.

    """
    reader: StructReader = (
        SnapshotReader(data, client_ids=client_ids, roots=roots)
        if snapshot
        else WriteReader(data, client_ids=client_ids, state=state, roots=roots)
    )
    deletes = reader.read()
    return Scan(
        clients=reader.clients,
        deletes=deletes,
        text="".join(reader.texts),
        is_known=reader.is_known,
    )


def scan_genesis(data: bytes, *, state: Mapping[int, int]) -> tuple[int, str]:
    """Accept the first text of a document, or refuse it.

    It is one string at the root ``content`` from clock 0, and nothing else. The caller
    derives the client id from the text and refuses another one.

    Args:
        data: The update.
        state: As for scan; a state that holds the client has seen this text.

    Returns:
        The client id, and the text.

    Raises:
        UpdateRejectedError: As for scan; ``update-client`` for any other shape.

    """
    found = scan(data, client_ids=None, state=state, snapshot=False)
    client = next(iter(found.clients), 0)
    # There is one way to write this shape, so whatever differs from it is another.
    shape = (1, 1, client, 0, STRING, 1)
    expected = b"".join(map(write_uint, shape)) + write_str("content")
    if data != expected + write_str(found.text) + write_uint(0):
        reason = "the genesis write is not one string at the root from clock 0"
        raise UpdateRejectedError(code="update-client", reason=reason, at_byte=0)
    return client, found.text


def read_state_vector(data: bytes) -> dict[int, int]:
    """Decode a state vector: the next clock of each client.

    Raises:
        UpdateRejectedError: ``update-malformed``, or ``update-clock`` for a number out
            of its bounds.

    """
    cursor = Cursor(data)
    count = cursor.uint()
    if count > STATE_CLIENTS_MAX:
        raise cursor.refusal("update-clock", f"{count} clients")
    clocks: dict[int, int] = {}
    for _ in range(count):
        client, clock = cursor.uint(), cursor.uint()
        if client > UINT_MAX or clock > CLOCK_MAX:
            raise cursor.refusal("update-clock", f"clock {clock} of client {client}")
        clocks[client] = clock
    if len(clocks) < count:
        raise cursor.refusal("update-malformed", "a client occurs twice")
    cursor.expect_end()
    return clocks
