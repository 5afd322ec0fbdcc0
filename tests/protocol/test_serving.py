"""crdtmem.protocol.serving"""

from itertools import product

import pytest

from crdtmem.protocol.messages import Action
from crdtmem.protocol.serving import (
    JOIN_REFUSALS,
    PUT_REFUSALS,
    STAGES,
    TRANSITIONS,
    Stage,
    State,
    TransferBudget,
)

NEXT = """
            hello    welcome  finish     settled  close    disconnected
new         greeted  -        finishing  -        closing  closed
greeted     -        open     finishing  -        closing  closed
open        -        -        finishing  -        closing  closed
finishing   -        -        -          closing  closing  closed
closing     -        -        -          -        -        closed
closed      -        -        -          -        -        closed
"""
NEXT_STAGE = """
            join_done  rewind   samples   match_done
joining     joined     rewound  -         -
rewound     -          -        matching  -
matching    -          -        -         joined
joined      -          -        -         -
"""


def cells(table):
    """Return row, column and what stands there."""
    head, *rows = [line.split() for line in table.strip().splitlines()]
    return [
        (name, column, cell)
        for name, *row in rows
        for column, cell in zip(head, row, strict=True)
    ]


@pytest.mark.parametrize(("state", "event", "after"), cells(NEXT))
def test_a_connection_moves_as_the_table_says(state, event, after):
    found = TRANSITIONS.get((State(state), event))

    assert (found.value if found else "-") == after


@pytest.mark.parametrize(("stage", "event", "after"), cells(NEXT_STAGE))
def test_a_namespace_moves_as_the_table_says(stage, event, after):
    found = STAGES.get((Stage(stage), event))

    assert (found.value if found else "-") == after


def test_the_tables_name_no_other_event():
    events = {event for _, event in TRANSITIONS}
    joining = {event for _, event in STAGES}

    assert len(list(product(State, events))) == len(cells(NEXT))
    assert len(list(product(Stage, joining))) == len(cells(NEXT_STAGE))


def test_a_refusal_that_stops_a_namespace_or_asks_for_patience_says_how_long():
    assert {code: (int(a), ms) for code, (a, ms) in JOIN_REFUSALS.items()} == {
        "forbidden": (2, 0),
        "namespace-gone": (2, 0),
        "too-many-joins": (2, 0),
        "namespace-not-found": (1, 60_000),
        "quota-exceeded": (1, 60_000),
        "storage-full": (1, 30_000),
        "busy": (1, 5_000),
    }
    assert PUT_REFUSALS["forbidden"] == (Action.GO_ON, 0)
    assert PUT_REFUSALS["base-ahead"] == (Action.RETRY, 0)
    assert PUT_REFUSALS["quota-exceeded"] == (Action.RETRY, 60_000)


def test_a_budget_counts_what_is_held():
    budget = TransferBudget(100)
    budget.hold(60)
    room = (budget.has_room(40), budget.has_room(41))
    budget.hold(-60)

    assert (room, budget.held_bytes) == ((True, False), 0)
