"""Import of memory sets: a union with what is here, by the ids of items.

Names of versions follow from what they say, so stores that import one source and meet
later hold each item once.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from crdtmem.errors import SetError, SlotError, SlotQuarantinedError
from crdtmem.models import UNSET, ImportedSet, Unset
from crdtmem.partition import decode_key
from crdtmem.scope import namespace_of
from crdtmem.session import Session
from crdtmem.sets.place import BoundSet
from crdtmem.sets.values import Binding
from crdtmem.sets.writing import SetWrite, set_write
from crdtmem.store.connection import Connection
from crdtmem.store.requests import StoredRequest, find_request, keep_request
from crdtmem.store.set_write import NewVersion, SetChange
from crdtmem.store.sets import ItemRow, SetRow, find_items, find_set, history_of
from crdtmem.transfer.item_records import ItemRecord, SetKey, derived_ids, suffix_of

__all__ = ["import_sets"]


def import_sets(
    session: Session,
    items: Mapping[SetKey, Sequence[ItemRecord]],
    *,
    digest: str,
    replaces: bool,
    revives: bool,
    dry_run: bool,
) -> tuple[ImportedSet, ...]:
    """Take in items, set by set, each set in one transaction.

    An item that is here with other content stays as it is, and one that was deleted
    here stays deleted, unless the caller says otherwise. A set that refuses its write
    is reported, and the others go on.

    Args:
        session: Whose project takes what was a project's.
        items: By set.
        digest: Of the source: with it the writes are named, so a repetition of the
            import writes nothing.
        replaces: Whether items that are here get the source's content.
        revives: Whether items that were deleted here come back.
        dry_run: Whether only to tell what would be done; limits are not looked at.

    """
    done = []
    for key, records in items.items():
        plan = _Plan(key, replaces=replaces, revives=revives)
        code: str | Unset = UNSET
        try:
            place = _place_of(session, key)
            if dry_run:
                with session.store.snapshot() as connection:
                    plan.look(connection, find_set(connection, place.stored), records)
            else:
                _take(place, plan, records, digest)
        except (SetError, SlotError) as exc:
            code = exc.code
            plan.forget()
        done.append(plan.report(code))
    return tuple(done)


class _NewItem(NamedTuple):
    id: str
    record: ItemRecord


@dataclass(slots=True)
class _Plan:
    """What is to be done with the items of one set."""

    key: SetKey
    replaces: bool = field(kw_only=True)
    revives: bool = field(kw_only=True)
    is_new: bool = False
    added: list[_NewItem] = field(default_factory=list)
    replaced: list[_NewItem] = field(default_factory=list)
    same: int = 0
    differing: int = 0
    deleted: int = 0

    def look(
        self, connection: Connection, row: SetRow | None, records: Sequence[ItemRecord]
    ) -> None:
        """Decide about each item.

        Raises:
            SlotQuarantinedError: If a record of the set is damaged.

        """
        self.is_new = row is None
        if row is not None and row.quarantined is not None:
            raise SlotQuarantinedError(
                label=self.key.name, reason=row.quarantined, kind="memory set"
            )
        new = [
            _NewItem(*pair)
            for pair in zip(derived_ids(self.key, records), records, strict=True)
        ]
        here = (
            {} if row is None else find_items(connection, row.doc, [i.id for i in new])
        )
        for item in new:
            self._decide(connection, row, here.get(item.id), item)

    def _decide(
        self,
        connection: Connection,
        row: SetRow | None,
        here: ItemRow | None,
        item: _NewItem,
    ) -> None:
        if here is None:
            if row is None or self.revives or not _was_here(connection, row, item.id):
                self.added.append(item)
            else:
                self.deleted += 1
        elif (here.text, here.meta) == item.record.shown[:2]:
            self.same += 1
        elif self.replaces:
            self.replaced.append(item)
        else:
            self.differing += 1

    def forget(self) -> None:
        """Write nothing after all."""
        self.added, self.replaced = [], []

    def report(self, code: str | Unset) -> ImportedSet:
        """Return what was done, or would be."""
        changes = len(self.added) + len(self.replaced)
        action = ("created" if self.is_new else "updated") if changes else "same"
        return ImportedSet(
            set=self.key.name,
            partition=self.key.key_long,
            scope=self.key.scope,
            action=action if code is UNSET else "refused",
            added=len(self.added),
            updated=len(self.replaced),
            same=self.same,
            differing=self.differing,
            deleted=self.deleted,
            code=code,
        )


def _take(
    place: BoundSet, plan: _Plan, records: Sequence[ItemRecord], digest: str
) -> None:
    with set_write(place, None) as write:
        connection = write.transaction.connection
        plan.look(connection, write.row, records)
        # By what is done: after another choice the same source is another import.
        request_id = (
            f"import-{digest}-{records[0].line}-{plan.replaces:d}{plan.revives:d}"
        )
        is_repeated = find_request(connection, request_id) is not None
        if is_repeated:
            plan.forget()
        if not (plan.added or plan.replaced):
            return
        _write(write, plan)
        keep_request(
            connection,
            request_id,
            StoredRequest(digest.encode(), "import", "{}"),
            write.transaction.now_ms,
        )


def _write(write: SetWrite, plan: _Plan) -> None:
    puts = [
        version
        for item in (*plan.added, *plan.replaced)
        for version in _versions(plan.key, item)
    ]
    write.require_room(puts, [item.id for item in plan.replaced])
    write.write(
        SetChange(
            operation="import",
            lane=write.lane,
            puts=puts,
            details={"added": len(plan.added), "replaced": len(plan.replaced)},
        )
    )


def _versions(key: SetKey, item: _NewItem) -> Iterator[NewVersion]:
    counts: dict[tuple[str, str], int] = {}
    for version in item.record.versions:
        number = counts[version[:2]] = counts.get(version[:2], 0) + 1
        yield NewVersion(
            id=item.id,
            text=version.text,
            meta=version.meta,
            created_ms=item.record.created_ms,
            sources=item.record.sources,
            suffix=suffix_of(key, item.id, version, number),
            updated_ms=version.updated_ms,
            lane=version.lane,
        )


def _was_here(connection: Connection, row: SetRow, item_id: str) -> bool:
    return bool(history_of(connection, row.doc, item=item_id, limit=1))


def _place_of(session: Session, key: SetKey) -> BoundSet:
    binding = Binding(
        partition_key=decode_key(key.key_long),
        encoded_key=key.key_long,
        namespace=namespace_of(key.scope, session.project),
        scope=key.scope,
    )
    return BoundSet(session, binding, key.name)
