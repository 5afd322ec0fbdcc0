import shutil
import threading

import pytest

from crdtmem.models import UNSET
from tests.replica import exchange_records


def unseen_of(slot):
    unseen = slot.read().unseen
    return (
        unseen if unseen is UNSET else (unseen.since_rev, unseen.commits, unseen.lanes)
    )


def test_the_first_contact_reports_nothing(memory, other):
    other.create("t", "theirs")
    other.slot("t").append("more")

    assert memory.unread() == []
    assert unseen_of(memory.slot("t")) is UNSET


def test_what_others_wrote_is_reported_once(memory, other):
    memory.create("t", "mine")
    other.slot("t").append("1")
    other.slot("t").append("2")

    unread = memory.unread()

    assert [(c.label, c.since_rev, c.rev, c.lanes) for c in unread] == [
        ("t", 0, 2, ("b",))
    ]
    assert memory.unread() == unread
    assert unseen_of(memory.slot("t")) == (0, 2, ("b",))
    assert unseen_of(memory.slot("t")) is UNSET
    assert memory.unread() == []


def test_own_writes_are_not_unseen_also_from_another_process(memory, open_lane):
    memory.create("t", "x")
    open_lane("a").slot("t").append("y")

    assert memory.unread() == []
    assert unseen_of(memory.slot("t")) is UNSET


def test_meta_changes_are_nothing_to_see(memory, other):
    memory.create("t", "x")
    other.slot("t").set_meta(pinned=False)

    assert memory.unread() == []
    assert unseen_of(memory.slot("t")) is UNSET


def test_own_writes_carry_it_until_the_next_read(memory, other):
    memory.create("t", "x")
    other.slot("t").append("theirs")

    results = [
        memory.slot("t").append("y"),
        memory.slot("t").replace("x\ntheirs\ny"),
        memory.slot("t").set_meta(pinned=False),
    ]
    shown = [(r.unseen.since_rev, r.unseen.lanes) for r in results]

    assert shown == [(0, ("b",))] * 3
    assert results[1].changed is False
    assert unseen_of(memory.slot("t")) == (0, 1, ("b",))
    assert memory.slot("t").append("z").unseen is UNSET


def test_a_write_on_what_was_seen_counts_as_seen(memory, other):
    memory.create("t", "x")
    other.slot("t").append("1")
    memory.slot("t").read()
    memory.slot("t").append("2")

    assert unseen_of(memory.slot("t")) is UNSET


def test_a_write_on_what_was_not_seen_does_not(memory, other):
    other.create("t", "x")
    memory.slot("t").append("mine")

    assert memory.slot("t").replace("y").overwrote is not UNSET


def test_a_list_with_texts_counts_as_seen_and_one_without_does_not(memory, other):
    memory.create("t", "x")
    other.slot("t").append("1")

    memory.slots(content=False)
    assert len(memory.unread()) == 1
    listed = [view.unseen for view in memory.slots() if view.label == "t"]

    assert [u.commits for u in listed] == [1]
    assert memory.unread() == []


def test_a_kept_text_is_not_the_newest_and_does_not_count(memory, other):
    memory.create("t", "x")
    other.slot("t").append("1")

    memory.slot("t").read(at_rev=0)

    assert len(memory.unread()) == 1


def test_a_context_counts_as_seen_what_it_shows_whole(memory, other):
    memory.create("long", "line\n" * 300)
    memory.create("short", "x")
    for label in ("long", "short"):
        other.slot(label).append("theirs")

    shown = memory.context(200)

    assert {s.label: s.state for s in shown.slots} == {
        "long": "trimmed",
        "short": "full",
    }
    assert [c.label for c in memory.unread()] == ["long"]


def test_what_the_history_no_longer_names_still_counts(memory, other):
    memory.configure(history_keep=2)
    memory.create("t", "x")
    for n in range(5):
        other.slot("t").append(str(n))

    assert unseen_of(memory.slot("t")) == (0, 5, ("b",))

    open_own = memory.slot("t")
    other.slot("t").append("theirs")
    other.close()
    for n in range(4):
        open_own.append(str(n))
    view = open_own.read()
    assert (view.unseen.commits, view.unseen.lanes) == (3, ())
    assert view.unseen.at == view.updated_at


def test_received_commits_name_their_lanes(memory, open_lane):
    remote = open_lane("z", store="r")
    memory.create("t", "x")
    exchange_records([[memory], [remote]])
    remote.slot("t").append("far")
    exchange_records([[memory], [remote]])

    assert unseen_of(memory.slot("t")) == (0, 1, ("z",))


def test_a_deleted_slot_is_unread_until_it_is_marked(memory, other):
    memory.create("t", "x")
    other.delete("t")

    assert [(c.label, c.deleted, c.operation) for c in memory.unread()] == [
        ("t", True, "delete")
    ]
    memory.mark_seen()
    assert memory.unread() == []


def test_slots_of_another_project_are_not_unread(memory, open_lane):
    elsewhere = open_lane("a", project="q")
    elsewhere.create("t", "x")
    elsewhere.close()
    open_lane("b", project="q").slot("t").append("y")

    assert open_lane("a").unread() == []
    assert [c.label for c in open_lane("a", project="q").unread()] == ["t"]


def test_a_slot_that_is_gone_from_the_store_is_not_unread(memory):
    memory.slot("persona").read()

    assert memory.unread() == []


def test_all_can_be_forgotten(memory, other):
    memory.create("t", "x")
    other.slot("t").append("1")

    memory.forget_seen()
    memory.close()

    assert memory.store.is_closed
    assert other.unread() == []


def test_what_was_forgotten_is_forgotten_for_the_next_handle(memory, other, open_lane):
    memory.create("t", "x")
    other.slot("t").append("1")
    memory.forget_seen()
    memory.close()

    again = open_lane("a")

    assert again.unread() == []
    assert unseen_of(again.slot("t")) is UNSET


def test_seen_revs_are_stored_with_the_next_write(memory, other, open_lane):
    memory.create("t", "x")
    other.slot("t").append("1")
    memory.slot("t").read()
    memory.slot("persona").append("any write")

    # The handle is dropped here without a close, as in a crash.
    assert open_lane("a").unread() == []


def test_a_crash_makes_seen_revs_older(memory, other, open_lane):
    memory.create("t", "x")
    other.slot("t").append("1")
    memory.slot("t").read()

    assert [c.since_rev for c in open_lane("a").unread()] == [0]


def test_a_refused_write_stores_no_seen_revs(memory, other, open_lane, refusal):
    memory.create("t", "x")
    other.slot("t").append("1")
    memory.slot("t").read()

    refusal(memory, memory.slot("t").append, "y", expected_rev=0)

    assert [c.since_rev for c in open_lane("a").unread()] == [0]


def test_a_close_stores_them_if_they_changed(memory, other, open_lane):
    memory.create("t", "x")
    other.slot("t").append("1")
    memory.slot("t").read()
    memory.close()

    assert open_lane("a").unread() == []


def test_a_close_waits_for_nobody(memory, other, open_lane, unchanged):
    memory.create("t", "x")
    other.slot("t").append("1")
    memory.slot("t").read()

    with unchanged(memory), other.store.writing():
        memory.close()

    assert memory.store.is_closed
    assert [c.since_rev for c in open_lane("a").unread()] == [0]


def test_a_close_succeeds_also_where_the_store_is_gone(memory, other):
    memory.create("t", "x")
    other.slot("t").append("1")
    memory.slot("t").read()
    shutil.rmtree(memory.path.parent)

    memory.close()
    memory.close()

    assert memory.store.is_closed


def test_a_handle_for_reading_stores_nothing(memory, other, open_lane, unchanged):
    memory.create("t", "x")
    memory.close()
    other.slot("t").append("1")
    reader = open_lane("a", read_only=True)

    with unchanged(other):
        assert unseen_of(reader.slot("t")) == (0, 1, ("b",))
        assert unseen_of(reader.slot("t")) is UNSET
        reader.mark_seen()
        reader.close()

    assert [c.since_rev for c in open_lane("a").unread()] == [0]


@pytest.mark.requirement("P9")
def test_threads_share_a_handle_and_each_append_is_whole(memory):
    memory.create("t", size_limit=100_000)
    barrier = threading.Barrier(8)

    def work(name):
        barrier.wait()
        for n in range(10):
            memory.slot("t").append(f"{name}-{n}")
            memory.slot("t").read()
            memory.unread()

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcdefgh"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    view = memory.slot("t").read()
    lines = view.content.split("\n")
    assert view.rev == 80
    for name in "abcdefgh":
        own = [line for line in lines if line.startswith(name)]
        assert own == [f"{name}-{n}" for n in range(10)]


def test_a_template_hides_no_slot_that_somebody_wrote(memory):
    memory.create("guidance", "written", scope="global")

    listed = [(v.scope, v.template) for v in memory.slots() if v.label == "guidance"]

    assert listed == [("global", UNSET)]
    assert memory.slot("guidance").scope == "global"
    assert [v.template for v in memory.slots("project") if v.label == "guidance"] == [
        True
    ]
    assert "written" in memory.context().text


def test_a_written_project_slot_hides_a_global_one_and_says_so(memory):
    memory.create("t", "G", scope="global")
    memory.create("t", "P")
    memory.create("persona", "mine")

    shown = {view.label: view for view in memory.slots(templates=False)}

    assert (shown["t"].content, shown["t"].shadows) == ("P", True)
    assert shown["persona"].shadows is True
    assert memory.slot("t").read().shadows is True
    assert memory.slot("t").read(at_rev=0).shadows is True
    assert memory.slot("t").set_meta(pinned=False).shadows is True
    assert memory.slot("t", "global").read().shadows is UNSET
    assert [v.shadows for v in memory.slots("global", templates=False)] == [UNSET]
