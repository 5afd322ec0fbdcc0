"""What a Yjs editor and the gateway say to each other."""

import json

import pytest
from hypothesis import given, strategies as st

from crdtmem.limits import (
    AWARENESS_ENTRIES_MAX,
    AWARENESS_IDS_MAX,
    AWARENESS_TTL_S,
    EDITOR_FRAME_BYTES,
    EDITOR_FRAME_MESSAGES_MAX,
    EDITOR_GAP_WINDOW_S,
    EDITOR_GAPS_MAX,
)
from crdtmem.protocol.codec import write_bytes, write_str, write_uint
from crdtmem.protocol.editors import (
    Awareness,
    AwarenessEntry,
    AwarenessOffered,
    AwarenessWanted,
    Close,
    DiffWanted,
    EditorSession,
    UpdateOffered,
    close_of,
)

ANCHOR = (1 << 32) + 5
OURS = write_uint(1) + write_uint(ANCHOR) + write_uint(1)
OTHERS = write_uint(1) + write_uint(70_000) + write_uint(1)
QUERY = b"\3"


def session():
    return EditorSession(anchor=ANCHOR, now=0.0)


def sync(step, data):
    return b"\0" + write_uint(step) + write_bytes(data)


def awareness(*entries):
    found = write_uint(len(entries))
    for client, clock, state in entries:
        found += write_uint(client) + write_uint(clock) + write_str(state)
    return b"\1" + write_bytes(found)


def test_the_gateway_asks_first():
    one = session()
    one.begin(OURS)
    assert one.backlog == 1
    assert one.data_to_send() == [sync(0, OURS)]
    assert one.data_to_send() == []


@pytest.mark.parametrize("vector", [b"", b"\0", OURS])
def test_an_editor_with_nothing_or_with_our_document_is_answered_at_once(vector):
    one = session()
    assert one.receive(sync(0, vector), 0.0) == [DiffWanted(vector)]
    one.diff_ready(b"diff")
    assert one.is_live
    assert one.data_to_send() == [sync(1, b"diff")]


@pytest.mark.requirement("serve-19")
def test_an_editor_with_something_else_is_answered_after_its_own_answer_passed():
    one = session()
    assert one.receive(sync(0, OTHERS), 0.0) == []
    (offer,) = one.receive(sync(1, b"update"), 0.0)
    assert offer == UpdateOffered(b"update", is_first=True)

    assert one.accepted(offer, "", OURS, 0.0) == [DiffWanted(OTHERS)]

    assert one.receive(sync(0, OTHERS), 0.0) == [DiffWanted(OTHERS)]
    assert one.accepted(offer, "known", OURS, 0.0) == []


@pytest.mark.requirement("serve-19")
def test_an_editor_with_another_document_is_told_nothing_and_closed():
    one = session()
    one.receive(sync(0, OTHERS), 0.0)
    (offer,) = one.receive(sync(1, b"update"), 0.0)

    assert one.accepted(offer, "other-incarnation", OURS, 0.0) == []

    assert one.closing == Close(4409, "other-incarnation")
    assert one.data_to_send() == []
    assert one.receive(QUERY, 0.0) == []


def test_an_update_of_nothing_is_nothing():
    one = session()
    assert one.receive(sync(2, b"\0\0"), 0.0) == []
    (found,) = one.receive(sync(2, b"x"), 0.0)
    assert found == UpdateOffered(b"x", is_first=False)
    assert one.accepted(found, "", OURS, 0.0) == []


def test_all_messages_of_a_frame_are_read():
    one = session()
    frame = sync(0, b"") + sync(2, b"x") + QUERY
    assert one.receive(frame, 0.0) == [
        DiffWanted(b""),
        UpdateOffered(b"x", is_first=False),
        AwarenessWanted(),
    ]


@pytest.mark.requirement("serve-20")
@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"", 4400),
        (b"\7", 4400),
        (b"\2\0", 4400),
        (b"\0\3\0", 4400),
        (b"\0\2\7abc", 4400),
        (b"\0\0\3\1\x80", 4400),
        (b"\xff" * 12, 4400),
        (awareness(*[(n, 0, "{}") for n in range(AWARENESS_ENTRIES_MAX + 1)]), 4400),
        (QUERY * (EDITOR_FRAME_MESSAGES_MAX + 1), 4400),
        (bytes(EDITOR_FRAME_BYTES + 1), 1009),
    ],
)
def test_what_is_no_message_closes_the_connection(frame, code):
    one = session()
    one.receive(frame, 0.0)
    assert one.closing is not None
    assert one.closing.code == code


def test_messages_before_a_bad_one_count():
    assert session().receive(QUERY + b"\7", 0.0) == [AwarenessWanted()]


def test_a_text_frame_closes_the_connection():
    one = session()
    one.receive_text()
    assert one.closing == Close(4400, "text-frame")


@pytest.mark.requirement("serve-20")
@given(st.lists(st.binary(max_size=40), max_size=4), st.binary(max_size=8))
def test_no_bytes_make_a_session_raise(frames, prefix):
    one = session()
    for frame in frames:
        one.receive(prefix + frame, 0.0)
        one.data_to_send()


def test_a_gap_is_asked_about_again_until_it_happens_too_often():
    one = session()
    offer = UpdateOffered(b"x", is_first=True)
    one.accepted(offer, "update-gap", OURS, 0.0)
    for number in range(EDITOR_GAPS_MAX - 1):
        one.accepted(offer, "update-gap", OURS, EDITOR_GAP_WINDOW_S + 1 + number)
        assert one.data_to_send()[-1] == sync(0, OURS)
    assert one.closing is None
    one.accepted(offer, "update-gap", OURS, EDITOR_GAP_WINDOW_S + 2)
    assert one.closing == Close(4400, "update-gap")


@pytest.mark.requirement("serve-21")
def test_what_is_typed_before_an_editor_can_answer_is_one_gap():
    one = session()
    typed, answer = UpdateOffered(b"x", is_first=False), UpdateOffered(b"x", True)
    for number in range(5):
        one.accepted(typed, "update-gap", OURS, number / 10)
    assert one.data_to_send() == [sync(0, OURS)]
    assert one.accepted(answer, "", OURS, 1.0) == []
    one.accepted(typed, "update-gap", OURS, 1.1)
    assert one.data_to_send() == [sync(0, OURS)]
    assert one.closing is None


def test_an_editor_that_may_not_write_is_told_once_and_goes_on():
    one = session()
    offer = UpdateOffered(b"x", is_first=True)
    for _ in range(2):
        one.accepted(offer, "slot-read-only", OURS, 0.0)
    assert one.data_to_send() == [b"\2\0" + write_str("slot-read-only")]
    assert one.closing is None


@pytest.mark.parametrize(
    ("code", "close"),
    [
        ("", None),
        ("known", None),
        ("update-gap", None),
        ("permission-denied", None),
        ("size-limit-exceeded", 4413),
        ("unsupported-content", 4415),
        ("update-malformed", 4400),
        ("update-client", 4400),
    ],
)
def test_each_refusal_has_its_close(code, close):
    found = close_of(code)
    assert (found and found.code) == close


def test_rows_are_one_frame_each():
    one = session()
    one.publish(b"a")
    one.publish(b"b")
    one.tell([])
    assert one.data_to_send() == [sync(2, b"a"), sync(2, b"b")]


@pytest.mark.requirement("serve-25")
def test_of_what_an_editor_says_of_itself_too_often_the_latest_counts():
    one = session()
    first, second, third = ((7, n, json.dumps({"n": n})) for n in range(3))
    assert one.receive(awareness(first), 0.0) == [
        AwarenessOffered((AwarenessEntry(*first),))
    ]
    assert one.receive(awareness(second), 0.01) == []
    assert one.receive(awareness(third), 0.02) == []
    assert one.has_to_tick
    assert one.tick(0.05) == []
    assert one.tick(0.2) == [AwarenessOffered((AwarenessEntry(*third),))]
    assert not one.has_to_tick


@pytest.mark.requirement("serve-25")
def test_of_a_flood_of_words_only_so_many_are_kept():
    one = session()
    one.receive(awareness((7, 0, "{}")), 0.0)
    for start in (0, AWARENESS_ENTRIES_MAX):
        many = [(start + n, 0, "{}") for n in range(AWARENESS_ENTRIES_MAX)]
        one.receive(awareness(*many), 0.01)
    (offered,) = one.tick(1.0)
    assert isinstance(offered, AwarenessOffered)
    assert len(offered.entries) == AWARENESS_ENTRIES_MAX


@pytest.mark.requirement("serve-25")
@pytest.mark.parametrize(
    "state",
    ["nonsense", "[]", "1", "x" * 3_000, '{"a":' * 9 + "1" + "}" * 9,
     '{"a": [[[[[[[[1]]]]]]]]}'],
)  # fmt: skip
def test_what_is_no_small_state_is_ignored(state):
    one = session()
    assert one.receive(awareness((7, 0, state)), 0.0) == []
    assert one.closing is None


def test_words_of_others_are_sent_together():
    one = session()
    entries = [AwarenessEntry(7, 1, "{}"), AwarenessEntry(8, 2, "null")]
    one.tell(entries)
    assert one.data_to_send() == [awareness(*entries)]


ANA, BEN = "ana", "ben"


def word(client, clock=1, state='{"user": {"name": "ana"}}'):
    return AwarenessEntry(client, clock, state)


@pytest.mark.requirement("serve-25")
def test_a_connection_speaks_for_its_first_ids_and_nobody_elses():
    found = Awareness()
    own = [word(n) for n in range(AWARENESS_IDS_MAX)]
    assert found.hear(ANA, [*own, word(99)], 0.0) == own
    assert found.hear(BEN, [word(0, 5), word(99)], 0.0) == [word(99)]
    assert found.hear(ANA, [word(0)], 1.0) == []
    assert found.hear(ANA, [word(0, 0)], 1.0) == []
    assert found.hear(BEN, [word(50, 1, "null")], 1.0) == []
    assert len(found.all()) == AWARENESS_IDS_MAX + 1


def test_who_leaves_or_is_silent_is_forgotten():
    found = Awareness()
    found.hear(ANA, [word(1), word(2)], 0.0)
    found.hear(BEN, [word(3)], 0.0)
    assert found.hear(ANA, [word(1, 2, "null")], 0.0) == [word(1, 2, "null")]
    assert found.leave(ANA) == [word(2, 2, "null")]
    assert found.expire(AWARENESS_TTL_S) == []
    assert found.expire(AWARENESS_TTL_S + 1) == [word(3, 2, "null")]
    assert found.all() == []


@pytest.mark.parametrize(
    ("state", "name"),
    [
        ('{"user": {"name": "ana"}}', "ana"),
        ('{"user": {"name": 1}}', ""),
        ('{"user": "ana"}', ""),
        ("{}", ""),
    ],
)
def test_the_name_that_an_editor_gives_itself(state, name):
    found = Awareness()
    found.hear(BEN, [word(9)], 0.0)
    found.hear(ANA, [word(1, 1, state)], 0.0)
    assert found.name_of(ANA) == name
    assert found.name_of("nobody") == ""
