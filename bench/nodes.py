"""One, two and three relays on one PostgreSQL, beside one relay on SQLite.

How long a record takes from a writer at one relay to a reader at another, and how many
records a second are acknowledged: with all writers in one namespace, where every commit
waits for the last one, and spread over 30. Server, relays and writers share one machine
and the disk of this checkout; the writers of each relay are one process. Each writer
has a token of its own, since a relay reads a token at 2,000 records a second after the
first 10,000: they end before that.
"""

import contextlib
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.running import Effort, Findings, run
from bench.servers import processor_s
from bench.timing import Comparison, Count, comparison
from bench.workload import folder
from crdtmem.protocol.tokens import format_token
from relay.auth import digest_of, draw_token
from relay.cli.places import add_token, place_of
from relay.storage import TokenRow
from relay.storage.sqlite.folder import init_folder
from tests.postgres import Server, binaries

__all__ = ["measure"]

NODES = (1, 2, 3)
SPACES = 30
WRITERS = {1: 6, SPACES: SPACES}
"""How many writers there are, by how many namespaces they share."""

SECONDS = 3.0
WARM_UP_S = 1.0
PER_SECOND = 20
RECORDS = 200
SQLITE = "sqlite"
START = "from relay.cli import main; main()"


@dataclass(frozen=True, slots=True)
class Relays:
    """Relays of one log that run: what it is called, and each one's port and process.

    Attributes:
        name: Such as ``sqlite`` or ``3-nodes``.
        place: Folder or URL.
        ports: Of each.
        pids: Likewise.

    """

    name: str
    place: str
    ports: Sequence[int]
    pids: Sequence[int]


def measure(effort: Effort) -> Findings:
    """Measure all by turns."""
    programs = binaries()
    if programs is None:
        missing = Count("nodes", None, "records/s", note="PostgreSQL is not installed")
        return Findings(counts=[missing])
    waits: dict[str, list[float]] = {}
    rates: dict[str, list[float]] = {}
    loads: dict[str, list[float]] = {}
    with folder() as place, Server(programs, place) as server:
        for _ in range(effort.rounds_of(5)):
            for relays in _sides(server):
                with relays as at:
                    _time(at, effort.size(RECORDS, 20), waits)
                    for spaces in WRITERS:
                        name = f"{at.name}-{spaces}"
                        rate, load = _rate(at, spaces, SECONDS)
                        rates.setdefault(name, []).append(rate)
                        loads.setdefault(name, []).append(load)
    return Findings(_compared(waits, rates), _counted(waits, rates, loads))


def _sides(server: Server) -> Iterator[contextlib.AbstractContextManager[Relays]]:
    yield _on_sqlite()
    for count in NODES:
        yield _on_postgres(server, count)


@contextlib.contextmanager
def _on_sqlite() -> Iterator[Relays]:
    with folder() as place:
        init_folder(place / "relay", now_ms=1)
        with _serving(SQLITE, str(place / "relay"), place, 1) as relays:
            yield relays


@contextlib.contextmanager
def _on_postgres(server: Server, count: int) -> Iterator[Relays]:
    url = server.new_database()
    name = "1-node" if count == 1 else f"{count}-nodes"
    with folder() as place, _serving(name, url, place, count) as relays:
        yield relays


@contextlib.contextmanager
def _serving(name: str, place: str, logs: Path, count: int) -> Iterator[Relays]:
    """Start relays, and end them at the end."""
    with contextlib.ExitStack() as stack:
        ports, pids = [], []
        for number in range(count):
            log = stack.enter_context((logs / f"log{number}").open("w", -1, "utf-8"))
            command = ["serve", place, "--listen", "127.0.0.1:0", "--json"]
            process = subprocess.Popen(
                [sys.executable, "-c", START, *command],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
            )
            stack.callback(_end, process)
            ports.append(_line_of(process)["port"])
            pids.append(process.pid)
        yield Relays(name, place, ports, pids)


def _time(at: Relays, count: int, waits: dict[str, list[float]]) -> None:
    """Note the waits from the first relay to itself, and to the last one."""
    targets = {"same": 0, "other": len(at.ports) - 1}
    if len(at.ports) == 1:
        del targets["other"]
    for number, (kind, target) in enumerate(targets.items()):
        clients = [
            _client(at, where, "latency-" + kind, 2 * number + side + 1)
            for side, where in enumerate((0, target))
        ]
        task = {"task": "latency", "count": count, "per_second": PER_SECOND}
        task |= {"writer": clients[0], "reader": clients[1]}
        (found,) = _ask([task])
        waits.setdefault(f"{at.name}-{kind}", []).extend(found["waits"])


def _rate(at: Relays, spaces: int, seconds: float) -> tuple[float, float]:
    """Return the records a second, and the share of a processor a relay had."""
    nodes = len(at.ports)
    tasks: list[dict[str, Any]] = [
        {
            "task": "throughput",
            "warm_up": WARM_UP_S,
            "seconds": seconds,
            "clients": [],
        }
        for _ in range(nodes)
    ]
    for number in range(WRITERS[spaces]):
        space = f"space-{spaces}-{number % spaces}"
        client = _client(at, number % nodes, space, 1_000 * spaces + number)
        tasks[number % nodes]["clients"].append(client)
    before_s = [processor_s(pid) or 0.0 for pid in at.pids]
    found = _ask(tasks)
    after_s = [processor_s(pid) or 0.0 for pid in at.pids]
    longest_s = max(one["seconds"] for one in found)
    # The relays were busy while the writers warmed up, too.
    busy_s = sum(after_s) - sum(before_s)
    rate = sum(one["records"] for one in found) / longest_s
    return rate, busy_s / (WARM_UP_S + longest_s) / nodes


def _client(at: Relays, node: int, namespace: str, replica: int) -> dict[str, Any]:
    """Return what a client needs to know, after a token has been made for it."""
    token = draw_token()
    row = TokenRow(token.token_id, "*", ("write",), "", None, None, 1, None)
    add_token(place_of(at.place), row, digest_of(token.secret))
    return {
        "port": at.ports[node],
        "token": format_token(*token),
        "namespace": namespace,
        "replica": replica,
    }


def _ask(tasks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Have a process do each of the tasks at the same time; return what they found."""
    with contextlib.ExitStack() as stack:
        processes = []
        for task in tasks:
            process = subprocess.Popen(
                [sys.executable, "-m", "bench.loading"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                encoding="utf-8",
            )
            stack.callback(_end, process)
            processes.append(process)
            _tell(process, json.dumps(task))
        for process in processes:
            if process.stdout is not None:
                process.stdout.readline()
        for process in processes:
            _tell(process, "go")
        return [_line_of(process) for process in processes]


def _tell(process: "subprocess.Popen[str]", line: str) -> None:
    if process.stdin is not None:
        process.stdin.write(f"{line}\n")
        process.stdin.flush()


def _line_of(process: "subprocess.Popen[str]") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        process.stdout.readline() if process.stdout else ""
    )
    return found


def _end(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    process.communicate()


def _compared(
    waits: Mapping[str, Sequence[float]], rates: Mapping[str, Sequence[float]]
) -> list[Comparison]:
    lines = [
        comparison(
            f"nodes-latency-{name}", found, waits[f"{SQLITE}-same"], against=SQLITE
        )
        for name, found in waits.items()
        if not name.startswith(SQLITE)
    ]
    for name, found in rates.items():
        side, spaces = name.rsplit("-", 1)
        if side != SQLITE:
            ours, theirs = (
                [1 / rate for rate in r] for r in (found, rates[f"{SQLITE}-{spaces}"])
            )
            lines.append(
                comparison(f"nodes-record-{name}", ours, theirs, against=SQLITE)
            )
    return lines


def _counted(
    waits: Mapping[str, Sequence[float]],
    rates: Mapping[str, Sequence[float]],
    loads: Mapping[str, Sequence[float]],
) -> list[Count]:
    counts = []
    for name, found in waits.items():
        shares = statistics.quantiles(found, n=20)
        for share, value in (("p50", shares[9]), ("p95", shares[18])):
            counts.append(
                Count(f"nodes-latency-{name}-{share}", round(value * 1e3, 2), "ms")
            )
    for name, rates_of in rates.items():
        load = statistics.median(loads[name])
        counts.append(
            Count(
                f"nodes-rate-{name}",
                round(statistics.median(rates_of)),
                "records/s",
                note=f"{load:.0%} of a processor a relay",
            )
        )
    return counts


if __name__ == "__main__":
    run(measure)
