from typing import Any

import pytest

from crdtmem import CompactionPolicy, MemorySet, Summary
from crdtmem.errors import (
    InvalidArgumentError,
    ItemConflictError,
    StoreClosedError,
    SummaryError,
)
from crdtmem.limits import (
    COMPACTION_CLAIM_MS,
    ITEM_TEXT_UNITS,
    METADATA_BYTES,
)
from crdtmem.store.set_write import claim_set
from tests.store.set_writes import archived

# Of a type that the callers of these were told not to use.
WRONG: Any = 7
EMPTY: Any = []


def joined(request):
    return [Summary(" | ".join(item.text for item in request.items))]


def pairs(request):
    items = list(request.items)
    return [
        Summary(
            " & ".join(item.text for item in items[n : n + 2]),
            [item.id for item in items[n : n + 2]],
        )
        for n in range(0, len(items), 2)
    ]


def meanwhile(*steps, reply=joined):
    """Return a summariser that does something before it replies."""

    def summarise(request):
        for step in steps:
            step()
        return reply(request)

    return summarise


def policy(summarise=joined, **options):
    return CompactionPolicy(summarise, **{"capacity": 1} | options)


def texts(handle):
    return [item.text for item in handle.get(order="oldest").items]


@pytest.fixture
def ids(facts):
    return facts.add(["p", "q", "r"], [{"n": 1}, {}, {}]).ids


def test_items_give_way_to_a_summary_and_are_archived(memory, facts, ids):
    newest = facts.get(ids[2]).items[0].created_at
    result = facts.compact(policy())

    assert (result.ran, result.removed, result.skipped) == (True, 3, ())
    assert (result.item_count, result.rev) == (1, 2)
    (item,) = facts.get(result.added).items
    assert (item.text, item.metadata, item.sources, item.created_at) == (
        "p | q | r",
        {"compacted": True, "count": 3},
        3,
        newest,
    )
    with memory.store.reading() as connection:
        doc = connection.execute("SELECT doc FROM mset").get
        kept = archived(connection, doc, bytes.fromhex(result.pass_id))
    assert [(one.id, one.text, one.meta) for one in kept] == [
        (ids[0], "p", '{"n":1}'),
        (ids[1], "q", ""),
        (ids[2], "r", ""),
    ]


def test_several_summaries_are_one_commit_and_what_is_in_none_stays(facts):
    facts.add(list("abcde"))

    def some(request):
        first, second, _ = pairs(request)
        return [first, second._replace(metadata={"of": "two", "count": 9})]

    result = facts.compact(policy(some, limit=2))
    assert (len(result.added), result.removed, result.rev) == (2, 4, 2)
    assert set(texts(facts)) == {"a & b", "c & d", "e"}
    metadata = [item.metadata for item in facts.get(result.added).items]
    assert metadata == [
        {"compacted": True, "count": 2},
        {"of": "two", "compacted": True, "count": 2},
    ]


def test_a_summariser_is_offered_the_items_that_the_policy_means(facts):
    facts.add(list("abcdef"), [{"n": n % 2} for n in range(6)])
    seen = []

    def looked(request):
        seen.append(request)
        return joined(request)

    facts.compact(
        policy(looked, filters={"n": 0}, keep_newest=1, prompt="be short", limit=3)
    )
    (request,) = seen
    assert [item.text for item in request.items] == ["a", "c"]
    assert (request.limit, request.prompt, request.set_name) == (3, "be short", "facts")
    assert set(texts(facts)) == {"a | c", "b", "d", "e", "f"}


@pytest.mark.parametrize(
    "options", [{"capacity": 4}, {"keep_newest": 3}, {"filters": {"none": 1}}]
)
def test_with_too_little_to_summarise_nothing_runs(facts, ids, options, unchanged):
    with unchanged():
        result = facts.compact(policy(lambda _: pytest.fail("asked"), **options))

    assert (result.ran, result.added, result.removed, result.rev) == (False, (), 0, 1)


@pytest.mark.requirement("sets-K2")
def test_items_that_are_added_meanwhile_stay_untouched(facts, ids):
    result = facts.compact(policy(meanwhile(lambda: facts.add("late"))))

    assert (result.removed, result.item_count) == (3, 2)
    assert set(texts(facts)) == {"p | q | r", "late"}


@pytest.mark.requirement("sets-K2")
@pytest.mark.parametrize(
    "change",
    [
        lambda facts, ids: facts.update(ids[1], "q2"),
        lambda facts, ids: facts.update(ids[1], metadata={"n": 2}),
        lambda facts, ids: facts.delete(ids[1]),
        lambda facts, ids: facts.undo(facts.update(ids[1], "q2").rev),
    ],
)
def test_a_summary_of_what_was_changed_meanwhile_is_skipped_whole(facts, ids, change):
    after = []

    def disturbed(request):
        change(facts, ids)
        after.append(facts.get(order="oldest"))
        return pairs(request)

    result = facts.compact(policy(disturbed, limit=9))

    assert [one.to_dict() for one in result.skipped] == [
        {"summary": 0, "reason": "source-changed"}
    ]
    assert (len(result.added), result.removed) == (1, 1)
    kept = [item for item in after[0].items if item.id != ids[2]]
    assert facts.get([item.id for item in kept]).items == tuple(kept)


@pytest.mark.requirement("sets-K2")
@pytest.mark.parametrize("verb", [MemorySet.delete, MemorySet.drop])
def test_a_text_that_was_deleted_meanwhile_never_returns_in_a_summary(facts, ids, verb):
    result = facts.compact(policy(meanwhile(lambda: verb(facts))))

    assert (result.ran, result.added, result.removed) == (True, (), 0)
    assert len(result.skipped) == 1
    assert texts(facts) == []
    assert "passId" not in result.to_dict()


@pytest.mark.requirement("sets-K2")
def test_another_compaction_of_the_set_is_refused_while_one_runs(facts, ids, open_lane):
    other = open_lane("b").bind(partition_key="k").memory_set("facts")
    refused = []

    def again(request):
        for handle in (facts, other):
            with pytest.raises(ItemConflictError) as caught:
                handle.compact(policy())
            refused.append(caught.value.code)
        return joined(request)

    assert facts.compact(policy(again)).removed == 3
    assert refused == ["compaction-busy"] * 2
    assert other.compact(policy()).removed == 1


@pytest.mark.requirement("sets-K2")
def test_a_claim_that_was_left_behind_ends_by_itself(memory, facts, ids):
    with memory.store.writing() as transaction:
        doc = transaction.connection.execute("SELECT doc FROM mset").get
        now_ms = transaction.now_ms
        claim_set(
            transaction.connection,
            doc,
            "somebody",
            now_ms=now_ms,
            until_ms=now_ms + COMPACTION_CLAIM_MS,
        )
    with pytest.raises(ItemConflictError, match="being compacted"):
        facts.compact(policy())
    with memory.store.writing() as transaction:
        transaction.connection.execute("UPDATE set_claim SET until_ms = 0")

    assert facts.compact(policy()).removed == 3


@pytest.mark.requirement("sets-K2")
def test_where_the_memory_is_closed_meanwhile_nothing_has_changed(
    memory, facts, ids, open_lane
):
    with pytest.raises(StoreClosedError):
        facts.compact(policy(meanwhile(memory.close)))

    again = open_lane().bind(partition_key="k").memory_set("facts")
    assert texts(again) == ["p", "q", "r"]
    assert again.headroom().rev == 1


def test_a_summariser_that_raises_leaves_all_as_it_was(facts, ids, refusal):
    def broken(request):
        raise OSError("no model")

    error = refusal(facts.compact, policy(broken))

    assert isinstance(error, SummaryError)
    assert error.code == "summariser-failed"
    assert "OSError: no model" in str(error)
    assert isinstance(error.__cause__, OSError)
    assert facts.compact(policy()).removed == 3


def test_an_interrupt_gives_the_claim_back(facts, ids):
    def interrupted(request):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        facts.compact(policy(interrupted))

    assert facts.compact(policy()).removed == 3


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (lambda ids: None, "a list of summaries, not NoneType"),
        (lambda ids: "summary", "a list of summaries, not str"),
        (lambda ids: [], "1 to 2 summaries, not 0"),
        (lambda ids: [Summary("x", [i]) for i in ids], "1 to 2 summaries, not 3"),
        (lambda ids: ["x"], "must be a Summary, not str"),
        (lambda ids: [Summary("")], "summary 0 has no text"),
        (lambda ids: [Summary(WRONG)], "text must be text"),
        (lambda ids: [Summary("\ud83d")], "half a surrogate pair"),
        (lambda ids: [Summary("x" * (ITEM_TEXT_UNITS + 1))], "65537 > 65536"),
        (lambda ids: [Summary("x", metadata={"@n": 1})], "metadata must be"),
        (lambda ids: [Summary("x", metadata=WRONG)], "metadata must be"),
        (
            lambda ids: [Summary("x", metadata={"m": "x" * METADATA_BYTES})],
            "metadata of an item is too large",
        ),
        (lambda ids: [Summary("x", ["foreign"])], "items that were offered"),
        (lambda ids: [Summary("x", [])], "items that were offered"),
        (lambda ids: [Summary("x", ids[0])], "items that were offered"),
        (lambda ids: [Summary("x", [WRONG])], "items that were offered"),
        (lambda ids: [Summary("x", [ids[0]] * 2)], "names an item twice"),
        (lambda ids: [Summary("x", WRONG)], "items that were offered"),
        (lambda ids: [Summary("x", [EMPTY])], "items that were offered"),
        (lambda ids: [Summary("x"), Summary("y", [ids[0]])], "is in two summaries"),
    ],
)
def test_a_reply_that_is_not_all_right_is_refused_whole(
    facts, ids, reply, why, refusal
):
    error = refusal(facts.compact, policy(lambda _: reply(ids), limit=2))

    assert isinstance(error, SummaryError)
    assert error.code == "summary-invalid"
    assert why in str(error)


@pytest.mark.parametrize(
    ("wrong", "argument"),
    [
        (joined, "policy"),
        (CompactionPolicy(WRONG), "summarise"),
        (policy(capacity=0), "capacity"),
        (policy(limit=101), "limit"),
        (policy(keep_newest=-1), "keep_newest"),
        (policy(archive_days=0), "archive_days"),
        (policy(prompt=7), "prompt"),
        (policy(filters={"$x": 1}), "filters"),
    ],
)
def test_a_malformed_policy_is_refused(facts, ids, wrong, argument, refusal):
    error = refusal(facts.compact, wrong)

    assert isinstance(error, InvalidArgumentError)
    assert error.argument == argument


def test_originals_are_kept_ninety_days_and_longer_if_the_policy_says_so(
    memory, facts, ids
):
    first = facts.compact(policy())

    def kept(days_ago, **options):
        with memory.store.writing() as transaction:
            transaction.connection.execute(
                "UPDATE item_archive SET at_ms = :at",
                {"at": transaction.now_ms - days_ago * 86_400_000},
            )
        facts.compact(policy(**options))
        with memory.store.reading() as connection:
            doc = connection.execute("SELECT doc FROM mset").get
            return len(archived(connection, doc, bytes.fromhex(first.pass_id)))

    assert kept(89, archive_days=1) == 3
    assert kept(300, archive_days=365) == 3
    assert kept(91) == 0
