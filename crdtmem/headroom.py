"""How full a slot is: the figures and the warning that every read and write carries.

Pure arithmetic over sizes in UTF-16 units. Which slot, which rev and what is done
about it belongs to the service above.
"""

import hashlib
import math

from crdtmem.doc.text_form import cut_units
from crdtmem.limits import PREVIEW_UNITS

__all__ = [
    "content_hash",
    "fits",
    "free_units",
    "percent_used",
    "preview",
    "warning_for",
]

# From here a caller should compact soon, and from there at once.
_SOON_PERCENT = 70
_NOW_PERCENT = 90


def percent_used(size_units: int, limit_units: int) -> int:
    """Return how full a slot is, rounded as JavaScript's ``Math.round`` does.

    Above 100 where a merge went over the limit.
    """
    # Not round(), which takes halves to the even number: 1 of 200 must give 1.
    return math.floor(size_units / limit_units * 100 + 0.5)


def free_units(size_units: int, limit_units: int) -> int:
    """Return how much more a slot takes; 0 where it is over its limit."""
    return max(0, limit_units - size_units)


def warning_for(size_units: int, limit_units: int) -> str | None:
    """Return what a caller should be told of a slot that fills up, if anything.

    The sentence names the percentage, the free characters and what to do, and how far
    the slot is over its limit where it is.
    """
    percent = percent_used(size_units, limit_units)
    if percent < _SOON_PERCENT:
        return None
    full = f"slot is {percent} % full"
    free = f"{free_units(size_units, limit_units)} characters free"
    # By size and not by percentage: 2001 of 2000 still rounds to 100.
    if size_units > limit_units:
        over = f"over its sizeLimit by {size_units - limit_units}"
        return f"{full}, {over}, {free}: compact it now"
    if percent < _NOW_PERCENT:
        return f"{full}, {free}: compact before the next large append"
    return f"{full}, {free}: compact it now"


def fits(new_units: int, old_units: int, limit_units: int) -> bool:
    """Tell whether a write may leave the text at its new size.

    It may stay within the limit, or shrink a text that a merge took over it.
    """
    return new_units <= limit_units or new_units < old_units


def content_hash(view: str) -> str:
    """Return the SHA-256 of the view's UTF-8 in 64 hex digits; callers show 16.

    Raises:
        UnicodeEncodeError: If the view holds a lone surrogate.

    """
    return hashlib.sha256(view.encode()).hexdigest()


def preview(view: str) -> str:
    """Return the beginning of a view, as lists of the history show it."""
    return cut_units(view, PREVIEW_UNITS)
