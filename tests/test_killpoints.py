"""Kill points: each stands for a place in the product, and is passed."""

import shutil
from pathlib import Path

import pytest

import tests.oracle
from crdtmem.mirror.mirror import Mirror
from crdtmem.sets.values import CompactionPolicy
from crdtmem.store.links import add_link
from crdtmem.sync.driver import Driver
from relay.storage.sqlite.folder import init_folder
from relay.storage.sqlite.storage import SqliteStorage
from tests.condense.stress_scripts import BASE, summarised
from tests.killpoints import KILL_POINTS, KillPoint, counted, install
from tests.oracle import Verdict, token
from tests.relay.live import PATIENCE_S, live_relay
from tests.scenarios import SCENARIOS, do_step, opened, prepare
from tests.scratch import scratch
from tests.serve.editing import Editor, settled
from tests.sets.set_scripts import joined, set_of


def test_a_point_before_a_function_is_passed_before_it_does_anything():
    events = []
    point = KillPoint("tests.oracle", "token", "before")

    uninstall = install(point, lambda: events.append("passed"))
    events.append(tests.oracle.token("a", 1))
    uninstall()

    assert events == ["passed", "a#00001=" + token("a", 1)[8:]]
    assert tests.oracle.token("a", 1) == token("a", 1)
    assert events[2:] == []


def test_a_point_is_found_in_each_module_that_imported_the_function():
    events = []

    uninstall = install(
        KillPoint("tests.oracle", "token", "after"), lambda: events.append("passed")
    )
    token("a", 1)
    uninstall()
    token("a", 1)

    assert events == ["passed"]


def test_a_point_acts_at_its_nth_passing_only():
    calls = iter(range(10))
    acted = []
    point = KillPoint("tests.oracle", "token", "before")

    uninstall = install(point, lambda: acted.append(number), nth=3)
    for number in calls:
        token("a", number)
    uninstall()

    assert acted == [2]


async def test_a_coroutine_is_passed_after_it_has_returned():
    events = []
    point = KillPoint("tests.test_killpoints", "returning", "after")

    uninstall = install(point, lambda: events.append("passed"))
    await returning(events)
    uninstall()

    assert events == ["returned", "passed"]


async def returning(events):
    events.append("returned")


def test_a_method_is_wrapped_on_its_class():
    events = []
    original = Verdict.__eq__

    uninstall = install(
        KillPoint("tests.oracle", "Verdict.__eq__", "after"),
        lambda: events.append("passed"),
    )
    assert Verdict() == Verdict()
    uninstall()

    assert events == ["passed"]
    assert Verdict.__eq__ is original


async def test_every_point_stands_for_a_place_that_some_scenario_passes():
    with scratch() as folder:
        # What is loaded late must not be loaded with the points in it.
        condense(folder)
        mirror(folder)
        type_and_fold(folder)
    with scratch() as folder, counted() as passed:
        for name in SCENARIOS:
            prepare(name, folder / name)
            do_step(name, folder / name)
        condense(folder / "condensed")
        compact(folder / "compacted")
        mirror(folder / "mirrored")
        type_and_fold(folder / "typed")
        await sync_and_repair(folder)

    assert set(passed) == set(KILL_POINTS)


def condense(folder):
    with opened(folder / "store.db") as memory:
        memory.create("plan", BASE, size_limit=9_000)
        result = memory.slot("plan").condense(summarised, keep_sections=1, force=True)
    assert result.condensed, result


def compact(folder):
    with opened(folder / "store.db") as memory:
        notes = set_of(memory)
        notes.add("text")
        result = notes.compact(CompactionPolicy(joined, capacity=1))
        report = memory.index()
    assert result.added, result
    assert report.indexed, report


def type_and_fold(folder):
    with opened(folder / "store.db") as memory:
        memory.create("typed", "one")
        editing = memory.editing("typed", "project")
        editor = Editor(editing)
        editor.type("two")
        assert settled(editing, editor).folded == 1


def mirror(folder):
    """Have a file swapped in both ways, with a tool that goes on writing to it."""
    now_s = 0.0

    def wait(seconds):
        nonlocal now_s
        now_s += seconds

    (folder / "notes").mkdir(parents=True, exist_ok=True)
    with opened(folder / "store.db") as memory:
        memory.create("mirrored", "one")
        mirror = Mirror(memory, folder / "notes", clock=lambda: now_s, wait=wait)
        with mirror:
            mirror.sync_once()
            for can_exchange in (True, False):
                mirror._folder.can_exchange = can_exchange
                with (folder / "notes" / "mirrored.md").open("ab", 0) as held:
                    held.write(b"early\n")
                    memory.slot("mirrored").append("more")
                    mirror.sync_once()
                    held.write(b"late\n")
                while mirror.status().retired:
                    mirror.note_events(None)
                    wait(mirror.cycle(now_s))


async def sync_and_repair(folder):
    """Sync two stores; put one of them back to older bytes, then the relay."""
    relay, copy = folder / "relay", folder / "copy"
    init_folder(relay, now_ms=0)
    shutil.copytree(relay, copy)
    paths = [str(folder / name / "store.db") for name in ("one", "other")]
    async with live_relay(SqliteStorage(relay)) as live:
        for path in paths:
            link(path, live.port)
        await write_and_sync(paths[0], live)
        await write_and_sync(paths[1], live)
        put_back = older_bytes(Path(paths[0]))
        await write_and_sync(paths[0], live)
        put_back()
        await write_and_sync(paths[0], live)
        await live.storage.sweep(0, 1)
    async with live_relay(SqliteStorage(copy), port=live.port) as live:
        await write_and_sync(paths[0], live)


def older_bytes(path):
    """Keep a file's bytes; return what puts them back in their place."""
    old = path.read_bytes()

    def put_back():
        with path.open("r+b") as file:
            file.write(old)
            file.truncate()

    return put_back


def link(path, port):
    with opened(path) as memory:
        add_link(
            memory.store,
            namespace="p",
            remote="team",
            url=f"ws://127.0.0.1:{port}",
            token_file="",
            options={},
        )
        memory.create("plan", path)


async def write_and_sync(path, live):
    with opened(path) as memory:
        memory.slot("plan").append("more")
        await Driver(memory.store, token=live.token).once(timeout_s=PATIENCE_S)


def test_a_point_whose_function_is_gone_is_an_error():
    with pytest.raises(AttributeError):
        install(KillPoint("tests.oracle", "Verdict.gone", "after"), lambda: None)
