"""Editing: what editors type, its way into the slot, and the slot's way to them."""

import itertools
from random import Random

import apsw
import pytest

from crdtmem.errors import (
    SlotNotFoundError,
    SlotQuarantinedError,
)
from crdtmem.gateway import Accepted, Offer
from crdtmem.protocol.codec import write_str, write_uint
from tests.conftest import PROFILE
from tests.serve.editing import Editor, changed_text, settled

ROUNDS = {"default": 2, "campaign": 200}[PROFILE]


@pytest.fixture
def editing(memory):
    memory.create("plan", "one\ntwo")
    return memory.editing("plan", "project")


def rows(memory, statement):
    with memory.store.reading() as connection:
        return connection.execute(statement).fetchall()


def history(memory):
    return memory.slot("plan").history().entries


def test_what_was_typed_is_in_the_slot_after_a_fold_only(memory, editing):
    ana = Editor(editing)
    ana.type("three é😀")
    assert ana.send() == Accepted(1, "")
    assert changed_text(memory) == "one\ntwo"

    found = editing.fold()

    assert (found.rev, found.folded, found.merged, found.blocked) == (1, 1, False, None)
    assert changed_text(memory) == "one\ntwo\nthree é😀"
    ana.catch_up()
    assert str(ana) == "one\ntwo\nthree é😀\n"
    assert [(e.operation, e.lane) for e in history(memory)] == [("edit", "yjs:ana")]
    assert editing.fold().folded == 0


def test_a_repeated_update_makes_no_row(editing):
    ana = Editor(editing)
    ana.type("x")
    update = ana.offer().update

    found = editing.accept([Offer("yjs:ana", u) for u in (update, update, b"\0\0")])

    assert found == [Accepted(1, ""), Accepted(1, "known"), Accepted(1, "known")]
    assert len(editing.since(0)) == 1


def test_what_others_write_follows_at_once_if_nothing_is_unfolded(memory, editing):
    ana = Editor(editing)
    memory.slot("plan").append("lane")
    assert editing.follow().rev == 1
    ana.catch_up()
    assert str(ana) == "one\ntwo\nlane\n"

    ana.type("typed")
    ana.send()
    memory.slot("plan").append("lane 2")
    before = editing.look()
    assert editing.follow().n == before.n


def test_a_fold_keeps_what_others_wrote_meanwhile(memory, editing):
    ana = Editor(editing)
    ana.type("typed")
    ana.send()
    memory.slot("plan").append("lane")

    found = settled(editing, ana)

    assert found.merged
    assert changed_text(memory) == "one\ntwo\ntyped\nlane"
    assert str(ana) == "one\ntwo\ntyped\nlane\n"


@pytest.mark.requirement("serve-18")
def test_a_fold_knows_what_was_written_long_ago_and_squashed_since(
    memory, editing, monkeypatch
):
    monkeypatch.setattr("crdtmem.store.write.SQUASH_SLACK_RECORDS", 0)
    ana = Editor(editing)
    ana.type("typed")
    ana.delete(0, 4)
    ana.send()
    lines = [f"lane {number}" for number in range(30)]
    for line in lines:
        memory.slot("plan").append(line)
    (kept,) = rows(memory, "SELECT count(*) FROM log WHERE operation = 'append'")[0]
    assert kept < len(lines)

    settled(editing, ana)

    assert changed_text(memory).split("\n") == ["two", "typed", *lines]


@pytest.mark.requirement("serve-22")
def test_each_lane_gets_its_own_lines_and_one_fold_is_one_rev(memory, editing):
    ana, ben = Editor(editing), Editor(editing, 80_000, "yjs:ben")
    for each, words in [(ana, "from ana\n"), (ben, "from ben\n"), (ana, "ana again\n")]:
        each.catch_up()
        each.type(words)
        each.send()
    memory.slot("plan").append("lane")

    settled(editing, ana, ben)

    lines = {line.text: line.lane for line in memory.slot("plan").blame()}
    assert lines["from ana"] == lines["ana again"] == "yjs:ana"
    assert (lines["from ben"], lines["lane"]) == ("yjs:ben", "a")
    newest = history(memory)[0]
    assert (newest.operation, newest.lane) == ("sync", "yjs:ana, yjs:ben")
    assert memory.slot("plan").read().rev == 2


@pytest.mark.requirement("serve-22")
def test_a_fold_is_undone_as_a_whole_and_editors_see_it(memory, editing):
    ana, ben = Editor(editing), Editor(editing, 80_000, "yjs:ben")
    ana.type("ana\n")
    ana.send()
    ben.catch_up()
    ben.type("ben\n")
    settled(editing, ana, ben)

    memory.slot("plan").undo(history(memory)[0].id)
    editing.follow()
    ana.catch_up()

    assert changed_text(memory) == "one\ntwo"
    assert str(ana) == "one\ntwo\n"


def test_more_turns_than_a_fold_has_writes_are_one_fold_all_the_same(
    memory, editing, monkeypatch
):
    monkeypatch.setattr("crdtmem.gateway.FOLD_RUNS_MAX", 4)
    for number in range(7):
        each = Editor(editing, 70_000 + number, f"yjs:{number}")
        each.type(f"{number}\n", 0)
        each.send()

    assert editing.fold().folded == 7
    assert len(changed_text(memory).split("\n")) == 9


def test_typing_and_taking_it_back_writes_nothing(memory, editing):
    ana = Editor(editing)
    ana.type("x")
    ana.send()
    ana.delete(8, 9)
    ana.send()

    assert editing.fold().folded == 2
    assert (memory.slot("plan").read().rev, editing.look().unfolded) == (0, 0)


def test_the_slot_of_a_template_is_made_by_the_first_fold(memory):
    editing = memory.editing("persona", "global")
    ana = Editor(editing)
    assert editing.follow().n == 0
    ana.type("calm")
    ana.send()

    settled(editing, ana)

    assert memory.slot("persona", "global").read().content == "calm"
    memory.slot("persona", "global").append("kind")
    ana.type("brave")
    settled(editing, ana)
    assert sorted(str(ana).splitlines()) == ["brave", "calm", "kind"]


def test_a_template_written_meanwhile_is_merged_with(memory):
    editing = memory.editing("persona", "global")
    ana = Editor(editing)
    ana.type("calm")
    ana.send()
    memory.slot("persona", "global").append("kind")

    settled(editing, ana)

    assert sorted(str(ana).splitlines()) == ["calm", "kind"]


def test_a_slot_that_is_not_there_has_no_editors(memory, refusal):
    error = refusal(memory, memory.editing, "nothing", "project")
    assert isinstance(error, SlotNotFoundError)


def test_a_deleted_slot_is_revived_by_what_was_typed(memory, editing):
    ana = Editor(editing)
    ana.type("typed")
    ana.send()
    memory.delete("plan")
    assert editing.look().slot is None
    assert memory.editing("plan", "project").incarnation == editing.incarnation

    settled(editing, ana)

    assert changed_text(memory) == "typed"
    memory.delete("plan")
    assert editing.follow().n == editing.look().n
    editing.fold()
    with pytest.raises(SlotNotFoundError):
        memory.editing("plan", "project")


@pytest.mark.requirement("serve-23")
def test_text_over_the_limit_waits_and_is_folded_when_it_fits(memory, editing):
    memory.slot("plan").set_meta(size_limit=10)
    ana = Editor(editing)
    ana.type("more than ten\n")
    assert ana.send().code == ""

    for _ in range(2):
        assert editing.fold().blocked == "size-limit-exceeded"
    memory.slot("plan").append("x")
    assert editing.fold().blocked == "size-limit-exceeded"
    assert editing.look().blocked == "size-limit-exceeded"

    memory.slot("plan").set_meta(size_limit=100)
    ana.type("z\n")
    ana.send()
    assert editing.look().blocked == ""
    assert editing.fold().blocked is None
    assert changed_text(memory) == "one\ntwo\nmore than ten\nz\nx"


@pytest.mark.requirement("serve-23")
def test_text_far_over_the_limit_is_not_taken_at_all(memory, editing):
    memory.slot("plan").set_meta(size_limit=10)
    ana, ben = Editor(editing), Editor(editing, 80_000)
    ana.type("x" * 65_600)

    assert ana.send() == Accepted(None, "size-limit-exceeded")
    ben.type("ben")
    assert ben.send() == Accepted(1, "")
    memory.slot("plan").set_meta(size_limit=20)
    assert editing.look().n == 1


def test_a_text_over_the_bound_may_shrink(memory, editing):
    memory.slot("plan").set_meta(size_limit=50_000)
    ana = Editor(editing)
    ana.type("x" * 150_000)
    assert ana.send().code == ""
    memory.slot("plan").set_meta(size_limit=10)

    ana.delete(10, 100)

    assert ana.send().code == ""


@pytest.mark.requirement("serve-23")
@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"read_only": True}, "slot-read-only"),
        ({"append_only": True}, "slot-append-only"),
    ],
)
def test_a_slot_that_may_not_be_written_takes_and_folds_nothing(
    memory, editing, settings, code
):
    ana, ben = Editor(editing), Editor(editing, 80_000)
    ana.type("before\n")
    ana.send()
    memory.slot("plan").set_meta(**settings)
    ben.type("after\n")

    assert ben.send() == Accepted(None, code)
    assert editing.fold().blocked == code
    memory.slot("plan").set_meta(**dict.fromkeys(settings, False))
    settled(editing, ana, ben)
    assert sorted(changed_text(memory).split("\n")) == ["after", "before", "one", "two"]


def test_who_may_not_write_is_looked_at_and_not_taken(editing):
    ana = Editor(editing)
    ana.type("x")
    assert ana.send(may_write=False) == Accepted(None, "permission-denied")


@pytest.mark.requirement("serve-21")
def test_a_hostile_update_changes_neither_document(memory, editing):
    for update, code in [
        (b"\xff", "update-malformed"),
        (bytes.fromhex("0101070004010763 6f6e74656e74017800".replace(" ", "")),
         "update-client"),
        # Two that hang on each other.
        (circle(), "update-malformed"),
    ]:  # fmt: skip
        assert editing.accept([Offer("yjs:x", update)]) == [Accepted(None, code)]
    ana = Editor(editing)
    ana.type("x")
    settled(editing, ana)
    assert changed_text(memory) == "one\ntwo\nx"


@pytest.mark.requirement("serve-21")
def test_more_clients_than_a_document_can_count_are_refused(
    memory, editing, monkeypatch
):
    monkeypatch.setattr("crdtmem.updates.scanner.STATE_CLIENTS_MAX", 3)
    ana, ben = Editor(editing), Editor(editing, 80_000)
    ana.type("ana\n")
    assert ana.send().code == ""
    ben.type("ben\n")
    update = ben.doc.get_update()

    found = editing.accept([Offer("yjs:ben", update), ana.offer()])

    assert found == [Accepted(None, "update-malformed"), Accepted(1, "known")]
    settled(editing, ana)
    assert changed_text(memory) == "one\ntwo\nana"


def circle():
    found = b"".join(map(write_uint, (2, 1, 80_001, 0))) + b"\x84"
    found += write_uint(80_000) + b"\0" + write_str("x")
    found += b"".join(map(write_uint, (1, 80_000, 0))) + b"\x84"
    return found + write_uint(80_001) + b"\0" + write_str("y") + b"\0"


def test_a_damaged_slot_takes_no_fold_and_what_was_typed_stays(memory, editing):
    ana = Editor(editing)
    ana.type("typed")
    ana.send()
    memory.store.docs.clear()
    damage(memory, "UPDATE log SET digest = x'00'")

    assert editing.fold().blocked == "slot-quarantined"
    assert editing.fold().blocked == "slot-quarantined"
    assert editing.look().unfolded == 1
    with pytest.raises(SlotQuarantinedError):
        memory.editing("plan", "project")


def damage(memory, statement):
    connection = apsw.Connection(str(memory.path))
    connection.execute(statement)
    connection.close()


def test_a_busy_store_blocks_a_fold_and_loses_nothing(memory, open_lane, editing):
    ana = Editor(editing)
    ana.type("x")
    ana.send()
    other = open_lane("b", busy_timeout=0.01)
    waiting = other.editing("plan", "project")
    with memory.store.writing():
        assert waiting.fold().blocked == "store-busy"
    assert waiting.fold().blocked is None


def test_rows_are_squashed_and_who_is_behind_asks_for_a_diff(
    memory, editing, monkeypatch
):
    monkeypatch.setattr("crdtmem.store.editors.EDITOR_LOG_ROWS", 9)
    ana, ben = Editor(editing), Editor(editing, 80_000)
    for _ in range(9):
        ana.type("x")
        editing.accept([ana.offer()])
    settled(editing, ana)

    assert editing.since(5) is None
    assert editing.since(editing.look().n) == []
    ben.catch_up()
    assert str(ben) == str(ana)
    fresh = Editor(memory.editing("plan", "project"), 90_000)
    assert str(fresh) == str(ana)


@pytest.mark.requirement("serve-18")
def test_whatever_editors_and_lanes_do_everything_settles_to_one_text(
    memory, open_lane, seeds
):
    for seed in itertools.chain(seeds, range(1000, 1000 + ROUNDS)):
        random = Random(seed)
        label = f"plan{seed}"
        memory.create(label, "one\ntwo")
        editings = [memory.editing(label, "project")]
        editings.append(open_lane("b").editing(label, "project"))
        editors = [
            Editor(random.choice(editings), 70_000 + each, f"yjs:{each}")
            for each in range(3)
        ]
        lines = []
        for step in range(25):
            each = random.choice(editors)
            match random.randint(0, 5):
                case 0 | 1:
                    each.do(random)
                case 2:
                    assert each.send().code in ("", "known")
                case 3:
                    each.catch_up()
                case 4:
                    lines.append(f"lane {step}")
                    memory.slot(label).append(lines[-1])
                    each.editing.follow()
                case _:
                    assert each.editing.fold().blocked is None
        for _ in range(2):
            settled(editings[0], *editors)
        file = memory.slot(label).read().content + "\n"
        assert {str(each) for each in editors} <= {file, file.removesuffix("\n")}
        assert "\ufffd" not in file


@pytest.mark.requirement("serve-17")
def test_appends_stay_whole_beside_typing_at_the_end(memory, seeds):
    for seed in itertools.chain(seeds, range(1000, 1000 + ROUNDS)):
        random = Random(seed)
        label = f"plan{seed}"
        memory.create(label, "one\ntwo")
        editing = memory.editing(label, "project")
        ana = Editor(editing)
        lines: list[str] = []
        for _ in range(2):
            ana.type(random.choice(["typed", "x\ny", "é"]))
            if random.random() < 0.5:
                ana.send()
            for _ in range(2):
                lines.append(f"lane {len(lines)}")
                memory.slot(label).append(lines[-1])
                random.choice([editing.follow, editing.fold, lambda: None])()
            if random.random() < 0.5:
                ana.catch_up()
        settled(editing, ana)
        settled(editing, ana)
        found = memory.slot(label).read().content.split("\n")
        assert [line for line in found if line.startswith("lane")] == lines
        assert str(ana).removesuffix("\n").split("\n") == found


@pytest.mark.parametrize(
    "statement", ["UPDATE pin SET digest = x'00'", "DELETE FROM pin"]
)
def test_without_its_pin_a_fold_compares_the_texts(memory, editing, statement):
    ana = Editor(editing)
    ana.type("typed")
    ana.send()
    memory.slot("plan").append("lane")
    damage(memory, statement)

    settled(editing, ana)

    assert sorted(changed_text(memory).split("\n")) == ["lane", "one", "two", "typed"]


@pytest.mark.requirement("serve-21")
def test_half_a_character_deleted_leaves_both_documents_sound(memory, editing):
    ana = Editor(editing)
    ana.type("😀z")
    ana.send()

    for clock in (0, 1):
        half = b"\0" + b"".join(map(write_uint, (1, 70_000, 1, clock, 1)))
        assert editing.accept([Offer("yjs:x", half)])[0].code == "update-half"

    settled(editing, ana)
    assert changed_text(memory) == "one\ntwo\n😀z"
