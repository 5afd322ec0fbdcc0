"""Reading of queries, forms and JSON bodies."""

from urllib.parse import urlencode

import pytest
from hypothesis import given, settings, strategies as st

from crdtmem.errors import CrdtmemError, InvalidArgumentError
from crdtmem.serve.answers import HttpError
from crdtmem.serve.routing import Field
from crdtmem.serve.values import body_values, pairs_in, query_schema_of, query_values

JSON = "application/json; charset=utf-8"


def field(kind, name="value"):
    return (Field(name, kind),)


# Whether the last name is doubled must not be looked for among all, for each.
MANY = b"{" + b", ".join(b'"%x": 1' % number for number in range(20_000)) + b"}"
WORD = st.text(st.sampled_from("a=&+% ;ä\U0001f600\n\0"), max_size=4)


@settings(max_examples=30)
@given(st.dictionaries(WORD, WORD, max_size=3))
def test_a_query_is_what_was_written(pairs):
    assert pairs_in(urlencode(pairs).encode()) == pairs


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"a=1&a=2", "'a' is given twice"),
        (b"b=1", "unknown name 'b'; there are: a"),
        (b"a=1&", "unknown name ''"),
    ],
)
def test_unknown_and_doubled_names_are_refused(raw, why):
    with pytest.raises(InvalidArgumentError, match=why):
        pairs_in(raw, known=("a",))


def test_a_form_of_far_too_many_names_is_refused():
    with pytest.raises(HttpError, match="more than 256 names"):
        pairs_in(b"&".join(b"a%d" % number for number in range(257)))


def test_a_query_that_is_no_utf8_is_refused():
    with pytest.raises(HttpError, match="must be UTF-8"):
        pairs_in(b"a=%FF")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("text", "a b", "a b"),
        ("whole", "-12", -12),
        ("number", "1.5", 1.5),
        ("flag", "true", True),
        ("scope", "global", "global"),
        ("texts", "a,b", ["a", "b"]),
        ("lines", "3-7", (3, 7)),
        ("lines", "3", (3, 3)),
    ],
)
def test_a_query_gives_a_value_of_each_kind(kind, text, value):
    assert query_values({"value": text}, field(kind)) == {"value": value}


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("whole", "1.0"),
        ("whole", " 1"),
        ("whole", "1_0"),
        ("number", "1e3"),
        ("number", "nan"),
        ("flag", "1"),
        ("flag", "True"),
        ("scope", "all"),
        ("lines", "7-"),
    ],
)
def test_a_query_value_of_another_kind_is_refused(kind, text):
    with pytest.raises(InvalidArgumentError) as caught:
        query_values({"value": text}, field(kind))

    assert f"not {text!r}" in caught.value.message


@pytest.mark.parametrize(
    ("kind", "raw", "value"),
    [
        ("text", b'"a"', "a"),
        ("whole", b"3", 3),
        ("number", b"1.5", 1.5),
        ("number", b"2", 2),
        ("flag", b"false", False),
        ("scope", b'"project"', "project"),
        ("texts", b'["a"]', ["a"]),
        ("lines", b"[3, 7]", (3, 7)),
        ("occurrence", b'"all"', "all"),
        ("occurrence", b"2", 2),
        ("items", b'"a"', "a"),
        ("items", b'["a"]', ["a"]),
        ("object", b'{"a": 1}', {"a": 1}),
        ("objects", b'{"a": 1}', {"a": 1}),
        ("objects", b'[{"a": 1}]', [{"a": 1}]),
    ],
)
def test_a_body_gives_a_value_of_each_kind(kind, raw, value):
    body = b'{"value": ' + raw + b"}"

    assert body_values(body, JSON, field(kind)) == {"value": value}


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        ("text", b"1"),
        ("text", b"null"),
        ("whole", b'"3"'),
        ("whole", b"3.0"),
        ("whole", b"true"),
        ("number", b"true"),
        ("number", b"1e999"),
        ("flag", b'"true"'),
        ("flag", b"0"),
        ("scope", b'"all"'),
        ("scope", b"[]"),
        ("texts", b'"a"'),
        ("texts", b"[1]"),
        ("lines", b"[1]"),
        ("lines", b"[1, true]"),
        ("lines", b'"1-2"'),
        ("occurrence", b'"one"'),
        ("items", b"[1]"),
        ("object", b"[]"),
        ("objects", b"[1]"),
    ],
)
def test_a_body_value_of_another_kind_is_refused(kind, raw):
    body = b'{"value": ' + raw + b"}"

    with pytest.raises(InvalidArgumentError, match="value must be"):
        body_values(body, JSON, field(kind))


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", "bad-request"),
        (b"[]", "bad-request"),
        (b"[" * 100_000, "bad-request"),
        (b'{"text": NaN}', "bad-request"),
        (b"\xff", "bad-request"),
        ('{"text": "a"}'.encode("utf-16"), "bad-request"),
        (b'{"text": "\xed\xa0\x80"}', "bad-request"),
        (b'{"text": "a", "text": "b"}', "invalid-argument"),
        (MANY[:-1] + b', "4e1f": 1}', "invalid-argument"),
        (b'{"text": {"a": 1, "a": 1}}', "invalid-argument"),
        (b'{"txt": "a"}', "invalid-argument"),
        (b'{"text": "\\ud800"}', "invalid-text"),
        (b"{}", "invalid-text"),
        (b'{"text": 1}', "invalid-text"),
    ],
)
def test_a_body_that_is_no_object_of_these_fields_is_refused(body, code):
    with pytest.raises(CrdtmemError) as caught:
        body_values(body, JSON, (Field("text", is_required=True),))

    assert caught.value.code == code


def test_an_escaped_pair_is_a_character():
    body = b'{"text": "\\ud83d\\ude00"}'

    assert body_values(body, JSON, (Field("text"),)) == {"text": "\U0001f600"}


def test_a_body_that_is_not_said_to_be_json_is_refused():
    with pytest.raises(HttpError) as caught:
        body_values(b"{}", "text/plain", ())

    assert (caught.value.status, caught.value.code) == (415, "unsupported-media-type")
    assert body_values(b"", "", ()) == {}


def test_lines_are_a_text_in_a_query():
    assert query_schema_of("lines")["type"] == "string"
    assert query_schema_of("whole") == {"type": "integer"}
