import math

import pytest
from hypothesis import given, strategies as st

from crdtmem.arguments import (
    Guard,
    Request,
    checked_bool,
    checked_content,
    checked_count,
    checked_description,
    checked_guard,
    checked_labels,
    checked_lines,
    checked_occurrence,
    checked_request_id,
    checked_rev,
    checked_settings,
    checked_size_limit,
    checked_text,
    checked_wait,
    require_guard,
)
from crdtmem.errors import InvalidArgumentError
from crdtmem.limits import MAX_SIZE_UNITS, TEXT_BYTES, UINT_MAX, WAIT_MAX_S
from crdtmem.models import UNSET

NOTHING_GIVEN = dict.fromkeys(
    ["description", "size_limit", "pinned", "read_only", "append_only"], UNSET
)
SURROGATE = "\ud83d"


def refusal_of(check, *args, **options):
    with pytest.raises(InvalidArgumentError) as caught:
        check(*args, **options)
    return caught.value


@pytest.mark.parametrize("text", ["x", " ", "\n", "\x00", "\r", "ü\u2028😀", "\ufeff"])
def test_any_text_that_is_not_empty_passes_as_it_is(text):
    assert checked_text(text) == text
    assert checked_content(text) == text


def test_a_whole_text_may_be_empty_and_a_part_of_one_may_not():
    error = refusal_of(checked_text, "")

    assert checked_content("") == ""
    assert (error.code, error.message) == (
        "invalid-text",
        "text required: it is an empty string",
    )
    assert error.details == {"argument": "text"}


@pytest.mark.parametrize(
    ("value", "kind"),
    [(None, "None"), (5, "int"), (b"x", "bytes"), (UNSET, "Unset"), (["x"], "list")],
)
def test_a_text_of_another_type_is_refused_by_its_argument(value, kind):
    text, content = refusal_of(checked_text, value), refusal_of(checked_content, value)

    assert (text.code, content.code) == ("invalid-text", "invalid-text")
    assert text.message == f"text required: it is {kind}"
    assert content.message == f"content required: a string, not {kind}"
    assert refusal_of(checked_text, value, "old").details == {"argument": "old"}
    assert refusal_of(checked_content, value, "new").details == {"argument": "new"}


@pytest.mark.parametrize(
    ("text", "position"), [(SURROGATE, 0), (f"ab\U0001f600{SURROGATE}c", 3)]
)
def test_half_a_surrogate_pair_is_refused_with_its_place(text, position):
    error = refusal_of(checked_text, text)

    assert error.code == "invalid-text"
    assert f"at character {position}" in error.message
    assert error.details == {
        "argument": "text",
        "reason": "lone-surrogate",
        "position": position,
    }
    assert refusal_of(checked_content, text).details["position"] == position


@pytest.mark.parametrize("char", ["x", "ü", "漢", "😀"])
def test_a_text_is_bounded_in_bytes_of_utf8(char):
    most = TEXT_BYTES // len(char.encode()) * char

    error = refusal_of(checked_text, most + char)

    assert checked_text(most) == most
    size = len((most + char).encode())
    assert f"({size} > {TEXT_BYTES} bytes)" in error.message
    assert error.details == {"argument": "text", "reason": "too-long", "bytes": size}


@pytest.mark.parametrize("value", [1, 2000, MAX_SIZE_UNITS])
def test_a_size_limit_within_its_bounds_passes(value):
    assert checked_size_limit(value) == value


@pytest.mark.parametrize(
    "value", [0, -1, MAX_SIZE_UNITS + 1, True, 1.0, "5", None, math.nan]
)
def test_another_size_limit_is_refused(value):
    error = refusal_of(checked_size_limit, value)

    assert error.code == "invalid-size-limit"
    assert "sizeLimit must be an integer between 1 and 1000000" in error.message
    assert repr(value) in error.message


def test_a_description_is_bounded_in_utf16_units():
    assert checked_description("😀" * 500) == "😀" * 500

    error = refusal_of(checked_description, "😀" * 500 + "x")

    assert (error.code, error.details) == (
        "invalid-argument",
        {"argument": "description"},
    )
    assert "(1001 > 1000)" in error.message


@pytest.mark.parametrize("value", [None, 5, SURROGATE])
def test_another_description_is_refused(value):
    error = refusal_of(checked_description, value)

    assert error.details == {"argument": "description"}
    assert "description must be a string" in error.message


@pytest.mark.parametrize("value", ["false", 0, 1, None, UNSET])
def test_only_truth_values_are_true_or_false(value):
    error = refusal_of(checked_bool, value, "pinned")

    assert (checked_bool(True, "pinned"), checked_bool(False, "pinned")) == (
        True,
        False,
    )
    assert (error.code, error.details) == ("invalid-argument", {"argument": "pinned"})
    assert "pinned must be true or false" in error.message


@pytest.mark.parametrize("value", [0, 8, True, 2.0, "2", None])
def test_a_count_outside_its_bounds_is_refused_with_them(value):
    error = refusal_of(checked_count, value, "limit", 7)

    assert [checked_count(n, "limit", 7) for n in (1, 7)] == [1, 7]
    assert checked_count(0, "line", 7, least=0) == 0
    assert error.details == {"argument": "limit", "min": 1, "max": 7}
    assert "limit must be an integer between 1 and 7" in error.message


def test_an_occurrence_is_a_number_or_all_or_not_given():
    assert [checked_occurrence(v) for v in (1, "all", UNSET)] == [1, "all", UNSET]
    assert [
        refusal_of(checked_occurrence, v).argument for v in (0, "ALL", None, True)
    ] == ["occurrence"] * 4


def test_lines_are_two_numbers_in_order():
    assert checked_lines(None) is None
    assert [checked_lines(v) for v in ((1, 1), [2, 9])] == [(1, 1), (2, 9)]
    assert refusal_of(checked_lines, [3, 1]).message.endswith("not [3, 1]")


@pytest.mark.parametrize(
    "value",
    [(0, 1), (2, 1), (1,), (1, 2, 3), (True, 2), (1, "2"), (1, 2.0), "12", 5, UNSET],
)
def test_other_lines_are_refused(value):
    error = refusal_of(checked_lines, value)

    assert (error.code, error.details) == ("invalid-argument", {"argument": "lines"})
    assert "lines must be two line numbers" in error.message


def test_labels_are_given_as_several_and_each_is_checked():
    assert checked_labels([" plan ", "b2"]) == ["plan", "b2"]
    assert checked_labels(()) == []
    assert refusal_of(checked_labels, ["plan", "Plan"]).code == "invalid-label"


@pytest.mark.parametrize("value", ["plan", None, 5])
def test_one_label_is_not_taken_for_the_labels_that_its_letters_are(value):
    error = refusal_of(checked_labels, value)

    assert (error.code, error.argument) == ("invalid-argument", "labels")


@pytest.mark.parametrize("argument", ["expected_rev", "base_rev"])
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "type"),
        ("1", "type"),
        (1.0, "type"),
        (True, "type"),
        (-1, "range"),
        (2**53, "range"),
    ],
)
def test_a_rev_of_another_type_or_range_is_refused(argument, value, reason):
    error = refusal_of(checked_guard, **{argument: value})

    assert error.code == "invalid-precondition"
    assert error.details == {"argument": argument, "reason": reason}
    assert argument in error.message
    assert checked_rev(UINT_MAX, argument) == UINT_MAX


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "type"),
        (5, "type"),
        ("", "format"),
        ("0" * 12, "format"),
        ("0" * 17, "format"),
        ("0" * 63, "format"),
        ("g" * 16, "format"),
        ("0" * 16 + "\n", "format"),
        ("\u0660" * 16, "format"),
    ],
)
def test_another_hash_is_refused(value, reason):
    error = refusal_of(checked_guard, expected_hash=value)

    assert error.code == "invalid-precondition"
    assert error.details == {"argument": "expected_hash", "reason": reason}


def test_a_hash_of_16_or_64_digits_passes_in_any_case():
    for digits in (16, 64):
        guard = checked_guard(expected_hash="Ab" * (digits // 2))
        assert guard == Guard(expected_hash="ab" * (digits // 2))


def test_base_rev_excludes_the_other_guards():
    assert checked_guard(base_rev=0) == Guard(base_rev=0)
    for guard in ({"expected_rev": 0}, {"expected_hash": "0" * 16}):
        error = refusal_of(checked_guard, base_rev=0, **guard)
        assert error.details == {"argument": "base_rev", "reason": "exclusive"}


def test_a_malformed_guard_beats_the_exclusion():
    error = refusal_of(checked_guard, expected_rev=-1, base_rev=0)

    assert error.details["reason"] == "range"


def test_a_required_guard_may_be_any_of_them_also_rev_0():
    for guard in (Guard(0), Guard(expected_hash="0" * 16), Guard(base_rev=0)):
        require_guard(guard, "expected_rev", "it is a test")

    error = refusal_of(require_guard, Guard(), "expected_rev", "it is a test")

    assert error.code == "invalid-precondition"
    assert error.details == {"argument": "expected_rev", "reason": "guard-required"}
    assert error.message == "expected_rev required: it is a test"
    assert "read the slot" in error.hint


def test_settings_are_those_that_were_given_by_their_names_in_the_doc():
    given_all = checked_settings(
        description="d", size_limit=5, pinned=False, read_only=True, append_only=False
    )

    assert checked_settings(**NOTHING_GIVEN) == {}
    assert given_all == {
        "description": "d",
        "sizeLimit": 5,
        "pinned": False,
        "readOnly": True,
        "appendOnly": False,
    }


@pytest.mark.parametrize("name", sorted(NOTHING_GIVEN))
def test_none_is_no_value_for_a_setting(name):
    error = refusal_of(checked_settings, **{**NOTHING_GIVEN, name: None})

    assert error.argument == name


@pytest.mark.parametrize("value", [0, 0.25, 60, WAIT_MAX_S])
def test_a_wait_is_a_number_of_seconds(value):
    assert checked_wait(value) == value


@pytest.mark.parametrize(
    "value", [-0.1, 60.5, math.nan, math.inf, True, "1", None, 10**400]
)
def test_another_wait_is_refused(value):
    error = refusal_of(checked_wait, value)

    assert (error.code, error.details) == ("invalid-argument", {"argument": "wait"})
    assert "wait must be between 0 and 60 s" in error.message


@pytest.mark.parametrize("value", ["!", "~" * 128, "0-9:/a"])
def test_a_request_id_of_printable_ascii_passes(value):
    assert checked_request_id(value) == value


@pytest.mark.parametrize(
    "value", ["", "x" * 129, "a b", "a\n", "ü", None, 5, b"x", "\x7f"]
)
def test_another_request_id_is_refused(value):
    error = refusal_of(checked_request_id, value)

    assert error.code == "invalid-request-id"
    assert "request_id must be 1 to 128 printable ASCII" in error.message


def test_a_call_without_a_request_id_has_no_request():
    assert Request.of(UNSET, "append", text="x") is None
    assert refusal_of(Request.of, None, "append").code == "invalid-request-id"


def test_an_argument_that_was_not_given_is_no_part_of_a_request():
    assert Request.of("r", "edit", a=1, b=UNSET) == Request.of("r", "edit", a=1)


@given(
    st.lists(
        st.dictionaries(st.sampled_from("abc"), st.none() | st.text() | st.integers()),
        min_size=2,
        max_size=2,
    )
)
def test_requests_are_equal_only_for_equal_arguments(calls):
    first, second = (Request.of("r", "append", **call) for call in calls)

    other = Request.of("r", "replace", **calls[0])
    assert (first == second) == (calls[0] == calls[1])
    assert first is not None
    assert other is not None
    assert first.fingerprint != other.fingerprint


def test_a_refused_value_is_shown_short_and_on_one_line():
    messages = [
        refusal_of(checked_count, value, "limit", 7).message
        for value in ("\n" * 99, 10**99, ["secret"])
    ]

    assert [len(m) < 100 and "\n" not in m for m in messages] == [True] * 3
    assert messages[2].endswith("not list")
