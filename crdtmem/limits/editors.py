"""Bounds of the gateway: of editors, of what they send, and of their documents."""

__all__ = [
    "AWARENESS_BYTES",
    "AWARENESS_ENTRIES_MAX",
    "AWARENESS_IDS_MAX",
    "AWARENESS_LEVELS",
    "AWARENESS_OUT_S",
    "AWARENESS_PAUSE_S",
    "AWARENESS_TTL_S",
    "EDITORS_MAX",
    "EDITORS_SLOT_MAX",
    "EDITOR_DOCS_MAX",
    "EDITOR_DOC_IDLE_S",
    "EDITOR_FRAME_BYTES",
    "EDITOR_FRAME_MESSAGES_MAX",
    "EDITOR_GAPS_MAX",
    "EDITOR_GAP_WINDOW_S",
    "EDITOR_LANE_UNITS",
    "EDITOR_LOG_BYTES",
    "EDITOR_LOG_ROWS",
    "EDITOR_OWN_IDS_MAX",
    "EDITOR_PAUSE_S",
    "EDITOR_QUEUE_BYTES",
    "EDITOR_QUEUE_MAX",
    "EDITOR_RESCUED_BYTES",
    "EDITOR_RESCUED_MAX",
    "EDITOR_RETIRE_BYTES",
    "EDITOR_RETIRE_MS",
    "EDITOR_RETIRE_TEXTS",
    "EDITOR_SEND_S",
    "EDITOR_STEP2_BYTES",
    "EDITOR_TEXT_BYTES",
    "EDITOR_TEXT_SLACK_UNITS",
    "EDITOR_UPDATE_BYTES",
    "EDITOR_WINDOW_ROWS",
    "FOLD_MOVED_S",
    "FOLD_QUIET_S",
    "FOLD_RUNS_MAX",
    "FOLD_TYPED_S",
]

EDITOR_OWN_IDS_MAX = 1 << 16
"""Client ids below are the gateway's own, those from here on the editors'.

Yjs puts the smaller id first where two insert at one place, so a line that is appended
stands whole in front of what an editor types at the end.
"""

EDITOR_UPDATE_BYTES = 1 << 20
"""Largest update: a text of the largest size, pasted at once."""

EDITOR_STEP2_BYTES = 4 << 20
"""Largest answer to what we have: all that was typed without a connection."""

EDITOR_FRAME_BYTES = EDITOR_STEP2_BYTES + (64 << 10)
"""Largest frame: such an answer, and what stands around it."""

EDITOR_FRAME_MESSAGES_MAX = 64
"""Messages in one frame; y-websocket sends one or two."""

EDITOR_GAPS_MAX = 3
"""Updates that hang on what is not here, within the window; then the editor is lost."""

EDITOR_GAP_WINDOW_S = 10.0
"""The window."""

EDITOR_TEXT_SLACK_UNITS = 65_536
"""How far an editor's text may exceed twice its slot's limit: it waits there, unfolded,
for somebody to shorten it."""

EDITOR_TEXT_BYTES = 1 << 20
"""Longest text of an editor doc: what a slot can hold at all."""

EDITOR_LANE_UNITS = 128
"""Longest lane of an editor: as of any lane."""

EDITOR_LOG_ROWS = 200
"""Rows of an editor doc, from which on they are squashed."""

EDITOR_LOG_BYTES = 256 << 10
"""Bytes of the rows of an editor doc, from which on they are squashed."""

EDITOR_RETIRE_BYTES = 1 << 20
"""Least size of a state that is given up for a fresh one."""

EDITOR_RETIRE_TEXTS = 8
"""How many times its text a state has to be for that."""

EDITOR_RETIRE_MS = 24 * 3600 * 1000
"""How long nobody must have typed: a browser with the old doc then has to reload."""

EDITOR_RESCUED_MAX = 100
"""Texts of editors that had another doc; the oldest goes."""

EDITOR_RESCUED_BYTES = 16 << 20
"""All of these together."""

FOLD_QUIET_S = 2.0
"""So long after the last update what was typed becomes part of the slot."""

FOLD_TYPED_S = 10.0
"""So long after the first one at the latest."""

FOLD_MOVED_S = 1.0
"""Least time between two folds where the slot changes as well."""

FOLD_RUNS_MAX = 64
"""Writes of one fold, one for each turn of an editor."""

EDITOR_PAUSE_S = 0.001
"""Pause between two commits of a slot, for each editor: of 32, all that comes in 32 ms
is one commit, and two who type wait for nobody."""

EDITORS_MAX = 256
"""Editors of a server."""

EDITORS_SLOT_MAX = 32
"""Editors of a slot."""

EDITOR_DOCS_MAX = 64
"""Editor docs in memory."""

EDITOR_DOC_IDLE_S = 30.0
"""How long one stays after its last editor."""

EDITOR_SEND_S = 60.0
"""How long a frame may be on its way; who reads nothing that long is gone."""

EDITOR_QUEUE_MAX = 64
"""Updates of one editor that wait for their commit; then nothing more is read."""

EDITOR_QUEUE_BYTES = 4 << 20
"""Likewise, their size."""

EDITOR_WINDOW_ROWS = 256
"""Newest rows of an editor doc in memory, for editors that are a little behind."""

AWARENESS_BYTES = 2_048
"""Largest state that an editor tells of itself."""

AWARENESS_LEVELS = 8
"""How deep it may be nested."""

AWARENESS_ENTRIES_MAX = 64
"""Entries of one message: a client repeats what it has heard of others."""

AWARENESS_IDS_MAX = 4
"""Ids for which one connection speaks."""

AWARENESS_PAUSE_S = 0.1
"""Least time between two changes of one connection; the latest counts."""

AWARENESS_TTL_S = 30.0
"""So long without a word an entry stays."""

AWARENESS_OUT_S = 15.0
"""How often the gateway tells of itself; y-websocket gives up after 30 s of silence."""
