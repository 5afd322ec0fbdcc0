"""crdtmem.mirror.names"""

import re
import unicodedata

import pytest
from hypothesis import example, given, strategies as st

from crdtmem.mirror.names import (
    description_for,
    file_name_for,
    is_conflict_copy,
    is_label,
    is_mirrored_name,
    is_safe_name,
    label_for,
    name_key,
)
from crdtmem.scope import LABEL_PATTERN

LABELS = st.from_regex(LABEL_PATTERN, fullmatch=True)
DEVICE_LABELS = st.sampled_from(["con", "prn", "aux", "nul", "com1", "lpt9", "clock"])
# What folds, composes, separates, hides or is reserved somewhere.
CHARS = "aAzZ09_-. ~#/\\:*?\x00\n\u2028\ud800é\u0301ß\u017f\u212a日"
WORDS = ["con", "COM¹", ".md", ".MD", "file: ", ".sync-conflict-", "../"]
PIECES = st.sampled_from([*CHARS, *WORDS])
STEMS = st.lists(PIECES, max_size=8).map("".join) | st.text(max_size=80)
NAMES = STEMS.map(lambda stem: f"{stem}.md")
FORGED = [
    "../x",
    "%2e%2e",
    "..\\x",
    "C:x",
    "CON",
    "a\0b",
    "/etc/x",
    "a" * 300,
    "",
    "a\n",
]


@pytest.mark.requirement("mirror-15")
@pytest.mark.parametrize("label", FORGED)
def test_a_forged_label_is_none_and_gets_no_name(label):
    assert not is_label(label)
    with pytest.raises(ValueError, match="no label"):
        file_name_for(label, "", ())


UNSHOWN = ["x\0.md", "x\n.md", "x\x85.md", "x\u2029.md", "\ud800.md"]
LEADING_OUT = ["../x.md", "x/y.md", "..\\x.md", "C:x.md", "x|y.md", "<x>.md", "x?.md"]
DEVICES = ["con.md", "CON.md", "con.old.md", "con .md", "COM¹.md", "conin$.md"]
UNSEEN = [".x.md", ".md", "", "x", "x.txt", "x.md.", "x.md ", "x.sync-conflict-1.md"]
TOO_LONG = f"{'é' * 59}.md"


@pytest.mark.requirement("mirror-15")
@pytest.mark.parametrize(
    "name", [*UNSHOWN, *LEADING_OUT, *DEVICES, *UNSEEN, TOO_LONG], ids=ascii
)
def test_an_unsafe_name_is_not_used_whatever_a_description_says(name):
    label = label_for(name, ())

    assert not is_safe_name(name)
    assert is_safe_name(file_name_for(label, f"file: {name}", ()))
    assert file_name_for(label, f"file: {name}", ()) != name
    assert description_for(name, label) is None


@pytest.mark.requirement("mirror-15")
@pytest.mark.parametrize("label", ["con", "prn", "aux", "nul", "com0", "lpt9", "conin"])
def test_a_label_that_windows_reserves_has_a_longer_name(label):
    assert file_name_for(label, "", ()) == f"{label}-slot.md"
    assert file_name_for(label, f"file: {label}.md", ()) == f"{label}-slot.md"


@given(NAMES, st.booleans())
@example("日本.md", False)
@example("\ud800.md", True)
@example(f"{'9' * 300}.md", True)
def test_every_derived_label_is_one(name, is_taken):
    label = label_for(name, ())
    other = label_for(name, (label,) if is_taken else ())

    assert re.fullmatch(LABEL_PATTERN, label)
    assert re.fullmatch(LABEL_PATTERN, other)
    assert (other == label) == (not is_taken)


@given(LABELS | DEVICE_LABELS, STEMS | NAMES.map(lambda name: f"file: {name}"))
def test_a_name_is_one_harmless_component(label, description):
    name = file_name_for(label, description, ())

    assert is_safe_name(name)
    assert not re.search(r"[/\\\x00-\x1f]", name)
    assert is_mirrored_name(name)


@given(st.lists(NAMES, max_size=6), st.lists(LABELS | DEVICE_LABELS, max_size=6))
@example(["A b.md", "a B.md"], ["a_b"])
@example(["con-slot.md", "a-slot-2.md"], ["con", "con_slot"])
def test_distinct_labels_have_names_that_no_file_system_takes_for_one(found, labels):
    """Two machines: one derives labels from files, the other names from labels."""
    described: dict[str, str] = {}
    for name in {name_key(name): name for name in found}.values():
        label = label_for(name, described)
        described[label] = description_for(name, label) or ""
    described = {**dict.fromkeys(labels, ""), **described}
    taken: list[str] = []
    for label, description in described.items():
        taken.append(file_name_for(label, description, taken))

    assert len({name_key(name) for name in taken}) == len(described)


@given(LABELS | DEVICE_LABELS)
@example("a_")
@example("con_slot")
def test_a_folder_leads_back_to_its_labels_when_its_state_is_gone(label):
    assert label_for(file_name_for(label, "", ()), ()) == label


@pytest.mark.requirement("mirror-16")
@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("MEMORY.md", "memory"),
        ("My Notes-1.md", "my_notes_1"),
        ("日本.md", "m_"),
        ("1.md", "m_1"),
        ("cafe\u0301.md", "caf"),
        ("café au lait.md", "caf_au_lait"),
        ("__init__.md", "init"),
        ("a_.md", "a_"),
        ("A_.md", "a_"),
        ("Straße.md", "strasse"),
        ("x.y.md", "x_y"),
        (f"{'a' * 70}.md", "a" * 64),
        (f"{'1' * 70}.md", f"m_{'1' * 62}"),
    ],
)
def test_a_files_label_is_its_name_folded(name, label):
    assert label_for(name, ()) == label
    assert label_for(unicodedata.normalize("NFD", name), ()) == label


@pytest.mark.requirement("mirror-16")
def test_files_whose_names_fold_to_one_label_get_two_and_keep_their_names_elsewhere():
    first = label_for("My Notes-1.md", ())
    second = label_for("my notes 1.md", (first,))
    third = label_for("my notes 1.md", (first, second))
    descriptions = [
        description_for("My Notes-1.md", first) or "",
        description_for("my notes 1.md", second) or "",
    ]

    assert (first, second) == ("my_notes_1", "my_notes_1_f2b332")
    assert len({first, second, third}) == 3
    assert descriptions == ["file: My Notes-1.md", "file: my notes 1.md"]
    assert file_name_for(first, descriptions[0], ()) == "My Notes-1.md"
    assert file_name_for(second, descriptions[1], ()) == "my notes 1.md"


def test_the_second_label_does_not_depend_on_how_a_system_composes_names():
    assert label_for("cafe\u0301.md", ("caf",)) == label_for("caf\u00e9.md", ("caf",))


def test_a_long_label_is_cut_to_tell_it_from_a_taken_one():
    label = label_for(f"{'a' * 70}.md", ("a" * 64,))

    assert re.fullmatch("a{57}_[0-9a-f]{6}", label)


def test_a_description_names_no_file_that_would_be_another_slot():
    assert file_name_for("plan", "file: Other.md", ()) == "plan.md"
    assert file_name_for("plan", "File: Plan.md", ()) == "plan.md"
    assert file_name_for("plan", "Plan.md", ()) == "plan.md"
    assert file_name_for("plan", "file: Plan.md", ()) == "Plan.md"


@pytest.mark.parametrize("other", ["Plan.md", "PLAN.md", "plan.md"])
def test_a_described_name_that_differs_only_in_case_is_taken(other):
    assert name_key(file_name_for("plan", "file: Plan.md", (other,))) != name_key(other)


def test_a_name_that_differs_only_in_composition_is_taken():
    description = "file: cafe\u0301.md"

    assert file_name_for("caf", description, ()) == "cafe\u0301.md"
    assert file_name_for("caf", description, ("CAFÉ.md",)) == "caf.md"


def test_a_slot_whose_name_belongs_to_a_file_made_by_hand_gets_another():
    taken = ["Plan.md", "plan-SLOT-2.md"]

    assert file_name_for("plan", "", taken) == "plan-slot-3.md"


def test_a_description_is_kept_only_for_a_name_that_the_label_does_not_give():
    assert description_for("plan.md", "plan") is None
    assert description_for("Plan.md", "plan") == "file: Plan.md"


BACKUPS = [".a.md", ".#a.md", "a.md~", "#a.md#", "a.txt", "a.MD", "a", ".md"]
COPIES = ["a.sync-conflict-20260101-120000-ABC.md", "a (Bob's conflicted copy).md"]


@pytest.mark.parametrize("name", [*BACKUPS, *COPIES, "a\udcff.md"], ids=ascii)
def test_what_is_not_a_tools_own_markdown_file_is_not_looked_at(name):
    assert not is_mirrored_name(name)


@pytest.mark.parametrize("name", ["a.md", "MEMORY.md", "日本.md", "a\nb.md", "~a.md"])
def test_a_markdown_file_is_mirrored(name):
    assert is_mirrored_name(name)


def test_conflict_copies_are_told_from_other_files():
    assert is_conflict_copy("a.sync-conflict-20260101-120000-ABC.md")
    assert is_conflict_copy("a (Bob's Conflicted Copy 2026-01-01).md")
    assert not is_conflict_copy("a.sync-conflict-1.txt")
    assert not is_conflict_copy("conflicts.md")
