"""Undo and redo of one store: through random writes and back, as often as one likes."""

from random import Random

import pytest

from crdtmem.doc.text_form import view_lines
from crdtmem.errors import HistoryError
from tests.conftest import PROFILE
from tests.histories import markers_in, mutated, random_view
from tests.sites import LANES, site_pool

WALKS = {"default": 60, "campaign": 3_000}[PROFILE]

TEXTS = (
    "a", "b é", "漢字 x", "🎉", "\r", "x\r\ny", "\n", "\n\n", " ", "q\n", "\nq",
    "foo bar", "a\x00b", "e\u0301", "\u2028", "\u0085",
)  # fmt: skip


@pytest.fixture(scope="module")
def site():
    with site_pool(1) as sites:
        yield sites[0]


class Walker:
    """One slot, and the ids of its writes with the text before and after each."""

    def __init__(self, site, random, lane=LANES[0]):
        site.clear(random)
        self.site = site
        self.random = random
        self.memory = site.handles[lane]
        self.memory.configure(history_keep=1_000)
        self.memory.create("s", random_view(random))
        self.slot = self.memory.slot("s")
        self.writes: list[tuple[str, str, str]] = []

    @property
    def file(self):
        return self.site.file("s")

    def write(self):
        """Do a random write; one that changes nothing is none."""
        before = self.file
        kinds = ["append", "append", "replace", "rewrite", "edit", "insert", "restore"]
        result = getattr(self, f"_{self.random.choice(kinds)}")()
        if self.file != before:
            self.writes.append((result.history_id, before, self.file))

    def _append(self):
        return self.slot.append(self.random.choice(TEXTS))

    def _replace(self):
        lines = view_lines(mutated(self.random, self.slot.read().content))
        if self.random.random() < 0.3:
            self.random.shuffle(lines)
        return self.slot.replace("\n".join(lines))

    def _rewrite(self):
        return self.slot.replace(random_view(self.random))

    def _edit(self):
        view = self.slot.read().content
        if not view:
            return self._append()
        start = self.random.randrange(len(view))
        old = view[start : start + self.random.randint(1, 3)]
        return self.slot.edit(old, self.random.choice(TEXTS), occurrence=1)

    def _insert(self):
        view = self.slot.read()
        line = self.random.randint(0, len(view_lines(view.content)))
        text = self.random.choice(TEXTS)
        return self.slot.insert(line, text, expected_rev=view.rev)

    def _restore(self):
        page = self.slot.history(5)
        if not page.entries:
            return self._append()
        entry = self.random.choice(page.entries)
        return self.slot.restore(entry.id, expected_rev=page.current.rev)


@pytest.fixture
def walker(site):
    return Walker(site, Random(0))


@pytest.mark.requirement("P4")
@pytest.mark.parametrize("first", range(0, WALKS, 10))
def test_writes_undone_newest_first_lead_through_all_earlier_texts_and_back(
    site, first
):
    for seed in range(first, first + 10):
        walker = Walker(site, random := Random(seed))
        for _ in range(random.randint(1, 12)):
            walker.write()
            if random.random() < 0.05:
                site.reopen()
                walker.memory = site.handles[LANES[0]]
                walker.slot = walker.memory.slot("s")
        for _ in range(random.randint(1, 3)):
            depth = random.randint(0, len(walker.writes))
            walked = walker.writes[len(walker.writes) - depth :]
            undos = []
            for entry_id, before, _ in reversed(walked):
                undos.append(walker.slot.undo(entry_id).history_id)
                assert walker.file == before, (seed, entry_id)
            for (_, _, after), undo_id in zip(walked, reversed(undos), strict=True):
                walker.slot.undo(undo_id)
                assert walker.file == after, (seed, undo_id)


@pytest.mark.requirement("P4")
def test_undo_without_an_id_walks_back_to_the_first_text(site):
    for seed in range(WALKS // 4):
        walker = Walker(site, Random(seed))
        first = walker.file
        for _ in range(6):
            walker.write()
        for _, before, _ in reversed(walker.writes):
            walker.slot.undo()
            assert walker.file == before, seed

        with pytest.raises(HistoryError) as refusal:
            walker.slot.undo()
        assert refusal.value.code == "nothing-to-undo"
        assert walker.file == first


@pytest.mark.requirement("P4")
def test_an_undo_by_id_keeps_all_that_others_appended_later(site):
    for seed in range(WALKS):
        walker = Walker(site, random := Random(seed))
        other = site.handles[LANES[1]].slot("s")
        for _ in range(random.randint(1, 4)):
            walker.write()
        appended = []
        for number in range(random.randint(1, 5)):
            appended.append(f"§{number}é§")
            other.append(random.choice(["{}", "{}\n", "\n{}"]).format(appended[-1]))
            if random.random() < 0.3:
                walker.write()
        keeps_them = {
            entry_id
            for entry_id, before, after in walker.writes
            if markers_in(before) == markers_in(after)
        }
        stand = [line for line in view_lines(walker.file) if "§" in line]
        for entry_id, _, _ in random.sample(walker.writes, len(walker.writes)):
            if entry_id in keeps_them:
                undo = walker.slot.undo(entry_id)
                now = [line for line in view_lines(undo.content) if "§" in line]
                assert sorted(now) == sorted(stand), (seed, entry_id)


@pytest.mark.requirement("P4")
def test_one_write_undone_and_redone_many_times_gives_the_same_two_texts(walker):
    first = walker.slot.append("a\nb é")
    walker.slot.append("c")
    with_it, without = walker.file, walker.file.replace("a\nb é\n", "")
    for _ in range(5):
        undo = walker.slot.undo(first.history_id)
        assert walker.file == without
        walker.slot.undo(undo.history_id)
        assert walker.file == with_it


def test_a_write_that_was_undone_is_not_undone_again(walker):
    written = walker.slot.append("a")
    undo = walker.slot.undo(written.history_id)
    before = walker.site.row("s")

    with pytest.raises(HistoryError) as refusal:
        walker.slot.undo(written.history_id)

    assert refusal.value.code == "already-undone"
    assert refusal.value.details == {"undoneBy": undo.history_id}
    assert walker.site.row("s") == before


def test_an_undo_with_nothing_left_to_take_back_marks_the_write_all_the_same(walker):
    walker.slot.replace("")
    written = walker.slot.append("a")
    walker.slot.replace("")
    rev = walker.site.row("s").rev

    undo = walker.slot.undo(written.history_id)

    assert (undo.changed, undo.content, undo.rev) == (False, "", rev)
    with pytest.raises(HistoryError) as refusal:
        walker.slot.undo(written.history_id)
    assert refusal.value.code == "already-undone"


def test_a_write_whose_record_is_squashed_is_restored_and_not_undone(walker):
    walker.slot.replace("a")
    written = walker.slot.append("b")
    walker.site.squash_all("s")
    before = walker.site.row("s")

    with pytest.raises(HistoryError) as refusal:
        walker.slot.undo(written.history_id)

    assert refusal.value.code == "history-not-undoable"
    assert refusal.value.details == {"id": written.history_id, "operation": "append"}
    assert walker.site.row("s") == before
    assert not walker.slot.history().entries[0].undoable
    restored = walker.slot.restore(written.history_id, expected_rev=before.rev)
    assert restored.content == "a"


@pytest.mark.parametrize("content", ["", "a\nb"])
def test_undoing_a_delete_brings_the_slot_back_also_when_it_was_empty(walker, content):
    walker.slot.replace(content)
    deleted = walker.memory.delete("s")

    undo = walker.slot.undo(deleted.history_id)

    assert (undo.changed, undo.rev) == (True, deleted.rev + 1)
    assert walker.slot.read().content == content
    walker.slot.undo(undo.history_id)
    assert walker.file == ""


def test_undo_leaves_text_that_came_after_a_delete(walker):
    walker.slot.replace("a")
    deleted = walker.memory.delete("s")
    walker.memory.create("s", "b")

    undo = walker.slot.undo(deleted.history_id)

    assert undo.content == "a\nb"
