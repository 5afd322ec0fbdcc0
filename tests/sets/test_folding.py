import json
import math
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from crdtmem.sets.folding import fold_observations
from crdtmem.sets.values import Observation
from tests.conftest import PROFILE

UPDATE, GET, SEARCH = (f"_long_term_{k}_event" for k in ("update", "get", "search"))


def record(op, name="f", item=None, *, query=None, value=None, version=1):
    return {
        "op": op,
        "set": name,
        "id": item,
        "query": query,
        "value": value,
        "version": version,
    }


def literal_replay(records):
    """Return, by kind, what the records say when they are taken one by one."""
    updates: Any = {}
    cleared: list[str] = []
    gets: Any = {}
    searches: Any = {}
    for one in records:
        name, item = one["set"], one["id"]
        if one["op"] == "DELETE_SET":
            if name not in cleared:
                cleared.append(name)
            updates = {k: v for k, v in updates.items() if k[0] != name}
        elif one["op"] == "SEARCH":
            searches[name, one["query"]] = one["value"]
        elif one["op"] == "GET":
            gets[name, item] = one["value"]
        else:
            updates[name, item] = one["value"]
    return updates, cleared, gets, searches


def flat(by_set):
    return {(name, at): v for name, part in by_set.items() for at, v in part.items()}


NAMES = st.sampled_from(["a", "a.b", "b"])
IDS = st.sampled_from(["1", "2", "3"])
HITS = st.lists(
    st.builds(
        lambda i, score: {"id": i, "value": "x", "score": score},
        IDS,
        st.floats(allow_nan=False, allow_infinity=False),
    ),
    max_size=2,
)
RECORDS = st.one_of(
    st.builds(
        lambda op, n, i, v: record(op, n, i, value=v),
        st.sampled_from(["ADD", "UPDATE", "GET"]),
        NAMES,
        IDS,
        st.text(max_size=3),
    ),
    st.builds(lambda n, i: record("DELETE", n, i), NAMES, IDS),
    st.builds(lambda n: record("DELETE_SET", n), NAMES),
    st.builds(
        lambda n, q, hits: record("SEARCH", n, query=q, value=hits),
        NAMES,
        st.sampled_from(["q", ""]),
        HITS,
    ),
)


@pytest.mark.requirement("sets-O2")
@settings(max_examples={"default": 40, "campaign": 20_000}[PROFILE])
@given(st.lists(RECORDS, max_size=20))
def test_folding_is_a_literal_replay_with_at_most_one_event_of_each_kind(records):
    folded = fold_observations(records, "k")
    updates, cleared, gets, searches = literal_replay(records)
    events = {event["type"]: event["attributes"] for event in folded.events}

    assert folded.skipped == 0
    assert [event["type"] for event in folded.events] == [
        kind for kind in (UPDATE, GET, SEARCH) if kind in events
    ]
    assert {e["key"] for e in events.values()} <= {"k"}
    assert flat(events.get(UPDATE, {}).get("value", {})) == updates
    assert events.get(UPDATE, {}).get("cleared_sets", []) == cleared
    assert flat(events.get(GET, {}).get("value", {})) == gets
    assert flat(events.get(SEARCH, {}).get("value", {})) == searches
    assert (UPDATE in events, GET in events, SEARCH in events) == (
        bool(updates or cleared),
        bool(gets),
        bool(searches),
    )


@pytest.mark.requirement("sets-O2")
@settings(max_examples={"default": 15, "campaign": 2_000}[PROFILE])
@given(st.lists(RECORDS, max_size=10))
def test_records_as_values_and_as_json_fold_to_the_same(records):
    values = [
        Observation(
            op=one["op"],
            set=one["set"],
            id=one["id"],
            query=one["query"],
            value=tuple(one["value"])
            if isinstance(one["value"], list)
            else one["value"],
        )
        for one in records
    ]
    read = json.loads(json.dumps([value.to_dict() for value in values]))

    assert read == records
    assert fold_observations(values, "k") == fold_observations(records, "k")


@pytest.mark.parametrize(
    "bad",
    [
        None,
        "ADD",
        [],
        {},
        record("ADD", ""),
        record("ADD", 7, "1", value="x"),
        record("ADD", item="", value="x"),
        record("ADD", item=7, value="x"),
        record("PATCH", item="2", value="x"),
        record("PATCH", value="x"),
        record("ADD", item="2", value="x", version=2),
        record("ADD", item="2", value="x", version=True),
        record("ADD", item="2", value=7),
        record("UPDATE", item="2", value=math.nan),
        record("DELETE", item="2", value="x"),
        record("GET", item="2"),
        record("GET", item="2", value="x", version="1"),
        record("SEARCH", value=[]),
        record("SEARCH", query="q2", value="hits"),
        record("SEARCH", query="q2", value=["hit"]),
        record("SEARCH", query="q2", value=[{"id": 1, "value": "x", "score": 1.0}]),
        record("SEARCH", query="q2", value=[{"id": "1", "value": 2, "score": 1.0}]),
        *(
            record(
                "SEARCH", query="q2", value=[{"id": "1", "value": "x", "score": score}]
            )
            for score in (math.nan, True, "1")
        ),
    ],
)
def test_what_is_no_record_is_skipped_and_counted(bad):
    good = [
        record("ADD", item="1", value="x"),
        record("GET", item="1", value="x"),
        record("SEARCH", query="q", value=[]),
    ]
    folded = fold_observations([good[0], bad, *good[1:]], "k")

    assert folded.skipped == 1
    assert folded.events == fold_observations(good, "k").events


def test_a_record_that_cannot_be_read_takes_the_stale_member_along():
    said = fold_observations(
        [
            record("ADD", item="1", value="x"),
            record("ADD", item="2", value="y"),
            record("UPDATE", item="1", value=7),
            record("GET", item="1", value="x"),
            record("GET", item="1", value=None),
            record("SEARCH", query="q", value=[]),
            record("SEARCH", query="q", value=7),
        ],
        "k",
    )

    assert said.skipped == 3
    assert [event["attributes"]["value"] for event in said.events] == [
        {"f": {"2": "y"}}
    ]


def test_nothing_folds_to_nothing():
    assert fold_observations([], "k") == ([], 0)
