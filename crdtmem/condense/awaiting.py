"""A whole pass for those who have an event loop: the same steps, awaited.

The loop is never blocked: the store's steps run on the memory's thread, and a
summariser that is no coroutine in one of its own.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeVar

from crdtmem.condense.running import (
    Asking,
    Ending,
    PassRun,
    failure_of,
    is_async,
    timed_out,
)
from crdtmem.condense.values import CondensePass, CondenseResult, Summarise
from crdtmem.limits import COMMAND_GRACE_S

__all__ = ["OnWorker", "run_pass_awaited"]

_T = TypeVar("_T")


class OnWorker(Protocol):
    """Runs a call on the memory's thread, after those that were made before."""

    def __call__(self, step: Callable[[], _T], /) -> Awaitable[_T]:
        """Return what the call returns."""


async def run_pass_awaited(run: PassRun, do: OnWorker) -> CondenseResult:
    """Drive a pass to its end; see ``AsyncSlot.condense``.

    Cancelled before the reply is there, the pass is aborted. Cancelled later, it is
    committed or not, as with any other write.
    """
    beginning = asyncio.ensure_future(do(run.begin))
    try:
        begun = await asyncio.shield(beginning)
        if isinstance(begun, CondenseResult):
            return begun
        ending = await _ask(run.summarise, begun, run.timeout_s(begun))
    except asyncio.CancelledError:
        await asyncio.shield(_cancel(beginning, run, do))
        raise
    return await do(partial(run.settle, begun, ending))


async def _cancel(
    beginning: "asyncio.Future[CondensePass | CondenseResult]",
    run: PassRun,
    do: OnWorker,
) -> None:
    """Abort the pass, also one that was about to begin: it would keep others out."""
    (begun,) = await asyncio.gather(beginning, return_exceptions=True)
    if isinstance(begun, CondensePass):
        await do(partial(run.cancel, begun))


async def _ask(summarise: Summarise, begun: CondensePass, timeout_s: float) -> Ending:
    task = asyncio.ensure_future(_asked(summarise, begun))
    try:
        await asyncio.wait({task}, timeout=timeout_s)
        if task.done():
            return task.result()
    finally:
        # One that has ended is not changed by it; one that does not want to end is
        # waited for as long as a command that does not.
        task.cancel()
        await asyncio.wait({task}, timeout=2 * COMMAND_GRACE_S)
    return timed_out(timeout_s)


async def _asked(summarise: Summarise, begun: CondensePass) -> Ending:
    try:
        if is_async(summarise):
            ending = Ending(summarise(begun))
        else:
            ending = await _asked_in_thread(summarise, begun)
        if inspect.isawaitable(ending.reply):
            ending = Ending(await ending.reply)
    except Exception as exc:  # noqa: BLE001 - a summariser is not ours: it is told
        return failure_of(exc)
    return ending


async def _asked_in_thread(summarise: Summarise, begun: CondensePass) -> Ending:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def tell() -> None:
        # The loop may be closed by the time that nobody waits for the reply any more.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(ended.set)

    asking = Asking(summarise, begun, tell)
    try:
        await ended.wait()
    except asyncio.CancelledError:
        await asyncio.to_thread(asking.give_up)
        raise
    return asking.ending
