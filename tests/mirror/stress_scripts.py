"""What the processes of the mirror's stress tests do: tools, lanes and the mirror.

Tools know nothing of crdtmem: they write lines into files. Lanes know nothing of files:
they rewrite slots. Between them runs the command, in a fork that may be killed.
"""

import contextlib
import errno
import itertools
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crdtmem.condense.values import CondensePass, CondenseReply
from tests.killpoints import replace_function
from tests.machine_scripts import run_command
from tests.oracle import token
from tests.scenarios import opened

if TYPE_CHECKING:
    from crdtmem.slot import Slot
    from tests.child import Link

__all__ = [
    "SUMMARY",
    "TITLE",
    "append_to_slot",
    "mirror_folder",
    "rewrite_slots",
    "use_tools",
]

TITLE = "# pass "
"""How the first line of a slot begins, which each pass writes anew."""

SUMMARY = "; ".join(["what had been done until then, in short"] * 6)

DENIED: dict[str, tuple[str, str, int]] = {
    "exchange": ("crdtmem.mirror.syscalls", "exchange_entries", errno.ENOSYS),
    "leases": ("crdtmem.mirror.leases", "set_lease", errno.EACCES),
}
"""What a system may refuse: module, function, and what the refusal is."""


def mirror_folder(
    link: "Link",
    *,
    argv: list[str],
    environment: Mapping[str, str],
    denied: list[str],
) -> None:  # pragma: no cover - run by forks, which save no measurement
    """Run a command line of the mirror where the system refuses some things."""
    for name in denied:
        _deny(*DENIED[name])
    run_command(link, argv=argv, environment=environment)


def _deny(
    module: str, function: str, number: int
) -> None:  # pragma: no cover - likewise
    def denied(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    replace_function(module, function, denied)


def use_tools(link: "Link", *, tools: list[dict[str, Any]]) -> dict[str, Any]:
    """Let tools write into their files, each in a thread, until the parent's go.

    Args:
        link: Gets ``writing`` once all have begun.
        tools: For each its ``kind``, ``name``, ``file`` and ``pause_s``.

    Returns:
        By name: the number of lines written, for a reader what it has found.

    """
    stop = threading.Event()
    results: dict[str, Any] = {}

    def work(kind: str, name: str, file: str, pause_s: float) -> None:
        lines = (f"{token(name, number)}é\n".encode() for number in itertools.count())
        with contextlib.ExitStack() as stack:
            act = _TOOLS[kind](Path(file), lines, stack)
            while not stop.wait(pause_s):
                results[name] = act()

    with _threads(work, tools):
        link.pause("writing")
        stop.set()
    return results


def _appender(file: Path, lines: Iterator[bytes], _: object) -> Callable[[], Any]:
    """Open the file, append a line, close it, as ``>>`` does."""
    counted = itertools.count(1)

    def act() -> int:
        with file.open("ab", buffering=0) as opened_file:
            opened_file.write(next(lines))
        return next(counted)

    return act


def _holder(
    file: Path, lines: Iterator[bytes], stack: contextlib.ExitStack
) -> Callable[[], Any]:
    """Append lines to the file that was opened at first, as a logger does."""
    opened_file = stack.enter_context(file.open("ab", buffering=0))
    counted = itertools.count(1)

    def act() -> int:
        opened_file.write(next(lines))
        return next(counted)

    return act


def _replacer(file: Path, lines: Iterator[bytes], _: object) -> Callable[[], Any]:
    """Insert a line in the middle of what was read, and rename the result over it."""
    counted = itertools.count(1)
    new = file.with_name(f".{file.name}.new")

    def act() -> int:
        found = _content(file).splitlines(keepends=True)
        found.insert(max(1, len(found) // 2), next(lines))
        new.write_bytes(b"".join(found))
        new.replace(file)
        return next(counted)

    return act


def _content(file: Path) -> bytes:
    while True:
        # It is away for some microseconds where the system knows no exchange.
        with contextlib.suppress(FileNotFoundError):
            return file.read_bytes()


def _reader(file: Path, _: object, __: object) -> Callable[[], Any]:
    """Read the file; note what was no whole text."""
    found: dict[str, Any] = {"reads": 0, "missing": 0, "faults": []}

    def act() -> dict[str, Any]:
        try:
            content = file.read_bytes()
        except FileNotFoundError:  # pragma: no cover - seen by chance, if at all
            found["missing"] += 1
            return found
        found["reads"] += 1
        # The tool's own append may be seen in two pieces, at the end.
        title, *lines = content.decode(errors="replace").split("\n")[:-1] or [""]
        numbers = [_number_of(line) for line in lines]
        is_whole = title.startswith(TITLE) and numbers == sorted(set(numbers))
        found["faults"] += [] if is_whole else [repr(content[:80])]
        return found

    return act


def _number_of(line: str) -> int:
    """Return the number of a tool's line, -1 of one that is not whole."""
    name, _, rest = line.partition("#")
    number = rest.partition("=")[0]
    is_whole = number.isdecimal() and line == f"{token(name, int(number))}é"
    return int(number) if is_whole else -1


_TOOLS: dict[str, Callable[..., Callable[[], Any]]] = {
    "appender": _appender,
    "holder": _holder,
    "reader": _reader,
    "replacer": _replacer,
}


def rewrite_slots(
    link: "Link", *, path: str, rewrites: list[dict[str, Any]]
) -> dict[str, Any]:
    """Rewrite slots, each in a thread, for some passes and until the parent's go.

    Args:
        link: Gets ``rewritten`` when all passes have been made.
        path: The store.
        rewrites: For each the ``slot``, how many ``passes``, how long to ``wait_s``
            between reading and writing, and how many lines to ``keep``; where that is
            0, the passes condense it.

    Returns:
        By slot: the lines that were taken out, in their order.

    """
    taken: dict[str, list[str]] = {}

    def work(slot: str, passes: int, wait_s: float, keep: int) -> None:
        taken[slot] = []
        with opened(path, f"rewriter of {slot}") as memory:
            if not keep:
                taken[slot] = _condense(memory.slot(slot), passes, wait_s)
                return
            for number in range(passes):
                view = memory.slot(slot).read()
                pause.wait(wait_s)
                _, *lines = str(view.content).split("\n")
                text = "\n".join([f"{TITLE}{number + 1}", *lines[-keep:]])
                memory.slot(slot).replace(text, base_rev=view.rev)
                taken[slot] += lines[:-keep]

    pause = threading.Event()
    with _threads(work, rewrites):
        pass
    link.report("rewritten")
    return taken


def _condense(slot: "Slot", passes: int, wait_s: float) -> list[str]:
    """Condense a slot so many times; return the lines that were taken out.

    While there is not enough in it, it waits for more.
    """
    pause = threading.Event()
    taken: list[str] = []

    def summarise(begun: CondensePass) -> CondenseReply:
        pause.wait(wait_s)
        evicted = "".join(section.text for section in begun.evicted)
        thought[:] = evicted.split("\n")
        return CondenseReply(pass_id=begun.id, summary=SUMMARY)

    thought: list[str] = []
    done = 0
    while done < passes:
        if slot.condense(summarise, keep_sections=1, force=True).condensed:
            taken += thought
            done += 1
        else:
            pause.wait(wait_s)
    return taken


def append_to_slot(
    link: "Link", *, path: str, slot: str, lane: str, count: int, pause_s: float
) -> list[str]:
    """Append lines to a slot, with pauses; return them."""
    pause = threading.Event()
    lines = [token(lane, number) for number in range(count)]
    with opened(path, lane) as memory:
        for number, line in enumerate(lines):
            memory.slot(slot).append(line)
            link.report("appended", count=number + 1)
            pause.wait(pause_s)
    return lines


@contextlib.contextmanager
def _threads(work: Callable[..., None], calls: list[dict[str, Any]]) -> Iterator[None]:
    """Make each call in a thread of its own; raise what one of them raised."""
    with ThreadPoolExecutor(len(calls)) as pool:
        made = [pool.submit(work, **call) for call in calls]
        yield
    for one in made:
        one.result()
