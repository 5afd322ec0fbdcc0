"""``crdtmem watch``: a line for each change, as it happens."""

from crdtmem.cli.phrases import change_line
from crdtmem.cli.running import Call

__all__ = ["watch"]

_WAIT_S = 60.0


def watch(call: Call, *, labels: tuple[str, ...], once: bool) -> None:
    """Print changes until the caller stops it.

    It only reads and never takes the write lock, so it delays nobody.
    """
    cursor = call.memory.cursor()
    call.out.note("watching; Ctrl-C stops it")
    wanted = frozenset(labels)
    while True:
        feed = call.memory.changes(cursor, scope=call.scope, wait=_WAIT_S)
        cursor = feed.cursor
        for change in feed.changes:
            if wanted and change.label not in wanted:
                continue
            if call.out.as_json:
                call.out.json(change)
            else:
                call.out.line(change_line(change))
            call.out.flush()
            if once:
                return
