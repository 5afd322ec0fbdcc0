"""The application: guard, route, answer, without a socket."""

import asyncio
import json
import logging

import pytest
from starlette.websockets import WebSocketDisconnect

from crdtmem.errors import StoreBusyError
from crdtmem.limits import SERVE_BODY_BYTES, SERVE_UNREAD_BYTES
from crdtmem.serve.answers import PageRoute
from crdtmem.serve.routes import ROUTES
from crdtmem.serve.routing import Route
from tests.serve.desk import (
    CONTROL,
    FOREIGN,
    FORM,
    HOST,
    ORIGIN,
    PAGES,
    READ,
    WRITE,
    desk,
    scope_of,
    token_file,
)

NOTE = "/p/desk/note"
OWN = [
    ("GET", "/version"),
    ("POST", "/logout"),
    ("POST", "/session/invite"),
    ("GET", "/api/v1/openapi.json"),
    ("GET", "/agentmemory/slots"),
    ("GET", "/livez"),
    ("GET", "/static/app.js"),
    ("GET", "/nowhere"),
]
ANYTHING: list[Route | PageRoute] = [*ROUTES, *PAGES]
EVERYWHERE = [
    *((route.method, route.pattern) for route in ANYTHING),
    *OWN,
]
OPEN = {"/livez", "/static/app.js"}
BAD_HOSTS = [None, "evil.test", "127.0.0.1:1", "127.0.0.1.evil.test:8790", f"{HOST}."]
BAD_ORIGINS = ["null", "http://127.0.0.1:8791", "https://evil.test"]


def filled(pattern):
    for name in ("project", "label", "id", "name"):
        pattern = pattern.replace(
            "{" + name + "}", "desk" if name == "project" else "x1"
        )
    return pattern


@pytest.mark.requirement("serve-1")
async def test_no_route_is_reached_past_the_guard(tmp_path):
    async with desk(tmp_path) as server:
        for method, pattern in EVERYWHERE:
            target = filled(pattern)
            for host in BAD_HOSTS:
                reply = await server.ask(method, target, host=host)
                assert (reply.status, pattern) == (421, pattern)
            doubled = await server.ask(method, target, headers=[("host", HOST)])
            assert doubled.status == 421
            for origin in BAD_ORIGINS:
                reply = await server.ask(method, target, headers={"origin": origin})
                assert (reply.status, pattern) == (403, pattern)
            cross = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"}
            assert (await server.ask(method, target, headers=cross)).status == 403
            for token in (None, "x" * 40):
                reply = await server.ask(method, target, token=token)
                assert (reply.status == 401) is (pattern not in OPEN), pattern

        assert server.calls == []


@pytest.mark.requirement("serve-1")
async def test_every_answer_has_the_headers_that_protect_a_browser(tmp_path):
    async with desk(tmp_path) as server:
        for method, pattern in (*OWN, ("GET", "/"), ("GET", "/broken")):
            headers = (await server.ask(method, filled(pattern))).headers
            assert "default-src 'none'" in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "same-origin"
            is_static = pattern == "/static/app.js"
            assert ("immutable" in headers["cache-control"]) is is_static


@pytest.mark.requirement("serve-1")
async def test_a_body_that_is_too_large_or_is_cut_is_refused(tmp_path):
    async with desk(tmp_path) as server:
        declared = {"content-length": str(SERVE_BODY_BYTES + 1)}
        said = await server.json("POST", "/api/v1/doctor/repair", headers=declared)
        big = await server.ask(
            "POST", "/api/v1/doctor/repair", body=b" " * (SERVE_BODY_BYTES + 1)
        )
        # What cannot be read is refused although more is announced.
        waits = {"expect": "100-continue", **declared}
        asked = await server.json("POST", "/api/v1/doctor/repair", headers=waits)
        huge = {"content-length": str(SERVE_UNREAD_BYTES + 1)}
        unread = await server.json("POST", "/api/v1/doctor/repair", headers=huge)
        piece = {
            "type": "http.request",
            "body": b" " * (SERVE_UNREAD_BYTES // 2 + 1),
            "more_body": True,
        }
        endless = await answer_to(server, [piece, piece])
        cut = await answer_to(server, [{"type": "http.disconnect"}])

    assert (said.status, said.code) == (413, "body-too-large")
    assert (big.status, big.code) == (413, "body-too-large")
    assert (asked.status, unread.status, endless) == (413, 413, 413)
    assert cut == 400


async def answer_to(server, messages):
    """Return the status of a request whose body comes in pieces."""
    given = [("host", HOST), ("authorization", f"Bearer {CONTROL}")]
    sent = []

    async def receive():
        return messages.pop(0)

    async def send(message):
        sent.append(message)

    scope = scope_of("POST", "/api/v1/sync/clear-alarms", "", given)
    await server.app(scope, receive, send)
    return sent[0]["status"]


async def test_a_body_may_come_in_pieces(tmp_path):
    async with desk(tmp_path) as server:
        status = await answer_to(
            server,
            [
                {"type": "http.request", "body": b"{", "more_body": True},
                {"type": "http.request", "body": b"}"},
            ],
        )

    assert status == 415


async def test_a_body_that_does_not_arrive_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr("crdtmem.serve.turns.SERVE_BODY_S", 0.01)
    async with desk(tmp_path) as server:
        given = [("host", HOST), ("authorization", f"Bearer {CONTROL}")]
        sent = []

        async def send(message):
            sent.append(message)

        scope = scope_of("POST", "/api/v1/sync/clear-alarms", "", given)
        await server.app(scope, asyncio.Event().wait, send)
        await asyncio.to_thread(int)

    assert sent[0]["status"] == 408


@pytest.mark.requirement("serve-3")
async def test_a_one_time_url_signs_a_browser_in_once(tmp_path):
    async with desk(tmp_path) as server:
        token = server.site.sessions.invite()
        link = {
            "sec-fetch-site": "cross-site",
            "sec-fetch-mode": "navigate",
            "sec-fetch-dest": "document",
        }
        first = await server.ask("GET", f"/login?t={token}", token=None, headers=link)
        again = await server.ask("GET", f"/login?t={token}", token=None)
        cookie = first.headers["set-cookie"].partition(";")[0]
        signed = await server.ask(
            "GET", f"/login?t={token}", token=None, headers={"cookie": cookie}
        )
        page = await server.ask("GET", "/", token=None, headers={"cookie": cookie})

    assert first.status == 200
    assert "location" not in first.headers
    assert b'http-equiv="refresh"' in first.body
    assert token.encode() not in first.body
    assert "HttpOnly; SameSite=Strict; Path=/" in first.headers["set-cookie"]
    assert first.headers["set-cookie"].startswith("crdtmem_8790=")
    assert again.status == 401
    assert b"crdtmem serve --url" in again.body
    assert (signed.status, signed.headers["location"]) == (303, "/")
    assert page.body == b"hello web:ana"


async def test_a_head_request_uses_up_no_one_time_url(tmp_path):
    async with desk(tmp_path) as server:
        token = server.site.sessions.invite()
        head = await server.ask("HEAD", f"/login?t={token}", token=None)
        get = await server.ask("GET", f"/login?t={token}", token=None)

    assert (head.status, head.body) == (401, b"")
    assert get.status == 200


@pytest.mark.requirement("serve-4")
async def test_a_form_of_another_session_is_refused(tmp_path):
    async with desk(tmp_path) as server:
        one, two = await server.sign_in(), await server.sign_in()
        fields = {"text": "x", "request_id": "r1"}
        foreign = await server.form(NOTE, one, csrf=two, **fields)
        none = await server.form(NOTE, one, csrf="", **fields)
        in_url = await server.ask(
            "POST",
            f"{NOTE}?csrf=x",
            headers={"cookie": one, "origin": ORIGIN, "content-type": FORM},
            token=None,
        )
        from_nowhere = await server.ask(
            "POST", NOTE, headers={"cookie": one}, token=None
        )
        got = await server.ask("GET", NOTE, headers={"cookie": one}, token=None)

        assert [r.status for r in (foreign, none, in_url, from_nowhere)] == [403] * 4
        assert b"csrf-failed" in foreign.body
        assert (got.status, got.headers["allow"]) == (405, "POST")
        assert server.calls == []


@pytest.mark.requirement("serve-9")
async def test_a_form_that_is_sent_twice_writes_once(tmp_path):
    async with desk(tmp_path) as server:
        cookie = await server.sign_in()
        with server.memory() as memory:
            memory.create("notes")
        replies = [
            await server.form(NOTE, cookie, text="line", request_id="r1")
            for _ in range(2)
        ]
        with server.memory() as memory:
            view = memory.slot("notes").read()

    assert [reply.status for reply in replies] == [303, 303]
    assert view.content == "line"


@pytest.mark.requirement("serve-9")
async def test_a_request_whose_answer_was_lost_is_replayed(tmp_path):
    async with desk(tmp_path) as server:
        await server.json("POST", "/api/v1/projects/desk/slots", {"label": "notes"})
        target = "/api/v1/projects/desk/slots/notes/append"
        how = {"headers": {"idempotency-key": "k1"}}
        first = await server.json("POST", target, {"text": "a"}, **how)
        again = await server.json("POST", target, {"text": "a"}, **how)
        other = await server.json("POST", target, {"text": "b"}, **how)

    assert first.json["changed"]
    assert again.json["replayed"]
    assert again.json["rev"] == first.json["rev"]
    assert (other.status, other.code) == (409, "request-id-reused")


async def test_unknown_and_doubled_fields_of_a_form_are_refused(tmp_path):
    async with desk(tmp_path) as server:
        cookie = await server.sign_in()
        unknown = await server.form(NOTE, cookie, text="a", request_id="r", extra="x")
        doubled = await server.ask(
            "GET", "/p/desk/slots?sort=a&sort=b", headers={"cookie": cookie}, token=None
        )
        odd = await server.ask("GET", "/p/desk/slots?sorted=a")
        part = await server.ask("GET", "/p/desk/slots?part=list&sort=name")

    assert [r.status for r in (unknown, doubled, odd, part)] == [400, 400, 400, 200]


@pytest.mark.requirement("serve-5")
async def test_a_token_to_read_writes_nothing(tmp_path):
    options = {"token_file": token_file(tmp_path)}
    async with desk(tmp_path, options=options) as server:
        for route in ANYTHING:
            if not route.writes:
                continue
            reply = await server.json(route.method, filled(route.pattern), token=READ)
            assert (reply.status, route.pattern) == (403, route.pattern)
        posted = await server.json("POST", "/agentmemory/slot", {}, token=READ)
        seen = await server.json("GET", "/api/v1/projects/desk/slots", token=READ)
        made = await server.json(
            "POST", "/api/v1/projects/desk/slots", {"label": "a"}, token=WRITE
        )
        history = await server.ask(
            "GET", "/api/v1/projects/desk/slots/a/blame", token=READ
        )

    assert (posted.status, posted.json["code"]) == (403, "permission-denied")
    assert seen.status == history.status == 200
    assert made.status == 201


@pytest.mark.requirement("serve-5")
async def test_a_server_that_only_shows_writes_nothing(tmp_path):
    async with desk(tmp_path) as server:
        with server.memory() as memory:
            memory.create("notes", "a")
    async with desk(tmp_path, options={"read_only": True}) as server:
        for route in ANYTHING:
            if route.writes:
                reply = await server.json(route.method, filled(route.pattern))
                assert (reply.status, route.pattern) == (403, route.pattern)
        posted = await server.json("POST", "/agentmemory/slot/append", {})
        seen = await server.json("GET", "/api/v1/projects/desk/slots/notes")

    assert posted.status == 403
    assert seen.json["content"] == "a"


async def test_other_projects_do_not_exist_where_one_is_shown(tmp_path):
    async with desk(tmp_path) as server:
        for project in ("desk", "other"):
            with server.memory(project=project) as memory:
                memory.create("notes", project)
    async with desk(tmp_path, options={"only_project": "other"}) as server:
        hidden = await server.json("GET", "/api/v1/projects/desk/slots")
        page = await server.ask("GET", "/p/desk/slots")
        shown = await server.json("GET", "/api/v1/projects/other/slots/notes")
        listed = await server.json("GET", "/api/v1/projects")
        status = await server.json("GET", "/api/v1/status")

    assert (hidden.status, hidden.code) == (404, "route-not-found")
    assert page.status == 404
    assert shown.json["content"] == "other"
    assert [p["project"] for p in listed.json["projects"]] == ["other"]
    assert status.json["project"] == "other"
    assert status.json["serve"]["onlyProject"] == "other"


async def test_a_page_of_a_named_origin_may_ask_with_a_token(tmp_path):
    async with desk(tmp_path) as server:
        cookie = await server.sign_in()
        from_there = {"origin": FOREIGN, "sec-fetch-site": "cross-site"}
        ask = await server.ask(
            "OPTIONS", "/api/v1/status", token=None, headers=from_there
        )
        got = await server.ask("GET", "/api/v1/status", headers=from_there)
        by_cookie = await server.ask(
            "GET", "/api/v1/status", token=None, headers=from_there | {"cookie": cookie}
        )
        page = await server.ask("GET", "/", headers=from_there)

    assert ask.status == 204
    assert "PATCH" in ask.headers["access-control-allow-methods"]
    assert got.headers["access-control-allow-origin"] == FOREIGN
    assert got.headers["cross-origin-resource-policy"] == "cross-origin"
    assert by_cookie.status == 401
    assert page.status == 403


async def test_logging_out_ends_the_session(tmp_path):
    async with desk(tmp_path) as server:
        cookie = await server.sign_in()
        out = await server.form("/logout", cookie)
        page = await server.ask("GET", "/", token=None, headers={"cookie": cookie})
        by_token = await server.ask("POST", "/logout")

    assert (out.status, out.headers["location"]) == (303, "/")
    assert "Max-Age=0" in out.headers["set-cookie"]
    assert page.status == 401
    assert by_token.status == 303


async def test_only_the_command_is_given_a_new_one_time_url(tmp_path):
    options = {"token_file": token_file(tmp_path)}
    async with desk(tmp_path, options=options) as server:
        cookie = await server.sign_in()
        good = await server.ask("POST", "/session/invite")
        bad = await server.ask("POST", "/session/invite", token=WRITE)
        by_cookie = await server.form("/session/invite", cookie)

    assert good.json["url"].startswith(f"{ORIGIN}/login?t=")
    assert bad.status == by_cookie.status == 403


@pytest.mark.requirement("serve-28")
async def test_a_fault_is_told_by_a_number_and_nothing_else(tmp_path, caplog):
    async with desk(tmp_path) as server:
        reply = await server.ask("GET", "/broken")

    assert reply.status == 500
    assert b"internal-error" in reply.body
    assert b"secret" not in reply.body
    assert "incident" in caplog.text
    assert "RuntimeError at" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.requirement("serve-28")
@pytest.mark.parametrize("log_json", [False, True])
async def test_a_line_of_the_log_holds_no_token_text_or_label(
    tmp_path, caplog, log_json
):
    async with desk(tmp_path, options={"log_json": log_json}) as server:
        with caplog.at_level(logging.DEBUG, "crdtmem.serve.app"):
            await server.json(
                "POST",
                "/api/v1/projects/desk/slots",
                {"label": "zebra", "content": "giraffe"},
            )
            token = server.site.sessions.invite()
            await server.ask("GET", f"/login?t={token}", token=None)
            await server.ask("GET", "/api/v1/projects/desk/search?query=giraffe")
            await server.ask("GET", "/api/v1/projects/desk/slots/zebra/secret")
    lines = [record.getMessage() for record in caplog.records]

    assert len(lines) == 4
    assert not any(w in caplog.text for w in ("zebra", "giraffe", token, CONTROL))
    if log_json:
        assert json.loads(lines[0])["route"] == "POST /api/v1/projects/{project}/slots"
    else:
        assert "route='POST /api/v1/projects/{project}/slots' status=201" in lines[0]


async def test_readiness_ends_when_the_server_drains(tmp_path):
    async with desk(tmp_path) as server:
        before = await server.ask("GET", "/readyz", token=None)
        opened = server.site.handles._open
        await server.site.handles.close()

        def busy(_project, _lane):
            raise StoreBusyError(path="x", pid=None, command=None, waited_s=1.0)

        server.site.handles._open = busy
        failing = await server.ask("GET", "/readyz", token=None)
        server.site.handles._open = opened
        server.site.stopping.set()
        after = await server.ask("GET", "/readyz", token=None)
        live = await server.ask("GET", "/livez", token=None)
        absent = await server.ask("GET", "/static/none.js", token=None)

    assert [r.status for r in (before, after, live, absent)] == [200, 503, 200, 404]
    assert before.json["storeMs"] > 0
    assert failing.status == 503
    told = {"status": "failing", "storeMs": None, "error": "store-busy"}
    assert failing.json == told
    assert after.json["status"] == "stopping"


async def test_programs_are_told_in_their_language_what_there_is_instead(tmp_path):
    async with desk(tmp_path) as server:
        for path in ("/livez", "/readyz", "/login", "/static/app.js"):
            reply = await server.ask("POST", path, token=None)
            assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD")
        for path in ("/api", "/api/v1", "/api/v2/status", "/yjs/desk/notes"):
            reply = await server.ask("GET", path)
            assert (reply.status, reply.code) == (404, "route-not-found")
        unknown = await server.ask("GET", "/api/v1/openapi.json?version=2")
        nobody = await server.ask("GET", "/api/v1/status", token="nobody")

    assert (unknown.status, unknown.code) == (400, "invalid-argument")
    assert (nobody.status, nobody.headers["www-authenticate"]) == (401, "Bearer")


@pytest.mark.requirement("serve-4")
async def test_what_changes_anything_is_not_done_by_get(tmp_path):
    writing = [r.pattern for r in ANYTHING if r.writes and r.method == "POST"]
    reading = {r.pattern for r in ANYTHING if r.method == "GET"}
    async with desk(tmp_path) as server:
        for pattern in ("/logout", "/session/invite", *writing):
            if pattern not in reading:
                reply = await server.ask("GET", filled(pattern))
                assert (reply.status, pattern) == (405, pattern)
                assert reply.headers["allow"] == "POST"
        for path in ("/version", "/api/v1/openapi.json"):
            head = await server.ask("HEAD", path)
            assert (head.status, head.body) == (200, b"")
        events = await server.ask("HEAD", "/api/v1/projects/desk/events")
        assert (events.status, events.body) == (200, b"")


class Editor:
    """A connection that asks for a WebSocket."""

    def __init__(self, path, *headers, host=HOST, is_denied_by_answer=False):
        self.scope = {
            **scope_of("GET", path, "", [("host", host), *headers]),
            "type": "websocket",
            "subprotocols": [],
        }
        for name, value in headers:
            if name == "sec-websocket-protocol":
                self.scope["subprotocols"] = value.split(", ")
        if is_denied_by_answer:
            self.scope["extensions"] = {"websocket.http.response": {}}
        self.sent = []

    async def connect(self, server):
        async def receive():
            return {"type": "websocket.connect"}

        async def send(message):
            self.sent.append(message)

        await server.app(self.scope, receive, send)
        return self.sent


async def opened(socket, ask, namespace, label):
    await socket.accept()
    await socket.send_text(f"{namespace} {label} {ask.principal.lane}")
    raise WebSocketDisconnect


BEARER = ("authorization", f"Bearer {CONTROL}")


async def connected(server, *headers, path="/yjs/desk/notes", **how):
    try:
        return await Editor(path, *headers, **how).connect(server)
    except WebSocketDisconnect:
        return "open"


@pytest.mark.requirement("serve-1")
async def test_an_editor_passes_the_same_guard(tmp_path):
    async with desk(tmp_path, open_socket=opened) as server:
        cookie = ("cookie", await server.sign_in())
        protocols = ("sec-websocket-protocol", f"crdtmem.yjs, crdtmem.token.{CONTROL}")
        ours = ("origin", ORIGIN)
        fine = [
            await connected(server, BEARER),
            await connected(server, protocols),
            await connected(server, cookie, ours),
            await connected(server, BEARER, ("origin", FOREIGN)),
        ]
        no_token = await connected(server, (protocols[0], "crdtmem.yjs"))
        no_origin = await connected(server, cookie)
        foreign = await connected(server, cookie, ("origin", "null"))
        told = await connected(
            server, BEARER, host="evil.test", is_denied_by_answer=True
        )
        lost = await connected(server, BEARER, path="/yjs/notes")

    assert fine == ["open"] * 4
    assert [m["type"] for m in no_token] == ["websocket.accept", "websocket.close"]
    assert no_token[0]["subprotocol"] == "crdtmem.yjs"
    assert no_token[1]["code"] == 4401
    assert [m["type"] for m in no_origin + foreign + lost] == ["websocket.close"] * 3
    assert told[0]["status"] == 421
    assert b"host-forbidden" in told[1]["body"]


async def test_an_editor_of_a_hidden_project_is_told_that_there_is_none(tmp_path):
    options = {"only_project": "other"}
    async with desk(tmp_path, options=options, open_socket=opened) as server:
        hidden = await connected(server, BEARER)
        shared = await connected(server, BEARER, path="/yjs/global/notes")
    async with desk(tmp_path) as server:
        without = await connected(server, BEARER)

    assert hidden[1]["code"] == without[1]["code"] == 4404
    assert shared == "open"
