"""Runs a command line, and turns how it ends into an exit status."""

import json
import logging
import secrets
import sys
from collections.abc import Sequence

import click

from crdtmem.errors import CrdtmemError, InvalidArgumentError
from relay.cli.commands import cli

__all__ = ["main", "status_of"]

INTERRUPTED = 130
STDOUT_CLOSED = 141


def main() -> None:
    """Run the command line of this process and exit."""
    sys.exit(status_of(sys.argv[1:]))


def status_of(argv: Sequence[str], program: str = "crdtmem-relay") -> int:
    """Run a command line; return what the process exits with.

    Args:
        argv: What stands behind the program's name.
        program: How the program was called.

    """
    as_json = "--json" in argv
    try:
        status: int | None = cli.main(
            args=list(argv), prog_name=program, standalone_mode=False
        )
        return status or 0
    except click.UsageError as error:
        return _explain(error, program, as_json=as_json)
    except CrdtmemError as error:
        return _failed(error, as_json=as_json)
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except SystemExit:
        # How click ends where stdout has been closed; it sees to the buffers itself.
        return STDOUT_CLOSED
    except Exception as error:  # noqa: BLE001 - the top of a command: it is logged and told
        return _failed(_internal_error(error), as_json=as_json)


def _explain(error: click.UsageError, program: str, *, as_json: bool) -> int:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return error.exit_code
    where = error.ctx.command_path if error.ctx is not None else program
    message = error.format_message().strip().removesuffix(".")
    found = InvalidArgumentError(
        "argv",
        message[:1].lower() + message[1:],
        code="usage",
        hint=f"run '{where} --help' to see what there is",
    )
    return _failed(found, as_json=as_json)


def _failed(error: CrdtmemError, *, as_json: bool) -> int:
    if as_json:
        click.echo(json.dumps(error.to_dict()), err=True)
    else:
        click.echo(f"error: {error.message}", err=True)
        if error.hint:
            click.echo(f"hint: {error.hint}", err=True)
    return error.exit_status


def _internal_error(error: Exception) -> CrdtmemError:
    """Log what nobody expected; the sentence holds no part of it, the log does."""
    incident = secrets.token_hex(4)
    logging.getLogger(__name__).error("incident %s", incident, exc_info=error)
    return CrdtmemError(
        f"internal error, incident {incident}",
        code="internal-error",
        hint="report it, with the traceback",
        details={"incident": incident},
    )
