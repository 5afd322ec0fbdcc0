"""The memory tool of Anthropic's Python SDK, kept in slots instead of files.

Give one to ``client.beta.messages.run_tools(tools=[CrdtMemoryTool(memory)], ...)``.
What the commands do and say stands in ``crdtmem.compat.files``; here they are methods
of the SDK's two abstract tools, and their refusals the SDK's ``ToolError``.

Needs the package ``anthropic``, which crdtmem does not bring along.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from crdtmem.compat.files import FILE_UNITS, FileError, MemoryFiles
from crdtmem.errors import CrdtmemError

try:
    from anthropic.lib.tools import ToolError
    from anthropic.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool
except ImportError as exc:
    raise ImportError(
        "crdtmem.compat.anthropic needs the package 'anthropic', from 2.14 on;"
        " run 'pip install anthropic'"
    ) from exc

if TYPE_CHECKING:
    from anthropic.types.beta import (
        BetaCacheControlEphemeralParam,
        BetaMemoryTool20250818CreateCommand as Create,
        BetaMemoryTool20250818DeleteCommand as Delete,
        BetaMemoryTool20250818InsertCommand as Insert,
        BetaMemoryTool20250818RenameCommand as Rename,
        BetaMemoryTool20250818StrReplaceCommand as StrReplace,
        BetaMemoryTool20250818ViewCommand as View,
    )

    from crdtmem.aio import AsyncMemory
    from crdtmem.memory import Memory
    from crdtmem.models import Scope

__all__ = ["AsyncCrdtMemoryTool", "CrdtMemoryTool"]


class CrdtMemoryTool(BetaAbstractMemoryTool):
    """A memory tool over a Memory: one slot a file, shared with all who use the store.

    Files are made with ``create``; slots that others made appear as files, too. No edit
    is lost to another session's, and every one is in its slot's history.

    Args:
        memory: Where the slots are; stays the caller's, who closes it.
        scope: Which slots are the files: those of the project, or the global ones.
        size_limit: Limit of the files that the model makes, in UTF-16 units.
        cache_control: As in the SDK.

    Raises:
        InvalidArgumentError: If scope or size_limit is malformed.

    """

    def __init__(
        self,
        memory: "Memory",
        *,
        scope: "Scope" = "project",
        size_limit: int = FILE_UNITS,
        cache_control: "BetaCacheControlEphemeralParam | None" = None,
    ) -> None:
        super().__init__(cache_control=cache_control)
        self._memory = memory
        self._files = MemoryFiles(scope, size_limit)

    def view(self, command: "View") -> str:
        """Return a file with line numbers, or what is in a folder.

        Raises:
            ToolError: If there is no such file, or no such lines in it.

        """
        return self._do(lambda memory: self._files.view(memory, command))

    def create(self, command: "Create") -> str:
        """Make a file that was not there.

        Raises:
            ToolError: If it is there, or its text too long.

        """
        return self._do(lambda memory: self._files.create(memory, command))

    def str_replace(self, command: "StrReplace") -> str:
        """Replace a text that stands in a file once.

        Raises:
            ToolError: If it does not, or the result is too long.

        """
        return self._do(lambda memory: self._files.str_replace(memory, command))

    def insert(self, command: "Insert") -> str:
        """Put lines behind a line of a file, as the model was shown it.

        Raises:
            ToolError: If there is no such line, or the result is too long.

        """
        return self._do(lambda memory: self._files.insert(memory, command))

    def delete(self, command: "Delete") -> str:
        """Delete a file, or a folder with all that is in it, in one transaction.

        Raises:
            ToolError: If it is not there.

        """
        return self._do(lambda memory: self._files.delete(memory, command))

    def rename(self, command: "Rename") -> str:
        """Rename a file, or a folder with all that is in it, in one transaction.

        Raises:
            ToolError: If it is not there, or the new path is taken.

        """
        return self._do(lambda memory: self._files.rename(memory, command))

    def clear_all_memory(self) -> str:
        """Delete every file; each can be had back from its slot's history.

        Raises:
            ToolError: If one of them is read-only; then none is deleted.

        """
        return self._do(self._files.clear)

    def _do(self, command: "Callable[[Memory], str]") -> str:
        return _told(command, self._memory)


class AsyncCrdtMemoryTool(BetaAsyncAbstractMemoryTool):
    """The same tool as coroutines, over an AsyncMemory.

    Args as for CrdtMemoryTool.
    """

    def __init__(
        self,
        memory: "AsyncMemory",
        *,
        scope: "Scope" = "project",
        size_limit: int = FILE_UNITS,
        cache_control: "BetaCacheControlEphemeralParam | None" = None,
    ) -> None:
        super().__init__(cache_control=cache_control)
        self._memory = memory
        self._files = MemoryFiles(scope, size_limit)

    async def view(self, command: "View") -> str:
        """Return a file or a folder; see ``CrdtMemoryTool.view``."""
        return await self._do(lambda memory: self._files.view(memory, command))

    async def create(self, command: "Create") -> str:
        """Make a file; see ``CrdtMemoryTool.create``."""
        return await self._do(lambda memory: self._files.create(memory, command))

    async def str_replace(self, command: "StrReplace") -> str:
        """Replace a text; see ``CrdtMemoryTool.str_replace``."""
        return await self._do(lambda memory: self._files.str_replace(memory, command))

    async def insert(self, command: "Insert") -> str:
        """Put lines into a file; see ``CrdtMemoryTool.insert``."""
        return await self._do(lambda memory: self._files.insert(memory, command))

    async def delete(self, command: "Delete") -> str:
        """Delete a file or a folder; see ``CrdtMemoryTool.delete``."""
        return await self._do(lambda memory: self._files.delete(memory, command))

    async def rename(self, command: "Rename") -> str:
        """Rename a file or a folder; see ``CrdtMemoryTool.rename``."""
        return await self._do(lambda memory: self._files.rename(memory, command))

    async def clear_all_memory(self) -> str:
        """Delete every file; see ``CrdtMemoryTool.clear_all_memory``."""
        return await self._do(self._files.clear)

    async def _do(self, command: "Callable[[Memory], str]") -> str:
        return await self._memory.call(lambda memory: _told(command, memory))


def _told(command: "Callable[[Memory], str]", memory: "Memory") -> str:
    """Do a command; tell the model of a refusal in the way that the SDK knows."""
    try:
        return command(memory)
    except FileError as exc:
        raise ToolError(str(exc)) from exc
    except CrdtmemError as exc:
        raise ToolError(f"{exc.message}\n{exc.hint}".strip()) from exc
