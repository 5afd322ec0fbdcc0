"""From settings to a Memory: what ``crdtmem.open`` does.

The one place below the front ends that asks for settings and the environment; all
below it is given resolved values.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crdtmem.arguments import checked_bool
from crdtmem.config import Config, load_config
from crdtmem.config.places import process_environment
from crdtmem.errors import InvalidArgumentError
from crdtmem.limits import REPLY_BYTES, STORE_LOCK_MAX_S, STORE_LOCK_S
from crdtmem.memory import Memory
from crdtmem.session import Session
from crdtmem.store.connection import Durability
from crdtmem.store.store import Store

if TYPE_CHECKING:
    from datetime import datetime

    from crdtmem.condense.command import CommandSummariser

__all__ = ["command_summariser", "open", "open_with"]


def open(  # noqa: A001 - the public name; nothing here opens files
    path: str | os.PathLike[str] | None = None,
    *,
    lane: str | None = None,
    project: str | os.PathLike[str] | None = None,
    durability: Durability = "full",
    busy_timeout: float = STORE_LOCK_S,
    read_only: bool = False,
    create: bool = True,
    clock: Callable[[], "datetime"] | None = None,
) -> Memory:
    """Open the shared memory, making it where it is absent.

    Nothing has to be running. Every argument that is None comes from the environment,
    the project's file, the user's file, or the default, in this order.

    Args:
        path: The store's file; by default one for each user of a machine.
        lane: Who writes: 1 to 128 bytes, by default ``user@host``.
        project: A project id, or a folder (as a path object) to find the project of;
            by default that of the working folder.
        durability: ``full`` syncs each write to the disk before it returns;
            ``normal`` lets a power cut take back the newest writes.
        busy_timeout: Longest wait for the write lock, 0 to 600 seconds.
        read_only: Never write, never take a lock; the store must exist.
        create: Make an absent store.
        clock: The time, for tests; it must be aware of its time zone.

    Raises:
        InvalidArgumentError: If an argument is malformed; nothing was made.
        ConfigError: If a setting is.
        StoreError: If the store cannot be used.

    """
    options: dict[str, object] = {
        "store": None if path is None else Path(path),
        "lane": lane,
        "project": project,
        "durability": durability,
        "busy_timeout": busy_timeout,
    }
    given = {name: value for name, value in options.items() if value is not None}
    _check(durability, busy_timeout)
    checked_bool(read_only, "read_only")
    checked_bool(create, "create")
    config = load_config(options=given)
    return open_with(config, read_only=read_only, create=create, clock=clock)


def open_with(
    config: Config,
    *,
    read_only: bool = False,
    create: bool = True,
    clock: Callable[[], "datetime"] | None = None,
) -> Memory:
    """Open the memory that settings describe; see open."""
    clocks: Mapping[str, Any] = {} if clock is None else {"clock_ms": _in_ms(clock)}
    store = Store(
        config.store,
        read_only=read_only,
        create=create,
        durability=config.durability,
        busy_timeout_s=config.busy_timeout,
        history_keep=config.history_keep,
        **clocks,
    )
    project = config.project
    return Memory(
        Session(
            store,
            config.lane,
            project.id,
            project.source,
            condense=config.condense_knobs(),
        )
    )


def command_summariser(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    max_output: int = REPLY_BYTES,
) -> "CommandSummariser":
    """Return a summariser for ``Slot.condense`` that runs a command for each pass.

    The command reads the prompt on stdin and writes its reply to stdout. Status 75 says
    that it is out of quota (a line ``Retry-After: SECONDS`` on stderr says for how
    long), any other but 0 that it failed. No shell is between, and no process of its
    group is left when the pass ends, or this process does.

    Args:
        argv: The command and its arguments.
        env: Its whole environment; None: that of this process. ``CRDTMEM_PASS_ID`` and
            ``CRDTMEM_SLOT`` are added.
        cwd: Where it runs; None: where this process does.
        max_output: Longest reply in bytes; a command that writes more is killed.

    Raises:
        InvalidArgumentError: If the command is none, or cannot be found.

    """
    from crdtmem.condense import command  # noqa: PLC0415 - for those who condense

    environ = process_environment() if env is None else env
    return command.command_summariser(argv, env=environ, cwd=cwd, max_output=max_output)


def _check(durability: object, busy_timeout: object) -> None:
    if durability not in ("full", "normal"):
        message = f"durability must be 'full' or 'normal', not {durability!r:.40}"
        raise InvalidArgumentError("durability", message)
    is_number = isinstance(busy_timeout, (int, float))
    is_number = is_number and not isinstance(busy_timeout, bool)
    if not is_number or not 0 <= float(str(busy_timeout)) <= STORE_LOCK_MAX_S:
        message = (
            f"busy_timeout must be between 0 and {STORE_LOCK_MAX_S:.0f} s,"
            f" not {busy_timeout!r:.40}"
        )
        raise InvalidArgumentError("busy_timeout", message)


def _in_ms(clock: Callable[[], "datetime"]) -> Callable[[], int]:
    from datetime import UTC  # noqa: PLC0415 - for tests only, and slow to load

    def now_ms() -> int:
        return round(clock().astimezone(UTC).timestamp() * 1000)

    return now_ms
