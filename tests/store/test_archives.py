"""crdtmem.store.archives"""

import hashlib

import pytest

from crdtmem.limits import UNREFERRED_ARCHIVE_MS
from crdtmem.store.archives import (
    ArchivePart,
    archive_digest,
    drop_old_archives,
    read_archive,
    save_archive,
)
from crdtmem.store.passes import add_pass, end_pass
from tests.store.passes import ONE, TWO, row_of
from tests.store.writes import append

PARTS = [
    ArchivePart("condensed", "## Condensed history", "## Condensed history\nold\n"),
    ArchivePart("evicted", "## b", "## b\n日本\n"),
    ArchivePart("evicted", "", "loose\n"),
]
OTHER = [ArchivePart("evicted", "## b", "## b\nother\n")]
LATER_MS = UNREFERRED_ARCHIVE_MS + 9


@pytest.fixture
def doc(store):
    return append(store, "plan", "text").doc


@pytest.fixture
def connection(store, doc):
    with store.writing() as transaction:
        yield transaction.connection


def test_parts_are_kept_in_their_order_and_once(connection, doc):
    first = save_archive(connection, doc, PARTS, 1)
    second = save_archive(connection, doc, PARTS, 2)

    assert first == second == archive_digest(PARTS)
    assert read_archive(connection, doc, first) == PARTS
    assert read_archive(connection, doc + 1, first) == []
    assert connection.execute("SELECT count(*) FROM condense_archive").get == 3


def test_the_digest_is_that_of_the_text_alone():
    text = "".join(part.text for part in PARTS)

    assert archive_digest(PARTS) == hashlib.sha256(text.encode()).digest()


def failed(connection, doc, pass_id, parts, ended_ms, state="aborted"):
    archive = save_archive(connection, doc, parts, 1)
    add_pass(connection, row_of(doc, pass_id, archive=archive))
    end_pass(connection, row_of(doc, pass_id, state=state, ended_ms=ended_ms))
    return archive


@pytest.mark.parametrize("state", ["aborted", "expired"])
def test_what_only_old_failures_refer_to_goes(connection, doc, state):
    old = failed(connection, doc, ONE, PARTS, 5, state)
    new = failed(connection, doc, TWO, OTHER, 50, state)
    drop_old_archives(connection, LATER_MS)

    assert read_archive(connection, doc, old) == []
    assert read_archive(connection, doc, new) == OTHER


@pytest.mark.parametrize("state", ["committed", "undone", "open"])
def test_what_another_pass_refers_to_stays(connection, doc, state):
    archive = failed(connection, doc, ONE, PARTS, 5)
    add_pass(connection, row_of(doc, TWO, archive=archive, state=state, ended_ms=5))
    drop_old_archives(connection, LATER_MS)

    assert read_archive(connection, doc, archive) == PARTS


def test_the_oldest_go_where_there_is_a_bound(connection, doc):
    old = save_archive(connection, doc, PARTS, 1)
    new = save_archive(connection, doc, OTHER, 2)
    size = len(OTHER[0].text.encode())
    drop_old_archives(connection, 3, size)
    assert read_archive(connection, doc, old) == []
    assert read_archive(connection, doc, new) == OTHER

    add_pass(connection, row_of(doc, archive=new))
    drop_old_archives(connection, 3, 0)
    assert read_archive(connection, doc, new) == OTHER
    end_pass(connection, row_of(doc, state="committed"))
    drop_old_archives(connection, 3, 0)
    assert read_archive(connection, doc, new) == []
