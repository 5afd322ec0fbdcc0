"""The tree of commands; each asks one function of the storage and prints."""

import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from crdtmem.protocol.tokens import format_token
from relay.auth import SCOPES, digest_of
from relay.cli.places import (
    Place,
    add_token,
    check_log,
    copy_place,
    end_token,
    place_of,
    tokens_of,
)
from relay.cli.serving import address_of, serve_place
from relay.cli.tokens import new_token, shown, store_token, token_json, token_line
from relay.config import (
    FILE_NAME,
    RelayConfig,
    default_text,
    parse_database,
    parse_listen,
    parse_network,
    parse_origin,
)
from relay.storage.checking import NamespaceCheck
from relay.storage.sqlite.folder import init_folder
from relay.storage.sqlite.maintenance import back_up
from relay.storage.sqlite.storage import wall_ms

__all__ = ["cli"]

PROBLEMS_FOUND = 10
FIRST_TOKEN = "first.token"
_FIRST_SCOPES = ("compact", "presence", "read", "write")
_UNIT_MS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000}
_HELP_NAMES = {"help_option_names": ["-h", "--help"]}
_PATH = click.Path(path_type=Path)

_F = TypeVar("_F", bound=Callable[..., Any])


class _Parsed(click.ParamType[Any]):
    """A value that one of the settings' parsers reads."""

    def __init__(self, name: str, parse: Callable[[str], object]) -> None:
        self.name = name
        self._parse = parse

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        try:
            return self._parse(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _parse_span(text: str) -> int:
    match = re.fullmatch(r"([1-9][0-9]{0,4})([mhd])", text)
    if match is None:
        raise ValueError(f"{text!r} is no time such as 30m, 12h or 90d")
    return int(match[1]) * _UNIT_MS[match[2]]


def _command(
    group: click.Group, name: str | None = None, *, argument: Callable[[_F], _F]
) -> Callable[[_F], click.Command]:
    """Register a command of a place, with its --json."""

    def register(function: _F) -> click.Command:
        function = click.option(
            "--json", "as_json", is_flag=True, help="Print the result as JSON."
        )(function)
        return group.command(name, context_settings=_HELP_NAMES)(argument(function))

    return register


_FOLDER = click.argument("folder", metavar="DIR", type=_PATH)


def _named(_context: click.Context, _option: click.Parameter, text: str) -> Place:
    """Return the place of an argument: a folder, or the URL of a database."""
    return place_of(text)


_PLACE = click.argument("place", metavar="DIR", callback=_named)


@click.group(context_settings=_HELP_NAMES)
def cli() -> None:
    """Run a relay, or look after one.

    A relay is a folder, or a database that several processes serve. It orders what
    stores send to it, keeps it on disk and shows it to the others; it never reads what
    is inside. DIR is the folder, or the URL of the database.
    """


@cli.group(context_settings=_HELP_NAMES)
def token() -> None:
    """Say who may connect, and what they may do."""


@_command(cli, argument=_FOLDER)
@click.option("--namespace", default="*", help="What the first token is for (all).")
def init(folder: Path, namespace: str, *, as_json: bool) -> None:
    """Make a relay in a new folder, and a first token."""
    now_ms = wall_ms()
    row, secret = new_token(
        namespace, _FIRST_SCOPES, label="first", now_ms=now_ms, not_after_ms=None
    )
    init_folder(folder, now_ms=now_ms)
    (folder / FILE_NAME).write_text(default_text(), encoding="utf-8")
    target = folder / FIRST_TOKEN
    store_token(Place(folder, RelayConfig()), row, secret, target)
    if as_json:
        _print_json({"folder": str(folder), "file": str(target), **token_json(row)})
        return
    click.echo(f"{folder}: a new relay, its settings in {FILE_NAME}")
    click.echo(f"{target}: a token for {shown(row)}")
    click.echo(f"next: crdtmem relay serve {folder}")


@_command(cli, argument=click.argument("named", metavar="[DIR]", required=False))
@click.option(
    "--storage",
    type=_Parsed("url", parse_database),
    help="Database of PostgreSQL that holds the log; several relays may share it.",
)
@click.option(
    "--password-file", type=_PATH, help="File with the password of the database."
)
@click.option(
    "--listen",
    type=_Parsed("address", parse_listen),
    help="Where to listen (127.0.0.1:8787); port 0 for a free one.",
)
@click.option("--tls-cert", type=_PATH, help="Certificate, and those above it (PEM).")
@click.option("--tls-key", type=_PATH, help="Its key (PEM).")
@click.option(
    "--behind-proxy",
    multiple=True,
    type=_Parsed("network", parse_network),
    help="Network of a proxy that has the certificate; may be repeated.",
)
@click.option(
    "--origin",
    multiple=True,
    type=_Parsed("url", parse_origin),
    help="Web page that may connect; may be repeated.",
)
@click.option("--restored", is_flag=True, help="The log was put back from a copy.")
def serve(
    named: str | None,
    *,
    as_json: bool,
    restored: bool,
    storage: str | None,
    password_file: Path | None,
    **given: Any,
) -> int:
    """Serve a relay until a signal; others connect to it.

    What is not given here is taken from relay.toml in the folder. Without any of them,
    CRDTMEM_RELAY_STORAGE names the database.
    """
    place = place_of(named, database=storage or "", password_file=password_file)
    config = _with_options(place.config, given)
    return serve_place(
        replace(place, config=config),
        is_restored=restored,
        on_ready=lambda port: _tell_address(config, port, as_json=as_json),
    )


@_command(token, argument=_PLACE)
@click.option(
    "--namespace",
    required=True,
    help="A name, the beginning of one with '*' behind it, or '*'.",
)
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    type=click.Choice(list(SCOPES)),
    help="What it may do; may be repeated.",
)
@click.option("--label", default="", help="For people.")
@click.option(
    "--expires",
    "span_ms",
    type=_Parsed("time", _parse_span),
    help="From now, such as 30m, 12h or 90d (never).",
)
@click.option(
    "--max-replicas",
    type=click.IntRange(min=1),
    help="Most stores that may write under it in one namespace.",
)
@click.option(
    "--out",
    "target",
    required=True,
    type=_PATH,
    help="New file for the token, or '-' for stdout. It is not shown again.",
)
def create(
    place: Place,
    *,
    namespace: str,
    scopes: tuple[str, ...],
    label: str,
    span_ms: int | None,
    max_replicas: int | None,
    target: Path,
    as_json: bool,
) -> None:
    """Make a token."""
    now_ms = wall_ms()
    row, secret = new_token(
        namespace,
        scopes,
        label=label,
        now_ms=now_ms,
        not_after_ms=None if span_ms is None else now_ms + span_ms,
        max_replicas=max_replicas,
    )
    if str(target) == "-":
        add_token(place, row, digest_of(secret))
        text = format_token(row.token_id, secret)
        if as_json:
            _print_json({"token": text, **token_json(row)})
        else:
            click.echo(text)
        return
    store_token(place, row, secret, target)
    if as_json:
        _print_json({"file": str(target), **token_json(row)})
    else:
        click.echo(f"{target}: a token for {shown(row)}")


@_command(token, "list", argument=_PLACE)
def list_(place: Place, *, as_json: bool) -> None:
    """Show all tokens, without their secrets."""
    rows = tokens_of(place)
    if as_json:
        _print_json({"tokens": [token_json(row) for row in rows]})
        return
    for row in rows:
        click.echo(token_line(row))


@_command(token, argument=_PLACE)
@click.argument("token_id", metavar="ID")
def revoke(place: Place, *, token_id: str, as_json: bool) -> None:
    """Revoke a token; its connections end within seconds."""
    end_token(place, token_id, wall_ms())
    if as_json:
        _print_json({"id": token_id, "revoked": True})
    else:
        click.echo(f"{token_id}: revoked")


@_command(cli, argument=_PLACE)
@click.argument("target", metavar="FILE", type=_PATH)
def backup(place: Place, *, target: Path, as_json: bool) -> None:
    """Copy a relay's log, consistently, while it is served.

    To go back to a copy, put it in the place of relay.db, take relay.db-wal and
    relay.db-shm away if they are there, and serve with --restored. A database has its
    own tools for this.
    """
    size_bytes = back_up(place.home, target)
    if as_json:
        _print_json({"file": str(target), "bytes": size_bytes})
    else:
        click.echo(f"{target}: {size_bytes:,} bytes")


@_command(cli, argument=_PLACE)
def check(place: Place, *, as_json: bool) -> int:
    """Compute all ids and chains anew, and name the first bad place.

    Exits with 10 if there is one.
    """
    found = check_log(place)
    is_ok = all(one.bad_seq is None for one in found)
    if as_json:
        _print_json({"ok": is_ok, "namespaces": [_check_json(one) for one in found]})
    else:
        for one in found:
            click.echo(_check_line(one))
    return 0 if is_ok else PROBLEMS_FOUND


@_command(cli, argument=click.argument("source", metavar="FROM", callback=_named))
@click.argument("target", metavar="TO", callback=_named)
def copy(source: Place, target: Place, *, as_json: bool) -> None:
    """Copy a relay that nobody serves into an empty database, or a new folder.

    FROM and TO are each a folder or the URL of a database. The copy is the same relay:
    clients go on where they are, once they come to it instead. So never serve both.
    """
    bar = click.progressbar(
        length=0, label="records", file=sys.stderr, hidden=not sys.stderr.isatty()
    )

    def begin(records: int) -> None:
        bar.length = records

    with bar:
        found = copy_place(
            source, target, now_ms=wall_ms(), begun=begin, told=bar.update
        )
    records = sum(one.records for one in found)
    if as_json:
        _print_json({"namespaces": len(found), "records": records})
    else:
        click.echo(f"copied {records:,} records of {len(found):,} namespaces")


def _with_options(config: RelayConfig, given: Mapping[str, Any]) -> RelayConfig:
    """Return the settings with what a command line says instead."""
    host, port = given["listen"] or (config.host, config.port)
    return replace(
        config,
        host=host,
        port=port,
        tls_cert=given["tls_cert"] or config.tls_cert,
        tls_key=given["tls_key"] or config.tls_key,
        proxies=given["behind_proxy"] or config.proxies,
        origins=given["origin"] or config.origins,
    )


def _tell_address(config: RelayConfig, port: int, *, as_json: bool) -> None:
    address = address_of(config.host, port)
    url = f"{'wss' if config.tls_cert else 'ws'}://{address}"
    if as_json:
        _print_json({"url": url, "port": port})
    else:
        click.echo(f"listening on {url}")
    sys.stdout.flush()


def _check_json(found: NamespaceCheck) -> dict[str, object]:
    return {
        "namespace": found.namespace,
        "records": found.records,
        "dropped": found.dropped,
        "badSeq": found.bad_seq,
        "reason": found.reason or None,
    }


def _check_line(found: NamespaceCheck) -> str:
    if found.bad_seq is not None:
        return f"fail  {found.namespace}: seq {found.bad_seq:,}: {found.reason}"
    return (
        f"ok    {found.namespace}: {found.records:,} records,"
        f" {found.dropped:,} without their payload"
    )


def _print_json(value: Mapping[str, object]) -> None:
    click.echo(json.dumps(value))
