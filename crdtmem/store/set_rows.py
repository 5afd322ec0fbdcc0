"""The rows of a set brought up to its document: versions, items, history, sums.

Own writes, what comes from others, and repairs all end here: given which members have
changed, the rows become what the document says. Nothing else writes items.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import apsw

from crdtmem.doc.items import (
    HEADER,
    ItemsDoc,
    Version,
    canonical,
    item_id_of,
    member_hash,
    names_in,
    read_version,
)
from crdtmem.doc.text_form import units_of
from crdtmem.limits import SET_VERSION_BYTES
from crdtmem.store.pending import mark_pending
from crdtmem.store.set_history import ItemCommit, note_all_items, note_items
from crdtmem.store.sets import ItemRow, SetRow, all_items

__all__ = [
    "NO_HASH",
    "MemberRow",
    "SetRows",
    "clear_rows",
    "is_changed",
    "members_of_items",
    "new_set",
    "rewritten_set",
    "rows_of",
    "save_set",
    "take_members",
]

NO_HASH = "0" * 16
"""The hash of a set without members."""

_HASH_MASK = (1 << 64) - 1


class MemberRow(NamedTuple):
    """A live member; the id is empty for the header and for what is no version."""

    id: str
    member: str
    created_ms: int
    updated_ms: int
    sources: int | None
    size: int
    bytes: int
    hash: int


class SetRows(NamedTuple):
    """All rows of a set: its own, those of the members, those of the items."""

    row: SetRow
    members: dict[str, MemberRow]
    items: dict[str, ItemRow]


class _Difference(NamedTuple):
    """By member, in the order in which their items stand in the history."""

    gone: dict[str, MemberRow]
    came: dict[str, MemberRow]
    versions: dict[str, Version]

    def ids(self) -> list[str]:
        """Return the items that differ."""
        rows = {**self.gone, **self.came}.values()
        found = dict.fromkeys(row.id for row in rows)
        found |= dict.fromkeys(row.id for row in self.gone.values())
        found.pop("", None)
        return list(found)


def new_set(doc: int, namespace: str, name_in_doc: str, now_ms: int) -> SetRow:
    """Return the row of a set without members, whose names are not known yet."""
    return SetRow(
        doc=doc,
        namespace=namespace,
        name_in_doc=name_in_doc,
        key_long="",
        key_short=name_in_doc.partition("/")[0],
        name="",
        rev=0,
        item_count=0,
        size=0,
        state_bytes=0,
        tombstones=0,
        set_hash=NO_HASH,
        dropped_ms=now_ms,
        created_ms=now_ms,
        updated_ms=now_ms,
        lsn=0,
        quarantined=None,
        has_header=0,
        foreign_count=0,
        members=0,
        live_bytes=0,
        history_rows=0,
        history_bytes=0,
        oldest_rev=0,
        unsquashed=0,
        operation="",
        lane="",
    )


def save_set(connection: apsw.Connection, row: SetRow) -> None:
    """Write a set's row, new or changed."""
    connection.execute(
        "INSERT INTO mset VALUES (:doc, :namespace, :name_in_doc, :key_long,"
        " :key_short, :name, :rev, :item_count, :size, :state_bytes, :tombstones,"
        " :set_hash, :dropped_ms, :created_ms, :updated_ms, :lsn, :quarantined,"
        " :has_header, :foreign_count, :members, :live_bytes, :history_rows,"
        " :history_bytes, :oldest_rev, :unsquashed, :operation, :lane)"
        " ON CONFLICT(doc) DO UPDATE SET key_long = :key_long, name = :name,"
        " rev = :rev, item_count = :item_count, size = :size,"
        " state_bytes = :state_bytes, tombstones = :tombstones, set_hash = :set_hash,"
        " dropped_ms = :dropped_ms, updated_ms = :updated_ms, lsn = :lsn,"
        " quarantined = :quarantined, has_header = :has_header,"
        " foreign_count = :foreign_count, members = :members,"
        " live_bytes = :live_bytes, history_rows = :history_rows,"
        " history_bytes = :history_bytes, oldest_rev = :oldest_rev,"
        " unsquashed = :unsquashed, operation = :operation, lane = :lane",
        row._asdict(),
    )


def members_of_items(
    connection: apsw.Connection, doc: int, ids: Iterable[str]
) -> list[MemberRow]:
    """Return the live members of some items of a set."""
    rows = connection.execute(
        "SELECT version.id, member, created_ms, updated_ms, sources, size, bytes, hash"
        " FROM json_each(:ids) AS wanted CROSS JOIN version"
        " WHERE doc = :doc AND version.id = wanted.value",
        {"doc": doc, "ids": json.dumps(list(ids))},
    )
    return [MemberRow(*row) for row in rows]


def take_members(
    connection: apsw.Connection,
    base: SetRow,
    document: ItemsDoc,
    changed: Sequence[str],
    commit: ItemCommit,
    *,
    keeps_rev: bool = False,
    seen: Sequence[MemberRow] | None = None,
) -> SetRow:
    """Bring the rows up to a document of which some members have changed.

    Args:
        connection: In a transaction.
        base: The set before.
        document: As it is now.
        changed: The members that may differ from the rows, in the order in which
            their items stand in the history.
        commit: For the history.
        keeps_rev: Write no history, and leave the rev as it is.
        seen: All members of the items concerned as they were before, if at hand.

    Returns:
        The set after; not saved yet. Its rev is the next if any member differs.

    """
    values = document.members(changed)
    if seen is None or base.foreign_count:
        seen = _known_members(connection, base, changed)
    known = {row.member: row for row in seen}
    found = _difference(changed, values, known)
    if not found.gone and not found.came:
        return _summed(base, document)
    ids = found.ids()
    had = {kept.id for kept in known.values()}.intersection(ids)
    row = base
    if not keeps_rev:
        row = base._replace(rev=base.rev + 1)
        row = note_items(connection, row, ids, commit, are_new=not had)
    live = _live_versions(document, known, found)
    items = [_item_of(row, versions) for versions in live.values()]
    _replace_members(connection, base.doc, found)
    _replace_items(connection, base.doc, had - live.keys(), items)
    row = row._replace(item_count=row.item_count + len(live) - len(had))
    return _summed(_counted(row, found, values), document)


def clear_rows(
    connection: apsw.Connection, base: SetRow, document: ItemsDoc, commit: ItemCommit
) -> SetRow:
    """Bring the rows up to a document that was emptied; its header may be left.

    Does in a few statements what take_members does member by member.
    """
    row = base._replace(rev=base.rev + 1)
    row = note_all_items(connection, row, commit)
    connection.execute(
        "INSERT OR IGNORE INTO search_pending SELECT doc, id FROM item"
        " WHERE doc = :doc",
        {"doc": base.doc},
    )
    connection.execute("DELETE FROM item WHERE doc = :doc", {"doc": base.doc})
    connection.execute("DELETE FROM version WHERE doc = :doc", {"doc": base.doc})
    values = document.members()
    found = _difference(list(values), values, {})
    _replace_members(connection, base.doc, found)
    row = _emptied(row)
    return _summed(_counted(row, found, values), document)


def rows_of(base: SetRow, document: ItemsDoc) -> SetRows:
    """Return what all rows of a set must be; items that differ are of its rev."""
    values = document.members()
    found = _difference(list(values), values, {})
    live = _live_versions(document, {}, found)
    row = _emptied(base)._replace(item_count=len(live))
    row = _summed(_counted(row, found, values), document)
    items = {one: _item_of(row, versions) for one, versions in live.items()}
    return SetRows(row, found.came, items)


def rewritten_set(
    connection: apsw.Connection, base: SetRow, document: ItemsDoc
) -> SetRow:
    """Write all rows of a set's items anew, whatever they say now; for repairs.

    Items that were otherwise are of the next rev, which has no history.

    Returns:
        The set after; not saved yet.

    """
    before: dict[str, ItemRow] = {}
    with suppress(apsw.Error, ValueError):
        before = {item.id: item for item in all_items(connection, base.doc)}
    wanted = rows_of(base._replace(rev=base.rev + 1), document)
    items = {
        one: item if is_changed(before.get(one), item) else before[one]
        for one, item in wanted.items.items()
    }
    connection.execute("DELETE FROM version WHERE doc = :doc", {"doc": base.doc})
    connection.execute("DELETE FROM item WHERE doc = :doc", {"doc": base.doc})
    _replace_members(connection, base.doc, _Difference({}, wanted.members, {}))
    _replace_items(connection, base.doc, before.keys() - items.keys(), items.values())
    return wanted.row._replace(rev=base.rev) if items == before else wanted.row


def is_changed(before: ItemRow | None, item: ItemRow) -> bool:
    """Tell whether an item is another than it was, but for its rev."""
    return before is None or before._replace(rev=item.rev) != item


def _emptied(row: SetRow) -> SetRow:
    return row._replace(
        item_count=0,
        size=0,
        set_hash=NO_HASH,
        has_header=0,
        foreign_count=0,
        members=0,
        live_bytes=0,
    )


def _summed(row: SetRow, document: ItemsDoc) -> SetRow:
    """Return the set with what its state weighs."""
    is_dropped = not row.item_count and not row.has_header
    dropped_ms = row.dropped_ms if row.dropped_ms is not None else row.updated_ms
    return row._replace(
        tombstones=max(0, document.made - row.members),
        state_bytes=row.live_bytes + SET_VERSION_BYTES * document.made,
        dropped_ms=dropped_ms if is_dropped else None,
    )


def _counted(row: SetRow, found: _Difference, values: Mapping[str, object]) -> SetRow:
    """Return the set with the sums over its members, and its names."""
    came, gone = found.came.values(), found.gone.values()
    digest = int(row.set_hash, 16)
    for member in (*came, *gone):
        digest ^= member.hash & _HASH_MASK
    unlisted = row.foreign_count + row.has_header
    unlisted += sum(not member.id for member in came)
    unlisted -= sum(not member.id for member in gone)
    if HEADER in found.gone or HEADER in found.came:
        names = names_in(values.get(HEADER), row.name_in_doc)
        row = row._replace(has_header=int(names is not None))
        if names is not None:
            row = row._replace(key_long=names[0], name=names[1])
    return row._replace(
        size=row.size + sum(m.size for m in came) - sum(m.size for m in gone),
        members=row.members + len(came) - len(gone),
        live_bytes=row.live_bytes
        + sum(m.bytes for m in came)
        - sum(m.bytes for m in gone),
        set_hash=f"{digest:016x}",
        foreign_count=unlisted - row.has_header,
    )


def _known_members(
    connection: apsw.Connection, base: SetRow, changed: Sequence[str]
) -> list[MemberRow]:
    """Return all members of the items concerned, and the others of these names."""
    ids = {name: item_id_of(name) for name in changed}
    rows = members_of_items(connection, base.doc, {one for one in ids.values() if one})
    unlisted = list(changed)
    if not base.foreign_count:
        # A version has an id that its name tells; only what is none has no id.
        unlisted = [name for name, item_id in ids.items() if not item_id]
    if unlisted:
        found = connection.execute(
            "SELECT version.id, member, created_ms, updated_ms, sources, size, bytes,"
            " hash FROM json_each(:names) AS wanted CROSS JOIN version"
            " WHERE doc = :doc AND version.id = '' AND member = wanted.value",
            {"doc": base.doc, "names": json.dumps(unlisted)},
        )
        rows += [MemberRow(*row) for row in found]
    return rows


def _difference(
    changed: Sequence[str],
    values: Mapping[str, object],
    known: Mapping[str, MemberRow],
) -> _Difference:
    found = _Difference({}, {}, {})
    for name in changed:
        before = known.get(name)
        after = None
        if name in values:
            after, version = _member_row(name, values[name])
            if version is not None:
                found.versions[name] = version
        if before == after:
            continue
        if before is not None:
            found.gone[name] = before
        if after is not None:
            found.came[name] = after
    return found


def _member_row(name: str, value: object) -> tuple[MemberRow, Version | None]:
    text = canonical(value)
    size_bytes = len(name.encode()) + len(text.encode())
    digest = member_hash(name, text)
    version = read_version(name, value)
    if version is None:
        return MemberRow("", name, 0, 0, None, 0, size_bytes, digest), None
    return (
        MemberRow(
            version.id,
            name,
            version.created_ms,
            version.updated_ms,
            version.sources,
            units_of(version.text) + units_of(version.meta),
            size_bytes,
            digest,
        ),
        version,
    )


def _live_versions(
    document: ItemsDoc, known: Mapping[str, MemberRow], found: _Difference
) -> dict[str, list[Version]]:
    """Return the live versions of the items that differ, the one to show first."""
    ids = set(found.ids())
    kept = [
        row.member
        for row in known.values()
        if row.id in ids and row.member not in found.gone and row.id
    ]
    versions = dict(found.versions)
    unread = [name for name in kept if name not in versions]
    others = document.members(unread) if unread else {}
    versions |= {
        name: version
        for name, value in others.items()
        if (version := read_version(name, value))
    }
    live: dict[str, list[Version]] = {}
    for name in {*kept, *found.came}:
        if name in versions:
            live.setdefault(versions[name].id, []).append(versions[name])
    for one in live.values():
        one.sort(key=lambda version: (version.updated_ms, version.member), reverse=True)
    return live


def _replace_members(connection: apsw.Connection, doc: int, found: _Difference) -> None:
    connection.executemany(
        "DELETE FROM version WHERE doc = :doc AND id = :id AND member = :member",
        [
            {"doc": doc, "id": row.id, "member": row.member}
            for row in found.gone.values()
        ],
    )
    connection.executemany(
        "INSERT INTO version VALUES (:doc, :id, :member, :created_ms, :updated_ms,"
        " :sources, :size, :bytes, :hash)",
        [{"doc": doc, **row._asdict()} for row in found.came.values()],
    )


def _replace_items(
    connection: apsw.Connection,
    doc: int,
    gone: Collection[str],
    items: Collection[ItemRow],
) -> None:
    for item_id in (*gone, *(item.id for item in items)):
        mark_pending(connection, doc, item_id)
    connection.executemany(
        "DELETE FROM item WHERE doc = :doc AND id = :id",
        [{"doc": doc, "id": item_id} for item_id in gone],
    )
    connection.executemany(
        "INSERT INTO item VALUES (:doc, :id, :text, :meta, :created_ms, :updated_ms,"
        " :lane, :rev, :size, :sources, :conflicts) ON CONFLICT(doc, id) DO UPDATE SET"
        " text = :text, meta = :meta, created_ms = :created_ms,"
        " updated_ms = :updated_ms, lane = :lane, rev = :rev, size = :size,"
        " sources = :sources, conflicts = :conflicts",
        [item._asdict() for item in items],
    )


def _item_of(row: SetRow, versions: Sequence[Version]) -> ItemRow:
    shown, *others = versions
    conflicts = [[v.text, v.meta, v.updated_ms, v.lane] for v in others]
    return ItemRow(
        doc=row.doc,
        id=shown.id,
        text=shown.text,
        meta=shown.meta,
        created_ms=shown.created_ms,
        updated_ms=shown.updated_ms,
        lane=shown.lane,
        rev=row.rev,
        size=units_of(shown.text) + units_of(shown.meta),
        sources=shown.sources,
        conflicts=json.dumps(conflicts, ensure_ascii=False) if conflicts else "",
    )
