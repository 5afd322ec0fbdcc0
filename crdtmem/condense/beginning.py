"""How a pass begins: gates, archive, pin and prompt, in one transaction.

    passing gates   the slot may be written, no other pass is open, it is due
    archive         what the pass takes out is on disk under the pass id
    pin             the text is kept, and all that is written from now on
    prompt          what the summariser is told

From then on no lock is held: the summariser may think for minutes.
"""

import base64
import json
import secrets
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from crdtmem.arguments import checked_bool, checked_count, checked_seconds
from crdtmem.condense.due import Refusal, plan_of, refusal_of
from crdtmem.condense.outcomes import expire_pass, note_event, outcome
from crdtmem.condense.prompt import condensed_body, prompt_of, target_units
from crdtmem.condense.regions import Plan, Region
from crdtmem.condense.settings import CondenseConfig
from crdtmem.condense.values import CondensePass, Section
from crdtmem.doc.text_form import bytes_of
from crdtmem.editing import SlotWrite
from crdtmem.errors import (
    CondenseSkippedError,
    InvalidArgumentError,
    StoreCorruptError,
    StoreFullError,
)
from crdtmem.limits import (
    CONDENSE_EXPIRES_MAX_S,
    CONDENSE_EXPIRES_MIN_S,
    CONDENSE_SECTIONS_MAX,
)
from crdtmem.models import UNSET, Unset
from crdtmem.scope import scope_of
from crdtmem.session import Place, Session
from crdtmem.store.archives import ArchivePart, drop_old_archives, save_archive
from crdtmem.store.connection import Connection
from crdtmem.store.events import events_of
from crdtmem.store.passes import PassRow, add_pass, newest_committed, open_pass
from crdtmem.store.pins import make_pin
from crdtmem.store.rows import SlotRow
from crdtmem.views import HASH_SHOWN_CHARS, iso_time

__all__ = ["archive_parts", "begin_pass", "effective_config", "new_pass", "new_pass_id"]

PASS_ID_BYTES = 10


def begin_pass(
    session: Session,
    place: Place,
    *,
    config: CondenseConfig | None = None,
    keep_sections: int | Unset = UNSET,
    keep_pct: int | Unset = UNSET,
    expires_in: float | Unset = UNSET,
    force: bool = False,
    summariser: str = "",
) -> CondensePass:
    """Begin a pass; see Slot.begin_condense.

    Args:
        session: Who begins it.
        place: Which slot.
        config: The knobs; those of the session where None.
        keep_sections: In place of the knob.
        keep_pct: In place of the knob.
        expires_in: In place of the knob, in seconds.
        force: Begin although the slot is not due, or backing off.
        summariser: Who will summarise; it may be out of quota.

    Raises:
        InvalidArgumentError: If an argument is malformed.
        CondenseSkippedError: If no pass is begun.
        SlotNotFoundError: If the slot is deleted, or was never made.
        SlotRefusedError: If it is read-only or append-only.
        SlotQuarantinedError: If a record of it is damaged.

    """
    knobs = effective_config(session, config, keep_sections, keep_pct)
    life_s = checked_seconds(
        knobs.expires_in if isinstance(expires_in, Unset) else expires_in,
        "expires_in",
        CONDENSE_EXPIRES_MIN_S,
        CONDENSE_EXPIRES_MAX_S,
    )
    checked_bool(force, "force")
    try:
        with session.writing() as writing:
            write = SlotWrite(session, writing, place, None)
            found = _Begin(write, knobs, summariser).begin(life_s, force=force)
    except (StoreFullError, StoreCorruptError) as exc:
        raise CondenseSkippedError(
            label=place.label, code="archive-failed", detail=exc.message
        ) from exc
    if isinstance(found, Refusal):
        # Only now: what the begin found out is committed, an expired pass for one.
        raise found.error(place.label)
    return found


def effective_config(
    session: Session,
    config: CondenseConfig | None,
    keep_sections: int | Unset = UNSET,
    keep_pct: int | Unset = UNSET,
) -> CondenseConfig:
    """Return the knobs of a call: those of the session, but for what it gives.

    Raises:
        InvalidArgumentError: If one is malformed.

    """
    if config is not None and not isinstance(config, CondenseConfig):
        message = f"config must be a CondenseConfig, not {type(config).__name__}"
        raise InvalidArgumentError("config", message)
    knobs = config or CondenseConfig(**session.condense)
    if not isinstance(keep_sections, Unset):
        most = CONDENSE_SECTIONS_MAX
        sections = checked_count(keep_sections, "keep_sections", most)
        knobs = replace(knobs, keep_sections=sections)
    if not isinstance(keep_pct, Unset):
        knobs = replace(knobs, keep_pct=checked_count(keep_pct, "keep_pct", 100, 0))
    return knobs


def new_pass_id() -> str:
    """Return an id that no pass has, and that nobody guesses: 80 bits."""
    name = base64.b32encode(secrets.token_bytes(PASS_ID_BYTES))
    return f"cp_{name.decode().lower()}"


def archive_parts(file: str, plan: Plan) -> list[ArchivePart]:
    """Return what a pass takes out of a file, in its order."""
    gone = {*plan.evicted, *plan.condensed}
    return [
        ArchivePart(
            "condensed" if region.kind == "condensed" else "evicted",
            region.heading,
            region.text_in(file),
        )
        for region in plan.regions
        if region in gone
    ]


def new_pass(
    write: SlotWrite,
    config: CondenseConfig,
    parts: Sequence[ArchivePart],
    summariser: str = "",
) -> PassRow:
    """Return the row of a pass over a slot as it is now, whose archive is written.

    Args:
        write: Of the slot, looked at.
        config: The knobs.
        parts: What the pass takes out.
        summariser: Who is to summarise.

    """
    slot, transaction = write.row, write.writing.transaction
    connection, now_ms = transaction.connection, transaction.now_ms
    settings: dict[str, Any] = {"config": asdict(config), "sizeLimit": slot.size_limit}
    return PassRow(
        number=0,
        pass_id=new_pass_id(),
        doc=slot.doc,
        namespace=slot.namespace,
        label=slot.label,
        lane=write.session.lane,
        summariser=summariser,
        state="open",
        reason="",
        after=newest_committed(connection, slot.doc),
        is_remote=0,
        base_rev=slot.rev,
        base_hash=slot.hash,
        pin=None,
        archive=save_archive(connection, slot.doc, parts, now_ms),
        settings=json.dumps(settings),
        reply=None,
        result=None,
        lsn=None,
        begun_ms=now_ms,
        expires_ms=now_ms,
        ended_ms=None,
    )


class _Begin:
    """The begin of one pass, in a transaction."""

    def __init__(
        self, write: SlotWrite, config: CondenseConfig, summariser: str
    ) -> None:
        self.write = write
        self.config = config
        self.summariser = summariser
        self.transaction = write.writing.transaction
        self.connection: Connection = self.transaction.connection

    def begin(self, life_s: float, *, force: bool) -> CondensePass | Refusal:
        slot = self.write.live_slot()
        now_ms = self.transaction.now_ms
        before = open_pass(self.connection, slot.doc) if slot.doc else None
        if before is not None and before.expires_ms <= now_ms:
            expire_pass(self.transaction, before, slot)
        drop_old_archives(self.connection, now_ms, self.config.archive_max_bytes)
        plan = plan_of(slot.file, slot.size_limit, self.config)
        refusal = refusal_of(
            self.connection,
            slot,
            plan,
            self.config,
            now_ms,
            summariser=self.summariser,
            force=force,
        )
        if refusal is not None:
            self._note_skip(slot, refusal)
            return refusal
        parts = archive_parts(slot.file, plan)
        row = new_pass(self.write, self.config, parts, self.summariser)._replace(
            pin=make_pin(self.connection, slot, now_ms),
            expires_ms=now_ms + int(life_s * 1000),
        )
        add_pass(self.connection, row)
        return _shown(row, slot, plan)

    def _note_skip(self, slot: SlotRow, refusal: Refusal) -> None:
        """Log why no pass begins, but not again while it is for the same reason."""
        newest = events_of(
            self.connection,
            kinds=("condense", "condense-abort", "condense-skip"),
            namespace=slot.namespace,
            label=slot.label,
            limit=1,
        )
        if newest and json.loads(newest[0].details)["reason"] == refusal.code:
            return
        shown = {
            "detail": refusal.detail or UNSET,
            "retry_at": iso_time(refusal.retry_ms) if refusal.retry_ms else UNSET,
        }
        place, lane = self.write.place, self.write.session.lane
        result = outcome(None, slot, refusal.code, **shown)
        note_event(
            self.connection,
            "condense-skip",
            place,
            result,
            self.transaction.now_ms,
            lane=lane,
        )


def _shown(row: PassRow, slot: SlotRow, plan: Plan) -> CondensePass:
    file = slot.file
    target = target_units(file, plan, slot.size_limit)
    sections = _sections(file, plan)
    return CondensePass(
        id=row.pass_id,
        label=row.label,
        scope=scope_of(row.namespace),
        base_rev=row.base_rev,
        base_hash=row.base_hash[:HASH_SHOWN_CHARS],
        prompt=prompt_of(row.pass_id, file, plan, target),
        target=target,
        expires_at=iso_time(row.expires_ms),
        archive=row.archive.hex(),
        pinned=tuple(region.text_in(file) for region in plan.pinned),
        condensed=condensed_body(file, plan),
        evicted=tuple(sections[region] for region in plan.evicted),
        kept=tuple(sections[region] for region in plan.kept),
    )


def _sections(file: str, plan: Plan) -> dict[Region, Section]:
    """Return each region as callers see it."""
    sections: dict[Region, Section] = {}
    start = 0
    for region in plan.regions:
        text = region.text_in(file)
        end = start + bytes_of(text)
        sections[region] = Section(
            heading=region.heading, text=text, start=start, end=end
        )
        start = end
    return sections
