"""Who may manage sets: checks that return, or raise.

An owner is known by an object that only it has. Numbers of threads and tasks are given
again to others when they end.
"""

import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

from crdtmem.errors import OwnerThreadError

__all__ = ["OwnerCheck", "no_owner_check", "owner_task", "owner_thread"]

OwnerCheck = Callable[[], None]
"""Returns where sets may be managed, and raises elsewhere."""

_HERE = threading.local()


def owner_thread() -> OwnerCheck:
    """Return a check that lets only this thread pass.

    What it raises elsewhere is OwnerThreadError.
    """
    owner = _mark_of_thread()

    def check() -> None:
        if _mark_of_thread() is not owner:
            raise OwnerThreadError

    return check


def owner_task() -> OwnerCheck:
    """Return a check that lets only this thread and its present asyncio task pass.

    Outside of a task it lets the thread pass while it runs none. What it raises
    elsewhere is OwnerThreadError.
    """
    owner, task = _mark_of_thread(), _present_task()
    # Not the task itself: it would be kept with all that its frames hold.
    known = None if task is None else weakref.ref(task)

    def check() -> None:
        present = _present_task()
        is_same = present is (known() if known else None)
        is_gone = known is not None and present is None
        if _mark_of_thread() is not owner or is_gone or not is_same:
            raise OwnerThreadError(owner="task")

    return check


def no_owner_check() -> None:
    """Let everybody pass."""


def _mark_of_thread() -> object:
    """Return an object that only this thread has, as long as it lives."""
    try:
        return _HERE.mark
    except AttributeError:
        _HERE.mark = object()
        return _HERE.mark


def _present_task() -> Any:
    # Where nobody has loaded asyncio, nobody runs a task.
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return None
    try:
        return asyncio.current_task()
    except RuntimeError:  # No loop runs in this thread.
        return None
