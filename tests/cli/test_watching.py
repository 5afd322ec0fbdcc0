"""crdtmem.cli.watching"""

import json
import subprocess
import sys

import pytest

from crdtmem.models import Change
from tests.cli.contract import validated

pytestmark = pytest.mark.process


@pytest.fixture
def watching(tmp_path, environment, run):
    """Start a watch, and return it once it has begun."""
    run("create", "plan")
    started = []

    def watching(*words):
        process = subprocess.Popen(
            [sys.executable, "-m", "crdtmem.cli", "watch", *words],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        started.append(process)
        assert process.stderr is not None
        assert process.stderr.readline() == "watching; Ctrl-C stops it\n"
        return process

    yield watching
    for process in started:
        process.kill()
        process.communicate()


def test_watch_once_tells_one_event(watching, run):
    process = watching("--once", "--json")
    run("append", "plan", "a")
    run("append", "plan", "b")

    shown, _ = process.communicate()

    assert process.returncode == 0
    assert shown.count("\n") == 1
    assert validated(Change, shown)["label"] == "plan"


def test_watch_tells_of_the_slots_asked_for(watching, run):
    process = watching("persona", "--once")
    run("append", "plan", "a")
    run("append", "persona", "b", "--scope", "global")

    assert process.communicate()[0].startswith("persona rev 0→1 append by tester")


def test_an_interrupt_ends_a_watch_with_130(watching, run):
    process = watching()
    for number in range(2):
        run("append", "plan", "a")
        line = process.stdout.readline()
        assert line.startswith(f"plan rev {number}→{number + 1}")
    process.send_signal(2)

    assert process.communicate()[0] == ""
    assert process.returncode == 130


@pytest.mark.requirement("surfaces-12")
def test_a_watch_disturbs_no_writer(watching, run, environment, tmp_path):
    process = watching("--json")
    run("create", "log", "--size-limit", "100000")
    script = (
        "import pathlib, sys, crdtmem.opening as opening\n"
        "store, lane = pathlib.Path('store.sqlite'), sys.argv[1]\n"
        "kept = {'project': 'demo', 'durability': 'normal'}\n"
        "with opening.open(store, lane=lane, **kept) as memory:\n"
        "    for number in range(200):\n"
        "        memory.slot('log').append(f'{lane} {number}')\n"
    )
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", script, f"lane-{number}"],
            cwd=tmp_path,
            env=environment,
        )
        for number in range(4)
    ]

    assert [writer.wait() for writer in writers] == [0, 0, 0, 0]
    revs: list[int] = []
    while not revs or revs[-1] < 800:
        revs.append(json.loads(process.stdout.readline())["rev"])
    assert revs == sorted(set(revs))
