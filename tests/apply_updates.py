"""A child process that applies accepted updates, so that only it can be killed.

Reads one case a line, JSON, from its input and answers each with one word:

* ``same``: two replicas that got the update in different order hold the same text
* ``unsound``: a check after applying finds the document wrong, so it is held
* ``raised``: pycrdt refused the update
* ``lost``: what another writer wrote at the same time is missing
* ``diverged``: the replicas hold different texts, and no check tells

pycrdt's PanicException is a BaseException and ends the child, as a crash does.
"""

import json
import sys
from dataclasses import asdict, dataclass
from typing import Any

from pycrdt import Doc, Map, Text

from crdtmem.updates import read_state_vector

__all__ = ["Case", "judge", "main"]

SlotDoc = Doc[Any]


@dataclass(frozen=True, slots=True)
class Case:
    """What two replicas apply.

    Attributes:
        before: The updates that both hold, in hexadecimal, as the others.
        update: What the scanner accepted.
        other: What somebody else wrote at the same time, or nothing.
        token: A text that ``other`` wrote.
        state: The state vector that all of them give.

    """

    before: tuple[str, ...]
    update: str
    other: str
    token: str
    state: tuple[tuple[int, int], ...]

    def to_line(self) -> str:
        """Return the case as main reads it."""
        return json.dumps(asdict(self)) + "\n"


def replicate(updates: list[str]) -> SlotDoc:
    doc: SlotDoc = Doc()
    doc.get("content", type=Text)
    doc.get("meta", type=Map)
    for update in updates:
        doc.apply_update(bytes.fromhex(update))
    return doc


def text_of(doc: SlotDoc) -> str:
    return str(doc.get("content", type=Text))


def is_sound(doc: SlotDoc, state: dict[int, int]) -> bool:
    """Check what the document layer checks before it commits."""
    shown = text_of(doc)
    again = replicate([doc.get_update().hex()])
    return (
        len(doc.get("content", type=Text)) == len(shown.encode())
        and read_state_vector(doc.get_state()) == state
        and read_state_vector(again.get_state()) == state
        and text_of(again) == shown
    )


def judge(case: Case) -> str:
    """Apply a case to two replicas, and say how it ended."""
    others = [case.other] if case.other else []
    state = dict(case.state)
    try:
        first = replicate([*case.before, case.update, *others])
        second = replicate([*case.before, *others, case.update])
        if not (is_sound(first, state) and is_sound(second, state)):
            return "unsound"
        first.apply_update(second.get_update(first.get_state()))
        second.apply_update(first.get_update(second.get_state()))
    except (RuntimeError, ValueError):
        return "raised"
    if text_of(first) != text_of(second):
        return "diverged"
    return "same" if case.token in text_of(first) else "lost"


def main() -> None:
    """Judge the cases of the input until it ends."""
    for line in sys.stdin:
        fields = json.loads(line)
        fields["state"] = tuple(tuple(entry) for entry in fields["state"])
        sys.stdout.write(judge(Case(**fields)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
