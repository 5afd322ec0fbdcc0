"""The scanner for what editors send: any Yjs client, under ids of its own choice.

An editor's update may hold text of several clients, and what it knows already. It may
hold nothing but text at the root ``content``, may hang on nothing that is not there,
and may write nothing under the ids of the gateway: all below ``EDITOR_OWN_IDS_MAX``,
and the one that has set the root ``crdtmem`` (the anchor). Another ``crdtmem`` entry
means that the editor holds another document, and everything in it would be there twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from crdtmem.errors import UpdateRejectedError
from crdtmem.limits import CLOCK_MAX, EDITOR_OWN_IDS_MAX, STATE_CLIENTS_MAX, UINT_MAX
from crdtmem.updates.content import read_value
from crdtmem.updates.cursor import Cursor

__all__ = ["EditorScan", "scan_editor", "scan_other"]

CONTENT, KEYED, RIGHT_ORIGIN, ORIGIN = 0x1F, 0x20, 0x40, 0x80
GC, DELETED, STRING, ANY, SKIP = 0, 1, 4, 8, 10


@dataclass(frozen=True, slots=True)
class EditorScan:
    """What an accepted update leaves.

    Attributes:
        clients: The next clock of each client that it has structs of.
        halves: Client and clock of each second half of a character in it.

    """

    clients: Mapping[int, int]
    halves: frozenset[tuple[int, int]]


def scan_editor(
    data: bytes,
    *,
    state: Mapping[int, int],
    reserved: frozenset[int],
    halves: frozenset[tuple[int, int]],
    limit_bytes: int,
) -> EditorScan:
    """Accept an editor's update, or refuse it.

    Args:
        data: The update.
        state: The editor doc's state vector.
        reserved: Ids that no editor may use, beside the small ones.
        halves: As of EditorScan, in the editor doc.
        limit_bytes: Largest update.

    Raises:
        UpdateRejectedError: ``update-malformed``, ``update-text``,
            ``update-too-large``, ``update-content`` for a value that no doc holds,
            ``unsupported-content``, ``update-client``, ``update-gap`` for what hangs on
            something that is not there, ``other-incarnation``, or ``update-half`` for
            what stands in the middle of a character, or deletes a half of one.

    """
    found = _EditorReader(data, state, reserved)
    found.halves |= halves
    return found.read(limit_bytes)


def scan_other(data: bytes, *, limit_bytes: int) -> EditorScan:
    """Accept a whole document, of another incarnation or our own, to read its text.

    Raises:
        UpdateRejectedError: As for scan_editor.

    """
    return _EditorReader(data, {}, None).read(limit_bytes)


class _EditorReader(Cursor):
    """One pass over an update; without reserved ids it is of another document."""

    def __init__(
        self, data: bytes, state: Mapping[int, int], reserved: frozenset[int] | None
    ) -> None:
        super().__init__(data)
        self.state = state
        self.reserved = frozenset() if reserved is None else reserved
        self.is_other = reserved is None
        self.client = 0
        self.have = 0
        self.clients: dict[int, int] = {}
        # The highest clock of each client that something hangs on: enough to know.
        self.needed: dict[int, int] = {}
        # Where something is put between two clocks, before the second one.
        self.cuts: set[tuple[int, int]] = set()
        self.halves: set[tuple[int, int]] = set()

    def read(self, limit_bytes: int) -> EditorScan:
        if len(self.data) > limit_bytes:
            reason = f"{len(self.data)} bytes exceed {limit_bytes}"
            raise self.refusal("update-too-large", reason)
        sections = self.uint()
        if sections > STATE_CLIENTS_MAX:
            raise self.refusal("update-malformed", f"{sections} clients")
        for _ in range(sections):
            self._read_section()
        for client, clock in self.needed.items():
            if clock >= self._end(client):
                raise self._gap(f"hangs on clock {clock} of client {client}")
        self._read_deletes()
        self.expect_end()
        # Yjs and yrs leave different texts behind where a character is cut in two.
        if cut := self.cuts & self.halves:
            raise self.refusal("update-half", f"cuts the character at {min(cut)}")
        return EditorScan(self.clients, frozenset(self.halves))

    def _read_section(self) -> None:
        structs, client, clock = self.uint(), self.uint(), self.uint()
        if client > UINT_MAX:
            raise self.refusal("update-client", f"client id {client} exceeds 53 bits")
        if not structs or client in self.clients:
            reason = f"client {client} has no structs, or occurs twice"
            raise self.refusal("update-malformed", reason)
        self.client = client
        self.have = self.state.get(client, 0)
        if clock > self.have:
            raise self._gap(f"begins at clock {clock} of client {client}")
        self.cuts |= {(client, clock), (client, self.have)}
        for _ in range(structs):
            clock = self._read_struct(clock)
        is_own = client < EDITOR_OWN_IDS_MAX or client in self.reserved
        if clock > self.have and is_own and not self.is_other:
            raise self.refusal("update-client", f"client id {client} is no editor's")
        self.clients[client] = clock

    def _read_struct(self, clock: int) -> int:
        info = self.byte()
        content = info & CONTENT
        is_value = False
        if content in (GC, SKIP):
            if info != content:
                raise self.refusal("update-malformed", "flags on what has none")
        elif info & (ORIGIN | RIGHT_ORIGIN):
            self._read_origins(info, clock)
        else:
            is_value = self._read_parent(info)
        end = clock + self._read_length(content, clock, is_value=is_value)
        if end > CLOCK_MAX:
            raise self.refusal("update-malformed", f"clock {end} exceeds {CLOCK_MAX}")
        if end > self.have:
            self._check_fresh(content, info, is_value=is_value)
        return end

    def _read_origins(self, info: int, clock: int) -> None:
        for flag in (ORIGIN, RIGHT_ORIGIN):
            if not info & flag:
                continue
            client, target = self.uint(), self.uint()
            if client in self.reserved:
                raise self._unsupported("hangs on the document's own entry")
            if client == self.client and target >= clock:
                raise self._gap(f"clock {clock} hangs on clock {target} after it")
            self.needed[client] = max(self.needed.get(client, 0), target)
            self.cuts.add((client, target + (flag == ORIGIN)))

    def _read_parent(self, info: int) -> bool:
        """Read where a struct stands; return whether that is the root crdtmem."""
        if self.uint() != 1:
            raise self._unsupported("stands in a type of its own")
        root = self.text()
        if info & KEYED:
            self.text()
        if root == "crdtmem" and info & KEYED:
            return True
        if root != "content" or info & KEYED:
            raise self._unsupported(f"another root ({len(root)} characters)")
        return False

    def _read_length(self, content: int, clock: int, *, is_value: bool) -> int:
        if content == STRING:
            length = self._read_string(clock)
        elif content in (GC, DELETED, SKIP):
            length = self.uint()
        elif content == ANY and is_value:
            read_value(self)
            length = 1
        else:
            raise self._unsupported(f"content of kind {content}")
        if not length:
            raise self.refusal("update-malformed", "struct of length 0")
        return length

    def _read_string(self, clock: int) -> int:
        text = self.text()
        if text.isascii():
            return len(text)
        start = clock
        for char in text:
            clock += 1
            if char > "\uffff":
                self.halves.add((self.client, clock))
                clock += 1
        return clock - start

    def _check_fresh(self, content: int, info: int, *, is_value: bool) -> None:
        """Refuse a struct that is not in the state, for what only such ones may be."""
        if content == SKIP:
            raise self._gap(f"leaves out clocks of client {self.client}")
        if is_value:
            if not self.is_other:
                reason = "its document is another one than ours"
                raise self.refusal("other-incarnation", reason)
        elif info & KEYED:
            raise self._unsupported("stands under a key")

    def _read_deletes(self) -> None:
        for _ in range(self.uint()):
            client, ranges = self.uint(), self.uint()
            if client in self.reserved:
                raise self._unsupported("deletes the document's own entry")
            end = self._end(client)
            for _ in range(ranges):
                clock, length = self.uint(), self.uint()
                if not length:
                    raise self.refusal("update-malformed", "deleted range of length 0")
                if clock + length > end:
                    raise self._gap(f"deletes clock {clock + length} of {client}")
                self.cuts |= {(client, clock), (client, clock + length)}

    def _end(self, client: int) -> int:
        return max(self.state.get(client, 0), self.clients.get(client, 0))

    def _gap(self, reason: str) -> UpdateRejectedError:
        return self.refusal("update-gap", f"{reason}, which is not there")

    def _unsupported(self, reason: str) -> UpdateRejectedError:
        return self.refusal("unsupported-content", reason)
