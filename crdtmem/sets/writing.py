"""Writes to one set, in the order in which their checks are promised.

After the arguments: the lock, the request id, whether the items are there, the
caller's guard, and the limits. Each refusal leaves set, rev and history as they were.
"""

import json
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from crdtmem.arguments import Request
from crdtmem.doc.text_form import bytes_of, units_of
from crdtmem.errors import (
    InvalidArgumentError,
    ItemConflictError,
    ItemNotFoundError,
    RequestIdReusedError,
    SetLimitError,
    SlotQuarantinedError,
)
from crdtmem.limits import (
    SET_ITEMS_MAX,
    SET_SIZE_UNITS,
    SET_STATE_BYTES,
    SET_VERSION_BYTES,
    SETS_MAX,
)
from crdtmem.model import UNSET, Model
from crdtmem.sets.arguments import NewItem, require_item_size
from crdtmem.sets.place import BoundSet
from crdtmem.sets.reading import headroom_fields, item_view
from crdtmem.sets.values import (
    AddResult,
    DropResult,
    ItemDeleteResult,
    SkippedSummary,
    UpdateResult,
)
from crdtmem.store.requests import StoredRequest, find_request, keep_request
from crdtmem.store.set_write import NewVersion, SetChange, write_set
from crdtmem.store.sets import (
    ItemRow,
    SetRow,
    VersionRow,
    count_sets,
    find_items,
    find_set,
    versions_of,
)
from crdtmem.store.write import Transaction

__all__ = [
    "SetWrite",
    "add_items",
    "delete_items",
    "drop_set",
    "new_ids",
    "replayed",
    "set_write",
    "update_item",
]

_ResultT = TypeVar("_ResultT", bound=Model)

_ID_CHARS = "0123456789abcdefghjkmnpqrstvwxyz"
_ID_LENGTH_CHARS = 20
_RANDOM_BITS = 52


@contextmanager
def set_write(place: BoundSet, request: Request | None) -> Iterator["SetWrite"]:
    """Give one set's write in a transaction; what it commits is durable at the end.

    Raises:
        RequestIdReusedError: If the request's id names another call.
        SlotQuarantinedError: If a record of the set is damaged.
        StoreError: If the lock was not had, or the store cannot be written.

    """
    with place.session.store.writing() as transaction:
        earlier = replayed(transaction.connection, request)
        row = find_set(transaction.connection, place.stored)
        if earlier is None and row is not None and row.quarantined is not None:
            raise SlotQuarantinedError(
                label=place.name, reason=row.quarantined, kind="memory set"
            )
        yield SetWrite(place, transaction, request, earlier, row)


def replayed(connection: Any, request: Request | None) -> dict[str, Any] | None:
    """Return the first result of a call, if it was made before.

    Raises:
        RequestIdReusedError: If the request's id names another call.

    """
    stored = find_request(connection, request.request_id) if request else None
    if request is None or stored is None:
        return None
    if stored.fingerprint != request.fingerprint:
        raise RequestIdReusedError(request_id=request.request_id, verb=stored.verb)
    fields = json.loads(stored.result)
    if "skipped" in fields:
        fields["skipped"] = [SkippedSummary(**one) for one in fields["skipped"]]
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in fields.items()
    } | {"replayed": True}


@dataclass(slots=True)
class SetWrite:
    """The write of one set.

    Attributes:
        place: Which set.
        transaction: The store's.
        request: The call's name, if it has one.
        replayed: The first result of a call that was made before.
        row: The set before the write; None where there never was one.

    """

    place: BoundSet
    transaction: Transaction
    request: Request | None
    replayed: dict[str, Any] | None
    row: SetRow | None

    def items(self, ids: Collection[str]) -> dict[str, ItemRow]:
        """Return the items of some ids, those that are there."""
        if self.row is None:
            return {}
        return find_items(self.transaction.connection, self.row.doc, ids)

    def versions(self, ids: Collection[str]) -> dict[str, list[VersionRow]]:
        """Return the live versions of some items."""
        if self.row is None or not ids:
            return {}
        return versions_of(self.transaction.connection, self.row.doc, ids)

    def require_room(
        self, puts: Sequence[NewVersion], gone: Collection[str] = ()
    ) -> None:
        """Demand that new versions fit, less those that go.

        Args:
            puts: What is to be written.
            gone: Items that are there and go, or are replaced.

        Raises:
            SetLimitError: ``set-full`` or ``too-many-sets``.

        """
        self._require_place()
        old = [one for versions in self.versions(gone).values() for one in versions]
        row = self.row
        items = len(puts) - len(gone)
        size = sum(map(_units_in, puts)) - sum(map(_units_in, old))
        state = sum(map(_bytes_in, puts)) - sum(map(_bytes_in, old))
        state += SET_VERSION_BYTES * len(puts)
        had = (row.item_count, row.size, row.state_bytes) if row else (0, 0, 0)
        grows = items > 0 or (items == 0 and size >= 0)
        _require("items", had[0] + items, SET_ITEMS_MAX, "items", refuses=grows)
        _require("size", had[1] + size, SET_SIZE_UNITS, "units", refuses=size >= 0)
        _require("state", had[2] + state, SET_STATE_BYTES, "bytes", refuses=state >= 0)

    def write(self, change: SetChange) -> SetRow:
        """Hand the change to the store."""
        return write_set(self.transaction, self.row, self.place.stored, change)

    def finish(self, result: _ResultT) -> _ResultT:
        """Keep the result for a repetition of the call, and name the call in it."""
        request = self.request
        if request is None:
            return result
        named = result.replaced(request_id=request.request_id)
        values = {name: getattr(named, name) for name in type(named).names}
        stored = json.dumps(
            {name: value for name, value in values.items() if value is not UNSET},
            default=lambda model: model.to_dict(),
        )
        keep_request(
            self.transaction.connection,
            request.request_id,
            StoredRequest(request.fingerprint, request.verb, stored),
            self.transaction.now_ms,
        )
        return named

    @property
    def is_durable(self) -> bool:
        """Whether what is committed is on disk, past the caches."""
        return self.place.session.store.durability == "full"

    @property
    def lane(self) -> str:
        """Who writes."""
        return self.place.session.lane

    def _require_place(self) -> None:
        if self.row is not None and self.row.dropped_ms is None:
            return
        namespace = self.place.binding.namespace
        count = count_sets(self.transaction.connection, namespace) + 1
        if count > SETS_MAX:
            raise SetLimitError(
                code="too-many-sets",
                what=f"the number of sets in namespace {namespace!r}",
                size=count,
                limit=SETS_MAX,
                unit="sets",
            )


def add_items(
    place: BoundSet,
    items: Sequence[NewItem],
    given: Sequence[str] | None,
    request: Request | None,
) -> AddResult:
    """Add items; see ``MemorySet.add``."""
    with set_write(place, request) as write:
        if write.replayed is not None:
            return AddResult(**write.replayed)
        now_ms = write.transaction.now_ms
        ids = list(given) if given is not None else new_ids(len(items), now_ms)
        if given is not None:
            _require_absent(write, ids)
        row = write.row
        if items:
            puts = [
                NewVersion(i, one.text, one.meta, now_ms, is_made=given is None)
                for i, one in zip(ids, items, strict=True)
            ]
            for one in items:
                require_item_size(one)
            write.require_room(puts)
            row = write.write(
                SetChange(
                    operation="add",
                    lane=write.lane,
                    puts=puts,
                    details={"added": len(puts)},
                )
            )
        return write.finish(
            AddResult(**headroom_fields(row), ids=tuple(ids), durable=write.is_durable)
        )


def update_item(
    place: BoundSet,
    item: str,
    text: str | None,
    meta: str | None,
    *,
    create: bool,
    rev: int | None,
    request: Request | None,
) -> tuple[UpdateResult, str]:
    """Update an item; see ``MemorySet.update``. Return the text after it, too."""
    with set_write(place, request) as write:
        if write.replayed is not None:
            return UpdateResult(**write.replayed), ""
        old = write.items((item,)).get(item)
        if old is None and not create:
            raise ItemNotFoundError(set_name=place.name, id=item)
        if old is None and text is None:
            message = f"text required: item {item!r} is not there and would be added"
            raise InvalidArgumentError("text", message)
        _require_rev(place, item, old, rev)
        wanted = NewItem(
            old.text if old and text is None else text or "",
            old.meta if old and meta is None else meta or "",
        )
        is_same = (
            old is not None and not old.conflicts and wanted == (old.text, old.meta)
        )
        row = write.row if is_same else _put(write, item, old, wanted)
        result = UpdateResult(
            **headroom_fields(row),
            id=item,
            changed=not is_same,
            created=old is None,
            durable=write.is_durable,
        )
        return write.finish(result), wanted.text


def delete_items(
    place: BoundSet, ids: Sequence[str] | None, request: Request | None
) -> ItemDeleteResult:
    """Delete items, or all; see ``MemorySet.delete``."""
    with set_write(place, request) as write:
        if write.replayed is not None:
            return ItemDeleteResult(**write.replayed)
        row = write.row
        missing: tuple[str, ...] = ()
        if ids is None:
            count = row.item_count if row else 0
            change = SetChange(
                operation="clear",
                lane=write.lane,
                clears=True,
                details={"deleted": count},
            )
        else:
            found = write.items(ids)
            count = len(found)
            missing = tuple(i for i in ids if i not in found)
            change = SetChange(
                operation="delete",
                lane=write.lane,
                removes=tuple(found),
                details={"deleted": count},
            )
        if count:
            row = write.write(change)
        return write.finish(
            ItemDeleteResult(
                **headroom_fields(row),
                deleted=count,
                missing=missing,
                durable=write.is_durable,
            )
        )


def drop_set(place: BoundSet, request: Request | None) -> DropResult:
    """Delete a set; see ``MemorySet.drop``."""
    with set_write(place, request) as write:
        if write.replayed is not None:
            return DropResult(**write.replayed)
        row = write.row
        exists = row is not None and row.dropped_ms is None
        count = row.item_count if row else 0
        if exists:
            row = write.write(
                SetChange(
                    operation="drop",
                    lane=write.lane,
                    drops=True,
                    details={"deleted": count},
                )
            )
        return write.finish(
            DropResult(
                **headroom_fields(row),
                existed=exists,
                deleted=count,
                durable=write.is_durable,
            )
        )


def new_ids(count: int, now_ms: int) -> list[str]:
    """Return ids for new items, increasing, from the time and from chance."""
    drawn: set[int] = set()
    while len(drawn) < count:
        drawn.add(int.from_bytes(os.urandom(7)) >> 4)
    return [_written(now_ms << _RANDOM_BITS | chance) for chance in sorted(drawn)]


def _put(write: SetWrite, item: str, old: ItemRow | None, wanted: NewItem) -> SetRow:
    now_ms = write.transaction.now_ms
    put = NewVersion(
        id=item,
        text=wanted.text,
        meta=wanted.meta,
        created_ms=old.created_ms if old else now_ms,
        sources=old.sources if old else None,
    )
    require_item_size(wanted)
    write.require_room([put], (item,) if old else ())
    return write.write(
        SetChange(
            operation="update" if old else "add",
            lane=write.lane,
            puts=[put],
            details={"updated" if old else "added": 1},
        )
    )


def _require_absent(write: SetWrite, ids: Sequence[str]) -> None:
    taken = next(iter(write.items(ids)), None)
    doubled = _first_doubled(ids)
    if taken is None and doubled is None:
        return
    name = write.place.name
    raise ItemConflictError(
        f"item {taken!r} is in memory set {name!r} already"
        if taken is not None
        else f"item {doubled!r} is given twice",
        code="item-exists",
        hint="update() changes an item that is there",
        details={"set": name, "id": doubled if taken is None else taken},
    )


def _first_doubled(ids: Sequence[str]) -> str | None:
    seen: set[str] = set()
    for one in ids:
        if one in seen:
            return one
        seen.add(one)
    return None


def _require_rev(
    place: BoundSet, item: str, old: ItemRow | None, rev: int | None
) -> None:
    current = old.rev if old else 0
    if rev is None or rev == current:
        return
    raise ItemConflictError(
        f"item {item!r} of memory set {place.name!r} has changed since you read it:"
        f" it is at rev {current}, not {rev}",
        hint="get() it and repeat the change on what it is now",
        details={
            "set": place.name,
            "id": item,
            "expectedRev": rev,
            "currentRev": current,
            "current": item_view(old, place.name).to_dict() if old else None,
        },
    )


def _require(reason: str, size: int, limit: int, unit: str, *, refuses: bool) -> None:
    if size > limit and refuses:
        raise SetLimitError(
            code="set-full",
            what=f"the {reason} of the memory set"
            if reason != "items"
            else "the number of items of the memory set",
            size=size,
            limit=limit,
            unit=unit,
            details={"reason": reason},
        )


def _units_in(version: NewVersion | VersionRow) -> int:
    return units_of(version.text) + units_of(version.meta)


def _bytes_in(version: NewVersion | VersionRow) -> int:
    return bytes_of(version.text) + bytes_of(version.meta)


def _written(number: int) -> str:
    shifts = range(5 * (_ID_LENGTH_CHARS - 1), -1, -5)
    return "".join(_ID_CHARS[(number >> shift) & 31] for shift in shifts)
