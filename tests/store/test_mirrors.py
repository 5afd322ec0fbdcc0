"""What mirrors know of their files is kept, and their pins go with the last user."""

import pytest

from crdtmem.store.mirrors import (
    FileRow,
    Intent,
    MirrorRow,
    RetiredRow,
    add_retired,
    add_text,
    blocked_files,
    delete_file,
    delete_mirror,
    delete_retired,
    files_of,
    find_file,
    find_file_of_inode,
    find_mirror,
    let_pin_go,
    mirrors_of,
    pending_files,
    prune_texts,
    rename_file,
    require_file,
    require_retired,
    retired_of,
    save_file,
    save_mirror,
    save_retired,
    texts_of,
)
from crdtmem.store.pins import find_pin, make_pin
from tests.scenarios import opened

MIRROR = MirrorRow("m", "p", "/notes", 1, 2, 3)


@pytest.fixture
def store(tmp_path):
    with opened(str(tmp_path / "store.db")) as memory:
        memory.create("plan", "one")
        yield memory.store


@pytest.fixture
def write(store):
    with store.writing() as transaction:
        save_mirror(transaction.connection, MIRROR)
        yield transaction


@pytest.fixture
def connection(write):
    return write.connection


@pytest.fixture
def pin(write):
    """Return new pins of the slot."""
    return lambda: make_pin(write.connection, write.slot("p", "plan"), 0)


def file_row(pin, **values):
    return FileRow("m", "plan.md", "plan", base=b"one\n", pin=pin, **values)


def retired_row(pin, **values):
    row = RetiredRow(0, "m", "s1", "plan.md", "plan", 1, 2, 0, "verbatim", b"", pin, 5)
    return row._replace(**values)


def test_a_mirror_is_kept_and_moved(connection):
    moved = MIRROR._replace(folder="/moved", dev=8, ino=9)
    save_mirror(connection, moved)

    assert find_mirror(connection, "m") == moved
    assert find_mirror(connection, "x") is None
    assert mirrors_of(connection) == [moved]


def test_a_file_is_kept_with_its_swap(connection, pin):
    row = file_row(pin(), dev=1, ino=2, size=3, mtime_ns=4, ctime_ns=5, is_stale=1)
    row = row._replace(intent=Intent("s", 7, 1, "crlf", pin(), b"two\n"))
    save_file(connection, row)

    assert find_file(connection, "m", "plan.md") == row
    assert require_file(connection, "m", "plan.md") == row
    assert find_file_of_inode(connection, "m", 1, 2) == row
    assert find_file_of_inode(connection, "m", 2, 2) is None
    assert files_of(connection, "m") == [row]

    changed = row._replace(base=b"x", intent=None, blocked="why", blocked_by="what")
    save_file(connection, changed)
    assert files_of(connection, "m") == [changed]


def test_a_file_that_is_not_bound_is_no_file(connection):
    assert find_file(connection, "m", "plan.md") is None
    with pytest.raises(LookupError, match=r"'plan\.md' is bound to no slot"):
        require_file(connection, "m", "plan.md")
    with pytest.raises(LookupError, match="5 is no file that was swapped out"):
        require_retired(connection, 5)


def test_no_two_files_are_bound_to_one_slot(connection, pin):
    save_file(connection, file_row(pin()))
    with pytest.raises(Exception, match="UNIQUE"):
        save_file(connection, file_row(pin())._replace(name="other.md"))


def test_who_condenses_learns_which_files_are_blocked_and_how_all_were(connection, pin):
    assert blocked_files(connection, "p", "plan") == []
    assert pending_files(connection, "p", "plan") == []
    row = file_row(pin(), dev=1, ino=2, size=3, mtime_ns=4, ctime_ns=5)
    save_file(connection, row)
    assert blocked_files(connection, "p", "plan") == []
    assert pending_files(connection, "p", "plan") == [("/notes/plan.md", (2, 3, 4, 5))]

    save_file(connection, row._replace(blocked="source-encoding-invalid"))
    assert blocked_files(connection, "p", "plan") == [
        ("/notes/plan.md", "source-encoding-invalid")
    ]
    assert blocked_files(connection, "global", "plan") == []
    assert pending_files(connection, "p", "other") == []


def test_older_texts_of_a_file_are_kept_newest_first_and_pruned(connection, pin):
    pins = [pin() for _ in range(4)]
    for number, each in enumerate(pins):
        add_text(connection, file_row(each, is_stale=1), f"text {number}", number)
    add_text(connection, retired_row(pin()), "late", 9)

    found = texts_of(connection, "m", "plan.md")
    assert [text.text for text in found] == [
        "late",
        "text 3",
        "text 2",
        "text 1",
        "text 0",
    ]
    assert [text.is_stale for text in found] == [0, 1, 1, 1, 1]

    prune_texts(connection, "m", "plan.md", keep=3, since_ms=0)
    assert len(texts_of(connection, "m", "plan.md")) == 3
    prune_texts(connection, "m", "plan.md", keep=3, since_ms=3)
    assert [text.at_ms for text in texts_of(connection, "m", "plan.md")] == [9, 3]
    assert [find_pin(connection, each) is None for each in pins] == [True] * 3 + [False]


def test_a_swapped_out_file_is_kept_and_changed(connection, pin):
    number = add_retired(connection, retired_row(pin()))
    add_retired(connection, retired_row(pin(), swap_name="s2", name="other.md"))
    row = require_retired(connection, number)
    assert row == retired_row(row.pin, number=number)
    assert [each.swap_name for each in retired_of(connection, "m")] == ["s1", "s2"]

    changed = row._replace(base=b"x", bom=1, eol="crlf", pin=pin())
    save_retired(connection, changed)
    assert require_retired(connection, number) == changed
    delete_retired(connection, changed)
    assert [each.swap_name for each in retired_of(connection, "m")] == ["s2"]
    assert find_pin(connection, changed.pin) is None


def test_a_shared_pin_goes_with_the_last_who_needs_it(connection, pin):
    shared = pin()
    row = file_row(shared)
    save_file(connection, row)
    add_text(connection, row, "text", 0)
    number = add_retired(connection, retired_row(shared))
    let_pin_go(connection, shared)
    delete_file(connection, row)
    assert find_pin(connection, shared) is not None
    assert texts_of(connection, "m", "plan.md") == []

    delete_retired(connection, require_retired(connection, number))
    assert find_pin(connection, shared) is None


def test_a_renamed_file_takes_all_that_is_known_of_it_along(connection, pin):
    first, second = pin(), pin()
    row = file_row(first)
    save_file(connection, row)
    add_text(connection, file_row(pin()), "text", 0)
    add_retired(connection, retired_row(pin()))
    rename_file(connection, row, "new.md", "new", second)

    assert files_of(connection, "m") == [
        row._replace(name="new.md", label="new", pin=second)
    ]
    assert len(texts_of(connection, "m", "new.md")) == 1
    [retired] = retired_of(connection, "m")
    assert retired.label == "new"
    assert find_pin(connection, first) is None
    rename_file(connection, files_of(connection, "m")[0], "n2.md", "new", second)
    assert find_pin(connection, second) is not None


def test_a_forgotten_mirror_leaves_nothing(connection, pin):
    row = file_row(pin())
    row = row._replace(intent=Intent("s", 7, 0, "verbatim", pin(), b""))
    save_file(connection, row)
    add_text(connection, row, "text", 0)
    add_retired(connection, retired_row(pin()))
    delete_mirror(connection, "m")

    tables = {
        name: connection.execute(f"SELECT count(*) FROM {name}").get
        for name in ("mirror", "mirror_file", "mirror_text", "mirror_retired", "pin")
    }
    assert set(tables.values()) == {0}
