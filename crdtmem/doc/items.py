"""A memory set's document: members of one map, each of them a version of an item.

With one member an item, a replica that updates and then deletes an item would erase
another's concurrent update whenever its client id is the higher one. So each version
has a name of its own, and a delete takes what it has seen and nothing else.

A member is flat JSON. Metadata is text in it, because Yjs has no integers: 1 comes back
as 1.0, 2^53 + 1 changes, and 2^63 panics (pycrdt 0.14.13). What does not have the shape
of a version is *foreign*: it stays in the document, and nobody sees it.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from crdtmem.doc.document import Document
from crdtmem.doc.guard import doc_errors
from crdtmem.doc.text_form import units_of
from crdtmem.errors import CrdtmemError, DocError
from crdtmem.filters import is_metadata
from crdtmem.limits import (
    ITEM_ID_BYTES,
    ITEM_TEXT_UNITS,
    KEY_SHORT_CHARS,
    LANE_BYTES,
    METADATA_BYTES,
    TIME_MAX_MS,
    UINT_MAX,
)
from crdtmem.partition import checked_set_name, decode_key, doc_name
from crdtmem.updates import SET_ROOTS, Scan, read_state_vector

if TYPE_CHECKING:
    from pycrdt import MapEvent

__all__ = [
    "HEADER",
    "MADE_ID",
    "ItemsDoc",
    "Version",
    "canonical",
    "header_value",
    "is_known_id",
    "item_id_of",
    "member_hash",
    "names_in",
    "names_of",
    "read_version",
    "version_value",
]

HEADER = "set"
"""The member that says which set this is. Made ids are longer, and others have dots."""

MADE_ID = re.compile(r"[0-9a-hjkmnp-tv-z]{20}")
HASHED = re.compile(r"h\.[0-9a-f]{64}")
SUFFIX = re.compile(r"[0-9a-hjkmnp-tv-z]{10}")

_WANTED = frozenset("tcul")
_KNOWN = _WANTED | frozenset("ms")


class Version(NamedTuple):
    """A member that is a version of an item; ``meta`` is canonical JSON, or empty.

    ``sources`` is the number of items that a summary stands for.
    """

    member: str
    id: str
    text: str
    meta: str
    created_ms: int
    updated_ms: int
    lane: str
    sources: int | None


def version_value(version: Version) -> dict[str, object]:
    """Return the value of a version's member."""
    value: dict[str, object] = {"t": version.text}
    if version.meta:
        value["m"] = version.meta
    value["c"] = version.created_ms
    value["u"] = version.updated_ms
    value["l"] = version.lane
    if version.sources is not None:
        value["s"] = version.sources
    return value


def read_version(member: str, value: object) -> Version | None:
    """Return the version that a member is; None if it is foreign, or the header.

    Args:
        member: Its name.
        value: Its value, as ``ItemsDoc`` gives it.

    """
    item_id = item_id_of(member)
    if not item_id or not isinstance(value, dict) or not _has_shape(value):
        return None
    return Version(
        member,
        item_id,
        value["t"],
        value.get("m", ""),
        value["c"],
        value["u"],
        value["l"],
        value.get("s"),
    )


def item_id_of(member: str) -> str:
    """Return the id of the item of which a member may be a version, by its name.

    Empty for what is none; no item has such an id.
    """
    item_id, dot, suffix = member.rpartition(".")
    if not dot:
        return member if MADE_ID.fullmatch(member) else ""
    return item_id if SUFFIX.fullmatch(suffix) and is_known_id(item_id) else ""


def header_value(key_long: str, name: str) -> dict[str, object]:
    """Return the value of the header of a set."""
    return {"v": 1, "key": key_long, "name": name}


def names_in(value: object, doc: str) -> tuple[str, str] | None:
    """Return key and name of the set from its header; None if it is of another doc.

    Args:
        value: Of the member HEADER.
        doc: The name of the document.

    """
    if not isinstance(value, dict) or set(value) != {"v", "key", "name"}:
        return None
    key, name = value["key"], value["name"]
    if not isinstance(key, str) or not isinstance(name, str):
        return None
    if not _is_count(value["v"], 1) or not _are_names(key, name):
        return None
    return (key, name) if doc_name(key, name) == doc else None


def names_of(doc: str) -> tuple[str, str] | None:
    """Return key and name of a set as far as the name of its document tells them.

    Each is empty where a hash stands for it. None for what is no such name.
    """
    key, slash, name = doc.partition("/")
    if not slash or max(len(key), len(name)) > KEY_SHORT_CHARS:
        return None
    try:
        long_key = "" if HASHED.fullmatch(key) else key
        if long_key:
            decode_key(long_key)
        plain = "" if HASHED.fullmatch(name) else _unescaped(name)
    except (CrdtmemError, UnicodeDecodeError):
        return None
    return long_key, plain


def _unescaped(name: str) -> str:
    """Return the name of a set from its form in the name of a document."""
    # The escapes of a name are those of bytes, whose form has another prefix.
    found = decode_key(f"b.{name[2:]}" if name.startswith("n.") else "")
    return checked_set_name(bytes(found).decode())  # type: ignore[arg-type] # "b." is of bytes


def is_known_id(item_id: str) -> bool:
    """Tell whether an item may have this id."""
    try:
        return 0 < len(item_id.encode()) <= ITEM_ID_BYTES
    except UnicodeEncodeError:
        return False


def canonical(value: object) -> str:
    """Return a member's value as canonical JSON."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def member_hash(member: str, text: str) -> int:
    """Return a member's part of the hash of its set, a signed integer of 64 bits.

    Args:
        member: Its name.
        text: Its value as ``canonical`` returns it.

    """
    digest = hashlib.sha256(f"{member}\0{text}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


class ItemsDoc(Document):
    """One memory set's document in memory, at one place of its log."""

    roots = SET_ROOTS

    def __init__(self, client_id: int) -> None:
        from pycrdt import Map  # noqa: PLC0415 - see Document

        super().__init__(client_id)
        self._items: Map[Any] = self._doc.get("items", type=Map)

    @classmethod
    def load(cls, client_id: int, state: bytes) -> Self:
        """Make a document from a squashed state; empty bytes are an empty document.

        Raises:
            UpdateRejectedError: If the scanner refuses the state.
            DocError: If pycrdt does.

        """
        if state:
            cls._scanned_state(state)
        return cls.restore(client_id, state)

    @classmethod
    def restore(cls, client_id: int, state: bytes) -> Self:
        """Make a document from a state that was squashed here, and is intact.

        It is not scanned: of 50,000 items that takes ten times as long as loading them.

        Raises:
            UpdateRejectedError: If its state vector has a number out of bounds.
            DocError: If pycrdt refuses it.

        """
        doc = cls(client_id)
        if state:
            with doc_errors("load a state"):
                doc._doc.apply_update(state)
                doc.clocks = read_state_vector(doc._doc.get_state())
        return doc

    @property
    def made(self) -> int:
        """How many members were ever set, by anybody."""
        return sum(self.clocks.values())

    @property
    def weight(self) -> int:
        """How much memory it takes: its members, deleted ones included."""
        return self.made

    def edit(self, puts: Mapping[str, object], removes: Collection[str] = ()) -> bytes:
        """Set and remove members in one transaction and return its update.

        Args:
            puts: Names and values.
            removes: Names; one that isn't there is passed over.

        Raises:
            DocError: If nothing changes, or if pycrdt fails.

        """
        return self._edited(lambda: self._change(puts, removes))

    def apply(self, update: bytes, client_id: int) -> frozenset[str]:
        """Apply another replica's write and return which members it changed here.

        Raises:
            UpdateRejectedError: If the scanner refuses it; nothing was applied.
            DocError: If pycrdt fails.

        """
        found = self._scanned(update, client_id)
        return frozenset() if found.is_known else self._observed(update, found)

    def apply_state(self, state: bytes) -> frozenset[str]:
        """Apply the whole state of another copy and return which members it changed.

        Raises:
            UpdateRejectedError: If the scanner refuses it; nothing was applied.
            DocError: If pycrdt fails.

        """
        return self._observed(state, self._scanned_state(state))

    def names(self) -> list[str]:
        """Return the names of all members."""
        with doc_errors("read the names"):
            return list(self._items.keys())

    def members(self, names: Iterable[str] | None = None) -> dict[str, object]:
        """Return members with their values, those that are there; None stands for all.

        Whole numbers are integers.
        """
        if names is None:
            return {name: _plain(value) for name, value in self._all().items()}
        found: dict[str, object] = {}
        with doc_errors("read the members"), self._doc.transaction():
            for name in names:
                with suppress(KeyError):
                    found[name] = _plain(self._items[name])
        return found

    def is_same(self, other: Self) -> bool:
        """Tell whether two documents have the same clocks and the same members."""
        return self.clocks == other.clocks and self._all() == other._all()

    def check(self, changed: Collection[str] | None = None) -> None:
        """Hold the document against what is believed of it, and against a reload.

        Args:
            changed: Members whose values are compared; None for all. The names of all
                are compared in any case.

        Raises:
            DocError: If anything differs.
            UpdateRejectedError: If the state vector has a number out of bounds.

        """
        with doc_errors("read the state vector"):
            is_right = read_state_vector(self._doc.get_state()) == self.clocks
        if not is_right:
            raise DocError("a document differs from what its records say")
        reason = "a squashed document differs from its records"
        again = self.restore(self.client_id, self.state())
        if changed is None:
            is_right = self.is_same(again)
        else:
            is_right = (
                again.clocks == self.clocks
                and set(again.names()) == set(self.names())
                and again.members(changed) == self.members(changed)
            )
        if not is_right:
            raise DocError(reason)

    def _all(self) -> dict[str, object]:
        """Return all members, numbers as they come: five times as fast as one by one.

        As JSON, which is all that a member can be.
        """
        with doc_errors("read all members"):
            found: dict[str, object] = json.loads(str(self._items))
        return found

    def _change(self, puts: Mapping[str, object], removes: Collection[str]) -> None:
        for name, value in puts.items():
            self._items[name] = value
        for name in removes:
            if name in self._items:
                del self._items[name]

    def _observed(self, update: bytes, found: Scan) -> frozenset[str]:
        changed: set[str] = set()
        with doc_errors("apply a record"):
            subscription = self._items.observe(
                lambda event: _keep_names(event, changed)
            )
            try:
                self._doc.apply_update(update)
            finally:
                self._items.unobserve(subscription)
        self._advance(found)
        return frozenset(changed)


def _keep_names(event: "MapEvent", changed: set[str]) -> None:
    keys: Mapping[str, object] = event.keys  # type: ignore[attr-defined] # pycrdt's stub leaves it out
    changed.update(keys)


def _plain(value: Any) -> Any:
    """Return a value with whole numbers as integers: pycrdt returns floats."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        whole = value.is_integer() and abs(value) <= UINT_MAX
        return int(value) if whole else value
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return value


def _has_shape(value: Mapping[str, Any]) -> bool:
    if not _WANTED <= value.keys() <= _KNOWN:
        return False
    text, lane = value["t"], value["l"]
    if not isinstance(text, str) or not isinstance(lane, str):
        return False
    return (
        units_of(text) <= ITEM_TEXT_UNITS
        and len(lane.encode()) <= LANE_BYTES
        and _is_count(value["c"], TIME_MAX_MS)
        and _is_count(value["u"], TIME_MAX_MS)
        and ("s" not in value or _is_count(value["s"], UINT_MAX))
        and ("m" not in value or _is_right_metadata(value["m"]))
    )


def _are_names(key: str, name: str) -> bool:
    try:
        decode_key(key)
        checked_set_name(name)
    except CrdtmemError:
        return False
    return True


def _is_count(value: object, most: int) -> bool:
    # By exact type: a bool is an int, too.
    return type(value) is int and 0 <= value <= most


def _is_right_metadata(meta: object) -> bool:
    return (
        isinstance(meta, str)
        and meta != ""
        and len(meta.encode()) <= METADATA_BYTES
        and is_metadata(meta)
    )
