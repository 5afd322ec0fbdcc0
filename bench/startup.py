"""Commands as whole processes, against ``python -c pass``.

Byte code is cached on both sides, in a folder of the run, whatever the environment
says: an installed program has it.
"""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench.running import Effort, Findings, run
from bench.timing import Comparison, Count, compare
from bench.workload import Appender, folder, open_store

__all__ = ["clean_environment", "measure", "process"]

COMMANDS = {
    "get": ("get", "pending_items"),
    "context": ("context",),
    "status": ("status",),
    "list": ("list",),
}


def measure(effort: Effort) -> Findings:
    """Start each quick command through the installed script and through ``-m``."""
    script = Path(sys.executable).with_name("crdtmem")
    ways: dict[str, list[str]] = {"python-m": [sys.executable, "-m", "crdtmem"]}
    counts: list[Count] = []
    if script.exists():
        ways["script"] = [str(script)]
    else:
        note = "not installed beside this Python"
        counts.append(Count("startup-script", None, "", note=note))
    with folder() as place:
        environment = clean_environment(place)
        with open_store(place / "store.db") as memory:
            appender = Appender(memory.slot("pending_items"))
            for _ in range(20):
                appender.append()
        lines: list[Comparison] = [
            compare(
                f"startup-{name}-{way}{kind}",
                process([*start, *words], environment, place),
                process([sys.executable, "-c", "pass"], environment, place),
                against=f"python -c pass{of}",
                target=5.0 if name != "list" else None,
                rounds=effort.rounds_of(21),
                clock=clock,
            )
            for name, words in COMMANDS.items()
            for way, start in ways.items()
            for kind, of, clock in CLOCKS
        ]
    return Findings(lines, counts)


def _processor_s() -> float:
    """Return the processor time of all processes that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


CLOCKS: tuple[tuple[str, str, Callable[[], float]], ...] = (
    ("", "", time.perf_counter),
    ("-processor", ", processor time", _processor_s),
)
"""What is compared: the wait, and the work, which other load disturbs less."""


def clean_environment(place: Path) -> dict[str, str]:
    """Return an environment with cached byte code, and a store of its own."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "CRDTMEM", "COVERAGE", "XDG_"))
    }
    checkout = Path(__file__).resolve().parents[1]
    return environment | {
        "PYTHONPYCACHEPREFIX": str(place / "byte-code"),
        "PYTHONPATH": str(checkout),
        "HOME": str(place),
        "CRDTMEM_STORE": str(place / "store.db"),
        "CRDTMEM_PROJECT": "bench",
        "CRDTMEM_LANE": "bench",
    }


def process(
    command: Sequence[str], environment: Mapping[str, str], place: Path
) -> Callable[[], None]:
    """Return a call that runs a process to its end, and fails if that does."""

    def run_it() -> None:
        subprocess.run(
            command,
            env=environment,
            cwd=place,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )

    return run_it


if __name__ == "__main__":
    run(measure)
