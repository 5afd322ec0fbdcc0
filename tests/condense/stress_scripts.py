"""What the processes of condense's stress tests do: some write, one condenses.

Every line that matters is a token of its writer, in a section of its own, so that each
can be looked for afterwards: in the slot, or in what the passes took out of it.
"""

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

from crdtmem.condense.values import CondensePass, CondenseReply
from crdtmem.store.condensed import parts_of_pass
from crdtmem.store.passes import passes_of
from tests.oracle import Verdict, judge, token
from tests.scenarios import opened

if TYPE_CHECKING:
    from crdtmem.memory import Memory
    from tests.child import Link

__all__ = [
    "BASE",
    "SLOT",
    "SUMMARY",
    "append_sections",
    "condense_in_rounds",
    "condense_once",
    "judged",
    "lines_of_passes",
    "section",
    "summarised",
]

SLOT = "plan"
LIMIT_UNITS = 1_000_000
PADDING = "; ".join(["what was done, and why, at some length"] * 3)
SUMMARY = "; ".join(["what had been done until then, in short"] * 5)
BASE = "".join(f"## old {number}\n{PADDING}\n" for number in range(9))


def section(lane: str, number: int) -> str:
    """Return a section with one token in it."""
    return f"## note\n{token(lane, number)}\n{PADDING}"


def summarised(begun: CondensePass, summary: str = SUMMARY) -> CondenseReply:
    """Return the reply of a summariser that always says the same."""
    return CondenseReply(pass_id=begun.id, summary=summary)


def append_sections(link: "Link", *, path: str, lane: str, pause_s: float) -> list[str]:
    """Append sections, one after each pause, until the parent's go.

    Args:
        link: Gets ``writing`` once it has begun.
        path: The store.
        lane: Of the handle and of the tokens.
        pause_s: Between two of them.

    Returns:
        The tokens whose append has returned.

    """
    stop, written = threading.Event(), list[str]()

    def work() -> None:
        with opened(path, lane) as memory:
            while not written or not stop.wait(pause_s):
                number = len(written)
                memory.slot(SLOT).append(section(lane, number))
                written.append(token(lane, number))

    worker = threading.Thread(target=work)
    worker.start()
    link.pause("writing")
    stop.set()
    worker.join()
    return written


def condense_in_rounds(
    link: "Link", *, path: str, lane: str, passes: int, wait_s: float
) -> dict[str, Any]:
    """Condense the slot again and again, with a section of one's own before each pass.

    Returns:
        The tokens, and how often a pass ended for which reason.

    """
    written, reasons = [], Counter[str]()
    thinking = threading.Event()

    def summarise(begun: CondensePass) -> CondenseReply:
        thinking.wait(wait_s)
        return summarised(begun)

    with opened(path, lane) as memory:
        slot = memory.slot(SLOT)
        link.pause()
        for number in range(passes):
            slot.append(section(lane, number))
            written.append(token(lane, number))
            result = slot.condense(summarise, keep_sections=1, force=True)
            reasons[result.reason] += 1
    return {"tokens": written, "reasons": dict(reasons)}


def condense_once(
    link: "Link", *, path: str
) -> None:  # pragma: no cover - run by forks that are killed
    """Condense the slot; nobody gets to know what became of it."""
    link.report("condensing")
    with opened(path, "condenser") as memory:
        memory.slot(SLOT).condense(summarised, keep_sections=1, force=True)


def lines_of_passes(memory: "Memory") -> str:
    """Return what all committed passes have taken out of the slot, oldest first."""
    with memory.store.reading() as connection:
        # More of them than one may ask for from outside.
        rows = passes_of(
            connection, ["p"], label=SLOT, state="committed", limit=1_000_000
        )
        return "".join(
            part.text
            for row in reversed(rows)
            for part in parts_of_pass(connection, row)
            if part.kind == "evicted"
        )


def judged(
    memory: "Memory",
    tokens: dict[str, list[str]],
    acknowledged: list[str] | None = None,
) -> Verdict:
    """Look for every token in what was taken out of the slot, and in its text."""
    content = str(memory.slot(SLOT).read().content)
    known = {line for text in (BASE, SUMMARY, PADDING) for line in text.split("\n")}
    headings = {line for line in content.split("\n") if line.startswith("## ")}
    return judge(
        lines_of_passes(memory) + content,
        tokens,
        acknowledged=acknowledged,
        other_lines=known | headings | {"## note", ""},
    )
