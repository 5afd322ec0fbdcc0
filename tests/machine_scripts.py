"""What the processes of `tests.fleet` do: a relay that serves, a store that syncs.

These scripts run in forks of a child, so each is a process of its own with an
environment of its own that may be killed at a kill point, and costs no start of Python.
"""

import contextlib
import functools
import importlib
import io
import os
import pkgutil
import select
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import relay
from crdtmem.errors import StorageUnreachableError
from crdtmem.protocol.serving import JOIN_REFUSALS, PUT_REFUSALS
from tests.killpoints import replace_function

if TYPE_CHECKING:
    from tests.child import Link

__all__ = ["load_for_sync", "run_command", "serve_relay"]

COMMAND_MODULES = ("__main__", "running", "sync", "tree", "usage")


def load_for_sync(link: "Link") -> None:
    """Import what the forks will need, once for all of them."""
    for found in pkgutil.walk_packages(relay.__path__, "relay."):
        importlib.import_module(found.name)
    for name in COMMAND_MODULES:
        importlib.import_module(f"crdtmem.cli.{name}")
    link.report("loaded")


def serve_relay(
    link: "Link",
    *,
    folder: str,
    port: int,
    is_restored: bool = False,
    sweep_s: float | None = None,
    is_hasty: bool = False,
) -> None:  # pragma: no cover - run by forks, which save no measurement
    """Serve a relay's folder until a signal; report ``listening``, and ``swept``.

    Args:
        link: Of the child.
        folder: The relay's.
        port: Where to listen.
        is_restored: Whether the folder was put back from a copy.
        sweep_s: Pause between two sweeps, where it shall not be the usual one.
        is_hasty: Whether clients are to come back at once where it is busy.

    """
    from relay.cli.places import Place  # noqa: PLC0415 - the tests need no relay
    from relay.cli.serving import serve_place  # noqa: PLC0415 - likewise
    from relay.config import read_config  # noqa: PLC0415 - likewise

    _end_with_the_tests()
    if is_hasty:
        for table in (JOIN_REFUSALS, PUT_REFUSALS):
            table["busy"] = (table["busy"][0], 100)
    if sweep_s is not None:
        _preset("relay.server.serving", "Timing", sweep_s=sweep_s)
    _follow(
        "relay.storage.sqlite.aging", "drop_payloads", lambda *_: link.report("swept")
    )
    path = Path(folder)
    try:
        status = serve_place(
            Place(path, replace(read_config(path), port=port)),
            is_restored=is_restored,
            on_ready=lambda port: link.report("listening", pid=os.getpid(), port=port),
        )
    except StorageUnreachableError as error:
        # As the command ends where its database is away.
        os._exit(error.exit_status)
    if status:
        raise SystemExit(status)


def run_command(
    link: "Link",
    *,
    argv: list[str],
    environment: Mapping[str, str],
    is_hasty: bool = False,
) -> None:  # pragma: no cover - run by forks, which save no measurement
    """Run a command line in an environment of its own; report ``ended``.

    What a syncing process does is reported meanwhile: ``noted`` with how its link
    stands, ``applied``, ``acknowledged``, ``alarmed`` with the code.

    Args:
        link: Of the child.
        argv: What stands behind the program's name.
        environment: All of it.
        is_hasty: Whether to give up a silent relay, and to come back, within a second.

    """
    from crdtmem.cli.__main__ import status_of  # noqa: PLC0415 - the tests need no command line

    _end_with_the_tests()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(environment["HOME"])
    _report_calls(link)
    if is_hasty:
        _make_haste()
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = status_of(argv)
    link.report("ended", status=status, out=_written(out), err=_written(err))


def _written(stream: io.TextIOWrapper) -> str:  # pragma: no cover - likewise
    stream.seek(0)
    return stream.read()


def _make_haste() -> None:  # pragma: no cover - likewise
    from crdtmem.protocol.client_events import ClientLimits  # noqa: PLC0415 - see there

    _preset("crdtmem.protocol.client", "ClientSession", limits=ClientLimits(dead_s=1.5))
    _preset("crdtmem.sync.transport", "open_connection", timeout_s=1.5)
    replace_function(
        "crdtmem.protocol.backoff",
        "delays",
        lambda rng: iter(lambda: rng.uniform(0.0, 0.2), None),
    )


def _report_calls(link: "Link") -> None:  # pragma: no cover - likewise
    def noted(store: object, notes: Mapping[int, Mapping[str, Any]]) -> None:
        (note,) = notes.values()
        link.report("noted", **note)

    def acknowledged(*_: object) -> None:
        link.report("acknowledged")

    def applied(*_: object) -> None:
        link.report("applied")

    def alarmed(transaction: object, link_: int, code: str, detail: str) -> None:
        link.report("alarmed", code=code)

    _follow("crdtmem.store.link_status", "save_notes", noted)
    _follow("crdtmem.store.intake", "apply_items", applied)
    _follow("crdtmem.store.outbox", "acknowledge", acknowledged)
    _follow("crdtmem.store.links", "add_alarm", alarmed)


def _follow(
    module: str, name: str, report: Callable[..., None]
) -> None:  # pragma: no cover - likewise
    """Have the calls of a function reported after they have returned."""
    original = getattr(importlib.import_module(module), name)

    @functools.wraps(original)
    def followed(*args: Any) -> Any:
        result = original(*args)
        report(*args)
        return result

    replace_function(module, name, followed)


def _preset(
    module: str, name: str, **values: object
) -> None:  # pragma: no cover - likewise
    original = getattr(importlib.import_module(module), name)
    replace_function(module, name, functools.partial(original, **values))


def _end_with_the_tests() -> None:  # pragma: no cover - likewise
    """End this process when nobody holds the other end of its input any more."""
    poll = select.poll()
    poll.register(0, 0)

    def watch() -> None:
        poll.poll()
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
