"""Mirrors as processes: two at once, files held open, busy slots, an agent's folder."""

import contextlib
import os
import re
import threading
import time

import pytest

from crdtmem.condense.values import CondenseReply
from crdtmem.limits import INDEX_BYTES, INDEX_LINES, MIRROR_WRITE_PAUSE_S
from tests.child import PATIENCE_S
from tests.conftest import PROFILE
from tests.mirror.desk import LOOK_S, Desk
from tests.sync.relays import RunningRelay

pytestmark = pytest.mark.process

SWAPS = {"default": 4, "campaign": 50}[PROFILE]
EDITS = {"default": 12, "campaign": 200}[PROFILE]
BUSY_S = {"default": 1.0, "campaign": 5.0}[PROFILE]
PADDING = "; ".join(["what was done, and why, at some length"] * 3)
SLOTS = {"default": INDEX_LINES + 10, "campaign": 300}[PROFILE]


@pytest.fixture
def desk(tmp_path):
    with Desk(tmp_path) as desk:
        yield desk


class Writes:
    """Counts how often a file is written anew, while the block lasts."""

    def __init__(self, file):
        self._file = file
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.count = 0

    def _look(self):
        last = self._ino()
        while not self._stop.wait(LOOK_S / 2):
            ino = self._ino()
            self.count += ino != last
            last = ino

    def _ino(self):
        return self._file.stat().st_ino

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()


@pytest.fixture(scope="module")
def running_relay():
    relay = RunningRelay()
    yield relay
    relay.stop()


@pytest.mark.requirement("mirror-20")
def test_a_second_mirror_of_the_folder_is_told_who_has_it(desk):
    status, out, err = desk.run()

    assert (status, out) == (6, "")
    assert f"process {desk.pid}" in err


@pytest.mark.requirement("mirror-19")
def test_two_mirrors_of_a_slot_converge_and_then_rest(tmp_path):
    with (
        Desk(tmp_path) as first,
        Desk(tmp_path, folder=tmp_path / "other") as second,
    ):
        first.make("plan", "start")
        second.wait_until(second.file("plan").exists)
        files = [first.file("plan"), second.file("plan")]
        pause = threading.Event()
        for number in range(EDITS):
            for which, file in enumerate(files):
                with file.open("ab", buffering=0) as opened:
                    opened.write(f"{which} {number}\n".encode())
            pause.wait(0.05)
        with Writes(files[0]) as some, Writes(files[1]) as others:
            wanted = {f"{w} {n}" for n in range(EDITS) for w in range(2)}

            def is_settled():
                texts = [file.read_text(encoding="utf-8") for file in files]
                return texts[0] == texts[1] and wanted <= set(texts[0].split("\n"))

            first.wait_until(is_settled)
            pause.wait(1.0)
        lines = first.text("plan").split("\n")

        assert is_settled()
        assert sorted(lines) == sorted({"start", *wanted})
        assert some.count <= 2
        assert others.count <= 2


@pytest.mark.requirement("mirror-22")
def test_a_replaced_file_is_kept_until_its_last_writer_closes_it(desk):
    file = desk.make("plan", "start")
    written = []
    with file.open("ab", buffering=0) as held:
        ino = os.fstat(held.fileno()).st_ino
        for number in range(SWAPS):
            desk.memory.slot("plan").append(f"lane {number}")
            desk.wait_until(lambda n=number: f"lane {n}\n" in file.read_text("utf-8"))
            held.write(f"tool {number}\n".encode())
            written.append(f"tool {number}")
            desk.wait_until(lambda n=number: f"tool {n}" in desk.text("plan"))
        kept = {path.stat().st_ino for path in (desk.state / "swap").iterdir()}
        assert ino in kept
    desk.wait_until(lambda: desk.swapped_out() == [])
    lines = desk.text("plan").split("\n")

    assert [line for line in lines if line.startswith("tool")] == written
    assert len(lines) == 1 + 2 * SWAPS
    assert desk.is_equal("plan")


@pytest.mark.requirement("mirror-24")
def test_opening_a_replaced_file_again_and_again_kills_no_mirror(desk):
    file = desk.make("plan", "start")
    desk.memory.slot("plan").append("more")
    desk.wait_until(lambda: "more\n" in file.read_text("utf-8"))
    opened = 0
    while names := desk.swapped_out():
        with contextlib.suppress(FileNotFoundError):
            os.close(os.open(desk.state / "swap" / names[0], os.O_WRONLY))
            opened += 1

    desk.make("other", "still there")
    assert opened > 0


@pytest.mark.requirement("mirror-27")
def test_a_busy_slot_is_written_to_its_file_a_few_times_a_second(desk):
    file = desk.make("log", "start")
    slot = desk.memory.slot("log")
    began = time.monotonic()
    count = 0
    with Writes(file) as writes:
        while time.monotonic() < began + BUSY_S:
            slot.append(f"line {count}")
            count += 1
        desk.wait_until(lambda: desk.is_equal("log"))
    took_s = time.monotonic() - began

    assert 1 <= writes.count <= 2 + took_s / MIRROR_WRITE_PAUSE_S
    assert file.read_text("utf-8").count("\n") == count + 1


@pytest.mark.requirement("mirror-29")
def test_the_memory_folder_of_an_agent_is_in_sync_both_ways(tmp_path):
    """The shape of Claude Code's auto memory: MEMORY.md, and a file a topic."""
    folder = tmp_path / "memory"
    folder.mkdir()
    index = folder / "MEMORY.md"
    index.write_text("# Memory\n\n- [Debugging](debugging.md)\n", encoding="utf-8")
    (folder / "debugging.md").write_text("- run it twice\n", encoding="utf-8")
    with Desk(tmp_path, "--profile", "claude", folder=folder) as desk:
        for number in range(SLOTS):
            desk.memory.create(f"topic_{number}", f"about {number}")
        desk.wait_until(lambda: (folder / f"topic_{SLOTS - 1}.md").exists())
        desk.wait_until(lambda: f"(topic_{SLOTS - 1}.md)" in index.read_text("utf-8"))
        shown = index.read_text("utf-8")
        with index.open("a", encoding="utf-8") as opened:
            opened.write("- behind the block\n")
        desk.wait_until(lambda: "behind the block" in desk.text("memory"))
        text = index.read_text("utf-8")
        end = text.index("<!-- /crdtmem:index -->")
        index.write_text(f"{text[:end]}- in the block\n{text[end:]}", encoding="utf-8")
        desk.wait_until(lambda: "in the block" in desk.text("memory"))
        desk.memory.slot("debugging").append("- read the log")
        desk.wait_until(lambda: "log\n" in (folder / "debugging.md").read_text("utf-8"))
        (folder / "new_topic.md").write_text("- learned\n", encoding="utf-8")
        desk.wait_until(lambda: desk.text("new_topic") == "- learned")
        lines = desk.text("memory").split("\n")

    assert shown.count("\n") <= INDEX_LINES
    assert len(shown.encode()) <= INDEX_BYTES
    assert re.findall(r"^.*\(debugging\.md\)", shown, re.M) == [
        "- [Debugging](debugging.md)"
    ]
    assert lines[:3] == ["# Memory", "", "- [Debugging](debugging.md)"]
    assert sorted(lines[3:]) == ["- behind the block", "- in the block"]


@pytest.mark.requirement("mirror-30")
def test_condense_undo_and_a_tool_that_appends_get_along(desk):
    old = "".join(f"## old {n}\n{PADDING}\n" for n in range(9)).removesuffix("\n")
    file = desk.make("plan", old)
    slot = desk.memory.slot("plan")
    with file.open("ab", buffering=0) as held:

        def summarise(begun):
            held.write(b"while it was thought about\n")
            desk.wait_until(lambda: "thought about" in desk.text("plan"))
            return CondenseReply(pass_id=begun.id, summary=PADDING)

        result = slot.condense(summarise, keep_sections=1, force=True)
        desk.wait_until(lambda: desk.is_equal("plan"))
        condensed = desk.text("plan")
        held.write(b"afterwards\n")
        desk.wait_until(lambda: "afterwards" in desk.text("plan"))
        slot.undo(result.history_id)
        desk.wait_until(lambda: desk.is_equal("plan"))
        held.write(b"in the end\n")
        desk.wait_until(lambda: "in the end" in desk.text("plan"))
    desk.wait_until(lambda: desk.is_equal("plan") and desk.swapped_out() == [])

    assert result.reason == "condensed"
    assert condensed.count("thought about") == 1
    assert "## old 0" not in condensed
    assert desk.text("plan") == "\n".join(
        [old, "while it was thought about", "afterwards", "in the end"]
    )


@pytest.mark.requirement("mirror-19")
def test_mirrors_on_two_machines_converge_over_a_relay(tmp_path, running_relay):
    desks = [Desk(tmp_path / name) for name in ("one", "other")]
    desks[0].memory.create("plan", "start")
    variables = {
        "CRDTMEM_RELAY_TOKEN": running_relay.token,
        "CRDTMEM_RELAY_URL": running_relay.url,
    }
    link = ("sync", "link", "--namespace", "team", "--on-overlap", "merge")
    for desk in desks:
        desk.environment |= variables
        linking = desk.command(*link)
        assert linking.communicate(timeout=PATIENCE_S)[0].startswith("'p' is linked")
    syncing = [desk.command("sync", "start") for desk in desks]
    wanted = {"start", *(f"{w} {n}" for n in range(EDITS) for w in range(2))}
    with desks[0] as one, desks[1] as other:
        other.wait_until(other.file("plan").exists)
        pause = threading.Event()
        for number in range(EDITS):
            for which, desk in enumerate(desks):
                with desk.file("plan").open("ab", buffering=0) as opened:
                    opened.write(f"{which} {number}\n".encode())
            pause.wait(0.05)
        one.wait_until(
            lambda: all(wanted <= set(d.text("plan").split("\n")) for d in desks)
        )
        one.wait_until(lambda: all(desk.is_equal("plan") for desk in desks))
        texts = [desk.file("plan").read_text("utf-8") for desk in desks]
    for process in syncing:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)

    assert sorted(texts[0].removesuffix("\n").split("\n")) == sorted(wanted)
    assert texts[0] == texts[1]
