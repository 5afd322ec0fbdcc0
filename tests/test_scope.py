"""crdtmem.scope"""

import re

import pytest
from hypothesis import given, strategies as st

from crdtmem.errors import InvalidArgumentError
from crdtmem.limits import LANE_BYTES
from crdtmem.scope import (
    LABEL_PATTERN,
    PROJECT_ID_PATTERN,
    TEMPLATES,
    ProjectIdentity,
    namespace_of,
    new_project_id,
    parse_label,
    parse_lane,
    parse_project_id,
    parse_project_name,
    parse_scope,
    project_from,
    project_id_of_path,
    scope_of,
    template_for,
)


@pytest.mark.parametrize(
    ("value", "label"),
    [
        ("a", "a"),
        (" persona ", "persona"),
        ("\tnotes\n", "notes"),
        ("a1_b__", "a1_b__"),
        ("a" * 64, "a" * 64),
    ],
)
def test_a_label_loses_the_blanks_around_it(value, label):
    assert parse_label(value) == label


@pytest.mark.parametrize(
    "value",
    [
        "",
        "  ",
        "Bad",
        "1a",
        "_a",
        "a-b",
        "a b",
        "a\nb",
        "é",
        "a.b",
        "a" * 65,
        "a\ud800",
    ],
)
@pytest.mark.requirement("P7")
def test_what_is_no_label_is_refused(value):
    with pytest.raises(InvalidArgumentError, match="label required") as refusal:
        parse_label(value)

    assert refusal.value.code == "invalid-label"
    assert refusal.value.details == {"argument": "label"}


@pytest.mark.parametrize("value", [None, 5, True, ["a"], b"a"])
@pytest.mark.requirement("P7")
def test_a_label_of_another_type_is_refused(value):
    with pytest.raises(InvalidArgumentError, match="label required") as refusal:
        parse_label(value)

    assert refusal.value.code == "invalid-label"


@given(st.text() | st.from_regex(LABEL_PATTERN))
def test_a_label_is_refused_or_stays_the_same_from_then_on(text):
    try:
        label = parse_label(text)
    except InvalidArgumentError:
        return
    assert re.fullmatch(LABEL_PATTERN, label)
    assert parse_label(label) == label


def test_a_refusal_shows_a_short_value_and_only_measures_a_long_one():
    with pytest.raises(InvalidArgumentError, match="not 'Bad\\\\n!'"):
        parse_label("Bad\n!")
    with pytest.raises(InvalidArgumentError, match="not 5000 characters"):
        parse_label("B" * 5000)
    with pytest.raises(InvalidArgumentError, match="not a value of type NoneType"):
        parse_label(None)


def test_a_scope_is_one_of_two_words_or_none_where_it_may_be_left_out():
    assert parse_scope("project", optional=False) == "project"
    assert parse_scope("global", optional=True) == "global"
    assert parse_scope(None, optional=True) is None


@pytest.mark.parametrize("value", ["", "Global", "both", 5, True, ["project"]])
@pytest.mark.parametrize("optional", [True, False])
@pytest.mark.requirement("P7")
def test_what_is_no_scope_is_refused(value, optional):
    with pytest.raises(InvalidArgumentError, match="scope must be") as refusal:
        parse_scope(value, optional=optional)

    assert refusal.value.code == "invalid-scope"
    assert refusal.value.details == {"argument": "scope"}


def test_no_scope_is_refused_where_one_is_required():
    with pytest.raises(InvalidArgumentError, match="scope must be"):
        parse_scope(None, optional=False)


@pytest.mark.parametrize(
    ("value", "lane"),
    [
        ("a", "a"),
        (" me@host ", "me@host"),
        ("é" * 64, "é" * 64),
        ("👩 3", "👩 3"),
    ],
)
def test_a_lane_is_any_short_name(value, lane):
    assert parse_lane(value) == lane


@pytest.mark.parametrize(
    "value",
    ["", "  ", "a\x07b", "a\nb", "a\x7fb", "a\x85b", "x" * 129, "é" * 65, "\ud83d", 5],
)
@pytest.mark.requirement("P7")
def test_what_is_no_lane_is_refused(value):
    with pytest.raises(InvalidArgumentError, match="lane must be") as refusal:
        parse_lane(value)

    assert refusal.value.code == "invalid-lane"
    assert refusal.value.details == {"argument": "lane"}


@given(st.text(st.characters(exclude_categories=[])))
def test_a_lane_that_is_accepted_fits_into_a_record(text):
    try:
        lane = parse_lane(text)
    except InvalidArgumentError:
        return
    assert 1 <= len(lane.encode()) <= LANE_BYTES
    assert parse_lane(lane) == lane


def test_a_project_is_called_as_a_lane_may_be():
    assert parse_project_name(" Shop, new ") == "Shop, new"
    with pytest.raises(InvalidArgumentError, match="name must be") as refusal:
        parse_project_name("a\x1b[31m")

    assert refusal.value.code == "invalid-argument"
    assert refusal.value.details == {"argument": "name"}


@pytest.mark.parametrize("value", ["p", "0", "A.b_c-d", "Global", "x" * 64])
def test_a_project_id_is_taken_as_it_is(value):
    assert parse_project_id(value) == value


@pytest.mark.parametrize(
    "value",
    ["", "../x", "a b", "-x", ".x", " p", "p\n", "é", "x" * 65, "global", None, 5],
)
@pytest.mark.requirement("P7")
def test_what_is_no_project_id_is_refused(value):
    with pytest.raises(InvalidArgumentError, match="project must") as refusal:
        parse_project_id(value)

    assert refusal.value.code == "invalid-argument"
    assert refusal.value.details == {"argument": "project"}


def test_a_scope_names_a_namespace_and_back():
    assert namespace_of("project", "p") == "p"
    assert namespace_of("global", "p") == "global"
    assert scope_of("p") == "project"
    assert scope_of("global") == "global"


def test_the_templates_are_the_eight_slots_of_a_fresh_store():
    rows = {
        (t.label, scope, t.size_limit, t.pinned) for (scope, _), t in TEMPLATES.items()
    }

    assert rows == {
        ("persona", "global", 1000, True),
        ("user_preferences", "global", 2000, True),
        ("tool_guidelines", "global", 1500, True),
        ("project_context", "project", 3000, True),
        ("guidance", "project", 1500, True),
        ("pending_items", "project", 2000, True),
        ("session_patterns", "project", 1500, False),
        ("self_notes", "project", 1500, False),
    }


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=lambda t: t.label)
def test_a_template_could_have_been_created_by_hand(template):
    assert parse_label(template.label) == template.label
    assert parse_scope(template.scope, optional=False) == template.scope
    assert 1 <= len(template.description) <= 1000
    assert template_for(template.scope, template.label) is template


def test_a_template_belongs_to_its_own_scope():
    assert template_for("project", "persona") is None
    assert template_for("global", "nothing") is None


def test_a_project_id_is_made_of_16_bytes():
    assert new_project_id(bytes(16)) == "0" * 22
    assert new_project_id(bytes(15) + b"\x3e") == "0" * 20 + "10"
    assert new_project_id(b"\xff" * 16) == "7n42DGM5Tflk9n8mt7Fhc7"
    with pytest.raises(ValueError, match="15 bytes are not 16"):
        new_project_id(bytes(15))


@given(st.binary(min_size=16, max_size=16), st.binary(min_size=16, max_size=16))
def test_two_project_ids_are_equal_only_if_their_bytes_are(one, other):
    made = new_project_id(one), new_project_id(other)

    assert (made[0] == made[1]) == (one == other)
    assert [len(parse_project_id(project_id)) for project_id in made] == [22, 22]


def test_the_id_of_a_path_stays_the_same_for_ever():
    assert project_id_of_path("/srv/shop/.git") == "6I6KOedetaG9Q7AEQ3rO0r"
    assert project_id_of_path("/srv/shop") != project_id_of_path("/srv/shop/.git")
    assert re.fullmatch(PROJECT_ID_PATTERN, project_id_of_path("/srv/\udcff"))


def test_an_id_that_was_given_decides_the_project():
    assert project_from(
        named=("shop", "project file"),
        name="The shop",
        git_common_dir="/srv/shop/.git",
        folder="/srv/shop",
    ) == ProjectIdentity("shop", "project file", "The shop")
    assert project_from(
        named=("shop", "option"), name=None, git_common_dir=None, folder="/srv/x"
    ) == ProjectIdentity("shop", "option", "shop")


def test_all_worktrees_of_a_repository_are_one_project():
    found = [
        project_from(
            named=None, name=None, git_common_dir="/srv/shop/.git", folder=folder
        )
        for folder in ("/srv/shop", "/srv/feature")
    ]

    expected = ProjectIdentity(project_id_of_path("/srv/shop/.git"), "git", "shop")
    assert found == [expected, expected]


@pytest.mark.parametrize(
    ("git_common_dir", "name"),
    [
        ("/srv/shop.git", "shop"),
        ("/srv/shop/.git/modules/cart", "cart"),
        ("C:\\src\\shop\\.git", "shop"),
        ("/srv/a\x1bb\udcff/.git", "a?b?"),
        ("/srv/" + "é" * 65 + "/.git", "é" * 64),
    ],
)
def test_a_repository_without_a_name_is_called_like_its_folder(git_common_dir, name):
    found = project_from(
        named=None, name=None, git_common_dir=git_common_dir, folder="/"
    )

    assert found.name == parse_project_name(found.name) == name


def test_outside_a_repository_the_folder_is_the_project():
    expected = ProjectIdentity(project_id_of_path("/srv/notes"), "folder", "notes")
    root = project_from(named=None, name=None, git_common_dir=None, folder="/")

    assert (
        project_from(named=None, name=None, git_common_dir=None, folder="/srv/notes")
        == expected
    )
    assert root.name == root.id == project_id_of_path("/")


def test_a_name_that_was_given_is_shown_whatever_decided_the_id():
    for git_common_dir in ("/srv/shop/.git", None):
        found = project_from(
            named=None, name="Shop", git_common_dir=git_common_dir, folder="/srv/shop"
        )
        assert found.name == "Shop"
