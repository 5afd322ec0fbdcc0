"""crdtmem.cli.setup_files"""

import os
import stat

import pytest

from crdtmem.cli.setup_blocks import TextBlock
from crdtmem.cli.setup_files import (
    backup_of,
    change_to_put,
    change_to_take,
)
from crdtmem.cli.setup_json import JsonEntry
from crdtmem.errors import (
    ConfigError,
    ConfigTakenError,
    ConfigUnparsableError,
    PermissionDeniedError,
    UntrustedConfigError,
)
from crdtmem.limits import SETUP_FILE_BYTES

BLOCK = TextBlock("ours\n")
ENTRY = JsonEntry(("a", "ours"), 1, lambda value: value == 1)


def put(path, edit=BLOCK, *, base):
    change = change_to_put(path, [edit], base=base, within=base)
    change.apply()
    return change.word


def take(path, edit=BLOCK, *, base):
    change = change_to_take(path, [edit], base=base, within=base)
    change.apply()
    return change.word


def content(folder):
    """Return all that is in a folder: names, bytes, modes, where links lead."""
    return {
        str(path.relative_to(folder)): (
            path.readlink()
            if path.is_symlink()
            else (path.stat().st_mode, path.read_bytes() if path.is_file() else None)
        )
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("text", ["", "# Us", "# Us\n", "a\r\nb\r\n", "\ufeffé\n\n"])
def test_a_file_that_was_there_comes_back_byte_for_byte(tmp_path, text):
    path = tmp_path / "NOTES.md"
    path.write_bytes(text.encode())
    path.chmod(0o640)
    before = content(tmp_path)

    assert put(path, base=tmp_path) == "changed"
    assert backup_of(path).read_bytes() == text.encode()
    assert {stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()} == {0o640}
    changed = content(tmp_path)
    assert put(path, base=tmp_path) == "unchanged"
    assert content(tmp_path) == changed
    assert take(path, base=tmp_path) == "changed"
    assert content(tmp_path) == before
    assert take(path, base=tmp_path) == "unchanged"
    assert content(tmp_path) == before


@pytest.mark.parametrize("edit", [BLOCK, ENTRY])
def test_a_file_that_was_made_goes_away_with_its_folders(tmp_path, edit):
    path = tmp_path / "a" / "b" / "f"

    assert put(path, edit, base=tmp_path) == "made"
    assert stat.S_IMODE(path.stat().st_mode) & 0o600 == 0o600
    assert not backup_of(path).exists()
    assert take(path, edit, base=tmp_path) == "removed"
    assert content(tmp_path) == {}
    assert take(path, edit, base=tmp_path) == "unchanged"


def test_a_folder_with_something_else_stays(tmp_path):
    path = tmp_path / "a" / "b" / "f"
    put(path, base=tmp_path)
    (tmp_path / "a" / "mine").write_bytes(b"x")
    take(path, base=tmp_path)

    assert list(content(tmp_path)) == ["a", "a/mine"]


def test_what_was_written_since_stays_and_so_does_the_copy(tmp_path):
    path = tmp_path / "NOTES.md"
    path.write_bytes(b"# Us\n")
    put(path, base=tmp_path)
    with path.open("ab") as file:
        file.write(b"later\n")

    take(path, base=tmp_path)

    assert path.read_bytes() == b"# Us\nlater\n"
    assert backup_of(path).read_bytes() == b"# Us\n"


def test_an_empty_object_that_somebody_reformatted_comes_back(tmp_path):
    path = tmp_path / "f.json"
    path.write_bytes(b"{\n}")
    put(path, ENTRY, base=tmp_path)
    path.write_bytes(b'{\n  "a": {\n    "ours": 1\n  }\n}\n')

    take(path, ENTRY, base=tmp_path)

    assert path.read_bytes() == b"{\n}"
    assert not backup_of(path).exists()


def test_the_copy_is_of_the_file_before_us(tmp_path):
    path = tmp_path / "NOTES.md"
    path.write_bytes(b"# Us\n")
    put(path, TextBlock("old\n"), base=tmp_path)

    assert put(path, base=tmp_path) == "changed"
    assert backup_of(path).read_bytes() == b"# Us\n"


def test_a_link_inside_of_the_project_is_written_through(tmp_path):
    (tmp_path / "AGENTS.md").write_bytes(b"# Us\n")
    path = tmp_path / "CLAUDE.md"
    path.symlink_to("AGENTS.md")
    before = content(tmp_path)

    put(path, base=tmp_path)
    assert path.is_symlink()
    assert b"ours" in (tmp_path / "AGENTS.md").read_bytes()
    take(path, base=tmp_path)
    assert content(tmp_path) == before


@pytest.mark.parametrize("target", ["../secret", "../nothing"])
def test_a_link_that_leads_out_of_the_project_is_refused(tmp_path, target):
    base = tmp_path / "project"
    base.mkdir()
    (tmp_path / "secret").write_bytes(b"# theirs\n")
    (base / "CLAUDE.md").symlink_to(target)
    before = content(tmp_path)

    with pytest.raises(UntrustedConfigError, match="leads out of the project") as got:
        put(base / "CLAUDE.md", base=base)

    assert got.value.code == "untrusted-config"
    assert content(tmp_path) == before


def test_a_users_own_link_may_lead_anywhere(tmp_path):
    base = tmp_path / "home"
    base.mkdir()
    (tmp_path / "dotfiles").write_bytes(b"# Us\n")
    (base / "f").symlink_to("../dotfiles")

    change_to_put(base / "f", [BLOCK], base=base, within=None).apply()

    assert (base / "f").is_symlink()
    assert b"ours" in (tmp_path / "dotfiles").read_bytes()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"{} // why", "it is no JSON"),
        (b"\xff", "it is not UTF-8, at byte 0"),
        (b" " * (SETUP_FILE_BYTES + 1), f"longer than {SETUP_FILE_BYTES} bytes"),
    ],
)
def test_a_file_that_cannot_be_edited_is_told_with_what_belongs_there(
    tmp_path, text, reason
):
    path = tmp_path / "f.json"
    path.write_bytes(text)
    before = content(tmp_path)

    with pytest.raises(ConfigUnparsableError, match=reason) as got:
        put(path, ENTRY, base=tmp_path)

    assert (got.value.code, got.value.exit_status) == ("config-unparsable", 2)
    assert ENTRY.snippet in got.value.hint
    assert got.value.details["path"] == str(path)
    assert content(tmp_path) == before


def test_a_foreign_entry_is_told_with_what_belongs_there(tmp_path):
    path = tmp_path / "f.json"
    path.write_bytes(b'{"a": {"ours": 2}}')
    before = content(tmp_path)

    with pytest.raises(ConfigTakenError, match=r"an entry a\.ours") as got:
        put(path, ENTRY, base=tmp_path)

    assert (got.value.code, got.value.exit_status) == ("config-taken", 2)
    assert ENTRY.snippet in got.value.hint
    assert content(tmp_path) == before
    assert take(path, ENTRY, base=tmp_path) == "unchanged"


def test_what_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "f")
    (tmp_path / "plain").write_bytes(b"")

    with pytest.raises(ConfigUnparsableError, match="no regular file"):
        put(tmp_path / "f", base=tmp_path)
    with pytest.raises(ConfigError, match="cannot be used: Not a directory") as got:
        put(tmp_path / "plain" / "f", base=tmp_path)
    assert got.value.code == "config-invalid"


def test_a_write_that_fails_leaves_nothing_behind(tmp_path, monkeypatch):
    path = tmp_path / "NOTES.md"
    path.write_bytes(b"# Us\n")
    change = change_to_put(path, [BLOCK], base=tmp_path, within=tmp_path)
    before = content(tmp_path)

    def refuse(descriptor):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fsync", refuse)

    with pytest.raises(PermissionDeniedError) as got:
        change.apply()
    assert str(path) in str(got.value)
    assert content(tmp_path) == before


def test_the_owner_stays_where_the_system_lets_it(tmp_path, monkeypatch):
    path = tmp_path / "NOTES.md"
    path.write_bytes(b"# Us\n")

    def refuse(descriptor, user, group):
        raise PermissionError

    monkeypatch.setattr(os, "fchown", refuse)

    assert put(path, base=tmp_path) == "changed"


def test_a_diff_shows_what_would_happen(tmp_path):
    path = tmp_path / "NOTES.md"
    made = change_to_put(path, [BLOCK], base=tmp_path, within=tmp_path)
    path.write_bytes(b"# Us")
    changed = change_to_put(path, [BLOCK], base=tmp_path, within=tmp_path)
    unchanged = change_to_take(path, [BLOCK], base=tmp_path, within=tmp_path)
    path.write_bytes(BLOCK.snippet.encode())
    removed = change_to_take(path, [BLOCK], base=tmp_path, within=tmp_path)

    assert made.diff.startswith(f"--- /dev/null\n+++ {path}\n@@ -0,0 +1,3 @@\n+<!--")
    assert "\n-# Us\n\\ No newline at end of file\n+# Us\n+<!--" in changed.diff
    assert unchanged.diff == ""
    assert "+++ /dev/null\n" in removed.diff
    assert path.read_bytes() == BLOCK.snippet.encode()
