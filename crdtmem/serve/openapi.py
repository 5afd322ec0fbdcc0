"""The OpenAPI document, made from the table of routes.

pydantic makes the schemas of results, from the same classes that the verbs return; it
is slow to load, and only this document needs it.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from crdtmem.serve.routes import ROUTES
from crdtmem.serve.routing import PREFIX, Field, Route
from crdtmem.serve.values import query_schema_of, schema_of

__all__ = ["REFUSALS", "document"]

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


@cache
def document(version: str) -> Mapping[str, Any]:
    """Return the whole document; made once.

    Args:
        version: Of crdtmem.

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
                "cookie": {"type": "apiKey", "in": "cookie", "name": "crdtmem_PORT"},
            },
        },
    }


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
        "parameters": [*_path_parameters(route), *_query_parameters(route)],
        "responses": _responses(route, schemas),
    }
    if route.body is not None:
        made["requestBody"] = _request_body(route.body)
    return made


def _path_parameters(route: Route) -> Iterable[dict[str, Any]]:
    for name in re.findall(r"\{([a-z]+)\}", route.path):
        yield {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "minLength": 1},
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
        yield made


def _request_body(fields: Iterable[Field]) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {field.name: schema_of(field.kind) for field in fields},
        "additionalProperties": False,
    }
    required = [field.name for field in fields if field.is_required]
    if required:
        schema["required"] = required
    return {
        "required": bool(required),
        "content": {"application/json": {"schema": schema}},
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
