"""``crdtmem mirror``: keep a folder of Markdown files and the slots in step."""

import asyncio
import contextlib
import inspect
import os
import platform
import signal
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from crdtmem.cli.phrases import plural
from crdtmem.cli.running import Call
from crdtmem.errors import InvalidArgumentError, MirrorNotFoundError
from crdtmem.models import UNSET

if TYPE_CHECKING:
    from crdtmem.memory import Memory
    from crdtmem.mirror.mirror import Mirror
    from crdtmem.mirror.values import BlockedFile, MirrorReport, MirrorStatus

__all__ = ["MirrorOptions", "mirror"]

Profile = Literal["plain", "claude"]
OnDelete = Literal["delete", "restore"]

LEFT_ALONE = 10
_DISCARDED_BYTES = 65_536


class MirrorOptions(TypedDict, total=False):
    """What was given; status and forget take none of it."""

    watch: bool
    label: tuple[str, ...]
    profile: Profile
    on_delete: OnDelete
    no_create: bool
    dry_run: bool


def mirror(
    call: Call, *, folder: tuple[str, ...], **options: Unpack[MirrorOptions]
) -> int | None:
    """Do one of the things that mirrors are made of."""
    words = list(folder)
    action = words.pop(0) if words and words[0] in _ACTIONS else ""
    act = _ACTIONS[action]
    takes = inspect.signature(act).parameters
    for name, value in options.items():
        if value and name not in takes:
            raise _usage(f"'mirror {action}' takes no --{name.replace('_', '-')}")
    if len(words) > 1:
        raise _usage(f"one folder is mirrored at a time, not also {words[1]!r}")
    given: dict[str, Any] = {name: value for name, value in options.items() if value}
    return act(call, words[0] if words else None, **given)


def _mirror(
    call: Call,
    folder: str | None,
    *,
    watch: bool = False,
    label: tuple[str, ...] = ("*",),
    profile: Profile = "plain",
    on_delete: OnDelete = "delete",
    no_create: bool = False,
    dry_run: bool = False,
) -> int | None:
    """Bring folder and slots in step, once or for as long as it runs."""
    # The mirror is slow to load, and only its own commands need it.
    from crdtmem.mirror.mirror import Mirror  # noqa: PLC0415 - see above

    if watch and dry_run:
        raise _usage("--watch and --dry-run exclude each other")
    place = _folder(call, folder)
    with contextlib.closing(
        Mirror(
            _memory(call, dry_run=dry_run),
            place,
            scope=call.scope or call.config.scope,
            labels=label,
            profile=profile,
            on_delete=on_delete,
            create=not no_create,
            dry_run=dry_run,
        )
    ) as opened:
        if watch:
            asyncio.run(_watch(call, opened))
            return None
        return _tell(call, opened.sync_once())


async def _watch(call: Call, opened: "Mirror") -> None:
    """Mirror until a signal, or until the process that feeds stdin has ended."""
    stop = asyncio.Event()
    with _told_by_signals(stop), _told_by_input(stop):
        call.out.note(f"mirroring {opened.folder}; Ctrl-C stops it")
        call.out.flush()
        await opened.run(stop)


@contextlib.contextmanager
def _told_by_signals(stop: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, stop.set)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


@contextlib.contextmanager
def _told_by_input(stop: asyncio.Event) -> Iterator[None]:
    """Notice the end of the process at the other end of stdin, if there is one.

    A terminal and a file say nothing about anybody's end.
    """
    # Where there is none, its number belongs to another file by now.
    if sys.stdin is None or not _is_fed(sys.stdin.fileno()):
        yield
        return
    fd = sys.stdin.fileno()
    loop = asyncio.get_running_loop()

    def look() -> None:
        if not os.read(fd, _DISCARDED_BYTES):
            loop.remove_reader(fd)
            stop.set()

    loop.add_reader(fd, look)
    try:
        yield
    finally:
        loop.remove_reader(fd)


def _is_fed(fd: int) -> bool:
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _status(call: Call, folder: str | None) -> None:
    """Show what is mirrored, and what is left alone."""
    from crdtmem.mirror.registry import statuses  # noqa: PLC0415 - slow to load

    found = statuses(call.open("look").store)
    if folder is not None:
        place = os.path.realpath(folder)
        found = tuple(one for one in found if one.folder == place)
        if not found:
            raise MirrorNotFoundError(folder=place)
    if call.out.as_json:
        call.out.json({"mirrors": [one.to_dict() for one in found]})
        return
    if not found:
        call.out.note("no folder is mirrored; 'crdtmem mirror FOLDER' mirrors one")
    for status in found:
        _tell_status(call, status)


def _forget(call: Call, folder: str | None) -> None:
    """End a mirror for good; files and slots stay as they are."""
    from crdtmem.mirror.registry import forget  # noqa: PLC0415 - slow to load

    if folder is None:
        raise _usage("a folder is needed: 'mirror forget FOLDER'")
    forget(call.open("read").store, folder)
    if call.out.as_json:
        call.out.json({"folder": os.path.realpath(folder), "forgotten": True})
    elif not call.out.is_quiet:
        call.out.line(f"{folder} is mirrored no more; its files stay")


def _tell(call: Call, report: "MirrorReport") -> int | None:
    """Print what a pass has done; return the exit status that it comes to."""
    if call.out.as_json:
        call.out.json(report)
    else:
        _tell_blocked(call, report.blocked)
        if not call.out.is_quiet:
            call.out.line(_report_line(report))
    return LEFT_ALONE if report.blocked else None


def _report_line(report: "MirrorReport") -> str:
    figures = [
        f"{plural(report.imported, 'change')} taken in",
        f"{plural(report.written, 'file')} written",
    ]
    if report.created:
        figures.append(f"{plural(report.created, 'slot')} made")
    if report.deleted:
        figures.append(f"{plural(report.deleted, 'slot')} deleted")
    planned = "" if report.dry_run is UNSET else "would be: "
    return planned + ", ".join(figures)


def _tell_status(call: Call, status: "MirrorStatus") -> None:
    state = f"process {status.pid}" if status.is_running else "nobody mirrors it now"
    call.out.line(f"{status.folder}: {plural(status.files, 'file')}, {state}")
    if status.retired:
        call.out.line(f"  {plural(status.retired, 'replaced file')} still watched")
    _tell_blocked(call, status.blocked)


def _tell_blocked(call: Call, blocked: "Sequence[BlockedFile]") -> None:
    for one in blocked:
        call.out.warn(f"{one.file or one.label}: left alone, {one.reason}; {one.hint}")


def _memory(call: Call, *, dry_run: bool) -> "Memory":
    """Open the memory; what comes from files is written by a lane of the mirror's."""
    lane = f"mirror:{platform.node() or 'localhost'}"
    return call.open("look" if dry_run else "write", lane=lane)


def _folder(call: Call, folder: str | None) -> Path:
    place = call.config.mirror_dir if folder is None else Path(folder)
    if place is None:
        raise InvalidArgumentError(
            "folder",
            "there is no folder to mirror",
            code="usage",
            hint="name it, or run 'crdtmem config set mirror.dir FOLDER'",
        )
    return place


def _usage(message: str) -> InvalidArgumentError:
    hint = "run 'crdtmem mirror --help' to see what there is"
    return InvalidArgumentError("argv", message, code="usage", hint=hint)


_ACTIONS: dict[str, Callable[..., int | None]] = {
    "": _mirror,
    "forget": _forget,
    "status": _status,
}
