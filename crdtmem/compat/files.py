"""Slots as the files of a memory tool: its six commands over the verbs of a Memory.

Each command takes the memory that it works on, so that the tool and its asynchronous
twin share this code. What is said to the model, good or bad, is the text that such
tools are known by; see ``crdtmem.compat.paths`` for which slot a path names.

Every edit is made by a verb, in its one transaction, on the newest text. A line number
is counted in the text that the model was shown, and what others wrote since is kept.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from crdtmem.arguments import checked_size_limit
from crdtmem.compat.paths import ROOT, MemoryPath, label_of, parse_path, path_of
from crdtmem.doc.text_form import view_lines
from crdtmem.errors import (
    ConflictError,
    EditError,
    RevNotKeptError,
    SlotExistsError,
    SlotNotFoundError,
)
from crdtmem.headroom import content_hash
from crdtmem.memory import Memory
from crdtmem.models import Scope, Unset, WriteResult
from crdtmem.scope import parse_scope
from crdtmem.slot import Slot

__all__ = ["FILE_UNITS", "FileError", "MemoryFiles"]

FILE_UNITS = 20_000
"""Limit of a file that is made here: what models put into one, and still can read."""

_LEVELS = 2
# Attempts on a text that others change all the time; each failure is their success.
_TRIES = 20
_EMPTY_HASH = content_hash("")
_SIZES = ("B", "K", "M", "G")


class FileError(Exception):
    """A command was refused, and nothing was written; says why, to the model."""


class _Tree(NamedTuple):
    """The files there are, by path below the root, with their sizes."""

    files: Mapping[str, int]

    def below(self, folder: str) -> list[str]:
        """Return the files in a folder, however deep; "" is the root."""
        start = f"{folder}/" if folder else ""
        return sorted(inner for inner in self.files if inner.startswith(start))

    def is_folder(self, inner: str) -> bool:
        """Tell whether there is a file below; the root is always there."""
        return inner == "" or bool(self.below(inner))

    def in_the_way(self, inner: str) -> str | None:
        """Return what keeps a path from becoming a file, if anything does."""
        if inner in self.files or self.is_folder(inner):
            return inner
        parts = inner.split("/")
        above = ("/".join(parts[:depth]) for depth in range(1, len(parts)))
        return next((path for path in above if path in self.files), None)


class MemoryFiles:
    """What one tool has shown to its model, and the commands.

    Args:
        scope: Where the slots are that are its files.
        size_limit: Limit of the files that it makes, in UTF-16 units.

    Raises:
        InvalidArgumentError: If an argument is malformed.

    """

    def __init__(self, scope: Scope, size_limit: int) -> None:
        self.scope: Scope = parse_scope(scope, optional=False) or "project"
        self.size_limit = checked_size_limit(size_limit)
        # The rev of each slot whose lines the model can count.
        self._shown: dict[str, int] = {}

    def view(self, memory: Memory, command: object) -> str:
        """Return a file with line numbers, or what is in a folder."""
        path = _path_in(command, "path")
        tree = self._tree(memory)
        if path.inner not in tree.files or path.is_folder:
            self._require_folder(tree, path)
            return _listing(tree, path)
        label = label_of(path.inner)
        try:
            view = memory.slot(label, self.scope).read()
        except SlotNotFoundError as exc:
            raise _vanished(path) from exc
        lines = str(view.content).split("\n")
        first, last = _range_in(command, len(lines))
        self._shown[label] = view.rev
        head = f"Here's the content of {path.whole} with line numbers:"
        return f"{head}\n{_numbered(lines, first, last)}"

    def create(self, memory: Memory, command: object) -> str:
        """Make a file that was not there."""
        path = _file_path_in(command, "path")
        text = _text_in(command, "file_text")
        label = label_of(path.inner)
        if (taken := self._tree(memory).in_the_way(path.inner)) is not None:
            raise _exists(taken)
        try:
            result = memory.create(
                label, text, scope=self.scope, size_limit=self.size_limit
            )
        except SlotExistsError:
            slot = memory.slot(label, self.scope)
            result = self._fill_template(slot, path, text)
        self._shown[label] = result.rev
        return f"File created successfully at: {path.whole}"

    def str_replace(self, memory: Memory, command: object) -> str:
        """Replace a text that stands in a file once."""
        path = _file_path_in(command, "path")
        old = _text_in(command, "old_str")
        new = _text_in(command, "new_str", default="")
        if not old:
            raise FileError("No replacement was performed: old_str is empty")
        slot = self._slot(memory, path)
        try:
            result = slot.edit(old, new)
        except EditError as exc:
            raise FileError(_mismatch(exc, old, path)) from exc
        except SlotNotFoundError as exc:
            raise _vanished(path) from exc
        text = str(result.content)
        first, last = _span_of(result, new)
        snippet = _numbered(text.split("\n"), first - 2, last + 2)
        return (
            "The memory file has been edited. Here is the snippet showing the change"
            f" (with line numbers):\n{snippet}{self._news(slot, result)}"
        )

    def insert(self, memory: Memory, command: object) -> str:
        """Put lines behind a line of a file, 0 for its top."""
        path = _file_path_in(command, "path")
        line = _insert_line_in(command)
        text = _text_in(command, "insert_text")
        slot = self._slot(memory, path)
        try:
            result = self._insert(slot, line, text or "\n")
        except SlotNotFoundError as exc:
            raise _vanished(path) from exc
        return f"The file {path.whole} has been edited.{self._news(slot, result)}"

    def delete(self, memory: Memory, command: object) -> str:
        """Delete a file, or a folder with all that is in it."""
        path = _path_in(command, "path")
        if not path.inner:
            raise FileError(f"Cannot delete the {ROOT} directory itself")
        for _ in range(_TRIES):
            found = self._named(memory, path)
            try:
                self._delete(memory, found)
            except SlotNotFoundError as exc:
                # Nothing was deleted; a folder is looked at anew.
                if found == [path.inner]:
                    raise _vanished(path) from exc
                continue
            return f"Successfully deleted {path.whole}"
        raise _unsteady(path.whole)

    def rename(self, memory: Memory, command: object) -> str:
        """Rename a file, or a folder with all that is in it."""
        old = _path_in(command, "old_path")
        new = _path_in(command, "new_path")
        if not (old.inner and new.inner):
            raise FileError(f"Cannot rename the {ROOT} directory itself")
        for _ in range(_TRIES):
            found = self._named(memory, old)
            try:
                self._rename(memory, found, old, new)
            except SlotNotFoundError as exc:
                if found == [old.inner]:
                    raise _vanished(old) from exc
                continue
            except SlotExistsError as exc:
                raise _taken(new) from exc
            return f"Successfully renamed {old.whole} to {new.whole}"
        raise _unsteady(old.whole)

    def clear(self, memory: Memory) -> str:
        """Delete every file; each can be had back from its slot's history."""
        for _ in range(_TRIES):
            try:
                self._delete(memory, list(self._tree(memory).files))
            except SlotNotFoundError:
                continue
            return "All memory cleared"
        raise _unsteady(ROOT)

    def _tree(self, memory: Memory) -> _Tree:
        """Return the files. A default slot is one from its first write on."""
        views = memory.slots(self.scope, templates=False, content=False)
        return _Tree({path_of(view.label): view.size for view in views})

    def _named(self, memory: Memory, path: MemoryPath) -> list[str]:
        """Return the files that a path of a file or folder names."""
        tree = self._tree(memory)
        if path.inner in tree.files and not path.is_folder:
            return [path.inner]
        self._require_folder(tree, path)
        return tree.below(path.inner)

    def _require_folder(self, tree: _Tree, path: MemoryPath) -> None:
        if not tree.is_folder(path.inner):
            raise self._missing(path)

    def _slot(self, memory: Memory, path: MemoryPath) -> Slot:
        """Return the slot of a file that is there."""
        tree = self._tree(memory)
        if path.inner not in tree.files:
            if tree.is_folder(path.inner):
                raise _no_file(path)
            raise self._missing(path)
        return memory.slot(label_of(path.inner), self.scope)

    def _missing(self, path: MemoryPath) -> FileError:
        if not path.is_folder and label_of(path.inner) in self._shown:
            return _vanished(path)
        return FileError(
            f"The path {path.whole} does not exist. Please provide a valid path."
        )

    def _fill_template(self, slot: Slot, path: MemoryPath, text: str) -> WriteResult:
        """Make a file of a default slot that nobody has written yet."""
        if not slot.read().template:
            raise _exists(path.inner)
        try:
            # Both guards: a slot that came by sync can hold a text at rev 0.
            result = slot.replace(text, expected_rev=0, expected_hash=_EMPTY_HASH)
        except ConflictError as exc:
            raise _exists(path.inner) from exc
        if not text:
            slot.set_meta(size_limit=self.size_limit)
        return result

    def _insert(self, slot: Slot, line: int, text: str) -> WriteResult:
        """Insert behind a line of the text that was shown, or else of the newest."""
        shown = self._shown.get(slot.label)
        if shown is not None:
            with suppress(RevNotKeptError):
                return _insert_at(slot, shown, line, text)
        for _ in range(_TRIES):
            # Not by a read, which would count as the lane's having seen the text.
            rev = slot.history(1).current.rev
            with suppress(RevNotKeptError):
                # Of the place in a text that is no longer kept, the number is left.
                is_lost = shown is not None
                return _insert_at(slot, rev, line, text, is_lost=is_lost)
        raise _unsteady(f"{ROOT}/{path_of(slot.label)}")

    def _delete(self, memory: Memory, found: list[str]) -> None:
        labels = [label_of(inner) for inner in found]
        if labels:
            memory.delete_many(labels, self.scope)
        self._forget(labels)

    def _rename(
        self, memory: Memory, found: list[str], old: MemoryPath, new: MemoryPath
    ) -> None:
        is_inside = f"{new.inner}/".startswith(f"{old.inner}/")
        if is_inside or self._tree(memory).in_the_way(new.inner) is not None:
            raise _taken(new)
        if new.is_folder and found == [old.inner]:
            raise _no_file(new)
        targets = [new.inner + inner.removeprefix(old.inner) for inner in found]
        labels = [label_of(inner) for inner in found]
        memory.rename(
            list(zip(labels, map(label_of, targets), strict=True)), self.scope
        )
        self._forget(labels)

    def _forget(self, labels: Iterable[str]) -> None:
        for label in labels:
            self._shown.pop(label, None)

    def _news(self, slot: Slot, result: WriteResult) -> str:
        """Return the whole text where others changed what was shown, and note it."""
        shown = self._shown.get(slot.label)
        if shown is None:
            return ""
        self._shown[slot.label] = result.rev
        if result.previous_rev == shown:
            return ""
        text = _numbered(str(result.content).split("\n"))
        return f"\nOthers changed it since you saw it; it now reads:\n{text}"


def _insert_at(
    slot: Slot, rev: int, line: int, text: str, *, is_lost: bool = False
) -> WriteResult:
    """Insert behind a line of the text at a rev; past its end only if that was lost."""
    count = len(view_lines(str(slot.read(at_rev=rev).content).removesuffix("\n")))
    if is_lost:
        line = min(line, count)
    if not 0 <= line <= count:
        raise FileError(
            f"Invalid `insert_line` parameter: {line}."
            f" It should be within the range [0, {count}]."
        )
    return slot.insert(line, text, base_rev=rev)


def _field_in(command: object, name: str) -> object:
    if isinstance(command, Mapping):
        return command.get(name)
    return getattr(command, name, None)


def _text_in(command: object, name: str, default: str | None = None) -> str:
    value = _field_in(command, name)
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        raise FileError(f"{name} required: a string, not {type(value).__name__}")
    return value


def _insert_line_in(command: object) -> int:
    value = _field_in(command, "insert_line")
    if not isinstance(value, int) or isinstance(value, bool):
        kind = type(value).__name__
        raise FileError(f"insert_line required: an integer, not {kind}")
    return value


def _path_in(command: object, name: str) -> MemoryPath:
    return parse_path(_text_in(command, name))


def _file_path_in(command: object, name: str) -> MemoryPath:
    path = _path_in(command, name)
    if not path.inner or path.is_folder:
        raise _no_file(path)
    return path


def _range_in(command: object, count: int) -> tuple[int, int]:
    """Return the first and last line that are wanted of so many."""
    value = _field_in(command, "view_range")
    if value is None:
        return 1, count
    if isinstance(value, (list, tuple)) and [type(one) for one in value] == [int, int]:
        first, last = value
        last = count if last == -1 else last
        if 1 <= first <= min(last, count):
            return first, last
    raise FileError(
        f"Invalid `view_range` parameter: {value!r:.80}. It should be the first and"
        f" the last line, within [1, {count}]; -1 as the last is the end."
    )


def _numbered(lines: list[str], first: int = 1, last: int | None = None) -> str:
    start = max(1, first)
    shown = lines[start - 1 : last]
    return "\n".join(f"{n:6d}\t{line}" for n, line in enumerate(shown, start))


def _span_of(result: WriteResult, new: str) -> tuple[int, int]:
    """Return the lines of an edit, or where its text stood already."""
    if not isinstance(result.lines, Unset):
        return result.lines
    text = str(result.content)
    line = text.count("\n", 0, max(0, text.find(new))) + 1
    return line, line + new.count("\n")


def _listing(tree: _Tree, path: MemoryPath) -> str:
    """Return a folder's files and folders, each with its size, as ``du`` does."""
    sizes: dict[str, int] = {}
    total = 0
    start_chars = len(path.inner) + 1 if path.inner else 0
    for inner in tree.below(path.inner):
        parts = inner[start_chars:].split("/")
        total += tree.files[inner]
        if any(part.startswith(".") for part in parts):
            continue
        for depth in range(1, min(len(parts), _LEVELS) + 1):
            end = "/" if depth < len(parts) else ""
            name = "/".join(parts[:depth]) + end
            sizes[name] = sizes.get(name, 0) + tree.files[inner]
    names = sorted(sizes, key=lambda name: name.split("/"))
    head = f"Here're the files and directories up to {_LEVELS} levels deep in"
    lines = [
        f"{head} {path.whole}, excluding hidden items:",
        f"{_size(total)}\t{path.whole}",
        *(f"{_size(sizes[name])}\t{path.whole}/{name}" for name in names),
    ]
    return "\n".join(lines)


def _size(size: int) -> str:
    """Return a size as people write it: 0B, 1.5K."""
    power = 0
    while size >= 1024 ** (power + 1) and power < len(_SIZES) - 1:
        power += 1
    value = f"{size / 1024**power:.1f}".removesuffix(".0")
    return f"{value}{_SIZES[power]}"


def _mismatch(error: EditError, old: str, path: MemoryPath) -> FileError:
    """Say why a text was not replaced."""
    details = error.details
    lines = details.get("lines")
    if isinstance(lines, list):
        more = int(str(details["count"])) - len(lines)
        shown = ", ".join(map(str, lines)) + (f" and {more} more" if more else "")
        return FileError(
            "No replacement was performed. Multiple occurrences of old_str"
            f" `{old}` in lines: {shown}. Please ensure it is unique"
        )
    near = ""
    if "hint" in details:
        near = f" Line {details['line']} differs only in {details['hint']}."
    return FileError(
        f"No replacement was performed, old_str `{old}` did not appear verbatim in"
        f" {path.whole}.{near}"
    )


def _exists(inner: str) -> FileError:
    return FileError(f"File {ROOT}/{inner} already exists")


def _taken(path: MemoryPath) -> FileError:
    return FileError(f"The destination {path.whole} already exists")


def _no_file(path: MemoryPath) -> FileError:
    return FileError(f"The path {path.whole} is not a file.")


def _vanished(path: MemoryPath) -> FileError:
    return FileError(
        f"The file {path.whole} no longer exists: it was deleted or renamed meanwhile."
    )


def _unsteady(path: str) -> FileError:
    return FileError(f"{path} could not be changed: others change it all the time")
