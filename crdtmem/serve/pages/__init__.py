"""The pages: each is made of what the verbs of the memory return."""

from crdtmem.serve.answers import PageRoute
from crdtmem.serve.pages import (
    condense,
    editing,
    history,
    personal,
    search,
    sets,
    slots,
    status,
)
from crdtmem.serve.pages.refusal import error_page

__all__ = ["PAGES", "error_page"]

PAGES: tuple[PageRoute, ...] = (
    *personal.PAGES,
    *slots.PAGES,
    *editing.PAGES,
    *history.PAGES,
    *search.PAGES,
    *sets.PAGES,
    *condense.PAGES,
    *status.PAGES,
)
