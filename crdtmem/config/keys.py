"""The table of settings: what each is called, where it may stand, what it may be.

A new setting is a new row of ``KEYS`` and a field of ``Config``. A part of crdtmem that
does not exist yet has no row, so its keys are refused like any other unknown one.
"""

import os
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from crdtmem.errors import ConfigError, InvalidArgumentError
from crdtmem.limits import (
    CONDENSE_EXPIRES_MAX_S,
    CONDENSE_EXPIRES_S,
    CONDENSE_KEEP_PCT,
    CONDENSE_KEEP_SECTIONS,
    CONDENSE_SECTIONS_MAX,
    CONDENSE_TRIGGER_PCT,
    CONDENSE_TRIGGER_SECTIONS,
    CONTEXT_MAX_TOKENS,
    CONTEXT_MIN_TOKENS,
    CONTEXT_TOKENS,
    HISTORY_MAX_TEXTS,
    HISTORY_TEXTS,
    MAX_SIZE_UNITS,
    STORE_LOCK_MAX_S,
    STORE_LOCK_S,
    UINT_MAX,
)
from crdtmem.scope import (
    parse_label,
    parse_lane,
    parse_project_id,
    parse_project_name,
    parse_scope,
)

__all__ = [
    "BY_FIELD",
    "BY_NAME",
    "BY_VARIABLE",
    "KEYS",
    "VARIABLES_OF_CONDENSE",
    "Key",
    "Secret",
    "check_may_be_kept",
    "known_key",
    "shown",
    "unknown_key",
]

# The command that condense runs learns from these which pass and slot it works on.
VARIABLES_OF_CONDENSE = frozenset({"CRDTMEM_PASS_ID", "CRDTMEM_SLOT"})

_SHOWN_CHARS = 80
_RELAY_URL = r"wss?://[^\s/?#@]+(/[^\s?#@]*)?"
_TOKEN = r"[!-~]{1,512}"
_KEYS = r"[ -~]{1,65536}"
_WHOLE = r"-?[0-9]{1,18}"
_NUMBER = r"-?[0-9]{1,18}(\.[0-9]{1,18})?"

Parse = Callable[[object, str], object]


class Key(NamedTuple):
    """One setting.

    A named tuple, because making a dataclass costs a twentieth of a bare start.

    Attributes:
        name: Its name in a settings file and for ``crdtmem config``.
        field: Its name as an option and in ``Config``.
        parse: Takes a raw value and what to call it, returns the value to be used;
            raises InvalidArgumentError.
        default: The value where nobody set one; None where it depends on the place.
        variable: The environment variable that sets it.
        in_project: Whether a repository may set it; a path only to what is its own.
        read: Takes text, of a variable or a command line, and returns a raw value.
        is_path: Whether a relative value is relative to where it stands.
        is_private: Whether it may hold a secret: no message shows a refused value.
        in_files: Whether a file may hold it at all, and a command line.

    """

    name: str
    field: str
    parse: Parse
    default: object = None
    variable: str | None = None
    in_project: bool = False
    read: Callable[[str], object] = str
    is_path: bool = False
    is_private: bool = False
    in_files: bool = True


class Secret:
    """A value that is never shown; ``reveal`` is for the one who needs it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the value; it goes into no message, log line or file."""
        return self._text

    def __repr__(self) -> str:
        return "(set)"


def known_key(name: str) -> Key:
    """Return the row of a key.

    Raises:
        ConfigError: ``config-unknown-key`` if there is none.

    """
    if name not in BY_NAME:
        raise unknown_key(name, BY_NAME, where="")
    return BY_NAME[name]


def check_may_be_kept(key: Key) -> None:
    """Refuse a secret that is to be written down, or was.

    Raises:
        InvalidArgumentError: If the value belongs into no file and on no command line.

    """
    if not key.in_files:
        raise InvalidArgumentError(
            key.name,
            f"{key.name} is read from the environment only, as {key.variable}",
            hint=f"put it into a file of mode 0600, and set {key.name}_file",
        )


def unknown_key(
    name: str, known: Iterable[str], *, where: str, line: int | None = None
) -> ConfigError:
    """Return the error for a key that does not exist, with the nearest that does."""
    import difflib  # noqa: PLC0415 - a third of a bare start, for errors only

    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    message = f"unknown key {shown(name)}"
    if where:
        message += f" in {where}"
    if nearest:
        message += f"; the nearest is '{nearest[0]}'"
    return ConfigError(
        message,
        code="config-unknown-key",
        hint="run 'crdtmem config list' to see every key",
        details={
            "key": name[:_SHOWN_CHARS],
            "where": where,
            "line": line,
            "nearest": nearest[0] if nearest else None,
        },
    )


def shown(value: object) -> str:
    """Return a refused value as a message may hold it: short and on one line.

    Never the ``repr`` of a list or table: one from a hostile file may be nested deeper
    than Python can follow.
    """
    if isinstance(value, str):
        cut = value[:_SHOWN_CHARS]
        return repr(cut) + (" …" if len(value) > len(cut) else "")
    if isinstance(value, bool | float) or (
        # Python refuses to print an integer of many thousand digits.
        isinstance(value, int) and value.bit_length() <= 64
    ):
        return repr(value)
    return f"a value of type {type(value).__name__}"


def _refusal(argument: str, expected: str, value: object) -> InvalidArgumentError:
    return InvalidArgumentError(
        argument, f"{argument} must be {expected}, not {shown(value)}"
    )


def _whole(low: int, high: int) -> Parse:
    def parse(value: object, argument: str) -> object:
        if type(value) is not int or not low <= value <= high:
            expected = f"an integer between {low} and {high}"
            raise _refusal(argument, expected, value)
        return value

    return parse


def _number(low: float, high: float) -> Parse:
    def parse(value: object, argument: str) -> object:
        is_flag = isinstance(value, bool)
        # Compared before it is converted: an integer may be too long for a float.
        if isinstance(value, int | float) and not is_flag and low <= value <= high:
            return float(value)
        raise _refusal(argument, f"a number between {low:g} and {high:g}", value)

    return parse


def _one_of(*words: str) -> Parse:
    expected = " or ".join(f"'{word}'" for word in words)

    def parse(value: object, argument: str) -> object:
        if not isinstance(value, str) or value not in words:
            raise _refusal(argument, expected, value)
        return value

    return parse


def _path(value: object, argument: str) -> object:
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(path, str) or not path or "\0" in path:
        raise _refusal(argument, "a path", value)
    return path


def _labels(value: object, argument: str) -> object:
    if not isinstance(value, list | tuple) or not value:
        raise _refusal(argument, "a list of labels", value)
    return tuple(dict.fromkeys(parse_label(label) for label in value))


def _relay_url(value: object, argument: str) -> object:
    if isinstance(value, str) and re.fullmatch(_RELAY_URL, value):
        return value.rstrip("/")
    raise InvalidArgumentError(
        argument,
        f"{argument} must be wss://HOST[:PORT], without a user, a query or a fragment",
    )


def _token(value: object, argument: str) -> object:
    if isinstance(value, str) and re.fullmatch(_TOKEN, value):
        return Secret(value)
    raise InvalidArgumentError(
        argument, f"{argument} must be one word of at most 512 printable characters"
    )


def _keys(value: object, argument: str) -> object:
    if isinstance(value, str) and re.fullmatch(_KEYS, value):
        return Secret(value)
    raise InvalidArgumentError(
        argument,
        f"{argument} must be ID:SECRET, or several with blanks between, or fd:N",
    )


def _read_whole(text: str) -> object:
    return int(text) if re.fullmatch(_WHOLE, text) else text


def _read_number(text: str) -> object:
    return float(text) if re.fullmatch(_NUMBER, text) else text


def _read_labels(text: str) -> object:
    return [label.strip() for label in text.split(",")]


def _condense_key(knob: str, default: object, parse: Parse) -> Key:
    """Return the row of a knob of CondenseConfig, which explains what it does."""
    return Key(
        f"condense.{knob}",
        f"condense_{knob}",
        parse,
        default=default,
        read=_read_number if isinstance(default, float) else _read_whole,
    )


# A test holds the defaults equal to those of the class, which is slow to load.
_CONDENSE_KEYS = (
    _condense_key("trigger_pct", CONDENSE_TRIGGER_PCT, _whole(1, 100)),
    _condense_key(
        "section_trigger", CONDENSE_TRIGGER_SECTIONS, _whole(1, CONDENSE_SECTIONS_MAX)
    ),
    _condense_key("min_size", None, _whole(1, MAX_SIZE_UNITS)),
    _condense_key(
        "keep_sections", CONDENSE_KEEP_SECTIONS, _whole(1, CONDENSE_SECTIONS_MAX)
    ),
    _condense_key("keep_pct", CONDENSE_KEEP_PCT, _whole(0, 100)),
    _condense_key("pinned_max_pct", 25, _whole(0, 100)),
    _condense_key("not_smaller", 0.95, _number(0.01, 1)),
    _condense_key("expires_in", CONDENSE_EXPIRES_S, _number(1, CONDENSE_EXPIRES_MAX_S)),
    _condense_key("archive_max_bytes", None, _whole(0, UINT_MAX)),
)

KEYS = (
    Key("store", "store", _path, variable="CRDTMEM_STORE", is_path=True),
    Key(
        "project.id",
        "project",
        lambda value, _: parse_project_id(value),
        variable="CRDTMEM_PROJECT",
        in_project=True,
    ),
    Key(
        "project.name",
        "project_name",
        lambda value, _: parse_project_name(value),
        in_project=True,
    ),
    Key(
        "scope",
        "scope",
        lambda value, _: parse_scope(value, optional=False),
        default="project",
        variable="CRDTMEM_SCOPE",
        in_project=True,
    ),
    Key(
        "context.budget",
        "context_budget",
        _whole(CONTEXT_MIN_TOKENS, CONTEXT_MAX_TOKENS),
        default=CONTEXT_TOKENS,
        variable="CRDTMEM_CONTEXT_BUDGET",
        in_project=True,
        read=_read_whole,
    ),
    Key(
        "context.labels", "context_labels", _labels, in_project=True, read=_read_labels
    ),
    Key("lane", "lane", lambda value, _: parse_lane(value), variable="CRDTMEM_LANE"),
    Key(
        "busy_timeout",
        "busy_timeout",
        _number(0, STORE_LOCK_MAX_S),
        default=STORE_LOCK_S,
        variable="CRDTMEM_TIMEOUT",
        read=_read_number,
    ),
    Key(
        "history_keep",
        "history_keep",
        _whole(1, HISTORY_MAX_TEXTS),
        default=HISTORY_TEXTS,
        variable="CRDTMEM_HISTORY",
        read=_read_whole,
    ),
    Key(
        "durability",
        "durability",
        _one_of("full", "normal"),
        default="full",
        variable="CRDTMEM_DURABILITY",
    ),
    Key(
        "relay.url",
        "relay_url",
        _relay_url,
        variable="CRDTMEM_RELAY_URL",
        is_private=True,
    ),
    Key("relay.token_file", "relay_token_file", _path, is_path=True),
    Key(
        "relay.token",
        "relay_token",
        _token,
        variable="CRDTMEM_RELAY_TOKEN",
        is_private=True,
        in_files=False,
    ),
    Key("relay.keyring_file", "relay_keyring_file", _path, is_path=True),
    Key(
        "relay.keyring",
        "relay_keyring",
        _keys,
        variable="CRDTMEM_RELAY_KEYRING",
        is_private=True,
        in_files=False,
    ),
    Key(
        "mirror.dir",
        "mirror_dir",
        _path,
        variable="CRDTMEM_MIRROR",
        in_project=True,
        is_path=True,
    ),
    *_CONDENSE_KEYS,
    Key(
        "color",
        "color",
        _one_of("auto", "always", "never"),
        default="auto",
        variable="CRDTMEM_COLOR",
    ),
    Key("log_file", "log_file", _path, variable="CRDTMEM_LOG", is_path=True),
)

BY_NAME = {key.name: key for key in KEYS}
BY_FIELD = {key.field: key for key in KEYS}
BY_VARIABLE = {key.variable: key for key in KEYS if key.variable is not None}
