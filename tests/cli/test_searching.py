"""``crdtmem search``."""

from contextlib import closing

import apsw
import pytest

from crdtmem.search.values import SearchResult
from tests.cli.contract import validated


@pytest.fixture
def written(run):
    """Run commands on two slots."""
    run("create", "plan", "the deploy failed\non staging")
    run("create", "notes", "deploy again")
    return run


def test_a_search_shows_where_words_are_and_what_is_around_them(written):
    shown = written("search", "deploy", "failed")

    head, *lines = shown.out.splitlines()
    assert head.startswith("plan:1  project, 2")
    assert head.endswith(", by tester")
    assert lines[:2] == ["  the deploy failed", "  on staging"]
    assert lines[2].startswith("notes:1  project, ")
    assert lines[2].endswith(", by tester, some of the words")
    assert (shown.status, shown.err) == (0, "")


@pytest.mark.requirement("surfaces-2")
def test_a_search_is_told_as_json(written):
    found = written("search", "deploy", "-failed", "--json", "--mode", "all")

    hits = validated(SearchResult, found.out)["hits"]
    assert [hit["label"] for hit in hits] == ["notes"]


def test_a_search_tells_that_there_is_more_or_nothing(written):
    newest = written("search", "deploy", "--limit", "1", "--sort", "recent")
    nothing = written("search", "absent")

    assert newest.out.startswith("notes:1  ")
    assert "there is more" in newest.err
    assert (nothing.out, nothing.err.strip()) == ("", "nothing found")


def test_the_past_of_a_slot_is_searched_by_its_label(written):
    written("append", "plan", "x " * 200)
    past = written("search", "staging", "--kind", "history", "--label", "plan")
    cut = written("search", "x", "--label", "plan")

    assert past.out.startswith("plan:2  project, ")
    assert cut.out.splitlines()[1].startswith("  …x x")
    assert written("search", "x", "--kind", "archive").status == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["!?"], "no word that is to be found"),
        (["x", "--limit", "101"], "between 1 and 100, not 101"),
        (["x", "--mode", "some"], "some"),
        ([], "QUERY"),
    ],
)
def test_what_cannot_be_searched_is_told(written, words, told):
    result = written("search", *words)

    assert (result.status, result.out) == (2, "")
    assert told in result.err


def test_a_damaged_index_is_told_beside_what_was_found(written, home):
    with closing(apsw.Connection(str(home / "store.sqlite"))) as connection:
        connection.execute("DELETE FROM search_index_data")
    result = written("search", "deploy")

    assert len(result.out.splitlines()) == 5
    assert "crdtmem doctor --repair" in result.err
