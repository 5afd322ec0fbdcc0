"""Reads a line with click, and tells what is wrong with it."""

from collections.abc import Sequence

import click

from crdtmem.cli.grammar import Invocation
from crdtmem.cli.output import Output
from crdtmem.cli.tree import read
from crdtmem.errors import InvalidArgumentError

__all__ = ["read_or_explain"]


def read_or_explain(argv: Sequence[str]) -> Invocation | int:
    """Return what to run, or the exit status where that is all."""
    try:
        return read(argv)
    except click.Abort:
        return 130
    except click.UsageError as error:
        status = _explain(error, as_json=_wants_json(argv))
        # A host takes a 2 for a veto: Claude Code would throw the user's prompt away.
        return 0 if list(argv[:1]) == ["hook"] else status


def _explain(error: click.UsageError, *, as_json: bool) -> int:
    where = error.ctx.command_path if error.ctx is not None else "crdtmem"
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return error.exit_code
    message = error.format_message().strip().removesuffix(".")
    found = InvalidArgumentError(
        "argv",
        message[:1].lower() + message[1:],
        code="usage",
        hint=f"run '{where} --help' to see what there is",
    )
    Output(as_json=as_json).error(found)
    return found.exit_status


def _wants_json(argv: Sequence[str]) -> bool:
    """Tell whether JSON was asked for on a line that could not be read."""
    words = list(argv)
    return "--json" in (words[: words.index("--")] if "--" in words else words)
