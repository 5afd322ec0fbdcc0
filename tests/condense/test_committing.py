"""crdtmem.condense.committing"""

import pytest

from crdtmem.condense.committing import commit_reply
from crdtmem.condense.settings import CondenseConfig
from crdtmem.errors import (
    CondensePassUnknownError,
    InvalidArgumentError,
    SlotQuarantinedError,
)
from tests.condense.plans import (
    BODY,
    CONDENSED,
    PLAN,
    SUMMARY,
    begin,
    commit,
    events,
    framed,
    pins,
    section,
)
from tests.conftest import PROFILE
from tests.killpoints import replace_function

MANY = {"default": 150, "campaign": 9_000}[PROFILE]


def size(text):
    return len(text.encode())


def reply(slot, begun, text):
    return commit_reply(slot._session, slot._place, begun.id, text)


# -- what comes of a pass


@pytest.mark.requirement("condense-1", "condense-6")
def test_an_undisturbed_pass_makes_exactly_its_text_in_one_record(memory, slot):
    before = slot.read()
    begun = begin(slot)
    result = commit(slot, begun)
    after = slot.read()
    history = slot.history()

    assert after.content == CONDENSED
    assert result.condensed
    assert result.reason == "condensed"
    assert "carriedBytes" not in result.to_dict()
    assert result.old_bytes == size(PLAN) + 1
    assert result.new_bytes == result.final_bytes == size(CONDENSED) + 1
    assert (result.evicted, result.kept) == (6, 2)
    assert (result.hoisted, result.hoist_deferred) == (1, 0)
    assert result.diff == slot.diff(before.rev).unified
    assert after.rev == before.rev + 1 == result.rev == result.headroom.rev
    assert [entry.id for entry in history.entries] == [result.history_id]
    assert history.entries[0].operation == "condense"
    assert pins(memory) == (0, 0)


def test_the_log_tells_what_became_of_a_pass(memory, slot, clock):
    begun = begin(slot)
    clock.advance(5)
    result = commit(slot, begun)
    ((kind, found),) = events(memory)

    assert kind == "condense"
    assert 5_000 <= found.pop("durationMs") < 5_100
    assert found == {
        "passId": begun.id,
        "lane": "a",
        "reason": "condensed",
        "baseRev": 0,
        "rev": 1,
        "oldBytes": result.old_bytes,
        "newBytes": result.new_bytes,
        "finalBytes": result.final_bytes,
        "evicted": 6,
        "kept": 2,
        "hoisted": 1,
        "hoistDeferred": 0,
        "archive": begun.archive,
    }


@pytest.mark.requirement("condense-2", "condense-3", "condense-5")
@pytest.mark.parametrize(
    "appends",
    [["one"], ["one", "two", "three"], ["é", "日本", "🗻"], ["a\r\nb\r", "c\n\nd"]],
)
def test_appends_during_a_pass_stand_behind_it_in_order(slot, theirs, appends):
    begun = begin(slot)
    for text in appends:
        theirs.append(text)
    result = commit(slot, begun)
    added = "".join(f"{text}\n" for text in appends)

    assert slot.read().content + "\n" == f"{CONDENSED}\n{added}"
    assert result.carried_bytes == size(added)
    assert result.final_bytes == result.new_bytes + result.carried_bytes


@pytest.mark.requirement("condense-4")
def test_an_append_directly_before_the_lock_is_kept(slot, theirs):
    begun = begin(slot)

    def append(*_):
        theirs.append("just now")

    module = "crdtmem.condense.committing"
    put_back = replace_function(module, "_await_import", append)
    try:
        result = commit(slot, begun)
    finally:
        put_back()

    assert slot.read().content == f"{CONDENSED}\njust now"
    assert result.carried_bytes == size("just now\n")


@pytest.mark.requirement("condense-7")
def test_what_one_pass_carried_is_kept_or_archived_by_the_next(memory, slot, theirs):
    begun = begin(slot)
    theirs.append(section("carried").removesuffix("\n"))
    commit(slot, begun)
    for name in "xyz":
        theirs.append(section(name).removesuffix("\n"))
    second = begin(slot)
    commit(slot, second, "a second summary")
    archive = memory.condense_archive(second.id)

    assert "## carried" not in slot.read().content
    assert [(part.kind, part.heading) for part in archive.sections] == [
        ("condensed", "## Condensed history"),
        ("evicted", "## g"),
        ("evicted", "## h"),
        ("evicted", "## carried"),
        ("evicted", "## x"),
    ]
    assert archive.sections[3].text == section("carried")


@pytest.mark.requirement("condense-9")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("## g\n", "## g\nmore\n"),
        ("- keep mé\n", "- mé first\n- keep mé\n"),
        ("what we do\n", "what we do now\n"),
    ],
)
def test_edits_of_what_stays_are_merged(slot, theirs, old, new):
    begun = begin(slot)
    theirs.edit(old, new, occurrence=1)
    result = commit(slot, begun)

    expected = CONDENSED.replace(old, new, 1)
    assert slot.read().content == expected
    assert result.condensed
    assert result.final_bytes == size(expected) + 1


@pytest.mark.requirement("condense-9")
def test_a_section_put_between_two_that_go_stays(slot, theirs):
    begun = begin(slot)
    theirs.edit("## c\n", "## new\nmine\n## c\n")
    result = commit(slot, begun)
    content = slot.read().content

    assert result.condensed
    assert content.count("## new\nmine\n") == 1
    assert content.replace("## new\nmine\n", "") == CONDENSED


@pytest.mark.requirement("condense-10")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("## b\n", "## b\nmore\n"),
        (section("b"), ""),
        ("## b\n" + BODY.partition("\n")[0], "## b\n" + "x" * 40),
    ],
    ids=["an edit", "a deletion", "an edit of equal length"],
)
def test_an_edit_of_what_goes_ends_the_pass_and_stays(memory, slot, theirs, old, new):
    begun = begin(slot)
    theirs.edit(old, new)
    edited = slot.read()
    result = commit(slot, begun)

    assert (result.condensed, result.reason) == (False, "source-changed")
    assert result.section == "## b"
    assert result.detail.startswith("--- plan@begin\n+++ plan@1\n")
    assert slot.read().content == edited.content == PLAN.replace(old, new)
    assert slot.read().rev == result.rev == edited.rev
    assert pins(memory) == (0, 0)
    ((kind, found),) = events(memory)
    assert (kind, found["section"]) == ("condense-abort", "## b")
    assert "detail" not in found


@pytest.mark.requirement("condense-10")
def test_text_that_was_deleted_and_retyped_was_changed(slot, theirs):
    begun = begin(slot)
    theirs.edit(section("b"), "")
    theirs.edit("## c\n", section("b") + "## c\n")

    assert slot.read().content == PLAN
    result = commit(slot, begun)
    assert (result.reason, result.section) == ("source-changed", "## b")


def test_a_whole_text_replaced_meanwhile_counts_by_its_lines(slot, theirs):
    begun = begin(slot)
    theirs.replace(PLAN.replace("what we do", "what is done"))

    assert commit(slot, begun).condensed
    assert slot.read().content == CONDENSED.replace("what we do", "what is done")


def test_text_without_headings_is_condensed_too(memory):
    lines = "".join(f"{number} {BODY}\n" for number in range(20))
    memory.create("log", lines.removesuffix("\n"), size_limit=20_000)
    slot = memory.slot("log")
    begun = begin(slot)

    assert commit(slot, begun).condensed
    kept = "".join(part.text for part in begun.kept)
    assert slot.read().content + "\n" == (
        "## Pinned facts (never condensed)\n- a fact\n\n"
        f"## Condensed history\n{SUMMARY}\n\n## Recent\n\n{kept}"
    )
    assert "".join(part.text for part in begun.evicted) + kept == lines


def test_loose_text_that_was_changed_is_named_by_its_beginning(memory, other):
    lines = "".join(f"{number} {BODY}\n" for number in range(20))
    memory.create("log", lines.removesuffix("\n"), size_limit=20_000)
    slot = memory.slot("log")
    begun = begin(slot)
    other.slot("log").edit("1 ça", "one ça", occurrence=1)
    result = commit(slot, begun)

    assert result.reason == "source-changed"
    assert begun.evicted[1].text.startswith(result.section)
    assert 50 < len(result.section) <= 60


# -- the slot is not what it was


@pytest.mark.requirement("condense-11")
@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_pass_brings_no_deleted_slot_back(memory, slot, is_made_again):
    begun = begin(slot)
    memory.delete("plan")
    if is_made_again:
        memory.create("plan", PLAN, size_limit=20_000)
    before = [view.content for view in memory.slots("project", templates=False)]
    result = commit(slot, begun)

    assert result.reason == "source-check-failed"
    assert result.detail
    after = [view.content for view in memory.slots("project", templates=False)]
    assert after == before == ([PLAN] if is_made_again else [])


@pytest.mark.requirement("condense-31")
@pytest.mark.parametrize("name", ["read_only", "append_only"])
def test_a_slot_that_may_no_longer_be_rewritten_is_left_alone(slot, theirs, name):
    begun = begin(slot)
    theirs.set_meta(**{name: True})
    result = commit(slot, begun)

    assert result.reason == f"slot-{name.replace('_', '-')}"
    assert slot.read().content == PLAN


def test_a_quarantined_slot_leaves_its_pass_open(memory, slot):
    begun = begin(slot)
    with memory.store.writing() as transaction:
        transaction.connection.execute("UPDATE slot SET quarantined = 'damaged'")

    with pytest.raises(SlotQuarantinedError):
        commit(slot, begun)
    assert memory.condense_passes()[0].state == "open"


def test_records_that_a_repair_has_replaced_end_the_pass(memory, slot, theirs):
    begun = begin(slot)
    theirs.append("more")
    with memory.store.writing() as transaction:
        transaction.connection.execute("UPDATE log SET delta = '[]' WHERE lsn > 1")

    result = commit(slot, begun)
    assert result.reason == "source-changed"
    assert "repair" in result.detail


@pytest.mark.parametrize(
    "damage", ["UPDATE pin SET file = 'x'", "DELETE FROM pin"], ids=["damaged", "gone"]
)
def test_a_text_that_was_not_kept_ends_the_pass(memory, slot, damage):
    begun = begin(slot)
    with memory.store.writing() as transaction:
        transaction.connection.execute(damage)

    assert commit(slot, begun).reason == "source-check-failed"
    assert slot.read().content == PLAN


def test_an_edit_that_gives_another_text_than_it_must_is_not_written(memory, slot):
    begun = begin(slot)

    def nothing(*_):
        return ()

    put_back = replace_function("crdtmem.doc.rebase", "carried_delta", nothing)
    try:
        result = commit(slot, begun)
    finally:
        put_back()

    assert result.reason == "rebuild-mismatch"
    assert slot.read().content == PLAN
    assert events(memory)[0][1]["reason"] == "rebuild-mismatch"


@pytest.mark.requirement("condense-20")
def test_many_appends_and_a_squash_stop_no_pass(memory, slot, theirs):
    begun = begin(slot)
    lines = [f"line {number}" for number in range(MANY)]
    slot.set_meta(size_limit=1_000_000)
    for number, line in enumerate(lines):
        theirs.append(line)
        if number % 50 == 40:
            memory.compact()
    result = commit(slot, begun)

    assert result.condensed
    assert slot.read().content == "\n".join([CONDENSED, *lines])
    assert pins(memory) == (0, 0)


# -- what the summariser gives


@pytest.mark.requirement("condense-14")
def test_a_framed_reply_is_committed(slot):
    begun = begin(slot)

    assert reply(slot, begun, f"Sure:\n{framed(begun.id)}").condensed
    assert slot.read().content == CONDENSED


@pytest.mark.requirement("condense-14", "condense-13")
def test_a_bad_reply_ends_the_pass_with_its_reason(memory, slot, clock):
    begun = begin(slot)
    other_pass = framed("cp_aaaaaaaaaaaaaaaa")
    result = reply(slot, begun, other_pass)

    assert result.reason == "reply-wrong-pass"
    assert "cp_aaaaaaaaaaaaaaaa" in result.detail
    assert result.retry_at
    assert reply(slot, begun, other_pass) == result
    assert reply(slot, begun, framed(begun.id)).reason == "pass-closed"
    assert slot.read().content == PLAN
    assert len(events(memory)) == 1


@pytest.mark.requirement("condense-15")
@pytest.mark.parametrize(
    ("summary", "reason"),
    [(BODY * 30, "not-smaller"), ("  ", "empty-condensed"), ("\ud800", "invalid-text")],
)
def test_a_text_that_fails_its_gate_is_not_written(memory, slot, summary, reason):
    begun = begin(slot)
    text = f'{{"passId": "{begun.id}", "summary": {crdtmem_json(summary)}}}'
    result = reply(slot, begun, text)

    assert (result.condensed, result.reason) == (False, reason)
    assert slot.read().content == PLAN
    assert memory.condense_passes()[0].reason == reason


def crdtmem_json(text):
    return '"' + text.replace("\ud800", "\\ud800").replace("\n", "\\n") + '"'


def test_a_summary_with_a_lone_surrogate_is_a_bad_argument(slot):
    begun = begin(slot)

    with pytest.raises(InvalidArgumentError) as caught:
        commit(slot, begun, "\ud800")
    assert (caught.value.code, caught.value.argument) == ("invalid-text", "summary")


@pytest.mark.parametrize("facts", ["a fact", 5, ["\ud800"], [None]])
def test_malformed_facts_are_bad_arguments(slot, facts):
    begun = begin(slot)

    with pytest.raises(InvalidArgumentError) as caught:
        commit(slot, begun, facts=facts)
    assert caught.value.argument == "hoisted"
    assert commit(slot, begun).condensed


def test_a_reply_that_is_no_text_is_a_bad_argument(slot):
    begun = begin(slot)

    with pytest.raises(InvalidArgumentError, match="must be a string, not bytes"):
        reply(slot, begun, b"x")


def test_a_text_that_would_be_over_the_limit_is_not_written(memory):
    memory.create("plan", PLAN.replace(BODY, "日" * 400 + "\n"), size_limit=20_000)
    slot = memory.slot("plan")
    begun = begin(slot)
    slot.set_meta(size_limit=100)
    # Fewer bytes than before, but more units.
    result = commit(slot, begun, "x" * 4_000)

    assert result.reason == "size-limit-exceeded"
    assert "sizeLimit" in result.detail


# -- which pass


@pytest.mark.requirement("condense-29")
def test_a_repeated_commit_returns_the_first_result(slot, theirs):
    begun = begin(slot)
    theirs.append("more")
    first = commit(slot, begun)
    theirs.append("and more")
    content = slot.read().content

    assert commit(theirs, begun) == first
    other = commit(theirs, begun, "another summary")
    assert (other.condensed, other.reason) == (False, "pass-closed")
    assert "committed" in other.detail
    assert slot.read().content == content


def test_a_pass_that_expired_is_not_committed(memory, slot, clock):
    begun = begin(slot, expires_in=60)
    clock.advance(61)
    first = commit(slot, begun)

    assert first.reason == "pass-expired"
    assert commit(slot, begun).reason == "pass-expired"
    assert slot.read().content == PLAN
    assert [found["reason"] for _, found in events(memory)] == ["pass-expired"]
    assert pins(memory) == (0, 0)


def test_a_pass_of_another_slot_or_store_is_unknown(memory, slot):
    memory.create("notes", PLAN, size_limit=20_000)
    begun = begin(slot)

    for label, pass_id in [("notes", begun.id), ("plan", "cp_aaaaaaaaaaaaaaaa")]:
        with pytest.raises(CondensePassUnknownError) as caught:
            memory.slot(label).commit_condense(pass_id, SUMMARY)
        assert caught.value.code == "condense-pass-unknown"
        assert caught.value.details == {"passId": pass_id, "label": label}
        assert pass_id in caught.value.message


def test_a_pass_that_keeps_more_needs_no_config_at_commit(slot):
    config = CondenseConfig(keep_sections=7, keep_pct=60)
    begun = slot.begin_condense(force=True, config=config)

    assert len(begun.evicted) == 1
    assert commit(slot, begun).evicted == 1
