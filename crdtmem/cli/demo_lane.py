"""One process of the demo: a writer, the rewriter, or the reader.

It says ``ready`` on stdout, waits for a line on stdin, works, and tells each write that
returned as a line of JSON. Run by ``crdtmem demo`` only.
"""

import json
import random
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from crdtmem import opening
from crdtmem.cli.demo_score import FILLER_LINES, SLOT, appended_line, shortened

if TYPE_CHECKING:
    from crdtmem.models import WriteResult
    from crdtmem.slot import Slot

__all__ = ["main"]

_APPEND_PAUSE_S = 0.02
_REWRITE_PAUSE_S = 0.03
_READ_PAUSE_S = 0.01
# Where everything else is slow, too, whoever has the lock may not run for seconds.
_LOCK_WAIT_S = 60.0


def main(argv: Sequence[str]) -> None:
    """Take part in the demo.

    Args:
        argv: Role, store, lane, seed, first and last number of its writes.

    """
    role, store, lane, seed, first, last = argv
    pauses = random.Random(f"{seed} {lane} {first}")
    with opening.open(
        Path(store), lane=lane, project="demo", busy_timeout=_LOCK_WAIT_S
    ) as memory:
        slot = memory.slot(SLOT, "global")
        _tell({"ready": lane})
        sys.stdin.readline()
        _ROLES[role](slot, pauses, lane, range(int(first), int(last) + 1))


def _append(slot: "Slot", pauses: random.Random, lane: str, numbers: range) -> None:
    for number in numbers:
        time.sleep(pauses.uniform(0, _APPEND_PAUSE_S))
        # The id names the write: whoever resumes after a kill repeats the one whose
        # acknowledgement was cut off, and it is there once.
        result = slot.append(appended_line(lane, number), request_id=f"{lane}-{number}")
        _acknowledge(number, result)


def _rewrite(slot: "Slot", pauses: random.Random, lane: str, numbers: range) -> None:
    del lane
    each = -(-FILLER_LINES // len(numbers))
    for number in numbers:
        view = slot.read()
        time.sleep(pauses.uniform(0, _REWRITE_PAUSE_S))
        content = shortened(str(view.content), each)
        _acknowledge(number, slot.replace(content, base_rev=view.rev))


def _read(slot: "Slot", pauses: random.Random, lane: str, numbers: range) -> None:
    """Read until stdin ends; tell how often, and whether a rev ever fell."""
    del lane, numbers
    is_over = threading.Event()
    threading.Thread(target=_wait_for_end, args=(is_over,), daemon=True).start()
    reads, newest_rev, has_fallen = 0, 0, False
    while not is_over.wait(pauses.uniform(0, _READ_PAUSE_S)):
        rev = slot.read().rev
        has_fallen = has_fallen or rev < newest_rev
        reads, newest_rev = reads + 1, rev
    _tell({"reads": reads, "fell": has_fallen})


def _wait_for_end(is_over: threading.Event) -> None:
    sys.stdin.read()
    is_over.set()


def _acknowledge(number: int, result: "WriteResult") -> None:
    _tell(
        {
            "number": number,
            "rev": result.rev,
            "history_id": result.history_id or "",
            "is_merged": result.merged is True,
        }
    )


def _tell(message: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


_ROLES = {"append": _append, "rewrite": _rewrite, "read": _read}


if __name__ == "__main__":
    main(sys.argv[1:])
