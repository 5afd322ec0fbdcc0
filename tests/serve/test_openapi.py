"""The table of routes, the OpenAPI document and what is answered are the same."""

import asyncio
import json
import os
import re
from functools import cache
from urllib.parse import urlencode

import pytest
from hypothesis import given, settings, strategies as st
from pydantic import TypeAdapter

from crdtmem.limits import SERVE_BODY_BYTES
from crdtmem.partition import encode_key
from crdtmem.serve.openapi import REFUSALS, document, example_of
from crdtmem.serve.routes import ROUTES
from crdtmem.serve.routing import PREFIX
from crdtmem.serve.session import csrf_of
from tests.serve.desk import ORIGIN, desk

EXAMPLES = 500 if os.environ.get("TEST_PROFILE") == "campaign" else 8
REQUESTS = 12
WORDS = st.sampled_from(
    ["notes", "facts", "a b", "", "ü\U0001f600", "\0", "\u202e", "-1", "x" * 300]
)
WHOLE = st.sampled_from([0, 1, 2, 5, -1, 2**63, 10**30])
VALUES = {
    "text": WORDS,
    "whole": WHOLE,
    "number": st.sampled_from([0, 0.01, -1, 1e300]),
    "flag": st.booleans(),
    "scope": st.sampled_from(["project", "global"]),
    "texts": st.lists(WORDS, max_size=2),
    "lines": st.tuples(WHOLE, WHOLE),
    "occurrence": st.one_of(st.just("all"), WHOLE),
    "items": st.one_of(WORDS, st.lists(WORDS, max_size=2)),
    "object": st.dictionaries(WORDS, st.one_of(WORDS, WHOLE), max_size=2),
    "objects": st.lists(st.dictionaries(WORDS, WORDS, max_size=1), max_size=2),
}
NAMED = {
    "label": st.sampled_from(["notes", "other", "no label"]),
    "partition": st.sampled_from([encode_key("k"), encode_key(1), "bad"]),
    "mode": st.sampled_from(["auto", "any", "none"]),
    "order": st.sampled_from(["newest", "sideways"]),
    "wait": st.sampled_from([0, 0.01]),
}
SEGMENTS = {
    "project": st.sampled_from(["desk", "other"]),
    "label": st.sampled_from(["notes", "other", "no%20label", "%F0%9F%98%80"]),
    "name": st.sampled_from(["facts", "%00", "x"]),
    "id": st.sampled_from(["h1-00000000", "i1", "cp_none", "%F0%9F%98%80", "%00"]),
}


def in_query(kind, value):
    if kind == "lines":
        return "{}-{}".format(*value)
    if kind == "texts":
        return ",".join(value)
    return str(value).lower() if kind == "flag" else str(value)


@st.composite
def asked(draw):
    """Return a request that the document allows."""
    route = draw(st.sampled_from([r for r in ROUTES if r.name != "events"]))
    names = re.findall(r"\{([a-z]+)\}", route.pattern)
    target = route.pattern
    for name in names:
        target = target.replace("{" + name + "}", draw(SEGMENTS[name]))
    fields = route.query if route.body is None else route.body
    given_fields = [f for f in fields if f.is_required or draw(st.booleans())]
    values = {f.name: draw(NAMED.get(f.name, VALUES[f.kind])) for f in given_fields}
    return route, target, {f.name: f.kind for f in given_fields}, values


@cache
def adapter(route):
    return TypeAdapter(route.result)


def check(route, reply):
    declared = document("1")["paths"][route.path][route.method.lower()]["responses"]
    assert str(reply.status) in declared, (route.name, reply.status, reply.body[:200])
    assert reply.status < 500, (route.name, reply.body[:300])
    if reply.status == route.status:
        value = reply.json
        for one in value[route.key] if route.key else [value]:
            adapter(route).validate_json(json.dumps(one))
    else:
        assert set(reply.json) == {"error"}
        assert {"code", "message", "details"} <= set(reply.json["error"])
        assert "_" not in reply.json["error"]["details"].get("argument", "")


@pytest.mark.requirement("serve-14")
@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(asked(), min_size=REQUESTS, max_size=REQUESTS))
def test_every_request_that_the_document_allows_is_answered_as_it_says(
    tmp_path_factory, requests
):
    folder = tmp_path_factory.mktemp("desk")

    async def play():
        async with desk(folder) as server:
            await server.json("POST", f"{PREFIX}/projects/desk/slots", START)
            for route, target, kinds, values in requests:
                if route.body is None:
                    pairs = [(n, in_query(kinds[n], v)) for n, v in values.items()]
                    reply = await server.ask(
                        route.method, f"{target}?{urlencode(pairs)}"
                    )
                else:
                    reply = await server.json(route.method, target, values)
                check(route, reply)

    asyncio.run(play())


START = {"label": "notes", "content": "one\ntwo\nthree"}


@pytest.mark.requirement("serve-14")
async def test_unknown_fields_are_refused_on_every_route(tmp_path):
    async with desk(tmp_path) as server:
        for route in ROUTES:
            target = re.sub(r"\{[a-z]+\}", "desk", route.pattern)
            in_url = await server.json(route.method, f"{target}?surprise=1")
            assert (in_url.status, route.name) == (400, route.name)
            if route.body is not None:
                in_body = await server.json(route.method, target, {"surprise": 1})
                assert (in_body.status, route.name) == (400, route.name)
        assert server.calls == []


@pytest.mark.requirement("serve-14")
async def test_a_body_too_large_is_refused_as_each_route_declares(tmp_path):
    length = {"content-length": str(SERVE_BODY_BYTES + 1)}
    async with desk(tmp_path) as server:
        for route in ROUTES:
            target = re.sub(r"\{[a-z]+\}", "desk", route.pattern)
            reply = await server.ask(route.method, target, headers=length)
            assert (reply.status, reply.code) == (413, "body-too-large")
            check(route, reply)
        assert server.calls == []


@pytest.mark.requirement("serve-14")
def test_the_document_has_every_row_of_the_table_and_no_other():
    paths = document("1.2.3")["paths"]
    told = {(m.upper(), path) for path, entry in paths.items() for m in entry}

    assert told == {(route.method, route.path) for route in ROUTES}
    assert len({route.name for route in ROUTES}) == len(ROUTES)


def test_every_reference_of_the_document_leads_somewhere():
    made = document("1.2.3")
    names = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(made)))

    assert names <= set(made["components"]["schemas"])
    assert made["openapi"].startswith("3.1")
    assert {409, 413, 507} < set(REFUSALS)


async def test_the_document_is_served(tmp_path):
    async with desk(tmp_path) as server:
        reply = await server.ask("GET", f"{PREFIX}/openapi.json")

    assert reply.json["info"] == {"title": "crdtmem", "version": "1.2.3"}
    schemes = reply.json["components"]["securitySchemes"]
    assert schemes["cookie"]["name"] == server.app.cookie_name


@pytest.mark.requirement("serve-14")
async def test_what_writes_by_cookie_needs_the_headers_that_the_document_names(
    tmp_path,
):
    async with desk(tmp_path) as server:
        cookie = await server.sign_in()
        csrf = csrf_of(cookie.partition("=")[2])
        by_cookie = {"cookie": cookie, "origin": ORIGIN}
        for route in ROUTES:
            told = document("1")["paths"][route.path][route.method.lower()]
            is_open = "security" not in told
            assert is_open or told["security"][1] == {"cookie": [], "csrf": []}
            if route.name == "events":
                continue
            target = re.sub(r"\{[a-z]+\}", "desk", route.pattern)
            refused = await server.json(
                route.method, target, headers=by_cookie, token=None
            )
            both = by_cookie | {"x-csrf-token": csrf}
            passed = await server.json(route.method, target, headers=both, token=None)
            assert (refused.status == 403) is not is_open, route.name
            assert passed.status != 403, route.name


@pytest.mark.requirement("serve-14")
async def test_every_example_of_the_document_is_understood(tmp_path):
    async with desk(tmp_path) as server:
        for route in ROUTES:
            if route.name == "events":
                continue
            told = document("1")["paths"][route.path][route.method.lower()]
            given = {p["name"]: p for p in told["parameters"] if "example" in p}
            target = route.pattern
            for name in re.findall(r"\{([a-z]+)\}", target):
                target = target.replace("{" + name + "}", given[name]["example"])
            pairs = [
                (f.name, in_query("text" if f.kind == "lines" else f.kind, example))
                for f in route.query
                if (example := example_of(route, f.name)) is not None
            ]
            body = None
            if route.body is not None:
                content = told["requestBody"]["content"]["application/json"]
                body = content["example"]
                assert None not in [
                    e
                    for f in content["schema"]["properties"].values()
                    for e in f["examples"]
                ]
            reply = await server.json(
                route.method, f"{target}?{urlencode(pairs)}", body
            )
            assert reply.status != 400, (route.name, reply.body)
            check(route, reply)
