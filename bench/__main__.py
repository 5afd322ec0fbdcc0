"""Run the benchmarks: ``python -m bench`` for all, ``python -m bench append`` for one.

One name prints that benchmark's JSON document; several print one document that holds
theirs by name.
"""

import argparse
import importlib
import json
import sys
from collections.abc import Callable, Sequence

from bench.running import (
    Effort,
    Findings,
    add_options,
    document_of,
    effort_of,
    markdown,
)

__all__ = ["BENCHMARKS", "main"]

BENCHMARKS = (
    "append",
    "contend",
    "read",
    "open",
    "startup",
    "imports",
    "squash",
    "merge",
    "lost",
    "condense",
    "fanout",
    "latency",
    "nodes",
    "join",
    "reconnect",
    "coldstart",
    "mirror",
    "mcp",
    "search",
    "sets",
    "sealed",
    "serve",
)
HEADING = "| what | against | figure | target | median of ours |\n|---|---|---|---|---|"


def main(argv: Sequence[str] | None = None) -> None:
    """Run what the command line names and print what was found."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    add_options(parser)
    given = parser.parse_args(argv)
    names = given.names or list(BENCHMARKS)
    unknown = set(names) - set(BENCHMARKS)
    if unknown:
        parser.error(f"no benchmark of this name: {', '.join(sorted(unknown))}")
    documents: dict[str, str] = {}
    for name in names:
        print(f"{name} ...", file=sys.stderr)
        documents[name] = document_of(_measure_of(name)(effort_of(given)))
    if given.markdown:
        print("\n".join([HEADING, *map(markdown, documents.values())]))
    elif len(documents) == 1:
        print(*documents.values())
    else:
        read = {name: json.loads(document) for name, document in documents.items()}
        print(json.dumps(read, indent=2))


def _measure_of(name: str) -> Callable[[Effort], Findings]:
    # One at a time: what one loads must not be loaded already in another's processes.
    measure: Callable[[Effort], Findings] = importlib.import_module(
        f"bench.{name}"
    ).measure
    return measure


if __name__ == "__main__":
    main()
