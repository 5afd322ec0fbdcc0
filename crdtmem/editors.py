"""The verb of a memory that opens a slot for editors."""

from typing import TYPE_CHECKING

from crdtmem.models import Scope
from crdtmem.scope import parse_label, parse_scope
from crdtmem.session import Session

if TYPE_CHECKING:
    from crdtmem.gateway import Editing

__all__ = ["EditorVerbs"]


class EditorVerbs:
    """What a Memory does for editors."""

    _session: Session

    def editing(self, label: str, scope: Scope) -> "Editing":
        """Return the document that the editors of a slot share, made at first use.

        Args:
            label: The slot.
            scope: Where it is.

        Raises:
            InvalidArgumentError: ``invalid-label``, ``invalid-scope``.
            SlotNotFoundError: If it is deleted, or was never made.
            SlotQuarantinedError: If one of its records is damaged.
            StoreError: If the store cannot be written.

        """
        # Who only reads loads no documents.
        from crdtmem.gateway import Editing  # noqa: PLC0415 - see above

        found = parse_scope(scope, optional=False) or "project"
        place = self._session.place_of(parse_label(label), found)
        return Editing(self._session, place)
