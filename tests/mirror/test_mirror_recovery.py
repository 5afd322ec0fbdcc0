"""A mirror that is killed anywhere goes on where it was, and loses and doubles nothing.

Killed in this process: what stands for the kill is an error that nobody catches, at a
step's beginning or end, and another mirror that starts on the folder.
"""

import contextlib
import os

import pytest

from tests.killpoints import KillPoint, install

WRITING = "crdtmem.mirror.writing"
SWAPPING = "crdtmem.mirror.swapping"
STEPS = {
    "swap-1": KillPoint("crdtmem.mirror.visiting", "Visitor._take", "after"),
    "swap-2": KillPoint(WRITING, "Writer.plan", "after"),
    "swap-3": KillPoint(SWAPPING, "SwapSide.write_swap", "after"),
    "swap-4": KillPoint(WRITING, "Writer.intend", "after"),
    "swap-5": KillPoint(SWAPPING, "SwapSide.exchange", "after"),
    "swap-5 renamed": KillPoint(SWAPPING, "SwapSide._rename_out", "after"),
    "swap-5 linked": KillPoint(SWAPPING, "SwapSide.link_in", "after"),
    "swap-6": KillPoint(WRITING, "Writer.exchange", "after"),
    "swap-7": KillPoint(WRITING, "Writer.settle", "after"),
    "swap-8": KillPoint("crdtmem.mirror.draining", "Drain.run", "after"),
    "import.before-commit": KillPoint(
        "crdtmem.mirror.importing", "Importer._save", "after"
    ),
    "import.after-commit": KillPoint(
        "crdtmem.mirror.importing", "Importer.take", "after"
    ),
    "drain.before-merge": KillPoint("crdtmem.mirror.draining", "Drain._take", "before"),
    "drain.after-merge": KillPoint("crdtmem.mirror.draining", "Drain._take", "after"),
    "drain.before-unlink": KillPoint(
        "crdtmem.mirror.draining", "Drain.remove", "before"
    ),
    "drain.after-unlink": KillPoint("crdtmem.mirror.draining", "Drain.remove", "after"),
}
MOVED_ASIDE = {"swap-5 renamed", "swap-5 linked"}


class Killed(BaseException):
    """Stands for SIGKILL: nobody catches it."""


def kill():
    raise Killed


def kill_at(desk, step):
    """Let the mirror work until it is killed at a step."""
    uninstall = install(STEPS[step], kill, nth=1)
    with pytest.raises(Killed):
        desk.wait(5, 0.25)
    uninstall()


def append(file, data):
    with file.open("ab") as opened:
        opened.write(data)


def lines_of(text):
    return sorted(text.removesuffix("\n").split("\n"))


@pytest.mark.requirement("mirror-21")
@pytest.mark.parametrize("writes_before_restart", [False, True])
@pytest.mark.parametrize("step", STEPS)
def test_a_mirror_that_is_killed_loses_and_doubles_nothing(
    desk, step, writes_before_restart
):
    if step in MOVED_ASIDE:
        desk.move_aside()
    file = desk.make("plan", "one")
    with file.open("ab", buffering=0) as held:
        held.write(b"held\n")
        desk.lane.slot("plan").append("lane")
        desk.look()
        desk.now_s += 1
        held.write(b"late\n")
        desk.lane.slot("plan").append("more")
        append(file, b"named\n")
        if step.startswith("drain"):
            held.close()
        kill_at(desk, step)
        if writes_before_restart:
            if not held.closed:
                held.write(b"held while it was dead\n")
            if file.exists():
                append(file, b"by name\n")
    desk.restart()
    desk.sync()
    desk.drain()

    expected = {"one", "held", "lane", "late", "more", "named"}
    found = lines_of(desk.text("plan"))
    assert expected <= set(found)
    assert len(found) == len(set(found))
    if writes_before_restart and not step.startswith("drain"):
        assert "held while it was dead" in found
    assert lines_of(file.read_text(encoding="utf-8")) == found
    assert desk.rows("SELECT count(*) FROM mirror_file WHERE intent IS NOT NULL") == [
        (0,)
    ]


def test_a_swap_that_could_not_be_noted_is_noted_at_the_next_look(desk):
    file = desk.make("plan", "one")
    desk.lane.slot("plan").append("two")
    desk.mirror._session.store.busy_timeout_s = 0
    locked = contextlib.ExitStack()
    point = KillPoint(WRITING, "Writer.settle", "before")
    uninstall = install(
        point, lambda: locked.enter_context(desk.lane.store.writing()), nth=1
    )
    with locked, pytest.raises(TimeoutError):
        desk.look()
    uninstall()
    append(file, b"tool\n")
    desk.sync()

    assert lines_of(desk.text("plan")) == ["one", "tool", "two"]
    assert file.read_text(encoding="utf-8") == desk.text("plan") + "\n"
    desk.drain()


def test_a_swap_that_has_not_begun_has_no_end(desk):
    desk.make("plan", "one")
    with pytest.raises(LookupError, match=r"no swap of 'plan\.md' has begun"):
        desk.mirror._writer.recover("plan.md")


@pytest.mark.parametrize("step", ["swap-3", "swap-4", "swap-5 linked", "swap-6"])
def test_a_file_that_was_just_being_made_is_made_or_not(desk, step):
    desk.lane.create("plan", "one")
    kill_at(desk, step)
    desk.restart()
    desk.sync()

    assert (desk.folder / "plan.md").read_text(encoding="utf-8") == "one\n"
    assert desk.swapped_out() == []
    assert desk.rows("SELECT count(*), intent FROM mirror_file") == [(1, None)]


@pytest.mark.parametrize(
    "point",
    [
        KillPoint(SWAPPING, "SwapSide.retire", "before"),
        KillPoint(SWAPPING, "SwapSide.retire", "after"),
    ],
    ids=["before", "after"],
)
def test_a_file_that_was_just_being_taken_out_is_out_afterwards(desk, point):
    file = desk.make("plan", "one")
    desk.lane.delete("plan")
    uninstall = install(point, kill, nth=1)
    with pytest.raises(Killed):
        desk.look()
    uninstall()
    desk.restart()
    desk.sync()

    assert not file.exists()
    assert desk.labels() == []
    desk.drain()
    assert desk.rows("SELECT * FROM mirror_file") == []
    assert desk.rows("SELECT * FROM pin") == []


def test_a_file_that_a_tool_made_in_the_gap_is_taken_in_whole(desk):
    desk.move_aside()
    file = desk.make("plan", "one")
    desk.lane.slot("plan").append("lane")

    def tool():
        file.write_text("made in the gap\n", encoding="utf-8")

    point = KillPoint(SWAPPING, "SwapSide._rename_out", "after")
    uninstall = install(point, tool, nth=1)
    desk.sync()
    uninstall()
    desk.drain()

    assert lines_of(desk.text("plan")) == ["lane", "made in the gap", "one"]
    assert lines_of(file.read_text(encoding="utf-8")) == lines_of(desk.text("plan"))


@pytest.mark.parametrize("known", [True, False])
def test_what_lies_in_swap_of_nobody_is_removed_or_kept_elsewhere(desk, known):
    desk.make("plan", "one")
    desk.lane.slot("plan").append("two")
    content = "one\n" if known else "nobody's\n"
    (desk.swap / "0123.plan").write_text(content, encoding="utf-8")
    (desk.swap / "4567.plan").write_bytes(b"\xff")
    (desk.swap / "89ab.none").write_bytes(b"")
    desk.restart()

    assert desk.swapped_out() == []
    assert desk.rejected() == ([b"\xff"] if known else [b"nobody's\n", b"\xff"])


def test_what_lies_in_swap_and_is_no_file_is_left_alone(desk):
    (desk.swap / "0123.plan").mkdir()
    desk.restart()

    assert desk.swapped_out() == ["0123.plan"]
    os.rmdir(desk.swap / "0123.plan")


def test_a_swapped_out_file_that_is_missing_is_done_with(desk):
    file = desk.make("plan", "one")
    with file.open("ab"):
        desk.lane.slot("plan").append("two")
        desk.look()
        [name] = desk.swapped_out()
        (desk.swap / name).unlink()
        desk.restart()
        desk.sync()

    assert desk.rows("SELECT * FROM mirror_retired") == []
    assert desk.sync().retired == 0
