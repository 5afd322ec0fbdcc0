import asyncio
import itertools

import crdtmem
from crdtmem.serve.commits import Commits

PATIENCE_S = 60


class Calls:
    """A listener that can be waited for."""

    def __init__(self):
        self.count = 0
        self._bell = asyncio.Event()

    def ring(self):
        self.count += 1
        self._bell.set()

    async def until(self, count):
        async with asyncio.timeout(PATIENCE_S):
            while self.count < count:
                self._bell.clear()
                await self._bell.wait()


async def test_who_joins_is_called_at_once_and_after_each_commit(tmp_path):
    with crdtmem.open(tmp_path / "store.db", project="desk") as memory:
        commits, calls = Commits(memory.path), Calls()
        commits.join(calls.ring)
        # When it joins, and when the first look is made.
        await calls.until(2)

        for count in (3, 4):
            memory.create(f"notes_{count}")
            await calls.until(count)

        assert calls.count == 4
        commits.leave(calls.ring)


async def test_who_has_left_is_called_no_more_and_nobody_looks(tmp_path):
    with crdtmem.open(tmp_path / "store.db", project="desk") as memory:
        commits, stays, leaves = Commits(memory.path), Calls(), Calls()
        for calls in (stays, leaves):
            commits.join(calls.ring)
        await stays.until(2)
        await leaves.until(2)
        commits.leave(leaves.ring)

        memory.create("notes")
        await stays.until(3)

        assert leaves.count == 2
        looking = asyncio.all_tasks() - {asyncio.current_task()}
        commits.leave(stays.ring)
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.wait(looking)
        assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_looks_are_seldom_while_all_is_quiet(tmp_path, monkeypatch):
    now = itertools.count(0.0, 3.0)
    monkeypatch.setattr("crdtmem.serve.commits.time.monotonic", lambda: next(now))
    pauses = []

    async def sleep(pause_s):
        pauses.append(pause_s)
        if len(pauses) == 4:
            raise asyncio.CancelledError

    with crdtmem.open(tmp_path / "store.db", project="desk") as memory:
        commits = Commits(memory.path)
        monkeypatch.setattr("crdtmem.serve.commits.asyncio.sleep", sleep)
        await asyncio.gather(commits._look(), return_exceptions=True)

    assert pauses == [0.025, 0.1, 0.1, 0.1]
