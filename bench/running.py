"""What every benchmark has in common: its options, and how its findings are printed."""

import argparse
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

from bench.timing import Comparison, Count, report

__all__ = ["Effort", "Findings", "document_of", "markdown", "run", "versions"]


@dataclass(frozen=True, slots=True)
class Effort:
    """How long a benchmark may take.

    Attributes:
        is_quick: Few rounds over little data: does it run, rather than how fast.
        rounds: Measured rounds of subject and baseline each, if not the usual number.
        scale: How many times the usual data.

    """

    is_quick: bool = False
    rounds: int | None = None
    scale: float = 1.0

    def rounds_of(self, usual: int = 15) -> int:
        """Return how many rounds to measure."""
        return self.rounds or (min(usual, 3) if self.is_quick else usual)

    def size(self, whole: int, quick: int) -> int:
        """Return how much data to work on."""
        return quick if self.is_quick else round(whole * self.scale)


@dataclass(frozen=True, slots=True)
class Findings:
    """What a benchmark measured and counted."""

    comparisons: Sequence[Comparison] = ()
    counts: Sequence[Count] = ()
    peers: Mapping[str, str] = field(default_factory=dict)


def versions(*distributions: str) -> dict[str, str]:
    """Return the installed versions of some distributions, ours first."""
    return {name: metadata.version(name) for name in ("crdtmem", *distributions)}


def document_of(findings: Findings) -> str:
    """Return the JSON document of some findings."""
    found = versions("apsw", "pycrdt") | dict(findings.peers)
    return report(findings.comparisons, found, findings.counts)


def markdown(document: str) -> str:
    """Return the rows of the README's table that a JSON document gives."""
    read = json.loads(document)
    rows = [_comparison_row(line) for line in read["comparisons"]]
    rows += [_count_row(count) for count in read.get("counts", [])]
    return "\n".join(rows)


def run(
    measure: Callable[[Effort], Findings], argv: Sequence[str] | None = None
) -> None:
    """Run a benchmark from its command line and print what it found."""
    # Its name stands in the messages of argparse alone.
    parser = argparse.ArgumentParser(description=measure.__doc__)
    add_options(parser)
    given = parser.parse_args(argv)
    document = document_of(measure(effort_of(given)))
    print(markdown(document) if given.markdown else document)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that all benchmarks share."""
    parser.add_argument("--quick", action="store_true", help="little data, few rounds")
    parser.add_argument("--rounds", type=int, help="measured rounds of each side")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="how many times the usual data"
    )
    parser.add_argument(
        "--markdown", action="store_true", help="print table rows, not JSON"
    )


def effort_of(given: argparse.Namespace) -> Effort:
    """Return the effort that the shared options ask for."""
    return Effort(given.quick, given.rounds, given.scale)


def _comparison_row(line: Mapping[str, Any]) -> str:
    median_us = statistics.median(line["subject_s"]) * 1e6
    target = "" if line["target"] is None else f"≤ {line['target']:g} x"
    return (
        f"| {line['name']} | {line['baseline']} | {line['ratio']:.2f} x"
        f" | {target} | {median_us:,.0f} µs |"
    )


def _count_row(count: Mapping[str, Any]) -> str:
    value = "-" if count["value"] is None else f"{count['value']:,.6g} {count['unit']}"
    target = "" if count["target"] is None else f"{count['target']:g}"
    return f"| {count['name']} | {count['note']} | {value} | {target} | |"
