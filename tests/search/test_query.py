"""crdtmem.search.query: what is typed, as terms; nothing of it is syntax of FTS5."""

import apsw
import pytest
from hypothesis import given, settings

from crdtmem.errors import InvalidArgumentError
from crdtmem.search.query import Query, Term, columns_of, match_of, parse_query
from tests.search.asking import EXAMPLES, asked_of, queries


def term(*words, joined="", is_prefix=False):
    return Term(words, joined, is_prefix)


DEPLOY = term("deploy", joined="deploy")
FAILED = term("failed", joined="failed")


@pytest.mark.parametrize(
    ("query", "groups", "excluded"),
    [
        ("Deploy  failed", [[DEPLOY], [FAILED]], []),
        ("deploy OR failed", [[DEPLOY, FAILED]], []),
        ("OR deploy OR", [[DEPLOY]], []),
        ("deploy or failed", [[DEPLOY], [term("or", joined="or")], [FAILED]], []),
        ("deploy OR OR !? failed", [[DEPLOY, FAILED]], []),
        ("deploy OR -failed", [[DEPLOY]], [FAILED]),
        ("deploy -failed", [[DEPLOY]], [FAILED]),
        ('deploy -"it failed"', [[DEPLOY]], [term("it", "failed")]),
        ("deploy --failed", [[DEPLOY], [FAILED]], []),
        ("deploy - failed", [[DEPLOY], [FAILED]], []),
        ('"deploy failed', [[term("deploy", "failed")]], []),
        ('"OR"', [[term("or", joined="or")]], []),
        ("depl*", [[term("depl", joined="depl", is_prefix=True)]], []),
        ("alpha*beta", [[term("alpha", "beta")]], []),
        ("store/log.py", [[term("store", "log", "py")]], []),
        ("(parseHttp", [[term("parse", "http", joined="parsehttp")]], []),
        (
            "MemorySet*",
            [[term("memory", "set", joined="memoryset", is_prefix=True)]],
            [],
        ),
        ("東京", [[term("東京")]], []),
        ("京", [[term("京", is_prefix=True)]], []),
        ("東京deploy", [[term("東京", "京", "deploy")]], []),
        ("deploy東京", [[term("deploy", "東京")]], []),
        ("🚀", [[term("🚀")]], []),
        ("x" * 70, [[term("x" * 64, joined="x" * 64)]], []),
    ],
)
def test_words_become_terms(query, groups, excluded):
    assert parse_query(query) == Query(tuple(map(tuple, groups)), tuple(excluded))


@pytest.mark.parametrize(
    ("query", "code", "told"),
    [
        (5, "invalid-argument", "int"),
        ("a" * 2_049, "query-too-long", "2049 > 2048 characters"),
        ("a " * 33, "query-too-long", "33 > 32 terms"),
        ("a " * 30 + "-b " * 3, "query-too-long", "33 > 32 terms"),
        ("a\ud800", "invalid-text", "at character 1"),
        ("-a", "empty-query", "no word"),
        ("__", "empty-query", "no word"),
    ],
)
def test_what_cannot_be_asked_is_refused(query, code, told):
    with pytest.raises(InvalidArgumentError) as caught:
        parse_query(query)

    assert caught.value.code == code
    assert told in caught.value.message


def test_an_expression_names_each_place_of_a_term():
    asked = parse_query("parseHttp store/log depl*")

    assert match_of(asked.terms) == (
        'w : "parse http" OR x : "parsehttp" OR w : "store log"'
        ' OR w : "depl" * OR x : "depl" *'
    )
    assert [*columns_of(asked.terms)] == [1, 2, 1, 1, 2]


@pytest.fixture(scope="module")
def index():
    connection = apsw.Connection(":memory:")
    connection.execute(
        "CREATE VIRTUAL TABLE t USING fts5(s, w, x, content='',"
        " contentless_delete=1, tokenize='ascii')"
    )
    yield connection
    connection.close()


@pytest.mark.requirement("sets-Q1")
@settings(max_examples=EXAMPLES)
@given(queries)
def test_no_query_is_an_error_of_the_database(index, query):
    asked = asked_of(query)
    if isinstance(asked, str):
        assert asked == "empty-query"
        return
    for terms in (asked.terms, asked.excluded or asked.terms):
        match = match_of(terms)
        assert (
            list(index.execute("SELECT rowid FROM t WHERE t MATCH ?", (match,))) == []
        )
