"""What a handle shows of many slots at once; what is shown whole counts as seen."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from crdtmem.models import UNSET, ContextView, Scope, SlotView, Unseen, Unset
from crdtmem.session import Place, Session
from crdtmem.views import slot_view

if TYPE_CHECKING:
    from crdtmem.context import ContextStyle

__all__ = ["context_view", "slot_views"]


def slot_views(
    session: Session, scope: Scope | None, *, templates: bool, content: bool
) -> list[SlotView]:
    """Return the live slots in sight, by label; see Memory.slots."""
    views: list[SlotView] = []
    with session.reading() as connection:
        hidden = {row.label for row in session.live_rows("global")}
        for row in session.visible_rows(scope, templates=templates):
            place = Place(row.namespace, row.label)
            shadows = row.namespace == session.project and row.label in hidden
            unseen: Unseen | Unset = UNSET
            if content:
                since = session.seen.revs.get(place)
                unseen = session.unseen(connection, row, since)
                session.seen.saw(place, row.rev)
            made = slot_view(row, shadows=shadows, unseen=unseen, content=content)
            views.append(made)
    return views


def context_view(
    session: Session,
    budget_tokens: int,
    style: "ContextStyle",
    scope: Scope | None,
    labels: Sequence[str] | None,
) -> ContextView:
    """Return the pinned slots, or those of some labels, as one block of text."""
    from crdtmem.context import render_context  # noqa: PLC0415 - lists do without it

    with session.reading():
        chosen = {
            row.label: row
            for row in session.visible_rows(scope, templates=False)
            if (row.pinned if labels is None else row.label in labels)
        }
        view = render_context(list(chosen.values()), budget_tokens, style)
        for shown in view.slots:
            if shown.state == "full":
                row = chosen[shown.label]
                session.seen.saw(Place(row.namespace, row.label), row.rev)
    return view
