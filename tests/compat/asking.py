"""How the tests of the drop-ins ask, and read what they are told."""

from typing import Any

__all__ = ["commands", "lines_of", "observed", "overwritten_by", "shown"]


def commands(do):
    """Return a function that makes a command of its name and fields, and does it."""
    return lambda name, path=None, **fields: do(
        {"command": name} | ({} if path is None else {"path": path}) | fields
    )


def shown(text):
    """Return the numbers and lines of what a view shows."""
    pairs = [line.split("\t", 1) for line in text.split("\n")[1:]]
    return [(int(number), line) for number, line in pairs]


def lines_of(memory, label="notes"):
    return str(memory.slot(label).read().content).split("\n")


def overwritten_by(result: dict[str, Any]) -> list[str]:
    return [one["lane"] for one in result["overwrote"]]


def observed(*observations):
    """A source that has these observations, the oldest first, in any session."""
    times = [f"2026-01-01T00:00:{n:02d}Z" for n in range(len(observations))]
    return lambda _: [
        {"timestamp": at, **one} for at, one in zip(times, observations, strict=True)
    ]
