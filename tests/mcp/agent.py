"""A model's side of a session: calls, and what comes back in its different parts."""

import json
from typing import Any

from mcp.client import Client
from mcp_types import CallToolResult, TextContent

from crdtmem.mcp.session import AgentSession

__all__ = ["Agent", "Refusal", "texts_of"]


class Refusal(Exception):
    """A call was answered with an error.

    Attributes:
        code: Of the error.
        text: All that a model is shown.
        body: The error as JSON values.

    """

    def __init__(self, result: CallToolResult) -> None:
        self.text = "\n".join(texts_of(result))
        structured = result.structured_content
        assert isinstance(structured, dict)
        self.body: dict[str, Any] = structured["error"]
        self.code: str = self.body["code"]
        super().__init__(self.text)
        assert self.text.startswith(f"{self.code}: {self.body['message']}")


class Agent:
    """Calls tools by their short names: ``get`` is ``memory_slot_get``.

    The SDK's client checks structured replies against the schema that was listed.
    """

    def __init__(self, client: Client, session: AgentSession) -> None:
        self.client = client
        self.session = session

    async def call(self, tool: str, **arguments: Any) -> CallToolResult:
        """Return a reply.

        Raises:
            Refusal: If it is an error.

        """
        whole = tool in ("search", "changes", "status")
        name = f"memory_{tool}" if whole else f"memory_slot_{tool}"
        result = await self.client.call_tool(name, arguments)
        assert isinstance(result, CallToolResult)
        if result.is_error:
            raise Refusal(result)
        return result

    async def figures(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Return the figures of a structured reply, which are told both ways."""
        result = await self.call(tool, **arguments)
        structured = result.structured_content
        assert isinstance(structured, dict)
        shown = json.loads(texts_of(result)[0])
        assert shown == {
            name: value
            for name, value in structured.items()
            if name not in ("diff", "changedSince")
        }
        return structured

    async def read(self, tool: str, **arguments: Any) -> tuple[dict[str, Any], str]:
        """Return head and text of a reply that shows text, without its footer."""
        result = await self.call(tool, **arguments)
        assert result.structured_content is None
        head, *blocks = texts_of(result)
        if blocks and blocks[-1].startswith("changed since your last read"):
            blocks.pop()
        return json.loads(head), "".join(blocks)

    async def text(self, label: str) -> str:
        """Return a slot's text."""
        return (await self.read("get", label=label))[1]


def texts_of(result: CallToolResult) -> list[str]:
    """Return the blocks of a reply."""
    assert all(isinstance(block, TextContent) for block in result.content)
    return [block.text for block in result.content if isinstance(block, TextContent)]
