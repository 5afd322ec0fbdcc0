"""What encryption costs a store: records made and taken in, and how long they are.

Two pairs of stores, one pair encrypted. In each round one store of a pair writes some
lines to many slots, makes records of them, and the other store takes those in: once
with a record for each line, as in quiet times, and once with all lines of a slot in
one, as after a while offline. No socket and no relay stands between: what they do is
the same for both.
"""

import secrets
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from bench.running import Effort, Findings, run
from bench.timing import Count, comparison
from bench.workload import folder, lines, open_store
from crdtmem.memory import Memory
from crdtmem.protocol.messages import Form, Item
from crdtmem.protocol.records import chain_next, chain_start, record_id
from crdtmem.sealing import Keyring, Sealer
from crdtmem.store.intake import apply_items
from crdtmem.store.links import add_link, find_link
from crdtmem.store.outbox import acknowledge, seal, unsent

__all__ = ["measure"]

PROJECT = "bench"
REMOTE = "team"
RELAY_ID = bytes(16)
SLOTS = 64
LINES = 16
"""Lines that go into one record of a slot, where they go together."""

FRAME = 10_000
LIMIT_BYTES = 2**22


class Took(NamedTuple):
    """What a round took: seconds to seal and to take in, records and their bytes."""

    seal_s: float
    apply_s: float
    records: int
    size_bytes: int


def measure(effort: Effort) -> Findings:
    """Let both pairs do the same by turns."""
    slots = effort.size(SLOTS, 4)
    took: dict[tuple[str, bool], list[Took]] = {}
    with ExitStack() as stack:
        place = stack.enter_context(folder())
        pairs = [
            stack.enter_context(_Pair(place, slots, is_encrypted=is_encrypted))
            for is_encrypted in (False, True)
        ]
        for number in range(effort.rounds_of() + 1):
            for pair in pairs if number % 2 else reversed(pairs):
                for name, count in (("line", 1), ("batch", LINES)):
                    found = pair.go_round(count)
                    if number:
                        took.setdefault((name, pair.is_encrypted), []).append(found)
    comparisons = []
    counts = []
    for name in ("line", "batch"):
        sealed, plain = took[name, True], took[name, False]
        comparisons += [
            comparison(
                f"sealed-{what}-{name}",
                [getattr(one, field) for one in sealed],
                [getattr(one, field) for one in plain],
                against="the same, plain",
            )
            for what, field in (("make", "seal_s"), ("take-in", "apply_s"))
        ]
        counts += [
            Count(
                f"sealed-record-{name}",
                mean(sealed),
                "bytes",
                note=f"a record; plain {mean(plain):.0f}, ratio"
                f" {mean(sealed) / mean(plain):.2f}",
            )
        ]
    return Findings(comparisons, counts)


def mean(took: list[Took]) -> float:
    """Return how long a record was."""
    return sum(one.size_bytes for one in took) / sum(one.records for one in took)


class _Pair:
    """A store that writes, and one that reads what it sealed."""

    def __init__(self, place: Path, slots: int, *, is_encrypted: bool) -> None:
        self.is_encrypted = is_encrypted
        self._place = place
        self._slots = slots
        self._lines = lines()
        self._seq = 0
        self._chain = b""

    def __enter__(self) -> "_Pair":
        sealer = Sealer(REMOTE, Keyring({1: secrets.token_bytes(32)}))
        with ExitStack() as stack:
            self.writer, self.reader = (
                stack.enter_context(self._open(name, sealer)) for name in ("w", "r")
            )
            self._stack = stack.pop_all()
        for number in range(self._slots):
            self.writer.create(f"slot_{number}", "", size_limit=1_000_000)
        self.go_round(1)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _open(self, name: str, sealer: Sealer) -> Memory:
        kind = "sealed" if self.is_encrypted else "plain"
        memory = open_store(self._place / f"{kind}-{name}.db", durability="normal")
        if self.is_encrypted:
            memory.store.sealers[PROJECT] = sealer
        add_link(
            memory.store,
            namespace=PROJECT,
            remote=REMOTE,
            url="ws://127.0.0.1:1",
            token_file="",
            options={"encrypted": True} if self.is_encrypted else {},
        )
        with memory.store.writing() as transaction:
            transaction.connection.execute(
                "UPDATE link SET relay_id = :id", {"id": RELAY_ID}
            )
        return memory

    def go_round(self, count: int) -> Took:
        """Write so many lines to each slot, seal them, and have them taken in."""
        for number in range(self._slots):
            slot = self.writer.slot(f"slot_{number}")
            for _ in range(count):
                slot.append(next(self._lines))
        store = self.writer.store
        link = find_link(store, PROJECT)
        start = time.perf_counter()
        while seal(
            store,
            link,
            max_update_bytes=LIMIT_BYTES,
            max_snapshot_bytes=LIMIT_BYTES,
            may_seal_states=True,
        ):
            pass
        seal_s = time.perf_counter() - start
        records = [
            one.record
            for one in unsent(store, link, after=0, records=FRAME, octets=2**40)
        ]
        apply_s = self._take_in(records)
        now = find_link(store, PROJECT)
        acknowledge(store, now, now.sealed_seq, self._seq, self._chain)
        return Took(seal_s, apply_s, len(records), sum(map(len, records)))

    def _take_in(self, records: list[bytes]) -> float:
        store = self.reader.store
        link = find_link(store, PROJECT)
        first = self._seq + 1
        items = [Item(Form.FULL, one, record_id(REMOTE, one)) for one in records]
        chain = self._chain or chain_start(RELAY_ID, REMOTE)
        for number, item in enumerate(items, first):
            chain = chain_next(chain, number, item.record_id)
        start = time.perf_counter()
        apply_items(store, link, first, items, chain)
        took = time.perf_counter() - start
        self._seq, self._chain = first + len(items) - 1, chain
        return took


if __name__ == "__main__":
    run(measure)
