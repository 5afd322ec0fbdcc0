"""crdtmem.compat.agentmemory: the routes"""

import json

import pytest

from crdtmem.compat.agentmemory import AgentMemorySlots, respond
from crdtmem.compat.agentmemory.rest import BODY_BYTES
from crdtmem.scope import LABEL_PATTERN


@pytest.fixture
def slots(memory):
    return AgentMemorySlots(memory, observations=lambda _: [{"title": "todo x"}])


@pytest.fixture
def ask(slots):
    """Send a request; keywords are its query, or the fields of its body."""

    def ask(request, body=None, *, headers=None, token=None, **fields):
        method, path = request.split(" ")
        query = fields if method != "POST" else {}
        sent = json.dumps(fields).encode() if body is None else body
        path = f"/agentmemory{path}"
        return respond(slots, method, path, query, headers or {}, sent, token=token)

    return ask


@pytest.fixture
def notes(ask):
    ask("POST /slot", label="notes", content="v0", sizeLimit=10)
    ask("POST /slot/append", label="notes", text="v1")


def locked(memory):
    memory.slot("notes").set_meta(read_only=True)


@pytest.mark.requirement("surfaces-33")
@pytest.mark.parametrize(
    ("request_line", "fields", "status"),
    [
        ("GET /slots", {}, 200),
        ("GET /slots", {"scope": "wrong"}, 400),
        ("GET /slot", {"label": "notes"}, 200),
        ("GET /slot", {}, 400),
        ("GET /slot", {"label": "nothing"}, 404),
        ("POST /slot", {"label": "new", "content": "x"}, 201),
        ("POST /slot", {"label": "Bad"}, 400),
        ("POST /slot", {"label": "new", "sizeLimit": 0}, 400),
        ("POST /slot", {"label": "notes"}, 409),
        ("POST /slot", {"label": "new", "content": "xx", "sizeLimit": 1}, 413),
        ("POST /slot/append", {"label": "notes", "text": "x"}, 200),
        ("POST /slot/append", {"label": "notes"}, 400),
        ("POST /slot/append", {"label": "nothing", "text": "x"}, 404),
        ("POST /slot/append", {"label": "notes", "text": "x" * 10}, 413),
        ("POST /slot/append", {"label": "notes", "text": "x", "expectedRev": 0}, 409),
        ("POST /slot/replace", {"label": "notes", "content": "x"}, 200),
        ("POST /slot/replace", {"label": "notes"}, 400),
        ("POST /slot/replace", {"label": "nothing", "content": "x"}, 404),
        ("POST /slot/replace", {"label": "notes", "content": "x" * 11}, 413),
        (
            "POST /slot/replace",
            {"label": "notes", "content": "x", "expectedRev": 0},
            409,
        ),
        ("POST /slot/replace", {"label": "notes", "content": "x", "baseRev": 0}, 200),
        ("POST /slot/replace", {"label": "notes", "content": "x", "baseRev": 9}, 409),
        ("DELETE /slot", {"label": "notes"}, 200),
        ("DELETE /slot", {"label": "notes", "expectedRev": "1"}, 200),
        ("DELETE /slot", {}, 400),
        ("DELETE /slot", {"label": "nothing"}, 404),
        ("POST /slot/reflect", {"sessionId": "s"}, 200),
        ("POST /slot/reflect", {}, 400),
        ("GET /slot/history", {"label": "notes"}, 200),
        ("GET /slot/history", {"label": "notes", "restore": "true"}, 200),
        ("GET /slot/history", {"label": "notes", "restore": "maybe"}, 400),
        ("GET /slot/history", {"label": "nothing"}, 404),
        ("GET /slot/history", {"label": "notes", "restore": "true", "id": "h9"}, 404),
        ("POST /slot/undo", {"label": "notes"}, 200),
        ("POST /slot/undo", {}, 400),
        ("POST /slot/undo", {"label": "notes", "id": "h9"}, 404),
        ("POST /slot/undo", {"label": "guidance"}, 409),
        ("POST /slot/undo", {"label": "notes", "expectedRev": 0}, 409),
    ],
)
@pytest.mark.usefixtures("notes")
def test_each_route_answers_with_the_status_of_its_outcome(
    ask, request_line, fields, status
):
    found, answer = ask(request_line, **fields)

    assert found == status
    assert answer["success"] is (status < 300)


@pytest.mark.parametrize("guard", [None, "x", 1.5, True, ""])
@pytest.mark.usefixtures("notes")
def test_a_guard_that_is_none_is_a_bad_request(memory, unchanged, ask, guard):
    with unchanged(memory):
        status, answer = ask(
            "POST /slot/replace", label="notes", content="x", expectedRev=guard
        )

    assert (status, answer["code"]) == (400, "invalid-precondition")


@pytest.mark.usefixtures("notes")
def test_a_read_only_slot_is_a_bad_request_as_it_always_was(memory, ask):
    locked(memory)

    for request, fields in (
        ("POST /slot/append", {"text": "x"}),
        ("POST /slot/replace", {"content": "x"}),
        ("DELETE /slot", {}),
    ):
        status, answer = ask(request, label="notes", **fields)
        assert (status, answer["code"]) == (400, "slot-read-only")


@pytest.mark.usefixtures("notes")
def test_an_append_only_slot_is_a_bad_request_too(memory, ask):
    memory.slot("notes").set_meta(append_only=True)

    assert ask("POST /slot/replace", label="notes", content="x")[0] == 400
    assert ask("POST /slot/append", label="notes", text="x")[0] == 200


def test_a_closed_store_is_the_server_s_fault(memory, ask):
    memory.close()

    assert ask("GET /slots")[0] == 500


@pytest.mark.usefixtures("notes")
def test_a_retry_over_http_writes_once(ask):
    first = ask("POST /slot/append", label="notes", text="x", requestId="r")
    again = ask("POST /slot/append", label="notes", text="x", requestId="r")

    assert [one[1]["rev"] for one in (first, again)] == [2, 2]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "Bearer s3crét "}, 401),
        ({"authorization": "Bearer s3crét"}, 200),
        ({"AUTHORIZATION": "Bearer s3crét"}, 200),
    ],
)
def test_a_token_must_be_shown_where_one_is_set(ask, headers, status):
    found, answer = ask("GET /slots", headers=headers, token="s3crét")

    assert found == status
    assert status == 200 or answer["code"] == "unauthorized"


def test_who_shows_no_token_learns_of_no_route(ask):
    assert ask("GET /nothing", token="t")[0] == 401


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/agentmemory/nothing", 404, "route-not-found"),
        ("GET", "/slots", 404, "route-not-found"),
        ("GET", "/agentmemory", 404, "route-not-found"),
        ("PUT", "/agentmemory/slot", 405, "method-not-allowed"),
        ("GET", "/agentmemory/mcp/call", 405, "method-not-allowed"),
    ],
)
def test_an_unknown_route_is_refused(slots, method, path, status, code):
    found, answer = respond(slots, method, path, {}, {}, b"")

    assert (found, answer["code"]) == (status, code)
    assert path in str(answer["error"])


@pytest.mark.parametrize("path", ["/slot", "/slot/append", "/mcp/call"])
@pytest.mark.parametrize("body", [b"{", b"\xff", b"[" * 10_000, b"[]", b"5", b'"x"'])
def test_a_body_that_is_no_object_is_a_bad_request(ask, path, body):
    status, answer = ask(f"POST {path}", body)

    assert (status, answer["code"]) == (400, "invalid-argument")


def test_an_empty_body_has_no_fields(ask):
    status, answer = ask("POST /slot", b"")

    assert (status, answer["code"]) == (400, "invalid-label")


def test_a_body_that_is_too_large_is_refused_unread(ask):
    status, answer = ask("POST /slot", b" " * (BODY_BYTES + 1))

    assert (status, answer["code"]) == (413, "body-too-large")
    assert f"({BODY_BYTES + 1} > {BODY_BYTES} bytes)" in answer["error"]


def test_a_body_of_the_largest_size_is_read(ask):
    body = b'{"label": "n"' + b" " * (BODY_BYTES - 14) + b"}"

    assert ask("POST /slot", body)[0] == 201


def test_half_a_surrogate_pair_in_a_body_is_refused(ask):
    status, answer = ask("POST /slot", rb'{"label": "n", "content": "\ud83d"}')

    assert (status, answer["code"]) == (400, "invalid-text")


def test_the_tools_are_listed_with_their_fields(ask):
    status, answer = ask("GET /mcp/tools")
    tools = {tool["name"]: tool for tool in answer["tools"]}

    assert status == 200
    assert list(tools) == [
        f"memory_slot_{name}"
        for name in (
            *("list", "get", "create", "append"),
            *("replace", "delete", "history", "undo"),
        )
    ]
    schema = tools["memory_slot_append"]["inputSchema"]
    assert schema["required"] == ["label", "text"]
    assert schema["properties"]["label"]["pattern"] == f"^{LABEL_PATTERN}$"
    assert "requestId" in schema["properties"]
    assert all(tool["description"] for tool in answer["tools"])


def called(ask, name, **arguments):
    status, answer = ask("POST /mcp/call", name=name, arguments=arguments)
    assert status == 200
    (block,) = answer["content"]
    return json.loads(block["text"]), answer.get("isError", False)


def test_a_tool_s_text_is_the_function_s_result(ask, slots):
    result, is_error = called(ask, "memory_slot_create", label="n", content="é")

    assert not is_error
    assert result["slot"]["content"] == "é"
    assert called(ask, "memory_slot_get", label="n")[0] == slots.call(
        "mem::slot-get", {"label": "n"}
    )
    assert called(ask, "memory_slot_list")[0]["success"] is True


def test_a_tool_s_failure_is_marked_as_an_error(ask):
    result, is_error = called(ask, "memory_slot_get", label="nothing")

    assert is_error
    assert (result["success"], result["code"]) == (False, "slot-not-found")


def test_a_tool_s_failure_can_be_sent_whatever_was_asked(ask):
    called(ask, "memory_slot_create", label="n")
    result, is_error = called(ask, "memory_slot_undo", label="n", id="\ud83d")

    assert is_error
    assert result["details"]["id"] == "?"


@pytest.mark.parametrize(
    "request_fields",
    [{}, {"name": "memory_save"}, {"name": 5}, {"name": "memory_slot_list"}],
)
def test_a_call_of_no_tool_is_a_bad_request(ask, request_fields):
    request = {"arguments": []} | request_fields
    status, answer = ask("POST /mcp/call", json.dumps(request).encode())

    assert (status, answer["code"]) == (400, "invalid-argument")
