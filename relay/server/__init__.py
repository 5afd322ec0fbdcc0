"""The relay's sockets: all that knows websockets, and what drives the core."""

from relay.server.events import JsonLines
from relay.server.serving import EXIT_ABORTED, EXIT_UNCERTAIN, Timing, serve

__all__ = ["EXIT_ABORTED", "EXIT_UNCERTAIN", "JsonLines", "Timing", "serve"]
