"""A whole relay in a thread of its own, for drivers that have their own event loop."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.relay.live import PATIENCE_S, add_token, live_relay

__all__ = ["RunningRelay", "in_thread"]


def in_thread(call, *arguments, **options):
    """Call what runs an event loop of its own; return or raise what it does."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(call, *arguments, **options).result()


class RunningRelay:
    """A relay that listens on this machine, over a storage in memory.

    Attributes:
        url: Where it listens.
        token: One that may do everything but compact.
        storage: Its log; stays when the relay is stopped and started again.

    """

    def __init__(self):
        self.storage: Any = None
        self.port = 0
        self.token = None
        self._letters = iter("abcdefghijklmnop")
        self.start()

    @property
    def url(self):
        return f"ws://127.0.0.1:{self.port}"

    def start(self):
        """Begin, or begin again, at the same place."""
        self._is_up = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._run(),))
        self._thread.start()
        assert self._is_up.wait(PATIENCE_S)

    def stop(self):
        """End in order: clients are told when to come back."""
        self.call(self._live.stop.set)
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def call(self, function, *arguments):
        """Have something done in the relay's loop."""
        self._loop.call_soon_threadsafe(function, *arguments)

    def add_token(self, *scopes, **more):
        """Make another token."""
        work = add_token(self.storage, scopes, **more)
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    def revoke(self, token):
        """Take a token back."""
        work = self.storage.token_revoke(token.split("_")[1], 1)
        asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    async def _run(self):
        # Each start makes a token; the first one is the one that is used.
        token_id = "tokenofre" + next(self._letters)
        async with live_relay(self.storage, port=self.port, token_id=token_id) as live:
            self._live = live
            self._loop = asyncio.get_running_loop()
            self.port, self.storage = live.port, live.storage
            self.token = self.token or live.token
            self._is_up.set()
            await live.task
