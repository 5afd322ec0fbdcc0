"""Runs the cases of ``memory_sets.json``: those of the slots, with sets and search.

A binding or a set that a step keeps takes the verbs of later steps. Everything is asked
of the product's public face.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from crdtmem import (
    BoundMemory,
    CompactionPolicy,
    CompactionRequest,
    Item,
    MemorySet,
    Summary,
    fold_observations,
)
from crdtmem.partition import checked_set_name, doc_name, encode_key, short_form
from crdtmem.store.connection import Durability
from crdtmem.tokens import tokens
from tests.conformance.slots import RunnerVerb, Stage, run_case

__all__ = ["SetStage", "run_set_case"]


def run_set_case(
    case: dict[str, Any], directory: Path, *, durability: Durability = "full"
) -> list[str]:
    """Return what is wrong with the product's treatment of a case, a line each."""
    return run_case(case, directory, durability=durability, stage_of=SetStage)


class SetStage(Stage):
    """A stage whose handles are also bindings and sets."""

    has_plain_forms = True  # The operators of filters.

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.step: dict[str, Any] = {}
        self.complaints: list[str] = []

    def run(self, step: dict[str, Any]) -> list[str]:
        """Do a step; what steps within it complain of is its own complaint."""
        before, self.step = self.step, step
        try:
            return [*super().run(step), *self.complaints]
        finally:
            self.step = before

    def call_of(self, name: str, op: str, args: dict[str, Any]) -> Callable[[], Any]:
        call = super().call_of(name, op, args)
        return (lambda: _in_a_thread(call)) if self.step.get("thread") else call

    def verb_of(self, op: str) -> RunnerVerb | None:
        return SET_VERBS.get(op) or super().verb_of(op)

    def unchanged(self, name: str, op: str) -> AbstractContextManager[list[str]]:
        """Compare the rows, unless steps within this one write."""
        return nullcontext([]) if "during" in self.step else super().unchanged(name, op)

    def keep(self, name: str | None, on: str, actual: object) -> None:
        if name is not None and isinstance(actual, BoundMemory | MemorySet):
            self.handles[name] = actual
            self.stores[name] = self.stores[on]
        else:
            super().keep(name, on, actual)

    def plain_of(self, value: Any) -> Any:
        if isinstance(value, BoundMemory):
            return {"encodedKey": value.binding.encoded_key}
        return (
            {"name": value.name}
            if isinstance(value, MemorySet)
            else super().plain_of(value)
        )

    def unbound(self, _: str, args: dict[str, Any]) -> MemorySet:
        return MemorySet(**args)

    def compact(self, name: str, args: dict[str, Any]) -> Any:
        """Compact a set with a summariser that the case names."""
        summaries_of = SUMMARISERS[args.pop("summarise")]
        during = self.step.get("during", [])
        request = {key: args.pop(key) for key in ["request_id"] if key in args}

        def summarise(offered: CompactionRequest) -> list[Summary]:
            for step in during:
                self.complaints += self.run(step)
            return summaries_of(offered.items)

        policy = CompactionPolicy(summarise, **{"capacity": 1, **args})
        return self.handles[name].compact(policy, **request)

    def doc_name(self, _: str, args: dict[str, Any]) -> dict[str, str]:
        name = checked_set_name(args["name"])
        return {"docName": doc_name(encode_key(args["key"]), name)}

    def drain(self, name: str, args: dict[str, Any]) -> Any:
        return self.handles[name].drain_observations(**args)

    def encode_key(self, _: str, args: dict[str, Any]) -> dict[str, str]:
        return {"encoded": short_form(encode_key(**args))}

    def fold(self, _: str, args: dict[str, Any]) -> dict[str, Any]:
        return fold_observations(**args)._asdict()

    def tokens(self, _: str, args: dict[str, Any]) -> dict[str, list[str]]:
        words, joined = tokens(**args)
        return {"w": list(words), "x": list(joined)}


def _in_a_thread(call: Callable[[], Any]) -> Any:
    """Call something in a fresh thread; return, or raise, what it does."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


def _join(items: Sequence[Item]) -> list[Summary]:
    return [Summary(" | ".join(item.text for item in items))]


def _pairs(items: Sequence[Item]) -> list[Summary]:
    return [
        Summary(
            " & ".join(item.text for item in items[i : i + 2]),
            [item.id for item in items[i : i + 2]],
        )
        for i in range(0, len(items), 2)
    ]


def _foreign(items: Sequence[Item]) -> list[Summary]:
    return [Summary("of another", [items[0].id, "no-such-id"])]


def _twice(items: Sequence[Item]) -> list[Summary]:
    return [Summary("one", [items[0].id]), Summary("two", [items[0].id])]


def _raise(items: Sequence[Item]) -> list[Summary]:
    raise RuntimeError(f"cannot summarise {len(items)} items")


SUMMARISERS: dict[str, Callable[[Sequence[Item]], list[Summary]]] = {
    "foreign": _foreign,
    "join": _join,
    "pairs": _pairs,
    "raise": _raise,
    "twice": _twice,
}

SET_VERBS: dict[str, RunnerVerb] = {
    ".compact": SetStage.compact,
    ".drain": SetStage.drain,
    "doc_name": SetStage.doc_name,
    "drain": SetStage.drain,
    "encode_key": SetStage.encode_key,
    "fold": SetStage.fold,
    "tokens": SetStage.tokens,
    "unbound": SetStage.unbound,
}
