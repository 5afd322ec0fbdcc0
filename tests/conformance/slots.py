"""Runs the cases of ``slots.json`` against real stores.

A case opens its handles on fresh stores, does its steps in order and holds each result
against its expectation; the first step that differs ends the case. Where a step must
be refused, every row of the store's file is compared before and after: a refusal
changes nothing.
"""

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MethodType
from typing import Any

import apsw

import crdtmem
from crdtmem.errors import CrdtmemError
from crdtmem.store.connection import Durability
from tests.conformance.matchers import (
    UnknownFormError,
    differences,
    resolve,
    resolve_expected,
)
from tests.replica import exchange_records, insert_at_the_end

__all__ = ["RunnerVerb", "Stage", "rows_of", "run_case"]

DEFAULT_HANDLES = {"m": {"store": "s", "lane": "a", "project": "p"}}


def run_case(
    case: dict[str, Any],
    directory: Path,
    *,
    durability: Durability = "full",
    stage_of: "type[Stage] | None" = None,
) -> list[str]:
    """Return what is wrong with the product's treatment of a case, a line each.

    Args:
        case: As in the file.
        directory: An empty one, for the stores and files of the case.
        durability: Of its handles; ``normal`` spares the syncs, which no case sees.
        stage_of: Knows the operations of its file; None for those of the slots.

    """
    try:
        with ExitStack() as stack:
            handles = case["setup"].get("handles", DEFAULT_HANDLES)
            stage = (stage_of or Stage)(directory, handles, durability)
            stack.callback(stage.close)
            stage.open_all()
            for number, step in enumerate(case["steps"], 1):
                found = [f"step {number}, {line}" for line in stage.run(step)]
                if found:
                    return found
    except Exception as exc:  # noqa: BLE001 - one bad case stops no other
        return [f"raised {type(exc).__name__}: {exc}"]
    return []


def rows_of(path: Path) -> dict[str, list[str]]:
    """Return the rows of every table of a store's file, in their textual form."""
    if not path.exists():
        return {}
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        tables = connection.execute(
            "select name from sqlite_schema where type = 'table'"
            " and sql not like 'create virtual %'"
        ).get
        return {
            table: sorted(map(repr, connection.execute(f'select * from "{table}"')))
            for table in ([tables] if isinstance(tables, str) else tables or [])
        }
    finally:
        connection.close()


class Stage:
    """The handles, stores and files of one case."""

    has_plain_forms = False
    """Whether an argument's ``$`` word that is no form stands for itself."""

    def __init__(
        self,
        directory: Path,
        handles: dict[str, dict[str, Any]],
        durability: Durability = "full",
    ) -> None:
        self.directory = directory
        self.durability = durability
        self.settings = handles
        self.handles: dict[str, Any] = {}
        self.stores: dict[str, str] = {}
        self.saved: dict[str, Any] = {}
        ticks = itertools.count()
        start = datetime(2026, 1, 1, tzinfo=UTC)
        self.clock = lambda: start + timedelta(milliseconds=next(ticks))

    def open_all(self) -> None:
        for name in self.settings:
            self.open(name)

    def open(self, name: str) -> None:
        settings = dict(self.settings[name])
        self.stores[name] = settings.pop("store")
        path = self.path_of(name)
        path.parent.mkdir(exist_ok=True)
        self.handles[name] = crdtmem.open(
            path, clock=self.clock, durability=self.durability, **settings
        )

    def path_of(self, name: str) -> Path:
        return self.directory / self.stores[name] / "store.db"

    def close(self) -> None:
        for name in self.settings:
            if name in self.handles:
                self.handles[name].close()

    def run(self, step: dict[str, Any]) -> list[str]:
        """Do a step; return the differences from its expectation."""
        name, op = step.get("on", "m"), step["op"]
        args = resolve(step["args"], self.saved, has_plain=self.has_plain_forms)
        call = self.call_of(name, op, args)
        expected = resolve_expected(step["expect"], self.saved)
        if isinstance(expected, dict) and "error" in expected:
            with self.unchanged(name, op) as changes:
                found = self.refusal(expected, call)
            return [f"{op}: {line}" for line in found + changes]
        try:
            actual = call()
        except CrdtmemError as exc:
            return [f"{op}: raised {exc.to_dict()}"]
        self.keep(step.get("as"), name, actual)
        # An empty expectation is met by anything but an error, also by a plain string.
        if expected == {}:
            return []
        return [f"{op}: {line}" for line in differences(expected, self.json_of(actual))]

    def keep(self, name: str | None, on: str, actual: object) -> None:
        if name is None:
            return
        if hasattr(actual, "read"):  # A Slot, for later steps to be done on.
            self.handles[name] = actual
            self.stores[name] = self.stores[on]
        else:
            self.saved[name] = self.json_of(actual)

    def unchanged(self, name: str, op: str) -> AbstractContextManager[list[str]]:
        """Fill the list, on leaving, with what a refused step changed all the same."""
        return self._compared(name, op)

    @contextmanager
    def _compared(self, name: str, op: str) -> Iterator[list[str]]:
        changes: list[str] = []
        files = set(self.directory.iterdir())
        path = None if op == "open" else self.path_of(name)
        before = {} if path is None else rows_of(path)
        yield changes
        after = {} if path is None else rows_of(path)
        changes += [
            f"the refusal changed {table}: {before.get(table)} to {rows}"
            for table, rows in after.items()
            if rows != before.get(table)
        ]
        made = sorted(new.name for new in set(self.directory.iterdir()) - files)
        changes += [f"the refusal made {made}"] if made else []

    def call_of(self, name: str, op: str, args: dict[str, Any]) -> Callable[[], Any]:
        """Return the operation of a step, ready to be called."""
        verb = self.verb_of(op)
        if verb is not None:
            return lambda: verb(self, name, args)
        handle = self.handles.get(name)
        if handle is None:
            raise UnknownFormError(f"nothing is called {name!r}")
        if op.startswith("slot."):
            label, scope = args.pop("label"), args.pop("scope", None)
            slot_verb = op.removeprefix("slot.")
            return lambda: _verb(handle.slot(label, scope), slot_verb)(**args)
        return lambda: _verb(handle, op.removeprefix("."))(**args)

    def verb_of(self, op: str) -> "RunnerVerb | None":
        """Return an operation of the runner's own."""
        return RUNNER_VERBS.get(op)

    def refusal(
        self, expected: dict[str, Any], call: Callable[[], object]
    ) -> list[str]:
        """Do what must be refused; return the differences from how it must be."""
        try:
            actual = call()
        except CrdtmemError as exc:
            return differences(expected, self.json_of(exc), "refusal")
        return [f"expected an error, got {actual!r}"]

    def json_of(self, value: Any) -> Any:
        """Return what a reader of the JSON would get; proves that it is JSON."""
        return json.loads(json.dumps(self.plain_of(value), allow_nan=False))

    def plain_of(self, value: Any) -> Any:
        """Return a result without its classes."""
        if isinstance(value, list):
            return [self.plain_of(item) for item in value]
        return value.to_dict() if hasattr(value, "to_dict") else value

    def reopen(self, name: str, _: dict[str, Any]) -> None:
        self.handles[name].close()
        self.open(name)

    def open_only(self, _: str, args: dict[str, Any]) -> None:
        path = self.directory / args.pop("path", "opened/store.db")
        crdtmem.open(path, **{"lane": "a", "project": "p"} | args).close()

    def exchange(self, _: str, args: dict[str, Any]) -> None:
        exchange_records(
            [
                [self.handles[name] for name in self.settings if self.stores[name] == s]
                for s in args["stores"]
            ]
        )

    def foreign(self, name: str, args: dict[str, Any]) -> None:
        insert_at_the_end(self.handles[name], args["label"], args["insert"])

    def file(self, _: str, args: dict[str, Any]) -> None:
        text = "".join(f"{line}\n" for line in args["lines"])
        (self.directory / args["name"]).write_text(text, encoding="utf-8")

    def lines(self, _: str, args: dict[str, Any]) -> list[Any]:
        text = (self.directory / args["name"]).read_text(encoding="utf-8")
        return [json.loads(line) for line in text.split("\n") if line]

    def export(self, name: str, args: dict[str, Any]) -> Any:
        target = self.directory / args.pop("target")
        return self.handles[name].export(target, **args)

    def import_(self, name: str, args: dict[str, Any]) -> Any:
        source = self.directory / args.pop("source")
        return self.handles[name].import_(source, **args)


RunnerVerb = Callable[[Any, str, dict[str, Any]], Any]

RUNNER_VERBS: dict[str, RunnerVerb] = {
    "exchange": Stage.exchange,
    "export": Stage.export,
    "file": Stage.file,
    "foreign": Stage.foreign,
    "import_": Stage.import_,
    "lines": Stage.lines,
    "open": Stage.open_only,
    "reopen": Stage.reopen,
}


def _verb(on: object, name: str) -> Callable[..., Any]:
    verb: Any = None if name.startswith("_") else getattr(on, name, None)
    if not isinstance(verb, MethodType):
        raise UnknownFormError(f"unknown operation {name!r}")
    return verb
