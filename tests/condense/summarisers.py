"""What the tests of condense's drivers share: slots that are due, and summarisers.

A command under test is a short Python program. Those that are to be ended hold a
`Leash`: a pipe that they open and never close, so that its end is the end of all of
them, whatever the system does with their process ids.
"""

import os
import select
import sys
import threading

from tests.child import PATIENCE_S
from tests.condense.plans import framed

__all__ = ["FRAMED", "Leash", "fill", "join_summarisers", "python", "reply"]

_SECTION = "## Section {number}\n\n- item {number}, with what was decided and why\n"

# What a program that behaves well says; it needs nothing but its environment.
FRAMED = """
import os, sys
sys.stdin.read()
me = os.environ["CRDTMEM_PASS_ID"]
print(f"<<<crdtmem:summary {me}>>>\\nAll of it, in short, and no more than that.")
print(f"<<<crdtmem:facts {me}>>>\\n(none)\\n<<<crdtmem:end {me}>>>")
"""

# Begins a program that holds a leash, and all that it starts in the same way.
_HELD = """
import os, signal, subprocess, sys, threading
leash = os.open(os.environ["LEASH"], os.O_WRONLY)
def tell(line):
    os.write(leash, line.encode() + b"\\n")
def wait_for_ever():
    threading.Event().wait()
"""


def python(program, *words):
    """Return the line of a command that runs a Python program."""
    return [sys.executable, "-c", program, *words]


def fill(memory, label="plan", *, size_limit=2_000):
    """Make a slot that is due, and return its handle."""
    text = ""
    number = 0
    while len(text) < size_limit * 8 // 10:
        number += 1
        text += _SECTION.format(number=number)
    memory.create(label, text.removesuffix("\n"), size_limit=size_limit)
    return memory.slot(label)


def join_summarisers():
    """Wait until no summariser is at work any more."""
    for thread in threading.enumerate():
        if thread.name.startswith("crdtmem-condense-"):
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def reply(begun):
    """Summarise as it should be done."""
    return framed(begun.id, "All of it, in short.", "(none)")


class Leash:
    """A pipe that a command holds as long as any process of it lives."""

    def __init__(self, path):
        os.mkfifo(path)
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self._heard = b""
        self.environment = {**os.environ, "LEASH": str(path)}

    def command(self, program):
        """Return the line of a command that holds this leash from its start."""
        return python(_HELD + program)

    def wait_for(self, line):
        """Wait until a program has told this line."""
        while f"{line}\n".encode() not in self._heard:
            assert self._read(), f"ended before {line!r}; told {self._heard!r}"

    def heard(self):
        """Return all that has been told so far."""
        return self._heard.decode()

    def is_let_go(self):
        """Wait until nobody holds it any more."""
        return all(iter(self._read, b""))

    def close(self):
        """Let go of this end."""
        os.close(self._descriptor)

    def _read(self):
        ready, _, _ = select.select([self._descriptor], [], [], PATIENCE_S)
        assert ready, f"silent for too long; told {self._heard!r}"
        chunk = os.read(self._descriptor, 65_536)
        self._heard += chunk
        return chunk
