"""Bounds of the wire, of the relay, and of those who sync with it."""

__all__ = [
    "ACK_WAIT_S",
    "ADDRESSES_WATCHED_MAX",
    "AGENT_BYTES",
    "ALARMS_KEPT_MAX",
    "APPLY_BATCH_RECORDS",
    "BACKOFF_FIRST_S",
    "BACKOFF_MAX_S",
    "BACKOFF_RESET_S",
    "CATCHUPS_MAX",
    "CATCHUP_RECORDS",
    "CHECKPOINT_WAIT_MS",
    "COMMIT_BYTES",
    "COMMIT_RECORDS",
    "CONNECTIONS_MAX",
    "CONNECTION_DEAD_S",
    "CONNECT_S",
    "CONTROL_BYTES",
    "COPY_BATCH_BYTES",
    "COPY_BATCH_ROWS",
    "DRAIN_S",
    "DROP_GRACE_MS",
    "DROP_STEP_MS",
    "ERROR_CODE_BYTES",
    "ERROR_TEXT_BYTES",
    "FRAME_BYTES",
    "FRAME_CACHE_ALL_BYTES",
    "FRAME_CACHE_BYTES",
    "FRAME_MESSAGES_MAX",
    "HANDSHAKES_ADDRESS_MAX",
    "HANDSHAKES_MAX",
    "HANDSHAKE_S",
    "HEAD_BYTES",
    "HEARTBEAT_S",
    "HELLO_WAIT_S",
    "HWM_PAUSE_MS",
    "JOINS_MAX",
    "JOIN_RETRY_S",
    "JOIN_WAIT_S",
    "KEYRING_BYTES",
    "LEASE_RETRY_S",
    "NAMESPACE_DOCS_MAX",
    "NAMESPACE_QUOTA_BYTES",
    "PART_BYTES",
    "PART_WAIT_S",
    "PRESENCES_HEARD_MAX",
    "PRESENCES_MAX",
    "PRESENCE_BYTES",
    "PRESENCE_PAUSE_S",
    "PRESENCE_TOLD_BYTES",
    "PRESENCE_TTL_MS",
    "PROBE_WAIT_S",
    "PUT_RECORDS_MAX",
    "READINESS_KEPT_S",
    "READINESS_WAIT_S",
    "RECEIPT_PAUSE_MS",
    "RECEIPT_RECORDS",
    "RECORDS_ITEMS_MAX",
    "RELAY_DISK_FREE_BYTES",
    "RELAY_ROWS_KNOWN_MAX",
    "RELAY_SNAPSHOT_BYTES",
    "RELAY_UPDATE_BYTES",
    "RETRY_BUSY_MS",
    "RETRY_FULL_MS",
    "RETRY_MISSING_MS",
    "RETRY_QUOTA_MS",
    "SAMPLES_MAX",
    "SAMPLE_STEP_RECORDS",
    "SEALED_BYTES",
    "SEALED_LEAST_BYTES",
    "SEALED_ROWS_MAX",
    "SEALED_STATES_BYTES",
    "SEALED_STATES_MAX",
    "SEEN_ROWS",
    "SEND_BUFFER_BYTES",
    "SNAPSHOT_CHECK_S",
    "SNAPSHOT_LIVE_BYTES",
    "SNAPSHOT_LIVE_RECORDS",
    "SNAPSHOT_WAIT_MAX_S",
    "SNAPSHOT_WAIT_MIN_S",
    "STALL_S",
    "SWEEP_ROWS",
    "SWEEP_S",
    "SYNC_CLOSE_S",
    "SYNC_LINKS_POLL_S",
    "SYNC_POLL_ACTIVE_S",
    "SYNC_POLL_AWAKE_S",
    "SYNC_POLL_IDLE_S",
    "SYNC_RESTART_S",
    "SYNC_STATUS_S",
    "TOKEN_BURST_RECORDS",
    "TOKEN_CONNECTIONS_MAX",
    "TOKEN_FAILURES_MAX",
    "TOKEN_FAILURES_S",
    "TOKEN_FILE_BYTES",
    "TOKEN_POLL_S",
    "TOKEN_RATE_BYTES",
    "TOKEN_RATE_RECORDS",
    "TRANSFERS_BYTES",
    "UNSEALED_SCAN_ROWS",
    "WELCOME_WAIT_S",
    "WINDOW_BYTES",
    "WINDOW_RECORDS",
]

AGENT_BYTES = 64
"""Longest name of a program in hello and welcome: it is for logs alone."""

ERROR_CODE_BYTES = 64
"""Longest code in an error or a bye."""

ERROR_TEXT_BYTES = 512
"""Longest sentence for people in an error."""

FRAME_BYTES = 256 * 2**10
"""Longest frame, fixed by version 1.

A slow reader has one on its way, and both sides hold one whole in memory.
"""

FRAME_MESSAGES_MAX = 64
"""Most messages in one frame, fixed by version 1."""

JOINS_MAX = 64
"""Most namespaces joined on one connection; a heartbeat names them all."""

PRESENCE_BYTES = 1_024
"""Longest blob of a presence: a few lanes, each with its slot and a phrase."""

PRESENCE_TOLD_BYTES = 992
"""Longest presence that a server tells; sealed, it is as long as one may be."""

PRESENCE_TTL_MS = 45_000
"""Longest time that a presence holds: three heartbeats."""

PUT_RECORDS_MAX = 256
"""Most records in one put: the window of a client."""

RECORDS_ITEMS_MAX = 512
"""Most records in one message down: a page of the log."""

SAMPLES_MAX = 128
"""Most places of its log that a client remembers and may offer.

Their distance doubles as they get older, so these reach back to the beginning.
"""

BACKOFF_FIRST_S = 0.5
"""Longest wait before the first attempt to connect again."""

BACKOFF_MAX_S = 30.0
"""Longest wait between two attempts to connect.

A relay that is back is found within it; 200 clients ask seven times a second.
"""

BACKOFF_RESET_S = 60.0
"""How long a connection must hold before the waits begin anew."""

CONNECTION_DEAD_S = 40.0
"""How long a peer may be silent: two of its heartbeats and some delay."""

HEARTBEAT_S = 15.0
"""Pause of a side after which it sends a heartbeat.

Below the 30 to 60 s after which routers and proxies forget a quiet connection.
"""

HELLO_WAIT_S = 5.0
"""How long hello, and the welcome to it, may take."""

PART_WAIT_S = 60.0
"""How long the next part of a record may take."""

DROP_GRACE_MS = 7 * 86_400_000
"""How long a relay keeps a covered payload, in running time that it has observed.

A snapshot that turns out to be wrong is noticed within days, while what it covers is
still there; a clock that jumps must not cut that short.
"""

DROP_STEP_MS = 3_600_000
"""Most running time that one sweep of a relay counts, whatever the clock says."""

NAMESPACE_DOCS_MAX = 100_000
"""Most docs of one namespace on a relay: what a reader can be asked to join at all."""

NAMESPACE_QUOTA_BYTES = 2**30
"""Most bytes of kept records of one namespace on a relay, where nobody set another."""

RELAY_DISK_FREE_BYTES = 256 * 2**20
"""Free space below which a relay takes no more records.

Its log and its checkpoints still have room then, and reads go on.
"""

HWM_PAUSE_MS = 1_000
"""Shortest pause between two notes of how far a relay has come.

The chain tells every loss; the note only tells a restored relay from a forked one.
"""

CONNECT_S = 10.0
"""Longest time that connecting may take: name, TCP, TLS and the relay's check.

Over a bad mobile network that is some seconds.
"""

LEASE_RETRY_S = 5.0
"""Pause between two attempts to take the lease, give or take a fifth.

A process that dies is replaced within seconds; the fifth keeps those who wait from
asking at once.
"""

SYNC_CLOSE_S = 2.0
"""Longest time for a close, and for what is still to be sent when a program ends.

Nobody waits longer for a program to go; what was not sent is sent next time.
"""

SYNC_POLL_ACTIVE_S = 0.025
"""Pause between two looks for new writes, shortly after the last one.

A look reads a counter in shared memory. 25 ms are below what a person notices.
"""

SYNC_POLL_AWAKE_S = 10.0
"""How long after a write the next one is expected soon."""

SYNC_POLL_IDLE_S = 0.25
"""Pause between two looks for new writes in quiet times: next to no processor time."""

SYNC_STATUS_S = 1.0
"""Shortest pause between two notes of the state of sync, unless it has changed.

Each is a write transaction; who asks for the status counts what is unsent anew.
"""

KEYRING_BYTES = 65_536
"""Longest keyring: some hundred keys, and comments."""

TOKEN_FILE_BYTES = 4_096
"""Longest token file; a token has 58 characters."""

CATCHUPS_MAX = 64
"""Connections far behind that a relay serves at a time; the others wait.

Each of them reads the log from the disk, page by page, beside those who are live.
"""

CATCHUP_RECORDS = 10_000
"""How many records behind a reader counts as far behind."""

COMMIT_BYTES = 4 * 2**20
"""Most bytes of records in one commit of a relay: some milliseconds of disk."""

COMMIT_RECORDS = 1_024
"""Most records in one commit of a relay.

One sync pays for all that came while the last one ran; more would only wait longer.
"""

COPY_BATCH_BYTES = 4 * 2**20
"""Most bytes of rows that are written at once when a relay is copied; or one row."""

COPY_BATCH_ROWS = 1_000
"""Most rows that are written at once when a relay is copied."""

CONNECTIONS_MAX = 4_096
"""Most connections of one relay process, some 300 KB each at worst."""

CONTROL_BYTES = 64 * 2**10
"""Most bytes of answers that wait for a client that does not read them.

What is newer replaces what is older, so a client that obeys the protocol never comes
near it.
"""

FRAME_CACHE_ALL_BYTES = 64 * 2**20
"""Most bytes of new records that a relay keeps at hand, all namespaces together."""

FRAME_CACHE_BYTES = 2**20
"""Most bytes of a namespace's new records that a relay keeps at hand for its readers.

Who is further behind reads from the disk.
"""

JOIN_WAIT_S = 30.0
"""How long a connection may stay without its first join."""

PART_BYTES = 128 * 2**10
"""Most bytes of a record in one message; a longer record travels in parts.

Half a frame: an acknowledgement waits behind one of them at most.
"""

PRESENCE_PAUSE_S = 0.5
"""Shortest pause between two presences of a sender that a relay hands on."""

PROBE_WAIT_S = 5.0
"""How long an old connection may take to show that it is alive.

Asked when its replica connects again: two live stores must not share their ids.
"""

RELAY_SNAPSHOT_BYTES = 16 * 2**20
"""Longest record of a snapshot, a doc delete or a void that a relay takes."""

RELAY_UPDATE_BYTES = 4 * 2**20
"""Longest record of any other kind that a relay takes."""

RETRY_BUSY_MS = 5_000
"""Wait before a relay that was busy is asked again."""

RETRY_FULL_MS = 30_000
"""Wait before a relay whose disk was full is asked again."""

RETRY_MISSING_MS = 60_000
"""Wait before a namespace that a relay did not have is asked for again."""

RETRY_QUOTA_MS = 60_000
"""Wait before a namespace that was full is asked to take more."""

SEND_BUFFER_BYTES = 64 * 2**10
"""How much unsent a socket of a relay holds before it gets no more."""

STALL_S = 60.0
"""How long a reader may take nothing at all out of its socket.

One that takes a kilobyte a second is kept; its position just stays behind.
"""

TOKEN_CONNECTIONS_MAX = 32
"""Most connections under one token: a team of machines."""

TRANSFERS_BYTES = 256 * 2**20
"""Most bytes of records in parts that a relay process holds, all connections."""

WINDOW_BYTES = 4 * 2**20
"""Most bytes of a client's records that wait for an acknowledgement, per namespace.

One longer record alone may pass.
"""

WINDOW_RECORDS = 256
"""Most of a client's records that wait for an acknowledgement, per namespace.

At 20 ms to the relay and back that is more than 10,000 records a second.
"""

DRAIN_S = 10.0
"""How long a relay that is told to end may take; then it goes as it is.

Supervisors kill after as much, or more. What was acknowledged is on the disk anyway.
"""

HANDSHAKES_ADDRESS_MAX = 20
"""Most connections of one address that have not shown a token yet."""

HANDSHAKES_MAX = 256
"""Most connections that have not shown a token yet: some 8 KiB each."""

HANDSHAKE_S = 10.0
"""How long a request's head may take, TLS included; an upgrade needs a few packets."""

HEAD_BYTES = 8_192
"""Longest head of a request: a token and what proxies add take one or two thousand."""

READINESS_KEPT_S = 5.0
"""How long the answer of a probe is told again: anybody may ask, and a probe syncs."""

READINESS_WAIT_S = 2.0
"""Longest time of a probe; a log that takes longer is of no use to clients."""

SWEEP_ROWS = 1_000
"""Most payloads that a relay drops at a time, so that puts never wait for many."""

SWEEP_S = 600.0
"""Pause between two looks for payloads whose grace is over."""

TOKEN_BURST_RECORDS = 10_000
"""How many records a token may have put at once before it is read more slowly."""

TOKEN_POLL_S = 1.0
"""Pause between two looks for tokens that were revoked or have expired."""

TOKEN_RATE_BYTES = 20_000_000
"""How many bytes a second a relay reads under one token.

Nothing is refused above it: the sockets are read later, and the clients wait.
"""

TOKEN_RATE_RECORDS = 2_000
"""How many records, and how many frames, a second a relay reads under one token."""

JOIN_RETRY_S = 1.0
"""Shortest wait before a refused join is tried again, whatever the relay asks for."""

PRESENCES_HEARD_MAX = 10_000
"""Most presences that a relay's process keeps of those at the other processes: 15 MB.

Those that come when there are so many are not shown here.
"""

PRESENCES_MAX = 1_024
"""Most senders of presence that a client tells apart in a namespace; oldest go."""

WELCOME_WAIT_S = 10.0
"""How long a client waits for the answer to hello.

Twice HELLO_WAIT_S: a relay that finds the same replica connected asks that
connection first whether it still lives.
"""

RELAY_ROWS_KNOWN_MAX = 100_000
"""Most rows of namespaces, replicas and docs that a relay keeps in memory: 50 MB."""

ADDRESSES_WATCHED_MAX = 10_000
"""Most addresses whose failed tokens a relay remembers; then the oldest go."""

TOKEN_FAILURES_MAX = 10
"""Failed tokens of one address after which it has to wait."""

TOKEN_FAILURES_S = 60.0
"""Time within which failed tokens count, and how long an address then waits."""

ALARMS_KEPT_MAX = 32
"""Newest alarms that a link keeps; each stands until somebody clears it."""

SEALED_BYTES = 256 * 2**10
"""Writes of one doc that go into one record, in bytes; a longer write goes alone.

What a relay sends in one frame, so a reader that comes late gets them in one.
"""

RECEIPT_PAUSE_MS = 3_600_000
"""Shortest pause between two receipts of a store in a namespace."""

RECEIPT_RECORDS = 256
"""New records in a log from which a store that writes there says how far it has read.

A relay that shows two logs is found out by the first of them that reaches the other.
"""

SEALED_LEAST_BYTES = 256
"""Shortest text that is encrypted; a shorter one is padded to it.

An append of a line and one of a word look alike.
"""

SEALED_ROWS_MAX = 4_096
"""Most writes that one call makes records of: the store is locked meanwhile."""

SEALED_STATES_BYTES = 4 * 2**20
"""States that one call makes records of, about: the store is locked meanwhile."""

SEALED_STATES_MAX = 256
"""Most docs that one call makes states of.

Each is loaded for that, which takes a millisecond or two however small it is: without
this bound a first link of 10,000 small slots kept the store locked for half a minute.
"""

SNAPSHOT_LIVE_BYTES = 65_536
"""Records of a doc, in bytes, from which a snapshot of it may save anything."""

SNAPSHOT_LIVE_RECORDS = 200
"""Records of a doc from which a snapshot of it is due: one is faster to read."""

UNSEALED_SCAN_ROWS = 1_024
"""Steps of other replicas that are looked through again before that is noted."""

SAMPLE_STEP_RECORDS = 256
"""Distance of the newest places at which a link keeps the chain of the relay's log.

A relay that comes back shorter makes a client doubt so many records too many at most.
"""

SEEN_ROWS = 65_536
"""Newest records of a relay's log whose ids a link keeps: about 6 MB.

What the relay lost and gets again is known by its id, and is not applied twice.
"""

ACK_WAIT_S = 0.2
"""How long an acknowledgement may wait for the next transaction to be noted with.

The relay has the record already; a crash in between only sends it again.
"""

APPLY_BATCH_RECORDS = 256
"""Records from a relay after which a batch is applied, whatever else has come.

They are one transaction and one sync of the disk; local writers wait as long.
"""

SNAPSHOT_CHECK_S = 10.0
"""How long after a change it is looked for docs that are due for a snapshot.

The look reads a row for each doc; a burst of writes is one change.
"""

SNAPSHOT_WAIT_MIN_S = 30.0
"""Shortest time that others leave to the store whose record made a snapshot due."""

SNAPSHOT_WAIT_MAX_S = 120.0
"""Longest such time; each store draws its own, so mostly one makes the snapshot."""

SYNC_LINKS_POLL_S = 1.0
"""Pause between two looks whether links or tokens have been changed."""

SYNC_RESTART_S = 30.0
"""Longest pause before sync is begun anew after a fault of the program itself."""

CHECKPOINT_WAIT_MS = 100
"""Longest wait of a relay for readers, to empty its write-ahead log between groups."""
