"""``crdtmem completion``: a script for the shell, and the labels it completes."""

import os
from pathlib import Path

from crdtmem.cli.running import Call
from crdtmem.config import load_config
from crdtmem.config.places import home_folder, process_environment
from crdtmem.errors import CrdtmemError

__all__ = ["completion", "labels_from"]

_MARK = "# crdtmem completion"
_FILES = {
    "bash": ".bashrc",
    "zsh": ".zshrc",
    "fish": os.path.join(".config", "fish", "config.fish"),
}
_LINES = {
    "bash": f'eval "$(crdtmem completion bash)"  {_MARK}',
    "zsh": f'eval "$(crdtmem completion zsh)"  {_MARK}',
    "fish": f"crdtmem completion fish | source  {_MARK}",
}


def completion(call: Call, *, shell: str, install: bool) -> None:
    """Print click's completion script, or add a line that runs it."""
    if install:
        _install(call, shell)
        return
    # Late, because they bring in click, which the labels above do without.
    from click import shell_completion  # noqa: PLC0415 - see above

    from crdtmem.cli.tree import crdtmem  # noqa: PLC0415 - see above

    kind = {
        "bash": shell_completion.BashComplete,
        "fish": shell_completion.FishComplete,
        "zsh": shell_completion.ZshComplete,
    }[shell]
    script = kind(crdtmem, {}, "crdtmem", "_CRDTMEM_COMPLETE").source()
    if call.out.as_json:
        call.out.json({"shell": shell, "script": script})
    else:
        call.out.text(script)


def labels_from(store: str | None, start: str) -> list[str]:
    """Return the labels that begin so, read without a trace.

    Without a store there are none: a completion has nobody to tell an error to, and
    the command that follows will tell it.
    """
    from crdtmem import opening  # noqa: PLC0415 - loads the store

    try:
        config = load_config(options={"store": store})
        with opening.open_with(config, read_only=True, create=False) as memory:
            views = memory.slots(content=False)
    except CrdtmemError:
        return []
    return [view.label for view in views if view.label.startswith(start)]


def _install(call: Call, shell: str) -> None:
    """Add one marked line to the shell's own file; twice is once."""
    path = Path(home_folder(process_environment()), _FILES[shell])
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    is_new = _MARK not in old
    if is_new:
        path.parent.mkdir(parents=True, exist_ok=True)
        gap = "\n" if old and not old.endswith("\n") else ""
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{gap}{_LINES[shell]}\n")
    if call.out.as_json:
        call.out.json({"shell": shell, "path": str(path), "changed": is_new})
    else:
        call.out.line(f"{path}: {'one line added' if is_new else 'already there'}")
