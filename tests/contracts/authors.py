"""Replicas that write to a relay's storage, for tests of storages."""

import hashlib
from itertools import count

from crdtmem.protocol.records import (
    Header,
    RecordKind,
    build_record,
    chain_next,
    chain_start,
    record_id,
)
from crdtmem.protocol.relaying import Grant, Put, PutRecord, Sample, Scope
from relay.storage import TokenRow

__all__ = [
    "ALL",
    "DIGEST",
    "DOC",
    "EVERYTHING",
    "HOUR_MS",
    "NOWHERE",
    "OTHER_DOC",
    "SECRET",
    "Author",
    "aged",
    "assert_verifies",
    "grant_of",
    "seqs",
    "token_row",
]

NOWHERE = Sample(0, bytes(32))
ALL = Scope.READ | Scope.WRITE | Scope.COMPACT
EVERYTHING = {"records": 10_000, "octets": 2**30}
HOUR_MS = 3_600_000
DOC = b"d" * 16
OTHER_DOC = b"o" * 16
SECRET = b"s" * 32
DIGEST = hashlib.sha256(SECRET).digest()


def grant_of(scopes=ALL, **values):
    return Grant("token", "*", scopes, **values)


def records_of(namespace, *headers, payload=b"payload"):
    made = []
    for header in headers:
        record = build_record(header, payload)
        made.append(PutRecord(header, record_id(namespace, record), record))
    return tuple(made)


class Author:
    """A replica that writes to one namespace of a storage."""

    replicas = count(1)

    def __init__(self, storage, ns_no, namespace, replica_id=None):
        self.storage = storage
        self.ns_no = ns_no
        self.namespace = namespace
        self.replica_id = replica_id or next(self.replicas).to_bytes(16, "big")
        self.last = 0

    @classmethod
    async def join(cls, storage, namespace="notes", **values):
        joined = await storage.join(
            namespace, create=True, replica_id=bytes(16), cursor=NOWHERE
        )
        return cls(storage, joined.ns_no, namespace, **values)

    def put(self, *numbers, grant=None, payload=b"payload", **fields):
        """Return a put of updates with these numbers, of the next one by default."""
        numbers = numbers or (self.last + 1,)
        self.last = max(self.last, *numbers)
        defaults = {"kind": RecordKind.UPDATE, "alg": 0, "doc_tag": DOC, "base": 0}
        headers = [
            Header(
                **{**defaults, **fields},
                replica_id=self.replica_id,
                replica_seq=number,
                key_id=0,
            )
            for number in numbers
        ]
        records = records_of(self.namespace, *headers, payload=payload)
        return Put(self.ns_no, self.replica_id, grant or grant_of(), records)

    async def write(self, *numbers, **fields):
        """Append one put; return its result."""
        return (await self.storage.append([self.put(*numbers, **fields)]))[0]

    async def snapshot(self, base, **fields):
        return await self.write(kind=RecordKind.SNAPSHOT, base=base, **fields)

    async def refused(self, *numbers, **fields):
        """Append one put of which nothing is stored; return why."""
        before = await self.log()
        result = await self.write(*numbers, **fields)
        assert (result.acked, result.at, result.rows) == (0, None, ())
        assert await self.log() == before
        self.last = result.refusal.expected - 1
        return result.refusal.code

    async def log(self):
        return await self.storage.read(self.ns_no, 0, **EVERYTHING)

    async def join_at(self, seq, chain):
        return await self.storage.join(
            self.namespace,
            create=False,
            replica_id=self.replica_id,
            cursor=Sample(seq, chain),
        )


async def aged(storage, ms, *, at_ms=0, limit=1_000):
    """Sweep each hour for so long; return what was dropped, and the time."""
    dropped = []
    for now_ms in range(at_ms, at_ms + ms + 1, HOUR_MS):
        report = await storage.sweep(now_ms, limit)
        dropped.append(report.payloads)
    return sum(dropped), at_ms + ms


def seqs(rows):
    return [row.seq for row in rows]


def assert_verifies(log, relay_id, namespace):
    """Check that a log is whole: numbers, ids and chain."""
    chain = chain_start(relay_id, namespace)
    for seq, row in enumerate(log.rows, start=1):
        chain = chain_next(chain, seq, row.record_id)
        assert (row.seq, row.chain) == (seq, chain)
        if row.record is not None:
            assert row.record_id == record_id(namespace, row.record)
    assert log.head == len(log.rows)


def token_row(token_id="aaaaaaaaaa", **values):
    defaults = {
        "pattern": "notes",
        "scopes": ("read", "write"),
        "label": "for tests",
        "not_after_ms": None,
        "max_replicas": None,
        "created_ms": 1,
        "revoked_ms": None,
    }
    return TokenRow(token_id=token_id, **{**defaults, **values})
