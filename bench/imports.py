"""What each public module takes to load, against ``python -c pass``."""

import sys
from pathlib import Path

from bench.running import Effort, Findings, run
from bench.startup import clean_environment, process
from bench.timing import compare
from bench.workload import folder

__all__ = ["measure", "public_modules"]

OTHERS = ("apsw", "pycrdt")
"""Beside ours, for comparison."""


def measure(effort: Effort) -> Findings:
    """Load each module in a process of its own."""
    modules = [*public_modules(), *OTHERS]
    if effort.is_quick:
        modules = modules[:2]
    with folder() as place:
        environment = clean_environment(place)
        lines = [
            compare(
                f"import-{module}",
                process([sys.executable, "-c", f"import {module}"], environment, place),
                process([sys.executable, "-c", "pass"], environment, place),
                against="python -c pass",
                rounds=effort.rounds_of(),
            )
            for module in modules
        ]
    return Findings(lines)


def public_modules() -> list[str]:
    """Return ``crdtmem`` and all that lies directly in it."""
    package = Path(__file__).resolve().parents[1] / "crdtmem"
    names = {
        path.parent.name if path.name == "__init__.py" else path.stem
        for path in (*package.glob("*.py"), *package.glob("*/__init__.py"))
        if not path.name.startswith("__main__")
    } - {"crdtmem"}
    return ["crdtmem", *(f"crdtmem.{name}" for name in sorted(names))]


if __name__ == "__main__":
    run(measure)
