"""The settings of a relay: ``relay.toml`` in its folder, and what may stand in it.

A relay whose log is in a database needs no folder; then the environment may say where.
Read once, before anything listens. Each value is held against its bounds here, so that
nothing below has to doubt it.
"""

import difflib
import ipaddress
import os
import re
import stat
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NoReturn

from crdtmem.errors import ConfigError
from crdtmem.limits import CONFIG_FILE_BYTES, FRAME_BYTES, JOINS_MAX, RECORD_BYTES
from crdtmem.protocol.serving import RelayLimits
from relay.http import Network
from relay.storage.rules import StorageLimits

__all__ = [
    "DATABASE_VARIABLE",
    "FILE_NAME",
    "RelayConfig",
    "database_of_environment",
    "default_text",
    "is_database",
    "parse_database",
    "parse_listen",
    "parse_network",
    "parse_origin",
    "read_config",
]

FILE_NAME = "relay.toml"
DATABASE_VARIABLE = "CRDTMEM_RELAY_STORAGE"

_LISTEN = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:\s]+)):([0-9]{1,5})")
_ORIGIN = re.compile(r"https?://[^\s/?#@]+")
_SCHEMES = ("postgresql://", "postgres://")
_REASON_CHARS = 120
_PART_HEAD_BYTES = 1_024

# Least and most of a limit, by the unit that its name ends in.
_BOUNDS: dict[str, tuple[float, float]] = {
    "bytes": (1_024, 2**40),
    "max": (1, 1_000_000),
    "ms": (0, 10 * 366 * 86_400_000),
    "records": (1, 1_000_000),
    "s": (0.1, 86_400),
}
# What version 1 of the protocol fixes.
_MOST = {
    "joins_max": JOINS_MAX,
    "part_bytes": FRAME_BYTES - _PART_HEAD_BYTES,
    "snapshot_bytes": RECORD_BYTES,
    "update_bytes": RECORD_BYTES,
}
_HEADING = """\
# Settings of a relay. Each line shows its default; take the "#" away to change it, and
# start the relay anew.
"""
_PLACES = """
# Where to listen. Any other than a loopback address needs a certificate, or a proxy
# in front that has one.
# listen = "127.0.0.1:8787"
# tls_cert = "cert.pem"
# tls_key = "key.pem"

# Where the log is kept: in this folder, or in a database of PostgreSQL, which several
# relays may share. The password may stand in a file of its own, or in PGPASSWORD.
# storage = "postgresql://relay@db.example.org/relay"
# password_file = "database.password"

# Networks of proxies whose X-Forwarded-For counts.
# behind_proxy = ["10.0.0.0/8"]

# Web pages that may connect; others are refused.
# origins = ["https://example.org"]
"""


@dataclass(frozen=True, slots=True)
class RelayConfig:
    """What a relay's owner has set.

    Attributes:
        host: Address to listen on.
        port: 0 for any free one.
        tls_cert: File with the certificate and those above it, or None.
        tls_key: File with its key, or None.
        proxies: Networks whose ``X-Forwarded-For`` counts.
        origins: Values of ``Origin`` that are let in.
        limits: Of connections.
        storage: Of the log.
        database: URL of the database that holds the log; empty where the folder does.
            There may be a password in it.
        password_file: File with the database's password, or None.

    """

    host: str = "127.0.0.1"
    port: int = 8787
    tls_cert: Path | None = None
    tls_key: Path | None = None
    proxies: tuple[Network, ...] = ()
    origins: tuple[str, ...] = ()
    limits: RelayLimits = field(default_factory=RelayLimits)
    storage: StorageLimits = field(default_factory=StorageLimits)
    database: str = field(default="", repr=False)
    password_file: Path | None = None


def read_config(folder: Path) -> RelayConfig:
    """Return the settings in a relay's folder; the defaults where there is no file.

    Raises:
        ConfigError: ``config-unknown-key`` or ``config-invalid``, with the file and the
            key; the sentence tells the bounds.

    """
    path = folder / FILE_NAME
    table = _read_table(path)
    limits = table.pop("limits", {})
    if not isinstance(limits, dict):
        _refuse(path, "limits", "is no table")
    config = _places(path, table)
    return replace(
        config,
        limits=replace(RelayLimits(), **_limits(path, limits, _RELAY)),
        storage=replace(StorageLimits(), **_limits(path, limits, _STORAGE)),
    )


def database_of_environment() -> str:
    """Return the URL of the database that the environment names; empty for none.

    Raises:
        ConfigError: If it is no such URL.

    """
    text = os.environ.get(DATABASE_VARIABLE, "")
    try:
        return parse_database(text) if text else ""
    except ValueError as exc:
        raise ConfigError(
            f"{DATABASE_VARIABLE} cannot be used: {exc}",
            code="config-invalid",
            details={"key": DATABASE_VARIABLE},
        ) from exc


def is_database(text: str) -> bool:
    """Tell whether a text is meant as the URL of a database, not as a folder."""
    return text.startswith(_SCHEMES)


def default_text() -> str:
    """Return a settings file that changes nothing, and shows all that can be set."""
    known = {**_RELAY, **_STORAGE}
    limits = [f"# {name} = {one.default:_}\n" for name, one in known.items()]
    return "".join([_HEADING, _PLACES, "\n[limits]\n", *limits])


def parse_listen(text: str) -> tuple[str, int]:
    """Return host and port of an address such as 127.0.0.1:8787 or [::1]:8787.

    Raises:
        ValueError: If it is none; says how one looks.

    """
    match = _LISTEN.fullmatch(text)
    port = int(match[3]) if match else 65_536
    if match is None or port > 65_535:
        raise ValueError(f"{text!r} is no address such as 127.0.0.1:8787 or [::1]:8787")
    return match[1] or match[2], port


def parse_database(text: str) -> str:
    """Return the URL of a database; whether it can be had shows when it is opened.

    Raises:
        ValueError: If it is none; the sentence does not hold the text, which may hold a
            password.

    """
    if not is_database(text) or not text.isprintable():
        raise ValueError("it is no URL such as postgresql://user@host/database")
    return text


def parse_network(text: str) -> Network:
    """Return a network such as 10.0.0.0/8; one address is a network too.

    Raises:
        ValueError: If it is none.

    """
    try:
        return ipaddress.ip_network(text)
    except ValueError as exc:
        raise ValueError(f"{text!r} is no network such as 10.0.0.0/8") from exc


def parse_origin(text: str) -> str:
    """Return the origin of a web page, as browsers send it.

    Raises:
        ValueError: If it is none.

    """
    if not _ORIGIN.fullmatch(text):
        raise ValueError(f"{text!r} is no origin such as https://example.org")
    return text


_RELAY = {known.name: known for known in fields(RelayLimits) if known.name != "agent"}
_STORAGE = {known.name: known for known in fields(StorageLimits)}
_FILES = ("tls_cert", "tls_key", "password_file")
_KEYS = ("listen", *_FILES, "storage", "behind_proxy", "origins", "limits")


def _read_table(path: Path) -> dict[str, Any]:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            _refuse(path, "", "is no regular file")
        with path.open("rb") as file:
            content = file.read(CONFIG_FILE_BYTES + 1)
    except FileNotFoundError:
        return {}
    except OSError as exc:
        _refuse(path, "", f"cannot be read: {exc.strerror}", exc)
    if len(content) > CONFIG_FILE_BYTES:
        _refuse(path, "", f"is longer than {CONFIG_FILE_BYTES} bytes")
    try:
        return tomllib.loads(content.decode().removeprefix("\ufeff"))
    except (ValueError, RecursionError) as exc:
        # A byte that is no UTF-8 is a ValueError too, and so is a number of any length.
        _refuse(path, "", f"is not TOML: {str(exc)[:_REASON_CHARS]}", exc)


def _places(path: Path, table: Mapping[str, Any]) -> RelayConfig:
    _check_keys(path, "", table, _KEYS)
    host, port = _parsed(path, "listen", table.get("listen", "127.0.0.1:8787"), _listen)
    files = {
        key: path.parent / _parsed(path, key, table[key], _text)
        for key in _FILES
        if key in table
    }
    return RelayConfig(
        host,
        port,
        proxies=tuple(_each(path, "behind_proxy", table, parse_network)),
        origins=tuple(_each(path, "origins", table, parse_origin)),
        database=_parsed(path, "storage", table.get("storage", ""), _database),
        **files,
    )


def _limits(
    path: Path, table: Mapping[str, object], known: Mapping[str, Field[Any]]
) -> dict[str, Any]:
    _check_keys(path, "limits.", table, [*_RELAY, *_STORAGE])
    return {
        name: _within(path, name, value, known[name].default)
        for name, value in table.items()
        if name in known
    }


def _within(path: Path, name: str, value: object, default: object) -> float:
    least, most = _BOUNDS[name.rpartition("_")[2]]
    most = _MOST.get(name, most)
    kinds = (int,) if isinstance(default, int) else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds):
        _refuse(path, f"limits.{name}", f"is {_shown(value)}, and no such number")
    if not least <= value <= most:
        _refuse(
            path,
            f"limits.{name}",
            f"is {_shown(value)}, not within {least:_} and {most:_}",
        )
    return value if isinstance(default, int) else float(value)


def _listen(value: object) -> tuple[str, int]:
    return parse_listen(_text(value))


def _database(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("it is no text")
    return parse_database(value) if value else ""


def _text(value: object) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise ValueError(f"{_shown(value)} is no text on one line")
    return value


def _each(path: Path, key: str, table: Mapping[str, Any], parse: Any) -> list[Any]:
    values = table.get(key, [])
    if not isinstance(values, list):
        _refuse(path, key, f"is {_shown(values)}, and no list")
    return [
        _parsed(path, key, value, lambda one: parse(_text(one))) for value in values
    ]


def _parsed(path: Path, key: str, value: object, parse: Any) -> Any:
    try:
        return parse(value)
    except ValueError as exc:
        _refuse(path, key, f"cannot be used: {exc}", exc)


def _check_keys(
    path: Path, table: str, found: Mapping[str, object], known: Sequence[str]
) -> None:
    for name in found:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            raise ConfigError(
                f"{path}: there is no setting {_shown(table + name)}",
                code="config-unknown-key",
                hint=f"did you mean {near[0]!r}?" if near else "see 'relay.toml'",
                details={"file": str(path), "key": (table + name)[:_REASON_CHARS]},
            )


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:
        # Python writes no number of thousands of digits, but reads one in hexadecimal.
        return "a number of very many digits"
    return text if len(text) <= _REASON_CHARS else f"{text[:_REASON_CHARS]}…"


def _refuse(
    path: Path, key: str, what: str, cause: BaseException | None = None
) -> NoReturn:
    details = {"file": str(path), **({"key": key} if key else {})}
    raise ConfigError(
        f"{path}: {key} {what}" if key else f"{path} {what}",
        code="config-invalid",
        hint="mend the file, or take the line out",
        details=details,
    ) from cause
