"""crdtmem.updates.write, with the rules of the reader that every update meets"""

import pytest

from crdtmem.errors import UpdateRejectedError
from crdtmem.limits import CLOCK_MAX, UINT_MAX, UPDATE_BYTES
from crdtmem.updates import scan
from tests.yjs_bytes import number, string, text, uint, update, value

# The document: client 9 wrote six units, client 7, the writer, three.
STATE = {7: 3, 9: 6}
TRUE = b"\x78"


def scan_write(data, *, state=STATE):
    return scan(data, client_ids=frozenset({7}), state=state, snapshot=False)


@pytest.mark.parametrize(
    ("data", "code", "reason"),
    [
        (b"", "update-malformed", "does not end"),
        (update((7, 3, [])), "update-malformed", "client 7 has no structs"),
        (update(deletes=[(9, [])]), "update-malformed", "client 9 has no deleted"),
        (update(deletes=[(9, [(0, 0)])]), "update-malformed", "range of length 0"),
        (update() + b"\0", "update-malformed", "1 bytes left over"),
        (update((7, 3, [b""])), "update-content", "content 0"),
        (uint(1) + uint(2**40) + uint(7) + uint(3), "update-malformed", "announced"),
        (uint(0) + uint(2**40), "update-malformed", "does not end"),
        (
            update((7, 3, [text("a", origin=(9, 5))]), (9, 6, [text("b")])),
            "update-client",
            "2 clients",
        ),
        (update((9, 6, [text("a", origin=(9, 5))])), "update-client", "client id 9"),
        (update((UINT_MAX + 1, 0, [])), "update-clock", f"{UINT_MAX + 1}"),
        (update((7, 4, [text("a", origin=(9, 5))])), "update-clock", "clock 4"),
        (
            update((7, CLOCK_MAX, [text("a", origin=(9, 5))])),
            "update-clock",
            "before 3 is written",
        ),
        (update((7, 2, [text("ab", origin=(9, 5))])), "update-clock", "2 to 4"),
        (update(deletes=[(9, [(5, 2)])]), "update-delete", "clock 7, written is 6"),
        (update(deletes=[(7, [(3, 1)])]), "update-delete", "clock 4, written is 3"),
        (update(deletes=[(8, [(0, 1)])]), "update-delete", "written is 0"),
        (
            update((7, 3, [text("a", origin=(9, 5))]), deletes=[(7, [(3, 2)])]),
            "update-delete",
            "clock 5, written is 4",
        ),
        (update((7, 3, [text("a", origin=(9, 6))])), "update-origin", "6 of client 9"),
        (update((7, 3, [text("a", right=(9, 6))])), "update-origin", "6 of client 9"),
        (update((7, 3, [text("a", origin=(8, 0))])), "update-origin", "0 of client 8"),
        (update((7, 3, [text("a", origin=(7, 3))])), "update-origin", "3 of client 7"),
        (
            update((7, 3, [text("a", origin=(7, 4)), text("bc", origin=(9, 5))])),
            "update-origin",
            "4 of client 7",
        ),
    ],
)
def test_a_write_that_breaks_a_rule_is_refused(data, code, reason):
    state = dict(STATE)

    with pytest.raises(UpdateRejectedError, match=reason) as caught:
        scan_write(data, state=state)

    assert caught.value.code == code
    assert state == STATE


def test_a_write_beyond_the_last_clock_is_refused():
    state = {7: CLOCK_MAX - 1, 9: 1}

    fits = update((7, CLOCK_MAX - 1, [text("a", origin=(9, 0))]))
    assert scan_write(fits, state=state).clients == {7: (CLOCK_MAX - 1, CLOCK_MAX)}

    with pytest.raises(UpdateRejectedError, match=f"{CLOCK_MAX + 1}") as caught:
        scan_write(update((7, CLOCK_MAX - 1, [text("ab", origin=(9, 0))])), state=state)
    assert caught.value.code == "update-clock"


def test_a_write_of_more_than_4_mib_is_refused_unread():
    longest = b"\xff" * UPDATE_BYTES

    with pytest.raises(UpdateRejectedError, match="does not end"):
        scan_write(longest)
    with pytest.raises(UpdateRejectedError, match=f"{UPDATE_BYTES + 1}") as caught:
        scan_write(longest + b"\xff")

    assert caught.value.code == "update-too-large"


def test_a_write_may_delete_what_it_and_the_state_hold():
    data = update(
        (7, 3, [text("ab", origin=(7, 2), right=(9, 0))]),
        deletes=[(7, [(0, 5)]), (9, [(0, 6)])],
    )

    assert scan_write(data).deletes == ((7, 0, 5), (9, 0, 6))


def test_anybody_may_have_written_where_no_client_ids_are_given():
    data = update((8, 0, [text("a", origin=(9, 5))]))

    assert scan(data, client_ids=None, state=STATE, snapshot=False).clients == {
        8: (0, 1)
    }


def test_a_value_may_hang_on_one_of_the_same_key_in_the_write():
    data = update(
        (
            7,
            3,
            [
                value(TRUE, root="meta", key="pinned"),
                value(TRUE, origin=(7, 3), is_keyed=True),
                value(TRUE, origin=(7, 3), right=(7, 4), is_keyed=True),
                value(TRUE, origin=(9, 1), right=(7, 5), is_keyed=True),
                value(TRUE, origin=(7, 6), is_keyed=True),
            ],
        )
    )

    assert scan_write(data).clients == {7: (3, 8)}


@pytest.mark.parametrize(
    ("structs", "reason"),
    [
        (
            [
                value(TRUE, root="meta", key="pinned"),
                value(number(5), origin=(7, 3), is_keyed=True),
            ],
            "type int",
        ),
        (
            [
                value(TRUE, root="meta", key="pinned"),
                value(TRUE, root="meta", key="deleted"),
                value(TRUE, origin=(7, 3), right=(7, 4), is_keyed=True),
            ],
            "two keys",
        ),
        (
            [value(TRUE, root="meta", key="pinned"), text("a", origin=(7, 3))],
            "another kind",
        ),
        (
            [text("a", origin=(9, 5)), value(TRUE, origin=(7, 3), is_keyed=True)],
            "another kind",
        ),
        (
            [text("a", origin=(9, 5)), value(TRUE, right=(7, 3), is_keyed=True)],
            "another kind",
        ),
    ],
)
def test_a_struct_that_hangs_on_another_kind_is_refused(structs, reason):
    with pytest.raises(UpdateRejectedError, match=reason) as caught:
        scan_write(update((7, 3, structs)))

    assert caught.value.code == "update-content"


def test_every_truncation_of_a_write_is_refused():
    data = update(
        (
            7,
            3,
            [
                text("né\n", origin=(9, 5), right=(9, 2)),
                value(b"\x77" + string("a"), root="meta", key="description"),
            ],
        ),
        deletes=[(9, [(0, 1), (2, 300)])],
    )
    assert scan_write(data, state={7: 3, 9: 900}).text == "né\n"

    for end in range(len(data)):
        with pytest.raises(UpdateRejectedError) as caught:
            scan_write(data[:end], state={7: 3, 9: 900})
        assert caught.value.code == "update-malformed"
