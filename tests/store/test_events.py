"""crdtmem.store.events"""

import json

import pytest

from crdtmem.limits import EVENTS_MAX
from crdtmem.store.events import EventRow, add_event, events_of


def add(store, kind, **of):
    with store.writing() as transaction:
        return add_event(transaction.connection, kind, at_ms=7, **of)


def kinds(store, **of):
    with store.reading() as connection:
        return [event.kind for event in events_of(connection, **of)]


def test_an_event_says_what_where_and_when(store):
    number = add(store, "condense", namespace="p", label="plan", details={"rev": 3})

    with store.reading() as connection:
        (event,) = events_of(connection)

    assert event == EventRow(number, 7, "condense", "p", "plan", '{"rev": 3}')


def test_an_event_may_be_about_no_slot(store):
    add(store, "mirror-busy")

    with store.reading() as connection:
        (event,) = events_of(connection)

    assert (event.namespace, event.label) == ("", "")
    assert json.loads(event.details) == {}


def test_an_event_is_there_only_if_its_transaction_is(store):
    with pytest.raises(KeyError), store.writing() as transaction:
        add_event(transaction.connection, "condense", at_ms=7)
        raise KeyError

    assert kinds(store) == []


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, ["a", "b", "c", "a"]),
        ({"limit": 2}, ["c", "a"]),
        ({"kinds": ["a", "c"]}, ["a", "c", "a"]),
        ({"kinds": ["never"]}, []),
        ({"namespace": "p"}, ["a", "b"]),
        ({"namespace": "p", "label": "other"}, ["b"]),
        ({"label": "plan"}, ["a", "c"]),
    ],
)
def test_the_newest_events_of_a_kind_or_slot_come_oldest_first(store, wanted, found):
    add(store, "a", namespace="p", label="plan")
    add(store, "b", namespace="p", label="other")
    add(store, "c", namespace="q", label="plan")
    add(store, "a")

    assert kinds(store, **wanted) == found


def test_events_past_their_number_go_and_numbers_come_once(store):
    first = add(store, "a")
    with store.writing() as transaction:
        # The numbers between were used by events that are gone.
        transaction.connection.execute(
            "UPDATE sqlite_sequence SET seq = ? WHERE name = 'event'",
            (first + EVENTS_MAX - 2,),
        )

    last = [add(store, kind) for kind in ("b", "c")]

    assert last == [first + EVENTS_MAX - 1, first + EVENTS_MAX]
    assert kinds(store) == ["b", "c"]
