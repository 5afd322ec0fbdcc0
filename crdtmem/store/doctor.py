"""Doctor: being written."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from crdtmem.store.store import Store

__all__ = ["Finding", "examine"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding."""

    id: str
    status: Literal["ok", "warn", "fail", "fixed"]
    namespace: str | None
    label: str | None
    message: str
    hint: str


def examine(
    store: Store, *, namespaces: Sequence[str] | None, repair: bool, deep: bool
) -> list[Finding]:
    """Being written."""
    return []
