"""Bounds of a relay towards its database server."""

__all__ = [
    "ANNOUNCED_MAX",
    "DB_ANSWER_S",
    "DB_CONNECT_S",
    "DB_IDLE_MS",
    "DB_LOCK_MS",
    "DB_READERS_MAX",
    "DB_RETRY_FIRST_S",
    "DB_RETRY_MAX_S",
    "DB_STATEMENT_MS",
    "DB_WRITERS_MAX",
    "HEADS_POLL_S",
    "NOTIFY_BYTES",
    "NOTIFY_PAUSE_S",
]

ANNOUNCED_MAX = 1_024
"""Most messages that wait to be told to other processes; the oldest are dropped.

They are presences, and the next one of the same sender comes soon.
"""

DB_ANSWER_S = 12.0
"""Longest wait for the answer of a database: it gives up by itself before that."""

DB_CONNECT_S = 5.0
"""Longest wait for a connection to a database, a new one or one that comes free."""

DB_IDLE_MS = 5_000
"""How long a database lets a transaction wait for its process.

One that has been cut off may hold the lock of a namespace; others go on after it.
"""

DB_LOCK_MS = 3_000
"""Longest wait for a namespace that another process writes to, for milliseconds."""

DB_READERS_MAX = 4
"""Most connections of a process to its database that read."""

DB_RETRY_FIRST_S = 0.1
"""Pause before the first attempt to listen to a database again; then it doubles."""

DB_RETRY_MAX_S = 2.0
"""Longest pause before an attempt to listen again: heads are late by as much."""

DB_STATEMENT_MS = 10_000
"""Longest time that a database spends on one statement; they take milliseconds."""

DB_WRITERS_MAX = 8
"""Most connections of a process to its database that write: namespaces at once.

More of them share the syncs of the disk; a server has a hundred for all processes.
"""

HEADS_POLL_S = 1.0
"""Pause between two looks for what other processes have committed.

They tell of it, too; a message may be lost, a look is not.
"""

NOTIFY_BYTES = 7_900
"""Longest message between processes: PostgreSQL takes less than 8,000 bytes."""

NOTIFY_PAUSE_S = 0.01
"""Shortest pause between two rounds of messages: each round is one transaction."""
