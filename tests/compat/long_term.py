"""The adapter for flink-agents over each of the classes that it may stand on.

Ours are loaded with that package out of reach, so that they are tested where it is
installed, too. Its own need it. Each comes also with a class of sets that has the three
fields of its later releases, in which a bridge to Java carries a set's context.
"""

import contextlib
import functools
import importlib
import importlib.util
import itertools
import json
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel, Field

import crdtmem

__all__ = [
    "ALL_OBSERVED",
    "BEGIN",
    "OPERATIONS",
    "UNBOUND",
    "Kind",
    "drained",
    "here",
    "in_thread",
    "job",
    "kind",
    "ltm",
    "memory",
    "notes",
    "on_key",
    "operate",
    "operations_of",
    "own_classes",
    "texts_of",
    "values",
]

UPSTREAM = "flink_agents"
ADAPTER = "crdtmem.compat.flink"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
"""When the store of all these tests begins."""

JOBS = itertools.count()
UNBOUND = "not bound to a partition key"
ALL_OBSERVED = {
    "update_observation_enabled": True,
    "get_observation_enabled": True,
    "search_observation_enabled": True,
}

# What is done with a set, whichever key is current: each of the four operations.
OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda ltm, memory_set: ltm.add(memory_set, "red kite"),
    "get": lambda ltm, memory_set: ltm.get(memory_set),
    "search": lambda ltm, memory_set: ltm.search(memory_set, "kite", limit=5),
    "delete": lambda ltm, memory_set: ltm.delete(memory_set),
}


class Kind(NamedTuple):
    """The adapter over one set of classes.

    Attributes:
        module: The adapter's, as its user imports it.
        set_type: What to give it, or None for its own choice.

    """

    module: Any
    set_type: Any

    def memory(self, *args: Any, **options: Any) -> Any:
        """Return an adapter."""
        return self.module.CrdtLongTermMemory(
            *args, **{"set_type": self.set_type, **options}
        )

    def rebuilt(self, name: str, **fields: Any) -> Any:
        """Return a set as something else than the adapter makes it."""
        return (self.set_type or self.module.MemorySet)(name=name, **fields)


class LaterFields(BaseModel):
    """What later sets have beside their name; no JSON shows it."""

    partition_key: str | None = Field(default=None, exclude=True)
    observation_id: str = Field(default="", exclude=True)
    observation_suppressed: bool = Field(default=False, exclude=True)


class LaterSet(LaterFields):
    """A set of later releases for who has none of their classes, with one verb."""

    name: str
    ltm: Any = Field(default=None, exclude=True)

    def add(self, items: Any, metadatas: Any = None) -> Any:
        return self.ltm.add(memory_set=self, memory_items=items, metadatas=metadatas)

    def get(self, ids: Any = None, filters: Any = None, limit: int = 100) -> Any:
        return self.ltm.get(memory_set=self, ids=ids, filters=filters, limit=limit)

    def search(self, query: Any, limit: int, filters: Any = None, **more: Any) -> Any:
        return self.ltm.search(self, query, limit, filters, **more)

    def delete(self, ids: Any = None) -> None:
        self.ltm.delete(memory_set=self, ids=ids)


@contextlib.contextmanager
def own_classes() -> Iterator[Any]:
    """Give the adapter as it is without flink-agents, in the place of the usual one."""
    with _without(UPSTREAM), _without(ADAPTER), pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, UPSTREAM, None)
        # Loaded once: pickle wants a class to be the one that is found by its name.
        sys.modules.update(_OURS)
        module = importlib.import_module(ADAPTER)
        _OURS.update(_modules_of(ADAPTER))
        yield module


_OURS: dict[str, Any] = {}


@contextlib.contextmanager
def _without(package: str) -> Iterator[None]:
    """Forget a package, and in the end what of it was loaded meanwhile."""
    kept = _modules_of(package)
    for name in kept:
        del sys.modules[name]
    try:
        yield
    finally:
        for name in _modules_of(package):
            del sys.modules[name]
        sys.modules.update(kept)


def _modules_of(package: str) -> dict[str, Any]:
    return {
        name: module
        for name, module in sys.modules.items()
        if name == package or name.startswith(f"{package}.")
    }


@contextlib.contextmanager
def _own() -> Iterator[Kind]:
    with own_classes() as module:
        yield Kind(module, None)


@contextlib.contextmanager
def _own_with_fields() -> Iterator[Kind]:
    with own_classes() as module:
        yield Kind(module, LaterSet)


@contextlib.contextmanager
def _installed() -> Iterator[Kind]:  # pragma: no cover - where flink-agents is
    yield Kind(importlib.import_module(ADAPTER), None)


@contextlib.contextmanager
def _installed_with_fields() -> Iterator[Kind]:  # pragma: no cover - likewise
    yield Kind(importlib.import_module(ADAPTER), _later_upstream_set())


@functools.cache
def _later_upstream_set() -> Any:  # pragma: no cover - likewise
    module = importlib.import_module(ADAPTER)
    upstream: Any = module.MemorySet

    class LaterUpstreamSet(upstream, LaterFields):  # type: ignore[misc] # installed or not
        pass

    # Where pickle looks for it.
    globals()["LaterUpstreamSet"] = LaterUpstreamSet
    LaterUpstreamSet.__qualname__ = "LaterUpstreamSet"
    # A name in upstream's field, which is looked for here.
    names = {"BaseLongTermMemory": module.BaseLongTermMemory}
    LaterUpstreamSet.model_rebuild(_types_namespace=names)
    return LaterUpstreamSet


_MAKERS = {
    "own": _own,
    "own-with-fields": _own_with_fields,
    "installed": _installed,
    "installed-with-fields": _installed_with_fields,
}
_NEEDS_UPSTREAM = (
    pytest.mark.flink,
    pytest.mark.skipif(
        importlib.util.find_spec(UPSTREAM) is None, reason="needs flink-agents"
    ),
)

KINDS = [
    pytest.param(name, marks=_NEEDS_UPSTREAM if name.startswith("installed") else ())
    for name in _MAKERS
]


@pytest.fixture(params=KINDS)
def kind(request):
    """Each kind that can be had here."""
    with _MAKERS[request.param]() as found:
        yield found


@pytest.fixture(scope="module")
def memory(tmp_path_factory):
    """One store for all of them: each has a job of its own."""
    ticks = itertools.count()
    with crdtmem.open(
        tmp_path_factory.mktemp("flink") / "store" / "store.db",
        lane="a",
        project="p",
        durability="normal",
        clock=lambda: BEGIN + timedelta(milliseconds=next(ticks)),
    ) as memory:
        yield memory


@pytest.fixture
def job():
    """Return a job that no other test has."""
    return f"job {next(JOBS)}"


@pytest.fixture
def ltm(kind, memory, job):
    """The adapter of each kind."""
    return kind.memory(memory, job)


@pytest.fixture
def notes(ltm):
    """A set of it."""
    ltm.switch_context("key")
    return ltm.get_memory_set("notes")


def in_thread(call):
    """Do a call in another thread; return its result."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


def here(call):
    """Do a call in this thread."""
    return call()


def operate(ltm, memory_set, run=here):
    """Do each of the four operations on a set."""
    for operation in OPERATIONS.values():
        run(functools.partial(operation, ltm, memory_set))


def drained(ltm, key, observation_id):
    """Return, and forget, the records of an action."""
    return json.loads(ltm.drain_ltm_observation_records(key, observation_id))


def operations_of(ltm, key, observation_id):
    """Return, and forget, what the records of an action are of."""
    return [record["op"] for record in drained(ltm, key, observation_id)]


def values(items):
    """Return the texts of items."""
    return [item.value for item in items]


def texts_of(memory, *key, name="notes"):
    """Return the texts under a key, oldest first, without the adapter."""
    page = memory.bind(partition_key=key).memory_set(name).get(order="oldest")
    return [item.text for item in page.items]


def on_key(ltm, key, name="notes", **context):
    """Make a key the present one; return a set of it."""
    ltm.switch_context(key, **context)
    return ltm.get_memory_set(name)
