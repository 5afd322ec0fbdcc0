"""The routes of the compatible system, over HTTP."""

import pytest

from crdtmem.compat.agentmemory.rest import PREFIX as OTHER_PREFIX
from crdtmem.serve.agentmemory import PREFIX
from crdtmem.serve.answers import Principal
from tests.serve.desk import ORIGIN, READ, WRITE, desk, token_file

SLOT = {"label": "notes", "content": "one"}


@pytest.mark.requirement("serve-15")
async def test_the_functions_answer_with_their_statuses(tmp_path):
    async with desk(tmp_path) as server:
        made = await server.json("POST", "/agentmemory/slot", SLOT)
        twice = await server.json("POST", "/agentmemory/slot", SLOT)
        added = await server.json(
            "POST", "/agentmemory/slot/append", {"label": "notes", "text": "two"}
        )
        got = await server.json("GET", "/agentmemory/slot?label=notes")
        head = await server.json("HEAD", "/agentmemory/slot?label=notes")
        none = await server.json("GET", "/agentmemory/slot?label=absent")
        long = await server.json(
            "POST", "/agentmemory/slot/append", {"label": "notes", "text": "x" * 3000}
        )
        past = await server.json("GET", "/agentmemory/slot/history?label=notes")
        tools = await server.json("GET", "/agentmemory/mcp/tools")
        gone = await server.json("DELETE", "/agentmemory/slot?label=notes")
        lost = await server.json("GET", "/agentmemory/nowhere")
        other = await server.json("PUT", "/agentmemory/slot")

    statuses = [r.status for r in (made, twice, added, got, none, long, past, gone)]
    assert statuses == [201, 409, 200, 200, 404, 413, 200, 200]
    assert added.json["success"]
    assert got.json["slot"]["content"] == "one\ntwo"
    assert (head.status, head.body) == (200, b"")
    assert "exceed sizeLimit" in long.json["error"]
    assert len(tools.json["tools"]) >= 8
    assert (lost.status, other.status) == (404, 405)
    assert other.headers["allow"] == "DELETE, GET, HEAD, POST"
    assert other.json["code"] == "method-not-allowed"


@pytest.mark.requirement("serve-15")
async def test_a_lane_is_the_name_of_the_token(tmp_path):
    options = {"token_file": token_file(tmp_path)}
    async with desk(tmp_path, options=options) as server:
        await server.json("POST", "/agentmemory/slot", SLOT, token=WRITE)
        refused = await server.json("POST", "/agentmemory/slot", SLOT, token=READ)
        anonymous = await server.json("GET", "/agentmemory/slots", token=None)
        with server.memory() as memory:
            lanes = {entry.lane for entry in memory.audit(label="notes")}
        server.site.read_only = True
        shut = await server.json("POST", "/agentmemory/slot", SLOT, token=WRITE)

    assert lanes == {"wim"}
    assert (shut.status, shut.json["code"]) == (403, "store-read-only")
    assert refused.json["code"] == "permission-denied"
    assert (anonymous.status, anonymous.json["success"]) == (401, False)


@pytest.mark.requirement("serve-15")
async def test_in_open_mode_programs_need_no_token_and_browsers_do(tmp_path):
    options = {"agentmemory_open": True}
    async with desk(tmp_path, options=options) as server:
        made = await server.json("POST", "/agentmemory/slot", SLOT, token=None)
        foreign = await server.json(
            "POST",
            "/agentmemory/slot",
            SLOT,
            token=None,
            headers={"origin": "https://evil.test"},
        )
        browser = [
            await server.json(
                "POST", "/agentmemory/slot", SLOT, token=None, headers=headers
            )
            for headers in ({"origin": ORIGIN}, {"sec-fetch-site": "same-origin"})
        ]
        wrong = await server.json("GET", "/agentmemory/slots", token="x" * 40)
        api = await server.json("GET", "/api/v1/status", token=None)
        with server.memory() as memory:
            lanes = {entry.lane for entry in memory.audit(label="notes")}
        is_welcome = server.site.is_welcome(Principal("", "", may_write=True))

    assert is_welcome
    assert made.status == 201
    assert foreign.status == 403
    assert [r.status for r in browser] == [401, 401]
    assert (wrong.status, api.status) == (401, 401)
    assert lanes == {"agentmemory"}


async def test_a_store_that_is_busy_says_when_to_come_again(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "crdtmem.compat.agentmemory.rest.respond", lambda *_: (503, {"success": False})
    )
    async with desk(tmp_path) as server:
        reply = await server.json("GET", "/agentmemory/slots")

    assert (reply.status, reply.headers["retry-after"]) == (503, "1")
    assert PREFIX == OTHER_PREFIX
