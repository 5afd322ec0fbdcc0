"""A relay's log in memory: for tests, and for the simulator. Nothing outlives it.

It waits for nothing, so its methods may be driven without an event loop. What append
returned counts as synced; a crash is a storage that is opened again, and a restored
backup is a copy of an earlier day.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from crdtmem.errors import InvalidArgumentError
from crdtmem.limits import DROP_STEP_MS
from crdtmem.protocol.records import NO_DOC_TAG, chain_next, chain_start
from crdtmem.protocol.relaying import (
    Grant,
    JoinState,
    LogRow,
    LogSlice,
    Put,
    PutRecord,
    PutRefusal,
    PutResult,
    RelayIdentity,
    RewindCause,
    Sample,
)
from relay.auth import check_token, grant_for
from relay.storage import HeadHint, Hearing, SweepReport, TokenChange, TokenRow
from relay.storage.rows import fresh_row
from relay.storage.rules import Standing, StorageLimits, is_cover, refusal_of

__all__ = ["MemoryStorage"]


@dataclass(slots=True)
class _Doc:
    snap_seq: int = 0
    covered: int = 0
    has_dropped: bool = False


@dataclass(slots=True)
class _Stream:
    """What one replica has written, by replica_seq from 1: the seq of each."""

    token_id: str
    seqs: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Namespace:
    ns_no: int
    start: Sample
    rows: list[LogRow] = field(default_factory=list)
    due_ms: dict[int, int] = field(default_factory=dict)
    live_bytes: int = 0
    docs: dict[bytes, _Doc] = field(default_factory=dict)
    streams: dict[bytes, _Stream] = field(default_factory=dict)

    def at(self, seq: int) -> Sample | None:
        """Return a place of the log, or None beyond its head."""
        if not seq:
            return self.start
        return Sample(seq, self.rows[seq - 1].chain) if seq <= len(self.rows) else None


@dataclass(slots=True)
class _Disk:
    identity: RelayIdentity
    namespaces: dict[str, _Namespace] = field(default_factory=dict)
    age_ms: int = 0
    aged_at_ms: int = 0
    tokens: dict[str, tuple[TokenRow, bytes]] = field(default_factory=dict)
    changes: list[str] = field(default_factory=list)


class MemoryStorage:
    """Storage in memory; see ``relay.storage.Storage`` for the contract.

    Args:
        limits: Of the relay.
        rng: Draws the relay's id and epochs.
        over: Another one whose log this one opens too: a later process.

    """

    def __init__(
        self,
        limits: StorageLimits | None = None,
        *,
        rng: Random,
        over: "MemoryStorage | None" = None,
    ) -> None:
        self._limits = limits or StorageLimits()
        self._rng = rng
        identity = RelayIdentity(rng.randbytes(16), rng.randbytes(16))
        self._disk: _Disk = over._disk if over else _Disk(identity)

    def copy(self) -> "MemoryStorage":
        """Return a storage with a log of its own, as this one's is now."""
        copied = MemoryStorage(self._limits, rng=self._rng)
        copied._disk = copy.deepcopy(self._disk)
        return copied

    def restored(self) -> "MemoryStorage":
        """Return a copy that is known to be a backup: in a new epoch."""
        copied = self.copy()
        identity = replace(self._disk.identity, epoch=self._rng.randbytes(16))
        copied._disk.identity = identity
        return copied

    def age(self, ms: int) -> None:
        """Count running time that no sweep has observed."""
        self._disk.age_ms += ms

    def ns_no(self, namespace: str) -> int:
        """Return the number of a namespace; 0 where there is none."""
        found = self._disk.namespaces.get(namespace)
        return found.ns_no if found else 0

    async def open(self) -> RelayIdentity:
        """See Storage."""
        return self._disk.identity

    async def close(self) -> None:
        """See Storage."""

    async def probe(self) -> None:
        """See Storage."""

    async def join(
        self, namespace: str, *, create: bool, replica_id: bytes, cursor: Sample
    ) -> JoinState:
        """See Storage."""
        namespaces = self._disk.namespaces
        if namespace not in namespaces:
            if not create:
                return JoinState(0, code="namespace-not-found")
            start = Sample(0, chain_start(self._disk.identity.relay_id, namespace))
            namespaces[namespace] = _Namespace(len(namespaces) + 1, start)
        ns = namespaces[namespace]
        head = len(ns.rows)
        place = ns.at(cursor.seq)
        resume, cause = place, RewindCause.NONE
        if place is None:
            cause = RewindCause.PAST_HEAD
        elif cursor.seq and place != cursor:
            resume, cause = None, RewindCause.OTHER_CHAIN
        seqs = ns.streams[replica_id].seqs if replica_id in ns.streams else []
        own_id = ns.rows[seqs[-1] - 1].record_id if seqs else bytes(32)
        return JoinState(ns.ns_no, head, 0, resume, cause, len(seqs), own_id)

    async def match(self, ns_no: int, samples: Sequence[Sample]) -> Sample:
        """See Storage."""
        ns = self._namespace(ns_no)
        fitting = [sample for sample in samples if ns.at(sample.seq) == sample]
        return max(fitting, key=lambda sample: sample.seq, default=ns.start)

    async def append(self, puts: Sequence[Put]) -> list[PutResult]:
        """See Storage."""
        return [self._put(self._namespace(put.ns_no), put) for put in puts]

    async def read(
        self, ns_no: int, after: int, *, records: int, octets: int
    ) -> LogSlice:
        """See Storage."""
        ns = self._namespace(ns_no)
        rows: list[LogRow] = []
        for row in ns.rows[after : after + records]:
            octets -= len(row.record or row.record_id)
            if octets < 0 and rows:
                break
            doc = ns.docs.get(row.doc_tag, _Doc())
            rows.append(
                replace(
                    row,
                    is_newest_snapshot=doc.snap_seq == row.seq,
                    doc_has_dropped=doc.has_dropped,
                )
            )
        return LogSlice(ns_no, tuple(rows), len(ns.rows))

    async def sweep(self, now_ms: int, limit: int) -> SweepReport:
        """See Storage."""
        disk = self._disk
        disk.age_ms += min(max(now_ms - disk.aged_at_ms, 0), DROP_STEP_MS)
        disk.aged_at_ms = now_ms
        due = [
            (due_ms, seq, ns)
            for ns in disk.namespaces.values()
            for seq, due_ms in ns.due_ms.items()
            if due_ms <= disk.age_ms
        ]
        due.sort(key=lambda one: one[:2])
        freed = sum(self._drop(ns, seq) for _, seq, ns in due[:limit])
        return SweepReport(len(due[:limit]), freed, len(due) > limit)

    async def grant(self, token_id: str, secret: bytes, now_ms: int) -> Grant | None:
        """See Storage."""
        return grant_for(self._disk.tokens.get(token_id), secret, now_ms)

    async def token_create(self, row: TokenRow, digest: bytes) -> None:
        """See Storage."""
        check_token(row)
        if row.token_id in self._disk.tokens:
            raise InvalidArgumentError("token_id", f"token {row.token_id} exists")
        self._disk.tokens[row.token_id] = row, digest
        self._disk.changes.append(row.token_id)

    async def token_list(self) -> list[TokenRow]:
        """See Storage."""
        return [row for row, _ in self._disk.tokens.values()]

    async def token_revoke(self, token_id: str, now_ms: int) -> bool:
        """See Storage."""
        if token_id not in self._disk.tokens:
            return False
        row, digest = self._disk.tokens[token_id]
        if row.revoked_ms is None:
            self._disk.tokens[token_id] = replace(row, revoked_ms=now_ms), digest
            self._disk.changes.append(token_id)
        return True

    async def changed_tokens(self, since: int) -> list[TokenChange]:
        """See Storage."""
        changes = list(enumerate(self._disk.changes, 1))
        last = {token_id: number for number, token_id in changes}
        rows = {token_id: row for token_id, (row, _) in self._disk.tokens.items()}
        return [
            TokenChange(n, id_, rows[id_].revoked_ms, rows[id_].not_after_ms)
            for n, id_ in changes
            if n > since and last[id_] == n
        ]

    def watch(self, notify: HeadHint, hear: Hearing | None = None) -> None:
        """See Storage; there is no other process to hear of."""

    def announce(self, message: bytes) -> None:
        """Tell nobody: there is no other process."""

    def _namespace(self, ns_no: int) -> _Namespace:
        return list(self._disk.namespaces.values())[ns_no - 1]

    def _put(self, ns: _Namespace, put: Put) -> PutResult:
        head = len(ns.rows)
        acked, at, refusal = 0, None, None
        for record in put.records:
            number = record.header.replica_seq
            stream = ns.streams.get(put.replica_id, _Stream(put.grant.token_id))
            if number <= len(stream.seqs):
                taken = self._recognise(ns, stream, record)
            else:
                taken = self._append(ns, stream, record, put.grant)
            if isinstance(taken, str):
                refusal = PutRefusal(taken, number, len(stream.seqs) + 1)
                break
            acked, at = number, Sample(taken.seq, taken.chain)
        rows = tuple(ns.rows[head:])
        return PutResult(put.ns_no, acked, at, len(ns.rows), rows, refusal)

    def _recognise(
        self, ns: _Namespace, stream: _Stream, record: PutRecord
    ) -> LogRow | str:
        row = ns.rows[stream.seqs[record.header.replica_seq - 1] - 1]
        return row if row.record_id == record.record_id else "replica-fork"

    def _append(
        self, ns: _Namespace, stream: _Stream, record: PutRecord, grant: Grant
    ) -> LogRow | str:
        header, head = record.header, len(ns.rows)
        has_doc = header.doc_tag != NO_DOC_TAG
        doc = ns.docs.get(header.doc_tag, _Doc())
        others = [s for s in ns.streams.values() if s.token_id == grant.token_id]
        standing = Standing(
            head=head,
            max_seq=len(stream.seqs),
            live_bytes=ns.live_bytes,
            docs=len(ns.docs),
            is_new_doc=has_doc and header.doc_tag not in ns.docs,
            covered=doc.covered,
            other_replicas=0 if stream.seqs else len(others),
        )
        size_bytes = len(record.record)
        code = refusal_of(header, size_bytes, grant, standing, self._limits)
        if code:
            return code
        seq = head + 1
        chain = ns.rows[-1].chain if head else ns.start.chain
        if has_doc:
            ns.docs[header.doc_tag] = doc
        if is_cover(header):
            doc.snap_seq, doc.covered = seq, header.base
            self._mark(ns, header.doc_tag, header.base)
        row = fresh_row(
            seq,
            chain_next(chain, seq, record.record_id),
            record,
            doc.snap_seq,
            has_dropped=doc.has_dropped,
        )
        ns.rows.append(row)
        ns.live_bytes += size_bytes
        ns.streams[header.replica_id] = stream
        stream.token_id = grant.token_id
        stream.seqs.append(seq)
        return row

    def _mark(self, ns: _Namespace, doc_tag: bytes, covered: int) -> None:
        """Have what a snapshot covers of its doc go when the grace is over."""
        due_ms = self._disk.age_ms + self._limits.grace_ms
        for row in ns.rows[:covered]:
            if row.doc_tag == doc_tag and row.record is not None:
                ns.due_ms.setdefault(row.seq, due_ms)

    def _drop(self, ns: _Namespace, seq: int) -> int:
        """Drop a payload; return its size."""
        row = ns.rows[seq - 1]
        size_bytes = len(row.record or b"")
        ns.rows[seq - 1] = replace(row, record=None)
        ns.docs[row.doc_tag].has_dropped = True
        ns.live_bytes -= size_bytes
        del ns.due_ms[seq]
        return size_bytes
