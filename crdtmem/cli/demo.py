"""``crdtmem demo``: processes write one slot at once, one is killed, nothing lost."""

import shutil
import tempfile
from pathlib import Path

from crdtmem.cli.demo_play import LANE_COMMAND, Play, play
from crdtmem.cli.demo_score import SLOT
from crdtmem.cli.running import Call
from crdtmem.errors import InvalidArgumentError

__all__ = ["demo", "show"]

LOST = 1
# A lane that is killed in the middle needs two lines.
_BOUNDS = {"lanes": (1, 16), "lines": (2, 1_000)}


def demo(
    call: Call, *, lanes: int, lines_each: int, rng: int, keep: bool
) -> int | None:
    """Show that nothing is lost; keep the store if it was, or if asked to."""
    for name, count in (("lanes", lanes), ("lines", lines_each)):
        least, most = _BOUNDS[name]
        if not least <= count <= most:
            raise InvalidArgumentError(
                name, f"{name} must be between {least} and {most}, not {count}"
            )
    folder = Path(tempfile.mkdtemp(prefix="crdtmem-demo-"))
    store = folder / "store.sqlite"
    is_clean = False
    try:
        found = play(
            store, lanes=lanes, lines_each=lines_each, rng=rng, command=LANE_COMMAND
        )
        is_clean = found.is_clean
        show(call, found, store, is_kept=keep or not is_clean)
    finally:
        if is_clean and not keep:
            shutil.rmtree(folder)
        elif not is_clean:
            call.out.warn(f"the store is kept: {store}")
    return None if is_clean else LOST


def show(call: Call, found: Play, store: Path, *, is_kept: bool) -> None:
    """Print what the demo came to."""
    if call.out.as_json:
        call.out.json(_report(found, store))
        return
    for line in _lines(found):
        call.out.line(line, "" if found.is_clean else "red")
    again = f"crdtmem --store {store}"
    call.out.line(
        f"try next: {again} blame {SLOT} · {again} log {SLOT} -p"
        if is_kept
        else "try next: crdtmem demo --keep"
    )


def _lines(found: Play) -> list[str]:
    counts = sorted({len(acks) for acks in found.acks.values()})
    names = list(found.acks)
    each = " or ".join(map(str, counts))
    lane, after = found.killed
    merged = sum(ack.is_merged for ack in found.rewrites)
    kept = found.score.kept
    return [
        (
            f"{names[0]} … {names[-1]}: {each} acknowledged each, {kept} kept in all"
            f"        ({lane} was killed with SIGKILL at {after} and resumed)"
        ),
        (
            f"lines expected {found.score.expected} · kept {kept}"
            f" · lost {found.score.lost} · doubled {found.score.doubled}"
            f" · torn {found.score.torn}"
            f" · filler rewritten {len(found.rewrites)} times, {merged} of them merged"
        ),
        f"undone: the rewriter's last write; {found.later} later appends kept"
        if found.is_undone
        else "undone: the rewriter's last write; later appends were NOT all kept",
        (
            f"read meanwhile: {found.reads} times;"
            f" the rev {'FELL' if found.has_fallen else 'never fell'}"
        ),
    ]


def _report(found: Play, store: Path) -> dict[str, object]:
    return {
        "lanes": {lane: len(acks) for lane, acks in found.acks.items()},
        "killed": {"lane": found.killed[0], "after": found.killed[1]},
        "expected": found.score.expected,
        "kept": found.score.kept,
        "lost": found.score.lost,
        "doubled": found.score.doubled,
        "torn": found.score.torn,
        "rewrites": len(found.rewrites),
        "merged": sum(ack.is_merged for ack in found.rewrites),
        "laterKept": found.later if found.is_undone else None,
        "reads": found.reads,
        "store": str(store),
    }
