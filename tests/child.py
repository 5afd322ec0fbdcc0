"""A process under control: it runs scripts, reports, waits, and can be killed.

`Children` spawns processes and ends them all when it is left; a `Child` runs functions
of `tests.scripts`, one after the other, and talks JSON lines over pipes, never over the
store under test. A script reports each call of the product *after* it has returned, so
that a report is a promise that the product has made.

    with Children() as children:
        child = children.spawn()
        child.start(scripts.append_tokens, path=str(path), lane="a", count=3)
        child.wait_for("ready")
        child.go()
        child.wait_for("done")

Starting Python and importing the product takes far longer than a script does, so
`scripts.forked` runs another script in a fork of the child, which is then the one to be
killed. A child that is idle ends by itself, with status 0, when its input is closed.
"""

import importlib
import json
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

from crdtmem.errors import CrdtmemError

__all__ = ["Child", "ChildError", "Children", "Link", "barrier", "main", "serve"]

ROOT = Path(__file__).resolve().parent.parent

PATIENCE_S = {"default": 50.0, "campaign": 1_500.0}[
    os.environ.get("TEST_PROFILE", "default")
]
"""Longest wait for anything at all; only a bug waits so long."""

STDOUT = 1
SHOWN_EVENTS = 12

Event = dict[str, Any]


class ChildError(Exception):
    """A child ended, raised or kept silent where its parent waited for an event."""


class Link:
    """The child's end: what a script may do with its parent."""

    def report(self, event: str, **data: Any) -> None:
        """Tell the parent, at once."""
        line = json.dumps({"event": event, **data}) + "\n"
        # One write: a fork reports on the same pipe. By number: a script may have
        # put something else in the place of sys.stdout.
        os.write(STDOUT, line.encode())

    def pause(self, event: str = "ready") -> None:
        """Report an event and wait for the parent's `go`."""
        self.report(event)
        if not sys.stdin.buffer.readline():
            raise SystemExit(1)


class Child:
    """The parent's end of one process. Made by `Children.spawn`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.child"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self._pending = b""
        self.is_idle = True
        self.patience_s = PATIENCE_S
        self.pid = self._process.pid
        self.events: list[Event] = []

    def start(self, script: Callable[..., Any], /, **arguments: Any) -> None:
        """Begin a script; its arguments travel as JSON."""
        self.is_idle = False
        self._send({"script": script.__name__, "arguments": arguments})

    def run(self, script: Callable[..., Any], /, **arguments: Any) -> Any:
        """Do a script from start to end; return its result."""
        self.start(script, **arguments)
        return self.result()

    def result(self) -> Any:
        """Wait until the script has ended; return its result."""
        return self.wait_for("done")["result"]

    def go(self) -> None:
        """Let a script that pauses go on."""
        self._send({})

    def wait_for(self, *names: str) -> Event:
        """Return the next event of these names; earlier ones are kept in `events`.

        Raises:
            ChildError: If the script raised, the child ended, or nothing came.

        """
        while True:
            found: Event = json.loads(self._read_line())
            self.events.append(found)
            if found["event"] in {"done", "raised"}:
                self.is_idle = True
            if found["event"] in names:
                return found
            if found["event"] in {"done", "raised"}:
                raise ChildError(f"{found} while waiting for {' or '.join(names)}")

    @property
    def is_alive(self) -> bool:
        """Whether the process has not ended yet."""
        return self._process.poll() is None

    def stop(self) -> None:
        """Freeze the process where it is."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let a frozen process go on."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> int:
        """End the process without any warning; return its exit status."""
        self._process.kill()
        return self.reap()

    def close_input(self) -> None:
        """Tell the process that it is no longer needed: idle, it ends with status 0."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def reap(self) -> int:
        """Wait for the end of the process; return its exit status."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        return self._process.wait(PATIENCE_S)

    def _last_events(self) -> list[Event]:
        return self.events[-SHOWN_EVENTS:]

    def _send(self, message: Event) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")

    def _read_line(self) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._pending:
            if not select.select([descriptor], [], [], self.patience_s)[0]:
                raise ChildError(f"silent for too long; so far: {self._last_events()}")
            chunk = os.read(descriptor, 65_536)
            if not chunk:
                raise ChildError(f"ended; so far: {self._last_events()}")
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        return line


class Children:
    """Spawns processes; none outlives the block.

    Leaving the block checks that those which were not killed end with status 0.
    """

    def __init__(self) -> None:
        self._children: list[Child] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for child in self._children:
            if child.is_idle:
                child.close_input()
            else:
                child.kill()
        statuses = [child.reap() for child in self._children]
        assert set(statuses) <= {0, -signal.SIGKILL}, statuses

    def idle(self) -> list[Child]:
        """Return those that live and have nothing to do."""
        return [child for child in self._children if child.is_idle and child.is_alive]

    def spawn(self) -> Child:
        """Start one more process."""
        child = Child()
        self._children.append(child)
        return child


def barrier(children: Iterable[Child], event: str = "ready") -> None:
    """Wait until each child pauses with this event, then let them all go on."""
    waiting = list(children)
    for child in waiting:
        child.wait_for(event)
    for child in waiting:
        child.go()


def serve(link: Link, script_of: Callable[[str], Callable[..., Any]]) -> None:
    """Run the scripts that the parent asks for, until it closes the pipe."""
    while line := sys.stdin.buffer.readline():
        request = json.loads(line)
        try:
            result = script_of(request["script"])(link, **request["arguments"])
            link.report("done", result=result)
        except CrdtmemError as exc:
            link.report("raised", **exc.to_dict())
        except Exception:  # noqa: BLE001 - whatever it is, the parent must learn it
            link.report("raised", traceback=traceback.format_exc())


def main() -> None:
    """Be a child."""
    scripts = importlib.import_module("tests.scripts")
    serve(Link(), lambda name: getattr(scripts, name))


if __name__ == "__main__":
    main()
