"""crdtmem.doc.items"""

import pytest
from hypothesis import given, strategies as st
from pycrdt import Doc, Map

from crdtmem.doc.items import (
    HEADER,
    ItemsDoc,
    Version,
    canonical,
    header_value,
    item_id_of,
    member_hash,
    names_in,
    names_of,
    read_version,
    version_value,
)
from crdtmem.errors import DocError, UpdateRejectedError
from crdtmem.limits import (
    ITEM_ID_BYTES,
    ITEM_TEXT_UNITS,
    LANE_BYTES,
    METADATA_BYTES,
    TIME_MAX_MS,
    UINT_MAX,
)
from crdtmem.partition import doc_name, encode_key
from tests.yjs_bytes import update

MADE = "0123456789abcdefghjk"
SUFFIX = "abcdefghjk"
PLAIN = {"t": "text", "c": 1, "u": 2, "l": "ann"}


def doc_with(client_id=1, **members):
    document = ItemsDoc(client_id)
    document.edit(members)
    return document


def test_a_version_comes_back_from_its_value():
    version = Version(
        f"my.id.{SUFFIX}", "my.id", "text", '{"a":1}', TIME_MAX_MS, 0, "ann", 3
    )
    plain = Version(MADE, MADE, "", "", 0, 1, "", None)

    assert read_version(version.member, version_value(version)) == version
    assert read_version(MADE, version_value(plain)) == plain
    assert version_value(plain) == {"t": "", "c": 0, "u": 1, "l": ""}


@pytest.mark.parametrize(
    ("member", "item_id"),
    [
        (MADE, MADE),
        (f"a.{SUFFIX}", "a"),
        (f"a.b.{SUFFIX}", "a.b"),
        (f"{'é' * 128}.{SUFFIX}", "é" * 128),
        ("set", ""),
        ("a", ""),
        (MADE + "0", ""),
        (MADE.replace("a", "i"), ""),
        (f".{SUFFIX}", ""),
        (f"a.{SUFFIX}x", ""),
        (f"a.{SUFFIX.upper()}", ""),
        (f"{'é' * 128}x.{SUFFIX}", ""),
        ("", ""),
        (f"\ud800.{SUFFIX}", ""),
    ],
)
def test_the_name_of_a_member_tells_its_item(member, item_id):
    assert item_id_of(member) == item_id


FOREIGN = {
    "no text": {"c": 1, "u": 2, "l": ""},
    "a number as text": PLAIN | {"t": 5},
    "a long text": PLAIN | {"t": "x" * (ITEM_TEXT_UNITS + 1)},
    "a lane that is none": PLAIN | {"l": 1},
    "a long lane": PLAIN | {"l": "x" * (LANE_BYTES + 1)},
    "a time that is no whole number": PLAIN | {"c": 1.5},
    "a time that is true": PLAIN | {"u": True},
    "a time before 1970": PLAIN | {"u": -1},
    "a time beyond the year 9999": PLAIN | {"c": TIME_MAX_MS + 1},
    "half a source": PLAIN | {"s": 0.5},
    "metadata that is no text": PLAIN | {"m": {"a": 1}},
    "metadata that is empty": PLAIN | {"m": ""},
    "metadata that is not canonical": PLAIN | {"m": '{"a": 1}'},
    "metadata 9 deep": PLAIN | {"m": '{"a":' + "[" * 8 + "]" * 8 + "}"},
    "long metadata": PLAIN | {"m": '{"a":"' + "x" * METADATA_BYTES + '"}'},
    "another field": PLAIN | {"x": 1},
    "a list": [1],
    "nothing": None,
}


@pytest.mark.requirement("sets-M3")
@pytest.mark.parametrize("fault", FOREIGN)
def test_what_breaks_the_shape_of_a_version_is_foreign(fault):
    assert read_version(MADE, PLAIN) is not None
    assert read_version(MADE, FOREIGN[fault]) is None


def test_limits_of_a_version_may_be_reached():
    value = PLAIN | {"t": "🎉" * (ITEM_TEXT_UNITS // 2), "s": UINT_MAX}
    value["m"] = '{"a":"' + "x" * (METADATA_BYTES - 8) + '"}'

    assert read_version(f"{'x' * ITEM_ID_BYTES}.{SUFFIX}", value) is not None


def test_a_header_counts_only_for_its_own_doc():
    key = encode_key(("job", 1))
    doc = doc_name(key, "notes")
    header = header_value(key, "notes")

    assert names_in(header, doc) == (key, "notes")
    assert names_in(header, doc_name(key, "other")) is None
    assert names_in(header | {"v": 2}, doc) is None
    assert names_in(header | {"v": True}, doc) is None
    assert names_in(header | {"more": 1}, doc) is None
    assert names_in(header | {"key": 1}, doc) is None
    assert names_in(header | {"name": None}, doc) is None
    assert names_in(header_value("no key", "notes"), doc) is None
    long = "x" * 130 + "\n"
    assert names_in(header_value(key, long), doc_name(key, long)) is None
    assert names_in([], doc) is None


@pytest.mark.parametrize(
    ("doc", "names"),
    [
        (doc_name(encode_key("k"), "no te/s"), ("s.k", "no te/s")),
        (doc_name(encode_key("k" * 200), "notes"), ("", "notes")),
        (doc_name(encode_key(1), "n" * 200), ("i.1", "")),
        (doc_name(encode_key("k" * 200), "n" * 200), ("", "")),
        ("", None),
        ("s.k", None),
        ("s.k/notes", None),
        ("s.k/s.notes", None),
        ("s.k/b.notes", None),
        ("s.k/n.", None),
        ("s.k/n.%0A", None),
        ("s.k/n.%FF", None),
        ("s.k/n.%41", None),
        ("k/n.notes", None),
        ("s.%41/n.notes", None),
        (f"s.{'k' * 200}/n.notes", None),
        (f"s.k/n.{'n' * 200}", None),
        ("s.k/n.a/b", None),
    ],
)
def test_the_name_of_a_doc_tells_its_set_where_no_hash_stands_for_it(doc, names):
    assert names_of(doc) == names


def test_an_edit_gives_one_update_and_whole_numbers_come_back_as_integers():
    document = ItemsDoc(1)
    value = {"t": "é🎉", "c": 1_700_000_000_000, "f": 1.5, "n": [1, {"x": None}]}

    data = document.edit({"a": value, "b": True})
    other = ItemsDoc(2)

    assert other.apply(data, 1) == {"a", "b"}
    assert other.members() == document.members() == {"a": value, "b": True}
    assert canonical(other.members(["a", "c"])) == canonical({"a": value})
    assert '"c":1700000000000,' in canonical(document.members())
    assert document.clocks == other.clocks == {1: 2}
    assert other.weight == other.made == 2


def test_an_edit_passes_over_what_is_not_there_and_must_change_something():
    document = doc_with(a=1, b=2)

    document.edit({"c": 3}, ["a", "x"])

    assert sorted(document.names()) == ["b", "c"]
    with pytest.raises(DocError):
        document.edit({}, ["x"])


def test_a_repeated_write_changes_nothing_and_another_client_is_refused():
    first = ItemsDoc(1)
    data = first.edit({"a": 1})
    other = ItemsDoc(2)
    other.apply(data, 1)

    assert other.apply(data, 1) == frozenset()
    with pytest.raises(UpdateRejectedError):
        ItemsDoc(3).apply(data, 2)
    assert ItemsDoc(3).apply(update(), 2) == frozenset()


def test_changes_that_change_no_member_are_not_named():
    first, second = ItemsDoc(1), ItemsDoc(2)
    low, high = first.edit({"a": 1}), second.edit({"a": 2})

    named = [sorted(first.apply(high, 2)), sorted(second.apply(low, 1))]

    # Of two values under one name all replicas show that of the higher client.
    assert named == [["a"], []]
    assert first.members() == second.members() == {"a": 2}


def test_a_state_is_loaded_merged_and_known_again():
    first, second = doc_with(1, a=1, b=2), doc_with(2, c=3)
    first.edit({}, ["a"])

    assert not second.holds(first.state())
    assert second.apply_state(first.state()) == {"b"}
    assert second.holds(first.state())
    assert second.members() == {"b": 2, "c": 3}
    assert ItemsDoc.load(5, second.state()).is_same(second)
    assert ItemsDoc.restore(5, second.state()).is_same(second)
    assert ItemsDoc.load(5, b"").members() == {}
    assert not first.is_same(second)


def test_a_state_that_lacks_a_delete_is_held_and_one_that_has_more_is_not():
    first = doc_with(1, a=1)
    second = ItemsDoc.load(2, first.state())
    second.edit({}, ["a"])

    assert second.holds(first.state())
    assert not first.holds(second.state())


def test_a_state_is_scanned_where_it_comes_from_elsewhere():
    doc: Doc[Map[object]] = Doc(client_id=1)
    doc["meta"] = Map({"a": 1})

    with pytest.raises(UpdateRejectedError):
        ItemsDoc.load(2, doc.get_update())
    with pytest.raises(DocError):
        ItemsDoc.restore(2, b"\xff")


def test_writes_are_replayed_and_a_repetition_among_them_is_skipped():
    first = ItemsDoc(1)
    writes = [(first.edit({"a": 1}), 1), (first.edit({"b": 2}, ["a"]), 1)]
    other = ItemsDoc(2)

    other.replay([*writes, writes[0]])
    other.check()

    assert other.is_same(first)


class Lying(ItemsDoc):
    """A document that is not what it is told to be, or is squashed to another."""

    lie = b""

    def state(self):
        return self.lie or super().state()


def test_a_document_that_differs_from_what_is_believed_is_found():
    document = doc_with(a=1)
    document.check()
    document.check(["a"])
    document.clocks = {1: 2}

    with pytest.raises(DocError, match="what its records say"):
        document.check()


@pytest.mark.parametrize("changed", [None, ["a"]])
@pytest.mark.parametrize("lie", ["names", "values", "clocks", "bytes"])
def test_a_state_that_is_another_after_a_reload_is_found(changed, lie):
    document = Lying(1)
    document.edit({"a": 1})
    document.check(changed)
    others = {
        "names": doc_with(1, b=1),
        "values": doc_with(1, a=2),
        "clocks": doc_with(2, a=1),
    }
    document.lie = others[lie].state() if lie in others else b"\xff"

    with pytest.raises(DocError):
        document.check(changed)


def test_a_name_with_half_a_character_ends_in_an_error_and_not_in_a_panic():
    with pytest.raises(DocError):
        ItemsDoc(1).edit({"a": {"t": "\ud800"}})


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 99), max_size=5))
def test_the_hash_of_members_is_of_names_and_canonical_values(members):
    hashes = {
        member_hash(name, canonical({"v": value})) for name, value in members.items()
    }

    assert len(hashes) == len(members)
    assert all(-(1 << 63) <= found < 1 << 63 for found in hashes)


def test_canonical_values_have_sorted_names_and_no_blanks():
    assert canonical({"b": [1, "é"], "a": None}) == '{"a":null,"b":[1,"é"]}'
    assert HEADER == "set"
