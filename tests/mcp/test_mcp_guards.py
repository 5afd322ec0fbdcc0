"""Rewrites are made from what a session has read; conflicts and errors say all."""

import logging

import apsw
import pytest

import crdtmem
from crdtmem.errors import StoreCorruptError
from tests.mcp.agent import Refusal, texts_of


async def refused(agent, tool, **arguments):
    with pytest.raises(Refusal) as caught:
        await agent.call(tool, **arguments)
    return caught.value


@pytest.mark.requirement("surfaces-15")
async def test_an_unguarded_rewrite_is_merged_with_what_came_since_it_was_read(
    connect, other
):
    other.create("plan", "one\ntwo")
    async with connect() as agent:
        await agent.text("plan")
        other.slot("plan").append("theirs")
        result = await agent.call("replace", label="plan", content="one\nTWO")
        again = await refused(agent, "replace", label="plan", content="one\nTWO")
        text = await agent.text("plan")

    assert result.structured_content["merged"] is True
    assert "+theirs" in texts_of(result)[1]
    assert text == "one\nTWO\ntheirs"
    # It was not shown the whole of what the merge has made.
    assert again.body["details"]["reason"] == "guard-required"


@pytest.mark.requirement("surfaces-15")
@pytest.mark.parametrize("read", [None, {"lines": "1"}, {"outline": True}, {"tail": 1}])
async def test_a_rewrite_of_what_was_not_read_whole_is_refused(connect, other, read):
    other.create("plan", "one\ntwo")
    async with connect() as agent:
        if read is not None:
            await agent.call("get", label="plan", **read)
        error = await refused(agent, "replace", label="plan", content="x")

    assert error.code == "invalid-precondition"
    assert error.body["details"]["reason"] == "guard-required"
    assert "hint: read it with memory_slot_get first" in error.text
    assert other.slot("plan").read().content == "one\ntwo"


@pytest.mark.parametrize("content", ["", " \n\t"])
async def test_a_blank_slot_may_be_written_without_a_look(connect, other, content):
    other.create("plan", content)
    async with connect() as agent:
        await agent.call("replace", label="plan", content="one")
        await agent.call("replace", label="pending_items", content="two")
        texts = [await agent.text("plan"), await agent.text("pending_items")]

    assert texts == ["one", "two"]


async def test_own_writes_keep_what_is_known_of_a_text(connect, other):
    async with connect() as agent:
        await agent.call("create", label="plan", content="one")
        await agent.call("append", label="plan", text="two")
        await agent.call("replace", label="plan", content="one\nTWO")
        once = await agent.text("plan")
        other.slot("plan").append("theirs")
        await agent.call("append", label="plan", text="three")
        unread = await refused(agent, "replace", label="plan", content="x")

    assert once == "one\nTWO"
    assert unread.body["details"]["reason"] == "guard-required"


async def test_a_text_that_an_undo_made_has_to_be_read_again(connect):
    async with connect() as agent:
        await agent.call("create", label="plan", content="one")
        await agent.call("append", label="plan", text="two")
        await agent.call("undo", label="plan")
        error = await refused(agent, "replace", label="plan", content="x")

    assert error.body["details"]["reason"] == "guard-required"


async def test_pages_count_as_the_whole_only_if_nothing_changed_between(connect, other):
    text = "\n".join(f"line {number}" for number in range(60))
    other.create("plan", text)
    async with connect() as agent:
        head, _ = await agent.read("get", label="plan", maxChars=200)
        other.slot("plan").append("theirs")
        await agent.call("get", label="plan", lines=head["nextLines"])
        between = await refused(agent, "replace", label="plan", content="x")
        await agent.call("get", label="plan", lines="1-20")
        await agent.call("get", label="plan", lines="21-")
        await agent.call("replace", label="plan", content="x")

    assert between.body["details"]["reason"] == "guard-required"


@pytest.mark.requirement("surfaces-16")
async def test_a_stale_guard_is_a_conflict_that_shows_the_slot_as_it_is(connect, other):
    other.create("plan", "one")
    for word in ("two", "three", "four"):
        other.slot("plan").append(word)
    async with connect() as agent:
        await agent.text("plan")
        other.slot("plan").append("theirs")
        error = await refused(
            agent, "replace", label="plan", content="mine", expectedRev=3
        )

    assert error.code == "conflict"
    assert "now: rev 4, 25 of 2000 (1 %), 1975 free" in error.text
    assert "+theirs" in error.text
    assert "--- plan@3\n+++ plan@4" in error.text
    assert error.body["details"]["current"]["rev"] == 4
    assert other.slot("plan").read().rev == 4


async def test_a_full_slot_says_how_full_it_is_and_what_can_be_done(connect):
    async with connect() as agent:
        made = await agent.figures(
            "create", label="plan", content="x" * 9, sizeLimit=10
        )
        error = await refused(agent, "append", label="plan", text="yy")

    assert "compact it now" in made["warning"]
    assert error.code == "size-limit-exceeded"
    assert "now: rev 0, 9 of 10" in error.text
    assert "memory_slot_edit" in error.text


async def test_the_figures_of_a_write_are_short_whatever_others_did(connect, other):
    other.create("plan", "one")
    async with connect() as agent:
        await agent.text("plan")
        for number in range(19):
            other.slot("plan").append(f"{number}")
        head = other.slot("plan").read()
        result = await agent.call(
            "replace", label="plan", content="x", expectedHash=head.content_hash
        )

    assert result.structured_content["rev"] == 20
    assert len(texts_of(result)[0]) <= 1_024


async def test_a_repeated_request_is_written_once(connect):
    async with connect() as agent:
        await agent.call("create", label="plan")
        first = await agent.figures("append", label="plan", text="x", requestId="r1")
        second = await agent.figures(
            "append", label="plan", text="x", idempotency_key="r1"
        )
        reused = await refused(agent, "append", label="plan", text="y", requestId="r1")
        text = await agent.text("plan")
        rewritten = await agent.figures("replace", label="plan", content="z")

    assert (first["rev"], second["rev"], second["replayed"]) == (1, 1, True)
    assert reused.code == "request-id-reused"
    assert text == "x"
    assert rewritten["rev"] == 2


async def test_a_refused_call_changes_nothing(connect, other):
    other.create("plan", "one")
    async with connect() as agent:
        await agent.text("plan")
        for given in (
            {"content": "x", "expected_revison": 0},
            {"content": "x", "text": "y"},
            {"content": "x", "expectedRev": True},
            {"content": "\ud83d"},
        ):
            error = await refused(agent, "replace", label="plan", **given)
            assert error.code.startswith("invalid-")

    assert other.slot("plan").read().content == "one"


@pytest.mark.requirement("surfaces-19")
async def test_what_nobody_expected_is_told_by_a_number_alone(connect, caplog):
    def fail(_lane):
        raise RuntimeError("secret")

    async with connect(fail) as agent:
        error = await refused(agent, "append", label="plan", text="x")

    assert error.code == "internal-error"
    assert "secret" not in error.text + str(error.body)
    incident = error.body["details"]["incident"]
    assert [r.levelno for r in caplog.records if incident in r.message] == [
        logging.ERROR
    ]


def no_store(path):
    path.write_bytes(b"no store, but long enough to be looked at" * 100)


def newer_store(path):
    crdtmem.open(path, lane="a", project="p").close()
    connection = apsw.Connection(str(path))
    connection.pragma("user_version", 999)
    connection.close()


@pytest.mark.requirement("surfaces-26")
@pytest.mark.parametrize(
    ("spoil", "code"), [(no_store, "store-corrupt"), (newer_store, "schema-too-new")]
)
async def test_a_store_that_cannot_be_opened_is_said_so_by_each_call(
    connect, path, spoil, code
):
    spoil(path)
    async with connect() as agent:
        tools = await agent.client.list_tools()
        error = await refused(agent, "list")
        status = await agent.figures("status")

    assert len(tools.tools) == 12
    assert error.code == code
    assert status["ready"] is False
    assert status["error"]["code"] == code
    assert str(path) in status["error"]["message"]


async def test_a_store_that_is_there_again_is_opened_by_the_next_call(
    connect, open_memory
):
    faults = [StoreCorruptError(path="x", reason="away")]

    def open_at_last(lane):
        if faults:
            raise faults.pop()
        return open_memory(lane)

    async with connect(open_at_last) as agent:
        await refused(agent, "list")
        assert (await agent.figures("status"))["ready"] is True
