"""Who may ask at all: the checks over the head of a request."""

import pytest

from crdtmem.serve.answers import HttpError
from crdtmem.serve.guard import (
    Head,
    Rules,
    bearer_of,
    check_csrf,
    check_source,
    cookie_of,
    cors_headers,
    security_headers,
)

RULES = Rules(
    frozenset({"127.0.0.1:8790", "localhost:8790", "[::1]:8790", "memory.example"}),
    public_origin="https://memory.example",
    origins=frozenset({"https://app.example"}),
)
HOST = ("host", "127.0.0.1:8790")
OURS = ("origin", "http://127.0.0.1:8790")


def head(*headers, method="GET", path="/p/x/slots", is_websocket=False):
    raw = [(name.encode(), value.encode()) for name, value in headers]
    return Head(method, path, raw, "127.0.0.1", is_websocket)


def refusal(made, rules=RULES):
    with pytest.raises(HttpError) as caught:
        check_source(made, rules)
    return caught.value.status, caught.value.code


@pytest.mark.requirement("serve-1")
@pytest.mark.parametrize(
    "hosts",
    [
        [],
        ["127.0.0.1:8790", "127.0.0.1:8790"],
        ["127.0.0.1:8790", "evil.example"],
        ["127.0.0.1"],
        ["127.0.0.1:8791"],
        ["127.0.0.1.evil.test:8790"],
        ["127.0.0.1.:8790"],
        ["localhost.:8790"],
        ["evil.test"],
        ["0.0.0.0:8790"],
        ["2130706433:8790"],
        ["memory.example:443"],
        [""],
    ],
)
def test_a_request_that_names_another_host_is_refused(hosts):
    assert refusal(head(*(("host", host) for host in hosts))) == (421, "host-forbidden")


@pytest.mark.parametrize("host", ["127.0.0.1:8790", "LocalHost:8790", "[::1]:8790"])
def test_our_own_hosts_are_known_in_any_case(host):
    assert check_source(head(("host", host)), RULES).host == host.lower()


@pytest.mark.requirement("serve-1")
@pytest.mark.parametrize(
    "origins",
    [
        ["null"],
        ["http://127.0.0.1:8791"],
        ["https://127.0.0.1:8790"],
        ["http://localhost:8790"],
        ["http://127.0.0.1:8790.evil.test"],
        ["https://app.example"],
        ["https://memory.example"],
        [OURS[1], OURS[1]],
        [""],
    ],
)
def test_a_page_of_another_origin_is_refused(origins):
    made = head(HOST, *(("origin", origin) for origin in origins), method="POST")

    assert refusal(made) == (403, "origin-forbidden")


def test_each_host_has_its_own_origin():
    public = head(("host", "memory.example"), ("origin", "https://memory.example"))

    assert check_source(head(HOST, OURS), RULES).origin == OURS[1]
    assert check_source(public, RULES).origin == "https://memory.example"


@pytest.mark.parametrize("path", ["/api/v1/status", "/yjs/x/notes"])
def test_a_named_origin_may_use_the_interfaces_for_programs(path):
    made = head(
        HOST,
        ("origin", "https://app.example"),
        ("sec-fetch-site", "cross-site"),
        path=path,
    )
    source = check_source(made, RULES)
    headers = cors_headers(source)

    assert source.foreign == "https://app.example"
    assert headers["Access-Control-Allow-Origin"] == "https://app.example"
    assert "Access-Control-Allow-Credentials" not in headers
    assert "Authorization" in str(cors_headers(source, is_preflight=True))


def test_our_own_pages_need_no_cors():
    assert cors_headers(check_source(head(HOST, OURS), RULES)) == {}


@pytest.mark.requirement("serve-1")
@pytest.mark.parametrize(
    ("site", "mode", "dest", "path", "method"),
    [
        (["cross-site"], "cors", "empty", "/p/x/slots", "GET"),
        (["same-site"], "no-cors", "image", "/p/x/slots", "GET"),
        (["cross-site"], "navigate", "iframe", "/p/x/slots", "GET"),
        (["cross-site"], "navigate", "document", "/p/x/slots", "POST"),
        (["cross-site"], "navigate", "document", "/api/v1/status", "GET"),
        (["cross-site"], "navigate", "document", "/agentmemory/slots", "GET"),
        (["cross-site", "none"], "navigate", "document", "/p/x/slots", "GET"),
        (["odd"], "cors", "empty", "/p/x/slots", "GET"),
    ],
)
def test_what_a_page_of_another_site_fetches_is_refused(site, mode, dest, path, method):
    sites = [("sec-fetch-site", one) for one in site]
    made = head(
        HOST,
        *sites,
        ("sec-fetch-mode", mode),
        ("sec-fetch-dest", dest),
        path=path,
        method=method,
    )

    assert refusal(made) == (403, "origin-forbidden")


@pytest.mark.parametrize("site", ["same-origin", "none", "cross-site"])
def test_a_link_leads_to_a_page_from_anywhere(site):
    made = head(
        HOST,
        ("sec-fetch-site", site),
        ("sec-fetch-mode", "navigate"),
        ("sec-fetch-dest", "document"),
    )

    assert check_source(made, RULES).origin is None


@pytest.mark.requirement("serve-1")
def test_a_head_that_is_too_long_is_refused_before_anything_else():
    long = head(*(("x", "a" * 1000) for _ in range(17)))

    assert refusal(long)[0] == 431
    assert refusal(head()._replace(target_bytes=17_000))[0] == 431


@pytest.mark.requirement("serve-1")
@pytest.mark.parametrize(
    "headers",
    [
        [("content-length", "3"), ("transfer-encoding", "chunked")],
        [("content-length", "3"), ("content-length", "4")],
        [("crdtmem-lane", "a"), ("crdtmem-lane", "b")],
        [("idempotency-key", "a"), ("idempotency-key", "b")],
        [("x-csrf-token", "a"), ("x-csrf-token", "b")],
    ],
)
def test_headers_that_contradict_each_other_are_refused(headers):
    assert refusal(head(*headers))[0] == 400


@pytest.mark.parametrize(
    ("headers", "is_websocket", "found"),
    [
        ([], False, None),
        ([("authorization", "Bearer abc")], False, "abc"),
        ([("authorization", "bearer  abc")], False, "abc"),
        ([("sec-websocket-protocol", "crdtmem.yjs, crdtmem.token.abc")], True, "abc"),
        ([("sec-websocket-protocol", "crdtmem.yjs")], True, None),
        ([("sec-websocket-protocol", "crdtmem.token.abc")], False, None),
    ],
)
def test_a_token_comes_in_a_header_or_as_a_sub_protocol(headers, is_websocket, found):
    assert bearer_of(head(*headers, is_websocket=is_websocket)) == found


@pytest.mark.requirement("serve-1")
@pytest.mark.parametrize(
    ("headers", "is_websocket"),
    [
        ([("authorization", "Basic YTpi")], False),
        ([("authorization", "Bearer")], False),
        ([("authorization", "Bearer a b")], False),
        ([("authorization", "Bearer abc"), ("authorization", "Bearer abc")], False),
        (
            [
                ("authorization", "Bearer a"),
                ("sec-websocket-protocol", "crdtmem.token.a"),
            ],
            True,
        ),
    ],
)
def test_what_is_no_token_or_two_is_refused(headers, is_websocket):
    with pytest.raises(HttpError) as caught:
        bearer_of(head(*headers, is_websocket=is_websocket))

    assert (caught.value.status, caught.value.code) == (401, "unauthorized")


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([], None),
        (["crdtmem_8790=abc"], "abc"),
        (["a=b; crdtmem_8790=abc; c=d"], "abc"),
        (["crdtmem_8790=abc; crdtmem_8790=def"], None),
        (["crdtmem_8790=abc", "crdtmem_8790=def"], None),
        (["xcrdtmem_8790=abc"], None),
        (["crdtmem_8790"], ""),
    ],
)
def test_a_cookie_counts_only_once(lines, found):
    made = head(*(("cookie", line) for line in lines))

    assert cookie_of(made, "crdtmem_8790") == found


@pytest.mark.requirement("serve-4")
@pytest.mark.parametrize(
    ("headers", "field", "is_fine"),
    [
        ([HOST, OURS], "value", True),
        ([HOST, OURS, ("x-csrf-token", "value")], None, True),
        ([HOST, OURS], "other", False),
        ([HOST, OURS], None, False),
        ([HOST, OURS], "välue", False),
        ([HOST], "value", False),
        ([HOST, OURS, ("x-csrf-token", "value")], "other", False),
    ],
)
def test_a_write_by_cookie_needs_our_origin_and_the_value_of_the_session(
    headers, field, is_fine
):
    made = head(*headers, method="POST")
    source = check_source(made, RULES)

    if is_fine:
        check_csrf(made, source, expected="value", field=field)
    else:
        with pytest.raises(HttpError) as caught:
            check_csrf(made, source, expected="value", field=field)
        assert (caught.value.status, caught.value.code) == (403, "csrf-failed")


def test_a_doubled_header_is_refused_where_one_is_wanted():
    with pytest.raises(HttpError) as caught:
        head(("content-type", "a"), ("content-type", "b")).one("content-type")

    assert caught.value.status == 400
    assert "'content-type' is doubled" in caught.value.message


def test_no_inline_script_and_no_foreign_source_is_allowed():
    policy = dict(security_headers())["Content-Security-Policy"]

    assert "unsafe" not in policy
    assert "http" not in policy
    assert policy.startswith("default-src 'none'")
