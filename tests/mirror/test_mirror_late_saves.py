"""Saves that fall into a swap: a tool goes on from a text that was swapped out."""

import contextlib

import pytest

from crdtmem.limits import RING_TEXTS
from crdtmem.mirror.mirror import Mirror
from tests.killpoints import KillPoint, install
from tests.scenarios import opened

WAYS = {
    "exchange": KillPoint("crdtmem.mirror.syscalls", "exchange_entries", "before"),
    "move aside": KillPoint(
        "crdtmem.mirror.swapping", "SwapSide._rename_out", "before"
    ),
}

GAP = KillPoint("crdtmem.mirror.swapping", "SwapSide.link_in", "before")
"""Where there is no file, once the old one has been moved aside."""


def save(file, text):
    new = file.with_name(".new")
    new.write_text(text, encoding="utf-8")
    new.replace(file)


@pytest.fixture(params=WAYS)
def way(request):
    return request.param


@pytest.fixture
def memory(tmp_path):
    with opened(str(tmp_path / "store.db")) as memory:
        memory.create("plan", "a\nb\nc")
        yield memory


@pytest.fixture
def mirror(memory, tmp_path, way):
    (tmp_path / "notes").mkdir()
    with Mirror(memory, tmp_path / "notes") as mirror:
        mirror._folder.can_exchange = way == "exchange"
        mirror.sync_once()
        yield mirror


def swap_under(mirror, memory, way, text):
    """Have the file swapped, and a tool save its text at the last moment before."""
    file = mirror.folder / "plan.md"
    memory.slot("plan").append("d")
    uninstall = install(WAYS[way], lambda: save(file, text), nth=1)
    try:
        while "d\n" not in file.read_text(encoding="utf-8"):
            mirror.note_events(None)
            mirror.cycle(mirror._clock())
    finally:
        uninstall()
    return file


@pytest.mark.requirement("mirror-5", "mirror-S6")
def test_a_save_in_a_swap_and_the_next_one_of_its_tool_are_taken_in_once(
    mirror, memory, way
):
    file = swap_under(mirror, memory, way, "a\nfirst\nb\nc\n")
    save(file, "a\nfirst\nsecond\nb\nc\n")
    mirror.sync_once()

    text = memory.slot("plan").read().content
    assert text == "a\nfirst\nsecond\nb\nc\nd"
    assert file.read_text(encoding="utf-8") == f"{text}\n"


@pytest.mark.requirement("mirror-5", "mirror-8")
def test_what_a_lane_took_out_of_such_a_save_stays_out(mirror, memory, way):
    plan = memory.slot("plan")
    file = swap_under(mirror, memory, way, "a\nfirst\nb\nc\n")
    save(file, "a\nfirst\nsecond\nb\nc\n")
    while "second" not in plan.read().content:
        mirror.note_events(None)
        mirror.cycle(mirror._clock())
    plan.edit("first\n", "")
    mirror.sync_once()
    while mirror.status().retired:
        mirror.note_events(None)
        mirror.cycle(mirror._clock())

    text = plan.read().content
    assert text == "a\nsecond\nb\nc\nd"
    assert file.read_text(encoding="utf-8") == f"{text}\n"


@pytest.fixture
def aside(memory, tmp_path):
    """A mirror that moves files aside."""
    (tmp_path / "notes").mkdir()
    with Mirror(memory, tmp_path / "notes") as mirror:
        mirror._folder.can_exchange = False
        mirror.sync_once()
        yield mirror


@pytest.mark.requirement("mirror-5", "mirror-S6")
def test_a_save_into_the_gap_of_a_file_moved_aside_doubles_nothing(aside, memory):
    memory.slot("plan").append("d")
    file = aside.folder / "plan.md"
    uninstall = install(GAP, lambda: save(file, "a\nb\nnew\nc\n"), nth=1)
    try:
        aside.sync_once()
    finally:
        uninstall()

    assert memory.slot("plan").read().content == "a\nb\nnew\nc\nd"
    assert file.read_text(encoding="utf-8") == "a\nb\nnew\nc\nd\n"


@pytest.mark.requirement("mirror-5")
@pytest.mark.parametrize("lines", ["new", "a", "new\na\nother"])
def test_lines_appended_in_the_gap_are_all_there_and_nothing_is_lost(
    aside, memory, lines
):
    memory.slot("plan").append("d")
    file = aside.folder / "plan.md"

    def append():
        with file.open("a", encoding="utf-8") as opened_file:
            opened_file.write(f"{lines}\n")

    uninstall = install(GAP, append, nth=1)
    try:
        aside.sync_once()
    finally:
        uninstall()

    text = memory.slot("plan").read().content
    assert text.startswith("a\nb\nc\nd")
    assert file.read_text(encoding="utf-8") == f"{text}\n"
    assert set(lines.split("\n")) <= set(text.split("\n"))


class Killed(BaseException):
    """Stands for SIGKILL: nobody catches it."""


def kill():
    raise Killed


@pytest.mark.requirement("mirror-21", "mirror-S5")
@pytest.mark.parametrize("is_recovery_killed", [False, True])
def test_lines_appended_in_the_gap_of_a_killed_mirror_stay_behind_the_others(
    aside, memory, is_recovery_killed
):
    memory.slot("plan").append("d")
    file = aside.folder / "plan.md"
    exchanged = KillPoint("crdtmem.mirror.writing", "Writer.exchange", "after")
    recovered = KillPoint("crdtmem.mirror.swapping", "SwapSide.recover", "after")

    def append():
        with file.open("a", encoding="utf-8") as opened_file:
            opened_file.write("new\n")

    with contextlib.ExitStack() as stack:
        stack.callback(install(GAP, append, nth=1))
        stack.callback(install(exchanged, kill, nth=1))
        with pytest.raises(Killed):
            aside.sync_once()
    aside.close()
    if is_recovery_killed:
        with contextlib.ExitStack() as stack:
            stack.callback(install(recovered, kill, nth=1))
            with pytest.raises(Killed):
                Mirror(memory, aside.folder)
    with Mirror(memory, aside.folder) as again:
        again.sync_once()

    assert memory.slot("plan").read().content == "a\nb\nc\nd\nnew"
    assert file.read_text(encoding="utf-8") == "a\nb\nc\nd\nnew\n"


class Clock:
    """Time that passes only while somebody waits."""

    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s

    def wait(self, seconds):
        self.now_s += seconds


@pytest.mark.requirement("mirror-7")
def test_a_save_of_a_text_that_is_many_writes_old_deletes_none_of_them(
    memory, tmp_path
):
    clock = Clock()
    plan = memory.slot("plan")
    (tmp_path / "notes").mkdir()
    with Mirror(memory, tmp_path / "notes", clock=clock, wait=clock.wait) as mirror:
        mirror.sync_once()
        file = mirror.folder / "plan.md"
        text = file.read_text(encoding="utf-8")
        lanes = [f"lane {number}" for number in range(RING_TEXTS - 2)]
        for line in lanes:
            plan.append(line)
            mirror.sync_once()
            assert file.read_text(encoding="utf-8").endswith(f"{line}\n")
        save(file, text.replace("b\n", "b edited\n"))
        mirror.sync_once()

    assert plan.read().content.split("\n") == ["a", "b edited", "c", *lanes]


@pytest.mark.requirement("mirror-5")
def test_a_tool_that_rewrites_a_replaced_file_without_a_pause_holds_up_nobody(desk):
    file = desk.make("plan", "one\ntwo")
    desk.lane.slot("plan").append("lane")
    with contextlib.ExitStack() as stack:
        held = []

        def rewrite():
            held.append(stack.enter_context(file.open("wb", buffering=0)))
            held[0].write(b"anew\n")

        stack.callback(install(WAYS["exchange"], rewrite, nth=1))
        desk.sync()
        save(file, "one\ntwo\nsaved\nlane\n")
        written = 0
        while "saved" not in desk.text("plan"):
            assert written < 100
            held[0].write(f"line {written}\n".encode())
            written += 1
            desk.wait(0.2)
    desk.sync()
    desk.drain()

    lines = desk.text("plan").split("\n")
    wanted = {"anew", "saved", "lane", *(f"line {n}" for n in range(written))}
    assert wanted <= set(lines)
    assert len(lines) == len(set(lines))
    assert written > 10
