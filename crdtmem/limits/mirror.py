"""Bounds of Markdown mirrors."""

__all__ = [
    "INDEX_BYTES",
    "INDEX_LINES",
    "MASS_DELETION_FILES",
    "MASS_DELETION_PCT",
    "MIRROR_DEBOUNCE_MS",
    "MIRROR_GONE_S",
    "MIRROR_NAME_BYTES",
    "MIRROR_NEVER_SETTLED_S",
    "MIRROR_POLL_S",
    "MIRROR_RESCAN_S",
    "MIRROR_SETTLE_S",
    "MIRROR_SIZE_UNITS",
    "MIRROR_UNFINISHED_S",
    "MIRROR_WRITE_PAUSE_S",
    "REJECTED_BYTES",
    "REJECTED_FILES",
    "RETIRED_MAX",
    "RETIRED_UNLEASED_S",
    "RING_KEPT_S",
    "RING_TEXTS",
]

MIRROR_SETTLE_S = 0.25
"""How long other content than appended whole lines must stay the same: an editor that
empties a file and writes it again must not become a deletion."""

MIRROR_GONE_S = 2.0
"""How long a file must be empty or gone before the slot follows."""

MIRROR_NEVER_SETTLED_S = 10.0
"""A file that changes all the time is imported after this, if it is no empty one."""

MIRROR_UNFINISHED_S = 2.0
"""Longest time that an unfinished last line holds up writing to its file."""

MIRROR_WRITE_PAUSE_S = 0.2
"""Shortest pause between two writes of one file: at most 5 a second."""

MIRROR_DEBOUNCE_MS = 50
"""How long file events are gathered; the library's default is 1,600."""

MIRROR_POLL_S = 0.1
"""Pause between two looks at the store."""

MIRROR_RESCAN_S = 60.0
"""Pause between two looks at all files: events can be lost."""

MIRROR_SIZE_UNITS = 100_000
"""Size limit of a slot that is made from a file: notes are longer than slots."""

MIRROR_NAME_BYTES = 120
"""Longest file name that a slot's description may ask for."""

MASS_DELETION_FILES = 3
"""So many files may be gone at once, whatever their share, and count as deleted."""

MASS_DELETION_PCT = 25
"""Share of the files that may be gone at once; more looks like an accident."""

RETIRED_UNLEASED_S = 86_400.0
"""How long a swapped-out file is watched where no lease tells that nobody writes it."""

RETIRED_MAX = 64
"""Swapped-out files of one name that are watched where no lease is to be had."""

RING_TEXTS = 8
"""Texts put into a file of late that a stale save is compared with."""

RING_KEPT_S = 600.0
"""How long such a text is remembered."""

REJECTED_FILES = 100
"""Files kept of what could not be imported, the newest."""

REJECTED_BYTES = 16 * 2**20
"""What they may take in all."""

INDEX_LINES = 200
"""Longest MEMORY.md of the profile claude: the tool reads no further."""

INDEX_BYTES = 25_000
"""Longest MEMORY.md of the profile claude, in bytes."""
