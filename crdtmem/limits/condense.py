"""Bounds of condense passes."""

__all__ = [
    "COMMAND_GRACE_S",
    "CONDENSED_MIN_BYTES",
    "CONDENSE_BACKOFF_MAX_S",
    "CONDENSE_BACKOFF_S",
    "CONDENSE_COMMIT_TRIES",
    "CONDENSE_DETAIL_UNITS",
    "CONDENSE_EXPIRES_MAX_S",
    "CONDENSE_EXPIRES_MIN_S",
    "CONDENSE_EXPIRES_S",
    "CONDENSE_HEADER_UNITS",
    "CONDENSE_KEEP_PCT",
    "CONDENSE_KEEP_SECTIONS",
    "CONDENSE_MARGIN_S",
    "CONDENSE_MIN_UNITS",
    "CONDENSE_MIRROR_POLL_S",
    "CONDENSE_MIRROR_S",
    "CONDENSE_SECTIONS_MAX",
    "CONDENSE_TARGET_UNITS",
    "CONDENSE_TICK_MAX_S",
    "CONDENSE_TICK_MIN_S",
    "CONDENSE_TIMEOUT_BYTE_S",
    "CONDENSE_TIMEOUT_LONG_S",
    "CONDENSE_TIMEOUT_MAX_S",
    "CONDENSE_TIMEOUT_MIN_S",
    "CONDENSE_TIMEOUT_S",
    "CONDENSE_TRIGGER_PCT",
    "CONDENSE_TRIGGER_SECTIONS",
    "FACT_UNITS",
    "RATE_BACKOFF_MAX_S",
    "RATE_BACKOFF_MIN_S",
    "RATE_BACKOFF_S",
    "REPLY_BYTES",
    "STDERR_KEPT_BYTES",
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

CONDENSE_COMMIT_TRIES = 3
"""Waits of a commit for the store's write lock: the reply took minutes to make."""

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

COMMAND_GRACE_S = 5.0
"""Time that a command has to end when it is told to, before it is killed."""

CONDENSE_TICK_MAX_S = 604_800.0
"""Longest pause between two looks at what is due: a week."""

CONDENSE_TICK_MIN_S = 60.0
"""Shortest such pause: each look reads every slot."""

CONDENSE_TIMEOUT_BYTE_S = 0.001_5
"""What a summariser gets for each byte that it is to summarise."""

CONDENSE_TIMEOUT_LONG_S = 420.0
"""Longest time that it gets so, where nobody says another one."""

CONDENSE_TIMEOUT_MIN_S = 1.0
"""Shortest time a summariser may be given: a process takes some to start."""

CONDENSE_MARGIN_S = 60.0
"""Life of a pass beyond the time of its summariser: the commit may have to wait."""

STDERR_KEPT_BYTES = 65_536
"""How much of the end of a command's stderr is kept, to look for Retry-After in."""

CONDENSE_SECTIONS_MAX = 10_000
"""Most sections that a knob may name: far over what a slot of any size holds."""

CONDENSE_HEADER_UNITS = 1_024
"""Longest header: what stands above all headings is never condensed."""

CONDENSE_TARGET_UNITS = 400
"""Least size that a summary is asked to have, however little room is left."""

CONDENSED_MIN_BYTES = 200
"""A text that a pass leaves is longer: so little is no summary of a full slot."""

CONDENSE_DETAIL_UNITS = 2_000
"""Longest diff in the detail of a result: what others changed in an evicted part."""

CONDENSE_EXPIRES_MIN_S = 1.0
"""Shortest life of a pass."""

CONDENSE_MIRROR_S = 2.0
"""Longest wait of a commit for the import of a mirrored file that has changed."""

CONDENSE_MIRROR_POLL_S = 0.05
"""Pause between two looks at such a file."""
