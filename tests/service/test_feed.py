"""Changes since a cursor, and the audit."""

import threading

import pytest

from crdtmem.feed import forget_seen, note_seen
from crdtmem.models import UNSET
from tests.replica import exchange_records


def shown(feed):
    return [(c.label, c.since_rev, c.rev, c.operation) for c in feed.changes]


def test_changes_come_once_a_slot_in_the_order_of_the_newest(memory):
    memory.create("t", "x")
    memory.create("u", "y")
    memory.slot("t").append("1")
    memory.slot("t").append("2")

    feed = memory.changes()

    assert shown(feed) == [("u", 0, 0, "create"), ("t", 0, 2, "append")]
    assert (feed.more, feed.reset, feed.cursor) == (False, False, memory.cursor())
    assert feed.changes[1].to_dict() == {
        "label": "t",
        "scope": "project",
        "rev": 2,
        "sinceRev": 0,
        "size": 5,
        "contentHash": memory.slot("t").read().content_hash,
        "at": memory.slot("t").read().updated_at,
        "operation": "append",
        "lanes": ["a"],
    }


def test_a_cursor_leads_on(memory, other):
    memory.create("t", "x")
    cursor = memory.cursor()

    assert memory.changes(cursor).changes == ()
    other.slot("t").append("1")
    memory.slot("t").append("2")
    feed = memory.changes(cursor)

    assert shown(feed) == [("t", 0, 2, "append")]
    assert feed.changes[0].lanes == ("a", "b")
    assert memory.changes(feed.cursor).changes == ()


def test_deleted_slots_and_settings_are_changes(memory):
    memory.create("t", "x")
    memory.create("u", "x")
    cursor = memory.cursor()
    memory.delete("t")
    memory.slot("u").set_meta(pinned=False)

    changes = memory.changes(cursor).changes

    assert [(c.operation, c.deleted, c.rev) for c in changes] == [
        ("delete", True, 1),
        ("meta", UNSET, 0),
    ]


def test_a_quarantined_slot_says_so(memory):
    memory.create("t", "x")
    with memory.store.writing() as transaction:
        transaction.connection.execute("UPDATE slot SET quarantined = 'why'")

    assert memory.changes().changes[0].quarantined is True


def test_a_page_ends_at_its_limit_and_its_cursor_leads_on(memory, other):
    for label in "tuvw":
        memory.create(label)
    other.create("x")
    memory.create("y", scope="global")

    first = memory.changes(limit=2)
    second = memory.changes(first.cursor, limit=2)
    third = memory.changes(second.cursor, limit=2)

    pages = [first, second, third]
    assert [[c.label for c in p.changes] for p in pages] == [
        ["t", "u"],
        ["v", "w"],
        ["x", "y"],
    ]
    assert [p.more for p in pages] == [True, True, False]


def test_no_more_is_promised_than_there_is(memory, other):
    memory.create("t")
    memory.create("u", scope="global")
    other.create("v")

    assert memory.changes(limit=1, scope="global").more is False
    assert memory.changes(limit=1, exclude_lane="a").more is False
    assert shown(memory.changes(scope="global")) == [("u", 0, 0, "create")]


def test_what_one_lane_alone_changed_can_be_left_out(memory, other):
    memory.create("t")
    memory.create("u")
    cursor = memory.cursor()
    memory.slot("t").append("1")
    memory.slot("u").append("1")
    other.slot("u").append("2")

    assert [c.label for c in memory.changes(cursor, exclude_lane=" a ").changes] == [
        "u"
    ]
    assert [c.label for c in memory.changes(cursor, exclude_lane="b").changes] == [
        "t",
        "u",
    ]


def test_changes_of_another_project_are_not_shown(memory, open_lane):
    open_lane(project="q").create("t")

    assert memory.changes().changes == ()


def test_received_changes_name_their_lanes(memory, open_lane):
    remote = open_lane("z", store="r")
    remote.create("t", "x")
    exchange_records([[memory], [remote]])

    (change,) = memory.changes(exclude_lane="a").changes

    assert (change.operation, change.lanes, change.rev) == ("sync", ("z",), 0)
    assert memory.changes(exclude_lane="z").changes == ()


def test_a_cursor_of_another_store_starts_anew(memory, open_lane):
    memory.create("t")
    foreign = open_lane(store="r").cursor()

    feed = memory.changes(foreign)

    assert (feed.reset, shown(feed)) == (True, [("t", 0, 0, "create")])


def test_a_cursor_ahead_of_the_store_starts_anew(memory):
    memory.create("t")
    head, _, number = memory.cursor().rpartition("-")

    feed = memory.changes(f"{head}-{int(number) + 1}")

    assert (feed.reset, len(feed.changes)) == (True, 1)
    assert memory.changes(feed.cursor).reset is False


@pytest.mark.parametrize(
    "cursor",
    ["", "x", "c1", "c1-", "c1-00-1", "c2-{}-1", "c1-{}-", "c1-{}-x", "c1-{}-٣",
     "c1-{}--1", "c1-{}-" + "9" * 17, 5, b"c1"],
)  # fmt: skip
def test_a_malformed_cursor_is_refused(memory, refusal, cursor):
    if isinstance(cursor, str):
        cursor = cursor.replace("{}", memory.status().replica)

    error = refusal(memory, memory.changes, cursor)

    assert (error.code, error.argument) == ("invalid-cursor", "since")
    assert "since" in error.message


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": 1001}, "limit"),
        ({"limit": None}, "limit"),
        ({"scope": "all"}, "scope"),
        ({"exclude_lane": ""}, "exclude_lane"),
        ({"wait": -1}, "wait"),
        ({"wait": 61}, "wait"),
        ({"wait": None}, "wait"),
    ],
)
def test_malformed_options_are_refused(memory, refusal, options, argument):
    assert refusal(memory, memory.changes, **options).argument == argument


@pytest.mark.parametrize("writer", ["this handle", "another"])
def test_a_wait_ends_with_the_first_change(memory, other, writer):
    """The write comes after the first look has found nothing: the barrier is its own
    cursor, which the waiting thread has read before.
    """
    memory.create("t")
    cursor = memory.cursor()
    barrier = threading.Barrier(2)
    found = []

    def wait():
        barrier.wait()
        found.append(memory.changes(cursor, wait=20))

    thread = threading.Thread(target=wait)
    thread.start()
    barrier.wait()
    (memory if writer == "this handle" else other).slot("t").append("x")
    thread.join()

    assert shown(found[0]) == [("t", 0, 1, "append")]


def test_a_wait_that_looked_before_the_write_sees_it_too(memory):
    memory.create("t")
    cursor = memory.cursor()
    looks = threading.Semaphore(0)
    found = []

    def count(_, statement, __):
        if "data_version" in statement:
            looks.release()
        return True

    with memory.store.reading() as connection:
        connection.exec_trace = count
    thread = threading.Thread(
        target=lambda: found.append(memory.changes(cursor, wait=20))
    )
    thread.start()
    # At the second look the first one has found nothing.
    looks.acquire()
    looks.acquire()
    memory.slot("t").append("x")
    thread.join()

    assert shown(found[0]) == [("t", 0, 1, "append")]


def test_a_wait_without_a_change_ends_empty(memory):
    memory.create("t")

    feed = memory.changes(memory.cursor(), wait=0.01)

    assert (feed.changes, feed.cursor) == ((), memory.cursor())


def test_a_wait_holds_no_lock(memory, other):
    memory.create("t")
    stopped = threading.Event()
    found = []

    def wait():
        found.append(memory.changes(memory.cursor(), wait=20))
        stopped.set()

    thread = threading.Thread(target=wait)
    thread.start()
    while not stopped.is_set():
        other.slot("t").replace(str(other.cursor()))
        memory.slot("t").append("x")
    thread.join()

    assert found[0].changes


def test_changes_are_complete_without_any_audit(memory):
    memory.create("t", "x")
    memory.create("u", "x")
    for _ in range(3):
        memory.slot("t").append("y")
    with memory.store.writing() as transaction:
        transaction.connection.execute("DELETE FROM audit")

    changes = memory.changes(exclude_lane="a").changes

    assert [(c.label, c.since_rev, c.lanes) for c in changes] == [
        ("u", 0, ("a",)),
        ("t", 0, ("a",)),
    ]


# -- audit


def test_the_audit_names_every_change_and_no_text(memory, other):
    memory.create("t", "text")
    memory.slot("t").append("more")
    memory.slot("t").replace("less")
    memory.slot("t").edit("less", "else")
    memory.slot("t").insert(0, "top")
    other.slot("t").set_meta(pinned=False)
    memory.slot("t").undo()
    memory.delete("t")

    rows = memory.audit()

    assert [
        (r.operation, r.lane, r.rev, r.size_before, r.size_after) for r in rows
    ] == [
        ("delete", "a", 6, 4, 0),
        ("undo", "a", 5, 8, 4),
        ("meta", "b", 4, 8, 8),
        ("insert", "a", 4, 4, 8),
        ("edit", "a", 3, 4, 4),
        ("replace", "a", 2, 9, 4),
        ("append", "a", 1, 4, 9),
        ("create", "a", 0, 0, 4),
    ]
    assert [r.details for r in rows[3:7]] == [
        {},
        {},
        {"before": 9, "after": 4},
        {"added": 4},
    ]
    assert {r.replica for r in rows} == {memory.status().replica}
    assert "less" not in str([r.to_dict() for r in rows])


def test_the_audit_can_be_narrowed(memory, other, open_lane):
    memory.create("t")
    memory.create("t", scope="global")
    other.create("u")
    open_lane(project="q").create("t")

    def shown(**options):
        return [(r.label, r.scope, r.lane) for r in memory.audit(**options)]

    assert shown() == [
        ("u", "project", "b"),
        ("t", "global", "a"),
        ("t", "project", "a"),
    ]
    assert shown(label="t") == [("t", "global", "a"), ("t", "project", "a")]
    assert shown(scope="global") == [("t", "global", "a")]
    assert shown(lane="b") == [("u", "project", "b")]
    assert shown(label="absent") == []


def test_the_audit_has_pages(memory):
    memory.create("t")
    memory.create("u")
    for _ in range(4):
        memory.slot("t").append("x")

    newest = memory.audit(limit=2)
    older = memory.audit(before=newest[-1].id)

    assert [r.operation for r in newest] == ["append", "append"]
    assert [r.operation for r in older] == ["append", "append", "create", "create"]
    assert len(memory.audit(limit=3)) == 3


def test_a_seldom_change_is_found_behind_many_others(memory):
    memory.create("seldom")
    memory.create("often")
    with memory.store.writing() as transaction:
        transaction.connection.execute(
            "WITH RECURSIVE more(lsn) AS (SELECT 100 UNION ALL SELECT lsn + 1 FROM more"
            " WHERE lsn < 1300) INSERT INTO audit SELECT more.lsn, doc, at_ms, replica,"
            " lanes, operation, rev_before, rev, size_before, size, details"
            " FROM more, audit WHERE doc = (SELECT max(doc) FROM audit)"
        )

    assert [r.label for r in memory.audit(label="seldom")] == ["seldom"]
    assert len(memory.audit(label="often", limit=1000)) == 1000


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"label": "BAD"}, "label"),
        ({"scope": "all"}, "scope"),
        ({"lane": ""}, "lane"),
        ({"before": 0}, "before"),
        ({"before": "1"}, "before"),
        ({"limit": 0}, "limit"),
        ({"limit": 1001}, "limit"),
    ],
)
def test_a_malformed_audit_is_refused(memory, refusal, options, argument):
    assert refusal(memory, memory.audit, **options).argument == argument


def test_what_was_shown_is_noted_at_the_rev_that_was_shown(memory, other, open_lane):
    memory.create("t", "x")
    memory.create("u", "y")
    shown = memory.context().slots
    other.slot("t").append("1")

    note_seen(memory.store, "c", memory.project, shown)
    note_seen(memory.store, "c", memory.project, [])

    unread = open_lane("c").unread()
    assert [(c.label, c.since_rev, c.rev) for c in unread] == [("t", 0, 1)]


def test_a_lane_that_has_forgotten_has_seen_nothing(memory, other, open_lane):
    memory.create("t", "x")
    note_seen(memory.store, "c", memory.project, memory.context().slots)
    note_seen(memory.store, "d", memory.project, memory.context().slots)
    other.slot("t").append("1")

    forget_seen(memory.store, "c")

    assert open_lane("c").unread() == []
    assert [change.label for change in open_lane("d").unread()] == ["t"]
