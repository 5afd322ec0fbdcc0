"""What a relay counts, and how Prometheus reads it. No I/O, no clock, no library.

A label never holds a namespace, a token or an address: the numbers may be read by
people who may read nothing else, and a label that a peer chooses grows without bound.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = [
    "CONTENT_TYPE",
    "COUNTERS",
    "GAUGES",
    "HISTOGRAMS",
    "PREFIX",
    "CoreCounters",
    "Metrics",
]

PREFIX = "crdtmem_relay_"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

GAUGES = {
    "connections": "Open connections.",
    "joins": "Namespaces joined, summed over the connections.",
    "namespaces": "Namespaces that somebody has joined.",
    "append_queue_records": "Records that wait for a commit.",
    "catchups": "Connections far behind that are being served.",
    "transfer_bytes": "Memory held by records that come or go in parts.",
    "presences": "Presences held.",
}

COUNTERS = {
    "records_total": ("result", "Records put: stored, duplicate or refused."),
    "bytes_total": ("direction", "Bytes of frames, in or out."),
    "frames_total": ("direction", "Frames, in or out."),
    "frame_cache_total": (
        "result",
        "Frames of records: shared (hit), from cached rows, or from a SELECT.",
    ),
    "errors_total": ("code", "Errors sent, by code."),
    "closes_total": ("code", "Connections ended by the relay, by close code."),
    "auth_failures_total": ("reason", "Requests without a grant."),
    "payloads_dropped_total": ("", "Payloads dropped after their grace."),
    "stalls_total": ("", "Connections ended because nothing was read."),
}

HISTOGRAMS = {
    "commit_seconds": (
        (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5),
        "Time of a commit, its sync included.",
    ),
    "commit_records": ((1, 4, 16, 64, 256, 1024), "Records of a commit."),
    "probe_seconds": (
        (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.0),
        "Time of a probe of the storage.",
    ),
}


@dataclass(slots=True)
class CoreCounters:
    """What has happened in a core since the start.

    Attributes:
        records: By result: ``stored``, ``duplicate``, ``refused``.
        frames_in: Frames that came; the other three likewise.
        cache: Frames of records, by where they came from: ``hit``, ``rows``,
            ``select``.
        errors: Errors said, by code.
        closes: Connections closed by this side, by close code.
        stalls: Connections closed because nothing was read.

    """

    records: Counter[str] = field(default_factory=Counter)
    cache: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    closes: Counter[int] = field(default_factory=Counter)
    stalls: int = 0
    frames_in: int = 0
    frames_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0

    @property
    def frames(self) -> dict[str, int]:
        """Frames, by direction."""
        return {"in": self.frames_in, "out": self.frames_out}

    @property
    def octets(self) -> dict[str, int]:
        """Bytes of frames, by direction."""
        return {"in": self.bytes_in, "out": self.bytes_out}


class _Histogram:
    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Metrics:
    """The numbers of one relay process, all 0 at first.

    Args:
        version: Of the relay, shown as ``build_info``.

    Raises:
        KeyError: From every method but ``render``, if there is no such number.

    """

    def __init__(self, version: str) -> None:
        self._version = version
        self._gauges: dict[str, float] = dict.fromkeys(GAUGES, 0)
        self._counters: dict[str, dict[str, float]] = {
            name: {} if label else {"": 0} for name, (label, _) in COUNTERS.items()
        }
        self._histograms = {
            name: _Histogram(bounds) for name, (bounds, _) in HISTOGRAMS.items()
        }

    def set(self, name: str, value: float, label: str = "") -> None:
        """Say what a gauge stands at, or a counter that somebody else counts."""
        if name in self._gauges:
            self._gauges[name] = value
        else:
            self._counters[name][label] = value

    def add(self, name: str, label: str = "", amount: float = 1) -> None:
        """Raise a counter, under the value of its label if it has one."""
        values = self._counters[name]
        values[label] = values.get(label, 0) + amount

    def observe(self, name: str, value: float) -> None:
        """Note one more value of a histogram."""
        self._histograms[name].observe(value)

    def value(self, name: str, label: str = "") -> float:
        """Return what a gauge or a counter stands at."""
        if name in self._gauges:
            return self._gauges[name]
        return self._counters[name].get(label, 0)

    def render(self) -> str:
        """Return everything in the text format of Prometheus."""
        lines = _head("build_info", "gauge", "The version that runs.")
        lines.append(f'{PREFIX}build_info{{version="{_escaped(self._version)}"}} 1')
        for name, value in self._gauges.items():
            lines += _head(name, "gauge", GAUGES[name])
            lines.append(f"{PREFIX}{name} {value:.17g}")
        for name, values in self._counters.items():
            label, text = COUNTERS[name]
            lines += _head(name, "counter", text)
            for which, value in sorted(values.items()):
                shown = f'{{{label}="{_escaped(which)}"}}' if label else ""
                lines.append(f"{PREFIX}{name}{shown} {value:.17g}")
        for name, histogram in self._histograms.items():
            lines += _head(name, "histogram", HISTOGRAMS[name][1])
            lines += _buckets(name, histogram)
        return "\n".join(lines) + "\n"


def _buckets(name: str, histogram: _Histogram) -> list[str]:
    lines = []
    seen = 0
    for bound, count in zip([*histogram.bounds, None], histogram.counts, strict=True):
        seen += count
        shown = "+Inf" if bound is None else f"{bound:g}"
        lines.append(f'{PREFIX}{name}_bucket{{le="{shown}"}} {seen}')
    lines.append(f"{PREFIX}{name}_sum {histogram.total:.17g}")
    lines.append(f"{PREFIX}{name}_count {seen}")
    return lines


def _head(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP {PREFIX}{name} {text}", f"# TYPE {PREFIX}{name} {kind}"]


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
