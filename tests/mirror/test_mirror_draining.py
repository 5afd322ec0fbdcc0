"""Files that were swapped out are kept, and read, while anybody can write to them."""

import contextlib
import errno
import os

import pytest

from tests.killpoints import KillPoint, install, replace_function

DRAINING = "crdtmem.mirror.draining"


def swap(desk, text):
    """Have the file swapped, by a line of somebody's."""
    desk.lane.slot("plan").append(text)
    desk.now_s += 1
    desk.look()


@contextlib.contextmanager
def without_leases():
    def denied(*_):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    restore = replace_function("crdtmem.mirror.leases", "set_lease", denied)
    try:
        yield
    finally:
        restore()


@pytest.mark.requirement("mirror-22")
def test_a_swapped_out_file_stays_until_its_writer_has_closed_it(either_desk):
    desk = either_desk
    file = desk.make("plan", "0")
    with file.open("ab", buffering=0) as held:
        for number in range(50):
            held.write(f"held {number}\n".encode())
            swap(desk, f"lane {number}")
        desk.wait(10, 0.5)
        held.write(b"last\n")
        assert len(desk.swapped_out()) == 1
        desk.look()
        assert "last" in desk.text("plan")
    desk.drain()

    lines = desk.text("plan").split("\n")
    assert [line for line in lines if line.startswith("held")] == [
        f"held {number}" for number in range(50)
    ]
    assert len(lines) == len(set(lines)) == 102
    assert file.read_text(encoding="utf-8") == desk.text("plan") + "\n"
    assert desk.rows("SELECT * FROM mirror_retired") == []


def test_a_swapped_out_file_is_dropped_after_two_seconds_not_before(desk):
    desk.make("plan", "one")
    swap(desk, "two")
    desk.wait(1.5)
    assert len(desk.swapped_out()) == 1
    desk.wait(1)
    assert desk.swapped_out() == []


def test_a_mirror_that_is_run_now_and_then_drops_what_an_earlier_run_left(desk):
    desk.make("plan", "one")
    desk.lane.slot("plan").append("two")
    assert desk.sync().retired == 1
    desk.now_s += 60
    desk.restart()

    assert desk.sync().retired == 0
    assert desk.swapped_out() == []


def test_a_line_that_is_written_to_an_old_file_in_two_parts_is_one_line(desk):
    file = desk.make("plan", "one")
    with file.open("ab", buffering=0) as held:
        swap(desk, "lane")
        held.write(b"in tw")
        desk.wait(1)
        held.write(b"o parts\nand more\n")
        desk.wait(1)

    assert sorted(desk.text("plan").split("\n")) == [
        "and more",
        "in two parts",
        "lane",
        "one",
    ]


def test_a_character_that_is_written_to_an_old_file_in_two_parts_stays_whole(desk):
    file = desk.make("plan", "one")
    with file.open("ab", buffering=0) as held:
        swap(desk, "lane")
        held.write("é\n".encode()[:1])
        desk.wait(1)
        [blocked] = desk.mirror.status().blocked
        assert (blocked.file, blocked.reason) == ("plan.md", "source-encoding-invalid")
        held.write("é\n".encode()[1:])
        desk.wait(1)

    assert desk.text("plan") == "one\nlane\né"
    assert desk.mirror.status().blocked == ()


def test_what_will_never_be_a_text_is_kept_elsewhere(desk):
    file = desk.make("plan", "one")
    with file.open("ab", buffering=0) as held:
        swap(desk, "lane")
        held.write(b"good\n\xff\xfe\n")
        desk.wait(5)
        assert len(desk.swapped_out()) == 1
    desk.drain()

    assert b"\xff\xfe" in b"".join(desk.rejected())
    assert desk.mirror.status().blocked == ()


def test_late_lines_that_a_slot_does_not_take_are_kept_elsewhere(desk):
    file = desk.make("plan", "one")
    with file.open("ab", buffering=0) as held:
        swap(desk, "lane")
        desk.lane.slot("plan").set_meta(read_only=True)
        held.write(b"late\n")
        desk.wait(1)

    assert desk.text("plan") == "one\nlane"
    assert desk.rejected() == [b"late\n"]
    desk.drain()


@pytest.mark.requirement("mirror-17")
def test_late_lines_beyond_the_limit_wait_and_so_does_what_came_after_them(desk):
    file = desk.make("plan", "0123456789", size_limit=40)
    with file.open("ab", buffering=0) as held:
        swap(desk, "lane")
        held.write(b"abcdefghijklmnopqrstuvwxyz\n")
        desk.wait(1)
    with file.open("ab") as opened:
        opened.write(b"next\n")
    desk.wait(5)
    assert desk.text("plan") == "0123456789\nlane"
    assert {one.reason for one in desk.mirror.status().blocked} == {
        "size-limit-exceeded"
    }
    assert len(desk.swapped_out()) == 1

    desk.lane.slot("plan").replace("0")
    desk.wait(1)
    assert desk.text("plan") == "0\nabcdefghijklmnopqrstuvwxyz\nnext"
    desk.drain()


def test_an_old_file_that_is_rewritten_while_it_is_open_is_taken_in_when_it_is_quiet(
    desk,
):
    file = desk.make("plan", "one\ntwo")
    with file.open("r+b", buffering=0) as held:
        swap(desk, "lane")
        held.truncate(0)
        desk.wait(1)
        held.write(b"one\nTWO\n")
        desk.wait(1)
        assert desk.text("plan") == "one\ntwo\nlane"
        with file.open("r+b") as opened:
            opened.write(b"ONE")
        desk.wait(0.75)
        assert desk.text("plan") == "one\ntwo\nlane"
        desk.wait(2)
        assert desk.text("plan") == "ONE\nTWO\nlane"
    desk.drain()
    assert file.read_text(encoding="utf-8") == "ONE\nTWO\nlane\n"


@pytest.mark.requirement("mirror-23")
def test_without_leases_an_old_file_is_kept_for_a_day(desk):
    file = desk.make("plan", "one")
    with without_leases():
        with file.open("ab", buffering=0) as held:
            swap(desk, "lane")
            desk.wait(5)
            held.write(b"late\n")
            desk.wait(1)
        assert desk.text("plan") == "one\nlane\nlate"
        desk.wait(10)
        assert len(desk.swapped_out()) == 2
        for name in desk.swapped_out():
            os.utime(desk.swap / name, (0, 0))
        desk.now_s += 86_401
        desk.look()
        assert desk.swapped_out() == []
    assert desk.events("mirror-retired-dropped") == ["mirror-retired-dropped"] * 2


@pytest.mark.requirement("mirror-23")
def test_without_leases_no_more_than_so_many_old_files_are_kept(desk):
    desk.make("plan", "0")
    with without_leases():
        for number in range(70):
            swap(desk, f"lane {number}")
        desk.wait(3)
        assert len(desk.swapped_out()) <= 64


@pytest.mark.requirement("mirror-24")
def test_who_opens_a_file_while_it_is_read_for_the_last_time_only_waits(desk):
    file = desk.make("plan", "one")
    swap(desk, "two")
    old = desk.swap / desk.swapped_out()[0]

    def open_it():
        with pytest.raises(BlockingIOError):
            os.open(old, os.O_WRONLY | os.O_NONBLOCK)

    uninstall = install(KillPoint(DRAINING, "Drain.remove", "before"), open_it, nth=1)
    desk.drain()
    uninstall()
    assert file.read_text(encoding="utf-8") == "one\ntwo\n"


def test_people_are_told_who_writes_to_a_large_old_file(desk, monkeypatch):
    monkeypatch.setattr(f"{DRAINING}.RETIRED_BYTES", 10)
    file = desk.make("plan", "0123456789")
    with file.open("ab", buffering=0) as held:
        swap(desk, "lane")
        held.write(b"late\n")
        desk.wait(1)
        held.write(b"later\n")
        desk.wait(1)

    details = desk.rows("SELECT details FROM event WHERE kind = 'mirror-retired-large'")
    # Once for each of them, and nobody has the later ones open.
    assert [str(os.getpid()) in text for (text,) in details] == [True, False, False]


def test_an_old_file_that_cannot_be_read_waits(desk):
    file = desk.make("plan", "one")

    def fail():
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with file.open("ab", buffering=0) as held:
        swap(desk, "lane")
        held.write(b"late\n")
        uninstall = install(KillPoint(DRAINING, "Drain._read", "before"), fail)
        desk.look()
        uninstall()
        assert desk.text("plan") == "one\nlane"
        desk.wait(2)
    assert desk.text("plan") == "one\nlane\nlate"


def test_a_store_that_is_busy_is_no_fault_of_an_old_file(desk):
    file = desk.make("plan", "one")
    with file.open("ab", buffering=0) as held:
        swap(desk, "lane")
        held.write(b"late\n")
        desk.mirror._session.store.busy_timeout_s = 0
        with desk.lane.store.writing(), pytest.raises(TimeoutError):
            desk.look()
        desk.look()
    assert desk.text("plan") == "one\nlane\nlate"
