"""Compaction: items give way to summaries of them.

The model thinks outside of every lock. So what it was shown may have changed by the
time it answers, and a summary whose sources are not exactly what it was shown is not
taken: a deleted text never returns in a summary, nor an updated one as it was. That
does not rest on the claim, which only saves the calls of a second model.
"""

import inspect
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from crdtmem.arguments import checked_count
from crdtmem.errors import (
    CrdtmemError,
    InvalidArgumentError,
    ItemConflictError,
    SetLimitError,
    StoreError,
    SummaryError,
)
from crdtmem.filters import checked_metadata, matches
from crdtmem.limits import (
    COMPACTION_ARCHIVE_DAYS,
    COMPACTION_ARCHIVE_MAX_DAYS,
    COMPACTION_CLAIM_MS,
    SET_ITEMS_MAX,
    SUMMARIES_MAX,
)
from crdtmem.model import UNSET, Unset
from crdtmem.sets import recording
from crdtmem.sets.arguments import (
    NewItem,
    checked_filters,
    checked_text,
    require_item_size,
)
from crdtmem.sets.place import BoundSet
from crdtmem.sets.reading import filter_item, headroom_fields, item_view
from crdtmem.sets.values import (
    CompactionPolicy,
    CompactionRequest,
    CompactResult,
    SkippedSummary,
    Summary,
)
from crdtmem.sets.writing import SetWrite, new_ids, replayed, set_write
from crdtmem.store.connection import Connection
from crdtmem.store.set_history import prune_archives
from crdtmem.store.set_write import NewVersion, SetChange, claim_set, release_claim
from crdtmem.store.sets import (
    ItemRow,
    SetRow,
    VersionRow,
    find_set,
    items_after,
    versions_of,
)

__all__ = ["Compaction", "summariser_failed"]

_PASS_BYTES = 16
_DAY_MS = 86_400_000


class _Checked(NamedTuple):
    """A summary that may be taken, with the ids of what it stands for."""

    item: NewItem
    sources: tuple[str, ...]


class Compaction:
    """One run: ``begin``, ask the summariser, ``commit``, and ``end`` in any case.

    Args:
        place: Which set.
        policy: The caller's.
        request_id: Names the call, so that a repetition returns the first result.

    Raises:
        InvalidArgumentError: If one of them is malformed.

    """

    def __init__(
        self, place: BoundSet, policy: CompactionPolicy, request_id: str | Unset
    ) -> None:
        self.policy = _checked_policy(policy)
        self._place = place
        self._filters = checked_filters(policy.filters)
        self._request = place.request(
            "compact",
            request_id,
            capacity=policy.capacity,
            limit=policy.limit,
            prompt=policy.prompt,
            keep_newest=policy.keep_newest,
            filters=self._filters,
        )
        self._process = os.urandom(_PASS_BYTES).hex()
        self._doc = 0
        self._has_claim = False
        self._base: dict[str, list[VersionRow]] = {}
        self._items: dict[str, ItemRow] = {}

    def run(self) -> CompactResult:
        """Do all of it in this thread; see ``MemorySet.compact``."""
        if inspect.iscoroutinefunction(self.policy.summarise):
            raise InvalidArgumentError(
                "summarise",
                "summarise is a coroutine function, which nobody awaits here",
                hint="call the compact of crdtmem.aio, or pass a plain function",
            )
        begun = self.begin()
        if isinstance(begun, CompactResult):
            return begun
        try:
            try:
                reply = self.policy.summarise(begun)
            except Exception as exc:
                raise summariser_failed(exc) from exc
            return self.commit(reply)
        finally:
            self.end()

    def begin(self) -> CompactionRequest | CompactResult:
        """Claim the set and return what is to be summarised, or why nothing is.

        Raises:
            ItemConflictError: ``compaction-busy``.

        """
        place = self._place
        with place.session.store.snapshot() as connection:
            earlier = replayed(connection, self._request)
            if earlier is not None:
                return CompactResult(**earlier)
            row = find_set(connection, place.stored)
            if row is None or not self._read_base(connection, row):
                return _nothing(row)
        with place.session.store.writing() as transaction:
            now_ms = transaction.now_ms
            holder = claim_set(
                transaction.connection,
                row.doc,
                self._process,
                now_ms=now_ms,
                until_ms=now_ms + COMPACTION_CLAIM_MS,
            )
            if holder != self._process:
                raise ItemConflictError(
                    f"memory set {place.name!r} is being compacted by another caller",
                    code="compaction-busy",
                    hint="wait for it; a claim ends after ten minutes at the latest",
                    details={"set": place.name},
                )
        self._doc, self._has_claim = row.doc, True
        return CompactionRequest(
            tuple(item_view(one, place.name) for one in self._items.values()),
            self.policy.limit,
            self.policy.prompt,
            place.name,
        )

    def commit(self, reply: object) -> CompactResult:
        """Put the summaries in the place of their sources, in one commit.

        Raises:
            SummaryError: ``summary-invalid``.
            SetLimitError: If the set would be too large.

        """
        summaries = self._checked(reply)
        with set_write(self._place, self._request) as write:
            if write.replayed is not None:
                return CompactResult(**write.replayed)
            now = write.versions(self._base)
            taken = [
                one
                for one in summaries
                if all(now.get(i) == self._base[i] for i in one.sources)
            ]
            skipped = tuple(
                SkippedSummary(summary=place, reason="source-changed")
                for place, one in enumerate(summaries)
                if one not in taken
            )
            result, texts = self._write(write, taken, skipped)
            release_claim(write.transaction.connection, self._doc, self._process)
        self._has_claim = False
        recording.compacted(
            self._place, texts, [i for one in taken for i in one.sources]
        )
        return result

    def end(self) -> None:
        """Give the claim back, if the commit has not; it ends by itself in any case."""
        if not self._has_claim:
            return
        with suppress(StoreError), self._place.session.store.writing() as transaction:
            release_claim(transaction.connection, self._doc, self._process)

    def _read_base(self, connection: Connection, row: SetRow) -> bool:
        """Read what is offered; return whether it is enough."""
        policy = self.policy
        if row.item_count < policy.capacity:
            return False
        found = items_after(connection, row.doc, newest=False, limit=row.item_count)
        if self._filters is not None:
            filters = self._filters
            found = [one for one in found if matches(filters, filter_item(one))]
        offered = found[: max(0, len(found) - policy.keep_newest)]
        self._items = {one.id: one for one in offered}
        self._base = versions_of(connection, row.doc, self._items)
        return bool(offered)

    def _write(
        self,
        write: SetWrite,
        taken: Sequence[_Checked],
        skipped: tuple[SkippedSummary, ...],
    ) -> tuple[CompactResult, dict[str, str]]:
        row, pass_id = write.row, os.urandom(_PASS_BYTES)
        ids = new_ids(len(taken), write.transaction.now_ms)
        gone = [i for one in taken for i in one.sources]
        if taken:
            puts = [
                NewVersion(
                    id=i,
                    text=one.item.text,
                    meta=one.item.meta,
                    created_ms=max(self._items[s].created_ms for s in one.sources),
                    sources=len(one.sources),
                    is_made=True,
                )
                for i, one in zip(ids, taken, strict=True)
            ]
            write.require_room(puts, gone)
            row = write.write(
                SetChange(
                    operation="compact",
                    lane=write.lane,
                    puts=puts,
                    removes=gone,
                    archive=pass_id,
                    details={"added": len(ids), "removed": len(gone)},
                )
            )
            self._prune_archives(write, row.doc)
        result = CompactResult(
            **headroom_fields(row),
            ran=True,
            added=tuple(ids),
            removed=len(gone),
            skipped=skipped,
            pass_id=pass_id.hex() if taken else UNSET,
        )
        texts = {i: one.item.text for i, one in zip(ids, taken, strict=True)}
        return write.finish(result), texts

    def _prune_archives(self, write: SetWrite, doc: int) -> None:
        days = max(self.policy.archive_days, COMPACTION_ARCHIVE_DAYS)
        prune_archives(
            write.transaction.connection,
            doc,
            before_ms=write.transaction.now_ms - days * _DAY_MS,
        )

    def _checked(self, reply: object) -> list[_Checked]:
        """Return the summaries of a reply, if all of them may be taken.

        Raises:
            SummaryError: ``summary-invalid``.

        """
        if not isinstance(reply, Sequence) or isinstance(reply, (str, bytes)):
            kind = type(reply).__name__
            raise _invalid(f"it must be a list of summaries, not {kind}")
        if not 1 <= len(reply) <= self.policy.limit:
            raise _invalid(
                f"there must be 1 to {self.policy.limit} summaries, not {len(reply)}"
            )
        found = [self._checked_one(place, one) for place, one in enumerate(reply)]
        seen: set[str] = set()
        for one in found:
            doubled = seen.intersection(one.sources)
            if doubled:
                raise _invalid(f"item {min(doubled)!r} is in two summaries")
            seen.update(one.sources)
        return found

    def _checked_one(self, place: int, summary: object) -> _Checked:
        if not isinstance(summary, Summary):
            kind = type(summary).__name__
            raise _invalid(f"summary {place} must be a Summary, not {kind}")
        sources = self._sources(place, summary.source_ids)
        try:
            text = checked_text(summary.text)
            given_meta = summary.metadata
            checked_metadata(given_meta)
            meta = checked_metadata(_with_count(given_meta, len(sources)))
            item = NewItem(text, meta)
            require_item_size(item)
        except (InvalidArgumentError, SetLimitError) as exc:
            raise _invalid(f"summary {place}: {exc}") from exc
        if not text:
            raise _invalid(f"summary {place} has no text")
        return _Checked(item, sources)

    def _sources(self, place: int, ids: object) -> tuple[str, ...]:
        """Return the items that a summary stands for: all that were offered for None.

        Raises:
            SummaryError: ``summary-invalid``.

        """
        if ids is None:
            return tuple(self._base)
        given = tuple(ids) if isinstance(ids, Iterable) else ()
        is_known = all(isinstance(i, str) and i in self._items for i in given)
        if isinstance(ids, str) or not given or not is_known:
            raise _invalid(f"summary {place} must name items that were offered")
        if len(set(given)) != len(given):
            raise _invalid(f"summary {place} names an item twice")
        return given


def summariser_failed(cause: BaseException) -> SummaryError:
    """Return the error of a summariser that raised; to be raised from its own."""
    return SummaryError(
        f"the summariser failed: {type(cause).__name__}: {cause!s:.200}",
        code="summariser-failed",
        details={"cause": type(cause).__name__},
    )


def _nothing(row: SetRow | None) -> CompactResult:
    return CompactResult(
        **headroom_fields(row), ran=False, added=(), removed=0, skipped=()
    )


def _with_count(metadata: Mapping[str, object], count: int) -> dict[str, object]:
    return {**metadata, "compacted": True, "count": count}


def _invalid(why: str) -> CrdtmemError:
    return SummaryError(f"the summariser's reply cannot be used: {why}")


def _checked_policy(policy: object) -> CompactionPolicy:
    if not isinstance(policy, CompactionPolicy):
        kind = type(policy).__name__
        message = f"policy must be a CompactionPolicy, not a value of type {kind}"
        raise InvalidArgumentError("policy", message)
    if not callable(policy.summarise):
        kind = type(policy.summarise).__name__
        message = f"summarise must be a function, not a value of type {kind}"
        raise InvalidArgumentError("summarise", message)
    checked_count(policy.capacity, "capacity", SET_ITEMS_MAX)
    checked_count(policy.limit, "limit", SUMMARIES_MAX)
    checked_count(policy.keep_newest, "keep_newest", SET_ITEMS_MAX, least=0)
    checked_count(policy.archive_days, "archive_days", COMPACTION_ARCHIVE_MAX_DAYS)
    if policy.prompt is not None:
        checked_text(policy.prompt, "prompt")
    return policy
