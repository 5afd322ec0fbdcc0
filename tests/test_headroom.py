"""crdtmem.headroom"""

import pytest
from hypothesis import given, strategies as st

from crdtmem.doc.text_form import units_of
from crdtmem.headroom import (
    content_hash,
    fits,
    free_units,
    percent_used,
    preview,
    warning_for,
)
from crdtmem.limits import PREVIEW_UNITS

SIZES = st.integers(min_value=0, max_value=2_000_000)
LIMITS = st.integers(min_value=1, max_value=1_000_000)


@pytest.mark.parametrize(
    ("size_units", "limit_units", "percent"),
    [
        (0, 1, 0),
        (1, 200, 1),
        (57, 200, 28),
        (138, 200, 69),
        (139, 200, 70),
        (178, 200, 89),
        (179, 200, 90),
        (200, 200, 100),
        (16, 10, 160),
    ],
)
def test_the_percentage_rounds_as_javascript_does(size_units, limit_units, percent):
    assert percent_used(size_units, limit_units) == percent


@given(SIZES, LIMITS)
def test_the_percentage_is_within_half_a_percent(size_units, limit_units):
    error = percent_used(size_units, limit_units) - size_units * 100 / limit_units

    assert -0.5000001 < error < 0.5000001


@given(SIZES, LIMITS)
def test_what_is_free_fills_the_slot_exactly(size_units, limit_units):
    free = free_units(size_units, limit_units)

    assert free == 0 or size_units + free == limit_units
    assert (free > 0) == (size_units < limit_units)


@pytest.mark.parametrize(
    ("size_units", "limit_units", "state", "advice"),
    [
        (139, 200, "70 % full, 61", "compact before the next large append"),
        (178, 200, "89 % full, 22", "compact before the next large append"),
        (179, 200, "90 % full, 21", "compact it now"),
        (200, 200, "100 % full, 0", "compact it now"),
        (2001, 2000, "100 % full, over its sizeLimit by 1, 0", "compact it now"),
        (16, 10, "160 % full, over its sizeLimit by 6, 0", "compact it now"),
    ],
)
def test_a_slot_that_fills_up_says_how_far_and_what_to_do(
    size_units, limit_units, state, advice
):
    warning = warning_for(size_units, limit_units)

    assert warning == f"slot is {state} characters free: {advice}"


def test_a_slot_with_room_warns_of_nothing():
    assert warning_for(138, 200) is None


@pytest.mark.parametrize(
    ("new_units", "old_units", "passes"),
    [
        (10, 0, True),
        (11, 10, False),
        (11, 16, True),
        (16, 16, False),
        (17, 16, False),
        (0, 16, True),
    ],
)
def test_a_write_keeps_to_the_limit_or_shrinks(new_units, old_units, passes):
    assert fits(new_units, old_units, 10) is passes


@pytest.mark.parametrize(
    ("view", "shown"),
    [
        ("", "e3b0c44298fc1c14"),
        ("base", "cae662172fd450bb"),
        ("é", "4a99557e4033c353"),
        ("😀", "f0443a342c5ef547"),
        ("original\nappended", "aaab6bae17def5ba"),
    ],
)
def test_the_content_hash_is_that_of_the_text_in_utf_8(view, shown):
    digest = content_hash(view)

    assert (digest[:16], len(digest)) == (shown, 64)


def test_a_lone_surrogate_has_no_hash():
    with pytest.raises(UnicodeEncodeError):
        content_hash("\ud83d")


@given(st.text(alphabet="aé漢🎉\n", max_size=300))
def test_a_preview_is_the_beginning_in_whole_characters(view):
    shown = preview(view)

    assert view.startswith(shown)
    assert units_of(shown) <= PREVIEW_UNITS
    assert shown == view or units_of(shown) >= PREVIEW_UNITS - 1


def test_a_preview_leaves_out_a_pair_that_would_be_cut():
    assert preview("a" * 199 + "🎉") == "a" * 199
    assert preview("a" * 198 + "🎉b") == "a" * 198 + "🎉"
