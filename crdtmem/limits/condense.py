"""Bounds of condense passes."""

__all__ = [
    "CONDENSE_BACKOFF_MAX_S",
    "CONDENSE_BACKOFF_S",
    "CONDENSE_COMMIT_S",
    "CONDENSE_COMMIT_TRIES",
    "CONDENSE_EXPIRES_MAX_S",
    "CONDENSE_EXPIRES_S",
    "CONDENSE_KEEP_PCT",
    "CONDENSE_KEEP_SECTIONS",
    "CONDENSE_MIN_UNITS",
    "CONDENSE_TIMEOUT_MAX_S",
    "CONDENSE_TIMEOUT_S",
    "CONDENSE_TRIGGER_PCT",
    "CONDENSE_TRIGGER_SECTIONS",
    "FACT_UNITS",
    "RATE_BACKOFF_MAX_S",
    "RATE_BACKOFF_MIN_S",
    "RATE_BACKOFF_S",
    "REPLY_BYTES",
    "STDERR_SHOWN_CHARS",
    "UNREFERRED_ARCHIVE_MS",
]

CONDENSE_TRIGGER_PCT = 70
"""A slot this full is due: where the first headroom warning stands."""

CONDENSE_TRIGGER_SECTIONS = 50
"""A slot with more sections than this is due, however small they are."""

CONDENSE_MIN_UNITS = 16_384
"""A shorter text is never due, nor one under half of its slot's limit if less."""

CONDENSE_KEEP_SECTIONS = 12
"""Newest units that a pass leaves as they are, at most."""

CONDENSE_KEEP_PCT = 25
"""Most of a slot's limit that the units left alone may take, in percent."""

CONDENSE_TIMEOUT_S = 180.0
"""Time that a summariser has, before what it gets for a long text."""

CONDENSE_TIMEOUT_MAX_S = 3_600.0
"""Longest time a summariser may be given."""

CONDENSE_EXPIRES_S = 600.0
"""Life of a pass in two steps; it keeps other passes of the slot out so long."""

CONDENSE_EXPIRES_MAX_S = 3_600.0
"""Longest life of a pass: a forgotten one must not block a slot for a day."""

CONDENSE_COMMIT_S = 5.0
"""Longest wait of a commit for the store's write lock, each try."""

CONDENSE_COMMIT_TRIES = 3
"""Tries of a commit: the reply took minutes to make."""

CONDENSE_BACKOFF_S = 300.0
"""Wait of a slot after a failed pass; doubles with each in a row."""

CONDENSE_BACKOFF_MAX_S = 21_600.0
"""Longest such wait: four tries a day."""

RATE_BACKOFF_S = 3_600.0
"""Wait of a summariser that is out of quota and does not say until when; doubles."""

RATE_BACKOFF_MIN_S = 60.0
"""Shortest wait of a summariser, whatever it says."""

RATE_BACKOFF_MAX_S = 86_400.0
"""Longest wait of a summariser, whatever it says: quotas are by day at most."""

REPLY_BYTES = 1_048_576
"""Longest output of a command: a hundred times a long summary."""

STDERR_SHOWN_CHARS = 2_000
"""How much of the end of a failed command's stderr is shown."""

FACT_UNITS = 500
"""Longest fact that is hoisted into the pinned section: a fact is a line."""

UNREFERRED_ARCHIVE_MS = 7 * 86_400_000
"""How long an archive of no committed pass is kept; the slot still holds its text."""
