import errno
import os
import stat

import pytest

from crdtmem.errors import (
    InvalidArgumentError,
    PermissionDeniedError,
    StoreBusyError,
    StoreFullError,
)
from crdtmem.store.whole_file import new_file, replaced_file

KINDS = pytest.mark.parametrize("whole_file", [new_file, replaced_file])


def fill(part, text="whole"):
    part.write_text(text, encoding="utf-8")


@KINDS
def test_a_file_appears_under_its_name_when_the_block_ends(tmp_path, whole_file):
    target = tmp_path / "f"

    with whole_file(target) as part:
        fill(part)
        before = target.exists()

    assert not before
    assert target.read_text(encoding="utf-8") == "whole"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["f"]


@KINDS
def test_a_block_that_raises_leaves_nothing(tmp_path, whole_file):
    with pytest.raises(KeyError), whole_file(tmp_path / "f") as part:
        fill(part)
        fill(part.with_name(f"{part.name}-journal"))
        raise KeyError

    assert os.listdir(tmp_path) == []


@KINDS
@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, StoreFullError),
        (errno.EROFS, PermissionDeniedError),
        (errno.EIO, InvalidArgumentError),
    ],
)
def test_what_the_system_says_is_told_in_our_words(tmp_path, whole_file, number, kind):
    target = tmp_path / "f"

    with pytest.raises(kind) as caught, whole_file(target):
        raise OSError(number, os.strerror(number))

    assert type(caught.value) is kind
    assert str(target) in caught.value.message
    assert os.listdir(tmp_path) == []


@KINDS
def test_an_error_of_ours_passes_as_it_is(tmp_path, whole_file):
    error = StoreBusyError(path="p", pid=None, command=None, waited_s=0)

    with pytest.raises(StoreBusyError) as caught, whole_file(tmp_path / "f"):
        raise error

    assert caught.value is error


@KINDS
def test_a_missing_folder_is_a_bad_argument(tmp_path, whole_file):
    with pytest.raises(InvalidArgumentError, match="folder of target does") as caught:
        whole_file(tmp_path / "no" / "f").__enter__()

    assert caught.value.details == {"argument": "target"}


@KINDS
def test_a_name_that_the_system_refuses_is_a_bad_argument(tmp_path, whole_file):
    with pytest.raises(InvalidArgumentError, match="cannot be written"):
        whole_file(tmp_path / ("x" * 300)).__enter__()

    assert os.listdir(tmp_path) == []


def test_a_new_file_replaces_nothing(tmp_path):
    target = tmp_path / "f"
    fill(target, "theirs")

    with pytest.raises(InvalidArgumentError, match=f"exists already: {target}"):
        new_file(target).__enter__()

    assert target.read_text(encoding="utf-8") == "theirs"


def test_a_new_file_replaces_nothing_that_came_meanwhile(tmp_path):
    target = tmp_path / "f"

    with (
        pytest.raises(InvalidArgumentError, match="exists already"),
        new_file(target) as part,
    ):
        fill(part, "mine")
        fill(target, "theirs")

    assert target.read_text(encoding="utf-8") == "theirs"
    assert os.listdir(tmp_path) == ["f"]


def test_a_disk_without_hard_links_takes_a_new_file_too(tmp_path):
    def refuse(_, __):
        raise PermissionError(errno.EPERM, "not permitted")

    with new_file(tmp_path / "f", link=refuse) as part:
        fill(part)

    assert os.listdir(tmp_path) == ["f"]


def test_a_replaced_file_is_the_old_one_until_the_new_one_is_whole(tmp_path):
    target = tmp_path / "f"
    fill(target, "old")
    target.chmod(0o644)

    with replaced_file(target) as part:
        fill(part, "new")
        before = target.read_text(encoding="utf-8")

    assert (before, target.read_text(encoding="utf-8")) == ("old", "new")
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_what_a_link_names_is_replaced_and_the_link_stays(tmp_path):
    link = tmp_path / "link"
    fill(tmp_path / "f", "old")
    link.symlink_to("f")

    with replaced_file(link) as part:
        fill(part, "new")

    assert link.is_symlink()
    assert (tmp_path / "f").read_text(encoding="utf-8") == "new"


def test_a_folder_is_not_replaced(tmp_path):
    with pytest.raises(InvalidArgumentError, match="no regular file"):
        replaced_file(tmp_path).__enter__()
