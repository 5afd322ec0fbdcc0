"""Some machines and their relay, and all that was written on them.

    with fleet(children, "a", "b") as world:
        world.write("a")
        world.write("b")
        world.settle()
        world.check()

Every write is noted, so `check` can hold what became of them all against it. Whatever
process is still there at the end is ended.
"""

import itertools
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from crdtmem.protocol import records as wire
from crdtmem.protocol.envelopes import UpdateEnvelope, decode_envelope
from crdtmem.protocol.relaying import LogRow
from crdtmem.sealing import Sealer
from crdtmem.sync.keyring import new_keyring, read_keyring, write_keyring
from relay.storage.checking import NamespaceCheck
from tests.child import Child
from tests.machines import KEYRING, REMOTE, SLOT, Machine, RelayProcess, Served
from tests.oracle import judge, token
from tests.scratch import scratch
from tests.simulated import first_struct

__all__ = ["Fault", "Fleet", "fleet"]

LANES = ("ann", "bob")
ROUNDS_MAX = 4


class Fault(NamedTuple):
    """A slot whose text is not what it must be: what the judge found, and titles."""

    label: str
    verdict: dict[str, tuple[str, ...]]
    missing: set[str]
    text: str


class Log(Served, Protocol):
    """A relay whose log can be read, whoever serves it."""

    def rows(self) -> list[LogRow]:
        """Return the log of the one namespace."""

    def check(self) -> list[NamespaceCheck]:
        """Compute all ids and chains anew."""


R = TypeVar("R", bound=Log)


class Fleet(Generic[R]):
    """Some machines, their relay, and all that was written on them.

    Args:
        children: Two or more for the machines, which share them: neighbours in the
            order in which they came can run at the same time.
        folder: Of everything.
        relay: Of the machines.

    Attributes:
        folder: As above.
        relay: As above.
        machines: By name.

    """

    def __init__(self, children: Sequence[Child], folder: Path, relay: R) -> None:
        self.folder = folder
        self.relay = relay
        self.machines: dict[str, Machine] = {}
        self._children = itertools.cycle(children)
        self._tokens: dict[str, dict[str, list[str]]] = {}
        self._titles: set[str] = set()
        self._lives: Counter[str] = Counter()

    def add(self, name: str, *, port: int | None = None) -> Machine:
        """Make a machine, and link it."""
        machine = self.adopt(name)
        machine.link(port)
        return machine

    def adopt(self, name: str, relay: Served | None = None) -> Machine:
        """Make a machine of a folder, in which there may be a store.

        Its relay is that of the fleet, or another one of the same log.
        """
        folder = self.folder / name
        machine = Machine(next(self._children), name, folder, relay or self.relay)
        self.machines[name] = machine
        return machine

    def twin(self, name: str, beside: str) -> Machine:
        """Return a second way to a machine's store, by the child of another one."""
        child = self.machines[beside].child
        return Machine(child, name, self.folder / name, self.relay)

    def copy(self, name: str, to: str) -> Machine:
        """Copy a machine's folder, and go on with both."""
        shutil.copytree(self.folder / name, self.folder / to)
        return self.adopt(to)

    def roll_back(self, name: str, content: bytes) -> None:
        """Put older bytes into a machine's store, in their place: the inode stays.

        It has forgotten what it wrote since, so what it writes from now on may stand in
        front of that.
        """
        machine = self.machines[name]
        for suffix in ("-wal", "-shm"):
            Path(f"{machine.path}{suffix}").unlink(missing_ok=True)
        with machine.path.open("r+b") as file:
            file.write(content)
            file.truncate()
        self._lives[name] += 1

    def retire(self, name: str) -> None:
        """Do without a machine from here on."""
        del self.machines[name]

    def write(self, name: str, label: str = SLOT, count: int = 1) -> None:
        """Append lines that exist nowhere else, by each lane of a machine."""
        tokens = self._tokens.setdefault(label, {})
        lines: dict[str, list[str]] = {}
        for lane in LANES:
            author = f"{name}{self._lives[name]}.{lane}"
            known = tokens.setdefault(author, [])
            numbers = range(len(known), len(known) + count)
            new = [token(f"{author}.{label}", number) for number in numbers]
            known += new
            lines[author] = new
        self.machines[name].append(label, lines)

    def write_everywhere(self) -> None:
        """Append on each machine, and write another title in the place of the old."""
        old = min(self._titles, default="")
        number = len(self._titles)
        self._titles.discard(old)
        for name, machine in self.machines.items():
            self.write(name)
            title = f"title {number}.{len(self._titles)} of {name}"
            machine.replace_line(old, title)
            self._titles.add(title)

    def settle(self) -> None:
        """Sync one machine after the other, until all hold the same."""
        rounds = 0
        while not rounds or not self.is_settled():
            assert rounds < ROUNDS_MAX, "the machines do not come to hold the same"
            for machine in self.machines.values():
                assert machine.sync() == 0
            rounds += 1

    def is_settled(self) -> bool:
        """Tell whether all machines hold the same, and the relay all of it."""
        first, *others = [machine.look() for machine in self.machines.values()]
        return not first.unsent and all(other == first for other in others)

    def check(self) -> None:
        """Hold every machine and the relay against what was written."""
        for machine in self.machines.values():
            assert self.faults(machine) == [], machine.name
        self.check_relay()

    def is_whole(self, machine: Machine) -> bool:
        return not self.faults(machine)

    def faults(self, machine: Machine) -> list[Fault]:
        """Say what is wrong with the texts of a machine."""
        found: list[Fault] = []
        texts = machine.look().texts
        for label, lanes in self._tokens.items():
            titles = self._titles if label == SLOT else set()
            text = texts.get(label, "")
            verdict = judge(text, lanes, other_lines=titles)
            missing = titles - set(text.split("\n"))
            if verdict.faults or missing:
                found.append(Fault(label, verdict.faults, missing, text))
        return found

    def check_relay(self) -> None:
        """Hold the relay's log against itself: its chain, and who wrote what."""
        (found,) = self.relay.check()
        assert found.bad_seq is None, found
        contents: dict[Any, bytes] = {}
        for envelope in self.updates():
            for write in envelope.writes:
                place = envelope.name, first_struct(write.update)
                known = contents.setdefault(place, write.update)
                assert place[1] is None or known == write.update, place

    def updates(self) -> list[UpdateEnvelope]:
        """Return what the relay's records of writes say, in their order."""
        rows = [row for row in self.relay.rows() if row.kind == wire.RecordKind.UPDATE]
        found = [
            decode_envelope(row.kind, self.payload(row.record))
            for row in rows
            if row.record is not None
        ]
        return [one for one in found if isinstance(one, UpdateEnvelope)]

    def payload(self, record: bytes) -> bytes:
        """Return what a record says to those who have the keys of the machines."""
        header = wire.parse_header(record)
        if not header.alg:
            return record[header.payload_start :]
        keyring = read_keyring(self.folder / KEYRING)
        return Sealer(REMOTE, keyring).open(header, record)

    def states(self) -> Counter[bytes]:
        """Count the state records of each doc in the relay's log."""
        return Counter(
            row.doc_tag
            for row in self.relay.rows()
            if row.kind == wire.RecordKind.SNAPSHOT and not row.base
        )


@contextmanager
def fleet(
    children: Sequence[Child],
    *names: str,
    settings: str = "",
    is_encrypted: bool = False,
) -> Iterator[Fleet[RelayProcess]]:
    """Give machines that are linked to one relay, which is serving."""
    with scratch() as folder:
        if is_encrypted:
            write_keyring(folder / KEYRING, new_keyring())
        relay = RelayProcess(children[0], folder / "relay", settings)
        world = Fleet(children[1:], folder, relay)
        world.relay.start()
        try:
            for name in names:
                world.add(name)
            yield world
        finally:
            world.relay.end_anyhow()
