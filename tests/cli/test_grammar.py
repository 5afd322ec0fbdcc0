"""crdtmem.cli.grammar"""

import pytest

from crdtmem.cli.grammar import Option, convert, read_lines


@pytest.mark.parametrize(
    ("kind", "raw", "value"),
    [
        ("text", "- item", "- item"),
        ("whole", "-1", -1),
        ("seconds", "0.5", 0.5),
        ("lines", "3-7", (3, 7)),
        ("lines", "4", (4, 4)),
    ],
)
def test_a_value_is_read_by_its_kind(kind, raw, value):
    assert convert(Option(("--x",), "", kind), raw) == value


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        ("whole", "1_0"),
        ("whole", " 1"),
        ("whole", "1.0"),
        ("whole", "٣"),
        ("seconds", "nan"),
        ("seconds", "1e3"),
        ("lines", "3-"),
        ("lines", "-3"),
    ],
)
def test_a_value_that_does_not_fit_is_named(kind, raw):
    with pytest.raises(ValueError, match="is not a"):
        convert(Option(("--x",), "", kind), raw)


def test_a_choice_names_what_there_is():
    option = Option(("--color",), "", "choice", choices=("auto", "never"))

    assert convert(option, "never") == "never"
    with pytest.raises(ValueError, match="'no' is not one of auto, never"):
        convert(option, "no")


def test_a_backwards_range_is_left_to_the_verb():
    assert read_lines("7-3") == (7, 3)


def test_the_first_long_name_is_that_of_the_parameter():
    assert Option(("-q", "--keep-newline"), "", "flag").parameter == "keep_newline"
    assert Option(("--json",), "", "flag", called="as_json").parameter == "as_json"
