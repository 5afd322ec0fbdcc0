"""The grammar of the command line as data: one table, read by two readers.

``quick`` reads the table without click, for the commands that agents run at every
turn; ``tree`` builds the click commands from it. What a word means is decided here
once, so the two cannot disagree. A command's function is found by its name when it
runs, in the module that the table tells.

The rows of the other commands stand in ``commands``, which the front door never loads.
"""

from crdtmem.cli.grammar import Argument, Command, Option

__all__ = ["GLOBAL_OPTIONS", "LABEL", "LINES", "QUICK_COMMANDS"]

GLOBAL_OPTIONS = (
    Option(("--store",), "The store file, instead of the configured one."),
    Option(("--project",), "A project id, or a folder that lies in the project."),
    Option(
        ("--scope",),
        "Look in this scope only; new slots go there.",
        "choice",
        choices=("project", "global"),
    ),
    Option(("--lane",), "Who writes: the name of this session."),
    Option(("--json",), "Print the result as JSON.", "flag", called="as_json"),
    Option(("-q", "--quiet"), "Print no notes and no results of writes.", "flag"),
    Option(("-v", "--verbose"), "Print more, and log to stderr.", "flag"),
    Option(
        ("--color",),
        "Colour the output.",
        "choice",
        choices=("auto", "always", "never"),
    ),
    Option(
        ("--busy-timeout",), "Wait so many seconds for the write lock (5).", "seconds"
    ),
)

LABEL = Argument("label")
LINES = Option(("--lines",), "Only these lines, such as 3-7.", "lines")

QUICK_COMMANDS = (
    Command(
        "list",
        "Show the slots and how full they are",
        "reading",
        "read",
        options=(
            Option(
                ("--sort",),
                "Order of the slots (label).",
                "choice",
                choices=("label", "used", "updated"),
                default="label",
            ),
            Option(("--no-templates",), "Leave out unwritten default slots.", "flag"),
        ),
    ),
    Command(
        "get",
        "Print the text of a slot",
        "reading",
        "read",
        arguments=(LABEL,),
        options=(
            LINES,
            Option(("--tail",), "Only the last so many lines.", "whole"),
            Option(("--outline",), "Headings with line numbers and sizes.", "flag"),
            Option(("--at-rev",), "The text at this rev.", "whole", is_left_out=True),
        ),
    ),
    Command(
        "context",
        "Print what a session should know at its start",
        "reading",
        "read",
        options=(
            Option(("--budget",), "Most tokens to print (2000).", "whole"),
            Option(
                ("--style",),
                "Form of the block (tags).",
                "choice",
                choices=("tags", "headings"),
                default="tags",
            ),
            Option(("--labels",), "These slots, with commas, not the pinned ones."),
            Option(("--max-chars",), "Most characters to print.", "whole"),
        ),
    ),
    Command(
        "status",
        "Show the store, project and lane, and where each comes from",
        "reading",
        "look",
    ),
    Command(
        "changes",
        "Show which slots have changed",
        "reading",
        "read",
        options=(
            Option(("--since",), "Changes after this cursor."),
            Option(
                ("--unread",), "Changes by others that this lane has not seen.", "flag"
            ),
            Option(("--mark",), "Take all of them as seen.", "flag"),
            Option(("--diff",), "Show what changed in the texts.", "flag"),
            Option(("--limit",), "At most so many (100).", "whole", default=100),
        ),
    ),
    Command(
        "hook",
        "Answer an event of claude, codex or cursor, told on stdin as JSON",
        "hook",
        "look",
        # Both are looked at by the command itself: a hook refuses nothing with a 2.
        arguments=(
            Argument("host", is_required=False),
            Argument("event", is_required=False),
        ),
        more="Events: session-start gives the session what it should know, prompt what"
        " others have changed since it looked, pre-compact lets it start anew."
        " 'crdtmem setup HOST' writes the lines that call this. Whatever goes wrong is"
        " one line on stderr, and the exit status is 0.",
    ),
)
