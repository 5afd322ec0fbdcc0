"""A mirror as a whole: what it makes of a folder, what it tells, what it costs."""

import asyncio
import shutil

import pytest

import crdtmem
from crdtmem.errors import (
    InvalidArgumentError,
    MirrorBusyError,
    MirrorNotFoundError,
    StoreReadOnlyError,
)
from crdtmem.limits import INDEX_BYTES, INDEX_LINES, MIRROR_POLL_S
from crdtmem.mirror.mirror import Mirror
from crdtmem.mirror.registry import forget, statuses
from tests.conformance.slots import rows_of
from tests.killpoints import KillPoint, install


def write(file, text):
    file.write_text(text, encoding="utf-8", newline="")


def tree(folder):
    return {
        path.relative_to(folder): path.read_bytes() if path.is_file() else b""
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"scope": "x"}, "scope"),
        ({"labels": "plan"}, "labels"),
        ({"labels": (1,)}, "labels"),
        ({"profile": "x"}, "profile"),
        ({"on_delete": "x"}, "on_delete"),
        ({"create": 1}, "create"),
        ({"dry_run": 1}, "dry_run"),
    ],
)
def test_malformed_arguments_are_refused(desk, tmp_path, options, argument):
    before = tree(tmp_path)
    with pytest.raises(InvalidArgumentError) as caught:
        Mirror(desk.lane, desk.folder, **options)
    assert argument in str(caught.value)
    assert tree(tmp_path) == before


def test_a_folder_that_is_not_there_is_refused(desk, tmp_path):
    with pytest.raises(InvalidArgumentError) as caught:
        Mirror(desk.lane, tmp_path / "none")
    assert str(tmp_path / "none") in str(caught.value)


def test_a_store_that_is_only_read_is_not_mirrored(desk, tmp_path):
    folder = tmp_path / "other"
    folder.mkdir()
    memory = crdtmem.open(desk.lane.path, lane="x", project="p", read_only=True)
    with memory, pytest.raises(StoreReadOnlyError):
        Mirror(memory, folder)


@pytest.mark.requirement("mirror-20")
def test_a_folder_has_one_mirror_at_a_time(desk):
    with pytest.raises(MirrorBusyError) as caught:
        Mirror(desk.lane, desk.folder)
    assert str(desk.folder) in str(caught.value)


@pytest.mark.requirement("mirror-20")
def test_a_copied_folder_is_another_mirror(desk, tmp_path):
    desk.make("plan", "one")
    copy = tmp_path / "copy"
    shutil.copytree(desk.folder, copy)
    with Mirror(desk.open_lane("second"), copy) as mirror:
        mirror.sync_once()
        assert mirror.status().mirror != desk.mirror.status().mirror
        write(copy / "plan.md", "one\ntwo\n")
        mirror.sync_once()
    desk.sync()

    assert desk.labels() == ["plan"]
    assert (desk.folder / "plan.md").read_text(encoding="utf-8") == "one\ntwo\n"
    assert len(statuses(desk.lane.store)) == 2


@pytest.mark.requirement("mirror-20")
def test_a_moved_folder_goes_on(desk, tmp_path):
    file = desk.make("plan", "one\ntwo")
    before = desk.mirror.status().mirror
    desk.mirror.close()
    moved = tmp_path / "moved"
    desk.folder.rename(moved)
    write(moved / file.name, "one\nTWO\n")
    desk.lane.slot("plan").append("three")
    desk.folder = moved
    desk.start()
    desk.sync()

    assert desk.mirror.status().mirror == before
    assert desk.text("plan") == "one\nTWO\nthree"
    [status] = statuses(desk.lane.store)
    assert (status.folder, status.is_running) == (str(moved), True)


@pytest.mark.requirement("mirror-20")
def test_a_folder_that_was_moved_to_another_disk_goes_on(desk, tmp_path):
    file = desk.make("plan", "one")
    before = desk.mirror.status().mirror
    desk.mirror.close()
    shutil.copytree(desk.folder, tmp_path / "moved")
    shutil.rmtree(desk.folder)
    desk.folder = tmp_path / "moved"
    write(desk.folder / file.name, "one\ntwo\n")
    desk.start()
    desk.sync()

    assert desk.mirror.status().mirror == before
    assert desk.text("plan") == "one\ntwo"


@pytest.mark.requirement("mirror-19")
def test_two_folders_of_one_slot_converge_and_then_write_nothing(desk, tmp_path):
    folder = tmp_path / "second notes"
    folder.mkdir()
    desk.make("plan", "one\ntwo\nthree")
    memory = desk.open_lane("second")
    settings = {"clock": lambda: desk.now_s, "wait": desk._pass}
    with Mirror(memory, folder, **settings) as second:
        second.sync_once()
        write(desk.folder / "plan.md", "ONE\ntwo\nthree\nfour\n")
        write(folder / "plan.md", "one\ntwo\nTHREE\n")
        written = []
        for _ in range(4):
            desk.now_s += 1
            written.append(desk.sync().written + second.sync_once().written)
        assert written[-2:] == [0, 0]

    assert desk.text("plan") == "ONE\ntwo\nTHREE\nfour"
    for place in (desk.folder, folder):
        text = (place / "plan.md").read_text(encoding="utf-8")
        assert text == desk.text("plan") + "\n"


def test_slots_of_other_namespaces_are_nothing_to_a_mirror(desk):
    desk.make("plan", "one")
    desk.lane.create("note", "elsewhere", scope="global")
    desk.sync()

    assert not (desk.folder / "note.md").exists()


def test_lanes_that_write_all_the_time_do_not_keep_a_pass_from_ending(desk):
    file = desk.make("plan", "one")
    plan = desk.lane.slot("plan")
    point = KillPoint("crdtmem.mirror.mirror", "Mirror.cycle", "after")
    uninstall = install(point, lambda: plan.append("more"))
    try:
        desk.sync()
    finally:
        uninstall()
    desk.sync()
    assert file.read_text(encoding="utf-8") == desk.text("plan") + "\n"


def test_a_folder_without_what_a_mirror_keeps_is_met_for_the_first_time(desk):
    file = desk.make("plan", "one")
    desk.mirror.close()
    shutil.rmtree(desk.folder / ".crdtmem-mirror")
    write(file, "one\ntwo\n")
    desk.start()
    desk.sync()

    assert desk.text("plan") == "one\ntwo"
    assert len(statuses(desk.lane.store)) == 1
    assert desk.rows("SELECT count(*) FROM pin") == [(1,)]


def test_a_folder_of_another_store_is_met_for_the_first_time(desk):
    desk.make("plan", "one")
    desk.mirror.close()
    other = desk.open_lane("other", "second")
    with Mirror(other, desk.folder) as mirror:
        mirror.sync_once()
        assert other.slot("plan").read().content == "one"


def test_a_folder_mirrors_one_namespace(desk):
    with pytest.raises(InvalidArgumentError) as caught:
        desk.restart(scope="global")
    assert "'p'" in str(caught.value)
    assert "'global'" in str(caught.value)


@pytest.mark.requirement("mirror-14")
def test_a_folder_may_be_reached_by_a_link(desk, tmp_path):
    desk.mirror.close()
    link = tmp_path / "link"
    link.symlink_to(desk.folder)
    desk.folder = link
    desk.start()
    desk.make("plan", "one")

    assert desk.mirror.folder == (tmp_path / "notes")
    assert (tmp_path / "notes" / "plan.md").exists()


@pytest.mark.requirement("mirror-12")
@pytest.mark.parametrize("what", ["state", "folder"])
def test_a_folder_that_is_gone_deletes_nothing(desk, what):
    for number in range(3):
        desk.make(f"note_{number}", "text")
    gone = desk.folder / ".crdtmem-mirror" if what == "state" else desk.folder
    shutil.rmtree(gone)
    report = desk.sync()
    desk.mirror.cycle(desk.now_s + 100)

    assert len(desk.labels()) == 3
    assert [one.reason for one in report.blocked] == ["mirror-mass-deletion"]
    assert desk.events("mirror-mass-deletion") == ["mirror-mass-deletion"]


@pytest.mark.requirement("mirror-12")
def test_a_folder_that_is_moved_away_and_back_goes_on(desk, tmp_path):
    file = desk.make("plan", "one")
    desk.folder.rename(tmp_path / "away")
    assert desk.sync().blocked != ()
    (tmp_path / "away").rename(desk.folder)
    write(file, "one\ntwo\n")
    assert desk.sync().blocked == ()
    assert desk.text("plan") == "one\ntwo"


@pytest.mark.requirement("mirror-32")
def test_a_dry_run_writes_nothing(desk):
    file = desk.make("plan", "one")
    gone = desk.make("gone", "one")
    desk.make("same", "same")
    desk.make("full", "full")
    desk.make("dead", "dead")
    desk.mirror.close()
    write(file, "one\ntwo\n")
    write(desk.folder / "new.md", "new\n")
    write(desk.folder / "known.md", "file\n")
    write(desk.folder / "odd.txt", "x")
    (desk.folder / "bad.md").write_bytes(b"\xff")
    desk.lane.create("known", "slot")
    desk.lane.create("unseen", "slot")
    desk.lane.create("equal", "equal")
    write(desk.folder / "equal.md", "equal\n")
    desk.lane.slot("full").append("more")
    desk.lane.delete("dead")
    gone.unlink()
    before = tree(desk.folder), rows_of(desk.lane.path)
    mirror = desk.start(dry_run=True)
    report = mirror.sync_once()
    mirror.close()

    assert report.dry_run is True
    assert (report.imported, report.written) == (2, 2)
    assert (report.created, report.deleted) == (1, 1)
    assert [one.file for one in report.blocked] == ["bad.md"]
    assert (tree(desk.folder), rows_of(desk.lane.path)) == before


def test_a_dry_run_of_a_folder_that_was_never_mirrored(desk, tmp_path):
    folder = tmp_path / "fresh"
    folder.mkdir()
    write(folder / "plan.md", "x\n")
    write(folder / "other.md", "x\n")
    with Mirror(
        desk.lane, folder, dry_run=True, labels=("p*",), on_delete="restore"
    ) as mirror:
        report = mirror.sync_once()

    assert (report.created, report.imported) == (1, 0)
    assert sorted(path.name for path in folder.iterdir()) == ["other.md", "plan.md"]


@pytest.mark.requirement("mirror-32")
def test_forgetting_a_mirror_leaves_its_files(desk):
    file = desk.make("plan", "one")
    desk.lane.slot("plan").append("two")
    desk.sync()
    with pytest.raises(MirrorBusyError):
        forget(desk.lane.store, desk.folder)
    desk.mirror.close()
    forget(desk.lane.store, desk.folder)

    assert file.read_text(encoding="utf-8") == "one\ntwo\n"
    assert desk.text("plan") == "one\ntwo"
    tables = ("mirror", "mirror_file", "mirror_retired", "mirror_text", "pin")
    assert [desk.rows(f"SELECT * FROM {table}") for table in tables] == [[]] * 5
    with pytest.raises(MirrorNotFoundError):
        forget(desk.lane.store, desk.folder)


def test_a_mirror_whose_folder_is_gone_is_forgotten(desk):
    desk.make("plan", "one")
    desk.mirror.close()
    shutil.rmtree(desk.folder)
    forget(desk.lane.store, desk.folder)

    assert statuses(desk.lane.store) == ()


@pytest.mark.requirement("mirror-32")
def test_a_start_reads_each_file_once(desk):
    count = 60
    for number in range(count):
        desk.lane.create(f"note_{number}", f"text {number}")
    desk.sync()
    reads = 0

    def read():
        nonlocal reads
        reads += 1

    uninstall = install(
        KillPoint("crdtmem.mirror.reading", "read_plain", "before"), read
    )
    try:
        desk.restart()
        desk.sync()
    finally:
        uninstall()
    # CRDTMEM-PROBLEMS.txt is looked at when a mirror ends, and when one has begun.
    assert reads == count + 2


def test_without_events_a_cycle_looks_at_no_file(desk):
    desk.make("plan", "one")
    desk.wait(3)
    looks = []
    uninstall = install(
        KillPoint("crdtmem.mirror.folder", "MirrorFolder.stat", "before"),
        lambda: looks.append(1),
    )
    try:
        pause_s = desk.mirror.cycle(desk.now_s + 1)
    finally:
        uninstall()
    assert looks == []
    assert pause_s == MIRROR_POLL_S


def test_a_cycle_tells_when_to_come_again(desk):
    file = desk.make("plan", "one")
    desk.wait(3)
    write(file, "two\n")
    desk.mirror.note_events({"plan.md", ".crdtmem-mirror/swap/x", "other.txt"})
    assert 0 < desk.mirror.cycle(desk.now_s) <= MIRROR_POLL_S
    desk.now_s += 0.3
    desk.mirror.note_events(None)
    desk.mirror.note_events({"plan.md"})
    desk.mirror.cycle(desk.now_s)
    assert desk.text("plan") == "two"


def test_the_status_tells_how_things_stand(desk):
    file = desk.make("plan", "one")
    file.write_bytes(b"\xff")
    desk.sync()
    status = desk.mirror.status()
    [known] = statuses(desk.lane.store)

    assert (status.folder, status.scope, status.namespace) == (
        str(desk.folder),
        "project",
        "p",
    )
    assert (status.files, status.retired, status.is_running) == (1, 0, True)
    assert known == status
    shown = desk.folder / ".crdtmem-mirror" / "status.json"
    assert '"reason": "source-encoding-invalid"' in shown.read_text(encoding="utf-8")
    assert '"isRunning": true' in shown.read_text(encoding="utf-8")

    desk.mirror.close()
    assert '"isRunning": false' in shown.read_text(encoding="utf-8")
    [known] = statuses(desk.lane.store)
    assert (known.is_running, known.pid) == (False, None)
    shutil.rmtree(desk.folder)
    assert statuses(desk.lane.store)[0].is_running is False


def test_a_holder_that_has_not_written_its_name_runs_all_the_same(desk):
    write(desk.folder / ".crdtmem-mirror" / "lock", "")
    [known] = statuses(desk.lane.store)

    assert (known.is_running, known.pid) == (True, None)


async def test_a_mirror_runs_until_it_is_told_to_stop(desk, tmp_path):
    desk.lane.create("plan", "one")
    folder = tmp_path / "other"
    folder.mkdir()
    stop = asyncio.Event()
    stop.set()
    with Mirror(desk.lane, folder) as mirror:
        assert all(place.is_dir() for place in mirror.watched)
        await mirror.run(stop)

    assert (folder / "plan.md").read_text(encoding="utf-8") == "one\n"


def test_closing_twice_is_closing_once(desk):
    with desk.mirror as mirror:
        mirror.close()
    mirror.close()


@pytest.mark.requirement("mirror-15")
def test_a_store_that_was_put_back_is_looked_at_as_a_whole(desk):
    desk.make("plan", "one")
    desk.lane.slot("plan").append("two")
    desk.sync()
    desk.mirror._lsn = 1 << 40
    desk.lane.slot("plan").append("three")
    desk.sync()

    assert "three" in (desk.folder / "plan.md").read_text(encoding="utf-8")


@pytest.mark.requirement("mirror-29")
def test_the_index_links_the_slots_and_stays_out_of_the_text(desk):
    desk.restart(profile="claude")
    for number in range(220):
        desk.lane.create(f"note_{number:03}", "x", description="what it is about")
    desk.sync()
    index = desk.folder / "MEMORY.md"
    text = index.read_text(encoding="utf-8")
    assert text.count("\n") <= INDEX_LINES
    assert len(text.encode()) <= INDEX_BYTES
    assert "](note_" in text
    assert desk.text("memory") == ""

    lines = text.split("\n")
    inside = [*lines[:3], "- remember this", *lines[3:-1], "behind it", ""]
    write(index, "\n".join(inside))
    desk.wait(1)
    assert sorted(desk.text("memory").split("\n")) == ["- remember this", "behind it"]
    desk.wait(1)
    assert index.read_text(encoding="utf-8").startswith("- remember this\nbehind it\n")


def test_the_index_follows_the_slots(desk):
    write(desk.folder / "MEMORY.md", "# Memory\n")
    write(desk.folder / "memory.md", "another\n")
    desk.restart(profile="claude", labels=("memory*", "note_*"))
    desk.sync()
    assert desk.text("memory") == "# Memory"
    desk.lane.create("note_a", "x")
    desk.wait(1)
    assert "(note_a.md)" in (desk.folder / "MEMORY.md").read_text(encoding="utf-8")
    (desk.folder / "note_a.md").unlink()
    desk.wait(3)
    assert "note_a" not in (desk.folder / "MEMORY.md").read_text(encoding="utf-8")


def test_an_index_whose_slot_a_lane_makes_just_now_is_made_once(desk):
    desk.restart(profile="claude")
    point = KillPoint("crdtmem.mirror.binding", "Binder.make", "before")
    uninstall = install(point, lambda: desk.lane.create("memory", "lane"), nth=1)
    desk.sync()
    uninstall()

    assert (desk.folder / "MEMORY.md").read_text(encoding="utf-8") == "lane\n"


def test_an_index_whose_slot_was_deleted_is_not_made_again(desk):
    desk.restart(profile="claude")
    desk.sync()
    desk.lane.delete("memory")
    desk.sync()

    assert not (desk.folder / "MEMORY.md").exists()


def test_an_index_that_is_not_mirrored_is_not_made(desk):
    desk.restart(profile="claude", labels=("note_*",))
    desk.make("note_a", "x")

    assert not (desk.folder / "MEMORY.md").exists()


def test_people_are_told_that_a_text_is_longer_than_its_tool_reads(desk):
    desk.restart(profile="claude")
    desk.sync()
    desk.lane.slot("memory").set_meta(size_limit=100_000)
    desk.lane.slot("memory").append("\n".join(f"line {n}" for n in range(250)))
    desk.wait(1)
    desk.lane.slot("memory").append("more")
    desk.wait(1)

    assert desk.events("mirror-index-cap") == ["mirror-index-cap"]
