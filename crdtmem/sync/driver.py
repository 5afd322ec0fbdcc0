"""Syncs all links of a store, by as many lines as there are relays.

A driver works for whoever holds the lease: ``run`` until it is told to stop, ``once``
until nothing is missing on either side.
"""

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random, SystemRandom

from crdtmem.errors import LinkNotFoundError, RelayRefusedError, RelayUnreachableError
from crdtmem.limits import SYNC_LINKS_POLL_S
from crdtmem.sealing import Keyring
from crdtmem.store.links import Link, find_link, links_of
from crdtmem.store.outbox import unsent_counts
from crdtmem.store.store import Store
from crdtmem.sync.board import Board
from crdtmem.sync.journal import Journal
from crdtmem.sync.line import Line
from crdtmem.sync.token import token_stamp

__all__ = ["Driver"]

# How connections end that this side has ended.
ENDS_OF_OUR_OWN = ("done", "stopped", "ids-changed")


class Driver:
    """Syncs a store's links while its process holds the lease.

    Used in one event loop, and once. The store is the driver's alone meanwhile.

    Args:
        store: The store.
        token: What the environment holds, for links without a token file.
        keyring: Likewise, for encrypted links without a keyring file.
        rng: For delays; None: the system's.
        board: Where presences are, if anybody wants them.

    """

    def __init__(
        self,
        store: Store,
        *,
        token: str | None = None,
        keyring: Keyring | None = None,
        rng: Random | None = None,
        board: Board | None = None,
    ) -> None:
        self._board = board
        self._store = store
        self._token = token
        self._keyring = keyring
        self._rng = rng or SystemRandom()
        self._incarnation = secrets.token_bytes(16)
        self._journal = Journal(store)
        self._lines: list[Line] = []
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Have ``run`` send what there is and return; from its own loop."""
        self._stop.set()
        for line in self._lines:
            line.stop()

    def wake(self) -> None:
        """Look for new local writes now; from its own loop."""
        for line in self._lines:
            line.wake()

    async def run(self) -> None:
        """Sync until told to stop, or until no link is left.

        Links and tokens that change meanwhile are taken up.
        """
        while not self._stop.is_set():
            links = links_of(self._store)
            if not links:
                return
            self._make_lines(links, until_settled=False)
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(line.run()) for line in self._lines]
                watching = tasks.create_task(self._watch(_stamp_of(links)))
                await asyncio.wait(running)
                watching.cancel()

    async def once(self, *, timeout_s: float) -> None:
        """Sync until nothing is missing on either side.

        Raises:
            LinkNotFoundError: If there is no link.
            RelayRefusedError: If a relay does not take or give what is missing.
            RelayUnreachableError: If it was not done in time.

        """
        links = links_of(self._store)
        if not links:
            raise LinkNotFoundError(local="this store")
        self._make_lines(links, until_settled=True)
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(line.run()) for line in self._lines]
            _, late = await asyncio.wait(running, timeout=timeout_s)
            self.stop()
        for task, line in zip(running, self._lines, strict=True):
            self._judge(line, is_late=task in late)

    def _make_lines(self, links: list[Link], *, until_settled: bool) -> None:
        self._lines = [
            Line(
                self._store,
                group,
                incarnation=self._incarnation,
                token=self._token,
                keyring=self._keyring,
                journal=self._journal,
                rng=self._rng,
                until_settled=until_settled,
                board=self._board,
            )
            for group in _grouped(links)
        ]

    async def _watch(self, stamp: object) -> None:
        """End the lines when a link or a token has been changed."""
        while not self._stop.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(SYNC_LINKS_POLL_S):
                    await self._stop.wait()
            if _stamp_of(links_of(self._store)) != stamp:
                break
        for line in self._lines:
            line.stop()

    def _judge(self, line: Line, *, is_late: bool) -> None:
        """Raise what kept a line from being done, if anything did."""
        last = line.last
        if last is not None and last.is_permanent:
            raise RelayRefusedError(url=line.url, cause=last.code, reason=last.message)
        faults = [fact.fault for fact in line.engine.facts() if fact.fault is not None]
        for fault in faults:
            if fault.is_permanent:
                raise RelayRefusedError(
                    url=line.url, cause=fault.code, reason=fault.message
                )
        if is_late:
            cause, reason = "timeout", "it was not done in time"
            if faults:
                cause = faults[0].code
                reason = faults[0].message or f"it answers {cause}"
            elif last is not None and last.code not in ENDS_OF_OUR_OWN:
                cause, reason = last.code, last.message
            raise RelayUnreachableError(url=line.url, cause=cause, reason=reason)
        for link in line.links:
            self._check_sent(link)

    def _check_sent(self, link: Link) -> None:
        left = unsent_counts(self._store, find_link(self._store, link.namespace)).writes
        if left:
            raise RelayRefusedError(
                url=link.url,
                cause="not-sent",
                reason=f"{left} of the writes of '{link.namespace}' were not taken",
            )


def _grouped(links: list[Link]) -> Iterator[list[Link]]:
    """Put together what can share a connection: one relay, one token."""
    groups: dict[tuple[str, str, bool], list[Link]] = {}
    for link in links:
        key = link.url, link.token_file, bool(link.options.get("allowInsecure"))
        groups.setdefault(key, []).append(link)
    yield from groups.values()


def _stamp_of(links: list[Link]) -> object:
    """Return what is different once a link or a token has been changed."""
    return [
        (
            link.link,
            link.remote,
            link.url,
            link.token_file,
            dict(link.options),
            link.token_file and token_stamp(Path(link.token_file)),
            link.options.get("keyring") and token_stamp(Path(link.options["keyring"])),
        )
        for link in links
    ]
