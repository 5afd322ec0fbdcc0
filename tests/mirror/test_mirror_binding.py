"""Files and slots find each other, follow each other's names, and part."""

import contextlib
import os

import pytest

from crdtmem.limits import MIRROR_SIZE_UNITS
from crdtmem.mirror.mirror import Mirror
from tests.killpoints import KillPoint, install


def write(file, text):
    file.write_text(text, encoding="utf-8", newline="")


def settings(desk, label):
    view = desk.lane.slot(label).read()
    return view.size_limit, view.description


@pytest.mark.requirement("mirror-16")
def test_a_new_file_makes_a_slot(desk):
    write(desk.folder / "My Notes-1.md", "hello\n")
    report = desk.sync()

    assert desk.labels() == ["my_notes_1"]
    assert desk.text("my_notes_1") == "hello"
    assert settings(desk, "my_notes_1") == (MIRROR_SIZE_UNITS, "file: My Notes-1.md")
    assert (report.created, report.written, desk.rev("my_notes_1")) == (1, 0, 0)


def test_a_new_slot_makes_a_file_of_the_name_that_it_asks_for(desk):
    desk.lane.create("my_notes_1", "hello", description="file: My Notes-1.md")
    desk.lane.create("other", "x", description="file: ../x.md")
    report = desk.sync()

    assert report.written == 2
    assert (desk.folder / "My Notes-1.md").read_text(encoding="utf-8") == "hello\n"
    assert (desk.folder / "other.md").exists()
    assert (desk.folder / "other.md").stat().st_mode & 0o777 == 0o600


@pytest.mark.requirement("mirror-16")
def test_two_names_of_one_label_become_two_slots(desk):
    write(desk.folder / "my notes.md", "one\n")
    write(desk.folder / "My-Notes.md", "two\n")
    desk.sync()

    assert len(desk.labels()) == 2
    assert sorted(desk.text(label) for label in desk.labels()) == ["one", "two"]


def test_a_new_file_of_a_templates_label_makes_that_slot(desk):
    write(desk.folder / "guidance.md", "x" * 3_000 + "\n")
    desk.sync()

    assert len(desk.text("guidance")) == 3_000
    assert settings(desk, "guidance")[0] == MIRROR_SIZE_UNITS


def test_a_new_file_that_no_slot_can_hold_is_blocked(desk):
    write(desk.folder / "long.md", "x" * 100_001)
    report = desk.sync()

    assert desk.labels() == []
    assert [one.reason for one in report.blocked] == ["size-limit-exceeded"]
    desk.sync()
    assert desk.events("size-limit-exceeded") == ["size-limit-exceeded"]
    write(desk.folder / "long.md", "short\n")
    assert desk.sync().blocked == ()
    assert desk.text("long") == "short"


def test_an_empty_new_file_makes_an_empty_slot(desk):
    write(desk.folder / "empty.md", "")
    desk.sync()

    assert desk.text("empty") == ""
    desk.lane.slot("empty").append("x")
    desk.sync()
    assert (desk.folder / "empty.md").read_text(encoding="utf-8") == "x\n"


def test_without_create_new_files_make_no_slots(desk):
    desk.restart(create=False)
    write(desk.folder / "plan.md", "x\n")
    desk.sync()
    assert desk.labels() == []

    desk.lane.create("plan", "x")
    desk.sync()
    desk.lane.slot("plan").append("y")
    desk.sync()
    assert (desk.folder / "plan.md").read_text(encoding="utf-8") == "x\ny\n"


@pytest.mark.requirement("mirror-25")
@pytest.mark.parametrize(
    ("slot", "file", "expected"),
    [
        ("one\ntwo", "one\ntwo\n", "one\ntwo"),
        ("one\ntwo", "three\nfour\n", "one\ntwo\nthree\nfour"),
        ("one\ntwo\nthree", "one\nmine\nthree\n", "one\nmine\ntwo\nthree"),
        ("one\ntwo", "two\none\n", "one\ntwo"),
        ("", "one\n", "one"),
        ("one", "", "one"),
    ],
)
def test_first_contact_loses_no_line_and_doubles_none(desk, slot, file, expected):
    desk.lane.create("plan", slot)
    write(desk.folder / "plan.md", file)
    desk.sync()

    found = desk.text("plan").split("\n")
    assert sorted(found) == sorted(expected.split("\n"))
    assert (desk.folder / "plan.md").read_text(encoding="utf-8") == (
        desk.text("plan") + "\n"
    )


@pytest.mark.requirement("mirror-25")
def test_an_older_text_of_the_slot_is_overwritten(desk):
    desk.lane.create("plan", "one\ntwo")
    desk.lane.slot("plan").edit("two", "TWO")
    rev = desk.rev("plan")
    write(desk.folder / "plan.md", "one\ntwo\n")
    report = desk.sync()

    assert (report.imported, report.written) == (0, 1)
    assert desk.rev("plan") == rev
    assert (desk.folder / "plan.md").read_text(encoding="utf-8") == "one\nTWO\n"


def test_first_contact_with_a_slot_that_takes_no_writes(desk):
    desk.lane.create("plan", "one", read_only=True)
    write(desk.folder / "plan.md", "two\n")
    desk.sync()

    assert desk.text("plan") == "one"
    assert (desk.folder / "plan.md").read_text(encoding="utf-8") == "one\n"
    assert desk.rejected() == [b"two\n"]


def test_first_contact_extends_an_append_only_slot(desk):
    desk.lane.create("plan", "one", append_only=True)
    write(desk.folder / "plan.md", "one\ntwo\n")
    desk.sync()

    assert desk.text("plan") == "one\ntwo"


def test_a_file_of_a_deleted_slot_makes_it_anew(desk):
    desk.lane.create("plan", "old", size_limit=5)
    desk.lane.delete("plan")
    write(desk.folder / "plan.md", "longer than it was\n")
    desk.sync()

    assert desk.text("plan") == "longer than it was"
    assert settings(desk, "plan")[0] == MIRROR_SIZE_UNITS


def test_an_empty_file_of_a_deleted_slot_goes(desk):
    desk.lane.create("plan", "old")
    desk.lane.delete("plan")
    write(desk.folder / "plan.md", "")
    desk.sync()

    assert desk.labels() == []
    assert not (desk.folder / "plan.md").exists()


@pytest.mark.requirement("mirror-12")
def test_a_file_that_is_gone_takes_its_slot_along_and_comes_back_by_undo(desk):
    for number in range(20):
        desk.lane.create(f"note_{number:02}", f"text {number}")
    desk.sync()
    file = desk.folder / "note_07.md"
    file.unlink()
    desk.wait(1)
    assert "note_07" in desk.labels()
    desk.wait(2)
    assert "note_07" not in desk.labels()

    slot = desk.lane.slot("note_07")
    slot.undo(slot.history().entries[0].id)
    desk.sync()
    assert file.read_text(encoding="utf-8") == "text 7\n"


@pytest.mark.requirement("mirror-12")
def test_too_many_files_that_are_gone_delete_nothing(desk):
    for number in range(20):
        desk.lane.create(f"note_{number:02}", f"text {number}")
    desk.sync()
    contents = {}
    for number in range(10):
        file = desk.folder / f"note_{number:02}.md"
        contents[file] = file.read_bytes()
        file.unlink()
    report = desk.sync()
    desk.wait(5)

    assert len(desk.labels()) == 20
    assert {one.reason for one in report.blocked} == {"mirror-mass-deletion"}
    assert len(report.blocked) == 10
    assert desk.events("mirror-mass-deletion") == ["mirror-mass-deletion"]

    for file, content in contents.items():
        file.write_bytes(content)
    assert desk.sync().blocked == ()
    assert len(desk.labels()) == 20


def test_with_restore_a_file_that_is_gone_is_written_again(desk):
    desk.restart(on_delete="restore")
    file = desk.make("plan", "one")
    file.unlink()
    report = desk.sync()

    assert report.deleted == 0
    assert file.read_text(encoding="utf-8") == "one\n"


def test_a_read_only_slot_is_not_deleted_with_its_file(desk):
    file = desk.make("plan", "one", read_only=True)
    file.unlink()
    desk.sync()

    assert desk.text("plan") == "one"
    assert file.exists()


def test_a_quarantined_slot_is_not_deleted_with_its_file(desk):
    file = desk.make("plan", "one")
    with desk.lane.store.writing() as transaction:
        transaction.connection.execute("UPDATE slot SET quarantined = 'x'")
    file.unlink()
    report = desk.sync()

    assert [one.reason for one in report.blocked] == ["slot-quarantined"]
    assert desk.text("plan") == "one"


def test_what_a_file_has_never_shown_is_not_deleted_with_it(desk):
    file = desk.make("plan", "one\ntwo")
    file.unlink()
    desk.look()
    desk.lane.slot("plan").append("unseen")
    desk.wait(3)

    assert desk.text("plan") == "unseen"
    assert file.read_text(encoding="utf-8") == "unseen\n"


def test_a_slot_that_was_deleted_on_both_sides_stays_deleted(desk):
    file = desk.make("plan", "one")
    file.unlink()
    desk.look()
    desk.lane.delete("plan")
    desk.wait(3)

    assert desk.labels() == []
    assert not file.exists()
    assert desk.rows("SELECT * FROM mirror_file") == []
    assert desk.rows("SELECT * FROM pin") == []


@pytest.mark.requirement("mirror-13")
def test_a_renamed_file_renames_its_slot(desk):
    file = desk.make("a", "one", description="what it is", pinned=False)
    file.rename(desk.folder / "b.md")
    desk.look()

    assert desk.labels() == ["b"]
    view = desk.lane.slot("b").read()
    assert (view.content, view.description, view.pinned) == ("one", "what it is", False)
    assert desk.events("mirror-renamed") == ["mirror-renamed"]
    with (desk.folder / "b.md").open("a", encoding="utf-8") as opened:
        opened.write("two\n")
    desk.sync()
    assert desk.text("b") == "one\ntwo"
    assert desk.labels() == ["b"]


def test_a_file_that_is_renamed_and_edited_brings_both_along(desk):
    file = desk.make("a", "one\ntwo")
    desk.lane.slot("a").append("three")
    desk.sync()
    new = desk.folder / "New Name.md"
    file.rename(new)
    write(new, "ONE\ntwo\nthree\n")
    desk.sync()

    assert desk.labels() == ["new_name"]
    assert desk.text("new_name") == "ONE\ntwo\nthree"
    assert settings(desk, "new_name")[1] == "file: New Name.md"
    new.rename(desk.folder / "plain.md")
    desk.sync()
    assert settings(desk, "plain")[1] == ""


def test_a_file_that_is_renamed_to_a_deleted_slots_name_makes_that_anew(desk):
    desk.lane.create("b", "gone")
    desk.lane.delete("b")
    file = desk.make("a", "one")
    file.rename(desk.folder / "b.md")
    desk.sync()

    assert desk.labels() == ["b"]
    assert desk.text("b") == "one"


@pytest.mark.requirement("mirror-13")
def test_a_file_that_is_renamed_over_another_replaces_its_text(desk):
    a, c = desk.make("a", "one"), desk.make("c", "two\nthree")
    a.rename(c)
    desk.sync()

    assert desk.labels() == ["c"]
    assert desk.text("c") == "one"


@pytest.mark.requirement("mirror-13")
def test_a_file_that_is_renamed_to_another_kind_is_gone(desk):
    file = desk.make("a", "one")
    file.rename(desk.folder / "a.txt")
    desk.sync()

    assert desk.labels() == []


@pytest.mark.requirement("mirror-13")
def test_a_name_that_changes_only_its_case_keeps_its_slot(desk):
    file = desk.make("a", "one")
    file.rename(desk.folder / "A.md")
    desk.sync()

    assert desk.labels() == ["a"]
    desk.lane.slot("a").append("two")
    desk.sync()
    assert (desk.folder / "A.md").read_text(encoding="utf-8") == "one\ntwo\n"
    assert sorted(path.name for path in desk.folder.glob("*.md")) == ["A.md"]


def test_a_read_only_slot_is_not_renamed(desk):
    file = desk.make("a", "one", read_only=True)
    file.rename(desk.folder / "b.md")
    desk.sync()

    assert desk.labels() == ["a", "b"]
    assert file.read_text(encoding="utf-8") == "one\n"


def test_a_file_is_not_renamed_to_a_live_slots_label(desk):
    desk.restart(labels=("a", "c"))
    file = desk.make("a", "one")
    desk.lane.create("b", "two")
    file.rename(desk.folder / "b.md")
    desk.sync()

    assert desk.labels() == ["b"]
    assert desk.text("b") == "two"


def test_a_new_file_with_the_number_of_an_old_one_is_no_renamed_file(desk):
    a = desk.make("a", "one")
    write(desk.folder / "b.md", "two\n")
    number = (desk.folder / "b.md").stat().st_ino
    with desk.lane.store.writing() as transaction:
        transaction.connection.execute(
            "UPDATE mirror_file SET ino = :ino", {"ino": number}
        )
    desk.sync()

    assert desk.labels() == ["a", "b"]
    assert a.exists()


def test_a_renamed_file_meets_the_slot_that_has_its_new_label(desk):
    file = desk.make("a", "one")
    desk.lane.create("b", "two")
    file.rename(desk.folder / "b.md")
    desk.sync()

    assert desk.labels() == ["b"]
    assert sorted(desk.text("b").split("\n")) == ["one", "two"]


def test_a_file_that_is_renamed_while_a_swap_of_it_is_unfinished_is_renamed(desk):
    file = desk.make("a", "one")
    desk.lane.slot("a").append("two")
    desk.mirror._session.store.busy_timeout_s = 0
    locked = contextlib.ExitStack()

    def fail():
        locked.enter_context(desk.lane.store.writing())
        raise OSError("the disk does not answer")

    point = KillPoint("crdtmem.mirror.writing", "Writer.exchange", "before")
    uninstall = install(point, fail, nth=1)
    with locked, pytest.raises(TimeoutError):
        desk.look()
    uninstall()
    file.rename(desk.folder / "b.md")
    desk.sync()

    assert desk.labels() == ["b"]
    assert desk.text("b") == "one\ntwo"
    assert desk.swapped_out() == [] or desk.drain() is None


def test_a_slot_meets_a_file_of_which_no_event_has_told(desk):
    desk.sync()
    write(desk.folder / "plan.md", "file\n")
    desk.lane.create("plan", "slot")
    for _ in range(4):
        desk.mirror.cycle(desk.now_s)
        desk.now_s += 1

    assert sorted(desk.text("plan").split("\n")) == ["file", "slot"]
    assert [path.name for path in desk.folder.glob("*.md")] == ["plan.md"]


@pytest.mark.requirement("mirror-14")
def test_what_is_no_plain_file_is_neither_followed_nor_replaced(desk, tmp_path):
    outside = tmp_path / "outside.md"
    write(outside, "secret\n")
    for name in ("link", "folder", "pipe", "hard"):
        desk.lane.create(name, "text")
    (desk.folder / "link.md").symlink_to(outside)
    (desk.folder / "folder.md").mkdir()
    os.mkfifo(desk.folder / "pipe.md")
    os.link(outside, desk.folder / "hard.md")
    report = desk.sync()

    assert {(one.file, one.reason) for one in report.blocked} == {
        ("link.md", "mirror-not-a-file"),
        ("folder.md", "mirror-not-a-file"),
        ("pipe.md", "mirror-not-a-file"),
        ("hard.md", "mirror-hard-link"),
    }
    assert outside.read_text(encoding="utf-8") == "secret\n"
    assert desk.text("link") == "text"


@pytest.mark.requirement("mirror-14")
def test_a_bound_file_that_becomes_a_link_is_left_alone(desk, tmp_path):
    file = desk.make("plan", "one")
    outside = tmp_path / "outside.md"
    write(outside, "secret\n")
    file.unlink()
    file.symlink_to(outside)
    desk.lane.slot("plan").append("two")
    report = desk.sync()

    assert [one.reason for one in report.blocked] == ["mirror-not-a-file"]
    assert file.is_symlink()
    assert desk.text("plan") == "one\ntwo"
    assert outside.read_text(encoding="utf-8") == "secret\n"


@pytest.mark.requirement("mirror-15")
def test_labels_that_are_none_and_reserved_names(desk):
    desk.lane.create("con", "one")
    desk.lane.create("good", "two", description="file: ../../evil.md")
    with desk.lane.store.writing() as transaction:
        transaction.connection.execute(
            "UPDATE slot SET label = '../x' WHERE label = 'good'"
        )
    desk.sync()
    desk.lane.create("last", "three")
    desk.sync()
    desk.mirror._lsn = 0
    desk.sync()

    names = sorted(path.name for path in desk.folder.glob("*.md"))
    assert names == ["con-slot.md", "last.md"]
    assert desk.events("mirror-bad-label") == ["mirror-bad-label"]


def test_conflict_copies_are_told_of_once_and_not_taken_in(desk):
    write(desk.folder / "a.sync-conflict-20260101-1.md", "x\n")
    desk.sync()
    desk.sync()

    assert desk.labels() == []
    assert desk.events("mirror-conflict-copy") == ["mirror-conflict-copy"]


def test_only_labels_that_match_are_mirrored(desk):
    desk.restart(labels=("plan_*",))
    desk.lane.create("plan_a", "one")
    desk.lane.create("other", "two")
    write(desk.folder / "plan_b.md", "three\n")
    write(desk.folder / "strange.md", "four\n")
    desk.sync()

    assert desk.labels() == ["other", "plan_a", "plan_b"]
    assert not (desk.folder / "other.md").exists()


def test_a_new_file_that_goes_on_changing_is_bound_in_the_end(desk):
    for number in range(110):
        write(desk.folder / "busy.md", f"{number}\n")
        desk.wait(0.1)

    assert desk.labels() == ["busy"]


def test_a_new_file_that_goes_again_leaves_nothing(desk):
    file = desk.folder / "short.md"
    write(file, "x\n")
    desk.look()
    file.unlink()
    desk.sync()

    assert desk.labels() == []


def test_a_slot_waits_for_the_file_of_its_name_that_is_just_coming(desk):
    write(desk.folder / "plan.md", "file\n")
    desk.look()
    desk.lane.create("plan", "slot")
    desk.look()
    assert sorted(path.name for path in desk.folder.glob("*.md")) == ["plan.md"]
    desk.sync()
    assert sorted(desk.text("plan").split("\n")) == ["file", "slot"]


def test_two_machines_make_one_slot_of_one_file(desk, tmp_path):
    other = desk.open_lane("other", "second")
    folder = tmp_path / "second notes"
    folder.mkdir()
    for place in (desk.folder, folder):
        write(place / "plan.md", "same\ntext\n")
    desk.sync()
    with Mirror(other, folder) as mirror:
        mirror.sync_once()

    def content(memory):
        with memory.store.reading() as connection:
            return connection.execute(
                "SELECT content FROM log WHERE is_genesis"
            ).fetchall()

    assert content(desk.lane) == content(other) != []
