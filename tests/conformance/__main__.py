"""Runs conformance files: ``python -m tests.conformance FILE...``.

Every case of every file is run, whatever became of the one before. What failed is
printed with the case's id and the difference; the last line is ``N passed, M failed``,
and the exit status is 1 if anything failed. Groups of byte vectors that nothing here
can check yet are named, and count as neither.
"""

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.conformance.sets import run_set_case
from tests.conformance.wire import CHECKERS, check_vector

__all__ = ["main"]

Outcome = tuple[str, list[str]]
"""The id of a case, and what is wrong with it."""


def main(arguments: list[str]) -> int:
    """Run the files; return the exit status."""
    counts: Counter[bool] = Counter()
    for argument in arguments:
        for name, found in _outcomes(Path(argument)):
            counts[not found] += 1
            for line in found:
                _say(f"FAILED {name}: {line}")
    _say(f"{counts[True]} passed, {counts[False]} failed")
    return 1 if counts[False] else 0


def _outcomes(path: Path) -> Iterator[Outcome]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        yield str(path), [f"cannot be read: {exc}"]
        return
    if isinstance(content, list):
        yield from _case_outcomes(content)
    elif isinstance(content, dict):
        yield from _vector_outcomes(content)
    else:
        yield str(path), ["is neither a list of cases nor groups of vectors"]


def _case_outcomes(cases: list[Any]) -> Iterator[Outcome]:
    for number, case in enumerate(cases, 1):
        name = case.get("id") if isinstance(case, dict) else None
        if not isinstance(name, str):
            yield f"case {number}", ["has no id"]
            continue
        with tempfile.TemporaryDirectory() as directory:
            yield name, run_set_case(case, Path(directory))


def _vector_outcomes(groups: dict[str, Any]) -> Iterator[Outcome]:
    vectors = {name: group for name, group in groups.items() if isinstance(group, list)}
    for name, group in vectors.items():
        if name in CHECKERS:
            for number, vector in enumerate(group, 1):
                yield f"{name} {number}", check_vector(name, vector)
    left_out = [f"{name} ({len(vectors[name])})" for name in vectors.keys() - CHECKERS]
    if left_out:
        _say(f"left out, not checked yet: {', '.join(sorted(left_out))}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
