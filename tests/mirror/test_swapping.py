"""crdtmem.mirror.swapping"""

import errno
import os
import stat
import threading

import pytest

from crdtmem.errors import UnreadableFileError
from crdtmem.mirror import swapping
from crdtmem.mirror.folder import STATE_NAME, MirrorFolder
from crdtmem.mirror.swapping import Recovered, Replaced, SwapSide, aside_name
from tests.conftest import PROFILE
from tests.killpoints import KillPoint, install
from tests.mirror.tools import Tool
from tests.scratch import scratch

SWAPS = {"default": 150, "campaign": 5_000}[PROFILE]
"""How often a file is replaced under a tool."""

LIMIT = 2**20
OLD = "7.old"


@pytest.fixture
def tmp_path():
    """A folder in memory: swaps wait for the disk time and again."""
    with scratch() as place:
        yield place


@pytest.fixture(params=[True, False], ids=["exchange", "move aside"])
def folder(request, tmp_path):
    with MirrorFolder.open(tmp_path, exchange=request.param) as folder:
        yield folder


@pytest.fixture
def aside(tmp_path):
    with MirrorFolder.open(tmp_path, exchange=False) as folder:
        yield folder


def swapped_name(folder, swap_name="7"):
    return swap_name if folder.can_exchange else aside_name(swap_name)


def at(point, action, side="before"):
    """Do something whenever a step of a swap is passed, until it is called off."""
    return install(KillPoint(swapping.__name__, f"SwapSide.{point}", side), action)


def held_by(folder):
    """What lies in swap/, by name."""
    return {
        name: folder.read_swap(name, limit_bytes=LIMIT)[0]
        for name in folder.swap_names()
    }


def test_a_swap_file_has_the_bytes_and_the_mode_asked_for(folder):
    found = folder.write_swap("7", b"new\n", 0o100640)

    assert found == folder.stat_swap("7").unsettled()
    assert (found.size, stat.S_IMODE(found.mode)) == (4, 0o640)
    assert held_by(folder) == {"7": b"new\n"}
    with pytest.raises(FileExistsError):
        folder.write_swap("7", b"other\n", 0o600)
    assert held_by(folder) == {"7": b"new\n"}


def test_a_replaced_file_lies_in_swap_whole_and_as_itself(folder, tmp_path):
    path = tmp_path / "a.md"
    path.write_bytes(b"old\n")
    old_ino = path.stat().st_ino
    written = folder.write_swap("7", b"new\n", 0o600)

    done = folder.replace("a.md", "7")

    assert done == Replaced(swapped_name(folder), is_placed=True)
    assert held_by(folder) == {done.swap_name: b"old\n"}
    assert folder.stat_swap(done.swap_name).ino == old_ino
    found = folder.stat("a.md")
    assert (found.ino, found.nlink, path.read_bytes()) == (written.ino, 1, b"new\n")


def test_what_a_tool_writes_to_a_replaced_file_is_read_there(folder, tmp_path):
    (tmp_path / "a.md").write_bytes(b"old\n")
    with open(tmp_path / "a.md", "ab", buffering=0) as tool:
        folder.write_swap("7", b"new\n", 0o600)
        done = folder.replace("a.md", "7")
        tool.write(b"late\n")

    data, found = folder.read_swap(done.swap_name, limit_bytes=LIMIT)
    assert (data, found.size) == (b"old\nlate\n", 9)
    with folder.open_swap(done.swap_name) as fd:
        assert os.read(fd, 100) == b"old\nlate\n"
    assert (tmp_path / "a.md").read_bytes() == b"new\n"


def test_a_file_renamed_over_the_old_one_just_before_is_the_one_kept(folder, tmp_path):
    (tmp_path / "a.md").write_bytes(b"old\n")
    (tmp_path / "b").write_bytes(b"saved\n")
    folder.write_swap("7", b"new\n", 0o600)
    name = "exchange" if folder.can_exchange else "move_aside"
    uninstall = at(name, lambda: (tmp_path / "b").rename(tmp_path / "a.md"))
    try:
        done = folder.replace("a.md", "7")
    finally:
        uninstall()

    assert held_by(folder) == {done.swap_name: b"saved\n"}
    assert (tmp_path / "a.md").read_bytes() == b"new\n"


def test_a_file_that_is_gone_is_not_replaced(folder):
    folder.write_swap("7", b"new\n", 0o600)

    with pytest.raises(FileNotFoundError):
        folder.replace("a.md", "7")

    assert folder.names() == [STATE_NAME]
    assert held_by(folder) == {"7": b"new\n"}


def test_without_a_swap_file_nothing_is_replaced(folder, tmp_path):
    (tmp_path / "a.md").write_bytes(b"old\n")

    with pytest.raises(FileNotFoundError):
        folder.replace("a.md", "7")

    assert (tmp_path / "a.md").read_bytes() == b"old\n"
    assert folder.swap_names() == []


def make_link(path):
    path.symlink_to("outside.txt")


def is_a_link(path):
    return path.is_symlink() and os.readlink(path) == "outside.txt"


def make_folder(path):
    path.mkdir()
    (path / "b.txt").write_bytes(b"b")


def is_a_folder(path):
    return [each.name for each in path.iterdir()] == ["b.txt"]


@pytest.mark.parametrize(
    ("make", "is_still"),
    [
        (make_link, is_a_link),
        (make_folder, is_a_folder),
        (os.mkfifo, lambda path: path.is_fifo()),
    ],
)
def test_what_is_no_file_is_put_back_under_its_name(folder, tmp_path, make, is_still):
    (tmp_path / "outside.txt").write_bytes(b"outside\n")
    make(tmp_path / "a.md")
    folder.write_swap("7", b"new\n", 0o600)

    for call, swap_name in ((folder.replace, "7"), (folder.retire, "8")):
        with pytest.raises(UnreadableFileError) as caught:
            call("a.md", swap_name)

        assert caught.value.code == "mirror-not-a-file"
        assert is_still(tmp_path / "a.md")
        assert held_by(folder) == {"7": b"new\n"}
    assert (tmp_path / "outside.txt").read_bytes() == b"outside\n"


def test_a_file_that_a_tool_makes_in_the_gap_is_left_alone(aside, tmp_path):
    path = tmp_path / "a.md"
    path.write_bytes(b"old\n")
    aside.write_swap("7", b"new\n", 0o600)
    uninstall = at("link_in", lambda: path.write_bytes(b"made in the gap\n"))
    try:
        done = aside.replace("a.md", "7")
    finally:
        uninstall()

    assert done == Replaced(OLD, is_placed=False)
    assert path.read_bytes() == b"made in the gap\n"
    assert held_by(aside) == {"7": b"new\n", OLD: b"old\n"}


def test_a_disk_that_refuses_in_the_gap_leaves_the_old_file_in_place(aside, tmp_path):
    (tmp_path / "a.md").write_bytes(b"old\n")
    aside.write_swap("7", b"new\n", 0o600)
    passed = []

    def refuse_once():
        passed.append(1)
        if len(passed) == 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    uninstall = at("link_in", refuse_once)
    try:
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            aside.replace("a.md", "7")
    finally:
        uninstall()

    assert (tmp_path / "a.md").read_bytes() == b"old\n"
    assert (tmp_path / "a.md").stat().st_nlink == 1
    assert held_by(aside) == {"7": b"new\n"}


def test_a_full_disk_leaves_no_swap_file(folder, tmp_path, monkeypatch):
    (tmp_path / "a.md").write_bytes(b"old\n")

    def refuse(fd, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", refuse)
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            folder.write_swap("7", b"new\n", 0o600)

    assert folder.swap_names() == []
    assert (tmp_path / "a.md").read_bytes() == b"old\n"


def test_a_new_file_takes_a_free_name_and_no_other(folder, tmp_path):
    folder.write_swap("7", b"new\n", 0o600)
    folder.create("a.md", "7")
    folder.write_swap("8", b"other\n", 0o600)

    with pytest.raises(FileExistsError):
        folder.create("a.md", "8")

    assert (tmp_path / "a.md").read_bytes() == b"new\n"
    assert (tmp_path / "a.md").stat().st_nlink == 1
    assert held_by(folder) == {"8": b"other\n"}


def test_a_retired_file_leaves_the_folder_for_swap(folder, tmp_path):
    (tmp_path / "a.md").write_bytes(b"old\n")
    folder.retire("a.md", "7")

    assert folder.stat("a.md") is None
    assert held_by(folder) == {"7": b"old\n"}


def test_a_file_is_not_retired_over_another(folder, tmp_path):
    (tmp_path / "a.md").write_bytes(b"old\n")
    folder.write_swap("7", b"kept\n", 0o600)

    with pytest.raises(FileExistsError):
        folder.retire("a.md", "7")
    with pytest.raises(FileNotFoundError):
        folder.retire("b.md", "8")

    assert (tmp_path / "a.md").read_bytes() == b"old\n"
    assert held_by(folder) == {"7": b"kept\n"}


def test_swap_names_are_removed_once_and_found_by_age(folder, tmp_path):
    for number, name in enumerate(["9", "8", "7"]):
        folder.write_swap(name, b"x", 0o600)
        place = tmp_path / STATE_NAME / "swap" / name
        os.utime(place, ns=(number, number))

    assert folder.leftovers({"8"}) == ["9", "7"]
    folder.unlink_swap("9")
    folder.unlink_swap("9")
    assert folder.leftovers(set()) == ["8", "7"]
    assert folder.stat_swap("9") is None
    with pytest.raises(FileNotFoundError):
        folder.read_swap("9", limit_bytes=LIMIT)


# What an interrupted swap leaves, by the step after which it stopped.


class Killed(BaseException):
    pass


def die():
    raise Killed


def interrupted(folder, call, point, side):
    """Do a call up to a point, as if the process was killed there."""
    uninstall = at(point, die, side)
    try:
        with pytest.raises(Killed):
            call()
    finally:
        uninstall()


@pytest.mark.parametrize(
    ("point", "side", "is_exchanged"),
    [("exchange", "before", False), ("exchange", "after", True)],
)
def test_an_interrupted_exchange_happened_or_did_not(
    tmp_path, point, side, is_exchanged
):
    with MirrorFolder.open(tmp_path, exchange=True) as folder:
        (tmp_path / "a.md").write_bytes(b"old\n")
        ino = folder.write_swap("7", b"new\n", 0o600).ino
        interrupted(folder, lambda: folder.replace("a.md", "7"), point, side)

        found = [folder.recover("a.md", "7", ino) for _ in range(2)]

        expected = Recovered("7" if is_exchanged else None, is_placed=is_exchanged)
        assert found == [expected] * 2
        assert (tmp_path / "a.md").read_bytes() == (
            b"new\n" if is_exchanged else b"old\n"
        )
        assert held_by(folder) == ({"7": b"old\n"} if is_exchanged else {})


def test_a_file_replaced_by_a_tool_after_an_interrupted_exchange_stays(tmp_path):
    with MirrorFolder.open(tmp_path, exchange=True) as folder:
        (tmp_path / "a.md").write_bytes(b"old\n")
        ino = folder.write_swap("7", b"new\n", 0o600).ino
        interrupted(folder, lambda: folder.replace("a.md", "7"), "sync", "before")
        (tmp_path / "b").write_bytes(b"saved\n")
        (tmp_path / "b").rename(tmp_path / "a.md")

        assert folder.recover("a.md", "7", ino) == Recovered("7", is_placed=True)
        assert (tmp_path / "a.md").read_bytes() == b"saved\n"
        assert held_by(folder) == {"7": b"old\n"}


@pytest.mark.parametrize(
    ("point", "side", "is_out"),
    [
        ("_rename_out", "before", False),
        ("_rename_out", "after", True),
        ("link_in", "after", True),
        ("unlink_swap", "after", True),
        ("sync", "before", True),
    ],
)
def test_an_interrupted_move_aside_is_brought_to_an_end(
    aside, tmp_path, point, side, is_out
):
    (tmp_path / "a.md").write_bytes(b"old\n")
    ino = aside.write_swap("7", b"new\n", 0o600).ino
    interrupted(aside, lambda: aside.replace("a.md", "7"), point, side)

    found = [aside.recover("a.md", "7", ino) for _ in range(2)]

    assert found == [Recovered(OLD if is_out else None, is_placed=is_out)] * 2
    assert (tmp_path / "a.md").read_bytes() == (b"new\n" if is_out else b"old\n")
    assert (tmp_path / "a.md").stat().st_nlink == 1
    assert held_by(aside) == ({OLD: b"old\n"} if is_out else {})


def test_a_file_made_by_a_tool_in_the_gap_of_a_dead_mirror_is_left_alone(
    aside, tmp_path
):
    (tmp_path / "a.md").write_bytes(b"old\n")
    ino = aside.write_swap("7", b"new\n", 0o600).ino
    interrupted(aside, lambda: aside.replace("a.md", "7"), "link_in", "before")
    (tmp_path / "a.md").write_bytes(b"made in the gap\n")

    for _ in range(2):
        assert aside.recover("a.md", "7", ino) == Recovered(OLD, is_placed=False)
    assert (tmp_path / "a.md").read_bytes() == b"made in the gap\n"
    assert held_by(aside) == {"7": b"new\n", OLD: b"old\n"}


@pytest.mark.parametrize(
    ("point", "side", "is_placed"),
    [
        ("link_in", "before", False),
        ("link_in", "after", True),
        ("unlink_swap", "after", True),
    ],
)
def test_an_interrupted_creation_happened_or_did_not(
    folder, tmp_path, point, side, is_placed
):
    ino = folder.write_swap("7", b"new\n", 0o600).ino
    interrupted(folder, lambda: folder.create("a.md", "7"), point, side)

    assert folder.recover("a.md", "7", ino) == Recovered(None, is_placed=is_placed)
    assert (tmp_path / "a.md").exists() == is_placed
    assert folder.swap_names() == []
    assert not is_placed or (tmp_path / "a.md").stat().st_nlink == 1


# Tools that write all the time.


@pytest.fixture(params=[True, False], ids=["exchange", "move aside"])
def busy(request, tmp_path):
    (tmp_path / "a.md").write_bytes(b"")
    with MirrorFolder.open(tmp_path, exchange=request.param) as folder:
        yield folder


def replace_often(folder):
    """Replace a file by an empty one again and again; return how often."""
    placed = 0
    for number in range(SWAPS):
        folder.write_swap(f"{number:05}", b"", 0o600)
        placed += folder.replace("a.md", f"{number:05}").is_placed
    return placed


@pytest.mark.process
@pytest.mark.parametrize("way", ["appends", "holds"])
def test_of_a_tool_that_appends_while_its_file_is_replaced_each_line_is_kept_once(
    busy, way
):
    with Tool(way, busy.path / "a.md") as tool:
        placed = replace_often(busy)
        written = tool.stop()

    assert placed > 0
    kept = [*held_by(busy).values(), busy.read("a.md")[0]]
    lines = [int(line) for data in kept for line in data.splitlines()]
    assert written > 0
    assert sorted(lines) == list(range(written))
    assert all(data.endswith(b"\n") for data in kept if data)


@pytest.mark.process
def test_each_file_that_a_tool_renames_over_a_replaced_one_is_kept(busy):
    with Tool("renames", busy.path / "a.md") as tool:
        replace_often(busy)
        written = tool.stop()

    kept = [*held_by(busy).values(), busy.read("a.md")[0]]
    lines = [int(line) for data in kept for line in data.splitlines()]
    assert written > 0
    assert sorted(lines) == list(range(written))


def test_a_reader_always_finds_the_whole_file_while_it_is_exchanged(tmp_path):
    texts = [b"a" * 5_000, b"b" * 5_000]
    path = tmp_path / "a.md"
    path.write_bytes(texts[0])
    seen, is_over = [], threading.Event()

    def read_often():
        while not is_over.is_set():
            seen.append(path.read_bytes())

    with MirrorFolder.open(tmp_path, exchange=True) as folder:
        reader = threading.Thread(target=read_often)
        reader.start()
        for number in range(SWAPS):
            folder.write_swap(str(number), texts[number % 2], 0o600)
            folder.replace("a.md", str(number))
        is_over.set()
        reader.join()

    assert seen
    assert set(seen) <= set(texts)


def test_nothing_is_changed_where_nothing_may_be(tmp_path):
    (tmp_path / "a.md").write_bytes(b"old\n")
    fd = os.open(tmp_path, os.O_RDONLY)
    side = SwapSide(fd, None, can_exchange=True)
    try:
        calls = [
            lambda: side.write_swap("7", b"new\n", 0o600),
            lambda: side.replace("a.md", "7"),
            lambda: side.retire("a.md", "7"),
            lambda: side.create("b.md", "7"),
            lambda: side.recover("a.md", "7", 1),
            lambda: side.unlink_swap("7"),
        ]
        for call in calls:
            with pytest.raises(RuntimeError, match="dry run"):
                call()
    finally:
        os.close(fd)

    assert side.swap_names() == []
    assert [path.name for path in tmp_path.iterdir()] == ["a.md"]
