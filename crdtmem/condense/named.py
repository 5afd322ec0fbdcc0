"""Passes by their id alone, and the log of all: for those who hold no slot."""

import json

from crdtmem.arguments import checked_count
from crdtmem.condense.committing import commit_reply
from crdtmem.condense.passing import abort_pass
from crdtmem.condense.values import CondenseResult
from crdtmem.errors import CondensePassUnknownError
from crdtmem.limits import HISTORY_PAGE_MAX
from crdtmem.memory import Memory
from crdtmem.models import Scope
from crdtmem.scope import GLOBAL_NAMESPACE, parse_label, parse_scope, scope_of
from crdtmem.session import Place
from crdtmem.store.events import events_of
from crdtmem.store.passes import find_pass
from crdtmem.views import iso_time

__all__ = ["KINDS", "abort_named", "commit_named", "condense_log"]

KINDS = ("condense", "condense-abort", "condense-duplicate", "condense-skip")
"""The events of condense."""


def commit_named(memory: Memory, pass_id: str, text: str) -> CondenseResult:
    """Commit a pass with what a summariser gave: a frame, or JSON; see commit_reply.

    Raises:
        CondensePassUnknownError: If no slot in sight has such a pass.

    """
    session = memory._session
    return commit_reply(session, _place_of(memory, pass_id), pass_id, text)


def abort_named(memory: Memory, pass_id: str) -> CondenseResult:
    """End an open pass because nobody wants it; of a closed one, return the result.

    Raises:
        CondensePassUnknownError: If no slot in sight has such a pass.

    """
    session = memory._session
    return abort_pass(session, _place_of(memory, pass_id), pass_id, "cancelled")


def condense_log(
    memory: Memory,
    *,
    label: str | None = None,
    scope: Scope | None = None,
    limit: int = 50,
) -> list[dict[str, object]]:
    """Return what became of the newest passes in sight, oldest first, as JSON values.

    Args:
        memory: Whose slots.
        label: Only of this slot.
        scope: Only of slots of this scope.
        limit: How many, 1 to 1,000.

    Raises:
        InvalidArgumentError: If an argument is malformed.

    """
    wanted = parse_scope(scope, optional=True)
    limit = checked_count(limit, "limit", HISTORY_PAGE_MAX)
    namespaces = {"project": memory.project, "global": GLOBAL_NAMESPACE}
    with memory.store.snapshot() as connection:
        rows = [
            row
            for each, namespace in namespaces.items()
            if wanted in (None, each)
            for row in events_of(
                connection,
                kinds=KINDS,
                namespace=namespace,
                label=None if label is None else parse_label(label),
                limit=limit,
            )
        ]
    return [
        {
            "at": iso_time(row.at_ms),
            "kind": row.kind,
            "label": row.label,
            "scope": scope_of(row.namespace),
            **json.loads(row.details),
        }
        for row in sorted(rows)[-limit:]
    ]


def _place_of(memory: Memory, pass_id: str) -> Place:
    with memory.store.reading() as connection:
        row = find_pass(connection, pass_id)
    if row is None or row.namespace not in (memory.project, GLOBAL_NAMESPACE):
        raise CondensePassUnknownError(pass_id=pass_id)
    return Place(row.namespace, row.label)
