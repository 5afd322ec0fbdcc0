"""Random notes: texts with every kind of region, and what others write meanwhile."""

from hypothesis import strategies as st

from crdtmem.condense.regions import plan_pass
from crdtmem.doc.delta import Splice, apply_delta, joined
from crdtmem.doc.text_form import append_splice, lines_of
from crdtmem.doc.trace import Trace
from crdtmem.textdiff import diff_lines

LINES = [
    "# t\n",
    "_intro_\n",
    "> quote\n",
    "\n",
    "\n",
    "   \n",
    "plain\n",
    "é 日本\n",
    "🎉 x\n",
    "crlf\r\n",
    "- fact one\n",
    "long " * 20 + "\n",
    "```\n",
    "```\n",
    "  ~~~~\n",
    "````py\n",
    "## a\n",
    "## b\n",
    "## Recent\n",
    "## Condensed history\n",
    "## 🗜 Condensed history\n",
    "## Pinned facts\n",
    "## 📌 Durable facts (kept)\n",
    "## 📌 TODO\n",
]
# One draw for a text and one for each write: a draw a line costs more than the test.
TEXTS = st.builds(
    lambda picks, is_closed: (
        "".join(LINES[pick % len(LINES)] for pick in picks)
        + ("" if is_closed else "open")
    ),
    st.binary(max_size=30),
    st.integers(0, 4),
)
LIMITS = st.sampled_from([40, 200, 1_000, 100_000])
UNIT_MAX = st.sampled_from([1, 20, 50, 2_048])
PLANS = st.tuples(LIMITS, st.sampled_from([1, 2, 12]), st.sampled_from([0, 25]))
WRITES = st.lists(st.binary(min_size=3, max_size=5), max_size=4)


def plan_of(file, limits=(100_000, 1, 25), unit_max=2_048):
    size_limit, keep_sections, keep_pct = limits
    return plan_pass(
        file,
        size_limit=size_limit,
        keep_sections=keep_sections,
        keep_pct=keep_pct,
        unit_max=unit_max,
    )


def texts(file, regions):
    return [region.text_in(file) for region in regions]


def written(file, *deltas):
    """Lay writes of others over a file."""
    trace = Trace(file)
    for number, delta in enumerate(deltas):
        trace.step(number, delta)
    return trace


def whole_line_writes(file, changes):
    """Lay appends, and edits of whole lines anywhere, over a file."""
    trace, now = Trace(file), file
    for number, (place, *picks) in enumerate(changes):
        if place % 3 == 0:
            delta = joined([Splice(*append_splice(now, f"§{number}"))])
        else:
            delta = _line_edit(now, picks)
        trace.step(number, delta)
        now = apply_delta(now, delta)
    return trace


def _line_edit(now, picks):
    """Change lines, but not one that has no end: that would be no whole line."""
    lines = lines_of(now)
    whole = len(lines) - (0 if now.endswith("\n") or not now else 1)
    for pick in picks:
        at = pick % (whole + 1)
        if pick % 2 and at < whole:
            del lines[at]
            whole -= 1
        else:
            lines.insert(at, LINES[pick % len(LINES)])
            whole += 1
    return tuple(Splice(*op) for op in diff_lines(now, "".join(lines)))
