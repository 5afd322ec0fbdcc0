"""crdtmem.condense.beginning"""

import re

import apsw
import pytest

import crdtmem
from crdtmem.condense.settings import CondenseConfig
from crdtmem.errors import (
    CondenseSkippedError,
    InvalidArgumentError,
    SlotNotFoundError,
    SlotQuarantinedError,
    SlotRefusedError,
    StoreBusyError,
)
from crdtmem.headroom import content_hash
from tests.condense.plans import (
    CONDENSED,
    PLAN,
    begin,
    commit,
    events,
    pins,
    section,
)
from tests.powercut import PowerCut
from tests.scratch import scratch


def skip(slot, **options):
    """Begin a pass that is refused; return the error."""
    with pytest.raises(CondenseSkippedError) as caught:
        begin(slot, **options)
    return caught.value


def archives(memory):
    with memory.store.reading() as connection:
        return connection.execute(
            "SELECT count(DISTINCT archive) FROM condense_archive"
        ).get


def test_a_pass_shows_what_goes_and_what_stays(memory, slot):
    begun = begin(slot, expires_in=60)
    file = f"{PLAN}\n".encode()

    assert re.fullmatch(r"cp_[a-z2-7]{16}", begun.id)
    assert (begun.label, begun.scope, begun.base_rev) == ("plan", "project", 0)
    assert begun.base_hash == content_hash(PLAN)[:16] == slot.read().content_hash
    assert begun.expires_at.startswith("2026-01-01T00:01:00")
    assert begun.condensed == ""
    assert begun.pinned == ("## Pinned facts (never condensed)\n- keep mé\n\n",)
    assert [part.heading for part in begun.evicted] == [f"## {x}" for x in "abcdef"]
    assert [part.heading for part in begun.kept] == ["## g", "## h"]
    for part in (*begun.evicted, *begun.kept):
        assert file[part.start : part.end].decode() == part.text
    assert begun.kept[-1].end == len(file)
    assert begun.id in begun.prompt
    assert section("a") in begun.prompt
    assert slot.read().content == PLAN
    assert pins(memory) == (1, 0)


def test_what_was_condensed_before_is_shown_without_its_heading(slot, theirs):
    commit(slot, begin(slot))
    theirs.append("".join(map(section, "xyz")).removesuffix("\n"))

    assert begin(slot).condensed == "the summary: 要約\n\n"


@pytest.mark.requirement("condense-18")
def test_an_archive_is_there_as_soon_as_a_pass_has_begun(memory, slot, other):
    begun = begin(slot)
    memory.close()
    archive = other.condense_archive(begun.id)

    assert archive.pass_id == begun.id
    assert archive.sha256 == begun.archive
    assert [(part.kind, part.heading, part.text) for part in archive.sections] == [
        ("evicted", f"## {name}", section(name)) for name in "abcdef"
    ]


@pytest.mark.requirement("condense-18")
def test_an_unchanged_retry_adds_no_copy(memory, slot, theirs):
    first = begin(slot)
    slot.abort_condense(first.id)
    second = begin(slot)
    slot.abort_condense(second.id)
    theirs.append("more")
    third = begin(slot)

    assert len({first.id, second.id, third.id}) == 3
    assert first.archive == second.archive == third.archive
    assert archives(memory) == 1
    sections = [
        memory.condense_archive(one.id).sections for one in (first, second, third)
    ]
    assert sections[0] == sections[1] == sections[2]


@pytest.mark.requirement("condense-18")
def test_archives_of_failed_passes_go_after_a_week(memory, slot, clock):
    old = begin(slot)
    slot.abort_condense(old.id)
    slot.edit("## a\n", "## a now\n")
    clock.advance(6 * 86_400)
    slot.abort_condense(begin(slot).id)
    assert archives(memory) == 2
    clock.advance(2 * 86_400)
    done = begin(slot)
    commit(slot, done)
    clock.advance(30 * 86_400)
    slot.append("".join(map(section, "xyz")).removesuffix("\n"))
    begin(slot)

    assert memory.condense_archive(done.id).sections
    with pytest.raises(crdtmem.CondensePassUnknownError):
        memory.condense_archive(old.id)


def test_archives_are_bounded_where_that_is_asked_for(memory, slot, clock):
    kept = []
    for number in range(3):
        done = begin(slot)
        assert commit(slot, done).condensed
        kept.append(done)
        clock.advance(60)
        more = "".join(section(f"{name} {number}") for name in "xyz")
        slot.append(more.removesuffix("\n"))
    config = CondenseConfig(archive_max_bytes=1)
    opened = slot.begin_condense(force=True, keep_sections=1, config=config)

    assert memory.condense_archive(opened.id).sections
    assert [memory.condense_archive(one.id).sections for one in kept] == [()] * 3
    assert memory.condense_archive(kept[0].id).sha256 == kept[0].archive


# -- refusals


@pytest.mark.requirement("condense-23")
def test_one_pass_a_slot_at_a_time(memory, slot, theirs):
    begun = begin(slot)
    error = skip(theirs)

    assert error.code == "condense-busy"
    assert error.retry_at == begun.expires_at
    assert error.details == {
        "label": "plan",
        "retryAt": begun.expires_at,
        "passId": begun.id,
        "lane": "a",
        "expiresAt": begun.expires_at,
    }
    assert begun.id in error.message
    assert error.exit_status == 4
    assert commit(slot, begun).condensed


@pytest.mark.requirement("condense-23")
def test_a_pass_that_nobody_ends_expires(memory, other, slot, theirs, clock):
    dead = begin(slot, expires_in=60)
    memory.close()
    assert skip(theirs).code == "condense-busy"
    clock.advance(60)
    theirs.edit("## a\n", "## a now\n")
    second = begin(theirs)
    theirs.abort_condense(second.id)
    third = begin(theirs)

    reasons = [
        (details["reason"], details.get("passId")) for _, details in events(other)
    ]
    assert reasons.count(("pass-expired", dead.id)) == 1
    assert commit(theirs, dead).reason == "pass-expired"
    assert commit(theirs, third).condensed


def test_an_expired_pass_is_closed_by_a_begin_that_is_refused(memory, slot, clock):
    begin(slot, expires_in=60)
    clock.advance(60)
    assert skip(slot, force=False).code == "not-due"

    assert memory.condense_passes()[0].state == "expired"
    assert pins(memory) == (0, 0)


@pytest.mark.requirement("condense-31")
def test_a_slot_that_may_not_be_rewritten_is_refused(memory, slot, theirs):
    theirs.set_meta(append_only=True)
    with pytest.raises(SlotRefusedError) as caught:
        begin(slot)
    assert caught.value.code == "slot-append-only"
    theirs.set_meta(read_only=True)
    with pytest.raises(SlotRefusedError) as caught:
        begin(slot)
    assert caught.value.code == "slot-read-only"
    with pytest.raises(SlotNotFoundError):
        begin(memory.slot("nothing"))
    with memory.store.writing() as transaction:
        transaction.connection.execute("UPDATE slot SET quarantined = 'damaged'")
    with pytest.raises(SlotQuarantinedError):
        begin(slot)
    assert memory.condense_passes() == []


def test_a_default_slot_that_nobody_wrote_has_nothing_to_evict(memory):
    assert skip(memory.slot("persona")).code == "nothing-to-evict"


def test_a_slot_whose_file_cannot_be_read_is_refused(memory, slot):
    with memory.store.writing() as transaction:
        transaction.connection.execute("INSERT INTO mirror VALUES ('m','p','/d',1,1,1)")
        transaction.connection.execute(
            "INSERT INTO mirror_file(mirror, name, label, dev, ino, size, mtime_ns,"
            " ctime_ns, bom, eol, base, pin, blocked) VALUES ('m', 'plan.md', 'plan',"
            " 1, 1, 1, 1, 1, 0, '', x'', 0, 'text-too-large')"
        )
    slot.abort_condense(begin(slot).id)
    with memory.store.writing() as transaction:
        transaction.connection.execute(
            "UPDATE mirror_file SET blocked = 'source-encoding-invalid'"
        )
    error = skip(slot)

    assert error.code == "source-encoding-invalid"
    assert "plan.md" in error.message
    assert error.exit_status == 4


def test_a_skip_is_logged_once_while_its_reason_stands(memory, slot):
    for _ in range(3):
        skip(slot, force=False)
    slot.abort_condense(begin(slot).id)
    skip(slot, force=False)

    assert [(kind, details["reason"]) for kind, details in events(memory)] == [
        ("condense-skip", "not-due"),
        ("condense-abort", "cancelled"),
        ("condense-skip", "not-due"),
    ]


def test_an_archive_that_cannot_be_written_begins_no_pass():
    with (
        scratch() as folder,
        PowerCut(folder, makedefault=True) as disk,
        crdtmem.open(folder / "store.db", lane="a", project="p") as memory,
    ):
        memory.create("plan", PLAN, size_limit=20_000)
        slot = memory.slot("plan")
        disk.fail("write", "-wal", apsw.FullError("full"))
        error = skip(slot)
        disk.heal()
        found = memory.condense_passes(), slot.read().content, pins(memory)
        assert commit(slot, begin(slot)).condensed

    assert error.code == "archive-failed"
    assert "no space is left" in error.message
    assert found == ([], PLAN, (0, 0))


def test_a_lock_that_is_not_had_is_the_callers_to_know(memory, slot, open_lane):
    impatient = open_lane("c", busy_timeout=0.01).slot("plan")
    with memory.store.writing(), pytest.raises(StoreBusyError):
        begin(impatient)


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"keep_sections": 0}, "keep_sections"),
        ({"keep_sections": True}, "keep_sections"),
        ({"keep_pct": 101}, "keep_pct"),
        ({"expires_in": 0}, "expires_in"),
        ({"expires_in": 3_601}, "expires_in"),
        ({"expires_in": float("nan")}, "expires_in"),
        ({"force": 1}, "force"),
        ({"config": {}}, "config"),
    ],
)
def test_malformed_arguments_are_refused(memory, slot, options, argument):
    with pytest.raises(InvalidArgumentError) as caught:
        begin(slot, **options)

    assert caught.value.argument == argument
    assert argument in caught.value.message
    assert memory.condense_passes() == []


def test_the_knobs_are_those_of_the_config_where_no_argument_is_given(slot):
    config = CondenseConfig(keep_sections=1, keep_pct=100, expires_in=30)
    begun = slot.begin_condense(force=True, config=config)

    assert [part.heading for part in begun.kept] == ["## h"]
    assert begun.expires_at.startswith("2026-01-01T00:00:30")
    assert commit(slot, begun).condensed
    assert "## g" not in slot.read().content
    assert slot.read().content.endswith(CONDENSED[-100:])
