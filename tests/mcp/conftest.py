"""What the tests of the MCP server share: a store, another lane on it, and clients."""

import importlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client

import crdtmem
from crdtmem.mcp.server import build_server
from crdtmem.mcp.session import AgentSession, Opened
from crdtmem.memory import Memory
from tests.mcp.agent import Agent

# By its name: it comes without types.
VALIDATOR: Any = importlib.import_module("jsonschema").Draft202012Validator

Connect = Callable[..., AbstractAsyncContextManager[Agent]]


@pytest.fixture(scope="session", autouse=True)
def _schemas_are_checked_once() -> Iterator[None]:
    """Remember which schemas are sound: each new client finds out anew, for long."""
    sound: set[str] = set()
    check = VALIDATOR.check_schema

    def check_once(schema: object, *arguments: Any) -> None:
        form = json.dumps(schema)
        if form not in sound:
            check(schema, *arguments)
            sound.add(form)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(VALIDATOR, "check_schema", check_once)
        yield


@pytest.fixture(params=["auto", "legacy"])
def mode(request: pytest.FixtureRequest) -> str:
    """Both eras of the protocol."""
    return str(request.param)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def other(path: Path) -> Iterator[Memory]:
    """Another lane's handle on the store."""
    memory = crdtmem.open(path, lane="b", project="p", durability="normal")
    yield memory
    memory.close()


@pytest.fixture
def open_memory(path: Path) -> Callable[[str], Opened]:
    def open_memory(lane: str) -> Opened:
        return Opened(crdtmem.open(path, lane=lane, project="p", durability="normal"))

    return open_memory


@pytest.fixture
def connect(mode: str, open_memory: Callable[[str], Opened]) -> Connect:
    """Connect a client of the SDK to a server of its own, in this process."""

    @asynccontextmanager
    async def connect(
        opens: Callable[[str], Opened] = open_memory,
    ) -> AsyncIterator[Agent]:
        session = AgentSession(opens)
        async with Client(build_server(session), mode=mode) as client:
            yield Agent(client, session)

    return connect
