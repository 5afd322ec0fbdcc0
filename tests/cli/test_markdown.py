"""crdtmem.cli.markdown"""

import dataclasses
import hashlib
import json
import re

import pytest
from hypothesis import given, strategies as st

from crdtmem.cli.markdown import (
    IMPORTED_SIZE_LIMIT_UNITS,
    file_of,
    label_of_path,
    path_of_label,
    records_from,
)
from crdtmem.errors import InvalidArgumentError
from crdtmem.models import UNSET, SlotView
from crdtmem.scope import LABEL_PATTERN

NAMES = st.text(st.sampled_from("ab1_xr0.mdÄ A/-"), min_size=1, max_size=7)
PATHS = NAMES.filter(lambda path: not {"", ".", ".."} & set(path.split("/")))
LABELS = st.from_regex(LABEL_PATTERN, fullmatch=True) | st.text(
    st.sampled_from("arx_015"), min_size=1, max_size=10
).filter(lambda label: re.fullmatch(LABEL_PATTERN, label))
VIEW = SlotView(
    size=1,
    size_limit=2000,
    free=1999,
    pct_used=0,
    rev=1,
    content_hash="0" * 16,
    label="notes__todo",
    scope="project",
    content="a",
    description="",
    pinned=True,
    read_only=False,
    append_only=False,
    created_at=None,
    updated_at=None,
)


@pytest.mark.parametrize(
    ("path", "label"),
    [
        ("user_preferences.md", "user_preferences"),
        ("notes/todo.md", "notes__todo"),
        ("todo.txt", "todo_x2etxt_x00"),
        ("1st.md", "r_x31st"),
        (".md", "r_x2emd_x00"),
        ("a_x41.md", "a_x5fx41"),
        ("Ä.md", "r_xc3_x84"),
        ("@/a__.md", "a__"),
    ],
)
def test_a_path_has_its_label(path, label):
    assert label_of_path(path) == label
    assert path_of_label(label) == path


@given(PATHS | PATHS.map("{}.md".format))
def test_every_path_comes_back_from_its_label(path):
    label = label_of_path(path)

    assert re.fullmatch(LABEL_PATTERN, label)
    assert path_of_label(label) == path


@given(LABELS)
def test_every_label_comes_back_from_its_path(label):
    assert label_of_path(path_of_label(label)) == label


@pytest.mark.parametrize("label", ["a__", "r_xff", "a_x00_x00", "a___x2e_x2e__b"])
def test_a_label_without_a_safe_path_lies_apart(label):
    assert path_of_label(label) == f"@/{label}.md"
    assert label_of_path(f"@/{label}.md") == label


@pytest.mark.parametrize("path", ["@/persona.md", "@/Not A Label.md", "@/a__.txt"])
def test_no_other_file_may_lie_there(path):
    with pytest.raises(InvalidArgumentError, match="is not the file of a label"):
        label_of_path(path)


def test_a_label_that_would_be_too_long_is_refused_with_both_lengths():
    with pytest.raises(InvalidArgumentError) as caught:
        label_of_path("Ä" * 11 + ".md")

    assert caught.value.code == "invalid-label"
    assert "89 characters, more than 64" in caught.value.message


def test_a_file_holds_the_text_with_a_final_line_end():
    assert file_of(VIEW) == ("notes/todo.md", b"a\n")
    assert file_of(dataclasses.replace(VIEW, content="a\n"))[1] == b"a\n\n"
    assert file_of(dataclasses.replace(VIEW, content=""))[1] == b""
    assert file_of(dataclasses.replace(VIEW, content=UNSET))[1] == b""


def test_a_folder_becomes_the_lines_of_an_export():
    lines, bad = records_from({"b.md": b"", "a.md": b"x\n"}, "global")

    header, first, second, end = map(json.loads, lines)
    assert bad == []
    assert (header["type"], header["format"]) == ("header", "crdtmem-slots")
    assert (first["label"], first["content"], first["scope"]) == ("a", "x", "global")
    assert first["contentHash"] == hashlib.sha256(b"x").hexdigest()
    assert first["sizeLimit"] == IMPORTED_SIZE_LIMIT_UNITS
    assert (second["label"], second["content"]) == ("b", "")
    assert end == {"type": "end", "slots": 2, "history": 0}


def test_a_slot_gets_a_limit_that_its_text_fits():
    lines, _ = records_from({"a.md": b"x" * 30_000}, "project")

    assert json.loads(lines[1])["sizeLimit"] == 30_000


def test_a_file_that_cannot_be_a_slot_is_told_and_stops_no_other():
    lines, bad = records_from(
        {"a.md": b"\xff", "b.md": b"x", "Ä" * 11 + ".md": b"y"}, "project"
    )

    assert [(record.line, record.code) for record in bad] == [
        (1, "invalid-text"),
        (3, "invalid-label"),
    ]
    assert "a.md" in bad[0].reason
    assert len(lines) == 3
