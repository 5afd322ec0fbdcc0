"""Ends a process that must not keep its caller waiting."""

import os
import sys
import threading
from collections.abc import Callable

from crdtmem.limits import HOOK_S

__all__ = ["end_in_time"]


def end_in_time(*, end: Callable[[int], object] = os._exit) -> threading.Timer:
    """End this process, with status 0, when a hook takes too long.

    Only a thread can do that: the main one may wait inside of SQLite, or for stdin. A
    process that is ended so has written all of a transaction or nothing.

    Args:
        end: Ends the process.

    """

    def give_up() -> None:
        sys.stderr.write(f"crdtmem hook: no answer within {HOOK_S} s\n")
        sys.stderr.flush()
        end(0)

    timer = threading.Timer(HOOK_S, give_up)
    timer.daemon = True
    timer.start()
    return timer
