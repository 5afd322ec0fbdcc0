"""What became of every appended line: the judge of all concurrency and crash tests.

Each append adds one line that exists nowhere else, a *token*, made by `token`. After
whatever the test does to the store, `judge` sorts every token and every line of the
text into one of these classes:

* stable: once, whole, on a line of its own
* lost: acknowledged and not there
* doubled: there more than once
* torn: there in part, or glued to something else
* reordered: behind a later token of its lane
* phantom: a line that nobody appended

A token that was handed to an append whose return nobody saw is in doubt: it may be
there whole or not at all, and neither is an error.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields

__all__ = ["Verdict", "judge", "token"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The tokens, and in ``phantom`` the lines, of each class."""

    stable: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    doubled: tuple[str, ...] = ()
    torn: tuple[str, ...] = ()
    reordered: tuple[str, ...] = ()
    phantom: tuple[str, ...] = ()

    @property
    def faults(self) -> dict[str, tuple[str, ...]]:
        """What is wrong, by class; empty where every token is as it must be."""
        return {
            field.name: found
            for field in fields(self)
            if field.name != "stable" and (found := getattr(self, field.name))
        }


def token(lane: str, number: int) -> str:
    """Return a line that no other call returns.

    Its two halves are each unique as well, so that either betrays a torn line.
    """
    head = f"{lane}#{number:05d}"
    return f"{head}={hashlib.sha256(head.encode()).hexdigest()[:12]}"


def judge(
    text: str,
    tokens: Mapping[str, Sequence[str]],
    *,
    acknowledged: Collection[str] | None = None,
    other_lines: Collection[str] = (),
) -> Verdict:
    """Sort every token and line of a text into its class.

    Args:
        text: The view of the slot.
        tokens: What each lane tried to append, in its order.
        acknowledged: The tokens whose append returned; all of them by default.
        other_lines: What else may stand in the text.

    """
    lines = text.split("\n") if text else []
    counts = Counter(lines)
    every = [one for lane in tokens.values() for one in lane]
    promised = set(every if acknowledged is None else acknowledged)
    strays = [line for line in lines if line not in {*every, *other_lines}]
    torn = [one for one in every if any(_is_part_of(one, line) for line in strays)]
    return Verdict(
        stable=tuple(one for one in every if counts[one] == 1 and one not in torn),
        lost=tuple(
            one for one in every if one in promised and not counts[one] + (one in torn)
        ),
        doubled=tuple(one for one in every if counts[one] > 1),
        torn=tuple(torn),
        reordered=_reordered(lines, tokens),
        phantom=tuple(
            line for line in strays if not any(_is_part_of(one, line) for one in every)
        ),
    )


def _is_part_of(one: str, line: str) -> bool:
    head, _, tail = one.partition("=")
    return head in line or tail in line


def _reordered(
    lines: Sequence[str], tokens: Mapping[str, Sequence[str]]
) -> tuple[str, ...]:
    found = []
    for lane in tokens.values():
        number = {one: i for i, one in enumerate(lane)}
        latest = -1
        for one in dict.fromkeys(line for line in lines if line in number):
            if number[one] < latest:
                found.append(one)
            latest = max(latest, number[one])
    return tuple(found)
