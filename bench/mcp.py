"""The MCP server: how long a client waits for it, and what a model has to read.

The start is that of the process until it has answered the first ``tools/list``, against
a server without tools on the same SDK, whose import takes most of it. Tokens are
characters divided by four: of the tools as a client hands them to a model, and of the
blocks of a reply.
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.running import Effort, Findings, run
from bench.startup import clean_environment
from bench.timing import Count, comparison
from bench.workload import folder, lines, open_store

__all__ = ["measure"]

TARGET = 1.5
CHARS_A_TOKEN = 4
NOTES = 20

EMPTY = """
import asyncio

from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp_types import ListToolsResult


async def no_tools(context, params):
    return ListToolsResult(tools=[])


async def main():
    server = Server("empty", on_list_tools=no_tools)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


asyncio.run(main())
"""

REQUESTS: tuple[dict[str, Any], ...] = (
    {
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "bench", "version": "1"},
        },
    },
    {"method": "notifications/initialized"},
    {"id": 2, "method": "tools/list"},
)


def measure(effort: Effort) -> Findings:
    """Start both servers by turns; then count what a model reads."""
    with folder() as place:
        environment = clean_environment(place)
        ours = [sys.executable, "-m", "crdtmem", "mcp"]
        empty = [sys.executable, "-c", EMPTY]
        times: dict[str, tuple[list[float], list[float]]] = {
            "mcp-start": ([], []),
            "mcp-start-processor": ([], []),
        }
        for turn in range(1 + effort.rounds_of()):
            # Who goes first changes, so that neither always finds the caches warm.
            for which in (0, 1) if turn % 2 else (1, 0):
                taken = _start((ours, empty)[which], environment, place)
                # The first round fills the cache of byte code.
                if turn:
                    for found, seconds in zip(times.values(), taken, strict=True):
                        found[which].append(seconds)
        comparisons = [
            comparison(name, *found, against=f"a server without tools{of}", target=to)
            for (name, found), of, to in zip(
                times.items(), ("", ", processor time"), (TARGET, None), strict=True
            )
        ]
        return Findings(comparisons, _tokens(place))


def _start(
    command: Sequence[str], environment: Mapping[str, str], place: Path
) -> tuple[float, float]:
    """Return the time until the first answer, and the processor time of it all."""
    before_s = _processor_s()
    start_s = time.perf_counter()
    with subprocess.Popen(
        command,
        env=environment,
        cwd=place,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("a pipe is missing")
        for request in REQUESTS:
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **request}) + "\n")
        process.stdin.flush()
        while json.loads(process.stdout.readline()).get("id") != 2:
            pass
        waited_s = time.perf_counter() - start_s
        process.stdin.close()
    return waited_s, _processor_s() - before_s


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _tokens(place: Path) -> list[Count]:
    # The SDK, which no other benchmark wants in its process.
    from crdtmem.mcp.session import AgentSession, Opened  # noqa: PLC0415 - see above
    from crdtmem.mcp.tools import answer, listed  # noqa: PLC0415 - see above

    told = [
        {"name": t.name, "description": t.description, "inputSchema": t.input_schema}
        for t in listed()
    ]
    counts = [_count("tool-list", json.dumps(told), f"{len(told)} tools")]
    words = lines(1)
    with open_store(place / "tokens.db") as memory:
        slot = memory.slot("pending_items")
        for _ in range(NOTES):
            slot.append(next(words))
        text = str(slot.read().content)
        session = AgentSession(lambda _lane: Opened(memory))

        def reply(tool: str, **given: object) -> str:
            found = answer(session, tool, {"label": "pending_items", **given})
            return "".join(getattr(block, "text", "") for block in found.content)

        got = reply("memory_slot_get")
        counts.append(
            _count("get", got, f"{len(text)} characters of them are the text")
        )
        added = reply("memory_slot_append", text=next(words))
        counts.append(_count("append", added, "what a write answers"))
        refused = reply("memory_slot_replace", content="x", expectedRev=NOTES)
        counts.append(_count("conflict", refused, "with the diff of one line"))
    return counts


def _count(name: str, shown: str, note: str) -> Count:
    return Count(f"mcp-tokens-{name}", len(shown) / CHARS_A_TOKEN, "tokens", note=note)


if __name__ == "__main__":
    run(measure)
