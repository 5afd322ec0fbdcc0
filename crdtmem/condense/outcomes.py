"""What becomes of a pass: its result, its event, and who waits before the next one."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from crdtmem.condense.values import CondenseResult
from crdtmem.limits import (
    CONDENSE_BACKOFF_MAX_S,
    CONDENSE_BACKOFF_S,
    RATE_BACKOFF_MAX_S,
    RATE_BACKOFF_MIN_S,
    RATE_BACKOFF_S,
)
from crdtmem.model import camel_case
from crdtmem.models import UNSET, Headroom
from crdtmem.scope import scope_of
from crdtmem.session import Place
from crdtmem.store.connection import Connection
from crdtmem.store.events import add_event
from crdtmem.store.passes import (
    PassRow,
    Wait,
    clear_wait,
    end_pass,
    find_wait,
    set_wait,
)
from crdtmem.store.pins import drop_pin
from crdtmem.store.rows import SlotRow
from crdtmem.store.slots import empty_slot, find_slot
from crdtmem.views import headroom_of, iso_time

if TYPE_CHECKING:
    from crdtmem.store.write import Transaction

__all__ = [
    "NOT_SMALLER",
    "close_pass",
    "expire_pass",
    "note_event",
    "outcome",
    "slot_now",
    "slot_waiter",
    "stored_result",
    "summariser_waiter",
]

NOT_SMALLER = "not-smaller"
"""Reason of a pass whose text is hardly shorter, and of the wait after it."""

_FAILURE = re.compile(r"summarize-failed|timeout|invalid-text|reply-.+")
"""Reasons that are the summariser's fault: each in a row doubles the slot's wait."""

_DOUBLINGS_MAX = 20

_EVENT_KEYS = (
    "passId",
    "reason",
    "detail",
    "section",
    "baseRev",
    "rev",
    "oldBytes",
    "newBytes",
    "carriedBytes",
    "finalBytes",
    "evicted",
    "kept",
    "hoisted",
    "hoistDeferred",
    "retryAt",
)


def slot_waiter(doc: int) -> str:
    """Return under which name a slot waits."""
    return f"doc/{doc}"


def summariser_waiter(name: str) -> str:
    """Return under which name a summariser waits."""
    return f"summariser/{name}"


def slot_now(connection: Connection, place: Place) -> SlotRow:
    """Return a slot as it is, deleted ones too; one without records is empty."""
    row = find_slot(connection, place.namespace, place.label)
    return row or empty_slot(place.namespace, place.label, 0)


def outcome(
    row: PassRow | None, slot: SlotRow, reason: str, **figures: Any
) -> CondenseResult:
    """Return a result, with what every one has.

    Args:
        row: The pass, if there is one.
        slot: The slot as it is now.
        reason: Why it came out so.
        figures: More fields of the result, in place of the plain ones.

    """
    fields: dict[str, Any] = {
        "pass_id": row.pass_id if row else UNSET,
        "label": slot.label,
        "scope": scope_of(slot.namespace),
        "condensed": False,
        "reason": reason,
        "base_rev": row.base_rev if row else UNSET,
        "rev": slot.rev,
        "headroom": headroom_of(slot),
    }
    return CondenseResult(**{**fields, **figures})


def stored_result(row: PassRow) -> CondenseResult | None:
    """Return the result of a pass that has one: it has ended, and here."""
    if row.result is None:
        return None
    values = json.loads(row.result)
    headroom = Headroom(**_by_name(Headroom.names, values.pop("headroom")))
    return CondenseResult(**_by_name(CondenseResult.names, values), headroom=headroom)


def close_pass(
    transaction: "Transaction",
    row: PassRow,
    result: CondenseResult,
    *,
    state: str = "aborted",
    reply: bytes | None = None,
    lsn: int | None = None,
    retry_after: float | None = None,
) -> CondenseResult:
    """End an open pass: its row, its pin, the waits and the event; return the result.

    Args:
        transaction: The one in which it ends.
        row: The pass.
        result: What became of it.
        state: What it is from now on.
        reply: The digest of the reply, if one was given.
        lsn: The step of its record.
        retry_after: When the summariser wants to be asked again, in seconds.

    """
    connection, now_ms = transaction.connection, transaction.now_ms
    until_ms = _note_waits(connection, row, result, now_ms, retry_after)
    if until_ms:
        result = result.replaced(retry_at=iso_time(until_ms))
    ended = row._replace(
        state=state,
        reason=result.reason,
        reply=reply,
        result=json.dumps(result.to_dict()),
        lsn=lsn,
        ended_ms=now_ms,
    )
    end_pass(connection, ended)
    if row.pin is not None:
        drop_pin(connection, row.pin)
    kind = "condense" if result.condensed else "condense-abort"
    place = Place(row.namespace, row.label)
    note_event(connection, kind, place, result, now_ms, lane=row.lane, row=row)
    return result


def expire_pass(
    transaction: "Transaction", row: PassRow, slot: SlotRow
) -> CondenseResult:
    """End an open pass whose time is over."""
    result = outcome(row, slot, "pass-expired")
    return close_pass(transaction, row, result, state="expired")


def note_event(
    connection: Connection,
    kind: str,
    place: Place,
    result: CondenseResult,
    now_ms: int,
    *,
    lane: str,
    row: PassRow | None = None,
) -> None:
    """Write what became of a pass to the log, without any text but a heading."""
    shown = result.to_dict()
    details = {name: shown[name] for name in _EVENT_KEYS if name in shown}
    if result.reason == "source-changed":
        details.pop("detail", None)
    details["lane"] = lane
    if row is not None:
        details["archive"] = row.archive.hex()
        details["durationMs"] = now_ms - row.begun_ms
        if row.summariser:
            details["summariser"] = row.summariser
    add_event(
        connection,
        kind,
        at_ms=now_ms,
        namespace=place.namespace,
        label=place.label,
        details=details,
    )


def _note_waits(
    connection: Connection,
    row: PassRow,
    result: CondenseResult,
    now_ms: int,
    retry_after: float | None,
) -> int:
    """Let the slot or the summariser wait, or wait no longer; return until when."""
    slot, summariser = slot_waiter(row.doc), summariser_waiter(row.summariser)
    if result.condensed:
        clear_wait(connection, slot)
        clear_wait(connection, summariser)
    elif result.reason == NOT_SMALLER:
        set_wait(
            connection, slot, Wait(NOT_SMALLER, size_bytes=int(str(result.old_bytes)))
        )
    elif result.reason == "rate-limited":
        failures = find_wait(connection, summariser).failures + 1
        wait_s = retry_after
        if wait_s is None:
            wait_s = _doubled(RATE_BACKOFF_S, failures)
        wait_s = min(max(wait_s, RATE_BACKOFF_MIN_S), RATE_BACKOFF_MAX_S)
        return _wait(connection, summariser, result.reason, failures, now_ms, wait_s)
    elif _FAILURE.fullmatch(result.reason):
        failures = find_wait(connection, slot).failures + 1
        wait_s = min(_doubled(CONDENSE_BACKOFF_S, failures), CONDENSE_BACKOFF_MAX_S)
        return _wait(connection, slot, result.reason, failures, now_ms, wait_s)
    return 0


def _wait(
    connection: Connection,
    who: str,
    reason: str,
    failures: int,
    now_ms: int,
    wait_s: float,
) -> int:
    until_ms = now_ms + int(wait_s * 1000)
    set_wait(connection, who, Wait(reason, failures, until_ms))
    return until_ms


def _doubled(first_s: float, failures: int) -> float:
    return first_s * float(2 ** min(failures - 1, _DOUBLINGS_MAX))


def _by_name(names: Iterable[str], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a result from its JSON form."""
    name_of = {camel_case(name): name for name in names}
    return {name_of[key]: value for key, value in values.items()}
