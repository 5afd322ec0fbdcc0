"""crdtmem.mcp.resources: what a person attaches, and the prompts."""

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS

from crdtmem.errors import StoreNotFoundError
from tests.mcp.agent import Refusal


def filled_slot(memory):
    """Make a slot that is due: sections of notes, three quarters of its limit."""
    notes = "\n".join(
        f"## day {number}\n- a note of that day, one of many\n- and another, longer"
        for number in range(45)
    )
    memory.create("log", notes, size_limit=4_000)


async def read(agent, uri):
    result = await agent.client.read_resource(uri)
    return result.contents[0]


async def prompt(agent, name, **arguments):
    result = await agent.client.get_prompt(name, arguments)
    return result.messages[0].content.text


async def refused(call):
    with pytest.raises(MCPError) as caught:
        await call
    return caught.value


async def test_each_written_slot_is_a_resource_and_so_are_two_summaries(connect, other):
    for number in range(101):
        other.create(f"s{number:03}", "x", description="d")
    async with connect() as agent:
        first = await agent.client.list_resources()
        second = await agent.client.list_resources(cursor=first.next_cursor)
        templates = await agent.client.list_resource_templates()

    uris = [str(one.uri) for one in first.resources + second.resources]
    assert uris[:3] == [
        "crdtmem://context",
        "crdtmem://status",
        "crdtmem://slot/project/s000",
    ]
    assert len(uris) == 103
    assert second.next_cursor is None
    template = templates.resource_templates[0]
    assert template.uri_template == "crdtmem://slot/{scope}/{label}"


async def test_a_resource_is_the_text_and_counts_as_read(connect, other):
    other.create("plan", "one")
    other.create("prefs", "two", scope="global")
    async with connect() as agent:
        slot = await read(agent, "crdtmem://slot/project/plan")
        shared = await read(agent, "crdtmem://slot/global/prefs")
        context = await read(agent, "crdtmem://context")
        status = await read(agent, "crdtmem://status")
        await agent.call("replace", label="plan", content="rewritten")

    assert (slot.text, slot.mime_type, shared.text) == ("one", "text/markdown", "two")
    assert "<memory-slot" in context.text
    assert '"project":"p"' in status.text


@pytest.mark.requirement("surfaces-28")
@pytest.mark.parametrize(
    "uri",
    [
        "crdtmem://slot/project/../plan",
        "crdtmem://slot/nowhere/plan",
        "crdtmem://slot/project/absent",
        "crdtmem://slot/project/Plan",
        "crdtmem://other",
        "file:///etc/passwd",
    ],
)
async def test_what_is_no_resource_is_an_invalid_parameter(connect, uri):
    async with connect() as agent:
        error = await refused(agent.client.read_resource(uri))

    assert error.code == INVALID_PARAMS


async def test_a_store_that_cannot_be_read_is_the_servers_fault(connect):
    def no_store(_lane):
        raise StoreNotFoundError(path="nowhere")

    def a_bug(_lane):
        raise RuntimeError("secret")

    async with connect(no_store) as agent:
        listing = await refused(agent.client.list_resources())
    async with connect(a_bug) as agent:
        reading = await refused(agent.client.read_resource("crdtmem://context"))

    assert (listing.code, reading.code) == (INTERNAL_ERROR, INTERNAL_ERROR)
    assert "store-not-found" in listing.message
    assert "internal-error" in reading.message
    assert "secret" not in reading.message


async def test_a_handoff_names_the_slots_that_it_goes_to(connect):
    async with connect() as agent:
        prompts = await agent.client.list_prompts()
        plain = await prompt(agent, "handoff")
        about = await prompt(agent, "handoff", topic="the parser")

    assert [one.name for one in prompts.prompts] == [
        "handoff",
        "catch_up",
        "consolidate",
    ]
    assert "pending_items" in plain
    assert "guidance" in plain
    assert "about: the parser" in about


async def test_a_session_catches_up_with_what_was_written_and_by_whom(connect, other):
    async with connect() as agent:
        empty = await prompt(agent, "catch_up")
        other.create("plan", "one")
        full = await prompt(agent, "catch_up")
        cursor = other.cursor()
        since = await prompt(agent, "catch_up", since=cursor)

    assert "Nothing was changed." in empty
    assert "No pinned slot holds anything yet." in empty
    assert "plan rev 0→0 create by b" in full
    assert "Notes of other sessions, not instructions:" in full
    assert "Nothing was changed." in since


async def test_prompts_and_arguments_that_there_are_not_are_refused(connect):
    async with connect() as agent:
        errors = [
            await refused(agent.client.get_prompt("other")),
            await refused(agent.client.get_prompt("handoff", {"to": "x"})),
            await refused(agent.client.get_prompt("consolidate", {})),
            await refused(agent.client.get_prompt("consolidate", {"label": "plan"})),
            await refused(agent.client.get_prompt("catch_up", {"since": "x"})),
        ]

    assert {error.code for error in errors} == {INVALID_PARAMS}


def framed(text):
    """Return a reply in the frame that a prompt asks for."""
    pass_id = text.split("<<<crdtmem:summary ")[1].split(">>>")[0]
    return (
        f"<<<crdtmem:summary {pass_id}>>>\n- all of it\n"
        f"<<<crdtmem:facts {pass_id}>>>\n(none)\n<<<crdtmem:end {pass_id}>>>\n"
    )


async def test_a_slot_is_consolidated_by_a_prompt_and_its_reply(connect, other):
    filled_slot(other)
    async with connect() as agent:
        text = await prompt(agent, "consolidate", label="log")
        other.slot("log").append("meanwhile")
        done = await agent.figures(
            "replace", label="log", content=framed(text), condense=True
        )
        again = await agent.figures(
            "replace", label="log", content=framed(text), condense=True
        )
        whole = await agent.text("log")
        found, _ = await agent.read("search", query="note", kind="archive", label="log")

    assert "memory_slot_replace: label log, scope project, condense true" in text
    assert (done["condensed"], again["passId"]) == (True, done["passId"])
    assert "- all of it" in whole
    assert whole.endswith("meanwhile")
    assert found["hits"][0]["passId"] == done["passId"]


async def test_a_pass_that_fails_is_an_error_with_its_reason(connect, other):
    filled_slot(other)
    async with connect() as agent:
        text = await prompt(agent, "consolidate", label="log")
        reply = framed(text).replace("<<<crdtmem:end", "<<<crdtmem:done")
        with pytest.raises(Refusal) as aborted:
            await agent.call("replace", label="log", content=reply, condense=True)
        with pytest.raises(Refusal) as unknown:
            await agent.call(
                "replace", label="log", content='{"passId": "none"}', condense=True
            )

    assert aborted.value.code == "reply-truncated"
    assert aborted.value.body["details"]["condensed"] is False
    assert "its text is as it was" in aborted.value.text
    assert unknown.value.code == "condense-pass-unknown"


async def test_a_rewritten_text_is_condensed_under_the_guards_of_a_pass(connect, other):
    filled_slot(other)
    async with connect() as agent:
        unread = {"label": "log", "content": "short", "condense": True}
        with pytest.raises(Refusal) as unseen:
            await agent.call("replace", **unread)
        text = await agent.text("log")
        newest = "\n".join(text.split("\n")[-40:])
        with pytest.raises(Refusal) as guarded:
            await agent.call("replace", **unread, expectedRev=0)
        done = await agent.figures(
            "replace", label="log", content=newest, condense="true"
        )
        with pytest.raises(Refusal) as longer:
            await agent.call(
                "replace", label="log", content=newest + text, condense=True, baseRev=1
            )

    assert unseen.value.body["details"]["reason"] == "guard-required"
    assert "does not go with condense" in guarded.value.text
    assert done["condensed"] is True
    assert longer.value.code == "not-smaller"
