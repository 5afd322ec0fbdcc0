"""Random histories of a few stores: every verb, in any order, beside every other.

Each step is held against a model of strings at once: what a local write leaves, which
appended lines an undo or a merge may touch, and the rev. When all records have come
everywhere the stores are held against each other.

Every append writes *markers*, lines that no other call writes. One is *untouched* while
no delete, undo or restore has taken it away or brought it back anywhere.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from crdtmem.doc.text_form import file_of, units_of, view_lines, view_of
from crdtmem.errors import CrdtmemError
from crdtmem.store.rows import SlotRow
from crdtmem.textdiff import diff_lines, is_all_crlf
from tests.sites import LANES, Post, Site, Traffic

__all__ = ["LABELS", "History", "markers_in", "mutated", "random_line"]

LABELS = ("s", "t")
WORDS = (
    "foo", "bar", "zz", "é", "漢字", "🎉", "x\r", "a\x00b", "e\u0301", "\u2028", "",
)  # fmt: skip
APPENDS = ("{}", "{}\n", "\n{}", "{}\n{}", "{}\n\n")
MARKER = re.compile(r"§[^§]+§", re.DOTALL)

# Why an undo may be refused that the history offers, and that it does not.
NOT_NOW = {"", "size-limit-exceeded", "slot-read-only", "slot-append-only"}
NEVER = {"already-undone", "history-not-undoable"}

# How often each verb comes, of about a hundred.
WEIGHTS = {
    "marked": 30, "blank": 3, "replace": 10, "merge": 8, "edit": 5, "insert": 4,
    "delete": 3, "create": 6, "set_meta": 3, "undo": 9, "undo_own": 3, "restore": 2,
    "deliver": 14, "compact": 3, "reopen": 1,
}  # fmt: skip


def random_line(random: Random) -> str:
    return " ".join(random.choice(WORDS) for _ in range(random.randint(0, 4)))


def random_view(random: Random) -> str:
    return "\n".join(random_line(random) for _ in range(random.randint(0, 3)))


def markers_in(text: str) -> set[str]:
    return {line for line in text.split("\n") if "§" in line}


def mutated(random: Random, view: str) -> str:
    """Return a view with some lines changed, added or gone; markers are left alone."""
    lines = view_lines(view)
    for _ in range(random.randint(1, 3)):
        places = [i for i, line in enumerate(lines) if "§" not in line]
        kind = random.random()
        if not places or kind < 0.3:
            lines.insert(random.randint(0, len(lines)), random_line(random))
        elif kind < 0.5:
            del lines[random.choice(places)]
        elif kind < 0.8:
            at = random.choice(places)
            words = lines[at].split(" ")
            words[random.randrange(len(words))] = random.choice(WORDS)
            lines[at] = " ".join(words)
        else:
            lines[random.choice(places)] = random_line(random)
    return "\n".join(lines)


def rewritten(old: str, new: str) -> set[str]:
    """Return the markers that a change of a file takes out, maybe to put them back.

    Where lines change places, one of them is deleted and written anew.
    """
    return {
        marker
        for start, end, _ in diff_lines(old, new)
        for marker in markers_in(old[start:end])
    }


def appended(view: str, text: str) -> str:
    """Return the view after an append: a newline only where it is needed."""
    return view + ("\n" if view and not view.endswith("\n") else "") + text


class History:
    """One random history; ``run`` makes it and ``settle`` ends and judges it.

    Attributes:
        trace: What was done, a line a step.
        untouched: The markers that must stand at the end, each with its slot.
        predecessors: For each marker the one that was last in front of it.
        done: How often each verb was done, and refused.
        refusal: The code of the newest write's refusal, if it was refused.

    """

    def __init__(self, sites: Sequence[Site], random: Random) -> None:
        self.random = random
        self.sites = list(sites[: random.choice([2, 2, 3])])
        self.lanes = LANES[: random.choice([2, 2, 2, 3])]
        self.labels = LABELS[: random.choice([1, 1, 1, 2])]
        self.traffic = Traffic(self.sites)
        self.trace: list[str] = []
        self.untouched: dict[str, str] = {}
        self.predecessors: dict[str, str] = {}
        self.authors: dict[str, tuple[str, bytes]] = {}
        self.done: Counter[str] = Counter()
        self.refusal = ""
        self.markers = 0
        for site in self.sites:
            site.clear(random)
        self.texts: dict[tuple[bytes, str], list[str]] = {}

    def run(self, steps: int) -> None:
        """Do a number of random steps."""
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        random = self.random
        site = random.choice(self.sites)
        label = random.choice(self.labels)
        names = list(WEIGHTS)
        row = site.row(label)
        if row is None or row.is_deleted:
            names = ["marked", "create", "create", "deliver", "deliver", "undo"]
            (name,) = random.choices(names)
        else:
            (name,) = random.choices(names, list(WEIGHTS.values()))
        site.tick()
        verb: Callable[[Site, str, str], None] = getattr(self, f"_{name}")
        verb(site, label, random.choice(self.lanes))

    # -- the verbs; those for random steps take where and who

    def append_markers(self, site: Site, label: str, lane: str, form: str) -> list[str]:
        """Append new markers in a form like "{}\\n{}" and return them."""
        markers = [self._marker() for _ in range(form.count("{}"))]
        in_front = [line for line in site.view(label).split("\n") if "§" in line]
        in_front = [line for line in in_front if line in self.untouched]
        if not self._append(site, label, lane, form.format(*markers)):
            return []
        for marker in markers:
            self.untouched[marker] = label
            self.authors[marker] = lane, site.replica
            if in_front:
                self.predecessors[marker] = in_front[-1]
            in_front.append(marker)
        return markers

    def _append(self, site: Site, label: str, lane: str, text: str) -> bool:
        wanted = appended(site.view(label), text)
        return self._write(
            site, label, lane, "append", lambda s: s.append(text), wanted, text
        )

    def _marked(self, site: Site, label: str, lane: str) -> None:
        self.append_markers(site, label, lane, self.random.choice(APPENDS))

    def _blank(self, site: Site, label: str, lane: str) -> None:
        self._append(site, label, lane, self.random.choice(["\n", " ", "\n\n"]))

    def _replace(self, site: Site, label: str, lane: str) -> None:
        before = site.file(label)
        wanted = mutated(self.random, view_of(before))
        if self._write(
            site, label, lane, "replace", lambda s: s.replace(wanted), wanted, wanted
        ):
            self._forget(rewritten(before, file_of(wanted)))

    def _merge(self, site: Site, label: str, lane: str) -> None:
        texts = self.texts[site.replica, label]
        rev = self.random.randint(max(0, len(texts) - 7), len(texts) - 1)
        content = mutated(self.random, view_of(texts[rev]))
        before = markers_in(site.view(label))
        if self._write(
            site, label, lane, "merge",
            lambda s: s.replace(content, base_rev=rev),
            content if rev == len(texts) - 1 else None, (rev, content),
        ):  # fmt: skip
            moved = rewritten(texts[rev], file_of(content))
            self._forget(moved)

            after = markers_in(site.view(label))
            assert before ^ after <= moved, "a merge touched markers"

    def _edit(self, site: Site, label: str, lane: str) -> None:
        view = site.view(label)
        passage = self._passage(view)
        if passage is None:
            return
        start, end = passage
        old, new = view[start:end], random_line(self.random)
        nth = sum(view.startswith(old, i) for i in range(start + 1))
        wanted = view[:start] + new + view[end:]
        self._write(
            site, label, lane, "edit",
            lambda s: s.edit(old, new, occurrence=nth), wanted, (old, new, nth),
        )  # fmt: skip

    def _passage(self, view: str) -> tuple[int, int] | None:
        """Choose a passage that leaves all markers, and their newlines, alone."""
        parts = [m.span() for m in re.finditer(r"(?:^|(?<=\n))[^§\n]+", view)]
        parts = [(a, b) for a, b in parts if view[b : b + 1] in ("", "\n")]
        if not parts:
            return None
        low, high = self.random.choice(parts)
        start = self.random.randrange(low, high)
        return start, self.random.randint(start + 1, high)

    def _insert(self, site: Site, label: str, lane: str) -> None:
        view = site.view(label)
        lines = view_lines(view)
        at = self.random.randint(0, len(lines))
        text = random_line(self.random) or "new"
        added = f"{text}\r" if is_all_crlf(view) else text
        wanted = "\n".join([*lines[:at], added, *lines[at:]])
        rev = len(self.texts[site.replica, label]) - 1
        self._write(
            site, label, lane, "insert",
            lambda s: s.insert(at, text, expected_rev=rev), wanted, (at, text),
        )  # fmt: skip

    def _delete(self, site: Site, label: str, lane: str) -> None:
        self._touch(
            site, label,
            lambda: self._write(
                site, label, lane, "delete",
                lambda _: site.handles[lane].delete(label), "",
            ),
        )  # fmt: skip

    def _create(self, site: Site, label: str, lane: str) -> None:
        content = self.random.choice(["", "foo\nbar", random_view(self.random)])
        self.create(site, label, lane, content)

    def create(self, site: Site, label: str, lane: str, content: str) -> None:
        """Create a slot, or try to."""
        self._write(
            site, label, lane, "create",
            lambda _: site.handles[lane].create(label, content), content, content,
        )  # fmt: skip

    def _set_meta(self, site: Site, label: str, lane: str) -> None:
        choices: list[dict[str, Any]] = [
            {"size_limit": self.random.choice([20, 200, 2000])},
            {"description": random_line(self.random)},
            {"pinned": self.random.random() < 0.5},
            {"append_only": self.random.random() < 0.2},
            {"read_only": self.random.random() < 0.2},
        ]
        settings = self.random.choice(choices)
        self._write(
            site, label, lane, "set_meta",
            lambda s: s.set_meta(**settings), site.view(label), settings,
        )  # fmt: skip

    def _undo(self, site: Site, label: str, lane: str) -> None:
        if site.row(label) is None:
            return
        entries = site.handles[lane].slot(label).history(8).entries
        if not entries:
            return
        entry = self.random.choice(entries)
        rev = int(entry.rev)
        self._touch(
            site, label,
            lambda: self._write(
                site, label, lane, "undo", lambda s: s.undo(entry.id),
                None, (rev, entry.operation, entry.undoable),
            ),
            of_rev=rev,
        )  # fmt: skip

        allowed = NOT_NOW if entry.undoable else NOT_NOW | NEVER
        assert self.refusal in allowed, "the history says otherwise"
        assert entry.undoable or self.refusal

    def _undo_own(self, site: Site, label: str, lane: str) -> None:
        self._touch(
            site, label,
            lambda: self._write(site, label, lane, "undo", lambda s: s.undo(), None),
        )  # fmt: skip

    def _restore(self, site: Site, label: str, lane: str) -> None:
        entries = site.handles[lane].slot(label).history(8).entries
        if not entries:
            return
        entry = self.random.choice(entries)
        rev = len(self.texts[site.replica, label]) - 1
        wanted = view_of(self.texts[site.replica, label][int(entry.rev)])
        self._touch(
            site, label,
            lambda: self._write(
                site, label, lane, "restore",
                lambda s: s.restore(entry.id, expected_rev=rev), wanted, entry.rev,
            ),
        )  # fmt: skip

    def _deliver(self, site: Site, label: str, lane: str) -> None:
        self.deliver(site, lane, self.random.randint(1, 6))

    def deliver(self, site: Site, lane: str, most: int) -> int:
        """Give a store some records that it could take next; return how many."""
        batch = self.traffic.batch_for(site, self.random, most)
        if batch:
            self._receive(site, lane, batch)
        return len(batch)

    def _compact(self, site: Site, label: str, lane: str) -> None:
        # What is squashed cannot be sent any more.
        self.traffic.collect(site)
        handle = site.handles[lane]
        handle.configure(history_keep=self.random.choice([1, 3, 20]))
        before = site.file(label)
        handle.compact()
        self.trace.append(f"{site.name} {lane} compact")

        assert site.file(label) == before, "squashing changed the text"

    def _reopen(self, site: Site, label: str, lane: str) -> None:
        site.reopen()
        self.trace.append(f"{site.name} {lane} reopen")

    def _forget(self, markers: set[str]) -> None:
        for marker in markers:
            self.untouched.pop(marker, None)

    # -- what each step must leave

    def _marker(self) -> str:
        self.markers += 1
        return f"§{self.markers}{self.random.choice(WORDS)}§"

    def _write(
        self,
        site: Site,
        label: str,
        lane: str,
        name: str,
        call: Callable[..., object],
        wanted: str | None,
        shown: object = "",
    ) -> bool:
        """Do a local write and hold it against its model; tell whether it was done."""
        self.trace.append(f"{site.name} {lane} {label} {name} {shown!r}")
        self.refusal = ""
        before = site.row(label)
        try:
            call(site.handles[lane].slot(label))
        except CrdtmemError as exc:
            self.refusal = exc.code
            self.trace[-1] += f" refused: {exc.code}"
            self.done[f"{name} {exc.code}"] += 1
            assert site.row(label) == before, "a refused write changed something"
            return False
        self.done[name] += 1
        self.traffic.note_write(site)
        self._check_row(site, label, before, site.row(label), is_local=True)
        if wanted is not None:
            assert site.view(label) == wanted, (site.view(label), wanted)
        return True

    def _touch(
        self,
        site: Site,
        label: str,
        write: Callable[[], bool],
        *,
        of_rev: int | None = None,
    ) -> None:
        """Do a write that may take markers away, or bring them back."""
        old_file = site.file(label)
        write()
        new_file = site.file(label)
        before, after = markers_in(old_file), markers_in(new_file)
        self._forget(before ^ after | rewritten(old_file, new_file))
        if of_rev is not None:
            texts = self.texts[site.replica, label]
            old, new = (markers_in(view_of(t)) for t in texts[of_rev : of_rev + 2])
            assert before - after <= new - old, "an undo took other markers away"
            assert after - before <= old - new, "an undo brought other markers back"

    def _receive(self, site: Site, lane: str, batch: Sequence[Post]) -> None:
        had = self.traffic.arrived[site.replica]
        again = [self.random.choice(had)] if had and self.random.random() < 0.2 else []
        before = {label: site.row(label) for label in self.labels}
        self.trace.append(f"{site.name} {lane} receives {len(batch)}")
        found = self.traffic.deliver(site, lane, list(batch), again)
        for label in self.labels:
            after = site.row(label)
            if after != before[label]:
                self._check_row(site, label, before[label], after, is_local=False)

        assert found == len(batch)
        assert site.quarantined() == []

    def _check_row(
        self,
        site: Site,
        label: str,
        before: SlotRow | None,
        after: SlotRow | None,
        *,
        is_local: bool,
    ) -> None:
        assert after is not None
        texts = self.texts.setdefault((site.replica, label), [])
        was = before or after._replace(file="never", deleted=0)
        is_other = was.is_deleted != after.is_deleted
        if was.file != after.file or (is_local and is_other):
            texts.append(after.file)
        view = view_of(after.file)
        self.trace[-1] += f" -> {after.file!r} rev {after.rev}"

        assert after.rev == len(texts) - 1, "rev is not the number of changes"
        assert after.file == "" or after.file.endswith("\n")
        assert after.hash == hashlib.sha256(view.encode()).hexdigest()
        assert after.size == units_of(view)

    # -- the end

    def exchange_all(self) -> None:
        """Bring all records everywhere."""
        for site in self.sites:
            while self.deliver(site, LANES[0], 50):
                pass

    def settle(self) -> None:
        """Bring all records everywhere, and hold the stores against each other."""
        self.exchange_all()
        for label in self.labels:
            self._check_equal(label)
            self._check_markers(label)
            self._check_past(label)
            self._check_shrinks(label)
        # It takes a third of the time of all this.
        if self.random.random() < 0.3:
            self._check_squashed(self.labels[-1])

    def _check_equal(self, label: str) -> None:
        first, *others = (site.look(label)._replace(state=b"") for site in self.sites)
        for other in others:
            assert other == first, "the stores differ"

    def _check_markers(self, label: str) -> None:
        site = self.sites[0]
        lines = site.view(label).split("\n")
        counts = Counter(lines)
        place = {line: number for number, line in enumerate(lines)}
        blame = {} if not site.view(label) else self._blame(site, label)
        for line in markers_in(site.view(label)):
            assert MARKER.fullmatch(line), f"{line!r} is glued or torn"
            assert line in self.authors, f"nobody appended {line!r}"
        for marker in [m for m, slot in self.untouched.items() if slot == label]:
            assert counts[marker] == 1, f"{marker!r} stands {counts[marker]} times"
            assert blame[marker] == self.authors[marker]
            in_front = self.predecessors.get(marker)
            if in_front in self.untouched:
                assert place[in_front] < place[marker], "markers changed places"

    def _blame(self, site: Site, label: str) -> dict[str, tuple[str | None, bytes]]:
        found = site.handles[LANES[0]].slot(label).blame()
        return {b.text: (b.lane, bytes.fromhex(b.replica or "")) for b in found}

    def _check_past(self, label: str) -> None:
        for site in self.sites:
            if site.row(label) is None:
                continue
            slot = site.handles[LANES[0]].slot(label)
            texts = self.texts[site.replica, label]
            for entry in slot.history(1000).entries:
                kept = slot.history_entry(entry.id).content
                assert kept == view_of(texts[int(entry.rev)])

    def _check_squashed(self, label: str) -> None:
        for site in self.sites:
            before = site.look(label)
            site.squash_all(label)
            after = site.look(label)

            assert after._replace(state=before.state) == before, "squashing changed it"

    def _check_shrinks(self, label: str) -> None:
        site = self.sites[0]
        row = site.row(label)
        if row is None or row.is_deleted or row.size <= row.size_limit:
            return
        slot = site.handles[LANES[0]].slot(label)
        slot.set_meta(read_only=False, append_only=False)
        shorter = "\n".join(view_lines(site.view(label))[1:])
        self.done["shrunk"] += 1

        assert slot.replace(shorter).changed
        assert site.file(label) == file_of(shorter)
