"""The network and the crashes of a few machines, from one number, in virtual time.

A `World` holds stores on real SQLite files, the core of a relay over a storage in
memory, and the wires between them. Nothing runs by itself: a step of the world writes,
seals, delivers one frame, lets the relay do one thing, cuts, kills, copies or restores.
At the end `settle` heals everything, lets it run until it is at rest, and holds what is
there against what was acknowledged.

The invariants, by the numbers of the design:

    I1 each acknowledged write is in the final text, exactly once
    I2 nothing that was shown was taken back by a crash
    I3 all stores have equal texts and state vectors
    I4 order per lane, nothing that nobody wrote, nothing glued
    I6 any prefix of the log applies, to a store that begins with nothing
    I7 the log is contiguous, its chain verifies, one id a seq
    I8 a reader from nothing reaches the state of those who were there
    I9 no (client id, clock) has two contents on the relay
    I10 what was rolled back or forked is alarmed, and nothing else
    I11 what waits on a wire stays within its bound at every step

An encrypted world has keys, too, which change while stores are offline; its relay holds
nothing that was written in it.
"""

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NoReturn

from crdtmem.protocol import records as wire
from crdtmem.protocol.envelopes import UpdateEnvelope, decode_envelope
from crdtmem.sealing import Keyring, Sealer
from crdtmem.store.links import add_link, links_of
from crdtmem.sync.engine import Engine
from relay.effects import Append
from tests.oracle import judge, token
from tests.scratch import scratch
from tests.simulated import (
    GRANT,
    LANES,
    NAMESPACE,
    REMOTE,
    Crash,
    Relay,
    Site,
    Wire,
    first_struct,
    run_now,
    small_world,
)

__all__ = ["World", "run_encrypted_worlds", "run_world", "run_worlds"]

LABELS = ("s", "t")
SETTLE_ROUNDS = 1_000
FRESH_READERS = 0.2
QUIET_ROUNDS = 16

# How often each rule comes, of about two hundred.
WEIGHTS = {
    "write": 60, "talk": 30, "step": 20, "up": 15, "down": 15, "relay": 15,
    "connect": 6, "cut": 3, "drop_frames": 3, "crash_relay": 2, "crash_client": 3,
    "advance": 6, "copy_store": 1, "roll_back_store": 2, "back_up_relay": 2,
    "restore_relay": 1, "compact": 2, "sweep": 3,
}  # fmt: skip
KEY_WEIGHTS = {"rotate": 3, "learn_keys": 6}


class World:
    """Everything, from one number."""

    def __init__(
        self,
        seed: int,
        folder: Path,
        *,
        sites: int = 3,
        is_encrypted: bool = False,
    ) -> None:
        self.random = Random(seed)
        self.weights = WEIGHTS | KEY_WEIGHTS if is_encrypted else WEIGHTS
        # All that there are; which of them a store has is the store's own.
        self.secrets = {1: self.random.randbytes(32)} if is_encrypted else {}
        self.folder = folder
        self.now = 1_000.0
        self.wall_ms = 1_790_000_000_000
        self.trace: list[str] = []
        self.done: Counter[str] = Counter()
        # By label and lane, in order; what a fault of the machine itself took away.
        self.tokens: dict[str, dict[str, list[str]]] = {label: {} for label in LABELS}
        self.in_doubt: set[str] = set()
        self.expected_alarms: set[str] = set()
        self.copies = 0
        self.relay = Relay(self)
        self.sites = [
            self.new_site(f"site{number}", folder / f"{number}" / "store.db")
            for number in range(sites)
        ]

    def new_site(self, name: str, path: Path) -> Site:
        path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not path.exists()
        site = Site(self, name, path)
        if is_new:
            add_link(
                site.store,
                namespace=NAMESPACE,
                remote=REMOTE,
                url="ws://127.0.0.1:1",
                token_file="",
                options={"encrypted": True} if self.secrets else {},
            )
        return site

    def sealer(self) -> Sealer | None:
        """Return what has all keys that there are; None in a plain world."""
        if not self.secrets:
            return None
        return Sealer(REMOTE, Keyring(self.secrets))

    def payload(self, record: bytes) -> bytes:
        """Return what a record of the relay says to those who have all keys."""
        header, sealer = wire.parse_header(record), self.sealer()
        if sealer is None:
            return record[header.payload_start :]
        return sealer.open(header, record)

    # Wires.

    def cut(self, wire_: Wire) -> None:
        """Take a connection away from both sides; what was on its way is lost."""
        if self.relay.wires.pop(wire_.conn, None) is not None:
            self.relay.core.disconnected(wire_.conn, self.now)
        site = wire_.site
        if site.wire is wire_:
            site.wire = None
            if site.engine is not None:
                site.engine.connection_lost(wire_.close_code or 1006, self.now)

    def flush(self, site: Site) -> None:
        if site.engine is None or site.wire is None:
            return
        while frames := site.engine.data_to_send():
            site.wire.up.extend(frames)

    def guarded(self, site: Site, work: Callable[[], object]) -> None:
        """Do something in a site's process, which may end by it."""
        try:
            work()
        except Crash:
            self.trace.append(f"# {site.name} died")
            self.restart(site)
        self.flush(site)

    def restart(self, site: Site) -> None:
        if site.wire is not None:
            wire_, site.wire = site.wire, None
            site.engine = None
            self.cut(wire_)
        site.end()
        site.open()

    # Rules.

    def step(self) -> None:
        """Do one random thing."""
        (name,) = self.random.choices(list(self.weights), list(self.weights.values()))
        site = self.random.choice(self.sites)
        self.trace.append(f"{name} {site.name}")
        self.done[name] += 1
        self.wall_ms += self.random.randint(0, 50)
        self.now += self.random.random() / 100
        rule = getattr(self, f"do_{name}")
        self.guarded(site, lambda: rule(site))

    def do_write(self, site: Site) -> None:
        """Append a line, or do something else to lines that are not tracked."""
        lane = self.random.choice(LANES)
        label = self.random.choice(LABELS)
        slot = site.lanes[lane].slot(label, scope="global")
        kind = self.random.random()
        site.written += 1
        if label not in site.texts():
            text = f"start {self.random.randint(0, 1)}"
            memory = site.lanes[lane]
            memory.create(label, text, scope="global", size_limit=1_000_000)
        elif kind < 0.8:
            self._append(site, slot, label, lane)
        else:
            self._rewrite(site, slot, kind)

    def _append(self, site: Site, slot: Any, label: str, lane: str) -> None:
        name = f"{site.name}.{lane}.{site.era}"
        known = self.tokens[label].setdefault(name, [])
        line = token(name, site.written)
        known.append(line)
        self.in_doubt.add(line)
        slot.append(line)
        self.in_doubt.remove(line)
        self.trace.append(f"# {line} to {label}")

    def _rewrite(self, site: Site, slot: Any, kind: float) -> None:
        """Change or remove lines that nobody counts."""
        view = slot.read()
        lines = view.content.split("\n")
        free = [i for i, line in enumerate(lines) if "=" not in line]
        if not free:
            return
        at = self.random.choice(free)
        if kind < 0.9:
            lines[at] = f"note {self.random.randint(0, 9)} of {site.name}"
        else:
            del lines[at]
        slot.replace("\n".join(lines), expected_rev=view.rev)

    def do_step(self, site: Site) -> None:
        if site.engine is not None and site.wire is not None:
            engine = site.engine
            self.guarded(site, lambda: self._work(engine))

    def _work(self, engine: Engine) -> None:
        """Do one piece of work, or all that there is."""
        if self.random.random() < 0.4:
            engine.wake()
        while engine.step(self.now) and self.random.random() < 0.7:
            pass

    def do_connect(self, site: Site) -> None:
        if site.wire is not None:
            return
        if site.engine is None:
            site.engine = Engine(
                site.store,
                links_of(site.store),
                incarnation=self.random.randbytes(16),
                rng=self.random,
                agent="simulated",
            )
        wire_ = Wire(self.relay.next_conn, site)
        self.relay.next_conn += 1
        self.relay.wires[wire_.conn] = wire_
        site.wire = wire_
        self.relay.core.connect(wire_.conn, GRANT, self.now)
        self.relay.pump()
        engine = site.engine
        self.guarded(site, lambda: engine.connect(self.now))

    def do_up(self, site: Site) -> None:
        """Deliver one frame to the relay."""
        if site.wire is None or not site.wire.up:
            return
        frame = site.wire.up.popleft()
        if site.wire.conn in self.relay.wires:
            self.relay.core.receive(site.wire.conn, frame, self.now)
            self.relay.pump()

    def do_down(self, site: Site) -> None:
        """Deliver one frame to the store, or the end of the connection."""
        wire_ = site.wire
        if wire_ is None or site.engine is None:
            return
        if not wire_.down:
            if wire_.close_code:
                self.cut(wire_)
            return
        frame, is_last = wire_.down.popleft()
        engine = site.engine
        self.guarded(site, lambda: engine.receive(frame, self.now))
        if is_last and wire_.conn in self.relay.wires:
            self.relay.core.sent(wire_.conn, self.now)
            self.relay.pump()

    def do_relay(self, _: Site) -> None:
        if self.relay.pending:
            self.relay.do_one()

    def do_cut(self, site: Site) -> None:
        if site.wire is not None:
            self.cut(site.wire)

    def do_drop_frames(self, site: Site) -> None:
        """Lose what is on its way in one direction, then the connection."""
        if site.wire is not None:
            lost = site.wire.up if self.random.random() < 0.5 else site.wire.down
            lost.clear()
            self.cut(site.wire)

    def do_crash_relay(self, _: Site) -> None:
        """End the relay before, in or after a commit."""
        if self.random.random() < 0.5:
            for effect in self.relay.pending:
                if isinstance(effect, Append):
                    run_now(self.relay.storage.append(effect.puts))
        self.relay.end()
        self.relay.start()

    def do_crash_client(self, site: Site) -> None:
        """End a store's process at once, or at or behind its next commit."""
        site.store.crash_at = self.random.choice(["", "before-commit", "after-commit"])
        if not site.store.crash_at:
            self.restart(site)

    def do_advance(self, site: Site) -> None:
        """Let time pass, a little or much."""
        self.now += self.random.choice([0.3, 5.0, 11.0, 20.0, 50.0])
        self.tick(site)

    def tick(self, site: Site) -> None:
        self.relay.core.tick(self.now)
        self.relay.pump()
        if site.engine is not None and site.wire is not None:
            engine = site.engine
            self.guarded(site, lambda: engine.tick(self.now))
        self._close_if_asked(site)

    def _close_if_asked(self, site: Site) -> None:
        if site.wire is None or site.engine is None or not site.engine.closing:
            return
        wire_ = site.wire
        for _ in range(len(wire_.up)):
            self.do_up(site)
        if site.wire is wire_:
            self.cut(wire_)

    def do_compact(self, site: Site) -> None:
        """Have the store's own documents squashed."""
        site.lanes[LANES[0]].compact()

    def do_sweep(self, _: Site) -> None:
        """Let the grace of covered payloads be over."""
        self.relay.storage.age(14 * 86_400_000)
        run_now(self.relay.storage.sweep(self.wall_ms, 1_000))

    def do_rotate(self, site: Site) -> None:
        """Make another key, which one store has from its next connection on."""
        self.secrets[max(self.secrets) + 1] = self.random.randbytes(32)
        site.learn_keys()

    def do_learn_keys(self, site: Site) -> None:
        """Carry all keys to a store."""
        site.learn_keys()

    # Machines that are copied and restored.

    def do_copy_store(self, site: Site) -> None:
        """Start another machine from a copy of a store's files."""
        if self.copies >= 2 or site.era:
            # A copy takes new ids at once. One of a store that was put back in place
            # and has not noticed yet never will: a limit, as the one below.
            return
        self.copies += 1
        # What a copy has of ids that are then used anew in place, nobody can tell from
        # what is written under them later: a limit that the documentation names.
        site.backup = None
        path = self.folder / f"copy{self.copies}" / "store.db"
        path.parent.mkdir()
        site.lanes[LANES[0]].backup(path)
        self.sites.append(self.new_site(f"copy{self.copies}", path))

    def do_roll_back_store(self, site: Site) -> None:
        """Keep a copy of the store's bytes, or bring the last one back in place."""
        if site.backup is None:
            site.backup = self.folder / f"{site.name}.old"
            site.lanes[LANES[0]].store.checkpoint()
            shutil.copyfile(site.path, site.backup)
            return
        backup, site.backup = site.backup, None
        self.restart(site)
        site.store.close()
        for suffix in ("-wal", "-shm"):
            Path(f"{site.path}{suffix}").unlink(missing_ok=True)
        # The same inode: to the store, nothing has happened.
        with open(site.path, "r+b") as file:
            file.write(backup.read_bytes())
            file.truncate()
        site.open()
        site.era += 1
        self._doubt_what_is_gone()
        self.expected_alarms |= {"store-rolled-back", "replica-fork"}

    def do_back_up_relay(self, _: Site) -> None:
        self.relay.backup = self.relay.storage.copy()

    def do_restore_relay(self, _: Site) -> None:
        """Start the relay from an older copy; what lives nowhere else is gone."""
        if self.relay.backup is None:
            return
        backup, self.relay.backup = self.relay.backup, None
        self.relay.end()
        is_known = self.random.random() < 0.5
        self.relay.storage = backup.restored() if is_known else backup
        self.relay.start()
        self._doubt_what_is_gone()
        self.expected_alarms |= {"relay-restored", "relay-forked", "replica-fork"}
        self.expected_alarms |= {"store-rolled-back"}

    def _doubt_what_is_gone(self) -> None:
        """Note the tokens that neither a store nor the relay holds any more."""
        kept = b"".join(
            self.payload(row.record) for row in self.relay.log() if row.record
        )
        texts = "\n".join(text for site in self.sites for text in site.texts().values())
        for lanes in self.tokens.values():
            for tokens in lanes.values():
                self.in_doubt |= {
                    one
                    for one in tokens
                    if one not in texts and one.encode() not in kept
                }

    # The end.

    def settle(self) -> None:
        """Heal everything, let it run until it is at rest, and check what is there."""
        self.trace.append("settle")
        for site in self.sites:
            site.store.crash_at = ""
            if site.learn_keys() and site.wire is not None:
                self.cut(site.wire)
        self._come_to_rest()
        self.check()
        if self.random.random() < FRESH_READERS:
            # Snapshots come in time, and what they cover goes.
            for _ in range(QUIET_ROUNDS):
                self._exchange_all()
                self._pass_time()
            self.do_sweep(self.sites[0])
            self.count_kinds()
            self.sites.append(self.new_site("reader", self.folder / "r" / "store.db"))
            self._come_to_rest()
            self.check()

    def _come_to_rest(self) -> None:
        for _ in range(SETTLE_ROUNDS):
            self._exchange_all()
            if self._is_at_rest():
                return
            self._pass_time()
        self._fail("the world does not come to rest")

    def do_talk(self, site: Site) -> None:
        """Let a store and the relay exchange frames without a fault for a while."""
        for _ in range(self.random.randint(1, 8)):
            self._exchange(site)

    def _exchange(self, site: Site) -> None:
        if site.wire is None:
            self.now += 0.5
            self.do_connect(site)
        self.do_step(site)
        while site.wire is not None and site.wire.up:
            self.do_up(site)
        while self.relay.pending:
            self.relay.do_one()
        while site.wire is not None and (site.wire.down or site.wire.close_code):
            self.do_down(site)
        self.do_step(site)
        self._close_if_asked(site)

    def _exchange_all(self) -> None:
        self.now += 0.02
        for site in self.sites:
            self._exchange(site)

    def _pass_time(self) -> None:
        """Go to the next moment at which anybody has something to do."""
        deadlines = [
            site.engine.next_deadline()
            for site in self.sites
            if site.engine is not None
        ]
        due = [deadline for deadline in deadlines if deadline is not None]
        if due and not self._has_traffic():
            self.now = max(self.now, min(due))
        for site in self.sites:
            self.tick(site)

    def _has_traffic(self) -> bool:
        wires = [site.wire for site in self.sites if site.wire is not None]
        return bool(self.relay.pending) or any(w.up or w.down for w in wires)

    def _is_at_rest(self) -> bool:
        if self._has_traffic():
            return False
        for site in self.sites:
            if site.wire is None or site.engine is None:
                return False
            if not site.engine.is_settled(NAMESPACE):
                return False
        return len({site.cursor() for site in self.sites}) == 1

    def check(self) -> None:
        """Hold what is there against the invariants."""
        self.check_log()
        first = self.sites[0]
        for site in self.sites[1:]:
            if site.texts() != first.texts():
                self._fail(f"I3: texts differ: {first.texts()} {site.texts()}")
            if site.clocks() != first.clocks():
                self._fail(f"I3: clocks differ: {first.clocks()} {site.clocks()}")
        for label, text in first.texts().items():
            lanes = self.tokens.get(label, {})
            every = {one for tokens in lanes.values() for one in tokens}
            free = [line for line in text.split("\n") if "=" not in line]
            verdict = judge(
                text,
                lanes,
                acknowledged=every - self.in_doubt,
                other_lines=free,
            )
            if verdict.faults:
                self._fail(f"I1, I4: {label}: {verdict.faults}\n{text}")
        self.check_alarms()

    def check_alarms(self) -> None:
        for site in self.sites:
            if strange := site.alarms() - self.expected_alarms:
                self._fail(f"I10: {site.name} has alarms {strange}")

    def count_kinds(self) -> None:
        """Note what the log has come to hold, so that a test can ask for all of it."""
        for row in self.relay.log():
            what = wire.RecordKind(row.kind).name.lower()
            self.done[f"{what} from {min(row.base, 1)}"] += 1
            self.done["dropped"] += row.record is None

    def check_log(self) -> None:
        """I7, I9: contiguous, chained, one content for each client id and clock."""
        chain = wire.chain_start(self.relay.core.identity.relay_id, REMOTE)
        contents: dict[Any, bytes] = {}
        for number, row in enumerate(self.relay.log(), 1):
            chain = wire.chain_next(chain, row.seq, row.record_id)
            if row.seq != number or row.chain != chain:
                self._fail(f"I7: row {number} has seq {row.seq}")
            self._check_sealed(row.record)
            if row.record is not None and row.kind == wire.RecordKind.UPDATE:
                self._note_contents(row.record, contents)

    def _check_sealed(self, record: bytes | None) -> None:
        lanes = [lane for lanes in self.tokens.values() for lane in lanes.values()]
        words = [one.encode() for lane in lanes for one in lane if self.secrets]
        if record and any(word in record for word in words):
            self._fail("a relay holds what was written")

    def _note_contents(self, record: bytes, seen: dict[Any, bytes]) -> None:
        payload = self.payload(record)
        envelope = decode_envelope(wire.RecordKind.UPDATE, payload)
        assert isinstance(envelope, UpdateEnvelope)
        for write in envelope.writes:
            place = first_struct(write.update)
            key = envelope.name, place
            if place and seen.setdefault(key, write.update) != write.update:
                self._fail(f"I9: {key} has two contents")

    def close(self) -> None:
        for site in self.sites:
            site.store.close()

    def _fail(self, what: str) -> NoReturn:
        raise AssertionError(what)


def run_worlds(first: int, last: int) -> None:
    """Run a world for each seed of a range; the experiment of `tests.seeds`."""
    for seed in range(first, last):
        with scratch() as folder:
            run_world(seed, folder)


def run_encrypted_worlds(first: int, last: int) -> None:
    """Do what run_worlds does, with encrypted namespaces."""
    for seed in range(first, last):
        with scratch() as folder:
            run_world(seed, folder, is_encrypted=True)


def run_world(seed: int, folder: Path, *, is_encrypted: bool = False) -> World:
    """Run one world to its end and return it, closed.

    Raises:
        AssertionError: If an invariant is broken; says the seed and what was done.

    """
    with small_world(seed):
        sites = 2 + (seed % 4 == 0)
        world = World(seed, folder, sites=sites, is_encrypted=is_encrypted)
        try:
            for _ in range(world.random.randint(12, 60)):
                world.step()
            world.settle()
        except Exception as exc:
            exc.add_note(f"seed {seed}")
            exc.add_note("\n".join(world.trace[-200:]))
            raise
        finally:
            world.close()
        return world
