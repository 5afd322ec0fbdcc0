"""The lines of an export, read and checked before any of them is acted on.

A bad line is named and skipped, with what depends on it; the rest goes on. Nothing of a
source is trusted: it may come from anybody.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from crdtmem.arguments import (
    checked_content,
    checked_description,
    checked_rev,
    checked_size_limit,
)
from crdtmem.errors import ImportRefusedError, InvalidArgumentError, SetLimitError
from crdtmem.headroom import content_hash
from crdtmem.limits import OP_BYTES
from crdtmem.models import BadRecord, Scope
from crdtmem.scope import parse_label, parse_lane
from crdtmem.transfer.fields import BadRecordError, at_ms_of, field_of, scope_in
from crdtmem.transfer.item_records import ItemRecord, SetKey, item_in

__all__ = [
    "FORMAT",
    "VERSION",
    "PastText",
    "SlotRecord",
    "Source",
    "read_source",
]

FORMAT = "crdtmem-slots"
VERSION = 1

_OPERATION = re.compile(rf"[a-z][a-z-]{{0,{OP_BYTES - 1}}}")
_BOM = b"\xef\xbb\xbf"


class PastText(NamedTuple):
    """A kept text of a slot, with the write that displaced it."""

    line: int
    at_ms: int
    operation: str
    lane: str
    content: str
    hash: str


@dataclass(frozen=True, slots=True)
class SlotRecord:
    """A slot of a source.

    Attributes:
        line: Where it stands, from 1.
        label: As parsed.
        scope: As parsed.
        content: The text.
        hash: Of the text, 64 hex digits.
        meta: Settings by their names in the doc.
        is_deleted: Whether it was deleted there; its text is empty then.
        past: Its kept texts, oldest first.

    """

    line: int
    label: str
    scope: Scope
    content: str
    hash: str
    meta: Mapping[str, object]
    is_deleted: bool
    past: list[PastText] = field(default_factory=list)


@dataclass(slots=True)
class Source:
    """What was read.

    Attributes:
        digest: SHA-256 of all of it, in hex.
        slots: The good ones, in their order.
        items: The good items of memory sets, by their set, in their order.
        bad: What was skipped, by line.
        ignored: How many records are of a type that this version does not know.
        is_whole: Whether it has its last line.

    """

    digest: str
    slots: list[SlotRecord] = field(default_factory=list)
    items: dict[SetKey, list[ItemRecord]] = field(default_factory=dict)
    bad: list[BadRecord] = field(default_factory=list)
    ignored: int = 0
    is_whole: bool = False


def read_source(data: bytes) -> Source:
    r"""Read the lines of an export.

    Lines end in "\n" or "\r\n"; empty ones and a byte order mark pass.

    Raises:
        ImportRefusedError: If nothing in it is a record of an export, or it is of
            another format or a later version.

    """
    source = Source(hashlib.sha256(data).hexdigest())
    reader = _Reader(source)
    for number, line in enumerate(data.removeprefix(_BOM).split(b"\n"), 1):
        if line.strip():
            reader.take(number, line)
    reader.finish()
    return source


class _Reader:
    """Takes a source's lines one by one."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._slots: dict[tuple[Scope, str], SlotRecord] = {}
        self._past: list[tuple[tuple[Scope, str], PastText]] = []
        self._ids: dict[tuple[SetKey, str], int] = {}
        self._has_records = False
        self._takes: Mapping[str, Callable[[int, dict[str, Any]], None]] = {
            "header": self._take_header,
            "slot": self._take_slot,
            "history": self._take_history,
            "item": self._take_item,
            "end": self._take_end,
        }

    def take(self, number: int, line: bytes) -> None:
        """Take a line that is not empty."""
        try:
            record = _parsed(line)
            take = self._takes.get(field_of(record, "type", str))
            if take is None:
                self._source.ignored += 1
            else:
                self._has_records = True
                take(number, record)
        except BadRecordError as exc:
            self._reject(number, exc.code, exc.reason)
        except (InvalidArgumentError, SetLimitError) as exc:
            self._reject(number, exc.code, exc.message)

    def finish(self) -> None:
        """Hand the kept texts to their slots, wherever in the source both stand."""
        if not self._has_records:
            raise ImportRefusedError(
                "the source holds no record of an export: nothing was imported",
                hint="give a file of 'crdtmem export', or a folder of Markdown files",
            )
        for place, past in self._past:
            slot = self._slots.get(place)
            if slot is None:
                reason = f"no slot {place[1]!r} in {place[0]} scope to go with it"
                self._reject(past.line, "missing-slot", reason)
            else:
                slot.past.append(past)
        self._source.slots = list(self._slots.values())
        self._source.bad.sort(key=lambda bad: bad.line)

    def _reject(self, line: int, code: str, reason: str) -> None:
        self._source.bad.append(BadRecord(line=line, code=code, reason=reason))

    def _take_header(self, _: int, record: dict[str, Any]) -> None:
        found = record.get("format"), record.get("version")
        if found != (FORMAT, VERSION):
            name = f"{found[0]!a:.40} version {found[1]!a:.40}"
            raise ImportRefusedError(
                f"the source is {name}, not {FORMAT!r} version {VERSION}:"
                " nothing was imported",
                hint="upgrade crdtmem in this environment, or export anew",
            )

    def _take_slot(self, number: int, record: dict[str, Any]) -> None:
        scope, label = place = _place_of(record)
        content, digest = _text_of(record)
        checked_rev(field_of(record, "rev", int), "rev")
        meta: dict[str, object] = {
            "description": checked_description(field_of(record, "description", str)),
            "sizeLimit": checked_size_limit(field_of(record, "sizeLimit", int)),
            "pinned": field_of(record, "pinned", bool),
            "readOnly": field_of(record, "readOnly", bool),
            "appendOnly": field_of(record, "appendOnly", bool),
        }
        is_deleted = field_of(record, "deleted", bool) and not content
        if place in self._slots:
            reason = f"slot {label!r} of {scope} scope stands in line"
            first = self._slots[place].line
            raise BadRecordError("duplicate-slot", f"{reason} {first} already")
        self._slots[place] = SlotRecord(
            number, label, scope, content, digest, meta, is_deleted
        )

    def _take_history(self, number: int, record: dict[str, Any]) -> None:
        place = _place_of(record)
        content, digest = _text_of(record)
        checked_rev(field_of(record, "rev", int), "rev")
        past = PastText(
            line=number,
            at_ms=at_ms_of(record, "at"),
            operation=_operation(field_of(record, "operation", str)),
            lane=_lanes(field_of(record, "lane", str)),
            content=content,
            hash=digest,
        )
        self._past.append((place, past))

    def _take_item(self, number: int, record: dict[str, Any]) -> None:
        place, item = item_in(number, record)
        first = self._ids.setdefault((place, item.id), number) if item.id else number
        if first != number:
            reason = f"item {item.id!a:.80} stands in line {first} already"
            raise BadRecordError("duplicate-item", reason)
        self._source.items.setdefault(place, []).append(item)

    def _take_end(self, _: int, __: dict[str, Any]) -> None:
        self._source.is_whole = True


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line.decode())
    except (ValueError, RecursionError) as exc:
        # Its place in the line and not the line: that may be somebody's text.
        at = f" at character {exc.pos}" if isinstance(exc, json.JSONDecodeError) else ""
        raise BadRecordError("bad-json", f"the line is no JSON{at}") from exc
    if not isinstance(record, dict):
        raise BadRecordError("bad-type", "the line is JSON, but no object")
    return record


def _place_of(record: dict[str, Any]) -> tuple[Scope, str]:
    label = parse_label(field_of(record, "label", str))
    return scope_in(record), label


def _text_of(record: dict[str, Any]) -> tuple[str, str]:
    content = checked_content(field_of(record, "content", str))
    digest = content_hash(content)
    if field_of(record, "contentHash", str).lower() != digest:
        raise BadRecordError("hash-mismatch", f"content has the hash {digest:.16}…")
    return content, digest


def _operation(name: str) -> str:
    if not _OPERATION.fullmatch(name):
        raise BadRecordError("bad-type", f"operation is no name: {name!a:.40}")
    return name


def _lanes(lanes: str) -> str:
    # What came by sync names several.
    return ", ".join(parse_lane(lane) for lane in lanes.split(", "))
