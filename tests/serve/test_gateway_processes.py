"""Processes that type into one slot, and are killed: what was echoed is there once."""

import shutil
import signal
from collections import Counter

import pytest

from tests import scripts
from tests.child import Children
from tests.conftest import PROFILE
from tests.scenarios import opened
from tests.scratch import scratch
from tests.serve.editing import Editor

pytestmark = pytest.mark.process

ROUNDS = {"default": 3, "campaign": 60}[PROFILE]
FEW = [
    ("write.before-commit", 4),
    ("write.after-commit", 1),
    ("editor.row", 2),
    ("editor.folded", 1),
    ("editor.marked", 1),
]
POINTS = {
    "default": FEW,
    "campaign": [(point, nth) for point, _ in FEW for nth in range(1, 4)],
}[PROFILE]


@pytest.fixture(scope="module")
def nursery():
    with Children() as children:
        yield children


def settled_text(path):
    """Fold what was left, and return the text that slot and editors have."""
    with opened(path, "later") as memory:
        editing = memory.editing("plan", "project")
        assert editing.fold().blocked is None
        text = memory.slot("plan").read().content
        assert str(Editor(editing, 99_000)).removesuffix("\n") == text
        assert memory.doctor().ok
    return text


@pytest.mark.requirement("serve-18")
def test_what_was_echoed_is_there_once_wherever_the_process_is_killed(nursery):
    child = nursery.spawn()
    with scratch() as folder:
        origin = folder / "origin"
        with opened(str(origin / "store.db")) as memory:
            memory.create("plan", "one")
        for point, nth in POINTS:
            place = folder / f"{point}-{nth}"
            shutil.copytree(origin, place)
            path = str(place / "store.db")
            before = len(child.events)
            child.start(
                scripts.forked,
                script="type_in_rounds",
                arguments={
                    "path": path, "lane": "a", "client": 70_000, "count": 3,
                },
                kill_at=(point, nth),
            )  # fmt: skip
            status = child.result()

            assert status == -signal.SIGKILL, (point, nth)
            kept = [e["line"] for e in child.events[before:] if e["event"] == "kept"]
            lines = Counter(settled_text(path).split("\n"))
            assert all(lines[line] == 1 for line in kept), (point, nth, lines)
            # At most what was under way when it was killed.
            assert lines.total() - 1 - len(kept) in (0, 1), (point, nth, lines)


@pytest.mark.requirement("serve-24")
def test_two_processes_with_an_editor_each_fold_every_line_once(nursery):
    child = (nursery.idle() or [nursery.spawn()])[0]
    before = len(child.events)
    with scratch() as folder:
        path = str(folder / "store.db")
        with opened(path) as memory:
            memory.create("plan", "one", size_limit=100_000)
        members = {
            f"lane{number}": {
                "script": "type_in_rounds",
                "arguments": {
                    "path": path, "lane": f"lane{number}", "client": 70_000 + number,
                    "count": ROUNDS,
                },
            }
            for number in range(2)
        }  # fmt: skip
        child.start(scripts.crowd, members=members)
        assert child.result() == {name: [0] for name in members}
        kept = [e["line"] for e in child.events[before:] if e["event"] == "kept"]

        lines = settled_text(path).split("\n")

    assert sorted(lines) == sorted([*kept, "one"])
    for number in range(2):
        own = [line for line in kept if line.startswith(f"lane{number} appended")]
        assert [line for line in lines if line in own] == own
