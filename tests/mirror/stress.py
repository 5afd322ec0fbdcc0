"""A store, a mirrored folder, and who works on both: tools, lanes, and the command.

A `Workshop` has a slot and a file for each scenario. It lets the tools write and the
lanes rewrite, kills the mirror if that is asked for, and in the end looks for every
line: in the slots, and in what the lanes took out of them.
"""

import itertools
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import scripts
from tests.child import PATIENCE_S, Child
from tests.mirror.stress_scripts import TITLE
from tests.oracle import token
from tests.scenarios import opened

__all__ = ["Outcome", "Scenario", "Workshop"]

LIMIT_UNITS = 1_000_000
LOOK_S = 0.05


@dataclass(frozen=True)
class Scenario:
    """What happens to one slot and its file.

    Attributes:
        name: Of the slot, and of the requirement.
        tools: The kind of each tool.
        append_s: A tool's pause between two lines.
        passes: How often the lane rewrites the slot.
        wait_s: How long the lane takes from reading to writing.
        keep: How many lines a pass leaves in the slot; 0 for passes that condense it.

    """

    name: str
    tools: tuple[str, ...]
    append_s: float
    passes: int
    wait_s: float
    keep: int = 20

    @property
    def label(self) -> str:
        return self.name.lower()

    @property
    def writers(self) -> list[str]:
        return [f"{self.label}_{kind}" for kind in self.tools if kind != "reader"]


@dataclass
class Outcome:
    """What became of the lines of a scenario.

    Attributes:
        lines: How many lines the tools wrote.
        faults: What is wrong with them, by class.
        reader: What the reader found, if there was one.
        title: The first line of the slot.
        is_equal: Whether the file holds the slot's text.
        kept: The names that are left in the swap folder.

    """

    lines: int = 0
    faults: dict[str, Any] = field(default_factory=dict)
    reader: dict[str, Any] = field(default_factory=dict)
    title: str = ""
    is_equal: bool = False
    kept: list[str] = field(default_factory=list)


class Workshop:
    """A home with a store and a folder.

    Args:
        home: A folder of its own.
        crew: Three children: for the mirror, the tools and the lanes.
        denied: What the system refuses to the mirror.

    """

    def __init__(
        self, home: Path, crew: Sequence[Child], denied: Sequence[str] = ()
    ) -> None:
        self.home = home
        self.folder = home / "notes"
        self.folder.mkdir(parents=True)
        self.path = home / "store.db"
        self.denied = list(denied)
        self.mirror, self.tools, self.lanes = crew
        self.pid = 0

    @property
    def swap(self) -> Path:
        return self.folder / ".crdtmem-mirror" / "swap"

    def play(
        self, scenarios: Sequence[Scenario], kills: Sequence[tuple[str, int]] = ()
    ) -> dict[str, Outcome]:
        """Let all scenarios happen at once; return what became of each."""
        self._make_slots(scenarios)
        self.run_once()
        self.tools.start(scripts.use_tools, tools=self._tools_of(scenarios))
        self.tools.wait_for("writing")
        self.lanes.start(
            scripts.rewrite_slots, path=str(self.path), rewrites=_rewrites(scenarios)
        )
        for kill_at in kills:
            assert self.start(kill_at) == -signal.SIGKILL
        with self.watching():
            taken = self.lanes.result()
            self.tools.go()
            written = self.tools.result()
            self._settle(scenarios, written, taken)
        return {one.name: self._outcome(one, written, taken) for one in scenarios}

    def run_once(self, kill_at: tuple[str, int] | None = None) -> None:
        """Mirror once, without watching."""
        assert self.start(kill_at, watch=False) == (-signal.SIGKILL if kill_at else 0)

    def start(self, kill_at: tuple[str, int] | None, *, watch: bool = True) -> int:
        """Run the command to its end; return its status."""
        self._begin(kill_at, watch=watch)
        return int(self.mirror.result())

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Mirror for the length of the block; the command must end in order."""
        self._begin(None, watch=True)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGTERM)
            ended = self.mirror.wait_for("ended", "done")
        assert ended.get("status") == 0, ended
        assert self.mirror.result() == 0

    def _begin(self, kill_at: tuple[str, int] | None, *, watch: bool) -> None:
        argv = ["--lane", "mirror", "mirror", str(self.folder)]
        environment = {
            **{name: os.environ[name] for name in ("PATH",)},
            "CRDTMEM_PROJECT": "p",
            "CRDTMEM_STORE": str(self.path),
            "HOME": str(self.home),
        }
        self.mirror.start(
            scripts.forked,
            script=scripts.mirror_folder.__name__,
            arguments={
                "argv": [*argv, "--watch"] if watch else argv,
                "environment": environment,
                "denied": self.denied,
            },
            kill_at=kill_at,
        )
        self.pid = int(self.mirror.wait_for("forked")["pid"])

    def _make_slots(self, scenarios: Sequence[Scenario]) -> None:
        with opened(str(self.path), "maker") as memory:
            for one in scenarios:
                memory.create(one.label, f"{TITLE}0", size_limit=LIMIT_UNITS)

    def _tools_of(self, scenarios: Sequence[Scenario]) -> list[dict[str, Any]]:
        return [
            {
                "kind": kind,
                "name": f"{one.label}_{kind}",
                "file": str(self.file_of(one)),
                # A reader reads as fast as it can.
                "pause_s": 0.0 if kind == "reader" else one.append_s,
            }
            for one in scenarios
            for kind in one.tools
        ]

    def file_of(self, scenario: Scenario) -> Path:
        return self.folder / f"{scenario.label}.md"

    def content_of(self, scenario: Scenario) -> str:
        with opened(str(self.path), "judge", read_only=True) as memory:
            return str(memory.slot(scenario.label).read().content)

    def _settle(
        self,
        scenarios: Sequence[Scenario],
        written: dict[str, Any],
        taken: dict[str, list[str]],
    ) -> None:
        """Wait until there is nothing to do any more; give up without an error."""
        until = time.monotonic() + PATIENCE_S / 2
        pause = threading.Event()

        def is_settled() -> bool:
            try:
                found = [self._outcome(one, written, taken) for one in scenarios]
            except FileNotFoundError:
                # Moved aside at this moment.
                return False
            is_empty = not found[0].kept or "leases" in self.denied
            return is_empty and all(one.is_equal and not one.faults for one in found)

        while not is_settled() and time.monotonic() < until:
            pause.wait(LOOK_S)

    def _outcome(
        self, one: Scenario, written: dict[str, Any], taken: dict[str, list[str]]
    ) -> Outcome:
        title, *lines = self.content_of(one).split("\n")
        tokens = {
            name: [f"{token(name, number)}é" for number in range(written.get(name, 0))]
            for name in one.writers
        }
        found = [*taken[one.label], *lines]
        if not one.keep:
            # Without headings, summaries, and blank lines between them.
            found = [line for line in found if line.endswith("é")]
        faults = _faults(found, tokens)
        if "replacer" in one.tools:
            # It inserts: its lines stand in no order.
            faults.pop("reordered", None)
        content = "\n".join([title, *lines, ""])
        return Outcome(
            lines=sum(map(len, tokens.values())),
            faults=faults,
            reader=written.get(f"{one.label}_reader", {}),
            title=title,
            is_equal=self.file_of(one).read_bytes() == content.encode(),
            kept=sorted(path.name for path in self.swap.iterdir()),
        )


def _faults(
    lines: Sequence[str], tokens: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """Return what is wrong with the lines, by class; see ``oracle``, which is slower.

    There are hundreds of thousands; of each class the number and some are shown.
    """
    counts = Counter(lines)
    found: dict[str, list[str]] = {
        "lost": [one for each in tokens.values() for one in each if not counts[one]],
        "doubled": [line for line, count in counts.items() if count > 1],
        "strays": list(counts.keys() - set().union(*tokens.values())),
        "reordered": [],
    }
    place = {line: number for number, line in enumerate(lines)}
    for each in tokens.values():
        known = [one for one in each if one in place]
        found["reordered"] += [
            later
            for one, later in itertools.pairwise(known)
            if place[later] < place[one]
        ]
    return {name: (len(some), some[:5]) for name, some in found.items() if some}


def _rewrites(scenarios: Sequence[Scenario]) -> list[dict[str, Any]]:
    return [
        {
            "slot": one.label,
            "passes": one.passes,
            "wait_s": one.wait_s,
            "keep": one.keep,
        }
        for one in scenarios
    ]
