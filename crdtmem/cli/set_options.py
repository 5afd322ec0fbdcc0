"""The row of the table for ``set``: memory sets have many options."""

from crdtmem.cli.grammar import Argument, Command, Option

__all__ = ["SETS"]

SETS = (
    Command(
        "set",
        "Keep items with metadata in sets, apart by partition",
        "sets",
        "read",
        arguments=(
            Argument(
                "action",
                choices=(
                    "list",
                    "get",
                    "add",
                    "update",
                    "search",
                    "delete",
                    "drop",
                    "history",
                    "undo",
                ),
            ),
            Argument("name", is_required=False),
            Argument("words", is_required=False, is_many=True),
        ),
        options=tuple(
            option._replace(is_left_out=True)
            for option in (
                Option(("--partition",), "Whose sets: a name (main)."),
                Option(("--partition-json",), "A key that is no name, as JSON."),
                Option(
                    ("--filter",),
                    "get, search: a filter of metadata, as JSON.",
                    called="filter_",
                ),
                Option(("--limit",), "At most so many (get 100).", "whole"),
                Option(
                    ("--order",),
                    "get: which come first (newest).",
                    "choice",
                    choices=("newest", "oldest"),
                ),
                Option(("--cursor",), "get: go on where another page ended."),
                Option(
                    ("--mode",),
                    "search: hits with all words, with any, or first all (auto).",
                    "choice",
                    choices=("auto", "all", "any"),
                ),
                Option(
                    ("--sort",),
                    "search: order of the hits (relevance).",
                    "choice",
                    choices=("relevance", "recent"),
                ),
                Option(
                    ("--jsonl",),
                    "add -: lines are objects with text, metadata, id.",
                    "flag",
                ),
                Option(("--metadata",), "add, update: a JSON object."),
                Option(("--create",), "update: add the item if it is absent.", "flag"),
                Option(("--all",), "delete: every item.", "flag", called="is_all"),
                Option(("--yes",), "delete, drop: do not ask.", "flag"),
                Option(("--before",), "history: older than this rev.", "whole"),
                Option(
                    ("--expected-rev",),
                    "update: refuse unless the item is still at this rev.",
                    "whole",
                ),
                Option(
                    ("--request-id",),
                    "Names this call: repeated, it writes once.",
                ),
            )
        ),
        is_text=True,
        more="list shows the sets of a partition; get NAME [ID...] prints items, add"
        " NAME TEXT... adds them, '-' one for each line of stdin; update NAME ID [TEXT]"
        " changes one; search NAME QUERY finds them; delete NAME ID..., or --all,"
        " deletes them, drop NAME also the set; history NAME [ID] shows what was"
        " changed, and undo NAME REV takes it back. What one partition holds no other"
        " one sees.",
    ),
)
"""The commands of memory sets."""
