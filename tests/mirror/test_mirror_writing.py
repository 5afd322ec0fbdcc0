"""What happens to a slot is written to its file, and nothing is lost on the way."""

import contextlib
import errno
import os

import pytest

from tests.killpoints import KillPoint, install

WRITING = "crdtmem.mirror.writing"


@contextlib.contextmanager
def at(module, function, side, action, nth=1):
    uninstall = install(KillPoint(module, function, side), action, nth=nth)
    try:
        yield
    finally:
        uninstall()


def append(file, text):
    with file.open("a", encoding="utf-8") as opened:
        opened.write(text)


def edit(file, old, new):
    """Change a line in place, without a new file."""
    text = file.read_text(encoding="utf-8")
    with file.open("r+", encoding="utf-8") as opened:
        opened.write(text.replace(old, new))


def rename_over(file, old, new):
    text = file.read_text(encoding="utf-8").replace(old, new)
    fresh = file.with_name(".fresh")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(file)


TOOLS = {
    "append": lambda file: append(file, "tool\n"),
    "edit in place": lambda file: edit(file, "two", "TWO"),
    "rename over": lambda file: rename_over(file, "two", "two\ntool"),
}
RESULTS = {
    "append": ["lane", "one", "three", "tool", "two"],
    "edit in place": ["TWO", "lane", "one", "three"],
    "rename over": ["lane", "one", "three", "tool", "two"],
}


@pytest.mark.requirement("mirror-5")
@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize(
    ("function", "side"),
    [
        ("Writer.plan", "after"),
        ("Writer.put", "after"),
        ("Writer.exchange", "before"),
        ("Writer.exchange", "after"),
        ("Writer.settle", "after"),
    ],
)
def test_what_a_tool_does_during_a_swap_is_in_the_slot(
    either_desk, function, side, tool
):
    desk = either_desk
    file = desk.make("plan", "one\ntwo\nthree")
    desk.lane.slot("plan").append("lane")
    with at(WRITING, function, side, lambda: TOOLS[tool](file)):
        desk.sync()
    desk.drain()

    assert sorted(desk.text("plan").split("\n")) == RESULTS[tool]
    assert file.read_text(encoding="utf-8") == desk.text("plan") + "\n"


@pytest.mark.requirement("mirror-27")
def test_a_busy_slot_is_written_five_times_a_second_at_most(desk):
    file = desk.make("plan", "0")
    inodes = {file.stat().st_ino}
    held = []
    for number in range(1, 200):
        desk.lane.slot("plan").append(str(number))
        desk.now_s += 0.01
        desk.look()
        if file.stat().st_ino not in inodes:
            # Held open, so that no later file gets its number.
            held.append(file.open(encoding="utf-8"))
            inodes.add(file.stat().st_ino)
    desk.sync()
    for opened in held:
        opened.close()

    assert len(inodes) <= 12
    assert file.read_text(encoding="utf-8") == desk.text("plan") + "\n"


def test_the_files_mode_stays(desk):
    file = desk.make("plan", "one")
    file.chmod(0o640)
    desk.lane.slot("plan").append("two")
    desk.sync()

    assert file.stat().st_mode & 0o777 == 0o640


def failing(number):
    def fail():
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.requirement("mirror-28")
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EXDEV])
@pytest.mark.parametrize("function", ["write_new", "exchange_entries", "sync_folder"])
def test_a_file_that_cannot_be_written_is_written_later(desk, function, number):
    file = desk.make("plan", "one")
    desk.lane.slot("plan").append("two")
    with at("crdtmem.mirror.swapping", function, "before", failing(number), None):
        report = desk.sync()
        desk.wait(3, 0.5)

    assert [one.reason for one in report.blocked] == ["swap-failed"]
    assert file.read_text(encoding="utf-8").startswith("one\n")
    assert desk.events("swap-failed") == ["swap-failed"]
    append(file, "tool\n")
    desk.wait(2)
    assert sorted(desk.text("plan").split("\n")) == ["one", "tool", "two"]
    assert file.read_text(encoding="utf-8") == desk.text("plan") + "\n"
    assert desk.mirror.status().blocked == ()
    desk.drain()


def test_a_file_that_cannot_be_made_is_made_later(desk):
    desk.lane.create("plan", "one")
    failure = failing(errno.ENOSPC)
    with at("crdtmem.mirror.swapping", "write_new", "before", failure, None):
        report = desk.sync()
        desk.wait(3, 0.5)
    assert [(one.label, one.reason) for one in report.blocked] == [
        ("plan", "swap-failed")
    ]
    assert list(desk.folder.glob("*.md")) == []

    desk.wait(2)
    assert (desk.folder / "plan.md").exists()
    assert desk.mirror.status().blocked == ()


def test_a_file_that_cannot_be_read_waits(desk):
    file = desk.make("plan", "one")
    append(file, "two\n")
    with at("crdtmem.mirror.reading", "_read", "before", failing(errno.EIO), None):
        report = desk.sync()
    assert [one.reason for one in report.blocked] == ["swap-failed"]

    desk.wait(2)
    assert desk.text("plan") == "one\ntwo"


def test_a_file_that_is_gone_during_a_swap_is_no_failure(either_desk):
    desk = either_desk
    file = desk.make("plan", "one")
    desk.lane.slot("plan").append("two")
    with at(WRITING, "Writer.exchange", "before", file.unlink):
        desk.look()
    assert not file.exists()
    assert desk.swapped_out() == []

    desk.wait(3)
    assert desk.text("plan") == "two"
    assert file.read_text(encoding="utf-8") == "two\n"


def test_a_file_that_becomes_a_folder_during_a_swap_is_left_alone(either_desk):
    desk = either_desk
    file = desk.make("plan", "one")
    desk.lane.slot("plan").append("two")

    def replace():
        file.unlink()
        file.mkdir()

    with at(WRITING, "Writer.exchange", "before", replace):
        desk.sync()

    assert file.is_dir()
    assert [one.reason for one in desk.mirror.status().blocked] == ["mirror-not-a-file"]
    assert desk.swapped_out() == []


def test_a_name_that_is_taken_while_a_file_is_made_is_first_contact(desk):
    desk.lane.create("plan", "slot")
    file = desk.folder / "plan.md"
    with at(WRITING, "Writer.exchange", "before", lambda: append(file, "tool\n")):
        desk.sync()

    assert sorted(desk.text("plan").split("\n")) == ["slot", "tool"]
    assert file.read_text(encoding="utf-8") == desk.text("plan") + "\n"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda desk: desk.lane.delete("plan"),
        lambda desk: quarantine(desk),
    ],
    ids=["deleted", "quarantined"],
)
def test_a_slot_that_is_lost_during_a_swap_stops_it(desk, spoil):
    file = desk.make("plan", "one")
    desk.lane.slot("plan").append("two")
    with at(WRITING, "Writer.intend", "before", lambda: spoil(desk)):
        desk.look()

    assert file.read_text(encoding="utf-8") == "one\n"
    assert desk.swapped_out() == []


def quarantine(desk):
    with desk.lane.store.writing() as transaction:
        transaction.connection.execute("UPDATE slot SET quarantined = 'x'")


def test_a_quarantined_slot_is_not_written(desk):
    file = desk.make("plan", "one")
    desk.lane.slot("plan").append("two")
    quarantine(desk)
    desk.sync()

    assert file.read_text(encoding="utf-8") == "one\n"


def test_what_is_written_to_the_slot_during_a_swap_is_written_by_the_next(desk):
    file = desk.make("plan", "one")
    desk.lane.slot("plan").append("two")
    plan = desk.lane.slot("plan")
    with at(WRITING, "Writer.intend", "before", lambda: plan.append("three")):
        desk.look()
    assert file.read_text(encoding="utf-8") == "one\ntwo\n"
    edit(file, "one", "ONE")
    desk.sync()

    assert desk.text("plan") == "ONE\ntwo\nthree"
    assert file.read_text(encoding="utf-8") == desk.text("plan") + "\n"


def test_a_store_that_is_busy_is_no_fault_of_the_file(desk):
    file = desk.make("plan", "one")
    append(file, "two\n")
    desk.mirror._session.store.busy_timeout_s = 0
    with desk.lane.store.writing(), pytest.raises(TimeoutError):
        desk.sync()
    desk.sync()

    assert desk.text("plan") == "one\ntwo"
    assert desk.events("swap-failed") == []
    desk.lane.create("other", "x")
    locked = contextlib.ExitStack()
    with (
        at(
            WRITING,
            "Writer.intend",
            "before",
            lambda: locked.enter_context(desk.lane.store.writing()),
        ),
        locked,
        pytest.raises(TimeoutError),
    ):
        desk.look()
    desk.sync()
    assert (desk.folder / "other.md").exists()
    (desk.folder / "new.md").write_text("new\n", encoding="utf-8")
    desk.look()
    desk.now_s += 1
    with desk.lane.store.writing(), pytest.raises(TimeoutError):
        desk.look()
    desk.sync()
    assert desk.text("new") == "new"


def test_a_file_that_goes_by_itself_while_it_is_taken_out(desk):
    file = desk.make("plan", "one")
    desk.lane.delete("plan")
    with at("crdtmem.mirror.swapping", "SwapSide.retire", "before", file.unlink):
        desk.look()
    desk.wait(3)

    assert desk.rows("SELECT * FROM mirror_file") == []
    assert desk.swapped_out() == []
    assert desk.labels() == []


def test_what_is_no_file_any_more_is_not_taken_out(desk):
    file = desk.make("plan", "one")
    desk.lane.delete("plan")

    def replace():
        file.unlink()
        file.mkdir()

    with at("crdtmem.mirror.swapping", "SwapSide.retire", "before", replace):
        desk.look()

    assert file.is_dir()
    assert [one.reason for one in desk.mirror.status().blocked] == ["mirror-not-a-file"]


def test_a_slot_whose_file_could_not_be_made_may_be_deleted_meanwhile(desk):
    desk.lane.create("plan", "one")
    failure = failing(errno.ENOSPC)
    with at("crdtmem.mirror.swapping", "write_new", "before", failure, None):
        desk.sync()
    desk.lane.delete("plan")
    desk.wait(2)

    assert desk.mirror.status().blocked == ()
    assert list(desk.folder.glob("*.md")) == []


def test_a_new_file_that_cannot_be_read_waits(desk):
    append(desk.folder / "plan.md", "one\n")
    with at("crdtmem.mirror.reading", "_read", "before", failing(errno.EIO), None):
        desk.look()
    assert desk.labels() == []
    desk.wait(2)
    assert desk.text("plan") == "one"


@pytest.mark.requirement("mirror-26")
def test_an_append_to_the_file_of_a_deleted_slot_revives_it(desk):
    file = desk.make("plan", "one")
    with file.open("a", encoding="utf-8") as held:
        desk.lane.delete("plan")
        desk.look()
        assert not file.exists()
        held.write("late\n")
        held.flush()
        desk.wait(1)
        assert desk.text("plan") == "late"
        assert file.read_text(encoding="utf-8") == "late\n"
    desk.drain()


@pytest.mark.requirement("mirror-26")
def test_an_append_by_name_just_before_the_slot_is_deleted_revives_it(desk):
    file = desk.make("plan", "one")
    append(file, "late\n")
    desk.lane.delete("plan")
    desk.wait(1)

    assert desk.text("plan") == "late"
    assert file.read_text(encoding="utf-8") == "late\n"
