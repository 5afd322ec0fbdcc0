"""Real machines: a relay and stores in processes, killed, copied and put back.

Every process is a fork of one of a few children, which are shared by all tests.
"""

import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
from typing import Any

import pytest

from tests.child import PATIENCE_S, ROOT
from tests.conftest import PROFILE
from tests.fleet import fleet
from tests.machines import KILLED, SLOT, free_port, now_ms, proxied
from tests.scenarios import opened

pytestmark = pytest.mark.process

SOAKS = {"default": 1, "campaign": 60}[PROFILE]
IS_CAMPAIGN = PROFILE == "campaign"
NAMESPACES = {"default": ["plain"], "campaign": ["plain", "encrypted"]}[PROFILE]
"""How the namespaces of the machines are; a small part of it all is encrypted always,
in test_encrypted_machines."""

SYNC_POINTS = {
    "write.before-commit": 2,
    "write.after-commit": 1,
    "seal.before-commit": 1,
    "seal.after-commit": 1,
    "put.sent": 3,
    "apply.mid": 1,
    "apply.after-commit": 1,
}
REPAIRS = {
    "copied": "rotate.mid",
    "relay put back": "reestablish.mid",
    "store put back": "rebase.mid",
}
"""Why a store gives up its ids, and at which point it is killed by then."""

RELAY_POINTS = {
    "append.before-commit": 1,
    "append.after-commit": 1,
    "ack.before-send": 1,
    "hwm.before-rename": 2,
}
"""Points, each with how many of its passings the default run tries."""

TROUBLES: list[list[tuple[Any, ...]]] = [
    [("reset",)],
    [("slice", 1)],
    [("hold",), ("release",)],
    [("cut_after", 150, "down")],
    [("blackhole", "down")],
    [("hold", "up"), ("reset",), ("release",)],
    [("blackhole", "up")],
    [("cut_after", 600, "up")],
    [("limit_rate", 3_000)],
    [("blackhole", "down"), ("slice", 3)],
    [("refuse",), ("reset",)],
    [("cut_after", 900, "down")],
]
"""What a network does, one thing after the other; it is healed in between."""

TROUBLES_TRIED = {"default": 5, "campaign": 120}[PROFILE]

BLOCKING = {"blackhole", "cut_after", "refuse"}
"""With these nothing passes until that."""

PUT_BACK = {
    "default": [("told", True), ("noticed", False), ("hidden", True)],
    "campaign": [*itertools.product(["told", "noticed", "hidden"], [False, True])],
}[PROFILE]
"""How a relay comes to have an older log, and whether others write to that first."""

ENDINGS = {"default": [0, 1, 3], "campaign": [n % 5 for n in range(100)]}[PROFILE]
"""How many acknowledgements come before the relay is told to end."""


@pytest.fixture(params=NAMESPACES)
def pair(crew, request):
    """Two machines that hold the same."""
    with fleet(crew, "a", "b", is_encrypted=request.param == "encrypted") as world:
        world.write("a")
        world.settle()
        yield world


def kill_each(points, round_):
    """Do a round for each point and passing; it returns whether that was reached.

    The campaign goes on with a point for as long as it is reached.
    """
    for point, count in points.items():
        nth, is_reached = 0, True
        while is_reached and (IS_CAMPAIGN or nth < count):
            nth += 1
            is_reached = round_((point, nth))
            assert is_reached or IS_CAMPAIGN, (point, nth)


def killed(machine, kill_at):
    status = machine.sync(kill_at=kill_at)
    assert status in (0, KILLED)
    return status == KILLED


@pytest.mark.requirement("P6")
def test_the_commands_are_all_that_two_people_need(tmp_path):
    relay, port = tmp_path / "relay", free_port()
    run("relay", "init", str(relay))
    serving = start("relay", "serve", str(relay), "--listen", f"127.0.0.1:{port}")
    try:
        assert serving.stdout.readline() == f"listening on ws://127.0.0.1:{port}\n"
        people = []
        for name in ("ann", "bob"):
            path = str(tmp_path / name / "store.db")
            with opened(path, name) as memory:
                memory.create("plan", name)
            token = (relay / "first.token").read_text("ascii").strip()
            people.append(
                {
                    "CRDTMEM_STORE": path,
                    "CRDTMEM_PROJECT": "p",
                    "CRDTMEM_RELAY_TOKEN": token,
                }
            )
            url = f"ws://127.0.0.1:{port}"
            run("sync", "link", url, "--on-overlap", "merge", **people[-1])
            run("sync", "once", **people[-1])
        run("sync", "once", **people[0])
        texts = []
        for person in people:
            with opened(person["CRDTMEM_STORE"]) as memory:
                texts.append(str(memory.slot("plan").read().content))
    finally:
        serving.terminate()
        serving.communicate(timeout=PATIENCE_S)

    assert sorted(texts[0].split("\n")) == ["ann", "bob"]
    assert texts[0] == texts[1]
    assert serving.returncode == 0


def start(*argv, **environment):
    return subprocess.Popen(
        [sys.executable, "-m", "crdtmem.cli", *argv],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )


def run(*argv, **environment):
    """Run a command line to its end; return what it says."""
    process = start(*argv, **environment)
    said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, said
    return said


@pytest.mark.requirement("P2", "P6")
def test_what_was_edited_apart_is_there_in_full_on_both_machines(pair):
    for _ in range(2):
        pair.write_everywhere()
        pair.write("a", "notes", 3)
        pair.write("b", "notes", 3)
        pair.settle()
        pair.check()

    a, b = pair.machines.values()
    assert set(a.look().texts) == set(b.look().texts) == {SLOT, "notes"}
    assert a.alarms() == b.alarms() == set()


@pytest.mark.requirement("sync-kill-points")
@pytest.mark.requirement("P1", "P7", "sync-kill-points", "testing-F1")
def test_a_store_that_is_killed_while_it_syncs_loses_and_doubles_nothing(pair):
    a, b = pair.machines.values()

    def round_(kill_at):
        pair.write_everywhere()
        b.sync()
        is_reached = killed(a, kill_at)
        pair.settle()
        pair.check()
        return is_reached

    kill_each(SYNC_POINTS, round_)

    assert a.alarms() == b.alarms() == set()


@pytest.mark.requirement("sync-kill-points")
@pytest.mark.requirement("P1", "P10", "sync-kill-points", "testing-F1")
def test_a_relay_that_is_killed_loses_and_doubles_nothing(pair):
    relay = pair.relay
    relay.end()

    def round_(kill_at):
        relay.start(kill_at=kill_at)
        pair.write_everywhere()
        pair.settle()
        statuses = relay.end()
        pair.check()
        return statuses == [KILLED, 0]

    kill_each(RELAY_POINTS, round_)
    relay.start()

    assert [one.alarms() for one in pair.machines.values()] == [set(), set()]


@pytest.mark.requirement("sync-ack-lost")
@pytest.mark.requirement("P1", "sync-kill-points")
def test_what_is_killed_at_random_loses_and_doubles_nothing(pair):
    chance = random.Random(5)
    machines = list(pair.machines.values())
    for _ in range(SOAKS):
        pair.write_everywhere()
        with machines[0].syncing() as first, machines[1].syncing() as second:
            acts = [pair.relay.crash, first.crash, second.crash] * 2
            for act in chance.sample(acts, len(acts)):
                pair.write(chance.choice("ab"), count=2)
                act()
        pair.settle()
        pair.check()

    assert [one.alarms() for one in machines] == [set(), set()]


@pytest.mark.requirement("P7", "sync-ack-lost")
def test_records_whose_acknowledgement_was_lost_are_stored_once(crew):
    with fleet(crew, "a") as world:
        (a,) = world.machines.values()
        relay = world.relay
        for _ in range(2):
            for number in range(5):
                world.write("a", f"slot{number}", 25)
            relay.end()
            relay.start(kill_at=("ack.before-send", 1))
            a.sync()
            assert relay.end() == [KILLED, 0]
            relay.start()
        world.check()
        rows = relay.rows()
        writes = [
            (envelope.name, write.update)
            for envelope in world.updates()
            for write in envelope.writes
        ]

        assert [row.seq for row in rows] == [row.replica_seq for row in rows]
        # An append each, and the making of each slot.
        assert len(set(writes)) == len(writes) == 500 + 5
        assert a.alarms() == set()


@pytest.mark.requirement("sync-two-uploaders")
@pytest.mark.requirement("sync-two-uploaders")
def test_two_processes_that_sync_one_store_come_to_terms_when_one_ends(pair):
    a, b = pair.machines.values()
    twin = pair.twin("a", beside="b")
    before = a.stored_link().replica_id
    with a.syncing() as first:
        pair.write("a")
        first.wait_until(a.is_sent)
        a.path.with_name("store.sync.lock").unlink()
        with twin.syncing() as second:
            second.wait_for_alarm()
            first.end()
            pair.write("a")
            second.wait_until(a.is_sent)
    pair.settle()
    pair.check()

    assert a.stored_link().replica_id != before
    assert a.alarms() <= {"replica-duplicate", "replica-fork"}
    assert a.alarms()
    assert b.alarms() == set()


@pytest.mark.requirement("sync-relay-restored")
@pytest.mark.requirement("P1", "sync-relay-restored")
@pytest.mark.parametrize(("how", "others_wrote"), PUT_BACK)
def test_a_relay_that_was_put_back_gets_everything_again(pair, how, others_wrote):
    alarm = "relay-forked" if how == "hidden" else "relay-restored"
    a, b = pair.machines.values()
    c = pair.add("c")
    c.sync()
    put_back(pair, how, lost=["a", "b"])
    if others_wrote:
        pair.write("c", count=5)
        c.sync()
    pair.settle()
    pair.check()

    assert a.alarms() == b.alarms() == {alarm}
    assert c.alarms() == set()
    assert set(pair.states().values()) <= {1}


def put_back(world, how, lost):
    """Have a relay go on from a copy; the machines that have written since remain."""
    relay, copy = world.relay, world.folder / "relay.old"
    relay.end()
    relay.copy_to(copy)
    relay.start()
    for name in lost:
        world.write(name)
        world.write(name, f"of_{name}")
    for name in [*lost, *lost]:
        world.machines[name].sync()
    relay.end()
    if how == "noticed":
        relay.restore_log_from(copy)
    else:
        relay.restore_from(copy)
    shutil.rmtree(copy)
    relay.start(is_restored=how == "told")


@pytest.mark.requirement("sync-store-rolled-back")
@pytest.mark.requirement("sync-store-rolled-back", "testing-F11")
def test_a_store_that_was_put_back_in_place_keeps_both_texts(pair):
    a, b = pair.machines.values()
    old = a.content()
    before = a.stored_link().replica_id
    pair.write("a", count=3)
    pair.settle()
    pair.roll_back("a", old)
    pair.write("a", count=2)
    pair.write("b")
    pair.settle()
    pair.check()

    assert a.alarms() == {"store-rolled-back"}
    assert b.alarms() == set()
    assert a.stored_link().replica_id != before


@pytest.mark.requirement("sync-store-rolled-back")
def test_a_store_that_was_put_back_and_wrote_as_much_again_keeps_both_texts(pair):
    """The relay cannot tell from numbers alone."""
    a, b = pair.machines.values()
    old = a.content()
    pair.write("a")
    pair.settle()
    pair.roll_back("a", old)
    pair.write("a", count=2)
    pair.settle()
    pair.check()

    assert a.alarms() <= {"store-rolled-back", "replica-fork"}
    assert a.alarms()
    assert b.alarms() == set()


@pytest.mark.requirement("sync-copied-store")
@pytest.mark.requirement("testing-F11")
def test_both_of_a_store_and_its_copy_keep_what_they_wrote(pair):
    a, b = pair.machines.values()
    pair.write("a")
    c = pair.copy("a", "c")
    pair.write("a", count=2)
    pair.write("c", count=2)
    pair.settle()
    pair.check()

    assert len({one.stored_link().replica_id for one in (a, b, c)}) == 3
    assert [one.alarms() for one in (a, b, c)] == [set()] * 3


@pytest.mark.requirement("sync-kill-points")
@pytest.mark.requirement("sync-kill-points", "testing-F1")
@pytest.mark.parametrize("why", REPAIRS)
def test_a_store_that_is_killed_while_it_gives_up_its_ids_keeps_every_text(pair, why):
    def round_(kill_at):
        pair.write_everywhere()
        name = give_reason(pair, why)
        is_reached = killed(pair.machines[name], kill_at)
        pair.settle()
        pair.check()
        if name == "copy":
            pair.retire(name)
            shutil.rmtree(pair.folder / name)
        return is_reached

    kill_each({REPAIRS[why]: 1, **(SYNC_POINTS if IS_CAMPAIGN else {})}, round_)


def give_reason(world, why):
    """Let something happen to a machine, or the relay; return whom it concerns."""
    if why == "copied":
        world.write("a")
        world.copy("a", "copy")
        world.write("copy")
        return "copy"
    if why == "relay put back":
        put_back(world, "told", lost=["a"])
    else:
        a = world.machines["a"]
        old = a.content()
        world.write("a")
        a.sync()
        world.roll_back("a", old)
    world.write("a")
    return "a"


@pytest.mark.requirement("sync-kill-points", "testing-F1")
def test_a_relay_that_is_killed_while_it_drops_payloads_serves_newcomers(crew):
    settings = "grace_ms = 0\n"
    with fleet(crew, "a", settings=settings) as world:
        (a,) = world.machines.values()
        relay = world.relay
        for _ in range(3):
            world.write("a", count=3)
            a.sync()
        assert a.seal_snapshot()
        a.sync()
        relay.end()
        relay.start(kill_at=("sweep.mid", 1), sweep_s=0.05)
        relay.await_start()
        relay.await_sweep()
        dropped = [row.seq for row in relay.rows() if row.record is None]
        world.write("a")
        world.add("b")
        world.settle()
        world.check()

        assert dropped == [1, 2, 3]
        assert relay.end() == [KILLED, 0]


@pytest.mark.requirement("sync-shutdown")
@pytest.mark.requirement("sync-shutdown")
def test_a_relay_that_is_told_to_end_has_all_that_it_acknowledged(pair):
    a, _ = pair.machines.values()
    relay = pair.relay
    for acks in ENDINGS:
        with a.syncing() as process:
            for _ in range(acks):
                pair.write("a")
                process.wait_until(a.is_sent)
            pair.write("a", count=2)
            assert relay.end() == [0]
            link = a.stored_link()
            rows = [row for row in relay.rows() if row.replica_id == link.replica_id]
        assert [row.replica_seq for row in rows] == list(range(1, len(rows) + 1))
        assert acks <= link.acked_seq <= len(rows)
        relay.start()
        pair.settle()
        pair.check()


@pytest.mark.requirement("sync-stopped-relay")
def test_a_relay_that_stands_still_is_noticed_and_gone_on_with(crew):
    with fleet(crew, "a", settings="heartbeat_s = 0.3\n") as world:
        (a,) = world.machines.values()
        with a.syncing(is_hasty=True) as process:
            world.write("a")
            process.wait_until(a.is_sent)
            began_ms = now_ms()
            os.kill(world.relay.pid, signal.SIGSTOP)
            world.write("a")
            process.wait_until_lost(began_ms)
            os.kill(world.relay.pid, signal.SIGCONT)
            process.wait_until(a.is_sent)
        world.settle()
        world.check()


@pytest.mark.requirement("sync-chaos")
@pytest.mark.requirement("sync-chaos")
def test_machines_behind_a_bad_network_come_to_hold_the_same(crew):
    settings = "heartbeat_s = 0.3\ndead_s = 2.5\n"
    with (
        fleet(crew, settings=settings) as world,
        proxied(world.relay.port) as (port, call),
    ):
        a, b = world.add("a", port=port), world.add("b", port=port)
        world.write("a")
        world.settle()
        with a.syncing(is_hasty=True) as first, b.syncing(is_hasty=True) as second:
            for trouble in itertools.islice(itertools.cycle(TROUBLES), TROUBLES_TRIED):
                began_ms = now_ms()
                call("heal")
                for process in (first, second):
                    process.wait_until_connected(began_ms)
                began_ms = now_ms()
                for method, *values in trouble:
                    call(method, *values)
                world.write("a")
                world.write("b")
                if BLOCKING.isdisjoint(method for method, *_ in trouble):
                    first.wait_until(a.is_sent)
                else:
                    first.wait_until_lost(began_ms)
            call("heal")
            first.wait_until(a.is_sent)
            second.wait_until(b.is_sent)
            first.wait_until(lambda: world.is_whole(a))
            second.wait_until(lambda: world.is_whole(b))
        world.settle()
        world.check()

        assert a.alarms() == b.alarms() == set()
