"""Small histories with one step in them that is to be interrupted.

Each has a setup, which happens undisturbed, and a step, which a test cuts short at some
point and then repeats. The step's writes carry request ids, so that after the
repetition the store must be as if it had been done once.
"""

import hashlib
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import crdtmem
from crdtmem.errors import SlotNotFoundError
from crdtmem.limits import SQUASH_SLACK_RECORDS

if TYPE_CHECKING:
    from crdtmem.memory import Memory

__all__ = [
    "SCENARIOS",
    "Scenario",
    "SlotState",
    "do_step",
    "opened",
    "prepare",
    "states_of",
]

LABELS = ("plan", "notes")

SlotState = tuple[int, str, bool, tuple[tuple[str, int, str], ...]]
"""Rev, hash, whether it is live, and the operation, rev and hash of each entry."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A setup, undisturbed, and a step that may be cut short and repeated.

    The step makes the store itself where there is no setup.
    """

    setup: Callable[["Memory"], object] | None
    step: Callable[["Memory"], object]


def states_of(memory: "Memory") -> dict[str, SlotState | None]:
    """Return all that a write may change of the scenarios' slots."""
    live = {view.label for view in memory.slots("project", templates=False)}
    return {label: _state_of(memory, label, label in live) for label in LABELS}


def prepare(name: str, directory: Path) -> dict[str, SlotState | None]:
    """Make the store that a scenario's step begins with; return its slots."""
    directory.mkdir()
    setup = SCENARIOS[name].setup
    if setup is None:
        return dict.fromkeys(LABELS)
    with opened(str(directory / "store.db")) as memory:
        setup(memory)
        return states_of(memory)


def do_step(name: str, directory: Path) -> dict[str, SlotState | None]:
    """Do a scenario's step, from start to end; return the slots after it."""
    with opened(str(directory / "store.db")) as memory:
        SCENARIOS[name].step(memory)
        return states_of(memory)


def opened(path: str, lane: str = "a", **options: Any) -> "Memory":
    """Open a store as every test of processes and crashes does."""
    return crdtmem.open(path, lane=lane, project="p", **options)


def _state_of(memory: "Memory", label: str, is_live: bool) -> SlotState | None:
    try:
        history = memory.slot(label, "project").history(1_000)
    except SlotNotFoundError:
        return None
    entries = tuple((e.operation, e.rev, e.content_hash) for e in history.entries)
    return history.current.rev, history.current.content_hash, is_live, entries


def _nothing(_: "Memory") -> None:
    pass


def _two_revs(memory: "Memory") -> None:
    memory.create("plan", "a\nb")
    memory.slot("plan").append("c")


def _large(memory: "Memory") -> None:
    memory.create("plan", f"{'old' * 300}\n" * 1_000, size_limit=1_000_000)


def _one_short_of_a_squash(memory: "Memory") -> None:
    memory.configure(history_keep=2)
    memory.create("plan", "a")
    while memory.status().records < 2 + SQUASH_SLACK_RECORDS:
        memory.slot("plan").append("b")


def _exported_slot(label: str, content: str) -> dict[str, object]:
    moment = "2026-01-01T00:00:00.000Z"
    return {
        "type": "slot",
        "label": label,
        "scope": "project",
        "project": "p",
        "content": content,
        "contentHash": hashlib.sha256(content.encode()).hexdigest(),
        "rev": 0,
        "description": "",
        "sizeLimit": 2000,
        "pinned": True,
        "readOnly": False,
        "appendOnly": False,
        "createdAt": moment,
        "updatedAt": moment,
        "deleted": False,
    }


def _import(memory: "Memory") -> None:
    records = [
        {
            "type": "header",
            "format": "crdtmem-slots",
            "version": 1,
            "at": "2026-01-01T00:00:00.000Z",
            "replica": "00",
        },
        _exported_slot("plan", "from afar"),
        _exported_slot("notes", "this too"),
        {"type": "end", "slots": 2, "history": 0},
    ]
    memory.import_(io.StringIO("".join(json.dumps(one) + "\n" for one in records)))


SCENARIOS = {
    "create store": Scenario(
        None, lambda memory: memory.create("plan", "first", request_id="r")
    ),
    "append": Scenario(
        _two_revs, lambda memory: memory.slot("plan").append("d", request_id="r")
    ),
    "replace with base_rev": Scenario(
        _two_revs,
        lambda memory: memory.slot("plan").replace("A\nb", base_rev=0, request_id="r"),
    ),
    "undo": Scenario(
        _two_revs, lambda memory: memory.slot("plan").undo(request_id="r")
    ),
    "delete": Scenario(_two_revs, lambda memory: memory.delete("plan", request_id="r")),
    "import": Scenario(_nothing, _import),
    "checkpoint": Scenario(
        _large,
        lambda memory: memory.slot("plan").replace(
            f"{'new' * 300}\n" * 1_000, request_id="r"
        ),
    ),
    "squash": Scenario(
        _one_short_of_a_squash,
        lambda memory: memory.slot("plan").append("last", request_id="r"),
    ),
    "compact": Scenario(_one_short_of_a_squash, lambda memory: memory.compact()),
}
