"""Bounds of the web server."""

__all__ = [
    "COMMITS_QUIET_S",
    "COMMITS_SOON_S",
    "COMMITS_STIR_S",
    "SERVE_BODY_BYTES",
    "SERVE_BODY_S",
    "SERVE_CHECK_S",
    "SERVE_CONNECTIONS_MAX",
    "SERVE_DRAIN_S",
    "SERVE_HANDLES_MAX",
    "SERVE_HEAD_BYTES",
    "SERVE_HEAD_S",
    "SERVE_INVITES_MAX",
    "SERVE_INVITE_S",
    "SERVE_KEPT_BYTES",
    "SERVE_KEPT_MAX",
    "SERVE_KEPT_S",
    "SERVE_LOGIN_ADDRESSES_MAX",
    "SERVE_LOGIN_FAILURES_MAX",
    "SERVE_LOGIN_WINDOW_S",
    "SERVE_NAMES_MAX",
    "SERVE_NAME_UNITS",
    "SERVE_OPEN_FILE_S",
    "SERVE_PORT",
    "SERVE_PORTS_MAX",
    "SERVE_SESSIONS_MAX",
    "SERVE_SESSION_IDLE_S",
    "SERVE_SESSION_S",
    "SERVE_STATES_S",
    "SERVE_STREAMS_MAX",
    "SERVE_STREAM_COMMENT_S",
    "SERVE_SYNC_STATUS_S",
    "SERVE_TOKEN_FILE_BYTES",
    "SERVE_UNREAD_BYTES",
    "SERVE_WAITING_MAX",
    "SERVE_WAIT_S",
]

SERVE_PORT = 8790
"""Where it listens unless told otherwise; one of the next ones if that is taken."""

SERVE_PORTS_MAX = 10
"""Ports that are tried, the first one included."""

SERVE_HEAD_BYTES = 16 << 10
"""Longest head of a request: cookies of other servers on this host come along."""

SERVE_HEAD_S = 10.0
"""Time for a head to arrive, so that nobody holds connections by sending slowly."""

SERVE_BODY_BYTES = 4 << 20
"""Largest body: a text of 1 MiB whose every byte is escaped, with room to spare."""

SERVE_BODY_S = 30.0
"""Time for a body to arrive."""

SERVE_UNREAD_BYTES = 4 * SERVE_BODY_BYTES
"""Largest body that is received though it is too large: many clients send all of it
before they read why it was refused."""

SERVE_CONNECTIONS_MAX = 384
"""Connections: 256 editors, 100 streams, and some for requests."""

SERVE_HANDLES_MAX = 32
"""Memories that are open: one for each project and lane that asked of late."""

SERVE_WAITING_MAX = 64
"""Calls that wait for a memory, or use one; who comes then is told to come again."""

SERVE_INVITE_S = 600.0
"""How long a one-time URL is good for."""

SERVE_INVITES_MAX = 64
"""One-time URLs that nobody has used; the oldest is forgotten."""

SERVE_LOGIN_FAILURES_MAX = 10
"""Bad one-time URLs from one address within the window; then it has to wait."""

SERVE_LOGIN_WINDOW_S = 60.0
"""The window, and the wait."""

SERVE_LOGIN_ADDRESSES_MAX = 1_000
"""Addresses whose failures are remembered; the oldest is forgotten."""

SERVE_SESSIONS_MAX = 64
"""Browsers that are signed in; the longest unused is signed out."""

SERVE_SESSION_IDLE_S = 12 * 3600.0
"""How long a browser stays signed in that asks for nothing."""

SERVE_SESSION_S = 7 * 86_400.0
"""How long a browser stays signed in at all."""

SERVE_NAMES_MAX = 256
"""Names in a query or a form: some ten are known to any route."""

SERVE_NAME_UNITS = 64
"""Longest name under which somebody writes from a browser."""

SERVE_TOKEN_FILE_BYTES = 64 << 10
"""Largest token file: some 500 tokens."""

SERVE_OPEN_FILE_S = 60.0
"""How long the file lies there that leads a browser to its one-time URL."""

SERVE_KEPT_BYTES = 1 << 20
"""Longest page that is kept for the next one who asks: a list of some 2,000 slots."""

SERVE_KEPT_MAX = 32
"""Pages and parts of them that are kept: those that are open, 32 MiB at most."""

SERVE_KEPT_S = 5.0
"""Time after which a kept page is made again although nothing was written."""

SERVE_STREAMS_MAX = 4
"""Streams of one session: browsers open six connections to a host in all."""

SERVE_STREAM_COMMENT_S = 15.0
"""Longest silence of a stream; then a comment shows that the connection lives."""

COMMITS_SOON_S = 0.025
"""How often a server looks whether the store has changed, after it has."""

COMMITS_STIR_S = 5.0
"""How long after: who types makes a pause now and then."""

COMMITS_QUIET_S = 0.1
"""How often it looks while all is quiet: most looks of a day, each a wake of the
processor."""

SERVE_STATES_S = 1.0
"""How often streams look at what no commit tells of: who is there, how sync does."""

SERVE_CHECK_S = 2.0
"""How often a server looks whether who holds a stream is still welcome: within 3 s it
ends."""

SERVE_SYNC_STATUS_S = 2.0
"""How often a stream tells of sync at most."""

SERVE_WAIT_S = 30.0
"""Longest wait for a change that a request may ask for."""

SERVE_DRAIN_S = 5.0
"""How long requests that run may go on when the server stops."""
