"""crdtmem.updates.snapshot"""

import pytest

from crdtmem.errors import UpdateRejectedError
from crdtmem.limits import CLOCK_MAX, STATE_BYTES, STATE_CLIENTS_MAX, UINT_MAX
from crdtmem.updates import scan
from tests.yjs_bytes import number, struct, text, uint, update, value

TRUE = b"\x78"


def scan_snapshot(data, *, client_ids=None):
    # A snapshot stands alone: what the state holds does not help it.
    return scan(data, client_ids=client_ids, state={5: 9, 6: 9}, snapshot=True)


def deleted(length, **place):
    return struct(1, uint(length), **place)


def test_clients_may_hang_on_each_other_in_any_order():
    data = update(
        (1, 0, [text("ab", root="content"), text("cd", origin=(2, 1))]),
        (2, 0, [text("ef", origin=(1, 1)), text("gh", origin=(1, 3), right=(3, 0))]),
        (3, 0, [deleted(4, origin=(2, 0))]),
        deletes=[(3, [(0, 4)])],
    )

    assert scan_snapshot(data).clients == {1: (0, 4), 2: (0, 4), 3: (0, 4)}


def test_the_remains_of_deleted_values_keep_their_key():
    data = update(
        (
            1,
            0,
            [
                deleted(2, root="meta", key="sizeLimit"),
                deleted(3, root="content"),
                value(number(5), origin=(2, 0), is_keyed=True),
            ],
        ),
        (2, 0, [deleted(1, origin=(1, 1), is_keyed=True)]),
        deletes=[(1, [(0, 5)]), (2, [(0, 1)])],
    )

    assert scan_snapshot(data).clients == {1: (0, 6), 2: (0, 1)}


@pytest.mark.parametrize(
    ("data", "code", "reason"),
    [
        (uint(STATE_CLIENTS_MAX + 1), "update-clock", "65537 clients"),
        (update((1, 1, [text("a", root="content")])), "update-clock", "clock 1"),
        (
            update(
                (1, 0, [text("a", root="content")]), (1, 0, [text("b", origin=(1, 0))])
            ),
            "update-malformed",
            "client 1 occurs twice",
        ),
        (update((1, 0, [struct(0, uint(5))])), "update-content", "content 0"),
        (update((1, 0, [struct(10, uint(5))])), "update-content", "content 10"),
        (update((1, 0, [struct(0x40, uint(5))])), "update-content", "content 0"),
        (update((1, 0, [deleted(0, root="content")])), "update-malformed", "length 0"),
        (
            update((1, 0, [deleted(CLOCK_MAX + 1, root="content")])),
            "update-clock",
            f"{CLOCK_MAX + 1}",
        ),
        (update((1, 0, [deleted(1, root="meta")])), "update-root", "no text"),
        (update((1, 0, [deleted(1, root="meta", key="x")])), "update-content", "key"),
        (
            update((1, 0, [value(TRUE, root="meta", key="sizeLimit")])),
            "update-content",
            "type bool",
        ),
        # The state holds clients 5 and 6, and the snapshot does not.
        (update((1, 0, [text("a", origin=(5, 0))])), "update-origin", "client 5"),
        (update(deletes=[(5, [(0, 1)])]), "update-delete", "written is 0"),
        (update((1, 0, [text("a", origin=(1, 0))])), "update-origin", "client 1"),
        (
            update((1, 0, [text("a", origin=(UINT_MAX + 1, 0))])),
            "update-origin",
            f"client {UINT_MAX + 1}",
        ),
        (
            update((1, 0, [text("a", origin=(2, CLOCK_MAX))])),
            "update-origin",
            f"clock {CLOCK_MAX}",
        ),
        (
            update(
                (1, 0, [text("a", origin=(2, 1))]), (2, 0, [text("b", root="content")])
            ),
            "update-origin",
            "clock 1 of client 2",
        ),
    ],
)
def test_a_snapshot_that_breaks_a_rule_is_refused(data, code, reason):
    with pytest.raises(UpdateRejectedError, match=reason) as caught:
        scan_snapshot(data)

    assert caught.value.code == code


def test_references_in_a_circle_are_refused():
    pair = update(
        (1, 0, [text("a", origin=(2, 0))]), (2, 0, [text("b", origin=(1, 0))])
    )
    three = update(
        (1, 0, [text("a", root="content"), text("b", origin=(3, 0))]),
        (2, 0, [text("c", origin=(1, 0)), text("d", origin=(1, 1))]),
        (3, 0, [text("e", right=(2, 1))]),
    )

    for data in (pair, three):
        with pytest.raises(UpdateRejectedError, match="come first") as caught:
            scan_snapshot(data)
        assert caught.value.code == "update-origin"


@pytest.mark.parametrize(
    ("structs", "reason"),
    [
        ([value(number(5), origin=(1, 0), is_keyed=True)], "type int"),
        ([value(TRUE, origin=(1, 2), is_keyed=True)], "another kind"),
        ([deleted(1, origin=(1, 2), is_keyed=True)], "another kind"),
        ([text("a", origin=(1, 0))], "another kind"),
        ([deleted(1, origin=(1, 1))], "another kind"),
        ([value(TRUE, origin=(1, 0), right=(1, 1), is_keyed=True)], "two keys"),
        (
            [
                value(TRUE, root="meta", key="readOnly"),
                value(TRUE, origin=(2, 0), right=(1, 1), is_keyed=True),
            ],
            "two keys",
        ),
    ],
)
def test_a_struct_that_hangs_on_another_kind_is_refused(structs, reason):
    first = [
        value(TRUE, root="meta", key="pinned"),
        value(TRUE, root="meta", key="deleted"),
        text("abc", root="content"),
    ]

    with pytest.raises(UpdateRejectedError, match=reason) as caught:
        scan_snapshot(update((1, 0, first), (2, 0, structs)))

    assert caught.value.code == "update-content"


def test_text_before_and_after_values_is_no_value():
    data = update(
        (
            1,
            0,
            [
                text("abc", root="content"),
                value(TRUE, root="meta", key="pinned"),
                text("def", origin=(1, 2)),
            ],
        ),
        (2, 0, [text("x", origin=(1, 1), right=(1, 5))]),
    )

    assert scan_snapshot(data).text == "abcdefx"


def test_a_snapshot_of_more_than_16_mib_is_refused_unread():
    longest = b"\xff" * STATE_BYTES

    with pytest.raises(UpdateRejectedError, match="does not end"):
        scan_snapshot(longest)
    with pytest.raises(UpdateRejectedError, match=f"{STATE_BYTES + 1}") as caught:
        scan_snapshot(longest + b"\xff")

    assert caught.value.code == "update-too-large"


def test_the_clients_of_a_snapshot_may_be_bounded():
    data = update((1, 0, [text("a", root="content")]))

    assert scan_snapshot(data, client_ids=frozenset({1})).text == "a"
    with pytest.raises(UpdateRejectedError) as caught:
        scan_snapshot(data, client_ids=frozenset({2}))

    assert caught.value.code == "update-client"
