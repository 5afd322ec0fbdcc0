"""The processes of the demo: start them, kill one, and count what is there in the end.

The figures come from what the processes were told had been written, against what the
store holds.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self, cast

from crdtmem import opening
from crdtmem.cli.demo_score import FILLER_LINES, SLOT, Ack, Score, filler_line, score
from crdtmem.errors import CrdtmemError

__all__ = ["LANE_COMMAND", "Play", "play"]

LANE_COMMAND = (sys.executable, "-m", "crdtmem.cli.demo_lane")
_SIZE_LIMIT_UNITS = 1_000_000
_HISTORY_TEXTS = 1_000
_REWRITES = 20
_KILL_AFTER_ACKS = 20
_PATIENCE_S = 120.0

_Told = Mapping[str, int | str | bool]


@dataclass(frozen=True, slots=True)
class Play:
    """What the demo came to.

    Attributes:
        acks: Of each lane, by its name.
        rewrites: The acks of the rewriter.
        killed: The lane that was killed, and after how many acks.
        score: What is in the store.
        later: Appends after the last rewrite.
        is_undone: Whether undoing that kept every append.
        reads: How often the reader read.
        has_fallen: Whether it ever saw a rev fall.

    """

    acks: Mapping[str, list[Ack]]
    rewrites: list[Ack]
    killed: tuple[str, int]
    score: Score
    later: int
    is_undone: bool
    reads: int
    has_fallen: bool

    @property
    def is_clean(self) -> bool:
        """Return whether nothing was lost, doubled or torn."""
        return self.score.is_clean and self.is_undone and not self.has_fallen


def play(
    store: Path, *, lanes: int, lines_each: int, rng: int, command: Sequence[str]
) -> Play:
    """Let processes write one slot at once, and count what is there afterwards.

    None of them is left when this returns or raises.

    Args:
        store: Where to make the store.
        lanes: How many processes append.
        lines_each: How many lines each appends.
        rng: Seed of the pauses.
        command: What a process runs.

    Raises:
        CrdtmemError: If a process fails that was not killed.

    """
    _make_slot(store)
    names = [f"lane-{number}" for number in range(1, lanes + 1)]
    victim = names[min(3, lanes) - 1]
    kill_after = min(_KILL_AFTER_ACKS, lines_each // 2)
    with ExitStack() as stack:

        def start(role: str, lane: str, first: int, last: int) -> _Process:
            words = (role, str(store), lane, str(rng), str(first), str(last))
            return stack.enter_context(_Process([*command, *words], lane))

        writers = {name: start("append", name, 1, lines_each) for name in names}
        rewriter = start("rewrite", "rewriter", 1, _REWRITES)
        reader = start("read", "reader", 1, 1)
        writers[victim].kill_after = kill_after
        _begin([*writers.values(), rewriter, reader])
        acks = {name: process.finish() for name, process in writers.items()}
        resumed = start("append", victim, len(acks[victim]) + 1, lines_each)
        _begin([resumed])
        acks[victim] += resumed.finish()
        rewrites = rewriter.finish()
        reader.finish()
    return _settle(store, acks, rewrites, (victim, kill_after), reader.last)


class _Process:
    """A process of the demo, and what it tells; it ends with the ``with`` block.

    Args:
        command: What to run.
        lane: Its name.

    """

    def __init__(self, command: Sequence[str], lane: str) -> None:
        self._lane = lane
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
        )
        # Both are pipes, as asked for above.
        self._stdin = cast(IO[str], self._process.stdin)
        self._stdout = cast(IO[str], self._process.stdout)
        self._told: list[dict[str, int | str | bool]] = []
        self._listener = threading.Thread(target=self._listen, daemon=True)
        # A process that hangs ends like one that fails.
        self._patience = threading.Timer(_PATIENCE_S, self._process.kill)
        self.kill_after: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._patience.cancel()
        # One that has ended is not killed; one that was let down must not linger.
        self._process.kill()
        self._process.wait()
        if self._listener.ident is not None:
            self._listener.join()
        self._close_stdin()
        self._stdout.close()

    @property
    def last(self) -> _Told:
        """Return the last thing it told."""
        return self._told[-1] if self._told else {}

    def wait_until_ready(self) -> None:
        """Wait until it has opened the store."""
        if not self._stdout.readline():
            raise self._failure()

    def begin(self) -> None:
        """Let it work."""
        self._listener.start()
        self._patience.start()
        # One that is dead already does not read; finish tells how it ended.
        with suppress(BrokenPipeError):
            self._stdin.write("go\n")
            self._stdin.flush()

    def finish(self) -> list[Ack]:
        """Wait until it is done; return what was acknowledged.

        Raises:
            CrdtmemError: If it failed, or hangs.

        """
        self._close_stdin()
        self._listener.join()
        if self._process.wait() != 0 and self.kill_after is None:
            raise self._failure()
        return [_ack(told) for told in self._told if "number" in told]

    def _close_stdin(self) -> None:
        with suppress(BrokenPipeError):
            self._stdin.close()

    def _listen(self) -> None:
        for line in self._stdout:
            self._told.append(json.loads(line))
            if len(self._told) == self.kill_after:
                self._process.kill()

    def _failure(self) -> CrdtmemError:
        status = self._process.wait()
        return CrdtmemError(
            f"process {self._lane!r} of the demo ended with status {status}",
            code="internal-error",
            details={"lane": self._lane, "status": status},
        )


def _begin(processes: Sequence[_Process]) -> None:
    """Let processes work at once: none before all have opened the store."""
    for process in processes:
        process.wait_until_ready()
    for process in processes:
        process.begin()


def _ack(told: _Told) -> Ack:
    return Ack(
        number=int(told["number"]),
        rev=int(told["rev"]),
        history_id=str(told["history_id"]),
        is_merged=bool(told["is_merged"]),
    )


def _make_slot(store: Path) -> None:
    with opening.open(store, lane="demo", project="demo") as memory:
        memory.configure(history_keep=_HISTORY_TEXTS)
        filler = "\n".join(filler_line(n) for n in range(1, FILLER_LINES + 1))
        memory.create(SLOT, filler, scope="global", size_limit=_SIZE_LIMIT_UNITS)


def _settle(
    store: Path,
    acks: Mapping[str, list[Ack]],
    rewrites: list[Ack],
    killed: tuple[str, int],
    told_by_reader: _Told,
) -> Play:
    """Count what is there, then undo the last rewrite and count again."""
    numbers = {lane: [ack.number for ack in found] for lane, found in acks.items()}
    appended = [ack.rev for found in acks.values() for ack in found]
    with opening.open(store, lane="rewriter", project="demo") as memory:
        slot = memory.slot(SLOT, "global")
        before = score(str(slot.read().content), numbers)
        slot.undo(rewrites[-1].history_id)
        after = score(str(slot.read().content), numbers)
    return Play(
        acks=acks,
        rewrites=rewrites,
        killed=killed,
        score=before,
        later=sum(rev > rewrites[-1].rev for rev in appended),
        is_undone=after == before,
        reads=int(told_by_reader["reads"]),
        has_fallen=bool(told_by_reader["fell"]),
    )
