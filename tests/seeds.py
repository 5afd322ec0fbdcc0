"""Many seeds of one experiment, in as many processes as there are processors.

A thousand random histories say more than ten, and need no coverage of their own: a
test runs a few seeds itself, and has the rest run here. The experiment is a function
``(first, last)`` over a half-open range of seeds, which raises at the first seed that
fails and names it.
"""

import importlib
import itertools
import os
import subprocess
import sys

__all__ = ["COVERAGE", "run_seeds"]

# coverage starts itself in every Python process that finds one of these.
COVERAGE = ("COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")


def run_seeds(experiment: str, first: int, last: int) -> list[str]:
    """Run an experiment over a range of seeds and return what failed.

    Args:
        experiment: ``module:function``.
        first: The first seed.
        last: The seed behind the last one.

    Returns:
        The output of each process that failed; empty when all seeds pass.

    """
    # Where tests run side by side, the other processors are theirs.
    beside = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    parts = min(max((os.cpu_count() or 1) // beside, 1), last - first)
    edges = [first + (last - first) * part // parts for part in range(parts + 1)]
    environment = {key: os.environ[key] for key in os.environ if key not in COVERAGE}
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.seeds", experiment, str(start), str(end)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            env=environment,
        )
        for start, end in itertools.pairwise(edges)
    ]
    outputs = [child.communicate()[0] for child in children]
    return [
        output
        for child, output in zip(children, outputs, strict=True)
        if child.returncode
    ]


def main(experiment: str, first: str, last: str) -> None:
    """Run a range of seeds in this process."""
    module, _, name = experiment.partition(":")
    getattr(importlib.import_module(module), name)(int(first), int(last))


if __name__ == "__main__":  # pragma: no cover - runs where coverage is off
    main(*sys.argv[1:])
