"""The REST API: each row of the table asks its verb."""

import json

import pytest

from crdtmem.partition import encode_key
from crdtmem.serve.answers import json_answer
from tests.serve.desk import PROJECT, desk, token_file

P = f"/api/v1/projects/{PROJECT}"
NOTES = f"{P}/slots/notes"
KEY = encode_key(("job", 7))


@pytest.fixture
async def server(tmp_path):
    async with desk(tmp_path) as made:
        yield made


async def created(server, content="one\ntwo", **more):
    return await server.json(
        "POST", f"{P}/slots", {"label": "notes", "content": content, **more}
    )


async def test_a_slot_is_made_read_and_deleted(server):
    made = await created(server, description="what for", pinned=False)
    read = await server.json("GET", made.headers["location"])
    listed = await server.json("GET", f"{P}/slots?templates=false&content=false")
    gone = await server.json("DELETE", f"{NOTES}?expectedRev={read.json['rev']}")
    after = await server.json("GET", NOTES)

    assert made.status == 201
    assert made.headers["location"] == f"{NOTES}?scope=project"
    assert read.json["content"] == "one\ntwo"
    assert read.json["description"] == "what for"
    assert [("content" in s, s["label"]) for s in listed.json["slots"]] == [
        (False, "notes")
    ]
    assert gone.json["deleted"]
    assert (after.status, after.code) == (404, "slot-not-found")


async def test_a_slot_that_is_known_is_not_sent_again(server):
    await created(server)
    first = await server.json("GET", NOTES)
    etag = first.headers["etag"]
    same = await server.json("GET", NOTES, headers={"if-none-match": f'"x", W/{etag}'})
    some = await server.json("GET", f"{NOTES}?lines=2", headers={"if-none-match": etag})
    await server.json("POST", f"{NOTES}/append", {"text": "three"})
    other = await server.json("GET", NOTES, headers={"if-none-match": etag})
    tag = other.headers["etag"]
    await server.json("PATCH", NOTES, {"readOnly": True})
    locked = await server.json("GET", NOTES, headers={"if-none-match": tag})
    head = await server.json("HEAD", NOTES)

    assert etag.startswith(f'"{first.json["rev"]}-{first.json["contentHash"]}-')
    assert (locked.status, locked.json["readOnly"]) == (200, True)
    assert (same.status, same.body, same.headers["etag"]) == (304, b"", etag)
    assert some.json["content"] == "two"
    assert other.status == 200
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == str(len(locked.body))


async def test_a_guard_in_the_body_of_a_delete_is_not_passed_over(server):
    await created(server)
    refused = await server.json("DELETE", NOTES, {"expectedRev": 99})
    left = await server.json("GET", NOTES)

    assert (refused.status, refused.code) == (400, "bad-request")
    assert left.json["content"] == "one\ntwo"


async def test_a_guard_in_a_header_is_not_passed_over(server):
    await created(server)
    guard = {"headers": {"if-match": '"7-x"'}}
    refused = await server.json("POST", f"{NOTES}/append", {"text": "x"}, **guard)
    read = await server.json("GET", NOTES, **guard)

    assert (refused.status, refused.code) == (400, "invalid-precondition")
    assert "expectedRev" in refused.json["error"]["message"]
    assert read.json["content"] == "one\ntwo"


async def test_each_way_to_write_is_a_route(server):
    await created(server)
    edited = await server.json(
        "POST", f"{NOTES}/edit", {"old": "two", "new": "2", "occurrence": "all"}
    )
    inserted = await server.json(
        "POST",
        f"{NOTES}/insert",
        {"line": 1, "text": "middle", "baseRev": edited.json["rev"]},
    )
    replaced = await server.json(
        "POST",
        f"{NOTES}/replace",
        {"content": "new", "expectedRev": inserted.json["rev"]},
    )
    undone = await server.json(
        "POST", f"{NOTES}/undo", {"id": replaced.json["historyId"]}
    )
    restored = await server.json(
        "POST",
        f"{NOTES}/restore",
        {"id": edited.json["historyId"], "expectedRev": undone.json["rev"]},
    )
    settings = await server.json("PATCH", NOTES, {"sizeLimit": 500, "readOnly": True})
    refused = await server.json("POST", f"{NOTES}/append", {"text": "x"})

    assert inserted.json["content"] == "one\nmiddle\n2"
    assert replaced.json["content"] == "new"
    assert undone.json["content"] == "one\nmiddle\n2"
    assert restored.json["content"] == "one\ntwo"
    assert (settings.json["sizeLimit"], settings.json["readOnly"]) == (500, True)
    assert (refused.status, refused.code) == (403, "slot-read-only")


async def test_a_replacement_needs_a_guard_or_force(server):
    await created(server)
    bare = await server.json("POST", f"{NOTES}/replace", {"content": "x"})
    stale = await server.json(
        "POST", f"{NOTES}/replace", {"content": "x", "expectedRev": 7}
    )
    forced = await server.json(
        "POST", f"{NOTES}/replace", {"content": "x", "force": True}
    )

    assert (bare.status, bare.code) == (400, "invalid-precondition")
    assert bare.json["error"]["details"]["reason"] == "guard-required"
    assert (stale.status, stale.code) == (409, "conflict")
    assert stale.json["error"]["details"]["current"]["size"] == 7
    assert forced.json["content"] == "x"


async def test_the_past_of_a_slot_is_shown(server):
    made = await created(server)
    await server.json("POST", f"{NOTES}/append", {"text": "three"})
    history = await server.json("GET", f"{NOTES}/history?limit=1")
    entry = history.json["entries"][0]
    one = await server.json("GET", f"{NOTES}/history/{entry['id']}")
    diff = await server.json("GET", f"{NOTES}/diff?from={made.json['rev']}")
    blame = await server.json("GET", f"{NOTES}/blame")
    past = await server.json("GET", f"{NOTES}?atRev={made.json['rev']}")
    absent = await server.json("GET", f"{NOTES}/history/h999-none")

    assert one.json["content"] == past.json["content"] == "one\ntwo"
    assert (diff.json["added"], diff.json["removed"]) == (1, 0)
    assert [line["text"] for line in blame.json["lines"]] == ["one", "two", "three"]
    assert (absent.status, absent.code) == (404, "history-not-found")


async def test_a_project_is_shown_from_all_sides(server):
    await created(server)
    feed = await server.json("GET", f"{P}/changes?limit=5&scope=project")
    context = await server.json("GET", f"{P}/context?labels=notes&style=headings")
    audit = await server.json("GET", f"{P}/audit?label=notes&lane=cli")
    found = await server.json("GET", f"{P}/search?query=two&kinds=slot&snippet=20")
    due = await server.json("GET", f"{P}/condense/due?scope=project")

    assert [c["label"] for c in feed.json["changes"]] == ["notes"]
    assert "one" in context.json["text"]
    assert [e["operation"] for e in audit.json["entries"]] == ["create"]
    assert found.json["hits"][0]["label"] == "notes"
    assert due.json["slots"][0]["due"] is False


async def test_a_condense_pass_is_begun_committed_and_looked_up(server):
    text = "".join(f"## part {n}\n{'words ' * 20}\n" for n in range(6))
    await created(server, text)
    begun = await server.json(
        "POST", f"{NOTES}/condense", {"force": True, "keepSections": 1}
    )
    where = f"{P}/condense/passes/{begun.json['id']}"
    done = await server.json(
        "POST", f"{where}/commit", {"summary": "short", "hoisted": []}
    )
    archive = await server.json("GET", where)
    passes = await server.json("GET", f"{P}/condense/passes?label=notes")
    again = await server.json("POST", f"{where}/abort")
    unknown = await server.json("POST", f"{P}/condense/passes/cp_none/abort")

    assert begun.status == 201
    assert done.json["condensed"]
    assert archive.json["passId"] == begun.json["id"]
    assert [p["state"] for p in passes.json["passes"]] == ["committed"]
    assert again.json["reason"] == "condensed"
    assert (unknown.status, unknown.code) == (404, "condense-pass-unknown")


async def test_items_of_a_set_are_added_found_changed_and_deleted(server):
    items = f"{P}/sets/facts/items"
    key = {"partition": KEY}
    added = await server.json(
        "POST", items, {**key, "items": ["red", "blue"], "metadatas": {"a": 1}}
    )
    first, second = added.json["ids"]
    page = await server.json("GET", f"{items}?partition={KEY}&order=oldest")
    changed = await server.json("PATCH", f"{items}/{first}", {**key, "text": "green"})
    found = await server.json(
        "POST", f"{P}/sets/facts/search", {**key, "query": "green", "filters": {"a": 1}}
    )
    gone = await server.json("DELETE", f"{items}/{second}?partition={KEY}")
    sets = await server.json("GET", f"{P}/sets?partition={KEY}")
    partitions = await server.json("GET", f"{P}/partitions")

    assert added.status == 201
    assert [item["text"] for item in page.json["items"]] == ["red", "blue"]
    assert changed.json["changed"]
    assert [hit["itemId"] for hit in found.json["hits"]] == [first]
    assert gone.json["deleted"] == 1
    assert [(s["name"], s["itemCount"]) for s in sets.json["sets"]] == [("facts", 1)]
    assert [p["encodedKey"] for p in partitions.json["partitions"]] == [KEY]


async def test_the_store_is_shown_and_looked_after(server):
    await created(server)
    status = await server.json("GET", "/api/v1/status")
    projects = await server.json("GET", "/api/v1/projects")
    sync = await server.json("GET", "/api/v1/sync")
    cleared = await server.json("POST", "/api/v1/sync/clear-alarms")
    mirrors = await server.json("GET", "/api/v1/mirrors")
    doctor = await server.json("GET", "/api/v1/doctor?deep=true")
    repair = await server.json("POST", "/api/v1/doctor/repair", {"deep": False})

    assert status.json["serve"]["version"] == "1.2.3"
    assert status.json["slots"] == 1
    assert [p["project"] for p in projects.json["projects"]] == [PROJECT]
    assert sync.json == cleared.json
    assert mirrors.json == {"mirrors": []}
    assert doctor.json["ok"]
    assert repair.json["ok"]


async def test_a_lane_is_chosen_where_the_caller_may(tmp_path):
    options = {"token_file": token_file(tmp_path)}
    async with desk(tmp_path, options=options) as server:
        await created(server)
        append = f"{NOTES}/append"
        lane = {"headers": {"crdtmem-lane": "büro"}}
        chosen = await server.json("POST", append, {"text": "a"}, **lane)
        by_name = await server.json("POST", append, {"text": "b"}, token="w" * 40)
        refused = await server.json(
            "POST", append, {"text": "c"}, token="w" * 40, **lane
        )
        blank = {"headers": {"crdtmem-lane": " "}}
        bad = await server.json("POST", append, {"text": "d"}, **blank)
        blame = await server.json("GET", f"{NOTES}/blame")

    lanes = [line["lane"] for line in blame.json["lines"]]
    assert lanes == ["cli", "cli", "büro", "wim"]
    assert chosen.status == by_name.status == 200
    assert (refused.status, refused.code) == (403, "permission-denied")
    assert (bad.status, bad.code) == (400, "invalid-lane")


async def test_arguments_are_refused_where_they_do_not_belong(server):
    await created(server)
    append = f"{NOTES}/append"
    twice = await server.json(
        "POST", f"{append}?scope=project", {"text": "a", "scope": "project"}
    )
    scoped = await server.json("POST", f"{append}?scope=project", {"text": "a"})
    keys = {"headers": {"idempotency-key": "k"}}
    differs = await server.json("POST", append, {"text": "a", "requestId": "r"}, **keys)
    unnamed = await server.json("POST", "/api/v1/doctor/repair", {}, **keys)
    ignored = await server.json("GET", NOTES, **keys)
    project = await server.json("GET", "/api/v1/projects/%20/slots")
    path = await server.json("GET", "/api/v1/projects/%FF/slots")
    wait = await server.json("GET", f"{P}/changes?wait=31")

    assert (twice.status, scoped.status) == (400, 200)
    assert (differs.status, differs.code) == (400, "invalid-request-id")
    assert "takes no Idempotency-Key" in unnamed.json["error"]["message"]
    assert ignored.status == 200
    assert (project.status, path.status, wait.status) == (400, 404, 400)


@pytest.mark.parametrize(
    ("method", "path", "body", "sent", "value"),
    [
        ("POST", "/slots", {"label": "a", "sizeLimit": 0}, "sizeLimit", "not 0"),
        ("POST", "/slots", {"label": "a", "requestId": ""}, "requestId", "not ''"),
        ("GET", "/slots/notes/diff?from=-1", None, "from", "be -1"),
        ("GET", "/context?budgetTokens=1", None, "budgetTokens", "not 1"),
        ("GET", "/changes?excludeLane=%00", None, "excludeLane", "not '\\x00'"),
        ("GET", "/sets?partition=expires_in", None, "partition", "not 'expires_in'"),
        ("POST", "/slots/notes/condense", {"expiresIn": 0}, "expiresIn", "not 0"),
    ],
)
async def test_a_refusal_names_what_was_sent(server, method, path, body, sent, value):
    reply = await server.json(method, f"{P}{path}", body)
    error = reply.json["error"]

    assert (reply.status, error["details"]["argument"]) == (400, sent)
    assert error["message"].startswith(f"{sent} ")
    assert error["message"].endswith(value)


async def test_what_a_refusal_quotes_stays_as_it_was_sent(server):
    await created(server)
    both = await server.json(
        "POST", f"{NOTES}/replace", {"content": "", "baseRev": 1, "expectedRev": 1}
    )
    mode = await server.json("GET", f"{P}/audit?lane=%00'before_%00")
    named = {"headers": {"idempotency-key": "a b"}}
    key = await server.json("POST", f"{NOTES}/append", {"text": "x"}, **named)
    blank = {"headers": {"crdtmem-lane": " "}}
    lane = await server.json("POST", f"{NOTES}/append", {"text": "x"}, **blank)
    snake = await server.json("POST", f"{NOTES}/append", {"text": "", "base_rev": 1})

    assert snake.json["error"]["details"]["argument"] == "base_rev"
    assert both.json["error"]["message"] == (
        "baseRev merges and cannot be joined with expectedRev or expectedHash"
    )
    assert mode.json["error"]["message"].endswith('before_\\x00"')
    assert key.json["error"]["message"].startswith("Idempotency-Key must be 1 to 128")
    assert lane.json["error"]["message"].startswith("Crdtmem-Lane must be 1 to 128")


async def test_a_handle_that_is_busy_is_to_be_asked_again(server, monkeypatch):
    monkeypatch.setattr("crdtmem.serve.handles.SERVE_WAITING_MAX", 0)
    reply = await server.json("GET", f"{P}/slots")

    assert (reply.status, reply.code) == (503, "store-busy")
    assert reply.headers["retry-after"] == "1"


def test_half_a_pair_in_an_answer_breaks_nothing():
    answer = json_answer({"a": "\ud800"})

    assert json.loads(answer.body) == {"a": "?"}
