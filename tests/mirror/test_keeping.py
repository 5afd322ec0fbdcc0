"""crdtmem.mirror.keeping"""

import errno
import json
import os

import pytest

from crdtmem.limits import REJECTED_BYTES, REJECTED_FILES
from crdtmem.mirror import keeping
from crdtmem.mirror.keeping import (
    PROBLEMS_NAME,
    keep_problems,
    keep_rejected,
    keep_state,
)
from crdtmem.mirror.syscalls import FOLDER_FLAGS
from tests.killpoints import KillPoint, install
from tests.scratch import scratch

AT_MS = 1_767_225_599_999
UTC = "20251231T235959Z"


@pytest.fixture
def place():
    with scratch() as place:
        (place / "state").mkdir()
        yield place


@pytest.fixture
def folder_fd(place):
    fd = os.open(place, FOLDER_FLAGS)
    yield fd
    os.close(fd)


@pytest.fixture
def state_fd(place):
    fd = os.open(place / "state", FOLDER_FLAGS)
    yield fd
    os.close(fd)


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_is_rejected_is_kept_under_a_name_that_tells_when_and_what(
    place, state_fd
):
    names = [
        keep_rejected(state_fd, "plan", b"one\n", AT_MS),
        keep_rejected(state_fd, "todo", b"two\xff\n", AT_MS),
        keep_rejected(state_fd, "plan", b"three\n", AT_MS + 1),
    ]

    assert names == [
        f"{UTC}-plan-1.md",
        f"{UTC}-todo-2.md",
        "20260101T000000Z-plan-1.md",
    ]
    assert [(place / "state" / name).read_bytes() for name in names] == [
        b"one\n",
        b"two\xff\n",
        b"three\n",
    ]


def test_no_label_leads_out_of_the_folder_of_rejected_texts(place, state_fd):
    with pytest.raises(ValueError, match="not the name of one file"):
        keep_rejected(state_fd, "../x", b"one\n", AT_MS)

    assert names_in(place / "state") == []


def test_of_the_rejected_texts_the_newest_are_kept(place, state_fd):
    (place / "state" / "notes.md").write_bytes(b"a person's own")
    names = [
        keep_rejected(state_fd, "plan", b"x", AT_MS) for _ in range(REJECTED_FILES + 3)
    ]

    assert set(names_in(place / "state")) == {"notes.md", *names[3:]}


def test_rejected_texts_take_no_more_room_than_they_may(place, state_fd):
    half = REJECTED_BYTES // 2
    names = [
        keep_rejected(state_fd, "plan", b"x" * size, AT_MS + 1_000 * number)
        for number, size in enumerate([1, half, half])
    ]
    assert names_in(place / "state") == names[1:]

    # Whatever its size, the new one stays.
    newest = keep_rejected(state_fd, "plan", b"x" * (REJECTED_BYTES + 1), AT_MS + 4_000)
    assert names_in(place / "state") == [newest]


def test_a_file_of_state_is_replaced_whole(place, state_fd):
    # Left by a process that was killed.
    (place / "state" / "status.json.new").write_bytes(b"{")
    keep_state(state_fd, "status.json", {"files": 1})
    keep_state(state_fd, "status.json", {"files": 2, "label": "é"})

    assert names_in(place / "state") == ["status.json"]
    assert json.loads((place / "state" / "status.json").read_bytes()) == {
        "files": 2,
        "label": "é",
    }


def test_a_file_of_state_that_cannot_be_written_stays_as_it_was(
    place, state_fd, monkeypatch
):
    keep_state(state_fd, "status.json", {"files": 1})

    def refuse(fd, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", refuse)
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            keep_state(state_fd, "status.json", {"files": 2})

    assert names_in(place / "state") == ["status.json"]
    assert json.loads((place / "state" / "status.json").read_bytes()) == {"files": 1}


def test_problems_are_shown_while_there_are_any(place, folder_fd, state_fd):
    path = place / PROBLEMS_NAME
    shown = []
    for text in ("a.md: not UTF-8", "a.md: not UTF-8", "b.md: too large\n"):
        assert keep_problems(folder_fd, state_fd, text)
        shown.append(path.read_text(encoding="utf-8").split("\n\n")[0])
    first_ino = path.stat().st_ino
    assert keep_problems(folder_fd, state_fd, "b.md: too large\n")

    assert shown == ["a.md: not UTF-8", "a.md: not UTF-8", "b.md: too large"]
    assert path.stat().st_ino == first_ino
    assert keep_problems(folder_fd, state_fd, None)
    assert keep_problems(folder_fd, state_fd, None)
    assert names_in(place) == ["state"]
    assert names_in(place / "state") == []


def others(path):
    path.write_bytes(b"my own problems\n")


def edited(path):
    path.write_bytes(path.read_bytes().replace(b"a.md", b"A.md"))


def noted(path):
    with open(path, "ab") as file:
        file.write(b"to do: repair it\n")


def linked(path):
    path.unlink()
    path.symlink_to("elsewhere")


@pytest.mark.parametrize("change", [others, edited, noted, linked])
def test_a_file_that_somebody_else_has_written_to_is_left_alone(
    place, folder_fd, state_fd, change
):
    path = place / PROBLEMS_NAME
    keep_problems(folder_fd, state_fd, "a.md: not UTF-8")
    change(path)
    before = os.lstat(path)

    assert not keep_problems(folder_fd, state_fd, "b.md: too large")
    assert not keep_problems(folder_fd, state_fd, None)

    assert (os.lstat(path).st_ino, os.lstat(path).st_mtime_ns) == (
        before.st_ino,
        before.st_mtime_ns,
    )
    assert names_in(place / "state") == []


@pytest.mark.parametrize("change", [others, linked])
def test_a_file_that_somebody_writes_to_just_now_is_put_back(
    place, folder_fd, state_fd, change
):
    path = place / PROBLEMS_NAME
    keep_problems(folder_fd, state_fd, "a.md: not UTF-8")
    seen = []

    def interfere():
        change(path)
        seen.append(os.lstat(path).st_ino)

    uninstall = install(KillPoint(keeping.__name__, "_take_away", "before"), interfere)
    try:
        assert not keep_problems(folder_fd, state_fd, None)
    finally:
        uninstall()

    assert os.lstat(path).st_ino == seen[0]
    assert names_in(place / "state") == []


def test_a_file_that_somebody_makes_just_now_is_left_alone(place, folder_fd, state_fd):
    path = place / PROBLEMS_NAME
    point = KillPoint(keeping.__name__, "_place", "before")
    uninstall = install(point, lambda: others(path))
    try:
        assert not keep_problems(folder_fd, state_fd, "a.md: not UTF-8")
    finally:
        uninstall()

    assert path.read_bytes() == b"my own problems\n"
    assert names_in(place / "state") == []
