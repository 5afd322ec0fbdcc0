"""Two sessions that write notes at the same time: what was acknowledged and is gone.

Each session is a process of its own with its own copy of the program, as two agents
would have it. Both write one note after the other; afterwards the notes that were
acknowledged are looked for. All three keep them in one place on this disk: ours in a
slot, server-memory as observations of one entity (one Node.js server per session, over
stdio), Anthropic's memory tool as lines of one file. Times are printed and not
compared: they hold the start of each program, and only two of the three sync.
"""

import asyncio
import importlib
import json
import multiprocessing
import shutil
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path

from bench.peers import ANTHROPIC, SERVER_MEMORY, PeerMissingError, install
from bench.running import Effort, Findings, run
from bench.timing import Count
from bench.workload import folder, lines, open_store

__all__ = ["measure"]

SESSIONS = 2
EDITS = 100
LABEL = "notes"
BARRIER_S = 60

Write = Callable[[Path, Barrier, list[str]], list[str]]
"""Writes notes one by one, and returns those that were acknowledged."""


def measure(effort: Effort) -> Findings:
    """Let two processes make 100 edits each, with us and with each peer."""
    edits = effort.size(EDITS, 10)
    counts = _race("crdtmem", _write_ours, _prepare_ours, _kept_ours, edits)
    peers: dict[str, str] = {}
    contestants = [
        (SERVER_MEMORY, _write_server, _prepare_server, _kept_server),
        (ANTHROPIC, _write_tool, _prepare_tool, _kept_tool),
    ]
    for peer, write, prepare, kept in contestants:
        try:
            install(peer)
            counts += _race(peer.name, write, prepare, kept, edits)
        except (EOFError, PeerMissingError) as error:
            note = f"missing: {str(error) or 'a session ended early'}"
            counts.append(Count(f"lost-{peer.name}-kept", None, "edits", note=note))
            continue
        peers[peer.name] = peer.version
    return Findings(counts=counts, peers=peers)


def _race(
    name: str,
    write: Write,
    prepare: Callable[[Path], None],
    kept: Callable[[Path], str],
    edits: int,
) -> list[Count]:
    spawn = multiprocessing.get_context("spawn")
    with folder() as place:
        prepare(place)
        barrier = spawn.Barrier(SESSIONS)
        start = time.monotonic()
        ends = []
        for number in range(SESSIONS):
            ours, theirs = spawn.Pipe()
            arguments = (write, place, number, edits, barrier, theirs)
            process = spawn.Process(target=_session, args=arguments)
            process.start()
            # Or a session that ends early would be waited for without end.
            theirs.close()
            ends.append((ours, process))
        acknowledged = [note for pipe, _ in ends for note in pipe.recv()]
        for _, process in ends:
            process.join()
        took_s = time.monotonic() - start
        text = kept(place)
    found = sum(note in text for note in acknowledged)
    sent = SESSIONS * edits
    note = f"of {sent} edits, {len(acknowledged)} acknowledged, {took_s:.1f} s"
    target = sent if name == "crdtmem" else None
    return [Count(f"lost-{name}-kept", found, "edits", target, note)]


def _session(
    write: Write,
    place: Path,
    number: int,
    edits: int,
    barrier: Barrier,
    answer: Connection,
) -> None:
    words = lines(number)
    notes = [next(words) for _ in range(edits)]
    answer.send(write(place, barrier, notes))


def _prepare_ours(place: Path) -> None:
    with open_store(place / "store.db") as memory:
        memory.create(LABEL, size_limit=1_000_000)


def _write_ours(place: Path, barrier: Barrier, notes: list[str]) -> list[str]:
    with open_store(place / "store.db") as memory:
        slot = memory.slot(LABEL)
        barrier.wait(BARRIER_S)
        for note in notes:
            slot.append(note)
    return notes


def _kept_ours(place: Path) -> str:
    with open_store(place / "store.db") as memory:
        return str(memory.slot(LABEL).read().content)


def _prepare_server(place: Path) -> None:
    entity = {"type": "entity", "name": LABEL, "entityType": "notes"}
    line = json.dumps(entity | {"observations": []})
    (place / "memory.jsonl").write_text(line, encoding="utf-8")


def _write_server(place: Path, barrier: Barrier, notes: list[str]) -> list[str]:
    return asyncio.run(_observe(place, barrier, notes))


async def _observe(place: Path, barrier: Barrier, notes: list[str]) -> list[str]:
    # Late: without the extra there is still a row for everybody else.
    from mcp import ClientSession, StdioServerParameters, stdio_client  # noqa: PLC0415

    node = shutil.which("node") or "node"
    package = SERVER_MEMORY.packages / SERVER_MEMORY.name
    server = StdioServerParameters(
        command=node,
        args=[str(package / "dist" / "index.js")],
        env={"MEMORY_FILE_PATH": str(place / "memory.jsonl")},
    )
    acknowledged: list[str] = []
    with (place / f"stderr-{time.monotonic_ns()}").open("w", encoding="utf-8") as log:
        async with (
            stdio_client(server, errlog=log) as streams,
            ClientSession(*streams) as session,
        ):
            await session.initialize()
            await asyncio.to_thread(barrier.wait, BARRIER_S)
            for note in notes:
                new = {"entityName": LABEL, "contents": [note]}
                result = await session.call_tool(
                    "add_observations", {"observations": [new]}
                )
                if not getattr(result, "is_error", True):
                    acknowledged.append(note)
    return acknowledged


def _kept_server(place: Path) -> str:
    return (place / "memory.jsonl").read_text(encoding="utf-8")


def _prepare_tool(place: Path) -> None:
    memories = place / "memories"
    memories.mkdir()
    (memories / "notes.txt").write_text("notes\n", encoding="utf-8")


def _write_tool(place: Path, barrier: Barrier, notes: list[str]) -> list[str]:
    sys.path.insert(0, str(ANTHROPIC.packages))
    # By name: it lies in a folder of its own, never among our dependencies.
    refusal = importlib.import_module("anthropic.lib.tools").ToolError
    memory = importlib.import_module("anthropic.tools.memory")
    tool = memory.BetaLocalFilesystemMemoryTool(str(place))
    barrier.wait(BARRIER_S)
    acknowledged: list[str] = []
    for note in notes:
        try:
            tool.call(
                {
                    "command": "insert",
                    "path": "/memories/notes.txt",
                    "insert_line": 1,
                    "insert_text": note,
                }
            )
        except refusal:
            continue
        acknowledged.append(note)
    return acknowledged


def _kept_tool(place: Path) -> str:
    return (place / "memories" / "notes.txt").read_text(encoding="utf-8")


if __name__ == "__main__":
    run(measure)
