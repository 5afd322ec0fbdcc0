"""What a tool writes into a file goes into the slot, whole and once."""

import pytest

from crdtmem.errors import SlotQuarantinedError
from crdtmem.limits import RING_TEXTS
from crdtmem.mirror.importing import append_lines


def append(file, data):
    with file.open("ab", buffering=0) as opened:
        opened.write(data if isinstance(data, bytes) else data.encode())


def write(file, text):
    file.write_text(text, encoding="utf-8", newline="")


@pytest.mark.requirement("mirror-1")
def test_an_appended_line_is_in_the_slot_once_and_the_file_is_not_written(desk):
    file = desk.make("plan", "one")
    inode, rev = file.stat().st_ino, desk.rev("plan")

    append(file, "two\n")
    report = desk.sync()

    assert desk.text("plan") == "one\ntwo"
    assert (report.imported, report.written) == (1, 0)
    assert desk.rev("plan") == rev + 1
    assert file.stat().st_ino == inode
    assert desk.sync().imported == 0


def test_an_appended_line_is_the_mirrors_write_with_its_operation(desk):
    file = desk.make("plan", "one")
    append(file, "two\n")
    desk.sync()

    entry = desk.lane.slot("plan").history().entries[0]
    assert (entry.operation, entry.lane) == ("mirror", "mirror:host")


def test_an_append_goes_behind_what_others_appended_and_keeps_blank_lines(desk):
    file = desk.make("plan", "one\n\n")
    desk.lane.slot("plan").append("lane")
    append(file, "\ntool\n\n")
    desk.sync()

    assert desk.text("plan") == "one\n\nlane\n\ntool\n"


def test_lines_are_never_put_behind_a_text_without_an_end():
    assert append_lines("bare", "line\n") == ((4, 4, "\nline\n"),)
    assert append_lines("line\n", "line\n") == ((5, 5, "line\n"),)
    assert append_lines("", "line\n") == ((0, 0, "line\n"),)


@pytest.mark.requirement("mirror-2")
@pytest.mark.parametrize("lane_appends", [False, True])
def test_a_line_that_is_written_in_two_parts_is_one_line(desk, lane_appends):
    file = desk.make("plan", "one")
    append(file, "tw")
    desk.wait(0.5)
    assert desk.text("plan") == "one\ntw"
    if lane_appends:
        desk.lane.slot("plan").append("lane")
    desk.wait(0.5)
    append(file, "o\nthree\n")
    desk.wait(0.5)

    rest = "lane\nthree" if lane_appends else "three"
    assert sorted(desk.text("plan").split("\n")) == sorted(
        ["one", "two", *rest.split("\n")]
    )
    desk.wait(3)
    assert file.read_text(encoding="utf-8") == desk.text("plan") + "\n"


def test_an_unfinished_line_holds_up_writing_for_two_seconds_at_most(desk):
    file = desk.make("plan", "one")
    append(file, "tw")
    desk.wait(0.5)
    desk.lane.slot("plan").append("lane")
    desk.wait(1)
    assert file.read_text(encoding="utf-8") == "one\ntw"
    append(file, "o")
    desk.wait(0.5)
    assert desk.text("plan") == "one\ntwo\nlane"
    desk.wait(1.5)
    assert file.read_text(encoding="utf-8") == "one\ntwo\nlane\n"


@pytest.mark.requirement("mirror-3")
def test_a_character_that_is_written_in_two_parts_stays_whole(desk):
    file = desk.make("plan", "one")
    first, second = "é".encode()[:1], "é".encode()[1:]
    append(file, b"caf" + first)
    desk.wait(0.1)
    append(file, second + b"\n")
    desk.wait(0.1)
    assert desk.text("plan") == "one\ncafé"

    append(file, b"caf" + first)
    desk.wait(5)
    assert desk.mirror.status().blocked[0].reason == "source-encoding-invalid"
    append(file, second + b"\n")
    desk.wait(0.1)
    assert desk.text("plan") == "one\ncafé\ncafé"
    assert desk.mirror.status().blocked == ()


@pytest.mark.requirement("mirror-4")
def test_an_edit_of_a_line_joins_with_edits_of_others(either_desk):
    desk = either_desk
    lines = [f"line {number}" for number in range(12)]
    file = desk.make("plan", "\n".join(lines))
    write(file, "\n".join(["line 0", "line 1", "mine", *lines[3:]]) + "\n")
    desk.lane.slot("plan").edit("line 9", "theirs")
    desk.lane.slot("plan").append("last")
    desk.sync()

    lines[2], lines[9] = "mine", "theirs"
    assert desk.text("plan").split("\n") == [*lines, "last"]
    assert file.read_text(encoding="utf-8") == desk.text("plan") + "\n"


@pytest.mark.requirement("mirror-7")
def test_a_save_over_a_newer_file_keeps_what_was_added_meanwhile(desk):
    file = desk.make("plan", "one\ntwo")
    desk.lane.slot("plan").append("lane")
    desk.sync()
    assert file.read_text(encoding="utf-8") == "one\ntwo\nlane\n"

    write(file, "one\ntwo\ntool\n")
    desk.wait(1)
    assert sorted(desk.text("plan").split("\n")) == ["lane", "one", "tool", "two"]
    assert desk.events("mirror-stale-save") == ["mirror-stale-save"]
    assert "lane" in file.read_text(encoding="utf-8")

    write(file, "one\ntwo\ntool\n")
    desk.wait(1)
    assert desk.text("plan") == "one\ntwo\ntool"
    assert desk.events("mirror-stale-save") == ["mirror-stale-save"]


def test_a_second_save_of_an_old_text_that_has_more_keeps_the_lines_once_more(desk):
    file = desk.make("plan", "one")
    desk.lane.slot("plan").append("lane")
    desk.sync()
    write(file, "one\ntool\n")
    desk.wait(1)
    write(file, "one\ntool\nmore\n")
    desk.wait(1)

    assert sorted(desk.text("plan").split("\n")) == ["lane", "more", "one", "tool"]


@pytest.mark.requirement("mirror-8")
def test_a_line_that_a_lane_removed_stays_removed_by_a_stale_save(desk):
    file = desk.make("plan", "one\ntwo\nthree")
    desk.lane.slot("plan").edit("two\n", "")
    desk.sync()
    write(file, "one\ntwo\nthree\nfour\n")
    desk.wait(1)

    assert desk.text("plan") == "one\nthree\nfour"


def test_what_the_file_had_long_ago_is_no_base_any_more(desk):
    file = desk.make("plan", "one\ntwo")
    desk.lane.slot("plan").append("lane")
    desk.sync()
    desk.now_s += 601
    write(file, "one\ntwo\n")
    desk.wait(1)

    assert desk.text("plan") == "one\ntwo"
    assert desk.events("mirror-stale-save") == []


def test_no_more_texts_are_kept_than_are_compared(desk):
    desk.make("plan", "0")
    for number in range(RING_TEXTS + 5):
        desk.now_s += 1
        desk.lane.slot("plan").append(str(number))
        desk.sync()
    desk.drain()

    assert desk.rows("SELECT count(*) FROM mirror_text") == [(RING_TEXTS - 1,)]
    assert desk.rows("SELECT count(*) FROM pin") == [(RING_TEXTS,)]


@pytest.mark.requirement("mirror-9")
def test_a_file_that_is_no_utf8_is_left_alone_until_it_is_repaired(desk):
    file = desk.make("plan", "one")
    file.write_bytes(b"one\nbad \xff\n")
    desk.wait(1)
    desk.lane.slot("plan").append("lane")
    desk.wait(3)

    assert file.read_bytes() == b"one\nbad \xff\n"
    assert desk.text("plan") == "one\nlane"
    [blocked] = desk.sync().blocked
    assert (blocked.file, blocked.label) == ("plan.md", "plan")
    assert blocked.reason == "source-encoding-invalid"
    assert desk.events("source-encoding-invalid") == ["source-encoding-invalid"]
    problems = (desk.folder / "CRDTMEM-PROBLEMS.txt").read_text(encoding="utf-8")
    assert "plan.md: source-encoding-invalid" in problems

    write(file, "one\nrepaired\n")
    desk.wait(1)
    assert sorted(desk.text("plan").split("\n")) == ["lane", "one", "repaired"]
    assert not (desk.folder / "CRDTMEM-PROBLEMS.txt").exists()
    assert desk.rows("SELECT blocked FROM mirror_file") == [("",)]


def test_a_blocked_file_that_goes_back_to_what_it_was_is_blocked_no_more(desk):
    file = desk.make("plan", "one")
    file.write_bytes(b"\xff")
    desk.wait(1)
    assert desk.rows("SELECT blocked FROM mirror_file")[0][0]
    write(file, "one\n")
    desk.wait(1)

    assert desk.mirror.status().blocked == ()


@pytest.mark.requirement("mirror-10")
def test_marks_and_line_ends_of_a_file_stay_in_the_file(desk):
    file = desk.make("plan", "one\ntwo")
    rev = desk.rev("plan")
    file.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    desk.wait(1)
    assert desk.rev("plan") == rev

    desk.lane.slot("plan").append("three")
    desk.wait(1)
    assert file.read_bytes() == b"\xef\xbb\xbfone\r\ntwo\r\nthree\r\n"
    append(file, b"four\r\n")
    desk.wait(1)
    assert desk.text("plan") == "one\ntwo\nthree\nfour"


@pytest.mark.requirement("mirror-10")
def test_other_line_ends_are_text(desk):
    file = desk.make("plan", "one\ntwo")
    append(file, b"crlf\r\nlone\rcr\n")
    desk.wait(1)
    assert desk.text("plan") == "one\ntwo\ncrlf\r\nlone\rcr"

    file.write_bytes("one\n".encode("utf-16"))
    desk.wait(1)
    assert desk.mirror.status().blocked[0].reason == "source-encoding-invalid"


@pytest.mark.requirement("mirror-17")
def test_an_append_beyond_the_limit_waits_for_room(desk):
    file = desk.make("plan", "0123456789", size_limit=30)
    append(file, "abcdefghijklmnopqrstuvwxyz\n")
    report = desk.sync()
    assert desk.text("plan") == "0123456789"
    [blocked] = report.blocked
    assert (blocked.reason, blocked.free) == ("size-limit-exceeded", 20)

    desk.lane.slot("plan").replace("0")
    desk.sync()
    assert desk.text("plan") == "0\nabcdefghijklmnopqrstuvwxyz"
    assert file.read_text(encoding="utf-8") == desk.text("plan") + "\n"
    assert desk.mirror.status().blocked == ()


@pytest.mark.requirement("mirror-18")
def test_an_edit_of_a_read_only_slot_is_kept_elsewhere_and_the_file_restored(desk):
    file = desk.make("plan", "one", read_only=True)
    write(file, "two\n")
    desk.wait(1)

    assert desk.text("plan") == "one"
    assert file.read_text(encoding="utf-8") == "one\n"
    assert desk.rejected() == [b"two\n"]
    assert desk.events("mirror-rejected") == ["mirror-rejected"]


@pytest.mark.requirement("mirror-18")
def test_an_append_only_slot_takes_appends_and_nothing_else(desk):
    file = desk.make("plan", "one", append_only=True)
    append(file, "two\n")
    desk.wait(1)
    assert desk.text("plan") == "one\ntwo"

    write(file, "one\nTWO\n")
    desk.wait(1)
    assert desk.text("plan") == "one\ntwo"
    assert file.read_text(encoding="utf-8") == "one\ntwo\n"
    assert desk.rejected() == [b"one\nTWO\n"]


def test_an_emptied_file_of_a_read_only_slot_is_restored(desk):
    file = desk.make("plan", "one", read_only=True)
    file.write_bytes(b"")
    desk.wait(4)

    assert file.read_text(encoding="utf-8") == "one\n"
    assert desk.rejected() == []


def test_an_edit_of_a_quarantined_slot_waits(desk):
    file = desk.make("plan", "one")
    with desk.lane.store.writing() as transaction:
        transaction.connection.execute("UPDATE slot SET quarantined = 'x'")
    append(file, "two\n")
    report = desk.sync()

    assert [one.reason for one in report.blocked] == ["slot-quarantined"]
    with pytest.raises(SlotQuarantinedError):
        desk.lane.slot("plan").append("x")
    assert desk.text("plan") == "one"


@pytest.mark.requirement("mirror-31")
def test_a_file_that_was_edited_while_no_mirror_ran_is_merged_from_its_base(desk):
    file = desk.make("plan", "one\ntwo\nthree")
    desk.mirror.close()
    plan = desk.lane.slot("plan")
    for number in range(300):
        plan.append(f"lane {number}")
    plan.edit("three", "THREE")
    desk.lane.compact()
    write(file, "one\nTWO\nthree\n")
    desk.start()
    desk.sync()

    lines = desk.text("plan").split("\n")
    assert lines == ["one", "TWO", "THREE", *(f"lane {n}" for n in range(300))]
    assert file.read_text(encoding="utf-8") == desk.text("plan") + "\n"


@pytest.mark.requirement("mirror-33")
def test_an_edit_of_a_line_that_the_slot_has_lost_comes_back_on_its_own_line(desk):
    file = desk.make("plan", "head\nold one\nold two\ntail")
    write(file, "head\nold one\nold two, edited\ntail\n")
    desk.lane.slot("plan").replace("head\nsummary\ntail")
    desk.wait(1)

    assert sorted(desk.text("plan").split("\n")) == [
        "head",
        "old two, edited",
        "summary",
        "tail",
    ]


def test_a_line_that_both_sides_took_out_is_out(desk):
    file = desk.make("plan", "one\ntwo\nthree")
    rev = desk.rev("plan")
    desk.lane.slot("plan").edit("two\n", "")
    write(file, "one\nthree\n")
    desk.wait(1)

    assert desk.text("plan") == "one\nthree"
    assert desk.rev("plan") == rev + 1
    assert desk.sync().written == 0


def test_an_import_is_undone_like_any_write(desk):
    file = desk.make("plan", "one\ntwo")
    write(file, "one\nTWO\n")
    desk.wait(1)
    desk.lane.slot("plan").append("three")
    desk.lane.slot("plan").undo(desk.lane.slot("plan").history().entries[1].id)
    desk.sync()

    assert file.read_text(encoding="utf-8") == "one\ntwo\nthree\n"


def test_a_damaged_pin_leaves_the_two_texts_to_compare(desk):
    file = desk.make("plan", "one\ntwo")
    with desk.lane.store.writing() as transaction:
        transaction.connection.execute("UPDATE pin SET digest = x'00'")
    desk.lane.slot("plan").append("lane")
    write(file, "one\nTWO\n")
    desk.wait(1)

    assert desk.text("plan") == "one\nTWO\nlane"


@pytest.mark.requirement("mirror-11")
def test_a_file_that_is_empty_for_a_moment_empties_nothing(desk):
    file = desk.make("plan", "one")
    desk.lane.slot("plan").append("two")
    desk.sync()
    file.write_bytes(b"")
    desk.wait(1)
    write(file, "one\ntwo\nthree\n")
    desk.wait(3)

    assert desk.text("plan") == "one\ntwo\nthree"
    sizes = [entry.size for entry in desk.lane.slot("plan").history().entries]
    assert 0 not in sizes
    assert desk.events("mirror-emptied") == []


@pytest.mark.requirement("mirror-11")
def test_a_file_that_stays_empty_clears_its_slot(desk):
    file = desk.make("plan", "one")
    desk.lane.slot("plan").append("two")
    desk.sync()
    file.write_bytes(b"")
    desk.wait(3)

    assert desk.text("plan") == ""
    assert desk.events("mirror-emptied") == ["mirror-emptied"]
    assert file.read_bytes() == b""
    desk.lane.slot("plan").undo(desk.lane.slot("plan").history().entries[0].id)
    desk.sync()
    assert file.read_text(encoding="utf-8") == "one\ntwo\n"


def test_a_file_that_never_settles_is_taken_in_all_the_same(desk):
    file = desk.make("plan", "0")
    for number in range(120):
        write(file, f"{number} changes all the time\n")
        desk.wait(0.1)

    assert "changes" in desk.text("plan")


def test_a_file_without_an_end_is_as_good_as_one_with(desk):
    file = desk.make("plan", "one")
    file.write_bytes(b"one")
    report = desk.sync()
    assert (report.imported, report.written) == (0, 0)
    assert file.read_bytes() == b"one"
