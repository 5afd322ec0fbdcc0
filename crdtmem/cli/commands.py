"""The rest of the table: every command that click reads."""

from crdtmem.cli.grammar import Argument, Command, Option
from crdtmem.cli.options import LABEL, LINES, QUICK_COMMANDS
from crdtmem.cli.serve_options import SERVE
from crdtmem.cli.set_options import SETS

__all__ = ["COMMANDS"]

_REQUEST_ID = Option(
    ("--request-id",), "Names this call: repeated, it writes once.", is_left_out=True
)
_GUARDS = (
    Option(
        ("--expected-rev",),
        "Refuse unless the slot is still at this rev.",
        "whole",
        is_left_out=True,
    ),
    Option(
        ("--expected-hash",),
        "Refuse unless the slot still has this content hash.",
        is_left_out=True,
    ),
    _REQUEST_ID,
)
_BASE_REV = Option(
    ("--base-rev",),
    "The rev the text was made from; later writes are merged in.",
    "whole",
    is_left_out=True,
)
_TEXT_SOURCE = (
    Option(("--file",), "Read the text from this file.", called="source"),
    Option(("--keep-newline",), "Keep the final line end of what is read.", "flag"),
)
_DRY_RUN = Option(("--dry-run",), "Show what would be done; write nothing.", "flag")
_PROGRESS = Option(
    ("--progress",),
    "plain: a line on stderr each 5 s.",
    "choice",
    choices=("plain",),
    called="progress_",
)
_LIMIT_20 = Option(("--limit",), "At most so many (20).", "whole", default=20)
_TEXT = Argument("text", is_required=False)


def _meta_flag(on: str, off: str, help_text: str) -> Option:
    return Option(
        (f"--{on}",),
        help_text,
        "flag",
        off=(f"--{off}",),
        is_left_out=True,
        called={"pin": "pinned"}.get(on, ""),
    )


_WATCHING = (
    Command(
        "watch",
        "Print a line for each change, as it happens",
        "watching",
        "look",
        arguments=(Argument("labels", is_required=False, is_many=True),),
        options=(Option(("--once",), "Stop after the first change.", "flag"),),
    ),
)

_WRITING = (
    Command(
        "create",
        "Make a slot",
        "writing",
        "write",
        arguments=(LABEL, _TEXT),
        options=(
            Option(
                ("--size-limit",),
                "Most characters it may hold (2000).",
                "whole",
                is_left_out=True,
            ),
            Option(("--description",), "What the slot is for.", is_left_out=True),
            Option(("--no-pin",), "Leave it out of the context.", "flag"),
            Option(("--read-only",), "Refuse all writes.", "flag"),
            Option(("--append-only",), "Refuse all writes but appends.", "flag"),
            *_TEXT_SOURCE,
            _REQUEST_ID,
        ),
        is_text=True,
    ),
    Command(
        "append",
        "Add text to a slot, on lines of its own",
        "writing",
        "write",
        arguments=(LABEL, _TEXT),
        options=(*_TEXT_SOURCE, *_GUARDS),
        is_text=True,
        more="Appends made at the same time elsewhere all survive, whole.",
    ),
    Command(
        "replace",
        "Give a slot a new text",
        "writing",
        "write",
        arguments=(LABEL, _TEXT),
        options=(
            _BASE_REV,
            Option(("--force",), "Write over what is there, unread.", "flag"),
            *_TEXT_SOURCE,
            *_GUARDS,
        ),
        is_text=True,
        more="Needs --base-rev, --expected-rev, --expected-hash or --force.",
    ),
    Command(
        "edit",
        "Change a part of a slot, or open it in $EDITOR",
        "writing",
        "write",
        arguments=(LABEL, _TEXT),
        options=(
            Option(("--old",), "The text to be replaced, exactly."),
            Option(("--new",), "What takes its place."),
            Option(("--occurrence",), "Which one, from 1.", "whole"),
            Option(("--all",), "Every occurrence.", "flag", called="is_all"),
            Option(("--insert-after",), "Insert TEXT after this line.", "whole"),
            _BASE_REV,
            *_TEXT_SOURCE,
            *_GUARDS,
        ),
        is_text=True,
        more="Without --old and --insert-after it opens $EDITOR, and what others"
        " write meanwhile is merged in.",
    ),
    Command(
        "delete",
        "Delete a slot; undo brings it back",
        "writing",
        "write",
        arguments=(LABEL,),
        options=(Option(("--yes",), "Do not ask.", "flag"), *_GUARDS),
    ),
    Command(
        "meta",
        "Show or change what is known of a slot besides its text",
        "writing",
        "write",
        arguments=(LABEL,),
        options=(
            Option(
                ("--size-limit",),
                "Most characters it may hold.",
                "whole",
                is_left_out=True,
            ),
            Option(("--description",), "What the slot is for.", is_left_out=True),
            _meta_flag("pin", "no-pin", "Show it in the context, or not."),
            _meta_flag("read-only", "writable", "Refuse all writes, or not."),
            _meta_flag("append-only", "free", "Refuse all but appends, or not."),
            _REQUEST_ID,
        ),
    ),
)

_HISTORY = (
    Command(
        "undo",
        "Take back a write, and keep what others wrote since",
        "history",
        "read",
        arguments=(LABEL, Argument("entry_id", is_required=False)),
        options=(_DRY_RUN, *_GUARDS),
        more="Without an id: the newest write of this lane.",
    ),
    Command(
        "restore",
        "Write a kept text of a slot again",
        "history",
        "read",
        arguments=(LABEL, Argument("entry_id")),
        options=_GUARDS,
        more="Needs --expected-rev or --expected-hash.",
    ),
    Command(
        "log",
        "Show the kept history of a slot, or all changes",
        "history",
        "look",
        arguments=(Argument("label", is_required=False),),
        options=(
            _LIMIT_20,
            Option(("--by",), "Only writes of this lane."),
            Option(("-p", "--patch"), "Show what each write changed.", "flag"),
        ),
    ),
    Command(
        "diff",
        "Compare two texts of a slot, by rev or history id",
        "history",
        "look",
        arguments=(
            LABEL,
            Argument("a", is_required=False),
            Argument("b", is_required=False),
        ),
        options=(Option(("--exit-code",), "Exit with 1 if they differ.", "flag"),),
        more="Without A and B: from before the last write to now.",
    ),
    Command(
        "blame",
        "Show who wrote each line",
        "history",
        "look",
        arguments=(LABEL,),
        options=(LINES,),
    ),
)

_SEARCH = (
    Command(
        "search",
        "Find words in slots, or in the past of one",
        "searching",
        "look",
        arguments=(Argument("query", is_many=True),),
        options=(
            Option(
                ("--kind",),
                "history and archive need --label (slot).",
                "choice",
                choices=("slot", "history", "archive"),
                default="slot",
            ),
            Option(("--label",), "Only this slot."),
            Option(
                ("--mode",),
                "all words, any of them, or first all, then any (auto).",
                "choice",
                choices=("auto", "all", "any"),
                default="auto",
            ),
            Option(
                ("--sort",),
                "The best first, or the newest (relevance).",
                "choice",
                choices=("relevance", "recent"),
                default="relevance",
            ),
            _LIMIT_20,
        ),
        is_text=True,
        more='All words are wanted; "a phrase", a prefix*, -unwanted, this OR that.',
    ),
)

_STORE = (
    Command(
        "export",
        "Write all slots to a file, or to a folder of Markdown",
        "transfer",
        "look",
        arguments=(Argument("path", is_required=False),),
        options=(
            Option(
                ("--format",),
                "jsonl keeps everything, markdown the texts (jsonl).",
                "choice",
                choices=("jsonl", "markdown"),
                default="jsonl",
                called="form",
            ),
            Option(("--no-history",), "Leave out the kept past texts.", "flag"),
            _PROGRESS,
        ),
    ),
    Command(
        "import",
        "Take in an export, or a folder of Markdown",
        "transfer",
        "write",
        arguments=(Argument("path"),),
        options=(
            Option(
                ("--on-conflict",),
                "Where both sides changed (report).",
                "choice",
                choices=("report", "append", "replace"),
                default="report",
            ),
            Option(("--revive",), "Bring back slots that were deleted here.", "flag"),
            Option(("--strict",), "Write nothing if one record is bad.", "flag"),
            _DRY_RUN,
            _PROGRESS,
        ),
        more="A second run of one source changes nothing.",
    ),
    Command(
        "doctor",
        "Check the store, and repair it",
        "maintenance",
        "read",
        options=(
            Option(("--repair",), "Put right what can be.", "flag"),
            Option(("--deep",), "Read every page.", "flag"),
            _PROGRESS,
        ),
    ),
    Command(
        "compact",
        "Squash old records now",
        "maintenance",
        "read",
        options=(_PROGRESS,),
    ),
    Command(
        "backup",
        "Copy the store, consistently, while it is in use",
        "maintenance",
        "read",
        arguments=(Argument("path"),),
        options=(_PROGRESS,),
    ),
)

_CONDENSE = (
    Command(
        "condense",
        "Have the old part of a slot summarised while others write it",
        "condense",
        "read",
        arguments=(
            Argument("label", is_required=False),
            Argument("pass_id", is_required=False),
            Argument("command", is_required=False, is_many=True),
        ),
        options=tuple(
            option._replace(is_left_out=True)
            for option in (
                Option(
                    ("--label",),
                    "The slot, also one with such a name.",
                    called="named",
                ),
                Option(("--keep",), "Newest sections that stay (12).", "whole"),
                Option(("--timeout",), "Seconds that the command has.", "seconds"),
                Option(("--force",), "Though it is not due, or backing off.", "flag"),
                _DRY_RUN,
                Option(
                    ("--begin",), "Print the prompt; commit the reply later.", "flag"
                ),
                Option(("--commit",), "Commit the reply to this pass."),
                Option(("--file",), "The reply: a file, or '-' for stdin."),
                Option(("--abort",), "End this pass; the text stays as it is."),
                Option(("--all",), "Every slot that is due.", "flag", called="is_all"),
                Option(
                    ("--every",), "With --all: again each so many seconds.", "seconds"
                ),
                Option(("--limit",), "passes, log: at most so many (50).", "whole"),
                _PROGRESS,
            )
        ),
        has_command=True,
        more="The command reads the prompt on stdin and writes the summary to stdout:"
        " condense LABEL -- CMD. Without one, --begin prints the prompt and --commit"
        " takes the reply. Instead of a label: due shows which slots are due, passes"
        " the passes there were, show PASS_ID what a pass took out, log what became of"
        " all of them.",
    ),
)

_MIRROR = (
    Command(
        "mirror",
        "Keep a folder of Markdown files and the slots in step",
        "mirror",
        "write",
        arguments=(Argument("folder", is_required=False, is_many=True),),
        options=tuple(
            option._replace(is_left_out=True)
            for option in (
                Option(("--watch",), "Go on until it is stopped.", "flag"),
                Option(
                    ("--label",),
                    "Only slots of this name or pattern; may be repeated (*).",
                    is_many=True,
                ),
                Option(
                    ("--profile",),
                    "claude keeps an index of the slots in MEMORY.md (plain).",
                    "choice",
                    choices=("plain", "claude"),
                ),
                Option(
                    ("--on-delete",),
                    "What the removal of a file does to its slot (delete).",
                    "choice",
                    choices=("delete", "restore"),
                ),
                Option(("--no-create",), "Make no slots of new files.", "flag"),
                _DRY_RUN,
            )
        ),
        more="Each slot is one file, and each file one slot: what is done to either is"
        " done to the other, and what others write meanwhile stays. Without a folder it"
        " is the one of the setting mirror.dir. mirror status [FOLDER] shows what is"
        " mirrored, mirror forget FOLDER ends it and leaves the files; a folder of such"
        " a name is ./status.",
    ),
)

_SYNC = (
    Command(
        "sync",
        "Keep the memory in step with a relay",
        "sync",
        "read",
        arguments=(
            Argument("action", choices=("link", "unlink", "start", "once", "status")),
            Argument("url", is_required=False),
        ),
        options=(
            Option(("--namespace",), "link: what the relay calls it."),
            Option(
                ("--local",), "link, unlink: a project id or 'global' (the project's)."
            ),
            Option(("--token-file",), "link: the file that holds the token."),
            Option(
                ("--encrypted",), "link: so that the relay can read nothing.", "flag"
            ),
            Option(("--keyring",), "link: the file that holds the keys."),
            Option(
                ("--on-overlap",),
                "link: what becomes of slots with other texts there (refuse).",
                "choice",
                choices=("refuse", "merge", "rename"),
            ),
            Option(("--force",), "unlink: also while writes are unsent.", "flag"),
            Option(("--timeout",), "once: so many seconds at most (60).", "seconds"),
            Option(("--clear-alarms",), "status: forget the alarms.", "flag"),
            _PROGRESS,
        ),
        more="link [URL] looks at the relay and links the project's slots to it, unlink"
        " ends that, start syncs until it is stopped, once until nothing is missing on"
        " either side, status shows how far it is. The token is read from the file, or"
        " from CRDTMEM_RELAY_TOKEN; so are keys, or from CRDTMEM_RELAY_KEYRING.",
    ),
    Command(
        "key",
        "Keep the keys of encrypted namespaces",
        "key",
        "none",
        arguments=(
            Argument(
                "action", choices=("create", "export", "import", "list", "rotate")
            ),
            Argument("file", is_required=False),
        ),
        options=(Option(("--keyring",), "The file of keys (relay.keyring_file)."),),
        more="create makes a file with a first key, rotate adds a key that is used from"
        " then on, list tells which there are. export FILE copies the keys for another"
        " machine, and import FILE takes them there; '-' is stdin, fd:N a descriptor."
        " No secret is an argument, and none is printed. Needs the extra 'e2ee'.",
    ),
)

_MCP = (
    Command(
        "mcp",
        "Serve the memory to an agent's MCP client, over stdin and stdout",
        "mcp",
        "write",
        more="The client starts it; it ends when its stdin does. The lane is the"
        " client's name and a few letters, unless --lane or CRDTMEM_LANE names one."
        " Needs the extra 'mcp'.",
    ),
)

_RELAY = (
    Command(
        "relay",
        "Run a relay, or look after one",
        "relay",
        "none",
        arguments=(Argument("words", is_required=False, is_many=True),),
        is_passed_on=True,
    ),
)

_SETUP = (
    Command(
        "setup",
        "Make a client use the memory: its server, hooks and instructions",
        "setup",
        "none",
        arguments=(Argument("host", choices=("claude", "codex", "cursor")),),
        options=(
            Option(("--user",), "For all projects, not for this one.", "flag"),
            _DRY_RUN,
            Option(("--remove",), "Take out what was put in.", "flag"),
            Option(("--no-hooks",), "Leave hooks and instructions out.", "flag"),
            Option(("--no-mcp",), "Leave the MCP server out.", "flag"),
            Option(
                ("--mirror",), "claude: keep its own memory in this mirrored folder."
            ),
            Option(("--uvx",), "Run crdtmem through uvx, not from its path.", "flag"),
        ),
        more="Of files that are there only our entries change, and --remove brings back"
        " every byte; a copy of each stays beside it meanwhile, as NAME.crdtmem-bak."
        " Twice is once.",
    ),
)

_SETTINGS = (
    Command(
        "init",
        "Give this repository a project id of its own",
        "settings",
        "none",
        options=(
            Option(("--name",), "A name for people."),
            Option(("--new-id",), "Part this clone from the others.", "flag"),
        ),
    ),
    Command(
        "config",
        "Show or change settings",
        "settings",
        "none",
        arguments=(
            Argument(
                "action",
                is_required=False,
                choices=("list", "get", "set", "unset", "path"),
            ),
            Argument("key", is_required=False),
            Argument("value", is_required=False),
        ),
        is_text=True,
        more="list (the default), get KEY, set KEY VALUE, unset KEY, or path.",
    ),
    Command(
        "completion",
        "Print a completion script for a shell",
        "completion",
        "none",
        arguments=(Argument("shell", choices=("bash", "zsh", "fish")),),
        options=(
            Option(("--install",), "Add one line to the shell's own file.", "flag"),
        ),
    ),
    Command(
        "demo",
        "Show that nothing is lost: four writers, one rewriter, one kill",
        "demo",
        "none",
        options=(
            Option(("--lanes",), "Writing processes (4).", "whole", default=4),
            Option(
                ("--lines",),
                "Appends of each (50).",
                "whole",
                default=50,
                called="lines_each",
            ),
            Option(("--rng",), "Seed of the pauses (1).", "whole", default=1),
            Option(("--keep",), "Keep the store.", "flag"),
        ),
    ),
)

COMMANDS = {
    command.name: command
    for group in (
        QUICK_COMMANDS,
        _WATCHING,
        _WRITING,
        _HISTORY,
        _SEARCH,
        _STORE,
        _CONDENSE,
        _MIRROR,
        SETS,
        _SYNC,
        _MCP,
        SERVE,
        _RELAY,
        _SETUP,
        _SETTINGS,
    )
    for command in group
}
"""Every command by its name, in the order of the help."""
