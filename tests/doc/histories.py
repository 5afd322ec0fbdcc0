"""Random histories of one text, and the trace again, character by character.

``SlowTrace`` says in few lines what undo and stale merge mean where all writes are of
whole lines; the tests hold the real ones against it.
"""

from dataclasses import dataclass, field

from hypothesis import strategies as st

from crdtmem.doc.delta import Delta, Splice, apply_delta, joined
from crdtmem.doc.text_form import append_splice, lines_of
from crdtmem.doc.trace import Trace
from crdtmem.doc.undo import undo_delta
from crdtmem.textdiff import diff_lines

LINES = ["a\n", "b\n", "\n", "é x\n", "🎉\n", "c\r\n", "dd\n"]
INSERTS = ["", "x", "\n", "x\n", "x\ny", "\nx"]
FILES = st.binary(max_size=6).map(
    lambda picks: "".join(LINES[pick % len(LINES)] for pick in picks)
)
# What editors leave behind: no final newline, and no whole lines.
ROUGH_TEXTS = st.text("ab\né🎉", max_size=12)
# Bytes, taken modulo what there is to pick from: one draw for each change. A draw for
# each choice costs ten times what is tested.
PICKS = st.integers(0, 255)
ROUGH_CHANGES = st.binary(max_size=6)
CHANGES = st.binary(min_size=2, max_size=6)


def rough_delta(text, change):
    """Change a text in up to two places, of whole lines or not."""
    cuts = sorted(pick % (len(text) + 1) for pick in change[: len(change) // 3 * 2])
    inserts = [INSERTS[pick % len(INSERTS)] for pick in change[len(cuts) :]]
    places = zip(cuts[::2], cuts[1::2], inserts, strict=False)
    return joined(Splice(start, end, insert) for start, end, insert in places)


def changed(file, change):
    """Return a file with some lines new, moved or gone; markers are left alone."""
    lines = lines_of(file)
    for place, pick in zip(change[::2], change[1::2], strict=False):
        at = place % (len(lines) + 1)
        is_old = at < len(lines) and "§" not in lines[at]
        if is_old and pick % 2:
            del lines[at]
        else:
            lines.insert(at, LINES[pick % len(LINES)])
    return "".join(lines)


def tidied(cells):
    """Return runs or characters as one row a character."""
    return [
        (char, cell.inserted_by, [tuple(fate) for fate in cell.fates])
        for cell in cells
        for char in cell.text
    ]


@dataclass(eq=False)
class Cell:
    text: str
    inserted_by: int | None = None
    fates: list[tuple[int, frozenset[int]]] = field(default_factory=list)

    @property
    def is_live(self):
        return len(self.fates) % 2 == 0

    def toggle(self, number, targets):
        is_undone = self.is_live != self.is_live_without(targets)
        self.fates.append((number, targets if is_undone else frozenset()))

    def is_live_without(self, targets):
        """Begin with the text; a death ends it, an undo looks at what was before."""
        if self.inserted_by in targets:
            return False
        left = [fate for fate in self.fates if fate[0] not in targets]
        if not left:
            return True
        before = Cell(
            self.text, self.inserted_by, self.fates[: self.fates.index(left[-1])]
        )
        return bool(left[-1][1]) and before.is_live_without(targets | left[-1][1])


class SlowTrace:
    def __init__(self, base):
        self.cells = [Cell(char) for char in base]

    def text(self):
        return "".join(cell.text for cell in self.cells if cell.is_live)

    def step(self, number, delta, targets):
        targets = targets or frozenset()
        live = [cell for cell in self.cells if cell.is_live]
        fresh = []
        for splice in delta:
            behind = live[splice.start_chars : splice.start_chars + 1]
            place = self.cells.index(behind[0]) if behind else len(self.cells)
            fresh.append((place, splice.insert))
        for splice in delta:
            for cell in live[splice.start_chars : splice.end_chars]:
                cell.toggle(number, targets)
        for place, insert in self._not_revived(number, fresh, targets):
            self.cells[place:place] = [Cell(char, number) for char in insert]

    def _not_revived(self, number, fresh, targets):
        """Revive what the targets had deleted; yield the other text, last first."""
        gaps: dict[tuple[int, int], list[tuple[int, str]]] = {}
        for place, insert in fresh:
            start = end = place
            while start and not self.cells[start - 1].is_live:
                start -= 1
            while end < len(self.cells) and not self.cells[end].is_live:
                end += 1
            gaps.setdefault((start, end), []).append((place, insert))
        for (start, end), inserts in sorted(gaps.items(), reverse=True):
            lost = [
                cell
                for cell in self.cells[start:end]
                if not cell.is_live and cell.is_live_without(targets)
            ]
            text = "".join(insert for _, insert in inserts)
            if text and text == "".join(cell.text for cell in lost):
                for cell in lost:
                    cell.toggle(number, targets)
            else:
                yield from reversed(inserts)

    def undone(self, targets):
        return "".join(c.text for c in self.cells if c.is_live_without(targets))

    def merged(self, base, content):
        inserts, deleted = {}, set()
        for start, end, insert in diff_lines(base, content):
            inserts[start] = insert
            deleted |= set(range(start, end))
        parts = [inserts.get(0, "")]
        place = 0
        for cell in self.cells:
            is_base = cell.inserted_by is None
            if cell.is_live and not (is_base and place in deleted):
                parts.append(cell.text)
            if is_base:
                place += 1
                parts.append(inserts.get(place, ""))
        return "".join(parts)


class History:
    """Writes of one text; ``texts[n]`` is the text before write n."""

    def __init__(self, base):
        self.texts = [base]
        self.deltas: list[Delta] = []
        self.targets: list[frozenset[int] | None] = []

    @property
    def now(self):
        return self.texts[-1]

    def write(self, delta, targets=None):
        """Make a write, unless it changes nothing; return its number or None."""
        if not delta:
            return None
        self.texts.append(apply_delta(self.now, delta))
        self.deltas.append(delta)
        self.targets.append(targets)
        return len(self.deltas) - 1

    def append(self, text):
        return self.write((Splice(*append_splice(self.now, text)),))

    def replace(self, content):
        return self.write(tuple(Splice(*op) for op in diff_lines(self.now, content)))

    def undo(self, targets):
        targets = frozenset(targets)
        return self.write(undo_delta(self.trace(min(targets)), targets), targets)

    def replayed(self, trace, first):
        """Step a trace of the text before a write through all writes from it on."""
        for number in range(first, len(self.deltas)):
            targets = self.targets[number]
            if targets and min(targets) < first:
                targets = None
            trace.step(number, self.deltas[number], targets)
        return trace

    def trace(self, first):
        return self.replayed(Trace(self.texts[first]), first)

    def slow_trace(self, first):
        return self.replayed(SlowTrace(self.texts[first]), first)


def _history_of(base, steps):
    history = History(base)
    for number, (kind, pick, *change) in enumerate(steps):
        count = len(history.deltas)
        match kind % 4:
            case 0:
                form = ["{}", "{}\n", "\n{}", "{}\n\n"][pick % 4]
                history.append(form.format(f"§{number}§"))
            case 1:
                history.append("\n")
            case 2 if count:
                first = pick % count
                history.undo(range(first, min(count, first + len(change) // 2)))
            case _:
                history.replace(changed(history.now, change))
    return history


# Appends, replaces and undos in whole lines; what is appended is unique.
HISTORIES = st.builds(
    _history_of, FILES, st.lists(st.binary(min_size=4, max_size=8), max_size=7)
)
WRITTEN = HISTORIES.filter(lambda history: history.deltas)
