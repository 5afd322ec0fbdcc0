"""A relay's storage in a process that dies at a named step; run as a script.

    python -m tests.relay.storage.relay_points FOLDER POINT NTH

It appends one record after the other, sweeps after each fourth, and tells on stdout, in
JSON lines, what was acknowledged. It ends by SIGKILL.
"""

import asyncio
import json
import sys
from pathlib import Path

from crdtmem.protocol.relaying import Sample
from relay.storage.rules import StorageLimits
from relay.storage.sqlite.storage import SqliteStorage
from tests.contracts.authors import HOUR_MS, Author
from tests.killpoints import KillPoint, install, kill_this_process

__all__ = ["POINTS"]

WRITER = "relay.storage.sqlite.writer"

POINTS = {
    "append.before-commit": KillPoint(WRITER, "Writer._commit", "before"),
    "append.after-commit": KillPoint(WRITER, "Writer._commit", "after"),
    "sweep.mid": KillPoint("relay.storage.sqlite.aging", "clear_payloads", "after"),
    "hwm.before-rename": KillPoint("relay.storage.sqlite.folder", "_rename", "before"),
}


def tell(**what: object) -> None:  # pragma: no cover - see run
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


async def run(folder: Path) -> None:  # pragma: no cover - ends by SIGKILL
    ticks = iter(range(0, 10**12, 1_000))
    storage = SqliteStorage(
        folder,
        limits=StorageLimits(grace_ms=HOUR_MS),
        disk_free_bytes=0,
        clock_ms=lambda: next(ticks),
    )
    await storage.open()
    author = await Author.join(storage)
    state = await author.join_at(0, bytes(32))
    author.last = state.own_max
    for number in range(1, 1_000):
        is_cover = number % 4 == 0
        base = {"kind": 2, "base": author.last} if is_cover else {}
        result = await author.write(payload=bytes(500), **base)
        at: Sample = result.at
        tell(seq=at.seq, chain=at.chain.hex())
        if is_cover:
            await storage.sweep(number * HOUR_MS, 100)
            tell(swept=number)


def main() -> None:  # pragma: no cover - ends by SIGKILL
    """Run until the step is come to."""
    folder, point, nth = sys.argv[1:]
    install(POINTS[point], kill_this_process, nth=int(nth))
    asyncio.run(run(Path(folder)))


if __name__ == "__main__":  # pragma: no cover - see run
    main()
