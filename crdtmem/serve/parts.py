"""Puts the server's parts together: the API, and whatever else there is."""

from collections.abc import Awaitable, Callable

from crdtmem.serve.answers import Site
from crdtmem.serve.app import Parts
from crdtmem.serve.assets import STATIC
from crdtmem.serve.gateway import Gateway
from crdtmem.serve.pages import PAGES, error_page

__all__ = ["make_parts"]


def make_parts(site: Site) -> tuple[Parts, Callable[[], Awaitable[None]]]:
    """Return the parts of a server, and what drains them."""
    gateway = Gateway(site)
    gateway.begin()
    parts = Parts(
        pages=PAGES, static=STATIC, error_page=error_page, open_socket=gateway.serve
    )
    return parts, gateway.drain
