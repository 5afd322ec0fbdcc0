"""crdtmem.cli.demo and demo_lane, with real processes"""

import json
import re
import sys
from pathlib import Path

import pytest

from crdtmem.cli import demo
from crdtmem.cli.demo_play import play
from crdtmem.errors import CrdtmemError

pytestmark = pytest.mark.process

DROPPING = [sys.executable, str(Path(__file__).parent / "dropping_lane.py")]


@pytest.mark.requirement("surfaces-9", "P1")
def test_the_demo_loses_nothing(run, home):
    result = run("demo", "--rng", "1")

    assert (result.status, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[0].startswith("lane-1 … lane-4: 50 acknowledged each, 200 kept in all")
    assert "lane-3 was killed with SIGKILL at 20 and resumed" in lines[0]
    assert "lines expected 200 · kept 200 · lost 0 · doubled 0 · torn 0" in lines[1]
    assert "filler rewritten 20 times" in lines[1]
    assert re.fullmatch(
        r"undone: the rewriter's last write; \d+ later appends kept", lines[2]
    )
    assert lines[3].endswith("the rev never fell")
    assert lines[4] == "try next: crdtmem demo --keep"
    assert list(home.glob("crdtmem-demo-*")) == []


def test_a_kept_store_can_be_looked_at(run):
    shown = run("demo", "--keep", "--lanes", "1", "--lines", "4", "--json").out
    report = json.loads(shown)

    assert (report["expected"], report["lost"], report["rewrites"]) == (4, 0, 20)
    assert report["lanes"] == {"lane-1": 4}
    assert report["killed"] == {"lane": "lane-1", "after": 2}
    assert "lane-1" in run("--store", report["store"], "blame", "shared").out


@pytest.mark.requirement("surfaces-9")
def test_a_store_that_drops_appends_is_found_out(run, home, monkeypatch):
    monkeypatch.setattr(demo, "LANE_COMMAND", DROPPING)

    result = run("demo", "--lanes", "2", "--lines", "10", "--color", "always")

    assert result.status == 1
    assert re.search(r"kept 16 · lost 4 ", result.out)
    kept = result.err.strip().removeprefix("\x1b[33m").removesuffix("\x1b[0m")
    store = Path(kept.removeprefix("the store is kept: "))
    assert store.exists()
    for words in tried_next(result):
        tried = run(*words)
        assert (tried.status, tried.err) == (0, "")
        assert "lane-1" in tried.out


def tried_next(result):
    """Return the commands that the demo says to try."""
    line = result.out.splitlines()[-1].removeprefix("\x1b[31m")
    return [
        command.split()[1:] for command in line.removeprefix("try next: ").split(" · ")
    ]


def test_a_process_that_fails_is_told(run, monkeypatch):
    monkeypatch.setattr(demo, "LANE_COMMAND", [sys.executable, "-c", "exit(3)"])

    result = run("demo", "--lanes", "1", "--lines", "2")

    assert result.status == 1
    assert "ended with status 3" in result.err
    assert "the store is kept" in result.err


@pytest.mark.parametrize(
    "script",
    [
        "print('{}', flush=True); input(); exit(4)",
        "import os; os.close(0); print('{}', flush=True); exit(4)",
    ],
)
def test_a_process_that_ends_early_is_told(home, script):
    with pytest.raises(CrdtmemError, match="ended with status 4"):
        play(
            home / "store.sqlite",
            lanes=2,
            lines_each=2,
            rng=1,
            command=[sys.executable, "-c", script],
        )


@pytest.mark.parametrize("words", [["--lanes", "0"], ["--lines", "1"]])
def test_the_demo_has_its_bounds(run, words):
    assert run("demo", *words).status == 2
