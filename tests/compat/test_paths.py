"""crdtmem.compat.paths"""

import random
import re

import pytest
from hypothesis import given, strategies as st

from crdtmem.compat.paths import ROOT, MemoryPath, label_of, parse_path, path_of
from crdtmem.errors import InvalidArgumentError
from crdtmem.scope import LABEL_PATTERN
from tests.conftest import PROFILE

RANDOM_PATHS = {"default": 5_000, "campaign": 500_000}[PROFILE]

# What the code could trip over: its own signs, and what it has to write in them.
PARTS = [
    *("a", "r", "x", "0", "1", "4", "f", "_", "_", "/", ".", ".md", "é", "\U0001f600"),
    *("-", " ", "A", "@", "@/", "__", "_x", "r_x", "_x41", "_x00", "\n", "~", "%", "2"),
]
INNER = st.lists(st.sampled_from(PARTS) | st.characters(), min_size=1, max_size=8)
LABELS = st.from_regex(LABEL_PATTERN, fullmatch=True) | st.lists(
    st.sampled_from(["a", "x", "0", "4f", "_", "__", "_x41", "_x00", "_x2e", "r_x40__"])
).map(lambda parts: f"r{''.join(parts)}"[:64])


def coded(inner):
    """Return the label of a path, or None where there is none."""
    try:
        path = parse_path(f"{ROOT}/{inner}")
        return None if path.is_folder or not path.inner else label_of(path.inner)
    except InvalidArgumentError:
        return None


@pytest.mark.parametrize(
    ("inner", "label"),
    [
        ("user_preferences.md", "user_preferences"),
        ("notes/todo.md", "notes__todo"),
        ("todo.txt", "todo_x2etxt_x00"),
        ("1st.md", "r_x31st"),
        ("todo", "todo_x00"),
        ("a.md.md", "a_x2emd"),
        (".md", "r_x2emd_x00"),
        ("a/.md", "a___x2emd_x00"),
        ("A.md", "r_x41"),
        ("é.md", "r_xc3_xa9"),
        ("a_.md", "a_x5f"),
        ("a__b.md", "a_x5f_x5fb"),
        ("a_x4.md", "a_x4"),
        ("a_x41.md", "a_x5fx41"),
        ("r_x.md", "r_x72_x"),
        ("r.md", "r"),
        ("r/x.md", "r__x"),
        ("@/a__.md", "a__"),
        ("@/a.md", "r_x40__a"),
        ("@/A.md", "r_x40___x41"),
        ("@/a__", "r_x40__a_x5f_x5f_x00"),
    ],
)
def test_a_path_has_a_label_and_the_label_the_path(inner, label):
    assert label_of(inner) == label
    assert path_of(label) == inner


@pytest.mark.parametrize(
    "label",
    [
        *("a__", "a_", "a____b", "a_x61", "a_x00_x00", "r_xff", "a_x2f", "r_x00"),
        *("a_x5fb", "r_x61", "a_x00b"),
    ],
)
def test_a_label_that_no_path_has_still_is_a_file(label):
    inner = f"@/{label}.md"

    assert path_of(label) == inner
    assert label_of(inner) == label


@given(parts=INNER)
def test_the_label_of_a_path_is_one_and_leads_back(parts):
    inner = "".join(parts)
    label = coded(inner)

    assert label is None or re.fullmatch(LABEL_PATTERN, label)
    assert label is None or path_of(label) == inner


@given(label=LABELS)
def test_every_label_has_a_path_that_leads_back(label):
    inner = path_of(label)

    assert parse_path(f"{ROOT}/{inner}") == MemoryPath(inner, is_folder=False)
    assert label_of(inner) == label


@pytest.mark.requirement("surfaces-35")
def test_no_two_paths_have_one_label():
    chance = random.Random(5)
    seen: dict[str, str] = {}
    for _ in range(RANDOM_PATHS):
        inner = "".join(chance.choices(PARTS, k=chance.randint(1, 9)))
        label = coded(inner)
        assert label is None or seen.setdefault(label, inner) == inner

    assert len(seen) > RANDOM_PATHS // 2


def test_a_path_whose_label_is_too_long_is_refused_with_both_lengths():
    assert len(label_of("a" * 64 + ".md")) == 64
    with pytest.raises(InvalidArgumentError, match="65 > 64"):
        label_of("a" * 65 + ".md")
    with pytest.raises(InvalidArgumentError, match=r"its 62 characters .* 67 > 64"):
        label_of("a" * 60 + "/b")


@pytest.mark.parametrize(
    ("given_path", "path"),
    [
        ("/memories", MemoryPath("", is_folder=False)),
        ("/memories/", MemoryPath("", is_folder=True)),
        ("/memories/a", MemoryPath("a", is_folder=False)),
        ("/memories/a/b.md", MemoryPath("a/b.md", is_folder=False)),
        ("/memories/a/", MemoryPath("a", is_folder=True)),
        ("/memories/a b%é/..c", MemoryPath("a b%é/..c", is_folder=False)),
    ],
)
def test_a_good_path_is_taken_apart(given_path, path):
    assert parse_path(given_path) == path
    assert path.whole == given_path.removesuffix("/")


@pytest.mark.parametrize(
    "path",
    [
        *("", "/", "memories/a", "/memoriesX", "/memoriesX/a", "/Memories/a"),
        *("/memories//a", "/memories/a//b", "/memories/a//", "/memories//"),
        *("/memories/./a", "/memories/..", "/memories/../x", "/memories/a/../b"),
        *("/memories/a\\b", "/memories/a\0", "/memories/\ud83d", "/memories/%2e%2e/x"),
        *("/memories/%2E", "/memories/a%2fb", "/memories/a%5Cb", "/memories/a%00"),
        *(None, 5, b"/memories", ["/memories"]),
    ],
)
def test_a_path_that_leads_elsewhere_or_nowhere_is_refused(path):
    with pytest.raises(InvalidArgumentError, match="path") as caught:
        parse_path(path)

    assert caught.value.details == {"argument": "path"}
    assert "/memories/notes.md" in caught.value.hint
