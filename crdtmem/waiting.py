"""Waiting in the main thread of a process that people and systems interrupt."""

import threading
import time

__all__ = ["wait_for"]

_LISTEN_S = 0.5
"""How late a signal may be noticed; see ``wait_for``."""


def wait_for(event: threading.Event, timeout_s: float = float("inf")) -> bool:
    """Wait for an event, and tell whether it came within the time.

    Waits in slices: Python hears of a signal that arrives just before a wait begins
    only when that wait is over.
    """
    ends_s = time.monotonic() + timeout_s
    while (left_s := ends_s - time.monotonic()) > 0:
        if event.wait(min(left_s, _LISTEN_S)):
            return True
    return event.is_set()
