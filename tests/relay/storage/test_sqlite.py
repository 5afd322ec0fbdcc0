"""relay.storage.sqlite: the contract of a storage, and what a crash leaves of one."""

import contextlib
import json
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

from crdtmem.errors import StorageFullError, StorageUncertainError
from crdtmem.protocol.relaying import Sample
from relay.storage.rules import StorageLimits
from relay.storage.sqlite import writer
from relay.storage.sqlite.folder import init_folder
from relay.storage.sqlite.maintenance import check_log
from relay.storage.sqlite.storage import SqliteStorage
from tests.conftest import PROFILE
from tests.contracts.authors import HOUR_MS, Author, assert_verifies, seqs
from tests.contracts.storage import *  # noqa: F403 - the tests are run in here
from tests.powercut import PowerCut
from tests.relay.storage.relay_points import POINTS
from tests.scratch import scratch

ROOT = Path(__file__).resolve().parents[3]
POINTS_MODULE = "tests.relay.storage.relay_points"
EVERY = {"default": 53, "campaign": 1}[PROFILE]
"""One moment in so many is looked at; the seed shifts which."""


@pytest.fixture
def folder():
    with scratch() as path:
        init_folder(path / "relay", now_ms=0)
        yield path / "relay"


@pytest.fixture
def make(folder):
    def make(limits=None):
        return SqliteStorage(folder, limits=limits, disk_free_bytes=0)

    return make


@contextlib.asynccontextmanager
async def opened_at(folder, **options):
    """Give the storage in a folder, and who it says it is."""
    storage = SqliteStorage(folder, disk_free_bytes=0, **options)
    try:
        yield storage, await storage.open()
    finally:
        await storage.close()


async def logs_of(storage, names):
    found = {}
    for name in names:
        joined = await storage.join(
            name, create=False, replica_id=bytes(16), cursor=Sample(0, bytes(32))
        )
        if not joined.code:
            log = await storage.read(joined.ns_no, 0, records=10_000, octets=2**30)
            found[name] = log
    return found


def places(log):
    return [(row.seq, row.chain) for row in log.rows]


# Power cuts.


async def write_much(disk, storage, seed):
    """Append, cover, sweep and fill the write-ahead log; note what is acknowledged."""
    chance = random.Random(seed)
    names = ("one", "two", "three")
    authors = [await Author.join(storage, name) for name in names]
    for round_ in range(24):
        group = chance.sample(authors, chance.randint(1, 3))
        size = chance.choice([10, 400, 5_000])
        puts = [
            author.put(
                *range(author.last + 1, author.last + 1 + chance.randint(1, 8)),
                payload=bytes(size),
            )
            for author in group
        ]
        for author, result in zip(group, await storage.append(puts), strict=True):
            disk.acknowledge((author.namespace, result.at.seq, result.at.chain))
        if round_ % 6 == 5:
            await authors[0].snapshot(base=authors[0].last)
            await storage.sweep(round_ * HOUR_MS, 30)
    return await logs_of(storage, names)


@pytest.mark.requirement("sync-power-cut")
@pytest.mark.requirement("P10")
@pytest.mark.parametrize("seed", {"default": range(1), "campaign": range(50)}[PROFILE])
async def test_after_a_power_cut_all_that_was_acknowledged_is_there(
    folder, seed, monkeypatch
):
    monkeypatch.setattr(writer, "CHECKPOINT_PASSIVE_PAGES", 60)
    limits = StorageLimits(grace_ms=HOUR_MS)
    with PowerCut(folder, makedefault=True) as disk:
        async with opened_at(folder, limits=limits) as (storage, identity):
            logs = await write_much(disk, storage, seed)
    image_folder = folder.parent / "image"
    images = list(disk.images(seed=seed, every=EVERY))
    for image in images:
        image.write_to(image_folder)
        async with opened_at(image_folder) as (storage, same):
            found = await logs_of(storage, logs)
        assert same == identity
        for name, log in found.items():
            assert_verifies(log, identity.relay_id, name)
            assert places(log) == places(logs[name])[: log.head]
        acknowledged: list[Any] = list(image.acknowledged)
        for name, seq, chain in acknowledged:
            assert places(found[name])[seq - 1] == (seq, chain)
        assert [c for c in check_log(image_folder) if c.reason] == []

    assert len(images) > 20


# Failing disks.


@pytest.fixture
def disk(folder):
    with PowerCut(folder, makedefault=True) as disk:
        yield disk


@pytest.mark.requirement("sync-fsync-error")
@pytest.mark.requirement("P10")
async def test_a_commit_whose_sync_fails_is_not_acknowledged_nor_is_a_later_one(
    folder, disk
):
    async with opened_at(folder) as (storage, identity):
        author = await Author.join(storage)
        await author.write()
        disk.fail("sync", "-wal", apsw.IOError("planted"))
        with pytest.raises(StorageUncertainError, match="planted"):
            await author.write()
        seen = await author.log()
        with pytest.raises(StorageUncertainError, match="planted"):
            await author.write(3)
    async with opened_at(folder) as (storage, _):
        log = (await logs_of(storage, ["notes"]))["notes"]

    assert seqs(seen.rows) == [1]
    assert_verifies(log, identity.relay_id, "notes")
    assert log.head >= 1


@pytest.mark.requirement("P10")
async def test_a_full_disk_refuses_a_group_and_reads_go_on(folder, disk):
    async with opened_at(folder) as (storage, identity):
        author = await Author.join(storage)
        await author.write()
        disk.fail("write", "-wal", apsw.FullError("planted"))
        with pytest.raises(StorageFullError, match=r"no space is left for .*relay\.db"):
            await author.write(2, 3)
        seen = await author.log()
        again = await author.write(2)
        log = await author.log()

    assert seqs(seen.rows) == [1]
    assert (again.acked, again.head) == (2, 2)
    assert_verifies(log, identity.relay_id, "notes")


# Killed processes.


def run_to(folder, point, nth):
    """Run a storage in a process until it dies; return what it acknowledged."""
    process = subprocess.run(
        [sys.executable, "-m", POINTS_MODULE, str(folder), point, str(nth)],
        cwd=ROOT,
        capture_output=True,
        check=False,
        encoding="utf-8",
    )
    assert process.returncode == -signal.SIGKILL, process.stderr
    told = [json.loads(line) for line in process.stdout.splitlines()]
    return [
        (line["seq"], bytes.fromhex(line["chain"])) for line in told if "seq" in line
    ]


@pytest.mark.process
@pytest.mark.requirement("P10")
@pytest.mark.parametrize(
    ("point", "nth", "unacknowledged"),
    [
        ("append.before-commit", 13, 0),
        ("append.after-commit", 13, 1),
        ("sweep.mid", 2, 0),
        ("hwm.before-rename", 7, None),
    ],
)
async def test_a_storage_killed_at_a_step_keeps_what_it_acknowledged(
    folder, point, nth, unacknowledged
):
    acknowledged = run_to(folder, point, nth)
    async with opened_at(folder) as (storage, identity):
        log = (await logs_of(storage, ["notes"]))["notes"]
        author = await Author.join(storage)
        author.last = log.head
        more = await Author(storage, author.ns_no, "notes").write()
    checked = check_log(folder)

    assert acknowledged
    assert places(log)[: len(acknowledged)] == acknowledged
    if unacknowledged is not None:
        assert log.head == len(acknowledged) + unacknowledged
    assert_verifies(log, identity.relay_id, "notes")
    assert (more.head, checked[0].reason) == (log.head + 1, "")


def test_every_step_to_be_killed_at_is_there():
    assert set(POINTS) == {
        "append.after-commit",
        "append.before-commit",
        "hwm.before-rename",
        "sweep.mid",
    }
