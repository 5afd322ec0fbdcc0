"""The OpenAPI document, made from the table of routes.

pydantic makes the schemas of results, from the same classes that the verbs return; it
is slow to load, and only this document needs it.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from crdtmem.limits import REQUEST_ID_MAX, SERVE_PORT
from crdtmem.serve.routes import ROUTES
from crdtmem.serve.routing import PREFIX, Field, Route
from crdtmem.serve.values import query_schema_of, schema_of

__all__ = ["REFUSALS", "document", "example_of"]

REFUSALS = {
    304: "It is as the caller knows it.",
    400: "An argument is malformed; nothing was written.",
    401: "No token, or one that is not good.",
    403: "Not from here, or not with this token; nothing was written.",
    404: "There is none.",
    408: "The body did not arrive in time.",
    409: "The slot or set is not as the caller took for granted; nothing was written.",
    413: "The body, or the text, is too large; nothing was written.",
    415: "The body is no JSON; nothing was written.",
    421: "The request names another host.",
    431: "The head of the request is too long.",
    500: "The store is damaged, or a fault of crdtmem.",
    503: "The store is busy; try again, with the same requestId.",
    507: "The disk is full; nothing was written.",
}
"""What a status of a refusal means."""

_ALWAYS = (400, 401, 403, 404, 408, 413, 421, 431, 500, 503)
# 408 and 413: any body is read before the route is known.
_ERROR = {
    "type": "object",
    "required": ["error"],
    "additionalProperties": False,
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "details"],
            "additionalProperties": False,
            "properties": {
                "code": {"type": "string"},
                "message": {"type": "string"},
                "hint": {"type": "string"},
                "details": {"type": "object"},
            },
        }
    },
}

_EXAMPLES: Mapping[str, Any] = {
    "appendOnly": False,
    "atRev": 41,
    "baseRev": 41,
    "audit.before": 120,
    "before": "h41-9f2c8a10",
    "budgetTokens": 2000,
    "content": "- fix the lock test\n- ask about the port\n",
    "slots.content": False,
    "create": True,
    "deep": True,
    "description": "what is to be done next",
    "dryRun": True,
    "excludeLane": "lane-a",
    "expectedHash": "9f2c8a1027b415c0",
    "expectedRev": 41,
    "expiresIn": 600,
    "filters": {"topic": "build"},
    "force": True,
    "from": 40,
    "hoisted": ["the port is 8790"],
    "id": "h41-9f2c8a10",
    "abortCondense.id": "cp_9f2c8a10",
    "commitCondense.id": "cp_9f2c8a10",
    "condenseArchive.id": "cp_9f2c8a10",
    "deleteItem.id": "i1",
    "updateItem.id": "i1",
    "ids": ["i1", "i2"],
    "items": ["the build runs on two cores", "the port is 8790"],
    "keepPct": 40,
    "keepSections": 3,
    "kinds": ["slot"],
    "label": "build_notes",
    "labels": ["build_notes", "decisions"],
    "lane": "lane-a",
    "limit": 20,
    "line": 1,
    "lines": [1, 2],
    "read.lines": "1-2",
    "metadata": {"topic": "build"},
    "metadatas": {"topic": "build"},
    "mode": "any",
    "name": "facts",
    "new": "- mend the lock test",
    "occurrence": "all",
    "old": "- fix the lock test",
    "order": "newest",
    "partition": "s.job",
    "pinned": True,
    "project": "desk",
    "query": "lock test",
    "readOnly": False,
    "requestId": "3f1c9f0e-7a52-4c1b-8f57-2f6f0f7f5a11",
    "scope": "project",
    "semantic": False,
    "sizeLimit": 4000,
    "snippet": 80,
    "sort": "recent",
    "state": "open",
    "style": "headings",
    "summary": "The lock test is fixed.",
    "templates": False,
    "text": "- ask about the port",
    "to": 41,
    "wait": 0.5,
}
"""By the name of a field, or of an operation and a field; a cursor has none."""

_SHOWN: Mapping[str, tuple[str, ...]] = {
    "insert": ("baseRev",),
    "replace": ("baseRev",),
    "restore": ("expectedRev",),
    "setMeta": ("sizeLimit",),
    "updateItem": ("text",),
}
"""What an example of a body holds beside the fields that must be there."""

_BY_FORM: list[dict[str, list[str]]] = [{"bearer": []}, {"cookie": [], "csrf": []}]


@cache
def document(version: str, cookie: str = f"crdtmem_{SERVE_PORT}") -> Mapping[str, Any]:
    """Return the whole document; made once.

    Args:
        version: Of crdtmem.
        cookie: The name of the session's cookie.

    """
    schemas = _Schemas()
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        entry = paths.setdefault(route.path, {})
        entry[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "crdtmem", "version": version},
        "servers": [{"url": PREFIX}],
        "security": [{"bearer": []}, {"cookie": []}],
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR, **schemas.definitions},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "cookie": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": cookie,
                    "description": "Of a browser that is signed in.",
                },
                "csrf": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "X-CSRF-Token",
                    "description": (
                        "Beside the cookie: what any form of the session holds in its"
                        " field 'csrf'. The header Origin must be there too; browsers"
                        " send it."
                    ),
                },
            },
        },
    }


def example_of(route: Route, name: str) -> Any:
    """Return an example of a field of a route; None if there is none."""
    return _EXAMPLES.get(f"{route.name}.{name}", _EXAMPLES.get(name))


class _Schemas:
    """The schemas of results, each once."""

    def __init__(self) -> None:
        self.definitions: dict[str, Any] = {}

    def of(self, kind: Any) -> dict[str, Any]:
        """Return what refers to the schema of a class."""
        name: str = kind.__name__
        if name not in self.definitions:
            from pydantic import TypeAdapter  # noqa: PLC0415 - see the module

            schema = TypeAdapter(kind).json_schema(
                by_alias=True,
                mode="serialization",
                ref_template="#/components/schemas/{model}",
            )
            self.definitions |= schema.pop("$defs", {})
            self.definitions[name] = schema
        return {"$ref": f"#/components/schemas/{name}"}


def _operation(route: Route, schemas: _Schemas) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "parameters": [
            *_path_parameters(route),
            *_query_parameters(route),
            *_header_parameters(route),
        ],
        "responses": _responses(route, schemas),
    }
    if route.body is not None:
        made["requestBody"] = _request_body(route, route.body)
    if route.method != "GET":
        made["security"] = _BY_FORM
    return made


def _path_parameters(route: Route) -> Iterable[dict[str, Any]]:
    for name in re.findall(r"\{([a-z]+)\}", route.path):
        yield {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "minLength": 1},
            "example": example_of(route, name),
        }


def _query_parameters(route: Route) -> Iterable[dict[str, Any]]:
    for field in route.query:
        made: dict[str, Any] = {
            "name": field.name,
            "in": "query",
            "required": field.is_required,
            "schema": query_schema_of(field.kind),
        }
        if field.kind == "texts":
            made |= {"style": "form", "explode": False}
        if (example := example_of(route, field.name)) is not None:
            made["example"] = example
        yield made


def _header_parameters(route: Route) -> Iterable[dict[str, Any]]:
    if route.writes:
        lane = {"type": "string", "minLength": 1}
        yield _header("Crdtmem-Lane", "Who writes, unless a token says it.", lane)
    if any(field.name == "requestId" for field in (*route.query, *(route.body or ()))):
        key = {"type": "string", "pattern": f"^[!-~]{{1,{REQUEST_ID_MAX}}}$"}
        yield _header("Idempotency-Key", "As requestId.", key)
    if 304 in route.also:
        known = {"type": "string"}
        yield _header("If-None-Match", "The ETag of what the caller knows.", known)


def _header(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "header", "description": description, "schema": schema}


def _request_body(route: Route, fields: Iterable[Field]) -> dict[str, Any]:
    required = [field.name for field in fields if field.is_required]
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            field.name: schema_of(field.kind)
            | {"examples": [example_of(route, field.name)]}
            for field in fields
        },
        "additionalProperties": False,
    }
    if required:
        schema["required"] = required
    shown = (*required, *_SHOWN.get(route.name, ()))
    example = {name: example_of(route, name) for name in shown}
    return {
        "required": bool(required),
        "content": {"application/json": {"schema": schema, "example": example}},
    }


def _responses(route: Route, schemas: _Schemas) -> dict[str, Any]:
    refused = {*_ALWAYS, *route.also}
    if route.body is not None:
        refused.add(415)
    made = {str(route.status): _success(route, schemas)}
    for status in sorted(refused):
        made[str(status)] = {"description": REFUSALS[status]}
        if status != 304:
            reference = {"schema": {"$ref": "#/components/schemas/Error"}}
            made[str(status)]["content"] = {"application/json": reference}
    return made


def _success(route: Route, schemas: _Schemas) -> dict[str, Any]:
    if route.result is None:
        content: dict[str, Any] = {"text/event-stream": {"schema": {"type": "string"}}}
        return {"description": "A stream of events.", "content": content}
    schema = schemas.of(route.result)
    if route.key:
        schema = {
            "type": "object",
            "required": [route.key],
            "additionalProperties": False,
            "properties": {route.key: {"type": "array", "items": schema}},
        }
    return {
        "description": route.summary,
        "content": {"application/json": {"schema": schema}},
    }
