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
    "MIRROR_READS_MAX",
    "MIRROR_RESCAN_S",
    "MIRROR_RETRY_S",
    "MIRROR_SETTLE_S",
    "MIRROR_SIZE_UNITS",
    "MIRROR_STEP_MS",
    "MIRROR_TICK_MS",
    "MIRROR_UNFINISHED_S",
    "MIRROR_WRITE_PAUSE_S",
    "REJECTED_BYTES",
    "REJECTED_FILES",
    "RETIRED_BYTES",
    "RETIRED_LOOK_S",
    "RETIRED_MAX",
    "RETIRED_UNLEASED_S",
    "RING_BYTES",
    "RING_KEPT_S",
    "RING_TEXTS",
    "WRITERS_SEEN_MAX",
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

MIRROR_RETRY_S = 1.0
"""Pause before the next try where a folder cannot be watched, or the store is busy."""

MIRROR_STEP_MS = 20
"""How long no further event must come for those gathered to be told; file events come
some milliseconds apart, and the library's default is 50."""

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

RETIRED_BYTES = 64 * 2**20
"""Size of a swapped-out file from which on people are told who still writes to it."""

RETIRED_LOOK_S = 0.5
"""Pause between two questions whether a swapped-out file is still open for writing."""

RETIRED_MAX = 64
"""Swapped-out files of one name that are watched where no lease is to be had."""

RING_BYTES = 2**20
"""How much of them is compared at most, but for the newest few: it is done while the
store's lock is held, and takes some 50 ms for so much."""

RING_TEXTS = 64
"""Texts put into a file of late that a stale save is compared with: an editor stays
open for minutes while lanes append every few seconds, and what was written since the
text it shows must not count as deleted by its save. With 8 it did, after two seconds of
a busy lane."""

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

MIRROR_READS_MAX = 3
"""How often a file that changes while it is read is read at once: one appended to each
0.2 ms may never stand still, and what is read of it is whole anyway."""

MIRROR_TICK_MS = 20
"""How old a change must be for the next one to show in the file's times: Linux counts
them in ticks of at most 10 ms (4 ms mostly) unless it is newer than 6.13."""

WRITERS_SEEN_MAX = 65_536
"""Descriptors looked at to find who keeps a file open; only a warning asks for it."""
