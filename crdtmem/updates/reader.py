"""The grammar of an update, and the rules that hold wherever it came from."""

from abc import ABC, abstractmethod

from crdtmem.errors import UpdateRejectedError
from crdtmem.limits import CLOCK_MAX, UINT_MAX
from crdtmem.updates.content import Place, Roots, read_place, read_value
from crdtmem.updates.cursor import Cursor

__all__ = ["ANY", "DELETED", "KEYED", "STRING", "StructReader"]

# The byte in front of a struct: what it holds, and which fields follow.
CONTENT, KEYED, RIGHT_ORIGIN, ORIGIN = 0x1F, 0x20, 0x40, 0x80
DELETED, STRING, ANY = 1, 4, 8


class StructReader(Cursor, ABC):
    """One pass over an update; a subclass knows what may refer to what.

    Invariants, each of them a refusal:

    1. A struct holds a string in a text or one value under a known key of a map, or,
       in a snapshot only, is the remains of a deleted one.
    2. Its origins are structs of the same text or the same key that come before it.
    3. The clocks of a client have neither gaps nor overlaps.
    4. Nothing is deleted that nobody has written yet.
    """

    size_limit_bytes: int
    forms: frozenset[int]

    def __init__(
        self,
        data: bytes,
        *,
        client_ids: frozenset[int] | None,
        roots: Roots,
    ) -> None:
        super().__init__(data)
        self.client_ids = client_ids
        self.roots = roots
        if not roots.texts:
            # What hangs on a struct of the state does not tell that it is in a map.
            self.forms = frozenset(form for form in self.forms if form & KEYED)
        self.client = 0
        self.clients: dict[int, tuple[int, int]] = {}
        self.texts: list[str] = []
        self.is_known = False

    @abstractmethod
    def check_sections(self, count: int) -> None:
        """Refuse more sections than there may be."""

    @abstractmethod
    def begin(self, client: int, clock: int) -> None:
        """Refuse a section that may not begin there, or not again."""

    @abstractmethod
    def refer(self, clock: int, keyed: int, client: int, target: int) -> Place | None:
        """Check that a struct may hang on another; return its place where it shows."""

    @abstractmethod
    def hold(
        self, clock: int, end: int, place: Place | None, kind: type | None
    ) -> None:
        """Keep the place of a map item for those that refer to it."""

    @abstractmethod
    def settle(self) -> None:
        """Check what could not be checked before the last section was read."""

    @abstractmethod
    def next_clock(self, client: int) -> int:
        """Return the clock after the last that is written once the update applies."""

    def read(self) -> tuple[tuple[int, int, int], ...]:
        """Read the whole update and return the ranges that it deletes."""
        if len(self.data) > self.size_limit_bytes:
            reason = f"{len(self.data)} bytes exceed {self.size_limit_bytes}"
            raise self.refusal("update-too-large", reason)
        sections = self.uint()
        self.check_sections(sections)
        for _ in range(sections):
            self._read_section()
        self.settle()
        deletes = self._read_deletes()
        self.expect_end()
        return deletes

    def missing(self, client: int, clock: int) -> UpdateRejectedError:
        """Return the error for a reference to what does not come first."""
        reason = f"hangs on clock {clock} of client {client}, which does not come first"
        return self.refusal("update-origin", reason)

    def check_kind(self, place: Place | None, kind: type | None) -> None:
        """Check the type of a value, against any key's where the key doesn't show."""
        if kind is None:
            return
        if not self.roots.takes(place, kind):
            reason = f"no key of this place takes a value of type {kind.__name__}"
            raise self.refusal("update-content", reason)

    def _read_section(self) -> None:
        structs, client, start = self.uint(), self.uint(), self.uint()
        if client > UINT_MAX:
            raise self.refusal("update-clock", f"client id {client} exceeds 53 bits")
        if self.client_ids is not None and client not in self.client_ids:
            reason = f"client id {client} is not one of the writer's"
            raise self.refusal("update-client", reason)
        if not structs:
            raise self.refusal("update-malformed", f"client {client} has no structs")
        self.begin(client, start)
        self.client = client
        clock = start
        for _ in range(structs):
            clock = self._read_struct(clock)
        self.clients[client] = (start, clock)

    def _read_struct(self, clock: int) -> int:
        info = self.byte()
        content, keyed = info & CONTENT, info & KEYED
        if content | keyed not in self.forms:
            where = "under a key" if keyed else "in a text"
            raise self.refusal("update-content", f"content {content} {where}")
        if info & (ORIGIN | RIGHT_ORIGIN):
            place = self._read_origins(info, clock)
        else:
            place = read_place(self, self.roots, keyed=bool(keyed))
        kind = None
        if content == STRING:
            length = self._read_text()
        elif content == ANY:
            length, kind = 1, read_value(self, levels=self.roots.value_levels)
        else:
            length = self.uint()
        end = clock + length
        if not length:
            raise self.refusal("update-malformed", "struct of length 0")
        if end > CLOCK_MAX:
            raise self.refusal("update-clock", f"clock {end} exceeds {CLOCK_MAX}")
        if keyed:
            self.hold(clock, end, place, kind)
        return end

    def _read_origins(self, info: int, clock: int) -> Place | None:
        place, keyed = None, info & KEYED
        if info & ORIGIN:
            place = self.refer(clock, keyed, self.uint(), self.uint())
        if info & RIGHT_ORIGIN:
            right = self.refer(clock, keyed, self.uint(), self.uint())
            if place and right and place != right:
                raise self.refusal("update-content", "origins under two keys")
            place = place or right
        return place

    def _read_text(self) -> int:
        text = self.text()
        self.texts.append(text)
        return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2

    def _read_deletes(self) -> tuple[tuple[int, int, int], ...]:
        deletes = []
        for _ in range(self.uint()):
            client, ranges = self.uint(), self.uint()
            if not ranges:
                reason = f"client {client} has no deleted ranges"
                raise self.refusal("update-malformed", reason)
            end = self.next_clock(client)
            for _ in range(ranges):
                clock, length = self.uint(), self.uint()
                if not length:
                    raise self.refusal("update-malformed", "deleted range of length 0")
                if clock + length > end:
                    reason = f"deletes up to clock {clock + length}, written is {end}"
                    raise self.refusal("update-delete", reason)
                deletes.append((client, clock, length))
        return tuple(deletes)
