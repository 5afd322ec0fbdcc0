"""A lane of the demo on a store that drops every fifth append, for the demo's test."""

import sys

from crdtmem.cli import demo_lane
from crdtmem.slot import Slot

__all__: list[str] = []


def losing(append):
    """Return an append that claims to have written what it dropped."""
    results: list[object] = []

    def wrapped(self, text, **options):
        if int(text.split()[1]) % 5 or not results:
            results.append(append(self, text, **options))
        return results[-1]

    return wrapped


setattr(Slot, "append", losing(Slot.append))  # noqa: B010 - mypy refuses to assign to a method
demo_lane.main(sys.argv[1:])
