"""``crdtmem setup``: make a client use the memory, and take all of it out again."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from crdtmem.cli.running import Call
from crdtmem.cli.setup_edits import Edit, UneditableError
from crdtmem.cli.setup_files import (
    FileChange,
    backup_of,
    change_to_put,
    change_to_take,
    read_file,
)
from crdtmem.cli.setup_hosts import Host, Wanted, is_our_server, mirror_edit, plan
from crdtmem.config.places import home_folder, process_environment
from crdtmem.errors import ConfigTakenError, InvalidArgumentError

__all__ = ["own_command", "setup"]

LEFT_TO_DO = 10
_REGISTER_S = 60
_UVX = ("uvx", "--from", "crdtmem[mcp]", "crdtmem")
_MIRROR_FILE = ".claude/settings.local.json"
# Where a client keeps what is the user's: a variable, and a folder of the home.
_USER_FOLDERS = {
    "claude": ("CLAUDE_CONFIG_DIR", ".claude"),
    "codex": ("CODEX_HOME", ".codex"),
    "cursor": ("", ".cursor"),
}


def setup(
    call: Call,
    *,
    host: Host,
    user: bool,
    dry_run: bool,
    remove: bool,
    no_hooks: bool,
    no_mcp: bool,
    mirror: str | None,
    uvx: bool,
) -> int | None:
    """Put the memory into a client's files, or take it out of them."""
    if mirror is not None and (host != "claude" or user):
        message = "--mirror is for claude, and for one project"
        raise InvalidArgumentError("mirror", message, code="usage")
    command = _UVX if uvx else own_command(sys.argv[0], sys.executable)
    wanted = Wanted(command, is_user=user, hooks=not no_hooks, mcp=not no_mcp)
    base = _user_folder(host) if user else call.config.project_folder
    planned = plan(host, wanted)
    files = dict(planned.files)
    if host == "claude" and not user:
        files |= _mirror_file(base, mirror, remove=remove)
    changes = _changes(files, base, is_user=user, remove=remove)
    steps = _steps(planned.register, remove=remove) if planned.register else []
    notes = [] if remove else [*planned.notes, *_mirror_notes(mirror)]
    return _do(call, changes, steps, notes, dry_run=dry_run)


def own_command(program: str, python: str) -> tuple[str, ...]:
    """Return how this very crdtmem is run: graphical clients lack a shell's PATH.

    Links are not followed: they stay when what they name is replaced by a newer one.

    Args:
        program: The name that the process was started by.
        python: The Python that runs it.

    """
    beside = Path(python).with_name("crdtmem")
    for path in (Path(program), beside, beside.with_suffix(".exe")):
        if path.stem == "crdtmem" and path.is_file():
            return (os.path.abspath(path),)
    return (python, "-m", "crdtmem.cli")


def _user_folder(host: Host) -> Path:
    variable, folder = _USER_FOLDERS[host]
    environ = process_environment()
    named = environ.get(variable, "")
    return Path(named) if named else Path(home_folder(environ), folder)


def _changes(
    files: dict[str, Sequence[Edit]], base: Path, *, is_user: bool, remove: bool
) -> list[FileChange]:
    """Return what becomes of each file; if one cannot be edited, none is."""
    change = change_to_take if remove else change_to_put
    within = None if is_user else base
    return [
        change(base / name, edits, base=base, within=within)
        for name, edits in files.items()
    ]


def _mirror_file(
    base: Path, mirror: str | None, *, remove: bool
) -> dict[str, Sequence[Edit]]:
    folder = None if mirror is None else os.path.abspath(mirror)
    if folder is None and remove:
        folder = _mirror_of(base / _MIRROR_FILE, base)
    return {} if folder is None else {_MIRROR_FILE: [mirror_edit(folder)]}


def _mirror_of(path: Path, base: Path) -> str | None:
    """Return the mirror that a former call has put into a file, None for none.

    It was ours if it was not there before: not in the copy or, where there is no copy,
    in a file that has just what would be in it if it was made for that.
    """
    folder = _read_json(path, within=base).get("autoMemoryDirectory")
    if not isinstance(folder, str):
        return None
    if backup_of(path).exists():
        before = _read_json(backup_of(path), within=base)
        return None if "autoMemoryDirectory" in before else folder
    is_made = read_file(path, within=base) == mirror_edit(folder).put(None)
    return folder if is_made else None


def _mirror_notes(mirror: str | None) -> list[str]:
    if mirror is None:
        return []
    folder = shlex.quote(os.path.abspath(mirror))
    return [
        f"keep it in step: crdtmem mirror {folder} --profile claude --watch",
        "Claude Code shows the folder with /memory",
    ]


def _steps(
    register: tuple[tuple[str, ...], tuple[str, ...]], *, remove: bool
) -> list[tuple[str, ...]]:
    """Return what Claude Code's own program has to be told.

    Its state is looked at and never edited: that program writes it all the time.

    Raises:
        ConfigTakenError: If it has a server of our name that is not ours.

    """
    add, take = register
    path = _state_path()
    servers = _read_json(path, within=None).get("mcpServers")
    found = servers.get("crdtmem") if isinstance(servers, dict) else None
    if found is None:
        return [] if remove else [add]
    if not is_our_server(found):
        if remove:
            return []
        raise ConfigTakenError(
            path=str(path),
            entry="mcpServers.crdtmem",
            snippet=shlex.join(["claude", *add]),
        )
    if remove:
        return [take]
    program, *arguments = add[add.index("--") + 1 :]
    is_same = (found["command"], found["args"]) == (program, arguments)
    return [] if is_same else [take, add]


def _state_path() -> Path:
    environ = process_environment()
    named = environ.get("CLAUDE_CONFIG_DIR", "")
    return Path(named or home_folder(environ), ".claude.json")


def _read_json(path: Path, *, within: Path | None) -> dict[str, Any]:
    """Return what a file holds, nothing where it cannot be read."""
    try:
        found = json.loads(read_file(path, within=within) or "{}")
    except (OSError, UneditableError, ValueError, RecursionError):
        # Only looked at; what edits the file says what is wrong with it.
        return {}
    return found if isinstance(found, dict) else {}


def _do(
    call: Call,
    changes: Sequence[FileChange],
    steps: Sequence[Sequence[str]],
    notes: Sequence[str],
    *,
    dry_run: bool,
) -> int | None:
    left: list[str] = []
    is_done = True
    if not dry_run:
        for change in changes:
            change.apply()
        is_done = _run_steps(call, steps, left)
    if call.out.as_json:
        call.out.json(_report(changes, steps, left, notes, dry_run=dry_run))
    else:
        _print(call, changes, steps, left, notes, dry_run=dry_run)
    return None if is_done else LEFT_TO_DO


def _run_steps(call: Call, steps: Sequence[Sequence[str]], left: list[str]) -> bool:
    """Run Claude Code's program; what is left to people is added to a list."""
    program = shutil.which("claude", path=process_environment().get("PATH"))
    if program is None:
        left += [shlex.join(["claude", *step]) for step in steps]
        return True
    for number, step in enumerate(steps):
        reason = _run_step([program, *step])
        if reason:
            left += [shlex.join(["claude", *rest]) for rest in steps[number:]]
            call.out.warn(f"{shlex.join(['claude', *step])}: {reason}")
            return False
    return True


def _run_step(line: Sequence[str]) -> str:
    """Run a program; return why it failed, or nothing."""
    try:
        result = subprocess.run(
            line,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_REGISTER_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        return str(exc)
    if not result.returncode:
        return ""
    said = (result.stderr or result.stdout).decode(errors="replace").strip()
    return f"status {result.returncode}, {said[:300]!r}"


def _report(
    changes: Sequence[FileChange],
    steps: Sequence[Sequence[str]],
    left: Sequence[str],
    notes: Sequence[str],
    *,
    dry_run: bool,
) -> dict[str, object]:
    files: list[dict[str, object]] = [
        {"path": str(change.path), "change": change.word, "diff": change.diff}
        for change in changes
    ]
    return {
        "dryRun": dry_run,
        "files": files,
        "commands": [shlex.join(["claude", *step]) for step in steps],
        "leftToDo": list(left),
        "notes": list(notes),
    }


def _print(
    call: Call,
    changes: Sequence[FileChange],
    steps: Sequence[Sequence[str]],
    left: Sequence[str],
    notes: Sequence[str],
    *,
    dry_run: bool,
) -> None:
    say: Callable[[str], None] = call.out.note if dry_run else call.out.line
    for change in changes:
        if dry_run:
            call.out.diff(change.diff)
        say(f"{change.path}: {'would be ' if dry_run else ''}{change.word}")
    for step in steps if dry_run else ():
        call.out.line(f"would run: {shlex.join(['claude', *step])}")
    for line in left:
        call.out.line(f"run this yourself: {line}")
    for note in notes:
        call.out.note(note)
