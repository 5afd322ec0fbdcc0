"""Runs a command that has been read, and turns how it ends into an exit status.

Both readers end here, so a command prints the same bytes whichever read its line. A
command is a function that takes a ``Call`` and its own values as keywords, asks one
verb of the memory and prints; it opens nothing and catches nothing.
"""

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypedDict, cast

from crdtmem.cli.grammar import Access, Invocation, Value
from crdtmem.cli.output import Output
from crdtmem.config import Config, load_config
from crdtmem.config.places import process_environment
from crdtmem.config.sources import project_from_text
from crdtmem.errors import ConfigError, CrdtmemError

if TYPE_CHECKING:
    from pathlib import Path

    from crdtmem.memory import Memory
    from crdtmem.models import Scope
    from crdtmem.slot import Slot

__all__ = ["Call", "Guards", "internal_error", "run"]

INTERRUPTED = 130
STDOUT_CLOSED = 141
_LOG_FORMAT = "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"


class Guards(TypedDict, total=False):
    """What a write may insist on; only what was given is in it."""

    expected_rev: int
    expected_hash: str
    request_id: str


class Call:
    """What a command works with: its output, the settings, and the memory.

    Settings are read and the store is opened when they are first asked for.

    Args:
        shared: The global options.
        access: How the command opens the store.

    Attributes:
        out: Where the answer goes.
        folder: Where to work from, None for the process's own folder; set before the
            settings are asked for.

    """

    def __init__(self, shared: Mapping[str, Value], access: Access) -> None:
        self._shared = shared
        self._access = access
        self._config: Config | None = None
        self._memory: Memory | None = None
        self.folder: Path | None = None
        self.out = Output(
            as_json=bool(shared["as_json"]),
            is_quiet=bool(shared["quiet"]),
            is_verbose=bool(shared["verbose"]),
        )

    @property
    def config(self) -> Config:
        """Return the settings, read on first use."""
        if self._config is None:
            shared = self._shared
            project = shared["project"]
            self._config = load_config(
                options={
                    **{
                        name: shared[name]
                        for name in ("store", "scope", "lane", "color", "busy_timeout")
                    },
                    "project": None
                    if project is None
                    else project_from_text(str(project)),
                },
                cwd=self.folder,
            )
            self._begin(self._config)
        return self._config

    @property
    def scope(self) -> "Scope | None":
        """Return the scope that was asked for, None for where the label is found."""
        return cast("Scope | None", self._shared["scope"])

    @property
    def memory(self) -> "Memory":
        """Return the memory, opened on first use; ``close`` closes it.

        Raises:
            StoreNotFoundError: If there is no store and the command makes none.

        """
        return self.open(self._access)

    def open(self, access: Access, *, lane: str | None = None) -> "Memory":
        """Return the memory, opened in another way than the table says.

        Args:
            access: How.
            lane: Who writes where no option names a lane.

        """
        if self._memory is None:
            from crdtmem import opening  # noqa: PLC0415 - loads the store, 2 x a bare start

            config = self.config
            if lane is not None and config.sources["lane"] != "option":
                config = config._replace(lane=lane)
            self._memory = opening.open_with(
                config, read_only=access == "look", create=access == "write"
            )
        return self._memory

    def slot(self, label: str) -> "Slot":
        """Return the slot of a label, in the scope that was asked for."""
        return self.memory.slot(label, self.scope)

    def close(self) -> None:
        """Close the memory, if it was opened."""
        if self._memory is not None:
            self._memory.close()

    def _begin(self, config: Config) -> None:
        color = self._shared["color"]
        self.out.choose_color(
            None if color is None else str(color), config.color, process_environment()
        )
        if config.log_file is not None or self.out.is_verbose:
            _start_log(config, is_verbose=self.out.is_verbose)


def run(invocation: Invocation) -> int:
    """Run a command; return its exit status. Whatever happens is told on stderr."""
    call = Call(invocation.shared, invocation.command.access)
    try:
        try:
            status = _function(invocation)(call, **invocation.values) or 0
            call.out.flush()
            return status
        finally:
            call.close()
    except CrdtmemError as error:
        return _failed(call, error)
    except KeyboardInterrupt:
        call.out.warn("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        _give_up_stdout()
        return STDOUT_CLOSED
    except Exception as error:  # noqa: BLE001 - the top of a command: it is logged and told
        return _failed(call, internal_error(error))


def internal_error(error: Exception) -> CrdtmemError:
    """Log an exception that nobody expected; return what the user is told of it.

    The sentence holds no part of the exception: that may hold text of a slot.
    """
    import logging  # noqa: PLC0415 - half a bare start, for the seldom case
    import secrets  # noqa: PLC0415 - likewise

    incident = secrets.token_hex(4)
    # Without any handler, logging would print the traceback on stderr.
    logging.getLogger("crdtmem").addHandler(logging.NullHandler())
    logging.getLogger(__name__).error("incident %s", incident, exc_info=error)
    return CrdtmemError(
        f"internal error, incident {incident}",
        code="internal-error",
        hint="run it again with --verbose to see where, and report it",
        details={"incident": incident},
    )


def _function(invocation: Invocation) -> Callable[..., int | None]:
    command = invocation.command
    module = importlib.import_module(f"crdtmem.cli.{command.module}")
    function: Callable[..., int | None] = getattr(module, command.function)
    return function


def _failed(call: Call, error: CrdtmemError) -> int:
    call.out.error(error)
    return error.exit_status


def _give_up_stdout() -> None:
    # What is still in the buffer would raise once more when Python flushes it at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _start_log(config: Config, *, is_verbose: bool) -> None:
    import logging  # noqa: PLC0415 - half a bare start, for those who ask for a log

    handlers: list[logging.Handler] = []
    if is_verbose:
        handlers.append(logging.StreamHandler(sys.stderr))
    if config.log_file is not None:
        try:
            handlers.append(logging.FileHandler(config.log_file, encoding="utf-8"))
        except OSError as error:
            raise ConfigError(
                f"log_file {str(config.log_file)!r} cannot be written:"
                f" {error.strerror}",
                code="config-invalid",
                details={"key": "log_file", "path": str(config.log_file)},
            ) from error
    logger = logging.getLogger("crdtmem")
    logger.setLevel(logging.DEBUG if is_verbose else logging.INFO)
    for handler in handlers:
        handler.setFormatter(logging.Formatter(_LOG_FORMAT))
        logger.addHandler(handler)
