"""Encrypted namespaces between real processes: nothing is where it must not be."""

import os
import signal

import pytest

from crdtmem.protocol.records import RecordKind, parse_header
from crdtmem.sync.keyring import add_key, read_keyring, write_keyring
from tests.fleet import fleet
from tests.machines import KEYRING, SLOT

pytestmark = pytest.mark.process

CANARIES = ["tangerine-canary-7f3a", "canary_slot_9b1c", "quince-canary-in-bob"]


@pytest.mark.requirement("sealed-3")
def test_neither_a_relay_nor_a_log_holds_a_word_of_what_was_written(crew, pytestconfig):
    with fleet(crew, "a", "b", is_encrypted=True) as world:
        world.write("a", CANARIES[1], 2)
        for name in "ab":
            world.write(name, SLOT, 2)
        with world.machines["a"].opened() as memory:
            memory.slot(SLOT).append(CANARIES[0])
            memory.slot(CANARIES[1]).append(CANARIES[2])
        for _ in range(2):
            for machine in world.machines.values():
                machine.sync()
        keys = read_keyring(world.folder / KEYRING)
        texts = [machine.look().texts for machine in world.machines.values()]
        memory_of_relay = memory_of(world.relay.pid)
        logs = "".join(str(event) for child in crew for event in child.events)
        world.relay.end()
        # What relay and machines say on their own.
        capture = pytestconfig.pluginmanager.getplugin("capturemanager")
        logs += "".join(capture.read_global_capture())
        files = b"".join(
            path.read_bytes()
            for path in world.relay.folder.rglob("*")
            if path.is_file()
        )
        stores = [machine.content() for machine in world.machines.values()]

    assert '"event": "closed"' in logs
    assert texts[0] == texts[1]
    assert CANARIES[0] in texts[0][SLOT]
    assert all(CANARIES[2].encode() in store for store in stores)
    for word in CANARIES:
        assert word.encode() not in files
        assert word.encode() not in memory_of_relay
        assert word not in logs
    # Nor is there a secret in a store, for whoever takes it without the keyring.
    for _, secret in keys.reveal():
        for where in (*stores, files, memory_of_relay):
            assert secret not in where


def memory_of(pid):
    """Return all that a process has in memory and may write to."""
    os.kill(pid, signal.SIGSTOP)
    parts = []
    try:
        with (
            open(f"/proc/{pid}/maps", encoding="utf-8") as maps,
            open(f"/proc/{pid}/mem", "rb", buffering=0) as memory,
        ):
            for line in maps:
                where, modes, *_ = line.split()
                start, end = (int(part, 16) for part in where.split("-"))
                if not modes.startswith("rw"):
                    continue
                memory.seek(start)
                parts.append(memory.read(end - start))
    finally:
        os.kill(pid, signal.SIGCONT)
    return b"".join(parts)


@pytest.mark.requirement("sealed-4")
def test_a_new_key_in_the_middle_of_it_loses_no_write_of_an_offline_machine(crew):
    with fleet(crew, "a", "b", is_encrypted=True) as world:
        a, b = world.machines.values()
        for name in "ab":
            world.write(name)
        world.settle()
        path = world.folder / KEYRING
        write_keyring(path, add_key(read_keyring(path)))
        world.write("a", SLOT, 2)
        a.sync(kill_at=("put.sent", 1))
        a.sync()
        # And again before the other machine has been there.
        write_keyring(path, add_key(read_keyring(path)))
        world.write("b", SLOT, 3)
        a.sync(kill_at=("seal.after-commit", 1))
        b.sync()
        world.write("a")
        world.settle()
        world.check()
        rows = world.relay.rows()

        assert a.alarms() == b.alarms() == set()
    keys = [
        (row.kind == RecordKind.KEY_NOTICE, parse_header(row.record or b"").key_id)
        for row in rows
    ]
    # Whoever had it before hearing of it has told of it, too.
    assert {key_id for is_notice, key_id in keys if is_notice} == {1, 2}
    assert keys[-1] == (False, 3)
