"""How and when slots are condensed: the knobs, with their bounds."""

from dataclasses import dataclass

from crdtmem.limits import (
    CONDENSE_EXPIRES_S,
    CONDENSE_KEEP_PCT,
    CONDENSE_KEEP_SECTIONS,
    CONDENSE_MIN_UNITS,
    CONDENSE_TRIGGER_PCT,
    CONDENSE_TRIGGER_SECTIONS,
)

__all__ = ["CondenseConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CondenseConfig:
    """When a slot is due, and what a pass may do to it.

    Attributes:
        trigger_pct: A slot this full is due, in percent of its limit.
        section_trigger: A slot with more sections than this is due.
        min_size: A shorter text is never due, in units; None for the default, or half
            of the slot's limit if that is less.
        budget_bytes: What ``trigger_pct`` is of, in place of the slot's limit.
        keep_sections: Newest units that stay, at most.
        keep_pct: Most of the slot's limit that they may take, in percent.
        pinned_max_pct: Most of the slot's limit that pinned facts may take.
        not_smaller: A pass must make the text smaller than this share of it.
        expires_in: Life of a pass in two steps, in seconds.
        archive_max_bytes: What archives of committed passes may take; None for no
            bound.

    """

    trigger_pct: int = CONDENSE_TRIGGER_PCT
    section_trigger: int = CONDENSE_TRIGGER_SECTIONS
    min_size: int | None = None
    budget_bytes: int | None = None
    keep_sections: int = CONDENSE_KEEP_SECTIONS
    keep_pct: int = CONDENSE_KEEP_PCT
    pinned_max_pct: int = 25
    not_smaller: float = 0.95
    expires_in: float = CONDENSE_EXPIRES_S
    archive_max_bytes: int | None = None

    @classmethod
    def reflect(cls) -> "CondenseConfig":
        """Return the numbers of the condenser of munder-difflin (#842)."""
        return cls(trigger_pct=50, budget_bytes=131_072, min_size=16_384)

    def min_units(self, size_limit: int) -> int:
        """Return the size under which a slot of this limit is never due."""
        if self.min_size is not None:
            return self.min_size
        return min(CONDENSE_MIN_UNITS, size_limit // 2)

    def unit_max(self, size_limit: int) -> int:
        """Return the size over which a section is cut into pieces, in units."""
        return max(200, min(2_048, size_limit * self.keep_pct // 100))
