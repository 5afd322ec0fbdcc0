"""How a pass is committed: the summary goes in where the old part of the text was.

Others may have written thousands of times since the begin. What they did is followed
from the pin. Where it meets what the pass takes out, the pass ends without a new text;
everything else stays. The pass is an edit of the newest text, under the write lock, so
nothing can come between the last look and the commit:

    reply     is for this pass, and is cleaned
    pass      is open; the slot is there and may be written
    gates     the rebuilt text has all that it must have, and is shorter
    overlap   nobody has changed what goes
    edit      carried to the newest text; it must give what arithmetic gives
    commit    record, history, archive, result, event: one transaction
"""

import hashlib
import json
import logging
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from crdtmem.arguments import checked_content
from crdtmem.condense.due import plan_of
from crdtmem.condense.gates import failed_gate
from crdtmem.condense.outcomes import (
    close_pass,
    expire_pass,
    note_event,
    outcome,
    slot_now,
    stored_result,
)
from crdtmem.condense.passing import known_pass
from crdtmem.condense.rebuild import Rebuilt, rebuild
from crdtmem.condense.regions import Plan
from crdtmem.condense.reply import ReplyError, clean_facts, clean_summary, parse_reply
from crdtmem.condense.settings import CondenseConfig
from crdtmem.condense.values import CondenseReply, CondenseResult
from crdtmem.condense.writing import (
    Refused,
    carried_edit,
    require_untouched,
    write_pass,
)
from crdtmem.doc.text_form import bytes_of
from crdtmem.doc.trace import Trace
from crdtmem.editing import SlotWrite
from crdtmem.errors import (
    DocError,
    InvalidArgumentError,
    SlotNotFoundError,
    SlotRefusedError,
    StoreBusyError,
    StoreCorruptError,
    StoreError,
    StoreFullError,
)
from crdtmem.limits import (
    CONDENSE_COMMIT_TRIES,
    CONDENSE_MIRROR_POLL_S,
    CONDENSE_MIRROR_S,
)
from crdtmem.models import UNSET
from crdtmem.session import Place, Session
from crdtmem.store.mirrors import pending_files
from crdtmem.store.pins import Pin, count_deletions, find_pin, follow

__all__ = ["commit_pass", "commit_reply"]

logger = logging.getLogger(__name__)


def commit_pass(
    session: Session,
    place: Place,
    pass_id: str,
    summary: str,
    hoisted: Sequence[str] = (),
) -> CondenseResult:
    """Commit a pass with a summary and facts; see Slot.commit_condense.

    Raises:
        InvalidArgumentError: If an argument is malformed.
        CondensePassUnknownError: If the slot has no such pass.
        SlotQuarantinedError: If a record of the slot is damaged; the pass stays open.

    """
    summary = checked_content(summary, "summary")
    if isinstance(hoisted, str) or not isinstance(hoisted, Sequence):
        message = f"hoisted must be a list of texts, not {type(hoisted).__name__}"
        raise InvalidArgumentError("hoisted", message)
    facts = tuple(checked_content(fact, "hoisted") for fact in hoisted)
    reply = CondenseReply(pass_id=pass_id, summary=summary, hoisted=facts)
    return _commit(session, place, pass_id, reply)


def commit_reply(
    session: Session, place: Place, pass_id: str, text: str
) -> CondenseResult:
    """Commit a pass with what a summariser gave: a frame, or JSON.

    A pass gets one reply: a bad one ends it.

    Args:
        session: Any one of the store.
        place: The pass's slot.
        pass_id: The pass.
        text: The reply as it came.

    Raises:
        InvalidArgumentError: If the reply is no string.
        CondensePassUnknownError: If the slot has no such pass.
        SlotQuarantinedError: If a record of the slot is damaged; the pass stays open.

    """
    if not isinstance(text, str):
        message = f"the reply must be a string, not {type(text).__name__}"
        raise InvalidArgumentError("text", message)
    reply: CondenseReply | ReplyError
    try:
        reply = parse_reply(text, pass_id)
    except ReplyError as exc:
        reply = exc
    return _commit(session, place, pass_id, reply, text)


def _commit(
    session: Session,
    place: Place,
    pass_id: str,
    reply: CondenseReply | ReplyError,
    text: str = "",
) -> CondenseResult:
    with session.store.reading() as connection:
        known_pass(connection, place, pass_id)
    if isinstance(reply, CondenseReply):
        digest = _digest_of([reply.summary, *reply.hoisted])
        _await_import(session, place)
    else:
        digest = _digest_of([text])
    failure: StoreError
    for _ in range(CONDENSE_COMMIT_TRIES):
        try:
            with session.writing() as writing:
                write = SlotWrite(session, writing, place, None)
                return _Commit(write, pass_id, digest).settle(reply)
        except StoreBusyError as exc:
            failure = exc
        except (StoreFullError, StoreCorruptError) as exc:
            failure = exc
            break
    return _swap_failed(session, place, pass_id, failure)


class _Commit:
    """The commit of one pass, in a transaction."""

    def __init__(self, write: SlotWrite, pass_id: str, digest: bytes) -> None:
        self.write = write
        self.transaction = write.writing.transaction
        self.connection = self.transaction.connection
        self.digest = digest
        self.row = known_pass(self.connection, write.place, pass_id)
        self.slot = slot_now(self.connection, write.place)
        self.figures: dict[str, Any] = {}

    def settle(self, reply: CondenseReply | ReplyError) -> CondenseResult:
        """Commit the pass, or end it, or return how it has ended."""
        if self.row.state != "open":
            return self._ended()
        if self.row.expires_ms <= self.transaction.now_ms:
            return expire_pass(self.transaction, self.row, self.slot)
        try:
            if isinstance(reply, ReplyError):
                raise Refused(reply.reason, detail=reply.detail)
            return self._written(reply)
        except Refused as exc:
            figures = {**self.figures, **exc.figures}
            result = outcome(self.row, self.slot, exc.reason, **figures)
            return close_pass(self.transaction, self.row, result, reply=self.digest)

    def _ended(self) -> CondenseResult:
        row = self.row
        first = stored_result(row)
        if first is not None and row.reply == self.digest:
            return first
        reason = "pass-expired" if row.state == "expired" else "pass-closed"
        detail = f"the pass is {row.state}: {row.reason}"
        return outcome(row, self.slot, reason, detail=detail)

    def _written(self, reply: CondenseReply) -> CondenseResult:
        pin = self._pin()
        plan, rebuilt = self._rebuilt(pin.file, reply)
        trace = self._trace(pin)
        require_untouched(plan, trace, self.slot)
        delta, carried_bytes = carried_edit(self.write, pin.file, rebuilt.ops, trace)
        self.figures["carried_bytes"] = carried_bytes or UNSET
        return write_pass(self.write, self.row, delta, self.figures, reply=self.digest)

    def _pin(self) -> Pin:
        """Return the text that the pass began from, if the slot is still the same."""
        try:
            self.slot = self.write.live_slot()
        except SlotNotFoundError as exc:
            raise Refused("source-check-failed", detail=exc.message) from exc
        except SlotRefusedError as exc:
            raise Refused(exc.code, detail=exc.message) from exc
        try:
            pin = find_pin(self.connection, self.row.pin or 0)
        except DocError as exc:
            raise Refused("source-check-failed", detail=exc.message) from exc
        if pin is None or pin.doc != self.slot.doc:
            detail = "the text that the pass began from is gone"
            raise Refused("source-check-failed", detail=detail)
        if count_deletions(self.connection, pin):
            detail = "the slot was deleted and made anew"
            raise Refused("source-check-failed", detail=detail)
        return pin

    def _rebuilt(self, file: str, reply: CondenseReply) -> tuple[Plan, Rebuilt]:
        """Return the text without what the pass evicts, if it passes the gates."""
        settings = json.loads(self.row.settings)
        config = CondenseConfig(**settings["config"])
        size_limit = settings["sizeLimit"]
        plan = plan_of(file, size_limit, config)
        pinned = "".join(region.text_in(file) for region in plan.pinned)
        rebuilt = rebuild(
            file,
            plan,
            clean_summary(reply.summary),
            clean_facts(reply.hoisted, pinned),
            size_limit=size_limit,
            pinned_max_pct=config.pinned_max_pct,
        )
        self.figures = {
            "old_bytes": bytes_of(file),
            "new_bytes": bytes_of(rebuilt.file),
            "evicted": len(plan.evicted),
            "kept": len(plan.kept),
            "hoisted": rebuilt.hoisted,
            "hoist_deferred": rebuilt.hoist_deferred,
        }
        failure = failed_gate(
            file,
            plan,
            rebuilt,
            size_limit=size_limit,
            unit_max=config.unit_max(size_limit),
            not_smaller=config.not_smaller,
        )
        if failure is not None:
            reason, detail = failure
            raise Refused(reason, detail=detail)
        return plan, rebuilt

    def _trace(self, pin: Pin) -> Trace:
        trace, is_exact = follow(self.connection, pin, self.slot)
        if not is_exact:
            detail = "a repair has replaced records that were written since"
            raise Refused("source-changed", detail=detail)
        return trace


def _swap_failed(
    session: Session, place: Place, pass_id: str, failure: StoreError
) -> CondenseResult:
    """Return that the store did not take the commit; the pass is as it was."""
    logger.warning("pass %s was not committed: %s", pass_id, failure.message)
    with session.store.reading() as connection:
        row = known_pass(connection, place, pass_id)
        slot = slot_now(connection, place)
    result = outcome(row, slot, "swap-failed", detail=failure.message)
    if not isinstance(failure, StoreBusyError):
        # Best effort: the disk that refused the text may well refuse this too.
        with suppress(StoreError), session.writing() as writing:
            note_event(
                writing.transaction.connection,
                "condense-abort",
                place,
                result,
                writing.transaction.now_ms,
                lane=row.lane,
                row=row,
            )
    return result


def _await_import(session: Session, place: Place) -> None:
    """Wait a little for what has been saved to a mirrored file of the slot."""
    with session.store.reading() as connection:
        files = pending_files(connection, place.namespace, place.label)
    end = time.monotonic() + CONDENSE_MIRROR_S
    while any(_has_changed(path, seen) for path, seen in files):
        if time.monotonic() > end:
            return
        time.sleep(CONDENSE_MIRROR_POLL_S)
        with session.store.reading() as connection:
            files = pending_files(connection, place.namespace, place.label)


def _has_changed(path: str, seen: tuple[int, int, int, int]) -> bool:
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return True
    return seen != (
        found.st_ino,
        found.st_size,
        found.st_mtime_ns,
        found.st_ctime_ns,
    )


def _digest_of(texts: Sequence[str]) -> bytes:
    return hashlib.sha256(json.dumps(texts).encode()).digest()
