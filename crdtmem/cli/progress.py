"""Says that a long call is still at work: late, on stderr, and only to people."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from crdtmem.cli.output import Output

__all__ = ["progress"]

_QUICK_S = 0.5
_PLAIN_INTERVAL_S = 5.0


@contextmanager
def progress(
    out: Output, what: str, form: str | None, *, interval_s: float | None = None
) -> Iterator[None]:
    """Tell, while the block runs, that it does; nothing if it is soon over.

    Args:
        out: Tells whether anybody wants to know.
        what: What is being done.
        form: ``plain`` for a line on stderr now and then, also without a terminal.
        interval_s: Another time to wait, for tests.

    """
    is_plain = form == "plain"
    if out.as_json or out.is_quiet or not (is_plain or sys.stderr.isatty()):
        yield
        return
    done = threading.Event()
    wait_s = interval_s or (_PLAIN_INTERVAL_S if is_plain else _QUICK_S)
    show = _tell_lines if is_plain else _spin
    thread = threading.Thread(target=show, args=(out, what, done, wait_s), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _tell_lines(out: Output, what: str, done: threading.Event, wait_s: float) -> None:
    waited_s = 0.0
    while not done.wait(wait_s):
        waited_s += wait_s
        out.note(f"{what}: {waited_s:.0f} s")


def _spin(out: Output, what: str, done: threading.Event, wait_s: float) -> None:
    if done.wait(wait_s):
        return
    from rich.console import Console  # noqa: PLC0415 - slow to load, and seldom needed

    with Console(stderr=True).status(f"{what} …"):
        done.wait()
