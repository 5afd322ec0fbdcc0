"""A relay and the stores that sync with it, each a process in a folder of its own.

A machine syncs by running ``crdtmem sync`` in a process. A relay, and a store that is
kept in sync, are followed by another process when they are killed, as by a supervisor.
`tests.fleet` puts them together.
"""

import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from crdtmem.errors import SlotExistsError
from crdtmem.memory import Memory
from crdtmem.protocol.relaying import LogRow
from crdtmem.sealing import Sealer
from crdtmem.session import Session
from crdtmem.store.compaction import seal_snapshot
from crdtmem.store.links import Link, add_link, find_link
from crdtmem.sync.keyring import read_keyring
from relay.cli import status_of
from relay.storage.checking import NamespaceCheck
from relay.storage.sqlite.connection import connect
from relay.storage.sqlite.maintenance import check_log
from relay.storage.sqlite.reading import read_slice
from tests import scripts
from tests.child import PATIENCE_S, Child
from tests.proxy import ChaosProxy
from tests.scenarios import opened

__all__ = [
    "KEYRING",
    "KILLED",
    "REMOTE",
    "SLOT",
    "Look",
    "Machine",
    "RelayProcess",
    "Served",
    "Syncing",
    "free_port",
    "now_ms",
    "proxied",
]

KILLED = -signal.SIGKILL
SLOT = "plan"
"""The slot that every machine writes to."""

PROJECT = "p"
REMOTE = "team"
KEYRING = "keyring.toml"
ONCE_S = "30"
# Of so many processes, one that holds the lock may not be run for long.
BUSY_S = 60.0

# Below the ports that the system gives to those who connect somewhere.
PORTS = range(20_000, 32_000)

KillAt = tuple[str, int]


class Served(Protocol):
    """What a machine knows of its relay.

    Attributes:
        folder: Where ``first.token`` is.
        port: Where it listens.

    """

    folder: Path
    port: int


class RelayProcess:
    """A relay's folder, and the process that serves it.

    Args:
        child: Runs the process in a fork.
        folder: Is made.
        settings: Lines of relay.toml, of its table of limits.

    """

    def __init__(self, child: Child, folder: Path, settings: str = "") -> None:
        self.folder = folder
        self.port = free_port()
        self.pid = 0
        self._child = child
        assert status_of(["init", str(folder)]) == 0
        with (folder / "relay.toml").open("a", encoding="utf-8") as file:
            file.write(settings)

    def start(
        self,
        *,
        kill_at: KillAt | None = None,
        is_restored: bool = False,
        sweep_s: float | None = None,
    ) -> None:
        """Serve, until `end`; killed, the process is followed by another."""
        arguments = {
            "folder": str(self.folder),
            "port": self.port,
            "is_restored": is_restored,
            "sweep_s": sweep_s,
        }
        self._child.start(
            scripts.supervised,
            script="serve_relay",
            arguments=arguments,
            kill_at=kill_at,
        )
        self.await_start()

    def crash(self) -> None:
        """Kill the process, and wait for the next one."""
        os.kill(self.pid, signal.SIGKILL)
        self.await_start()

    def end(self) -> list[int]:
        """End the process in order; return the status of each that there was."""
        while True:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
            event = self._child.wait_for("listening", "done")
            if event["event"] == "done":
                self.pid = 0
                statuses: list[int] = event["result"]
                return statuses
            # It was killed at its kill point, and here is the next one.
            self.pid = event["pid"]

    def end_anyhow(self) -> None:
        """End it if it is there, in whatever state it is."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.end()

    def copy_to(self, folder: Path) -> None:
        """Copy the folder while nobody serves it."""
        shutil.copytree(self.folder, folder)

    def restore_from(self, folder: Path) -> None:
        """Put an older copy in the place of the folder."""
        shutil.rmtree(self.folder)
        shutil.copytree(folder, self.folder)

    def restore_log_from(self, folder: Path) -> None:
        """Put the log of an older copy in its place, and leave the other files."""
        shutil.copyfile(folder / "relay.db", self.folder / "relay.db")

    def await_sweep(self) -> None:
        """Wait until a sweep is over that begins after this call, or about now."""
        for _ in range(3):
            self._child.wait_for("swept")

    def rows(self) -> list[LogRow]:
        """Return the log of the one namespace, whether it is served or not."""
        with closing(connect(self.folder / "relay.db", read_only=True)) as connection:
            found = read_slice(
                connection, ns_no=1, after=0, records=1_000_000, octets=2**40
            )
        return list(found.rows)

    def check(self) -> list[NamespaceCheck]:
        """Compute all ids and chains anew."""
        return check_log(self.folder)

    def await_start(self) -> None:
        """Wait for the next process that serves."""
        self.pid = self._child.wait_for("listening")["pid"]


class Look(NamedTuple):
    """What a machine's store holds: its slots by label, and what the relay lacks."""

    texts: dict[str, str]
    hashes: dict[str, str]
    unsent: int


class Machine:
    """A store, the environment of its processes, and a child to run them.

    Args:
        child: Runs the processes in forks.
        name: For its lanes.
        folder: The store's; is made unless it is there.
        relay: Whose token it has.

    """

    def __init__(self, child: Child, name: str, folder: Path, relay: Served) -> None:
        folder.mkdir(exist_ok=True)
        self.name = name
        self.path = folder / "store.db"
        self.child = child
        self._relay = relay
        # With a keyring beside it, its namespace is encrypted.
        self._keyring = folder.with_name(KEYRING)
        self._environment = {
            "HOME": str(folder),
            "PATH": os.environ["PATH"],
            "CRDTMEM_STORE": str(self.path),
            "CRDTMEM_PROJECT": PROJECT,
            "CRDTMEM_LANE": name,
        }

    def link(self, port: int | None = None) -> None:
        """Link the store with the relay, perhaps through another port."""
        with self.opened() as memory:
            add_link(
                memory.store,
                namespace=PROJECT,
                remote=REMOTE,
                url=f"ws://127.0.0.1:{port or self._relay.port}",
                token_file=str(self._relay.folder / "first.token"),
                options=self._options(),
            )

    def _options(self) -> dict[str, object]:
        if not self._keyring.exists():
            return {}
        return {"encrypted": True, "keyring": str(self._keyring)}

    def sync(self, kill_at: KillAt | None = None) -> int:
        """Sync until nothing is missing; return -9 if it was killed instead."""
        return self._call("sync", "once", "--timeout", ONCE_S, kill_at=kill_at)[0]

    @contextmanager
    def syncing(self, *, is_hasty: bool = False) -> Iterator["Syncing"]:
        """Keep it in sync in the block; at its end, in order."""
        self._start(["sync", "start"], how=scripts.supervised, is_hasty=is_hasty)
        process = Syncing(self.child)
        try:
            yield process
        finally:
            process.end()

    def alarms(self) -> set[str]:
        """Return the codes of the alarms that ``sync status`` tells."""
        _, out = self._call("sync", "status", "--json")
        (link,) = json.loads(out)["links"]
        return {alarm["code"] for alarm in link["alarms"]}

    def opened(self) -> Memory:
        memory = opened(str(self.path), self.name, busy_timeout=BUSY_S)
        if self._keyring.exists():
            sealer = Sealer(REMOTE, read_keyring(self._keyring))
            memory.store.sealers[PROJECT] = sealer
        return memory

    def look(self) -> Look:
        with self.opened() as memory:
            slots = memory.slots("project", templates=False)
            links = memory.status().sync.links
        return Look(
            {slot.label: str(slot.content) for slot in slots},
            {slot.label: slot.content_hash for slot in slots},
            sum(link.unsent.writes for link in links),
        )

    def is_sent(self) -> bool:
        return not self.look().unsent

    def stored_link(self) -> Link:
        with self.opened() as memory:
            return find_link(memory.store, PROJECT)

    def append(self, label: str, lines: Mapping[str, Sequence[str]]) -> None:
        """Append lines to a slot, by lane; make the slot if it is not there."""
        with self.opened() as memory:
            if label not in {slot.label for slot in memory.slots("project")}:
                # A process that syncs may bring it meanwhile.
                with contextlib.suppress(SlotExistsError):
                    memory.create(label, "", size_limit=1_000_000)
            for lane, texts in lines.items():
                slot = Memory(Session(memory.store, lane, PROJECT)).slot(label)
                for text in texts:
                    slot.append(text)

    def replace_line(self, old: str, new: str) -> None:
        """Write a line in the place of another; in front where there is none."""
        with self.opened() as memory:
            slot = memory.slot(SLOT)
            if old:
                slot.edit(old, new)
            else:
                slot.insert(0, new)

    def content(self) -> bytes:
        """Return the bytes of the store."""
        with self.opened() as memory:
            memory.store.checkpoint()
        return self.path.read_bytes()

    def seal_snapshot(self) -> bool:
        """Seal a snapshot of the one doc, as a store does that may compact."""
        with self.opened() as memory:
            link = find_link(memory.store, PROJECT)
            return seal_snapshot(memory.store, link, 1, max_snapshot_bytes=2**24)

    def command(self, argv: list[str], *, is_hasty: bool = False) -> dict[str, Any]:
        """Return the script that runs a command line of it, and its values."""
        arguments = {
            "argv": argv,
            "environment": self._environment,
            "is_hasty": is_hasty,
        }
        return {"script": "run_command", "arguments": arguments}

    def _call(self, *argv: str, kill_at: KillAt | None = None) -> tuple[int, str]:
        """Run a command to its end; return the status of its process and its output."""
        self._start([*argv, "--verbose"], kill_at=kill_at)
        status: int = self.child.result()
        if status:
            return status, ""
        *_, ended, _ = self.child.events
        assert ended["status"] == 0, ended["err"]
        return 0, ended["out"]

    def _start(
        self,
        argv: list[str],
        *,
        how: Callable[..., Any] = scripts.forked,
        kill_at: KillAt | None = None,
        is_hasty: bool = False,
    ) -> None:
        self.child.start(how, **self.command(argv, is_hasty=is_hasty), kill_at=kill_at)


class Syncing:
    """A process that keeps a store in sync; killed, it is followed by another."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._await_start()

    def wait_for_alarm(self) -> None:
        self._child.wait_for("alarmed")

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Wait for something that this process is to bring about in its store."""
        while not is_so():
            self._child.wait_for("noted", "applied", "acknowledged")

    def wait_until_connected(self, since_ms: int) -> None:
        """Wait until it has made a connection after some time."""
        self._wait_for_state({"connected"}, since_ms)

    def wait_until_lost(self, since_ms: int) -> None:
        """Wait until it has lost its connection after some time."""
        self._wait_for_state({"connecting", "waiting"}, since_ms)

    def crash(self) -> None:
        """Kill the process, and wait for the next one."""
        os.kill(self._pid, signal.SIGKILL)
        self._await_start()

    def end(self) -> None:
        """End it in order; idempotent."""
        if not self._child.is_idle:
            os.kill(self._pid, signal.SIGTERM)
            statuses = self._child.result()
            # The last one may not even have begun to listen to signals.
            assert set(statuses) <= {0, KILLED, -signal.SIGTERM}, statuses

    def _await_start(self) -> None:
        self._pid: int = self._child.wait_for("forked")["pid"]

    def _wait_for_state(self, states: set[str], since_ms: int) -> None:
        while True:
            found = self._child.wait_for("noted")
            if found["state"] in states and found["since_ms"] >= since_ms:
                return


@contextmanager
def proxied(port: int) -> Iterator[tuple[int, Callable[..., None]]]:
    """Run a proxy in a thread; give its port, and what calls a method of it there."""
    ready: Future[tuple[ChaosProxy, asyncio.AbstractEventLoop]] = Future()
    over = asyncio.Event()

    async def run() -> None:
        async with ChaosProxy(port) as proxy:
            ready.set_result((proxy, asyncio.get_running_loop()))
            await over.wait()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    proxy, loop = ready.result(PATIENCE_S)

    def call(method: str, *args: Any) -> None:
        done: Future[None] = Future()
        loop.call_soon_threadsafe(
            lambda: done.set_result(getattr(proxy, method)(*args))
        )
        done.result(PATIENCE_S)

    try:
        yield proxy.port, call
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(PATIENCE_S)


def now_ms() -> int:
    """Return the wall clock, as stores note it."""
    return time.time_ns() // 1_000_000


def free_port() -> int:
    """Return a port that nobody listens on, and that nobody is given by chance."""
    ports = random.Random(os.urandom(8)).sample(PORTS, len(PORTS))
    return next(port for port in ports if not _is_taken(port))


def _is_taken(port: int) -> bool:
    with socket.socket() as plug:
        return plug.connect_ex(("127.0.0.1", port)) == 0
