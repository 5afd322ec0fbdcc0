"""Reads a command line by the table alone, for the commands that must be quick.

It reads what it is sure of. For everything else (help, a typo, a bad value, a command
that is not quick) it returns None, and click reads the same line by the same table and
says what is wrong.
"""

from collections.abc import Iterable, Sequence

from crdtmem.cli.grammar import Command, Invocation, Option, Value, convert
from crdtmem.cli.options import GLOBAL_OPTIONS, QUICK_COMMANDS

__all__ = ["read_quickly"]


class _NotSureError(Exception):
    """Something that only click can judge."""


def read_quickly(argv: Sequence[str]) -> Invocation | None:
    """Return what a command line means, or None where click has to read it."""
    try:
        return _read(list(argv))
    except _NotSureError:
        return None


def _read(argv: list[str]) -> Invocation:
    shared = {option.parameter: option.default for option in GLOBAL_OPTIONS}
    named = _by_name(GLOBAL_OPTIONS)
    while argv and argv[0].startswith("-"):
        _read_option(argv, named, shared)
    name = argv.pop(0) if argv else ""
    command = next((row for row in QUICK_COMMANDS if row.name == name), None)
    if command is None:
        raise _NotSureError
    return Invocation(command, shared, _read_values(argv, command, named, shared))


def _read_values(
    argv: list[str],
    command: Command,
    named: dict[str, Option],
    shared: dict[str, Value],
) -> dict[str, Value]:
    values = {o.parameter: _unset(o) for o in command.options if not o.is_left_out}
    own = _by_name(command.options)
    words: list[str] = []
    while argv:
        word = argv[0]
        if not word.startswith("-") or word == "-":
            words.append(argv.pop(0))
        elif word.partition("=")[0] in own:
            _read_option(argv, own, values)
        else:
            _read_option(argv, named, shared)
    if len(words) != len(command.arguments):
        raise _NotSureError
    for argument, word in zip(command.arguments, words, strict=True):
        values[argument.parameter] = word
    return values


def _read_option(
    argv: list[str], named: dict[str, Option], values: dict[str, Value]
) -> None:
    name, equals, attached = argv.pop(0).partition("=")
    option = named.get(name)
    if option is None:
        raise _NotSureError
    # click takes the "=" behind a short name for a part of the value.
    if equals and not (option.takes_value and name.startswith("--")):
        raise _NotSureError
    if not option.takes_value:
        values[option.parameter] = True
        return
    if not equals and not argv:
        raise _NotSureError
    raw = attached if equals else argv.pop(0)
    try:
        values[option.parameter] = convert(option, raw)
    except ValueError:
        raise _NotSureError from None


def _by_name(options: Iterable[Option]) -> dict[str, Option]:
    return {name: option for option in options for name in option.names}


def _unset(option: Option) -> Value:
    return False if option.kind == "flag" else option.default
