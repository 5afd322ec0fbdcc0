"""crdtmem.sync.driver and crdtmem.sync.line, over real sockets"""

import asyncio
import contextlib
import threading
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from crdtmem.errors import (
    LinkNotFoundError,
    RelayRefusedError,
    RelayUnreachableError,
)
from crdtmem.memory import Memory
from crdtmem.session import Session
from crdtmem.store.link_status import link_reports
from crdtmem.store.links import add_link, find_link, remove_link
from crdtmem.store.outbox import unsent_counts
from crdtmem.store.store import Store
from crdtmem.sync.board import Board
from crdtmem.sync.driver import Driver
from crdtmem.sync.engine import Ended
from crdtmem.sync.journal import Journal
from crdtmem.sync.line import Line
from tests.proxy import ChaosProxy
from tests.relay.live import PATIENCE_S
from tests.sync.relays import RunningRelay

PROJECT = "demo"
# Never set: a store's file tells nobody of its changes.
LOOK_AGAIN = threading.Event()


@pytest.fixture(scope="module")
def running():
    relay = RunningRelay()
    yield relay
    relay.stop()


class Machine:
    """A store with a link, one that writes there, and one that syncs."""

    def __init__(self, path, url, token, remote):
        self.store = Store(path, durability="normal")
        self.token = token
        self.writer = Memory(
            Session(Store(path, durability="normal"), path.stem, PROJECT)
        )
        add_link(
            self.store,
            namespace=PROJECT,
            remote=remote,
            url=url,
            token_file="",
            options={},
        )
        self.driver = Driver(self.store, token=token, rng=Random(1))
        self.board = Board()

    def write(self, label, text):
        self.writer.create(label, text)

    def labels(self):
        return {slot.label for slot in self.writer.slots("project", templates=False)}

    def notes(self):
        with self.store.reading() as connection:
            return link_reports(connection)[0].notes

    async def once(self, timeout_s=PATIENCE_S):
        driver = Driver(self.store, token=self.token, rng=Random(1))
        await driver.once(timeout_s=timeout_s)

    async def until(self, holds):
        """Wait until something is so."""
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                await asyncio.to_thread(LOOK_AGAIN.wait, 0.01)

    @contextlib.asynccontextmanager
    async def running(self):
        """Sync until the block ends."""
        async with asyncio.TaskGroup() as tasks:
            self.driver = Driver(
                self.store, token=self.token, rng=Random(1), board=self.board
            )
            task = tasks.create_task(self.driver.run())
            yield self.driver
            self.driver.stop()
            async with asyncio.timeout(PATIENCE_S):
                await task


@pytest.fixture
def machine(tmp_path, running, request):
    made = []

    def make(name, *, url=None, token=None, remote=None):
        remote = remote or request.node.name.split("[")[0].replace("_", "-")[:60]
        path = tmp_path / f"{name}.db"
        token = token or running.token
        made.append(Machine(path, url or running.url, token, remote))
        return made[-1]

    yield make
    for each in made:
        each.writer.close()
        each.store.close()


async def test_two_machines_are_in_step_after_each_has_synced_once(machine):
    ann, bob = machine("ann"), machine("bob")
    ann.write("plan", "one")
    bob.write("todo", "two")

    await ann.once()
    await bob.once()
    await ann.once()

    assert ann.labels() == bob.labels() == {"plan", "todo"}
    assert ann.notes()["is_in_sync"]
    assert ann.notes()["fault"] is None


async def test_a_write_of_another_handle_is_sent_while_it_runs(machine):
    ann, bob = machine("ann"), machine("bob")
    async with ann.running(), bob.running():
        ann.write("plan", "one")
        await bob.until(lambda: "plan" in bob.labels())
        bob.write("todo", "two")
        bob.driver.wake()
        await ann.until(lambda: "todo" in ann.labels())


async def test_what_stores_are_at_is_told_while_both_are_connected(machine):
    ann, bob = machine("ann"), machine("bob")
    ann.board.own[PROJECT] = b"in plan"

    def heard():
        return list(bob.board.others.get(PROJECT, {}).values())

    async with bob.running():
        async with ann.running():
            await bob.until(lambda: heard() == [b"in plan"])
            ann.board.own[PROJECT] = b"in notes"
            ann.driver.wake()
            await bob.until(lambda: heard() == [b"in notes"])
        await bob.until(lambda: heard() == [])

        assert PROJECT in bob.board.others

    assert bob.board.others == {}


async def test_what_was_written_last_is_sent_before_it_stops(machine):
    ann, bob = machine("ann"), machine("bob")
    async with ann.running():
        await ann.until(lambda: ann.notes().get("state") == "connected")
        ann.write("plan", "one")

    await bob.once()

    assert bob.labels() == {"plan"}


async def test_a_relay_that_is_not_up_yet_is_found_when_it_is(machine):
    relay = RunningRelay()
    await asyncio.to_thread(relay.stop)
    ann, bob = (machine(name, url=relay.url, token=relay.token) for name in "ab")
    ann.write("plan", "one")
    async with ann.running(), bob.running():
        await ann.until(lambda: ann.notes().get("state") == "waiting")
        fault = ann.notes()["fault"]
        assert (fault["code"], fault["permanent"]) == ("connection-refused", False)
        await asyncio.to_thread(relay.start)
        await bob.until(lambda: "plan" in bob.labels())
        await ann.until(lambda: ann.notes()["fault"] is None)
    await asyncio.to_thread(relay.stop)


async def test_a_relay_that_says_bye_is_left_alone_for_as_long_as_it_asks(machine):
    relay = RunningRelay()
    ann = machine("ann", url=relay.url, token=relay.token)
    async with ann.running() as driver:
        await ann.until(lambda: ann.notes().get("state") == "connected")
        await asyncio.to_thread(relay.stop)
        await ann.until(lambda: ann.notes()["state"] == "waiting")
        (line,) = driver._lines
        assert line.last.code == "shutdown"
        assert line.last.retry_s >= 0.5
        assert line.last.retry_s <= line._asked_wait(line.last) <= 10.0


async def test_a_token_that_is_taken_back_stops_the_link(machine, running):
    token = running.add_token("write", token_id="revokedaaa")
    ann = machine("ann", token=token)
    async with ann.running():
        await ann.until(lambda: ann.notes().get("state") == "connected")
        running.revoke(token)
        await ann.until(lambda: ann.notes()["state"] == "stopped")

    fault = ann.notes()["fault"]
    assert (fault["code"], fault["permanent"]) == ("token-revoked", True)


async def test_a_stopped_link_goes_on_with_another_token(machine, running, tmp_path):
    file = tmp_path / "token"
    file.write_text("cm1_wrong", encoding="utf-8")
    file.chmod(0o600)
    ann = machine("ann")
    with ann.store.writing() as transaction:
        transaction.connection.execute(
            "UPDATE link SET token_file = :file", {"file": str(file)}
        )
    async with ann.running():
        await ann.until(lambda: ann.notes().get("state") == "stopped")
        assert ann.notes()["fault"]["code"] == "unauthorized"

        file.write_text(running.token, encoding="utf-8")

        await ann.until(lambda: ann.notes()["state"] == "connected")


async def test_a_driver_ends_when_the_last_link_is_taken_away(machine):
    ann = machine("ann")
    driver = Driver(ann.store, token=ann.token)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(driver.run())
        await ann.until(lambda: ann.notes().get("state") == "connected")
        remove_link(ann.writer.store, find_link(ann.store, PROJECT))
        async with asyncio.timeout(PATIENCE_S):
            await task


async def test_without_a_link_there_is_nothing_to_sync_once(machine):
    ann = machine("ann")
    remove_link(ann.store, find_link(ann.store, PROJECT))

    with pytest.raises(LinkNotFoundError, match="this store"):
        await ann.once()


@pytest.mark.parametrize(
    ("token", "cause"),
    [("cm1_wrong", "unauthorized"), (None, "token-missing")],
)
async def test_a_wrong_token_or_none_is_a_refusal(machine, token, cause):
    ann = machine("ann")
    ann.token = token

    with pytest.raises(RelayRefusedError) as refusal:
        await ann.once()

    assert refusal.value.cause == cause
    assert ann.notes()["state"] == "connecting"


@pytest.mark.parametrize(
    ("url", "cause"),
    [("ws://192.0.2.1", "insecure-url"), ("ws://localhost:1/x", "not-found")],
)
async def test_a_relay_that_cannot_be_is_a_refusal(machine, running, url, cause):
    ann = machine("ann", url=url.replace("localhost:1", f"127.0.0.1:{running.port}"))

    with pytest.raises(RelayRefusedError) as refusal:
        await ann.once()

    assert refusal.value.cause == cause


async def test_a_relay_that_is_not_there_is_waited_for_but_not_longer(machine):
    ann = machine("ann", url="ws://127.0.0.1:1")

    with pytest.raises(RelayUnreachableError) as refusal:
        await ann.once(timeout_s=0.2)

    assert refusal.value.cause == "connection-refused"
    assert "nothing listens there" in refusal.value.message


async def test_a_connect_that_hangs_ends_when_the_time_is_over(machine):
    done = asyncio.Event()

    async def silence(reader, writer):
        await reader.read()
        writer.close()
        done.set()

    async with await asyncio.start_server(silence, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        ann = machine("ann", url=f"ws://127.0.0.1:{port}")
        with pytest.raises(RelayUnreachableError) as refusal:
            await ann.once(timeout_s=0.1)
        await done.wait()

    assert refusal.value.cause == "timeout"


async def test_what_a_token_does_not_let_through_is_told(machine, running):
    await machine("bob").once()
    ann = machine("ann", token=running.add_token("read", token_id="readeraaaa"))
    ann.write("plan", "one")

    with pytest.raises(RelayRefusedError, match="writes of 'demo' were not taken"):
        await ann.once()


async def test_what_is_asked_for_again_and_never_comes_is_told(machine, running):
    ann = machine("ann", token=running.add_token("read", token_id="readerbbbb"))

    with pytest.raises(RelayUnreachableError) as refusal:
        await ann.once(timeout_s=0.3)

    assert refusal.value.cause == "namespace-not-found"


async def test_a_namespace_out_of_bounds_is_told(machine, running):
    token = running.add_token("write", token_id="otherspace", pattern="elsewhere")

    with pytest.raises(RelayRefusedError) as refusal:
        await machine("ann", token=token).once()

    assert refusal.value.cause == "forbidden"


async def test_a_store_that_is_busy_is_tried_again(machine):
    ann, bob = machine("ann"), machine("bob")
    ann.store.busy_timeout_s = 0
    async with ann.running():
        await ann.until(lambda: ann.notes().get("state") == "connected")
        with bob.writer.store.lock.held(1), ann.writer.store.lock.held(1):
            pass
        ann.writer.store.lock.acquire(1)
        try:
            bob.write("plan", "one")
            await bob.once()
        finally:
            ann.writer.store.lock.release()
        await ann.until(lambda: "plan" in ann.labels())


async def test_two_links_of_one_relay_share_a_line_and_others_do_not(machine, tmp_path):
    ann = machine("ann")
    for namespace, remote, url, file in (
        ("global", "me", None, ""),
        ("other", "other", "ws://127.0.0.1:1", ""),
        ("third", "third", None, str(tmp_path / "token")),
    ):
        add_link(
            ann.store,
            namespace=namespace,
            remote=remote,
            url=url or find_link(ann.store, PROJECT).url,
            token_file=file,
            options={},
        )

    with pytest.raises((RelayRefusedError, RelayUnreachableError)):
        await ann.once(timeout_s=0.3)

    with ann.store.reading() as connection:
        states = {r.link.namespace: r.notes for r in link_reports(connection)}
    assert states["demo"]["state"] == states["global"]["state"] == "connected"
    assert states["other"]["fault"]["code"] == "connection-refused"
    assert states["third"]["fault"] is None


async def test_a_connection_that_is_cut_is_made_again(machine, running):
    async with ChaosProxy(running.port) as proxy:
        ann = machine("ann", url=f"ws://127.0.0.1:{proxy.port}")
        async with ann.running() as driver:
            await ann.until(lambda: ann.notes().get("state") == "connected")
            proxy.reset()
            ann.write("plan", "one")
            (line,) = driver._lines
            await ann.until(lambda: line.last is not None)
            assert line.last.code == "connection-lost"
            assert not line.last.is_permanent
            await ann.until(lambda: unsent_of(ann) == 0)


async def test_a_relay_that_says_nothing_is_not_waited_for_at_the_end(machine, running):
    async with ChaosProxy(running.port) as proxy:
        ann = machine("ann", url=f"ws://127.0.0.1:{proxy.port}")
        async with ann.running():
            await ann.until(lambda: ann.notes().get("state") == "connected")
            proxy.blackhole("down")
            ann.write("plan", "one")
            await ann.until(lambda: find_link(ann.store, PROJECT).sealed_seq)

        assert unsent_of(ann) > 0


def unsent_of(machine):
    return unsent_counts(machine.store, find_link(machine.store, PROJECT)).writes


class ScriptedLine(Line):
    """A line whose connections end as they are told to."""

    ends: Sequence[Any] = ()
    made = 0

    async def _connection(self):
        self.made += 1
        end = self.ends[self.made - 1]
        if callable(end):
            end()
            return self.ends[self.made]
        return end


def ended(code="connection-lost", **fields):
    return Ended(code, "it ended", **{"is_permanent": False, **fields})


@pytest.fixture
def scripted(machine):
    """A line that is not there, whose waits are over at once."""

    class Impatient(Random):
        waits: tuple[float, ...] = ()

        def uniform(self, low, high):
            self.waits = (*self.waits, high)
            return 0.0

    rng = Impatient(1)
    ann = machine("ann")
    line = ScriptedLine(
        ann.store,
        [find_link(ann.store, PROJECT)],
        incarnation=bytes(16),
        token="x",
        journal=Journal(ann.store),
        rng=rng,
        until_settled=True,
    )
    return line, rng


async def test_restarts_are_quick_until_they_are_too_many(scripted):
    line, rng = scripted
    line.ends = [ended(is_restart=True)] * 6 + [ended(is_permanent=True)]

    await line.run()

    assert line.made == 7
    # Of the backoff, and of what the relay asks for.
    assert rng.waits == (0.5, 0.0)


async def test_the_waits_grow_until_a_connection_has_held_for_a_while(scripted):
    line, rng = scripted
    held = ended(open_s=60.0)
    line.ends = [ended(), ended(), held, ended(retry_s=0.001), ended(is_permanent=True)]

    await line.run()

    assert rng.waits == (0.5, 0.0, 1.0, 0.0, 0.5, 0.0, 1.0, 0.001)


async def test_a_line_that_is_stopped_makes_no_other_connection(scripted):
    line, _ = scripted
    line.ends = [line.stop, ended()]

    await line.run()

    assert line.made == 1
