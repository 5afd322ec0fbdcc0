"""crdtmem.updates with the document of a memory set"""

import pytest
from hypothesis import given, strategies as st
from pycrdt import Doc, Map, Text

from crdtmem.errors import UpdateRejectedError
from crdtmem.limits import ANY_NESTING_LEVELS
from crdtmem.updates import SET_ROOTS, SLOT_ROOTS, scan
from tests.yjs_bytes import number, string, text, uint, update, value

CLIENT = 7

TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
FLAT = st.none() | st.booleans() | st.floats(-1e9, 1e9) | TEXTS
JSON = st.recursive(
    FLAT,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3)
    ),
    max_leaves=8,
)


def scanned(data, *, state=None, snapshot=False, roots=SET_ROOTS):
    return scan(
        data,
        client_ids=None if snapshot else frozenset({CLIENT}),
        state=state or {},
        snapshot=snapshot,
        roots=roots,
    )


def refusal(data, **how):
    with pytest.raises(UpdateRejectedError) as caught:
        scanned(data, **how)
    return caught.value.code


def member(content, key="a"):
    return update((CLIENT, 0, [value(content, root="items", key=key)]))


def nested(levels):
    """Return a value of lists in lists."""
    return b"\x75\x01" * (levels - 1) + b"\x75\x00"


@given(st.dictionaries(TEXTS, JSON, min_size=1, max_size=4))
def test_members_of_any_name_and_any_json_are_accepted_as_update_and_as_state(members):
    doc: Doc[Map[object]] = Doc(client_id=CLIENT)
    items: Map[object] = doc.get("items", type=Map)
    with doc.transaction():
        for name, found in members.items():
            items[name] = found
    with doc.transaction():
        del items[next(iter(members))]
    data = doc.get_update()

    whole = scanned(data, snapshot=True)
    assert whole.clients == {CLIENT: (0, len(members))}
    assert whole.deletes == ((CLIENT, 0, 1),)


def test_values_are_nested_as_deep_as_is_allowed_and_no_deeper():
    assert scanned(member(nested(ANY_NESTING_LEVELS))).clients == {CLIENT: (0, 1)}
    assert refusal(member(nested(ANY_NESTING_LEVELS + 1))) == "update-content"


def test_an_object_has_texts_as_names():
    whole = b"\x76" + uint(1) + string("t") + b"\x77" + string("x")

    assert scanned(member(whole)).clients == {CLIENT: (0, 1)}
    assert refusal(member(b"\x76" + uint(1) + string(b"\xff") + b"\x7e")) == (
        "update-text"
    )
    assert refusal(member(b"\x76" + uint(2) + string("t") + b"\x7e")) == (
        "update-malformed"
    )


@pytest.mark.parametrize(
    "tag", [b"\x74\x01\x00", b"\x7a" + bytes(8), b"\x7f"], ids=["bytes", "big", "none"]
)
def test_what_json_lacks_is_refused(tag):
    assert refusal(member(tag)) == "update-content"


def test_a_set_has_no_other_root_and_no_text():
    other = update((CLIENT, 0, [value(number(1), root="meta", key="pinned")]))
    words = update((CLIENT, 0, [text("x", root="items")]))
    # Its origin may be a member: that it stands in a map does not show.
    hanging = update((CLIENT, 1, [text("x", origin=(CLIENT, 0))]))

    assert refusal(other) == "update-root"
    assert refusal(words) == "update-content"
    assert refusal(hanging, state={CLIENT: 1}) == "update-content"


def test_a_member_that_replaces_another_is_accepted_where_that_one_is_known():
    again = update(
        (CLIENT, 1, [value(number(2), origin=(CLIENT, 0), is_keyed=True)]),
        deletes=[(CLIENT, [(0, 1)])],
    )

    assert scanned(again, state={CLIENT: 1}).deletes == ((CLIENT, 0, 1),)
    assert refusal(again, state={}) == "update-clock"


def test_a_slot_takes_no_member_and_a_set_no_text():
    doc: Doc[Text] = Doc(client_id=CLIENT)
    doc["content"] = Text("x")

    assert refusal(doc.get_update()) == "update-content"
    assert refusal(member(number(1)), roots=SLOT_ROOTS) == "update-root"
