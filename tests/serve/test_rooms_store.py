"""The gateway's rooms and the store: busy, full, damaged, and written by all."""

import asyncio
import itertools
import resource
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

import crdtmem
from crdtmem.protocol.codec import write_bytes
from crdtmem.serve.rooms import Room
from tests.replica import exchange_records
from tests.serve.desk import PATIENCE_S, PROJECT
from tests.serve.editing import Editor
from tests.serve.house import content, damage, housed, left, until


@pytest.fixture
def memory(tmp_path):
    with crdtmem.open(tmp_path / "store.db", lane="lane", project=PROJECT) as memory:
        memory.create("plan", "one\ntwo")
        yield memory


@pytest.fixture
def house(tmp_path, memory):
    return partial(housed, tmp_path)


@pytest.mark.requirement("serve-23")
async def test_a_busy_store_ends_connections_and_loses_nothing(house, memory):
    async with house() as one:
        socket = await one.connect().sync()
        await one.room._memory.call(
            lambda found: setattr(found.store, "busy_timeout_s", 0.05)
        )
        with memory.store.writing():
            socket.type("x")
            assert (await socket.until_closed())[0] == 1013
        again = await one.connect().sync()
        again.doc.apply_update(socket.doc.get_update())
        again.send(b"\0\2" + write_bytes(again.doc.get_update()))
        await again.until(0, 2)
    assert content(memory) == "one\ntwo\nx"


@pytest.mark.requirement("serve-23")
async def test_while_the_store_is_busy_editors_wait_for_what_others_wrote(
    house, memory, caplog
):
    async with house() as one:
        socket = await one.connect().sync()
        await one.room._memory.call(
            lambda found: setattr(found.store, "busy_timeout_s", 0.05)
        )
        for task in one.gateway._tasks:
            task.cancel()
        memory.slot("plan").append("lane")
        with memory.store.writing():
            one.room.wake()
            await until(lambda: "editors of a slot wait: store-busy" in caplog.text)
        socket.doc.apply_update(await socket.until(0, 2))
        assert str(socket.text) == "one\ntwo\nlane\n"
        assert not socket.closed.done()


async def test_a_fold_that_found_the_store_busy_is_tried_again(house, memory):
    async with house() as one:
        await one.connect().sync()
        await one.room._memory.call(
            lambda found: setattr(found.store, "busy_timeout_s", 0.05)
        )
        left(memory, "plan")
        with memory.store.writing():
            await one.room._fold()
            assert one.room._tried is None
        await until(lambda: content(memory).endswith("left"))


@pytest.mark.requirement("serve-23")
async def test_a_full_disk_ends_connections_and_keeps_what_was_echoed(house, memory):
    async with house() as one:
        socket = await one.connect().sync()
        socket.type("echoed\n")
        await socket.until(0, 2)
        with full_disk(memory):
            socket.type("x" * 1_000 + "\n")
            assert (await socket.until_closed())[0] == 1013
            # What was echoed waits; what was not is the editor's to send again.
            assert memory.editing("plan", "project").look().unfolded == 1
        again = await one.connect().sync()
        again.doc.apply_update(socket.doc.get_update())
        again.send(b"\0\2" + write_bytes(again.doc.get_update()))
        await again.until(0, 2)
    assert content(memory) == "one\ntwo\nechoed\n" + "x" * 1_000


@contextmanager
def full_disk(memory):
    """Let no file grow beyond what the store's log has."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = Path(f"{memory.path}-wal").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 1, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


@pytest.mark.requirement("serve-23")
async def test_what_is_blocked_is_shown_and_folded_when_it_fits(house, memory):
    memory.slot("plan").set_meta(size_limit=10)
    async with house() as one:
        socket = await one.connect().sync()
        socket.type("more than ten")
        await until(lambda: one.room.blocked == "size-limit-exceeded")
        assert one.gateway.editors_in(PROJECT)[0]["blocked"] == "size-limit-exceeded"
        # Nothing has changed: it is not tried again.
        assert not one.room._is_fold_due()
        async with asyncio.timeout(PATIENCE_S):
            while b"size-limit-exceeded" not in await socket.until(1):
                pass
        memory.slot("plan").set_meta(size_limit=100)
        await until(lambda: content(memory).endswith("more than ten"))


async def test_a_slot_that_was_repaired_takes_what_was_typed(house, memory):
    async with house() as one:
        socket = await one.connect().sync()
        damage(memory, "UPDATE slot SET quarantined = 'x'")
        socket.type("typed")
        await until(lambda: one.room.blocked == "slot-quarantined" or one.room._tried)
        damage(memory, "UPDATE slot SET quarantined = NULL")
        await until(lambda: content(memory).endswith("typed"))


@pytest.mark.requirement("serve-24")
async def test_what_killed_servers_have_left_is_folded_before_and_after_a_start(
    house, memory, monkeypatch
):
    monkeypatch.setattr("crdtmem.serve.gateway.EDITOR_DOC_IDLE_S", 0.05)
    # A slot that takes nothing holds up no other one.
    memory.create("broken", "x")
    left(memory, "broken")
    damage(memory, "UPDATE slot SET quarantined = 'x' WHERE label = 'broken'")
    left(memory, "plan")
    async with house() as one:
        await until(lambda: content(memory).endswith("left"))
        left(memory, "plan")
        await until(lambda: content(memory).endswith("left\nleft"))
        assert not one.gateway._rooms


async def test_rows_that_are_squashed_already_come_as_one_answer(
    house, memory, monkeypatch
):
    monkeypatch.setattr("crdtmem.store.editors.EDITOR_LOG_ROWS", 1)
    async with house() as one:
        socket = await one.connect().sync()
        memory.slot("plan").append("lane")
        socket.doc.apply_update(await socket.until(0, 1))
        assert str(socket.text) == "one\ntwo\nlane\n"


async def test_a_damaged_document_ends_and_another_one_begins(house, memory):
    async with house() as one:
        socket = await one.connect().sync()
        damage(memory, "UPDATE editor_doc SET n = 1, n_state = 1, state = x'00'")
        socket.type("x")
        assert (await socket.until_closed())[0] == 1013
        again = await one.connect().sync()
        assert str(again.text) == "one\ntwo\n"


@pytest.mark.requirement("serve-22")
async def test_twenty_seconds_of_typing_are_few_revs_with_the_right_lanes(
    house, memory, tmp_path
):
    # In steps of half a second, on a clock of the test's own.
    now = itertools.count(1_000.0, 0.5)
    with crdtmem.open(tmp_path / "b" / "store.db", project=PROJECT) as afar:
        async with house() as one:
            calls = await one.gateway._memory(PROJECT)
            editing = await calls.call(lambda m: m.editing("plan", "project"))
            at = next(now)
            room = Room(calls, editing, clock=lambda: at)
            room.members.add(Sitting())
            await room._see()
            slot = memory.slot("plan")
            ana, ben = (
                Editor(memory.editing("plan", "project"), client, lane)
                for client, lane in [(70_000, "yjs:ana"), (80_000, "yjs:ben")]
            )
            for step in range(40):
                each, name = (ben, "ben") if step // 4 % 2 else (ana, "ana")
                each.catch_up()
                types_on(each, name, step)
                assert each.send().code == ""
                at = next(now)
                await room._turn()
                if what := MEANWHILE.get(step):
                    what(slot, afar, memory)
            for _ in range(10):
                at = next(now)
                await room._turn()
            ana.catch_up()
            ben.catch_up()
            await room.close()

    view = slot.read()
    assert str(ana) == str(ben) == f"{view.content}\n"
    blame = {line.text: line.lane for line in slot.blame()}
    typed = [line for line in slot.blame() if line.text[:3] in ("ana", "ben")]
    assert all(line.lane == f"yjs:{line.text[:3]}" for line in typed)
    words = [int(word) for line in typed for word in line.text.split()[2:]]
    assert sorted(words) == [*range(40)]
    assert {blame["lane"], blame["kept"], blame["saved"]} == {"lane"}
    assert blame["from afar"] == afar.lane
    folds = [e for e in slot.history().entries if "yjs:" in e.lane]
    assert 0 < len(folds) <= 20
    assert memory.doctor().ok


def types_on(editor, name, step):
    """Type the next word of a line; each fourth step begins one, at the top."""
    start = f"{name} {step // 4 * 4}"
    if step % 4 == 0:
        editor.type(f"{start}\n", 0)
    text = str(editor)
    editor.type(f" {step}", text.index("\n", text.index(start)))


class Sitting:
    """A member who is there, and no more."""

    lane, since = "yjs:ana", ""

    def settled(self, *_):
        """Learn nothing."""

    hear = end = settled

    def ring(self):
        """Learn nothing."""

    def is_welcome(self):
        return True


def takes_back(slot):
    slot.append("taken back")
    slot.undo(slot.history().entries[0].id)


def condenses(slot):
    before = slot.read()
    shorter = before.content.replace("one", "1").replace("two\n", "")
    slot.condense_text(shorter, base_rev=before.rev)


def from_afar(memory, afar):
    exchange_records([[memory], [afar]])
    afar.slot("plan").append("from afar")
    exchange_records([[memory], [afar]])


def saved(slot):
    # As a mirrored file that was saved a while after it was read.
    before = slot.read()
    slot.append("kept")
    slot.replace(f"saved\n{before.content}", base_rev=before.rev)


def deleted(slot, memory):
    memory.delete("plan")
    slot.undo(slot.history().entries[0].id)


MEANWHILE = {
    1: lambda slot, _, memory: deleted(slot, memory),
    7: lambda slot, *_: slot.append("lane"),
    11: lambda slot, *_: condenses(slot),
    19: lambda slot, *_: takes_back(slot),
    23: lambda _, afar, memory: from_afar(memory, afar),
    30: lambda slot, *_: saved(slot),
}
