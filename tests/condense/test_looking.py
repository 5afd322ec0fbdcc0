"""crdtmem.condense.looking"""

import pytest

from crdtmem.errors import CondensePassUnknownError, InvalidArgumentError
from tests.condense.plans import PLAN, begin, commit, section


@pytest.mark.requirement("condense-18")
def test_passes_are_listed_newest_first(memory, slot, clock):
    aborted = begin(slot)
    slot.abort_condense(aborted.id)
    done = begin(slot)
    result = commit(slot, done)
    slot.append("".join(map(section, "xyz")).removesuffix("\n"))
    running = begin(slot)
    found = memory.condense_passes()

    assert [(one.id, one.state, one.reason) for one in found] == [
        (running.id, "open", ""),
        (done.id, "committed", "condensed"),
        (aborted.id, "aborted", "cancelled"),
    ]
    committed = found[1].to_dict()
    assert committed.pop("begunAt") < committed.pop("endedAt")
    shown = result.to_dict()
    del shown["diff"]
    assert committed == {
        "id": done.id,
        "label": "plan",
        "scope": "project",
        "lane": "a",
        "summariser": "",
        "state": "committed",
        "reason": "condensed",
        "isRemote": False,
        "baseRev": 0,
        "expiresAt": done.expires_at,
        "archive": done.archive,
        "result": shown,
    }
    assert "endedAt" not in found[0].to_dict()


def test_passes_can_be_chosen(memory, slot, open_lane):
    memory.create("notes", PLAN, scope="global", size_limit=20_000)
    ours = begin(slot)
    theirs = begin(memory.slot("notes"))
    slot.abort_condense(ours.id)

    def ids(**options):
        return [one.id for one in memory.condense_passes(**options)]

    assert ids() == [theirs.id, ours.id]
    assert ids(limit=1) == [theirs.id]
    assert ids(label="plan") == [ours.id]
    assert ids(state="aborted") == [ours.id]
    assert ids(label="plan", state="open") == []
    elsewhere = open_lane("b", project="q")
    assert [one.id for one in elsewhere.condense_passes()] == [theirs.id]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"label": "A b"}, "invalid-label"),
        ({"state": "done"}, "invalid-argument"),
        ({"limit": 0}, "invalid-argument"),
        ({"limit": 1_001}, "invalid-argument"),
    ],
)
def test_malformed_choices_are_refused(memory, options, code):
    with pytest.raises(InvalidArgumentError) as caught:
        memory.condense_passes(**options)
    assert caught.value.code == code


def test_an_archive_of_a_pass_that_is_not_in_sight_is_unknown(memory, slot, open_lane):
    begun = begin(slot)
    elsewhere = open_lane("b", project="q")

    for handle, pass_id in [(elsewhere, begun.id), (memory, "cp_x")]:
        with pytest.raises(CondensePassUnknownError) as caught:
            handle.condense_archive(pass_id)
        assert caught.value.details == {"passId": pass_id, "label": None}
