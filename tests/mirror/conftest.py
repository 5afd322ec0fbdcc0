"""A folder that is mirrored in this process, with a clock that tests turn."""

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import crdtmem
from crdtmem.memory import Memory
from crdtmem.mirror.mirror import Mirror
from crdtmem.mirror.values import MirrorReport
from crdtmem.store.events import events_of

START = datetime(2026, 1, 1, tzinfo=UTC)


class Mirrored:
    """A store, a folder and its mirror.

    Attributes:
        lane: A handle of somebody else on the store.
        folder: The folder.
        mirror: The mirror; made anew by ``restart``.

    """

    def __init__(self, home: Path, stack: contextlib.ExitStack) -> None:
        self._home = home
        self._stack = stack
        self._options: dict[str, Any] = {}
        self.now_s = 0.0
        self.folder = home / "notes"
        self.folder.mkdir()
        self.lane = self.open_lane("lane")
        self._memory = self.open_lane("mirror:host")
        self.mirror = self.start()

    def open_lane(self, lane: str, store: str = "store") -> Memory:
        """Open the store, or another one, for a lane."""
        memory = crdtmem.open(
            self._home / store / "store.db",
            lane=lane,
            project="p",
            durability="normal",
            clock=lambda: START + timedelta(seconds=self.now_s),
        )
        self._stack.callback(memory.close)
        return memory

    def start(self, **options: Any) -> Mirror:
        """Start a mirror of the folder."""
        self._options |= options
        settings = {"clock": lambda: self.now_s, "wait": self._pass, **self._options}
        self.mirror = Mirror(self._memory, self.folder, **settings)
        self._stack.callback(self.mirror.close)
        return self.mirror

    def restart(self, **options: Any) -> Mirror:
        """End the mirror, and start it again."""
        self.mirror.close()
        return self.start(**options)

    def move_aside(self) -> None:
        """Have files replaced as where the system knows no exchange."""
        self.mirror._folder.can_exchange = False

    def sync(self) -> MirrorReport:
        """Bring files and slots in step."""
        return self.mirror.sync_once()

    def _pass(self, seconds: float) -> None:
        self.now_s += seconds

    def wait(self, seconds: float, step_s: float = 0.05) -> None:
        """Let time pass; the mirror looks at everything again and again."""
        end_s = self.now_s + seconds
        while self.now_s < end_s - 1e-9:
            self.look()
            self._pass(min(step_s, end_s - self.now_s))
        self.look()

    def look(self) -> None:
        """Have the mirror do what is due now."""
        self.mirror.note_events(None)
        self.mirror.cycle(self.now_s)

    def drain(self) -> None:
        """Let time pass until nothing that was swapped out is left."""
        self.wait(3.5, 0.25)
        assert self.swapped_out() == []

    def make(self, label: str, text: str, **settings: Any) -> Path:
        """Make a slot and its file."""
        settings.setdefault("size_limit", 100_000)
        self.lane.create(label, text, **settings)
        self.sync()
        return self.folder / f"{label}.md"

    def text(self, label: str) -> str:
        """Return a slot's text."""
        return str(self.lane.slot(label).read().content)

    def labels(self) -> list[str]:
        """Return the labels of the live slots."""
        return [view.label for view in self.lane.slots(templates=False)]

    def rev(self, label: str) -> int:
        return self.lane.slot(label).read().rev

    def events(self, *kinds: str) -> list[str]:
        """Return the kinds of the events, or of those that are of certain kinds."""
        with self.lane.store.reading() as connection:
            return [row.kind for row in events_of(connection, kinds=kinds, limit=1_000)]

    def rows(self, statement: str) -> list[Any]:
        """Return the rows that a statement finds in the store."""
        with self.lane.store.reading() as connection:
            return connection.execute(statement).fetchall()

    def swapped_out(self) -> list[str]:
        return sorted(path.name for path in self.swap.iterdir())

    def rejected(self) -> list[bytes]:
        """Return what no slot has taken, oldest first."""
        folder = self.folder / ".crdtmem-mirror" / "rejected"
        return [path.read_bytes() for path in sorted(folder.iterdir())]

    @property
    def swap(self) -> Path:
        return self.folder / ".crdtmem-mirror" / "swap"


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Mirrored]:
    """A folder that is mirrored by an exchange of files."""
    with contextlib.ExitStack() as stack:
        yield Mirrored(tmp_path, stack)


@pytest.fixture(params=["exchange", "move aside"])
def either_desk(desk: Mirrored, request: pytest.FixtureRequest) -> Mirrored:
    """A mirrored folder, once for each way of replacing files."""
    if request.param == "move aside":
        desk.move_aside()
    return desk
