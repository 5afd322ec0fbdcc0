"""The places at which a test can kill, or hold, a process, by name.

The product has no failpoints. A name stands for a function of the product and a side
of it; `install` wraps that function from outside, in the process that is to die or to
wait. A place inside a function is a reason to split it into named steps.
"""

import contextlib
import functools
import importlib
import inspect
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

__all__ = [
    "IN_LINE",
    "KILL_POINTS",
    "KillPoint",
    "counted",
    "install",
    "kill_this_process",
    "replace_function",
]


@dataclass(frozen=True, slots=True)
class KillPoint:
    """A side of a function.

    Attributes:
        module: Where the function lives.
        function: Its name there, or ``Class.method``.
        side: Before the function does anything, or after it has returned.

    """

    module: str
    function: str
    side: Literal["before", "after"]


KILL_POINTS = {
    "write.before-edit": KillPoint(
        "crdtmem.store.write", "Transaction._edit", "before"
    ),
    "write.before-commit": KillPoint(
        "crdtmem.store.write", "Transaction.commit", "before"
    ),
    "write.after-commit": KillPoint(
        "crdtmem.store.write", "Transaction.commit", "after"
    ),
    "checkpoint.before": KillPoint(
        "crdtmem.store.store", "Store._checkpoint", "before"
    ),
    "checkpoint.after": KillPoint("crdtmem.store.store", "Store._checkpoint", "after"),
    "squash.mid": KillPoint("crdtmem.store.log", "save_checkpoint", "after"),
    "migrate.before-commit": KillPoint("crdtmem.store.schema", "_step", "after"),
    # The relay.
    "append.before-commit": KillPoint(
        "relay.storage.sqlite.appending", "Group.finish", "after"
    ),
    "append.after-commit": KillPoint(
        "relay.storage.sqlite.writer", "Writer.append", "after"
    ),
    "ack.before-send": KillPoint("relay.core", "RelayCore._appended", "before"),
    "sweep.mid": KillPoint("relay.storage.sqlite.aging", "clear_payloads", "after"),
    "hwm.before-rename": KillPoint("relay.storage.sqlite.folder", "_rename", "before"),
    # A store that syncs: on the way up, on the way down, and when ids are given up.
    "seal.before-commit": KillPoint("crdtmem.store.records", "put_record", "after"),
    "seal.after-commit": KillPoint("crdtmem.store.outbox", "seal", "after"),
    "put.sent": KillPoint("crdtmem.sync.transport", "RelayConnection.send", "after"),
    "apply.mid": KillPoint("crdtmem.store.intake", "_Intake.take_all", "after"),
    "apply.after-commit": KillPoint("crdtmem.store.intake", "apply_items", "after"),
    "rotate.mid": KillPoint("crdtmem.store.rejoin", "_reset_stream", "after"),
    "reestablish.mid": KillPoint("crdtmem.store.rejoin", "_rewind", "after"),
    "rebase.mid": KillPoint("crdtmem.store.rebase", "_take_back", "after"),
    # A condense pass.
    "condense.begin.before-commit": KillPoint(
        "crdtmem.condense.beginning", "_Begin.begin", "after"
    ),
    "condense.begin.after-commit": KillPoint(
        "crdtmem.condense.beginning", "begin_pass", "after"
    ),
    "condense.summarise.before": KillPoint(
        "crdtmem.condense.running", "_ask", "before"
    ),
    "condense.summarise.after": KillPoint("crdtmem.condense.running", "_ask", "after"),
    "condense.commit.before-lock": KillPoint(
        "crdtmem.condense.committing", "_commit", "before"
    ),
    "condense.commit.before-commit": KillPoint(
        "crdtmem.condense.committing", "_Commit.settle", "after"
    ),
    "condense.commit.after-commit": KillPoint(
        "crdtmem.condense.committing", "_commit", "after"
    ),
    # A compaction of a memory set: what it writes, all in one transaction.
    "set.archived": KillPoint("crdtmem.store.set_history", "archive_items", "after"),
    "set.logged": KillPoint("crdtmem.store.set_write", "write_members", "after"),
    "set.saved": KillPoint("crdtmem.store.set_write", "finish_set", "after"),
    # Editors: a row of what was typed, the writes of a fold, and the mark behind it.
    "editor.row": KillPoint("crdtmem.store.editors", "add_editor_row", "after"),
    "editor.folded": KillPoint("crdtmem.store.editors", "write_runs", "after"),
    "editor.marked": KillPoint("crdtmem.store.editors", "mark_folded", "after"),
    # The search index: within a batch, and with the batch done but not committed.
    "index.mid": KillPoint("crdtmem.store.indexing", "_put_in_step", "after"),
    "index.before-commit": KillPoint("crdtmem.store.indexing", "index_batch", "after"),
    # A mirror: imports, the steps of a swap, and files that were swapped out.
    "mirror.import.before-commit": KillPoint(
        "crdtmem.mirror.importing", "Importer._save", "after"
    ),
    "mirror.import.after-commit": KillPoint(
        "crdtmem.mirror.importing", "Importer.take", "after"
    ),
    "mirror.swap-1": KillPoint("crdtmem.mirror.visiting", "Visitor._take", "after"),
    "mirror.swap-2": KillPoint("crdtmem.mirror.writing", "Writer.plan", "after"),
    "mirror.swap-3": KillPoint(
        "crdtmem.mirror.swapping", "SwapSide.write_swap", "after"
    ),
    "mirror.swap-4": KillPoint("crdtmem.mirror.writing", "Writer.intend", "after"),
    "mirror.swap-5": KillPoint("crdtmem.mirror.swapping", "SwapSide.exchange", "after"),
    "mirror.swap-5-renamed": KillPoint(
        "crdtmem.mirror.swapping", "SwapSide._rename_out", "after"
    ),
    "mirror.swap-5-linked": KillPoint(
        "crdtmem.mirror.swapping", "SwapSide.link_in", "after"
    ),
    "mirror.swap-6": KillPoint("crdtmem.mirror.writing", "Writer.exchange", "after"),
    "mirror.swap-7": KillPoint("crdtmem.mirror.writing", "Writer.settle", "after"),
    "mirror.swap-8": KillPoint("crdtmem.mirror.draining", "Drain.run", "after"),
    "mirror.drain.before-merge": KillPoint(
        "crdtmem.mirror.importing", "Importer.take_late", "before"
    ),
    "mirror.drain.after-merge": KillPoint(
        "crdtmem.mirror.importing", "Importer.take_late", "after"
    ),
    "mirror.drain.before-unlink": KillPoint(
        "crdtmem.mirror.draining", "Drain.remove", "before"
    ),
    "mirror.drain.after-unlink": KillPoint(
        "crdtmem.mirror.draining", "Drain.remove", "after"
    ),
}

# Not to be killed at: it tells that a writer has to wait for the lock.
IN_LINE = KillPoint("crdtmem.store.flock", "wait_lock", "before")


def kill_this_process() -> None:  # pragma: no cover - who runs it saves no measurement
    """Die on the spot: no handler, no flush, no unlock runs."""
    os.kill(os.getpid(), signal.SIGKILL)


def install(
    point: KillPoint, action: Callable[[], object], *, nth: int | None = None
) -> Callable[[], None]:
    """Do something whenever a point is passed, or the nth time only.

    Args:
        point: Which point.
        action: What to do there.
        nth: From 1. None for every time.

    Returns:
        What takes the wrapping away again.

    """
    owner: Any = importlib.import_module(point.module)
    *path, name = point.function.split(".")
    for part in path:
        owner = getattr(owner, part)
    original = getattr(owner, name)
    passed = 0

    @contextlib.contextmanager
    def passing() -> Iterator[None]:
        nonlocal passed
        passed += 1
        is_due = nth is None or passed == nth
        if is_due and point.side == "before":
            action()
        yield
        if is_due and point.side == "after":
            action()

    wrapped = _wrapped(original, passing)
    if path:
        return _rebound([owner], name, wrapped)
    return replace_function(point.module, name, wrapped)


def _wrapped(
    original: Callable[..., Any],
    passing: Callable[[], contextlib.AbstractContextManager[None]],
) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(original):

        @functools.wraps(original)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            with passing():
                return await original(*args, **kwargs)

        return awaited

    @functools.wraps(original)
    def called(*args: Any, **kwargs: Any) -> Any:
        with passing():
            return original(*args, **kwargs)

    return called


def replace_function(
    module: str, name: str, function: Callable[..., object]
) -> Callable[[], None]:
    """Put another function in a function's place, and return what puts it back."""
    original = getattr(importlib.import_module(module), name)
    # A function is also bound in each module that imported it by name.
    return _rebound(_modules_with(name, original), name, function)


def _rebound(
    owners: list[Any], name: str, function: Callable[..., object]
) -> Callable[[], None]:
    original = getattr(owners[0], name)
    for each in owners:
        setattr(each, name, function)

    def uninstall() -> None:
        for each in owners:
            setattr(each, name, original)

    return uninstall


@contextlib.contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count how often each kill point is passed in the block, in this process."""
    passed: Counter[str] = Counter()
    with contextlib.ExitStack() as stack:
        for name, point in KILL_POINTS.items():
            stack.callback(install(point, functools.partial(passed.update, [name])))
        yield passed


def _modules_with(name: str, function: object) -> list[Any]:
    return [
        module
        for key, module in list(sys.modules.items())
        if key.partition(".")[0] in {"crdtmem", "relay", "tests"}
        and getattr(module, name, None) is function
    ]
