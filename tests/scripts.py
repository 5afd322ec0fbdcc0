"""What a child process does: the functions that `tests.child.Child` runs by name.

Each takes its link to the parent and values that travel as JSON. It reports a call of
the product only after the call has returned.
"""

import contextlib
import functools
import hashlib
import importlib
import os
import pkgutil
import resource
import select
import signal
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import crdtmem
from crdtmem.errors import CrdtmemError, SlotNotFoundError
from tests.compat.edit_scripts import (
    append_by_function,
    edit_by_tool,
    insert_by_the_sdk,
)
from tests.condense.stress_scripts import (
    append_sections,
    condense_in_rounds,
    condense_once,
)
from tests.killpoints import IN_LINE, KILL_POINTS, install, kill_this_process
from tests.machine_scripts import load_for_sync, run_command, serve_relay
from tests.mirror.stress_scripts import (
    append_to_slot,
    mirror_folder,
    rewrite_slots,
    use_tools,
)
from tests.oracle import token
from tests.scenarios import do_step, opened
from tests.search.search_scripts import add_numbered, index_everything
from tests.serve.gateway_scripts import type_in_rounds
from tests.sets.set_scripts import add_and_delete, compact_in_rounds, compact_once

if TYPE_CHECKING:
    from tests.child import Link

__all__ = [
    "add_and_delete",
    "add_numbered",
    "append_after_the_rest",
    "append_by_function",
    "append_from_both_sides_of_a_fork",
    "append_from_threads",
    "append_in_line",
    "append_in_rounds",
    "append_sections",
    "append_to_slot",
    "append_tokens",
    "call",
    "check_view",
    "compact_in_rounds",
    "compact_once",
    "condense",
    "condense_in_rounds",
    "condense_once",
    "crowd",
    "echo",
    "edit_by_tool",
    "fail",
    "fill_up",
    "forked",
    "hold_at",
    "index_everything",
    "insert_by_the_sdk",
    "load_for_sync",
    "mirror_folder",
    "play",
    "read_and_list",
    "read_until",
    "replace_in_rounds",
    "rewrite_slots",
    "run_command",
    "serve_relay",
    "supervised",
    "type_in_rounds",
    "use_tools",
    "watch_until",
]

SLOT = "plan"
FRONT_ENDS = {"__main__", "cli", "compat", "mcp"}
RESTARTS_MAX = 100


def echo(link: "Link", *, value: Any) -> Any:
    """Pause, then give the value back."""
    link.pause()
    return value


def fail(link: "Link", *, label: str) -> None:
    """Raise: a refusal of the product, or anything else where there is no label."""
    link.report("failing")
    if label:
        raise SlotNotFoundError(label=label)
    raise RuntimeError("planted")


def forked(
    link: "Link",
    *,
    script: str,
    arguments: dict[str, Any],
    kill_at: tuple[str, int] | None = None,
) -> int:
    """Run another script in a fork of this process; return the fork's exit status.

    Args:
        link: Used by both; the fork's pid is reported as ``forked``.
        script: The name of a function of this module.
        arguments: What to call it with.
        kill_at: A kill point, and at which passing of it the fork kills itself.

    """
    _load_the_product()
    pid = os.fork()
    if pid == 0:  # pragma: no cover - see there
        _be_the_fork(link, script, arguments, kill_at)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def supervised(
    link: "Link",
    *,
    script: str,
    arguments: dict[str, Any],
    kill_at: tuple[str, int] | None = None,
) -> list[int]:
    """Run another script in a fork, and again whenever that was killed.

    Only the first one kills itself at a kill point. Returns the status of each.
    """
    statuses: list[int] = []
    while not statuses or statuses[-1] == -signal.SIGKILL:
        point = kill_at if not statuses else None
        statuses.append(forked(link, script=script, arguments=arguments, kill_at=point))
    return statuses


def crowd(link: "Link", *, members: dict[str, dict[str, Any]]) -> dict[str, list[int]]:
    """Run scripts at the same time, each in a fork, and again until it ends in order.

    What a member reports has its name beside it. A kill point is for its first process.

    Args:
        link: Used by all.
        members: By name, the values of ``forked``.

    Returns:
        The status of each process of each member.

    """
    _load_the_product()
    statuses: dict[str, list[int]] = {name: [] for name in members}
    running: dict[int, str] = {}
    waiting = list(members)
    while waiting or running:
        for name in waiting:
            values = {"kill_at": None, **members[name]}
            values |= {"kill_at": None} if statuses[name] else {}
            pid = os.fork()
            if pid == 0:  # pragma: no cover - see there
                report = functools.partial(link.report, member=name)
                _be_the_fork(cast("Link", SimpleNamespace(report=report)), **values)
            running[pid] = name
        pid, status = os.wait()
        name = running.pop(pid)
        statuses[name].append(os.waitstatus_to_exitcode(status))
        is_over = statuses[name][-1] in (0, -signal.SIGTERM) or _is_left_alone()
        waiting = [] if is_over or len(statuses[name]) > RESTARTS_MAX else [name]
    return statuses


def _is_left_alone() -> bool:
    """Tell whether nobody holds the other end of this process's input any more."""
    poll = select.poll()
    poll.register(0, 0)
    return bool(poll.poll(0))


@functools.cache
def _load_the_product() -> None:
    """Import what the product loads late, once for all forks."""
    for found in pkgutil.walk_packages(crdtmem.__path__, "crdtmem."):
        if found.name.split(".")[1] not in FRONT_ENDS:
            importlib.import_module(found.name)


def _be_the_fork(
    link: "Link", script: str, arguments: dict[str, Any], kill_at: Any
) -> None:  # pragma: no cover - a fork that ends by os._exit saves no measurement
    status = 1
    try:
        link.report("forked", pid=os.getpid())
        if kill_at is not None:
            install(KILL_POINTS[kill_at[0]], kill_this_process, nth=kill_at[1])
        globals()[script](link, **arguments)
        status = 0
    except BaseException:  # noqa: BLE001 - a fork must not return into its parent's code
        traceback.print_exc()
    finally:
        os._exit(status)


def call(
    link: "Link",
    *,
    path: str,
    verb: str,
    lane: str = "a",
    slot: str | None = None,
    options: dict[str, Any] | None = None,
    **arguments: Any,
) -> dict[str, Any]:
    """Open, be ready, make one call and close; return its result or its error.

    The verb is one of the slot where one is named, else of the store.
    """
    with opened(path, lane, **(options or {})) as memory:
        link.pause()
        on = memory if slot is None else memory.slot(slot)
        return _result_of(lambda: getattr(on, verb)(**arguments))


def play(
    link: "Link", *, folder: str, scenario: str
) -> None:  # pragma: no cover - run by forks that are killed
    """Open the store in a folder and do the step of a scenario."""
    do_step(scenario, Path(folder))
    link.report("played")


def hold_at(link: "Link", *, path: str, point: str, text: str) -> dict[str, Any]:
    """Append, but stop at a kill point until the parent lets go."""
    uninstall = install(KILL_POINTS[point], lambda: link.pause("holding"), nth=1)
    try:
        with opened(path, "holder") as memory:
            return memory.slot(SLOT).append(text).to_dict()
    finally:
        uninstall()


def append_in_line(
    link: "Link", *, path: str, text: str, busy_timeout: float
) -> dict[str, Any]:
    """Append; report ``waiting`` where somebody else has the lock."""
    uninstall = install(IN_LINE, lambda: link.report("waiting"), nth=1)
    try:
        with opened(path, "waiter", busy_timeout=busy_timeout) as memory:
            return memory.slot(SLOT).append(text).to_dict()
    finally:
        uninstall()


def append_tokens(
    link: "Link", *, path: str, lane: str, count: int, reopens: bool = False
) -> dict[str, Any]:
    """Append tokens; return the slot in the end, as this process sees it.

    Args:
        link: Gets ``appended`` after each append has returned.
        path: The store.
        lane: Of the handle and of the tokens.
        count: How many.
        reopens: Open the store anew for each of them.

    """
    link.pause()
    with contextlib.ExitStack() as stack:
        memory = stack.enter_context(opened(path, lane))
        for number in range(count):
            if reopens:
                stack.close()
                memory = stack.enter_context(opened(path, lane))
            memory.slot(SLOT).append(token(lane, number))
            link.report("appended", token=token(lane, number))
        link.pause("finished")
        return memory.slot(SLOT).read().to_dict()


def append_in_rounds(link: "Link", *, path: str, lane: str, rounds: int) -> None:
    """In each round, open a store that is absent as yet, together with others."""
    for number in range(rounds):
        link.pause()
        with opened(path.format(number), lane) as memory:
            memory.slot("persona").append(token(lane, number))
        link.report("appended", token=token(lane, number))


def replace_in_rounds(link: "Link", *, path: str, lane: str, rounds: int) -> None:
    """In each round, read the rev together with others, then replace the text at it."""
    with opened(path, lane) as memory:
        slot = memory.slot(SLOT)
        for number in range(rounds):
            rev = slot.read().rev
            link.pause()
            text = token(lane, number)
            result = _result_of(functools.partial(slot.replace, text, expected_rev=rev))
            link.report("answered", result=result)
            link.pause("answered-all")


def check_view(view: dict[str, Any], last_rev: int) -> int:
    """Check that a view fits itself and is not older than the last; return its rev."""
    content = view["content"]
    size = len(content.encode("utf-16-le")) // 2
    digest = hashlib.sha256(content.encode()).hexdigest()[:16]
    found = (view["size"], view["contentHash"], view["rev"] >= last_rev)
    if found != (size, digest, True):
        raise AssertionError(f"{found} for {content!r} after rev {last_rev}")
    return int(view["rev"])


def read_until(link: "Link", *, path: str, rev: int) -> int:
    """Read the slot until it is at a rev; return how many reads that took."""
    link.pause()
    last_rev, reads = 0, 0
    with opened(path, "reader") as memory:
        slot = memory.slot(SLOT)
        while last_rev < rev:
            last_rev = check_view(slot.read().to_dict(), last_rev)
            reads += 1
    return reads


def watch_until(link: "Link", *, path: str, rev: int) -> list[int]:
    """Follow the changes of the store until a rev; return the revs that were shown."""
    link.pause()
    shown = [0]
    with opened(path, "viewer", read_only=True) as memory:
        cursor = memory.cursor()
        while shown[-1] < rev:
            feed = memory.changes(cursor, wait=0.1)
            cursor = feed.cursor
            views = {view.label: view for view in memory.slots()}
            shown.append(check_view(views[SLOT].to_dict(), shown[-1]))
    return shown


def condense(link: "Link", *, path: str, rounds: int) -> int:
    """Rewrite the slot's title again and again from what was read before."""
    link.pause()
    merges = 0
    with opened(path, "condenser") as memory:
        slot = memory.slot(SLOT)
        for number in range(rounds):
            view = slot.read()
            lines = [f"title {number + 1}", *str(view.content).split("\n")[1:]]
            result = slot.replace("\n".join(lines), base_rev=view.rev)
            merges += bool(result.merged)
    return merges


def append_from_both_sides_of_a_fork(link: "Link", *, path: str, count: int) -> int:
    """Open a store, fork, and append on both sides through the same handle."""
    with opened(path, "parent") as memory:
        slot = memory.slot(SLOT)
        slot.append(token("parent", 0))
        pid = os.fork()
        lane = "parent" if pid else "child"
        try:
            for number in range(1, count):
                slot.append(token(lane, number))
        finally:
            if pid == 0:  # pragma: no cover - the fork saves no measurement
                os._exit(0)
    link.report("appended")
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def append_from_threads(link: "Link", *, path: str, threads: int, count: int) -> None:
    """Append from several threads through one handle."""
    with opened(path) as memory:
        start = threading.Barrier(threads)

        def append(lane: str) -> None:
            start.wait()
            for number in range(count):
                memory.slot(SLOT).append(token(lane, number))

        workers = [
            threading.Thread(target=append, args=(f"thread-{number}",))
            for number in range(threads)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    link.report("appended")


def fill_up(link: "Link", *, path: str) -> dict[str, Any]:
    """Append while the log may not grow, then again when it may."""
    log = Path(f"{path}-wal")
    with opened(path) as memory:
        slot = memory.slot(SLOT)
        # The limit holds for every file; only the log shall be at its end.
        while log.stat().st_size < 2**20:
            memory.slot("notes").replace(os.urandom(500).hex())
        old = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size + 1, old[1]))
        try:
            refused = _result_of(lambda: slot.append("more"))
            read = slot.read().to_dict()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, old)
        written = slot.append("more").to_dict()
    link.report("filled")
    return {"refused": refused, "read": read, "written": written}


def _result_of(verb: Callable[[], Any]) -> dict[str, Any]:
    """Call a verb; return its result or its error in the JSON form."""
    try:
        result: dict[str, Any] = verb().to_dict()
    except CrdtmemError as exc:
        return exc.to_dict()
    return result


def read_and_list(link: "Link", *, path: str) -> None:
    """Open, read, list and close, as a session that changes nothing."""
    with opened(path) as memory:
        memory.slot(SLOT).read()
        memory.slots()
    link.report("closed")


def append_after_the_rest(link: "Link", *, path: str, text: str) -> dict[str, Any]:
    """Open and read, sit idle until told, then append."""
    with opened(path, "idle") as memory:
        slot = memory.slot(SLOT)
        slot.read()
        link.pause()
        return slot.append(text).to_dict()
