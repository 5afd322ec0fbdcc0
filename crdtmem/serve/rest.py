"""Answers the REST API: each row of the table, by one verb of the memory."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from crdtmem.aio import AsyncMemory, AsyncMemorySet
from crdtmem.arguments import checked_request_id, checked_seconds
from crdtmem.errors import InvalidArgumentError
from crdtmem.limits import CHANGES_DEFAULT_MAX, SERVE_WAIT_S
from crdtmem.model import Model
from crdtmem.models import SlotView, SyncStatus, WriteResult
from crdtmem.partition import decode_key
from crdtmem.scope import GLOBAL_NAMESPACE, parse_lane, parse_project_id
from crdtmem.serve.answers import (
    Answer,
    Ask,
    HttpError,
    StreamAnswer,
    json_answer,
)
from crdtmem.serve.events import Events
from crdtmem.serve.handles import Use
from crdtmem.serve.routes import ServedStatus, ServeStatus
from crdtmem.serve.routing import PREFIX, Field, Route
from crdtmem.serve.values import body_values, query_values
from crdtmem.status import sync_status

__all__ = ["Rest", "lane_of"]

Arguments = dict[str, Any]
_OPEN_SCOPE = Field("scope", "scope")
_GUARDS = ("expected_rev", "expected_hash", "base_rev")
_QUOTED_OR_WORD = re.compile(
    r"""(?<!\w)(['"])(?:[^\\]|\\.)*?(?:\1|\Z)|\w+""", re.DOTALL
)


class Rest:
    """The REST API of a server.

    Args:
        events: Its streams.

    """

    def __init__(self, events: Events) -> None:
        self._events = events
        self._own: Mapping[str, Callable[[Ask, Arguments], Awaitable[object]]] = {
            "abort_condense": _abort_condense,
            "archive": _archive,
            "changes": self._changes,
            "clear_alarms": _clear_alarms,
            "commit_condense": _commit_condense,
            "delete": _delete,
            "delete_item": _delete_item,
            "doctor": _doctor,
            "mirrors": _mirrors,
            "projects": _projects,
            "repair": _repair,
            "replace": _replace,
            "sets": _sets,
            "status": _status,
            "sync": _sync,
        }

    async def answer(self, ask: Ask, route: Route) -> Answer | StreamAnswer:
        """Answer a request.

        Raises:
            CrdtmemError: If it is refused; nothing was written then.

        """
        if "project" in ask.params:
            _check_project(ask)
        arguments = _arguments(ask, route)
        try:
            return await self._answer(ask, route, arguments)
        except InvalidArgumentError as error:
            _spell_as_sent(error, route)
            raise

    async def _answer(
        self, ask: Ask, route: Route, arguments: Arguments
    ) -> Answer | StreamAnswer:
        if route.name == "events":
            return await self._stream(ask, arguments)
        owner, _, verb = route.verb.partition(".")
        if owner == "own":
            result = await self._own[verb](ask, arguments)
        else:
            result = await _BY_OWNER[owner](ask, verb, arguments)
        return _answer(ask, route, arguments, result)

    async def _stream(self, ask: Ask, arguments: Arguments) -> Answer | StreamAnswer:
        since = ask.headers.get("last-event-id") or arguments.get("since")
        if since is not None:
            async with _memory(ask) as memory:
                # A cursor that is none is refused while a status can say so.
                await memory.changes(since, limit=1)
        if ask.method == "HEAD":
            return Answer(200, b"", "text/event-stream")
        return StreamAnswer(self._events.stream(ask, ask.params["project"], since))

    async def _changes(self, ask: Ask, arguments: Arguments) -> object:
        """Return what changed, as soon as something has; no handle is held meanwhile.

        Raises:
            InvalidArgumentError: If an argument is malformed.

        """
        wait = checked_seconds(arguments.pop("wait", 0.0), "wait", 0, SERVE_WAIT_S)
        arguments.setdefault("limit", CHANGES_DEFAULT_MAX)
        loop = asyncio.get_running_loop()
        until_s = loop.time() + wait
        async with self._events.listening(ask.params["project"]) as watcher:
            while True:
                seq = watcher.seq
                async with _memory(ask) as memory:
                    feed = await memory.changes(**arguments)
                left_s = until_s - loop.time()
                is_over = left_s <= 0 or ask.site.is_stopping
                if feed.changes or feed.reset or is_over:
                    return feed
                # A ring that came meanwhile is over, and is not waited for.
                if watcher.seq == seq:  # pragma: no branch - seldom comes so
                    await watcher.wait(left_s)


def lane_of(ask: Ask) -> str:
    """Return who writes.

    Raises:
        HttpError: ``permission-denied``, if the token's lane is the only one.
        InvalidArgumentError: ``invalid-lane``.

    """
    wanted = ask.headers.get("crdtmem-lane")
    if wanted is None:
        return ask.principal.lane
    if not ask.principal.may_choose_lane:
        message = "this token writes under its own name only"
        raise HttpError(403, "permission-denied", message)
    name = wanted.encode("latin-1", "replace").decode("utf-8", "replace")
    return parse_lane(name, "Crdtmem-Lane")


def _spell_as_sent(error: InvalidArgumentError, route: Route) -> None:
    """Name the arguments of the verb as the request does; quotes hold its values."""
    names = {f.called: f.name for f in (*route.query, *(route.body or ()))}

    def spelled(text: str) -> str:
        return _QUOTED_OR_WORD.sub(lambda m: names.get(m[0], m[0]), text)

    error.message, error.hint = spelled(error.message), spelled(error.hint)
    error.details["argument"] = error.argument = spelled(error.argument)


def _check_project(ask: Ask) -> None:
    project = parse_project_id(ask.params["project"])
    if not ask.site.shows(project):
        message = f"there is no project {project!a} here"
        raise HttpError(404, "route-not-found", message)


def _memory(ask: Ask) -> Use:
    project = ask.params.get("project", ask.site.start_project)
    return ask.site.handles.use(project, lane_of(ask))


async def _set(ask: Ask, memory: AsyncMemory, arguments: Arguments) -> AsyncMemorySet:
    key = decode_key(arguments.pop("partition_key"))
    scope = arguments.pop("scope", "project")
    bound = await memory.bind(partition_key=key, scope=scope)
    return await bound.memory_set(ask.params["name"])


async def _by_memory(ask: Ask, verb: str, arguments: Arguments) -> object:
    async with _memory(ask) as memory:
        return await getattr(memory, verb)(**arguments)


async def _by_slot(ask: Ask, verb: str, arguments: Arguments) -> object:
    scope = arguments.pop("scope", None)
    arguments |= {n: v for n, v in ask.params.items() if n == "id"}
    async with _memory(ask) as memory:
        slot = await memory.slot(ask.params["label"], scope)
        return await getattr(slot, verb)(**arguments)


async def _by_set(ask: Ask, verb: str, arguments: Arguments) -> object:
    arguments |= {n: v for n, v in ask.params.items() if n == "id"}
    async with _memory(ask) as memory:
        memory_set = await _set(ask, memory, arguments)
        return await getattr(memory_set, verb)(**arguments)


_BY_OWNER = {"memory": _by_memory, "slot": _by_slot, "set": _by_set}


def _arguments(ask: Ask, route: Route) -> Arguments:
    """Return the arguments of the verb, from query, body and headers."""
    if route.body is None:
        if ask.body:
            # A guard that stands in it would be passed over.
            raise HttpError(400, "bad-request", "this route takes no body")
        arguments = query_values(ask.query, route.query)
    else:
        in_query = (_OPEN_SCOPE,) if _OPEN_SCOPE in route.body else ()
        arguments = query_values(ask.query, in_query)
        content_type = ask.headers.get("content-type", "")
        given = body_values(ask.body, content_type, route.body)
        if twice := arguments.keys() & given.keys():
            name = min(twice)
            raise InvalidArgumentError(name, f"{name} is in the query and in the body")
        arguments |= given
    if route.writes and "if-match" in ask.headers:
        # Passed over, it would make a guarded write unguarded.
        message = "If-Match is not read here; pass expectedRev or expectedHash"
        raise InvalidArgumentError("If-Match", message, code="invalid-precondition")
    key = ask.headers.get("idempotency-key")
    if key is not None and route.writes:
        _name_request(route, arguments, key)
    return arguments


def _name_request(route: Route, arguments: Arguments, key: str) -> None:
    fields = route.query if route.body is None else route.body
    if not any(field.name == "requestId" for field in fields):
        message = "this route takes no Idempotency-Key"
        raise InvalidArgumentError("Idempotency-Key", message)
    checked_request_id(key, "Idempotency-Key")
    if arguments.setdefault("request_id", key) != key:
        message = "Idempotency-Key and requestId are not the same"
        raise InvalidArgumentError(
            "Idempotency-Key", message, code="invalid-request-id"
        )


def _answer(ask: Ask, route: Route, arguments: Arguments, result: object) -> Answer:
    headers: dict[str, str] = {}
    if isinstance(result, WriteResult) and route.name == "create":
        project = quote(ask.params["project"], safe="")
        where = f"{PREFIX}/projects/{project}/slots/{result.label}"
        headers["Location"] = f"{where}?scope={result.scope}"
    if isinstance(result, (list, tuple)):
        value: object = {route.key: [one.to_dict() for one in result]}
    else:
        value = result.to_dict() if isinstance(result, Model) else result
    answer = json_answer(value, route.status, headers)
    if isinstance(result, SlotView) and route.name == "read" and not arguments:
        # Settings change without a new rev.
        digest = sha256(answer.body).hexdigest()[:8]
        headers["ETag"] = f'"{result.rev}-{result.content_hash}-{digest}"'
        if _is_known(ask, headers["ETag"]):
            return Answer(304, b"", "application/json", headers)
    return answer


def _is_known(ask: Ask, etag: str) -> bool:
    given = ask.headers.get("if-none-match", "")
    tags = {tag.strip().removeprefix("W/") for tag in given.split(",")}
    return etag in tags or "*" in tags


async def _status(ask: Ask, _: Arguments) -> ServedStatus:
    site = ask.site
    async with _memory(ask) as memory:
        status = await memory.status()
    served = ServeStatus(
        version=site.version,
        base=site.base,
        read_only=site.read_only,
        only_project=site.only_project,
        handles=len(site.handles),
        sessions=len(site.sessions),
    )
    values = {name: getattr(status, name) for name in type(status).names}
    values["sync"] = _in_sight(ask, status.sync)
    return ServedStatus(**values, serve=served)


async def _projects(ask: Ask, _: Arguments) -> object:
    async with _memory(ask) as memory:
        return [p for p in await memory.projects() if ask.site.shows(p.project)]


def _in_sight(ask: Ask, status: SyncStatus) -> SyncStatus:
    links = [x for x in status.links if _is_in_sight(ask, x.local)]
    return status.replaced(links=tuple(links))


def _is_in_sight(ask: Ask, namespace: str) -> bool:
    return namespace == GLOBAL_NAMESPACE or ask.site.shows(namespace)


async def _sync(ask: Ask, _: Arguments) -> SyncStatus:
    async with _memory(ask) as memory:
        return _in_sight(ask, await memory.call(lambda m: sync_status(m.store)))


async def _clear_alarms(ask: Ask, arguments: Arguments) -> SyncStatus:
    from crdtmem.store.links import clear_alarms  # noqa: PLC0415 - for sync only

    async with _memory(ask) as memory:
        await memory.call(lambda target: clear_alarms(target.store))
    return await _sync(ask, arguments)


async def _mirrors(ask: Ask, _: Arguments) -> object:
    from crdtmem.mirror.registry import statuses  # noqa: PLC0415 - for mirrors only

    async with _memory(ask) as memory:
        found = await memory.call(lambda target: statuses(target.store))
    return [m for m in found if _is_in_sight(ask, m.namespace)]


async def _doctor(ask: Ask, arguments: Arguments) -> object:
    async with _memory(ask) as memory:
        return await memory.doctor(**arguments)


async def _repair(ask: Ask, arguments: Arguments) -> object:
    async with _memory(ask) as memory:
        return await memory.doctor(repair=True, **arguments)


async def _delete(ask: Ask, arguments: Arguments) -> object:
    async with _memory(ask) as memory:
        return await memory.delete(ask.params["label"], **arguments)


async def _replace(ask: Ask, arguments: Arguments) -> object:
    is_forced = arguments.pop("force", False)
    if not is_forced and not any(name in arguments for name in _GUARDS):
        raise InvalidArgumentError(
            "expectedRev",
            "expectedRev, expectedHash or baseRev required: a replace covers all that"
            " is there",
            code="invalid-precondition",
            hint="read the slot and pass the rev it shows, or force: true",
            details={"reason": "guard-required"},
        )
    return await _by_slot(ask, "replace", arguments)


async def _archive(ask: Ask, _: Arguments) -> object:
    async with _memory(ask) as memory:
        return await memory.condense_archive(ask.params["id"])


async def _commit_condense(ask: Ask, arguments: Arguments) -> object:
    from crdtmem.condense.named import commit_named  # noqa: PLC0415 - seldom

    pass_id = ask.params["id"]
    facts = arguments.get("hoisted", [])
    reply = {"passId": pass_id, "summary": arguments["summary"], "facts": facts}
    text = json.dumps(reply)
    async with _memory(ask) as memory:
        return await memory.call(lambda target: commit_named(target, pass_id, text))


async def _abort_condense(ask: Ask, _: Arguments) -> object:
    from crdtmem.condense.named import abort_named  # noqa: PLC0415 - seldom

    async with _memory(ask) as memory:
        return await memory.call(lambda target: abort_named(target, ask.params["id"]))


async def _sets(ask: Ask, arguments: Arguments) -> object:
    key = decode_key(arguments.pop("partition_key"))
    scope = arguments.pop("scope", "project")
    async with _memory(ask) as memory:
        bound = await memory.bind(partition_key=key, scope=scope)
        return await bound.memory_sets(**arguments)


async def _delete_item(ask: Ask, arguments: Arguments) -> object:
    async with _memory(ask) as memory:
        memory_set = await _set(ask, memory, arguments)
        return await memory_set.delete(ask.params["id"], **arguments)
