"""crdtmem.mirror.watching"""

import asyncio
import contextlib
import os
import threading
from collections import deque

import pytest

from crdtmem.errors import SlotNotFoundError, StoreBusyError, StoreFullError
from crdtmem.mirror import watching
from crdtmem.mirror.folder import STATE_NAME

PATIENCE_S = 30


class Recorder:
    """A mirror that notes what it is asked to do, and lets a test wait for it."""

    def __init__(self, folder):
        self.folder = folder
        self.swap = folder / STATE_NAME / "swap"
        self.swap.mkdir(parents=True)
        self.watched = (folder, self.swap)
        self.noted = []
        self.cycles = 0
        self.pause_s = 60.0
        self.faults: deque[Exception] = deque()
        self.threads = set()
        self.gate = threading.Event()
        self.gate.set()
        self.began = threading.Event()

    def note_events(self, names):
        self.noted.append(names)

    def cycle(self, now_s):
        self.threads.add(threading.get_ident())
        self.cycles += 1
        self.began.set()
        assert self.gate.wait(PATIENCE_S)
        if self.faults:
            raise self.faults.popleft()
        return self.pause_s


@pytest.fixture
def recorder(tmp_path):
    return Recorder(tmp_path)


async def until(is_so):
    """Wait for something that the running mirror brings about."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.Event().wait(), 0.01)


@pytest.fixture
async def running(recorder):
    """Run a mirror for the length of a test, and end it in order."""
    stop = asyncio.Event()
    task = asyncio.create_task(watching.run(recorder, stop))
    await until(lambda: recorder.cycles)
    yield recorder
    stop.set()
    async with asyncio.timeout(PATIENCE_S):
        await task


def test_names_add_nothing_to_a_look_at_everything():
    noted = watching.Noted()

    assert noted.take() is None
    noted.add(["a"])
    noted.add(None)
    noted.add(["b"])
    assert noted.take() is None
    assert noted.take() == set()


async def test_it_begins_with_a_look_at_everything(running):
    assert running.noted[0] is None


async def test_a_change_is_told_by_name_also_in_the_folder_of_swapped_files(running):
    (running.folder / "a.md").write_text("a", encoding="utf-8")
    (running.swap / "7").write_text("b", encoding="utf-8")

    def told():
        return set().union(*filter(None, running.noted))

    await until(lambda: {"a.md", os.path.join(STATE_NAME, "swap", "7")} <= told())


async def test_what_lies_deeper_wakes_nobody(running):
    deep = running.folder / "deep"
    deep.mkdir()
    await until(lambda: {"deep"} in running.noted)
    (deep / "x.md").write_text("x", encoding="utf-8")
    (running.folder / "last.md").write_text("y", encoding="utf-8")
    await until(lambda: any("last.md" in (names or ()) for names in running.noted))

    assert not any("deep/x.md" in (names or ()) for names in running.noted)


async def test_the_store_is_looked_at_without_any_event(running):
    before = running.cycles

    await until(lambda: running.cycles > before + 2)

    assert running.noted == [None]


async def test_all_work_is_done_on_one_thread_that_is_not_the_loops(running):
    await until(lambda: running.cycles > 3)

    assert len(running.threads) == 1
    assert threading.get_ident() not in running.threads


async def test_every_file_is_looked_at_now_and_then(recorder, monkeypatch):
    monkeypatch.setattr(watching, "MIRROR_RESCAN_S", 0.0)
    stop = asyncio.Event()
    task = asyncio.create_task(watching.run(recorder, stop))

    await until(lambda: recorder.noted.count(None) > 3)
    stop.set()
    await task


async def test_told_to_end_it_finishes_and_looks_once_more(recorder):
    stop = asyncio.Event()
    recorder.gate.clear()
    task = asyncio.create_task(watching.run(recorder, stop))
    await until(recorder.began.is_set)
    stop.set()
    await until(lambda: not task.done())
    recorder.gate.set()

    await task

    assert recorder.cycles == 2
    assert recorder.noted == [None, None]


async def test_a_cycle_that_has_begun_is_finished_when_the_task_is_cancelled(recorder):
    recorder.gate.clear()
    task = asyncio.create_task(watching.run(recorder))
    await until(recorder.began.is_set)
    task.cancel()
    await until(lambda: recorder.cycles == 1)
    assert not task.done()
    recorder.gate.set()

    with pytest.raises(asyncio.CancelledError):
        await task

    assert recorder.cycles == 1


@pytest.mark.parametrize(
    "fault",
    [
        StoreBusyError(path="x.lock", pid=1, command="x", waited_s=5.0),
        StoreFullError(path="x"),
    ],
)
async def test_a_store_that_cannot_take_anything_is_tried_again(
    recorder, monkeypatch, caplog, fault
):
    monkeypatch.setattr(watching, "MIRROR_RETRY_S", 0.01)
    recorder.faults.append(fault)
    stop = asyncio.Event()
    task = asyncio.create_task(watching.run(recorder, stop))

    await until(lambda: recorder.cycles > 2)
    stop.set()
    await task

    assert recorder.noted == [None, None, None]
    assert "tries again" in caplog.text


async def test_any_other_error_ends_it(recorder):
    recorder.faults.append(SlotNotFoundError(label="plan"))

    with pytest.raises(SlotNotFoundError):
        await watching.run(recorder)

    assert recorder.cycles == 1


async def test_a_folder_that_cannot_be_watched_is_looked_at_instead(
    recorder, monkeypatch, caplog
):
    monkeypatch.setattr(watching, "MIRROR_RETRY_S", 0.01)
    gone = recorder.folder = recorder.folder / "gone"
    recorder.watched = (gone,)
    stop = asyncio.Event()
    task = asyncio.create_task(watching.run(recorder, stop))

    await until(lambda: recorder.noted.count(None) > 2)
    gone.mkdir()

    def is_watched():
        (gone / "a.md").write_text("x", encoding="utf-8")
        return any(recorder.noted)

    await until(is_watched)
    stop.set()
    await task

    assert "cannot be watched" in caplog.text
