"""What commands, arguments and options are, and how a value is read.

The types of the table in ``options``. They are named tuples, and nothing is loaded but
patterns: the front door reads the table at every turn of an agent, and to make a
dataclass takes several times as long.
"""

import re
from collections.abc import Callable
from typing import Literal, NamedTuple

__all__ = [
    "Access",
    "Argument",
    "Command",
    "Invocation",
    "Option",
    "Value",
    "convert",
    "read_lines",
]

Value = str | int | float | bool | tuple[int, int] | tuple[str, ...] | None
"""What an option or argument can come to."""

Access = Literal["none", "look", "read", "write"]
"""How a command opens the store.

``look`` takes no lock and leaves no trace, ``read`` may note what its lane has seen,
``write`` also makes the store where there is none.
"""


def _read_whole(raw: str) -> int:
    """Read a whole number; underscores and blanks, which int() lets pass, are not."""
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", raw):
        raise ValueError(f"{raw!r} is not a whole number")
    return int(raw)


def _read_seconds(raw: str) -> float:
    """Read a number of seconds."""
    if not re.fullmatch(r"[+-]?[0-9]{1,9}(\.[0-9]{1,9})?", raw):
        raise ValueError(f"{raw!r} is not a number of seconds")
    return float(raw)


def read_lines(raw: str) -> tuple[int, int]:
    """Read a range of lines such as 3-7, or one line."""
    match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", raw)
    if match is None:
        raise ValueError(f"{raw!r} is not a range of lines such as 3-7")
    first = int(match[1])
    return first, int(match[2] or first)


_READERS: dict[str, Callable[[str], Value]] = {
    "text": str,
    "whole": _read_whole,
    "seconds": _read_seconds,
    "lines": read_lines,
}


class Option(NamedTuple):
    """A named value.

    Attributes:
        names: How it is written; the first long one names the parameter.
        help: One line.
        kind: ``flag`` takes no value, ``choice`` takes one of ``choices``.
        choices: What a choice may be.
        off: How a flag is written that says no; without, a flag only says yes.
        default: What the function gets where the option is not given.
        is_left_out: Whether the function gets nothing at all then, so that the verb
            below decides.
        called: Another name of the parameter.
        is_many: Whether it may be given several times; the values are a tuple then,
            an empty one where it is not given. No quick command has such an option.

    """

    names: tuple[str, ...]
    help: str
    kind: Literal["flag", "text", "whole", "seconds", "lines", "choice"] = "text"
    choices: tuple[str, ...] = ()
    off: tuple[str, ...] = ()
    default: Value = None
    is_left_out: bool = False
    called: str = ""
    is_many: bool = False

    @property
    def parameter(self) -> str:
        """Return the name of the function's parameter."""
        if self.called:
            return self.called
        long = next(name for name in self.names if name.startswith("--"))
        return long[2:].replace("-", "_")

    @property
    def takes_value(self) -> bool:
        """Return whether a value follows the name."""
        return self.kind != "flag"


class Argument(NamedTuple):
    """A value that is told by its place.

    Attributes:
        parameter: The name of the function's parameter.
        is_required: Whether it must be given.
        is_many: Whether it takes all that is left, as a tuple.
        choices: What it may be, or empty for anything.

    """

    parameter: str
    is_required: bool = True
    is_many: bool = False
    choices: tuple[str, ...] = ()


class Command(NamedTuple):
    """A command, as both readers know it.

    Attributes:
        name: How it is called.
        help: The short help: one line, without a full stop.
        module: The module of ``crdtmem.cli`` that holds its function.
        access: How it opens the store.
        arguments: In their order.
        options: Its own, without the global ones.
        is_text: Whether its arguments are free text, so that only exact names of
            options are options.
        is_passed_on: Whether it reads all that stands behind its name by itself.
        has_command: Whether what stands behind ``--`` is the line of another program,
            and its last argument.
        more: What the long help says after the short one.

    """

    name: str
    help: str
    module: str
    access: Access
    arguments: tuple[Argument, ...] = ()
    options: tuple[Option, ...] = ()
    is_text: bool = False
    is_passed_on: bool = False
    has_command: bool = False
    more: str = ""

    @property
    def function(self) -> str:
        """Return the name of its function, which has its own name where it can."""
        return {"import": "import_", "set": "set_"}.get(self.name, self.name)


class Invocation(NamedTuple):
    """A command line that has been read: what to run, and with what."""

    command: Command
    shared: dict[str, Value]
    values: dict[str, Value]


def convert(option: Option, raw: str) -> Value:
    """Return the value of an option that takes one.

    Raises:
        ValueError: If it does not fit; the sentence says how.

    """
    if option.kind == "choice":
        if raw not in option.choices:
            raise ValueError(f"{raw!r} is not one of {', '.join(option.choices)}")
        return raw
    return _READERS[option.kind](raw)
