"""crdtmem.protocol.answers"""

from crdtmem.protocol.answers import Answers
from crdtmem.protocol.messages import (
    Ack,
    Action,
    Bye,
    ErrorMessage,
    Head,
    Heartbeat,
    Leave,
    Presence,
    decode_frame,
    encode_message,
)
from crdtmem.protocol.relaying import PutRefusal

HEADS = (Head(1, 7),)


def taken(answers):
    return [decode_frame(frame) for frame in answers.take(HEADS)]


def presence(number):
    return Presence(1, number.to_bytes(16, "big"), bytes(16), 1, 1, bytes(1_000))


def show(answers, number):
    one = presence(number)
    key = (one.ns_no, one.replica_id, one.incarnation)
    answers.show(key, encode_message(one))


def test_nothing_waits_at_first():
    answers = Answers()

    assert answers.is_empty
    assert answers.take(HEADS) == []


def test_of_a_namespace_the_highest_acknowledgement_is_sent():
    answers = Answers()
    for number in (2, 5, 3):
        answers.acknowledge(Ack(1, number, number, bytes(32)))
    answers.acknowledge(Ack(2, 1, 9, bytes(32)))

    assert taken(answers) == [[Ack(1, 5, 5, bytes(32)), Ack(2, 1, 9, bytes(32))]]
    assert answers.is_empty


def test_acknowledgements_go_before_errors_and_presences_last():
    answers = Answers()
    show(answers, 1)
    answers.beat(0)
    answers.refuse("notes", (Action.RETRY, 5), PutRefusal("busy", 3, 3), "why")
    answers.acknowledge(Ack(1, 2, 2, bytes(32)))

    assert taken(answers) == [
        [
            Ack(1, 2, 2, bytes(32)),
            ErrorMessage("notes", 3, 3, 1, 5, "busy", "why"),
            Heartbeat(0, HEADS),
            presence(1),
        ]
    ]
    assert answers.errors == ["busy"]


def test_a_heartbeat_that_asks_is_not_replaced_by_one_that_does_not():
    answers = Answers()
    answers.beat(1)
    answers.beat(0)

    assert taken(answers) == [[Heartbeat(1, HEADS)]]


def test_the_text_of_an_error_is_cut_where_a_character_ends():
    answers = Answers()
    answers.refuse("", (Action.CLOSE, 0), PutRefusal("busy", 0, 0), "a" + "€" * 200)

    assert taken(answers)[0][0].text == "a" + "€" * 170


def test_of_a_replica_the_latest_presence_is_sent_and_of_many_the_first_first():
    answers = Answers()
    for number in [*range(60), 0]:
        show(answers, number)
    first, second = taken(answers), taken(answers)

    assert first == [[presence(number) for number in range(48)]]
    assert second == [[presence(number) for number in range(48, 60)]]
    assert answers.is_empty


def test_many_answers_are_several_frames():
    answers = Answers()
    for number in range(1, 131):
        answers.say(Leave(number))

    assert list(map(len, taken(answers))) == [64, 64, 2]


def test_what_a_later_join_would_replace_is_forgotten_with_the_namespace():
    answers = Answers()
    answers.acknowledge(Ack(1, 1, 1, bytes(32)))
    answers.acknowledge(Ack(2, 1, 1, bytes(32)))
    show(answers, 1)
    answers.leave(1)
    answers.leave(3)

    assert taken(answers) == [[Ack(2, 1, 1, bytes(32))]]


def test_answers_that_nobody_reads_have_a_bound():
    answers = Answers()
    answers.say(Bye(0, "x" * 64))
    before = answers.is_overfull
    for _ in range(1_000):
        answers.say(Bye(0, "x" * 64))
    after = answers.is_overfull
    answers.clear()

    assert (before, after, answers.is_overfull, answers.is_empty) == (
        False,
        True,
        False,
        True,
    )
