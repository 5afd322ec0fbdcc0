"""The table of the REST API: the one source of dispatch, of OpenAPI and of the README.

A row says what a request may give and which verb answers it; what a value may be beyond
its type is the verb's business. Names are those of the verbs' arguments, in camelCase.
"""

from crdtmem.condense.values import (
    CondenseArchive,
    CondensePass,
    CondenseResult,
    DueSlot,
    PassInfo,
)
from crdtmem.mirror.values import MirrorStatus
from crdtmem.model import Model
from crdtmem.models import (
    AuditEntry,
    BlameLine,
    ChangeFeed,
    ContextView,
    DeleteResult,
    Diff,
    DoctorReport,
    History,
    HistoryEntry,
    ProjectInfo,
    SlotView,
    StoreStatus,
    SyncStatus,
    UndoResult,
    WriteResult,
)
from crdtmem.search.values import SearchResult
from crdtmem.serve.routing import Field, Route
from crdtmem.sets.values import (
    AddResult,
    ItemDeleteResult,
    ItemPage,
    PartitionInfo,
    SetInfo,
    UpdateResult,
)

__all__ = ["ROUTES", "ServeStatus", "ServedStatus"]


class ServeStatus(Model):
    """The server that answers.

    Attributes:
        version: Of crdtmem.
        base: What its addresses begin with.
        read_only: Whether it writes nothing.
        only_project: The one project that it shows; None: all.
        handles: How many memories are open.
        sessions: How many browsers are signed in.

    """

    version: str
    base: str
    read_only: bool
    only_project: str | None
    handles: int
    sessions: int


class ServedStatus(StoreStatus):
    """The store, as a server shows it."""

    serve: ServeStatus


_P = "/projects/{project}"
_S = f"{_P}/slots/{{label}}"
_SETS = f"{_P}/sets/{{name}}"
_PASS = f"{_P}/condense/passes/{{id}}"

_SCOPE = Field("scope", "scope")
_LIMIT = Field("limit", "whole")
_ID = Field("id", is_required=True)
_REQUEST_ID = Field("requestId")
_GUARD = (Field("expectedRev", "whole"), Field("expectedHash"))
_WRITE = (*_GUARD, _REQUEST_ID, _SCOPE)
_SETTINGS = (
    Field("description"),
    Field("sizeLimit", "whole"),
    Field("pinned", "flag"),
    Field("readOnly", "flag"),
    Field("appendOnly", "flag"),
)
_PARTITION = (
    Field("partition", is_required=True, argument="partition_key"),
    _SCOPE,
)
_SEARCH = (
    Field("query", is_required=True),
    _LIMIT,
    Field("mode"),
    Field("sort"),
    Field("semantic", "flag"),
    Field("snippet", "whole"),
)
_KEPT = (404, 409)
_GROWS = (404, 409, 413, 507)

_STORE = (
    Route("GET", "/status", "status", "own.status", "The store.", ServedStatus),
    Route(
        "GET",
        "/projects",
        "projects",
        "own.projects",
        "Every project.",
        ProjectInfo,
        key="projects",
    ),
    Route("GET", "/sync", "sync", "own.sync", "How sync stands.", SyncStatus),
    Route(
        "POST",
        "/sync/clear-alarms",
        "clearAlarms",
        "own.clear_alarms",
        "Forget the alarms of all links.",
        SyncStatus,
        body=(),
        writes=True,
        also=(507,),
    ),
    Route(
        "GET",
        "/mirrors",
        "mirrors",
        "own.mirrors",
        "Every mirrored folder.",
        MirrorStatus,
        key="mirrors",
    ),
    Route(
        "GET",
        "/doctor",
        "doctor",
        "own.doctor",
        "What the doctor finds.",
        DoctorReport,
        query=(Field("deep", "flag"),),
    ),
    Route(
        "POST",
        "/doctor/repair",
        "repair",
        "own.repair",
        "Mend what can be mended.",
        DoctorReport,
        body=(Field("deep", "flag"),),
        writes=True,
        also=(507,),
    ),
)

_SLOTS = (
    Route(
        "GET",
        f"{_P}/slots",
        "slots",
        "memory.slots",
        "All live slots.",
        SlotView,
        query=(Field("content", "flag"), Field("templates", "flag"), _SCOPE),
        key="slots",
    ),
    Route(
        "POST",
        f"{_P}/slots",
        "create",
        "memory.create",
        "Make a slot.",
        WriteResult,
        body=(
            Field("label", is_required=True),
            Field("content"),
            *_SETTINGS,
            _SCOPE,
            _REQUEST_ID,
        ),
        status=201,
        writes=True,
        also=(409, 413, 507),
    ),
    Route(
        "GET",
        _S,
        "read",
        "slot.read",
        "A slot's text and settings.",
        SlotView,
        query=(Field("atRev", "whole"), Field("lines", "lines"), _SCOPE),
        also=(304, 404, 409),
    ),
    Route(
        "PATCH",
        _S,
        "setMeta",
        "slot.set_meta",
        "Change settings.",
        SlotView,
        body=(*_SETTINGS, _REQUEST_ID, _SCOPE),
        writes=True,
        also=(404, 409, 507),
    ),
    Route(
        "DELETE",
        _S,
        "delete",
        "own.delete",
        "Delete a slot; its text stays in the history.",
        DeleteResult,
        query=_WRITE,
        writes=True,
        also=(404, 409, 507),
    ),
    Route(
        "POST",
        f"{_S}/append",
        "append",
        "slot.append",
        "Add text, on lines of its own.",
        WriteResult,
        body=(Field("text", is_required=True), *_WRITE),
        writes=True,
        also=_GROWS,
    ),
    Route(
        "POST",
        f"{_S}/replace",
        "replace",
        "own.replace",
        "Give it a new text; needs a guard, baseRev or force.",
        WriteResult,
        body=(
            Field("content", is_required=True),
            Field("baseRev", "whole"),
            Field("force", "flag"),
            *_WRITE,
        ),
        writes=True,
        also=_GROWS,
    ),
    Route(
        "POST",
        f"{_S}/edit",
        "edit",
        "slot.edit",
        "Replace a passage.",
        WriteResult,
        body=(
            Field("old", is_required=True),
            Field("new", is_required=True),
            Field("occurrence", "occurrence"),
            Field("lines", "lines"),
            *_WRITE,
        ),
        writes=True,
        also=_GROWS,
    ),
    Route(
        "POST",
        f"{_S}/insert",
        "insert",
        "slot.insert",
        "Put lines behind a line.",
        WriteResult,
        body=(
            Field("line", "whole", is_required=True),
            Field("text", is_required=True),
            Field("baseRev", "whole"),
            *_WRITE,
        ),
        writes=True,
        also=_GROWS,
    ),
    Route(
        "POST",
        f"{_S}/restore",
        "restore",
        "slot.restore",
        "Write a kept text again.",
        WriteResult,
        body=(_ID, *_WRITE),
        writes=True,
        also=_GROWS,
    ),
    Route(
        "POST",
        f"{_S}/undo",
        "undo",
        "slot.undo",
        "Take back a write; what others wrote since stays.",
        UndoResult,
        body=(Field("id"), Field("dryRun", "flag"), *_WRITE),
        writes=True,
        also=_GROWS,
    ),
    Route(
        "GET",
        f"{_S}/history",
        "history",
        "slot.history",
        "The kept texts, newest first.",
        History,
        query=(_LIMIT, Field("before"), _SCOPE),
        also=_KEPT,
    ),
    Route(
        "GET",
        f"{_S}/history/{{id}}",
        "historyEntry",
        "slot.history_entry",
        "One kept text.",
        HistoryEntry,
        query=(_SCOPE,),
        also=_KEPT,
    ),
    Route(
        "GET",
        f"{_S}/diff",
        "diff",
        "slot.diff",
        "What changed between two kept texts.",
        Diff,
        query=(
            Field("from", "whole", is_required=True, argument="from_rev"),
            Field("to", "whole", argument="to_rev"),
            _LIMIT,
            _SCOPE,
        ),
        also=_KEPT,
    ),
    Route(
        "GET",
        f"{_S}/blame",
        "blame",
        "slot.blame",
        "Who wrote each line.",
        BlameLine,
        query=(_SCOPE,),
        key="lines",
        also=_KEPT,
    ),
)

_PROJECT = (
    Route(
        "GET",
        f"{_P}/changes",
        "changes",
        "own.changes",
        "The slots that changed after a cursor.",
        ChangeFeed,
        query=(
            Field("since"),
            _LIMIT,
            _SCOPE,
            Field("excludeLane"),
            Field("wait", "number"),
        ),
    ),
    Route(
        "GET",
        f"{_P}/context",
        "context",
        "memory.context",
        "The pinned slots as one block of text.",
        ContextView,
        query=(
            Field("budgetTokens", "whole"),
            Field("style"),
            _SCOPE,
            Field("labels", "texts"),
        ),
    ),
    Route(
        "GET",
        f"{_P}/audit",
        "audit",
        "memory.audit",
        "Who changed what when.",
        AuditEntry,
        query=(
            Field("label"),
            _SCOPE,
            Field("lane"),
            Field("before", "whole"),
            _LIMIT,
        ),
        key="entries",
    ),
    Route(
        "GET",
        f"{_P}/search",
        "search",
        "memory.search",
        "The parts of slots that match a query.",
        SearchResult,
        query=(*_SEARCH, Field("kinds", "texts"), Field("label"), _SCOPE),
        also=(404,),
    ),
    Route(
        "GET",
        f"{_P}/events",
        "events",
        "own.events",
        "Changes as they happen: server-sent events.",
        None,
        query=(Field("since"),),
    ),
    Route(
        "GET",
        f"{_P}/condense/due",
        "condenseDue",
        "memory.condense_due",
        "For each slot whether a condense pass would begin now.",
        DueSlot,
        query=(_SCOPE,),
        key="slots",
    ),
    Route(
        "GET",
        f"{_P}/condense/passes",
        "condensePasses",
        "memory.condense_passes",
        "The newest condense passes.",
        PassInfo,
        query=(Field("label"), Field("state"), _LIMIT),
        key="passes",
    ),
    Route(
        "GET",
        _PASS,
        "condenseArchive",
        "own.archive",
        "What a pass took out of its slot.",
        CondenseArchive,
        also=(404,),
    ),
    Route(
        "POST",
        f"{_S}/condense",
        "beginCondense",
        "slot.begin_condense",
        "Begin a condense pass.",
        CondensePass,
        body=(
            Field("keepSections", "whole"),
            Field("keepPct", "whole"),
            Field("expiresIn", "number"),
            Field("force", "flag"),
            _SCOPE,
        ),
        status=201,
        writes=True,
        also=(404, 409, 507),
    ),
    Route(
        "POST",
        f"{_PASS}/commit",
        "commitCondense",
        "own.commit_condense",
        "Put a summary in place of what the pass takes out.",
        CondenseResult,
        body=(Field("summary", is_required=True), Field("hoisted", "texts")),
        writes=True,
        also=(404, 507),
    ),
    Route(
        "POST",
        f"{_PASS}/abort",
        "abortCondense",
        "own.abort_condense",
        "End an open pass without a new text.",
        CondenseResult,
        body=(),
        writes=True,
        also=(404, 507),
    ),
)

_MEMORY_SETS = (
    Route(
        "GET",
        f"{_P}/partitions",
        "partitions",
        "memory.partitions",
        "The keys that have sets.",
        PartitionInfo,
        query=(_SCOPE, _LIMIT),
        key="partitions",
    ),
    Route(
        "GET",
        f"{_P}/sets",
        "sets",
        "own.sets",
        "The sets of a partition, by its encodedKey.",
        SetInfo,
        query=(*_PARTITION, _LIMIT),
        key="sets",
    ),
    Route(
        "GET",
        f"{_SETS}/items",
        "items",
        "set.get",
        "Items of a set, a page at a time.",
        ItemPage,
        query=(
            *_PARTITION,
            Field("ids", "texts"),
            _LIMIT,
            Field("order"),
            Field("cursor"),
        ),
    ),
    Route(
        "POST",
        f"{_SETS}/items",
        "addItems",
        "set.add",
        "Add items: all of them, or none.",
        AddResult,
        body=(
            *_PARTITION,
            Field("items", "items", is_required=True),
            Field("metadatas", "objects"),
            Field("ids", "texts"),
            _REQUEST_ID,
        ),
        status=201,
        writes=True,
        also=(409, 413, 507),
    ),
    Route(
        "PATCH",
        f"{_SETS}/items/{{id}}",
        "updateItem",
        "set.update",
        "Change an item's text, its metadata, or both.",
        UpdateResult,
        body=(
            *_PARTITION,
            Field("text"),
            Field("metadata", "object"),
            Field("create", "flag"),
            Field("expectedRev", "whole"),
            _REQUEST_ID,
        ),
        writes=True,
        also=(404, 409, 413, 507),
    ),
    Route(
        "DELETE",
        f"{_SETS}/items/{{id}}",
        "deleteItem",
        "own.delete_item",
        "Delete an item.",
        ItemDeleteResult,
        query=(*_PARTITION, _REQUEST_ID),
        writes=True,
        also=(409, 507),
    ),
    Route(
        "POST",
        f"{_SETS}/search",
        "searchItems",
        "set.search",
        "The items that match a query, the best first.",
        SearchResult,
        body=(*_PARTITION, *_SEARCH, Field("filters", "object")),
    ),
)

ROUTES: tuple[Route, ...] = (*_STORE, *_SLOTS, *_PROJECT, *_MEMORY_SETS)
