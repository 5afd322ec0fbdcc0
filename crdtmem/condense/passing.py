"""A pass between its begin and its end: found by its id, or ended without a text."""

import math
import re

from crdtmem.condense.outcomes import close_pass, outcome, slot_now, stored_result
from crdtmem.condense.values import CondenseResult
from crdtmem.errors import CondensePassUnknownError, InvalidArgumentError
from crdtmem.models import UNSET
from crdtmem.session import Place, Session
from crdtmem.store.connection import Connection
from crdtmem.store.passes import PassRow, find_pass

__all__ = ["abort_pass", "known_pass"]

_REASON = re.compile(r"[a-z][a-z-]{0,63}")


def abort_pass(
    session: Session,
    place: Place,
    pass_id: str,
    reason: str,
    *,
    detail: str | None = None,
    retry_after: float | None = None,
) -> CondenseResult:
    """End an open pass without a new text; of one that has ended, return the result.

    Args:
        session: Any one of the store.
        place: The pass's slot.
        pass_id: The pass.
        reason: Why, in kebab-case. Failures of the summariser make the slot wait, and
            ``rate-limited`` makes the summariser wait.
        detail: More about it.
        retry_after: When the summariser wants to be asked again, in seconds.

    Raises:
        InvalidArgumentError: If the reason is malformed.
        CondensePassUnknownError: If the slot has no such pass.

    """
    if _REASON.fullmatch(str(reason)) is None:
        message = f"reason must be in kebab-case, not {reason!r:.40}"
        raise InvalidArgumentError("reason", message)
    if retry_after is not None and not math.isfinite(retry_after):
        retry_after = None
    with session.writing() as writing:
        transaction = writing.transaction
        row = known_pass(transaction.connection, place, pass_id)
        slot = slot_now(transaction.connection, place)
        if row.state != "open":
            return stored_result(row) or outcome(row, slot, row.reason)
        result = outcome(row, slot, reason, detail=detail or UNSET)
        return close_pass(transaction, row, result, retry_after=retry_after)


def known_pass(connection: Connection, place: Place, pass_id: str) -> PassRow:
    """Return a pass that was begun here for a slot.

    Raises:
        CondensePassUnknownError: If there is none of that id.

    """
    row = find_pass(connection, pass_id)
    if row is None or (row.namespace, row.label) != place or row.is_remote:
        raise CondensePassUnknownError(pass_id=pass_id, label=place.label)
    return row
