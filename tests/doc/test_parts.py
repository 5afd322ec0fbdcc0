"""crdtmem.doc.parts: parts of a slot, whole lines that together are the slot."""

from hypothesis import given, strategies as st

from crdtmem.doc.parts import Part, parts_of
from crdtmem.doc.text_form import units_of
from crdtmem.limits import SEARCH_PART_LINES, SEARCH_PART_UNITS


@given(
    st.lists(
        st.sampled_from(["", "# head", "a", "🚀" * 300, "x" * 999, "y" * 3_000]),
        max_size=120,
    )
)
def test_parts_are_the_whole_text_in_bounds(lines):
    file = "".join(f"{line}\n" for line in lines)
    parts = list(parts_of(file))

    assert "".join(part.text for part in parts) == file
    for part in parts:
        *most, last = part.text.splitlines(keepends=True)
        assert len(most) < SEARCH_PART_LINES
        assert units_of("".join(most)) < SEARCH_PART_UNITS
        assert not any(
            line.startswith("#") for line in [*most[1:], *[last] * bool(most)]
        )
        assert file.split("\n")[part.line - 1] == part.text.split("\n")[0]


def test_a_part_is_as_long_as_it_may_be():
    lines = "a\n" * 100

    assert [part.line for part in parts_of(lines)] == [1, 41, 81]
    assert list(parts_of("")) == []
    assert list(parts_of("no end")) == [Part(1, "no end")]
