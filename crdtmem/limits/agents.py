"""Bounds of the MCP server."""

__all__ = [
    "MCP_CHANGES_ROWS",
    "MCP_DIFF_UNITS",
    "MCP_FOOTER_LANES_MAX",
    "MCP_FOOTER_ROWS",
    "MCP_HISTORY_ROWS",
    "MCP_LINE_BYTES",
    "MCP_LINE_SHOWN_BYTES",
    "MCP_LIST_ROWS",
    "MCP_OUTLINE_LINES",
    "MCP_QUEUE_MAX",
    "MCP_TEXT_LEAST_UNITS",
    "MCP_TEXT_MOST_UNITS",
    "MCP_TEXT_UNITS",
    "MCP_WARM_S",
]

MCP_QUEUE_MAX = 64
"""Calls of a session that wait; a client with more in flight has lost count of them."""

MCP_TEXT_UNITS = 24_000
"""Text in a reply: some 6,000 tokens, which every client lets through."""

MCP_TEXT_LEAST_UNITS = 200
"""Least that a reader may ask for; with less the pages of a slot would have no end."""

MCP_TEXT_MOST_UNITS = 100_000
"""Most that a reader may ask for: what clients are told to expect of a tool."""

MCP_LINE_BYTES = 8 << 20
"""Longest message: a text of 1 MiB whose every character is escaped fits in."""

MCP_LINE_SHOWN_BYTES = 80
"""What is shown on stderr of a line that is no message: enough to tell whose it is."""

MCP_LIST_ROWS = 100
"""Slots, and resources, on a page of their list."""

MCP_HISTORY_ROWS = 20
"""Entries of a history where no limit is given: as many as a store keeps by itself."""

MCP_CHANGES_ROWS = 100
"""Changed slots where no limit is given."""

MCP_FOOTER_ROWS = 8
"""Slots that a reply names as changed by others; the rest is counted."""

MCP_FOOTER_LANES_MAX = 4
"""Lanes that a footer names for each slot; who wrote more is in the changes."""

MCP_DIFF_UNITS = 4_000
"""Diff of a merge in a reply: it comes unasked, so it is shorter than one asked for."""

MCP_OUTLINE_LINES = 50
"""Headings of a text that is too long to show: enough to choose lines by."""

MCP_WARM_S = 0.1
"""Wait before what writes need is loaded, so that it slows no first answer down."""
