"""Several relay processes over one database, and stores that sync with them.

    with cluster(child, url) as world:
        world.add("a", node=0)
        world.add("b", node=1)
        with world.running():
            world.write("a")
            world.crash("n1")
            world.until_settled()
        world.check()

All of them are forks of one child; whoever is killed is followed by another.
"""

import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from crdtmem.protocol.relaying import LogRow
from relay.cli import status_of
from relay.storage.checking import NamespaceCheck
from relay.storage.sqlite.connection import connect
from relay.storage.sqlite.maintenance import check_log
from relay.storage.sqlite.reading import read_slice
from tests import scripts
from tests.child import Child
from tests.databases import check_of, rows_of
from tests.fleet import Fleet
from tests.machines import KILLED, KillAt, Machine, free_port
from tests.scratch import scratch

__all__ = ["Cluster", "Node", "cluster"]

EVENTS = ("forked", "listening", "noted", "applied", "acknowledged")
SCOPES = ("compact", "presence", "write")
ENDS = {0, KILLED, -signal.SIGTERM, 6, 74}
"""In order; killed; told to end too early; without its database; uncertain of it."""


class Node:
    """One of the processes that serve a database, or the one that serves a folder.

    Args:
        name: Of the node.
        folder: Is made; for its settings and its token, and for its log as well where
            no database is named.
        url: Of the database; empty for none.

    """

    def __init__(self, name: str, folder: Path, url: str) -> None:
        self.name = name
        self.folder = folder
        self.port = free_port()
        self._url = ""
        if url:
            folder.mkdir()
            self.move_to(url)
        else:
            assert status_of(["init", str(folder)]) == 0

    def move_to(self, url: str) -> None:
        """Serve a database from the next start on."""
        self._url = url
        settings = self.folder / "relay.toml"
        settings.write_text(f'storage = "{url}"\n', encoding="utf-8")

    def command(self, *, is_hasty: bool) -> dict[str, Any]:
        """Return the script that serves, and its values."""
        arguments = {
            "folder": str(self.folder),
            "port": self.port,
            "is_hasty": is_hasty,
        }
        return {"script": "serve_relay", "arguments": arguments}

    def rows(self) -> list[LogRow]:
        """Return the log of the one namespace."""
        if self._url:
            return rows_of(self._url)
        path = self.folder / "relay.db"
        with closing(connect(path, read_only=True)) as connection:
            return list(read_slice(connection, 1, 0, records=2**30, octets=2**40).rows)

    def check(self) -> list[NamespaceCheck]:
        """Compute all ids and chains anew."""
        return check_of(self._url) if self._url else check_log(self.folder)


class Cluster(Fleet[Node]):
    """Nodes, machines, and all that was written on them.

    Args:
        child: Runs all processes.
        folder: Of everything.
        nodes: All of one database.

    Attributes:
        nodes: As above.
        pids: Of the running processes, by the names of nodes and machines.

    """

    def __init__(self, child: Child, folder: Path, nodes: list[Node]) -> None:
        super().__init__([child], folder, nodes[0])
        self.nodes = nodes
        self.pids: dict[str, int] = {}
        self._child = child

    def add_to(self, node: int, name: str) -> Machine:
        """Make a machine that is linked to one of the nodes."""
        machine = self.adopt(name, self.nodes[node])
        machine.link()
        return machine

    @contextmanager
    def running(self, kill_at: Mapping[str, KillAt] | None = None) -> Iterator[None]:
        """Serve and keep in sync in the block; at its end, everybody ends in order."""
        # Without machines, somebody looks at what clients are told.
        is_hasty = bool(self.machines)
        members = {node.name: node.command(is_hasty=is_hasty) for node in self.nodes}
        for name, machine in self.machines.items():
            members[name] = machine.command(["sync", "start"], is_hasty=True)
        for name, point in (kill_at or {}).items():
            members[name]["kill_at"] = point
        self._child.start(scripts.crowd, members=members)
        self._until_listening({node.name for node in self.nodes})
        try:
            yield
        finally:
            self._end()

    def crash(self, name: str) -> None:
        """Kill a process, and wait until the next one of its name is there."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pids[name], signal.SIGKILL)
        if name not in self.machines:
            self._until_listening({name})

    def until(self, is_so: Callable[[], bool]) -> None:
        """Wait for something that the processes are to bring about."""
        while not is_so():
            self._take_event()

    def until_settled(self) -> None:
        """Wait until all machines hold the same, and the log has all of it."""
        for machine in self.machines.values():
            self.until(machine.is_sent)
        self.until(self.is_settled)

    def _until_listening(self, names: set[str]) -> None:
        while names:
            event = self._take_event()
            if event["event"] == "listening":
                names.discard(event["member"])

    def _take_event(self, *names: str) -> dict[str, Any]:
        event = self._child.wait_for(*(names or EVENTS))
        if event["event"] == "forked":
            self.pids[event["member"]] = event["pid"]
        return event

    def _end(self) -> None:
        event: dict[str, Any] = {"event": ""}
        while event["event"] != "done":
            for pid in self.pids.values():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
            # Another one comes in the place of one that was killed.
            event = self._take_event("forked", "done")
        self.pids.clear()
        found = {status for one in event["result"].values() for status in one}
        assert found <= ENDS, event["result"]


@contextmanager
def cluster(child: Child, url: str, *, nodes: int = 3) -> Iterator[Cluster]:
    """Give nodes of a new database, or one of a new folder; none is serving yet."""
    with scratch() as folder:
        made = [Node(f"n{n}", folder / f"n{n}", url) for n in range(nodes)]
        if not url:
            yield Cluster(child, folder, made)
            return
        scopes = [word for scope in SCOPES for word in ("--scope", scope)]
        token = folder / "token"
        create = ["token", "create", url, "--namespace", "*", *scopes]
        assert status_of([*create, "--out", str(token)]) == 0
        for node in made:
            shutil.copy(token, node.folder / "first.token")
        yield Cluster(child, folder, made)
