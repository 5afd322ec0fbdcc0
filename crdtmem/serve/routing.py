"""What a row of the REST API's table is, and how a request finds its row."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple, Protocol, TypeVar
from urllib.parse import unquote_to_bytes

from crdtmem.serve.answers import Ask, HttpError

__all__ = ["PREFIX", "Field", "Kind", "Route", "check_right", "matched", "not_allowed"]

PREFIX = "/api/v1"

Kind = Literal[
    "text",
    "whole",
    "number",
    "flag",
    "scope",
    "texts",
    "lines",
    "occurrence",
    "items",
    "object",
    "objects",
]
"""What a value is; ``crdtmem.serve.values`` reads it."""


class Field(NamedTuple):
    """A parameter of the query, or a field of the body.

    Attributes:
        name: As it is written.
        kind: What it is.
        is_required: Whether it must be there.
        argument: Name of the verb's argument; empty for the name in snake_case.

    """

    name: str
    kind: Kind = "text"
    is_required: bool = False
    argument: str = ""

    @property
    def called(self) -> str:
        """Return the name of the verb's argument."""
        return self.argument or re.sub(
            r"[A-Z]", lambda m: f"_{m[0].lower()}", self.name
        )


class Route(NamedTuple):
    """A row.

    Attributes:
        method: In capitals.
        path: Below the prefix; a ``{name}`` is one segment.
        name: Of the operation.
        verb: ``memory.NAME``, ``slot.NAME``, ``set.NAME``, or ``own.NAME`` for what is
            no single verb.
        summary: What it does.
        result: What it returns; see ``key``.
        query: Its parameters.
        body: The fields of its body; None: it has none.
        key: Where the result is a list: the name that it has in the answer.
        status: Of success.
        writes: Whether it changes anything.
        also: Statuses of refusals, beside those that any route has.

    """

    method: str
    path: str
    name: str
    verb: str
    summary: str
    result: Any
    query: tuple[Field, ...] = ()
    body: tuple[Field, ...] | None = None
    key: str = ""
    status: int = 200
    writes: bool = False
    also: tuple[int, ...] = ()

    @property
    def pattern(self) -> str:
        """Return the whole path."""
        return PREFIX + self.path


class _Routed(Protocol):
    @property
    def method(self) -> str: ...
    @property
    def pattern(self) -> str: ...


_R = TypeVar("_R", bound=_Routed)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"\{([a-z_]+)\}", pattern)
    return re.compile(
        "".join(
            f"(?P<{part}>[^/]+)" if index % 2 else re.escape(part)
            for index, part in enumerate(parts)
        )
    )


def matched(
    table: Sequence[_R], method: str, raw_path: str
) -> tuple[_R, Mapping[str, str]]:
    """Return the row of a request, and the decoded segments that its pattern names.

    Args:
        table: Where to look.
        method: In capitals; ``HEAD`` is answered as ``GET`` is.
        raw_path: As it came, percent-encoded.

    Raises:
        HttpError: ``route-not-found`` or ``method-not-allowed``.

    """
    wanted = "GET" if method == "HEAD" else method
    allowed: list[str] = []
    for route in table:
        found = _compiled(route.pattern).fullmatch(raw_path)
        if found is None:
            continue
        if route.method == wanted:
            return route, _decoded(found.groupdict())
        allowed.append(route.method)
    if allowed:
        raise not_allowed(method, allowed)
    raise HttpError(404, "route-not-found", "there is nothing at this path")


def check_right(ask: Ask) -> None:
    """Refuse a write by who may only read, or where nobody writes.

    Raises:
        HttpError: ``permission-denied`` or ``store-read-only``.

    """
    if not ask.principal.may_write:
        raise HttpError(403, "permission-denied", "this token may only read")
    if ask.site.read_only:
        raise HttpError(403, "store-read-only", "this server only shows the store")


def not_allowed(method: str, allowed: Sequence[str]) -> HttpError:
    """Return the refusal of a method at a path that takes others."""
    names = {*allowed, "HEAD"} if "GET" in allowed else {*allowed}
    return HttpError(
        405,
        "method-not-allowed",
        f"this path takes no {method!a:.20}",
        headers={"Allow": ", ".join(sorted(names))},
    )


def _decoded(segments: Mapping[str, str]) -> dict[str, str]:
    try:
        return {
            name: unquote_to_bytes(segment).decode()
            for name, segment in segments.items()
        }
    except UnicodeDecodeError as exc:
        raise HttpError(404, "route-not-found", "the path is no UTF-8") from exc
