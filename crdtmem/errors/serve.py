"""Errors of the web server that its command tells."""

from crdtmem.errors.tree import CrdtmemError

__all__ = ["ServeNotRunningError"]


class ServeNotRunningError(CrdtmemError, LookupError):
    """No web server runs on this store.

    Args:
        store: The store's file.

    """

    code = "serve-not-running"
    hint = "run 'crdtmem serve' to start one"
    exit_status = 3
    http_status = 404

    def __init__(self, *, store: str) -> None:
        super().__init__(f"no server runs on {store}", details={"store": store})
