"""Puts the server's parts together: the API, and whatever else there is."""

from collections.abc import Awaitable, Callable, Sequence

from crdtmem.errors import CrdtmemError
from crdtmem.serve.answers import Answer, Ask, PageRoute, Site
from crdtmem.serve.app import Parts
from crdtmem.serve.assets import STATIC
from crdtmem.serve.gateway import Gateway

__all__ = ["make_parts"]


def make_parts(site: Site) -> tuple[Parts, Callable[[], Awaitable[None]]]:
    """Return the parts of a server, and what drains them."""
    gateway = Gateway(site)
    gateway.begin()
    return Parts(_pages, STATIC, _error_page, gateway.serve), gateway.drain


def _pages() -> Sequence[PageRoute]:
    # A server starts without them, and many are asked for nothing but the API.
    from crdtmem.serve.pages import PAGES  # noqa: PLC0415 - see above

    return PAGES


def _error_page(ask: Ask, error: CrdtmemError) -> Answer:
    from crdtmem.serve.pages import error_page  # noqa: PLC0415 - as above

    return error_page(ask, error)
