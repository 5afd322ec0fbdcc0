"""The routes of the compatible system, as one pure function.

Who listens, limits what arrives and answers lies elsewhere: ``respond`` takes a request
that was read and returns a status and the JSON of the answer. A 503 should be sent with
``Retry-After: 1``.
"""

import hmac
import json
from collections.abc import Mapping
from typing import NamedTuple

from crdtmem.compat.agentmemory.functions import AgentMemorySlots, failure
from crdtmem.compat.agentmemory.tools import TOOLS, function_of
from crdtmem.errors import CrdtmemError

__all__ = ["BODY_BYTES", "PREFIX", "methods_at", "respond"]

PREFIX = "/agentmemory"
"""What every path begins with."""

BODY_BYTES = 4 * 2**20
"""Largest body: four times the longest text, whose escapes may be longer than it."""

Answer = tuple[int, dict[str, object]]


class _Route(NamedTuple):
    function_id: str
    has_body: bool
    status: int = 200


_ROUTES: Mapping[tuple[str, str], _Route] = {
    ("GET", "/slots"): _Route("mem::slot-list", has_body=False),
    ("GET", "/slot"): _Route("mem::slot-get", has_body=False),
    ("POST", "/slot"): _Route("mem::slot-create", has_body=True, status=201),
    ("DELETE", "/slot"): _Route("mem::slot-delete", has_body=False),
    ("POST", "/slot/append"): _Route("mem::slot-append", has_body=True),
    ("POST", "/slot/replace"): _Route("mem::slot-replace", has_body=True),
    ("POST", "/slot/reflect"): _Route("mem::slot-reflect", has_body=True),
    ("GET", "/slot/history"): _Route("mem::slot-history", has_body=False),
    ("POST", "/slot/undo"): _Route("mem::slot-undo", has_body=True),
}
_TOOL_ROUTES = {("GET", "/mcp/tools"), ("POST", "/mcp/call")}
_PATHS = {path for _, path in _ROUTES.keys() | _TOOL_ROUTES}
# The compatible system knows no 403: its clients take these for bad requests.
_STATUSES = {"slot-read-only": 400, "slot-append-only": 400}


class _RefusedError(Exception):
    """A request that reaches no function."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.answer: Answer = (
            status,
            {"success": False, "error": message, "code": code},
        )


def respond(
    slots: AgentMemorySlots,
    method: str,
    path: str,
    query: Mapping[str, str],
    headers: Mapping[str, str],
    body: bytes,
    *,
    token: str | None = None,
) -> Answer:
    """Return status and JSON of the answer to a request.

    Args:
        slots: What the request is about.
        method: In capitals.
        path: Decoded, without the query.
        query: Its decoded parameters.
        headers: In any case.
        body: As it came.
        token: What ``Authorization: Bearer`` must say; None lets everybody in.

    """
    try:
        _require_token(headers, token)
        route = _route_of(method, path)
        if route == ("GET", "/mcp/tools"):
            return 200, {"tools": [dict(tool) for tool in TOOLS]}
        if route == ("POST", "/mcp/call"):
            return _call_tool(slots, _object_in(body))
        found = _ROUTES[route]
        payload = _object_in(body) if found.has_body else query
        return found.status, slots.perform(found.function_id, payload)
    except _RefusedError as exc:
        return exc.answer
    except CrdtmemError as exc:
        return _STATUSES.get(exc.code, exc.http_status), failure(exc)


def methods_at(path: str) -> list[str]:
    """Return the methods that a path takes; none if there is no such path."""
    routes = _ROUTES.keys() | _TOOL_ROUTES
    return [method for method, inner in routes if f"{PREFIX}{inner}" == path]


def _require_token(headers: Mapping[str, str], token: str | None) -> None:
    if token is None:
        return
    named = {name.lower(): value for name, value in headers.items()}
    given = named.get("authorization", "").encode("utf-8", "surrogateescape")
    if not hmac.compare_digest(given, f"Bearer {token}".encode()):
        raise _RefusedError(401, "unauthorized", "the Bearer token is missing or wrong")


def _route_of(method: str, path: str) -> tuple[str, str]:
    inner = path.removeprefix(PREFIX)
    if inner == path or inner not in _PATHS:
        raise _RefusedError(404, "route-not-found", f"there is no route {path!r:.120}")
    route = (method, inner)
    if route not in _ROUTES and route not in _TOOL_ROUTES:
        message = f"{path} takes no {method!r:.20}"
        raise _RefusedError(405, "method-not-allowed", message)
    return route


def _object_in(body: bytes) -> dict[str, object]:
    if len(body) > BODY_BYTES:
        message = f"the body is too large ({len(body)} > {BODY_BYTES} bytes)"
        raise _RefusedError(413, "body-too-large", message)
    try:
        value = json.loads(body or b"{}")
    except (ValueError, RecursionError) as exc:
        message = "the body must be a JSON object, and is no JSON"
        raise _RefusedError(400, "invalid-argument", message) from exc
    if not isinstance(value, dict):
        message = f"the body must be a JSON object, not {type(value).__name__}"
        raise _RefusedError(400, "invalid-argument", message)
    return value


def _call_tool(slots: AgentMemorySlots, request: Mapping[str, object]) -> Answer:
    name, arguments = request.get("name"), request.get("arguments", {})
    function_id = function_of(name)
    if function_id is None:
        message = f"unknown tool {name!r:.60}"
        raise _RefusedError(400, "invalid-argument", message)
    if not isinstance(arguments, dict):
        message = f"arguments must be an object, not {type(arguments).__name__}"
        raise _RefusedError(400, "invalid-argument", message)
    result = slots.call(function_id, arguments)
    text = json.dumps(result, indent=2, ensure_ascii=False)
    # An id that was refused may hold half a surrogate pair, and no answer can.
    shown = text.encode("utf-8", "replace").decode()
    answer: dict[str, object] = {"content": [{"type": "text", "text": shown}]}
    return 200, answer if result["success"] else answer | {"isError": True}
