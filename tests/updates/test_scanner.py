"""crdtmem.updates.scanner"""

from typing import Any

import pytest
from hypothesis import given, strategies as st
from pycrdt import Doc, Map, Text

from crdtmem.errors import UpdateRejectedError
from crdtmem.limits import CLOCK_MAX, STATE_CLIENTS_MAX, UINT_MAX
from crdtmem.updates import Scan, read_state_vector, scan, scan_genesis
from tests.yjs_bytes import string, text, uint, update, value

SETTINGS = {
    "appendOnly": st.booleans(),
    "deleted": st.booleans(),
    "description": st.text(st.characters(codec="utf-8"), max_size=5),
    "pinned": st.booleans(),
    "readOnly": st.booleans(),
    "sizeLimit": st.integers(1, 1_000_000),
}
CHARACTERS = st.sampled_from("ab\n\0é€🎉")
PLACES = st.floats(0, 1)
EDITS = st.one_of(
    st.tuples(st.just("insert"), PLACES, st.text(CHARACTERS, min_size=1, max_size=6)),
    st.tuples(st.just("delete"), PLACES, PLACES),
    st.tuples(st.just("replace"), PLACES, PLACES, st.text(CHARACTERS, min_size=1)),
    st.tuples(st.just("clear")),
    st.tuples(st.just("unset"), st.sampled_from(list(SETTINGS))),
    *[
        st.tuples(st.just("set"), st.just(key), values)
        for key, values in SETTINGS.items()
    ],
)
STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 2), EDITS), min_size=1, max_size=30
)


class Replica:
    """A document whose every update is scanned before it goes anywhere."""

    def __init__(self, client_id):
        self.client_id = client_id
        self.doc: Doc[Any] = Doc(client_id=client_id)
        self.content = self.doc.get("content", type=Text)
        self.meta = self.doc.get("meta", type=Map)
        self.log = []
        self.state = {}

    def edit(self, name, *values):
        emitted = []
        subscription = self.doc.observe(lambda event: emitted.append(event.update))
        with self.doc.transaction():
            getattr(self, f"do_{name}")(*values)
        self.doc.unobserve(subscription)
        for data in emitted:
            self.take(self.client_id, data)

    def receive(self, other):
        for client_id, data in other.log:
            if (client_id, data) not in self.log:
                self.doc.apply_update(data)
                self.take(client_id, data)

    def take(self, client_id, data):
        found = scan(
            data,
            client_ids=frozenset({client_id}),
            state=self.state,
            snapshot=False,
        )
        self.log.append((client_id, data))
        self.state |= {client: end for client, (_, end) in found.clients.items()}
        assert not found.is_known
        assert self.state == read_state_vector(self.doc.get_state())

    def at(self, place):
        """Turn a share of the text into a byte offset between two characters."""
        shown = str(self.content)
        return len(shown[: round(place * len(shown))].encode())

    def do_insert(self, place, inserted):
        self.content.insert(self.at(place), inserted)

    def do_delete(self, first, second):
        start, end = sorted([self.at(first), self.at(second)])
        del self.content[start:end]

    def do_replace(self, first, second, inserted):
        start, end = sorted([self.at(first), self.at(second)])
        del self.content[start:end]
        self.content.insert(start, inserted)

    def do_clear(self):
        self.content.clear()
        self.meta["deleted"] = True

    def do_set(self, key, setting):
        self.meta[key] = setting

    def do_unset(self, key):
        self.meta.pop(key, None)


def scan_anyone(data, *, state=None, snapshot=False):
    return scan(data, client_ids=None, state=state or {}, snapshot=snapshot)


@given(STEPS)
def test_whatever_our_documents_emit_is_accepted(steps):
    replicas = [Replica(2**52 + 7), Replica(5), Replica(300)]

    for writer, reader, edit in steps:
        replicas[writer].edit(*edit)
        replicas[reader].receive(replicas[writer])
        squashed = replicas[reader].doc.get_update()
        found = scan_anyone(squashed, snapshot=True)

        assert found.clients == {
            client: (0, end) for client, end in replicas[reader].state.items()
        }


def test_a_scan_tells_what_a_write_holds():
    data = update(
        (7, 3, [text("né🎉\n", origin=(7, 2)), text("b\n", right=(9, 0))]),
        deletes=[(7, [(0, 2)]), (9, [(1, 1), (4, 2)])],
    )

    assert scan_anyone(data, state={7: 3, 9: 6}) == Scan(
        clients={7: (3, 10)},
        deletes=((7, 0, 2), (9, 1, 1), (9, 4, 2)),
        text="né🎉\nb\n",
        is_known=False,
    )


def test_a_write_that_the_state_holds_is_known():
    data = update((7, 3, [text("abc", origin=(7, 2))]))

    assert not scan_anyone(data, state={7: 3}).is_known
    assert scan_anyone(data, state={7: 6}).is_known
    assert scan_anyone(data, state={7: 9}).is_known


def test_a_write_without_structs_is_never_known():
    assert not scan_anyone(update(deletes=[(7, [(0, 3)])]), state={7: 3}).is_known
    assert not scan_anyone(update()).is_known


def test_a_genesis_write_gives_its_client_and_its_text():
    data = update((2**53 - 1, 0, [text("first\n", root="content")]))

    assert scan_genesis(data, state={}) == (2**53 - 1, "first\n")
    assert scan_genesis(data, state={5: 3, 2**53 - 1: 6}) == (2**53 - 1, "first\n")


def test_the_first_text_that_pycrdt_writes_is_a_genesis_write():
    doc: Doc[Text] = Doc(client_id=77)
    doc.get("content", type=Text).insert(0, "naïve 🎉\n")

    assert scan_genesis(doc.get_update(), state={}) == (77, "naïve 🎉\n")


@pytest.mark.parametrize(
    "data",
    [
        update(),
        update((7, 0, [text("a\n", root="content"), text("b\n", origin=(7, 1))])),
        update((7, 0, [text("a\n", origin=(9, 0))])),
        update((7, 0, [text("a\n", right=(9, 0))])),
        update((7, 3, [text("a\n", root="content")])),
        update((7, 0, [text("a\n", root="content")]), deletes=[(9, [(0, 1)])]),
        update((7, 0, [value(b"\x78", root="meta", key="pinned")])),
        update(deletes=[(9, [(0, 1)])]),
    ],
    ids=str,
)
def test_a_genesis_write_has_one_shape(data):
    state = {7: 3, 9: 2} if data[:4] == bytes([1, 1, 7, 3]) else {9: 2}

    with pytest.raises(UpdateRejectedError, match="not one string") as caught:
        scan_genesis(data, state=state)

    assert caught.value.code == "update-client"


def test_a_state_vector_gives_the_next_clock_of_each_client():
    data = uint(2) + uint(7) + uint(3) + uint(UINT_MAX) + uint(CLOCK_MAX)

    assert read_state_vector(data) == {7: 3, UINT_MAX: CLOCK_MAX}
    assert read_state_vector(b"\0") == {}


@pytest.mark.parametrize(
    ("data", "code", "reason"),
    [
        (b"", "update-malformed", "integer does not end"),
        (uint(2) + uint(7) + uint(3), "update-malformed", "integer does not end"),
        (uint(2) + (uint(7) + uint(3)) * 2, "update-malformed", "occurs twice"),
        (b"\0\0", "update-malformed", "1 bytes left over"),
        (uint(STATE_CLIENTS_MAX + 1), "update-clock", "65537 clients"),
        (uint(1) + uint(UINT_MAX + 1) + uint(3), "update-clock", f"{UINT_MAX + 1}"),
        (uint(1) + uint(7) + uint(CLOCK_MAX + 1), "update-clock", f"{CLOCK_MAX + 1}"),
    ],
)
def test_a_bad_state_vector_is_refused(data, code, reason):
    with pytest.raises(UpdateRejectedError, match=reason) as caught:
        read_state_vector(data)

    assert caught.value.code == code


def test_a_refusal_names_its_place_and_holds_no_text():
    data = update((7, 0, [text("secret", root="content")])) + string("secret")

    with pytest.raises(UpdateRejectedError) as caught:
        scan_anyone(data)

    assert str(caught.value) == "update refused at byte 22: 7 bytes left over"
    assert caught.value.to_dict() == {
        "error": {
            "code": "update-malformed",
            "message": "update refused at byte 22: 7 bytes left over",
            "details": {"reason": "7 bytes left over", "at_byte": 22},
        }
    }
