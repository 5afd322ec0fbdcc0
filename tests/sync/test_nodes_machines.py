"""Real machines on several relay processes with one database, and its troubles."""

import asyncio
import os
import random
import urllib.request

import pytest

from crdtmem.protocol.messages import Ack, ErrorMessage
from crdtmem.protocol.records import RecordKind
from relay.cli import status_of
from tests import scripts
from tests.child import Children
from tests.conftest import PROFILE
from tests.machines import proxied
from tests.nodes import cluster
from tests.postgres import postgres  # noqa: F401 - a fixture
from tests.relay.live import Peer, record

pytestmark = [pytest.mark.postgres, pytest.mark.process]

WRITER = b"w" * 16
SLOW_S = {"default": 0.3, "campaign": 9.0}[PROFILE]
"""Shorter than what a statement may take at most."""

TROUBLE = """
CREATE FUNCTION trouble() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN {} RETURN NULL; END $$;
CREATE TRIGGER trouble BEFORE INSERT ON crdtmem.log EXECUTE FUNCTION trouble();
"""
NO_TROUBLE = "DROP FUNCTION trouble CASCADE"
FULL = TROUBLE.format("RAISE EXCEPTION 'no room' USING ERRCODE = '53100';")
SLOW = TROUBLE.format(f"PERFORM pg_sleep({SLOW_S});")
READ_ONLY = "default_transaction_read_only"
NODES = 3
MACHINES = {"default": 3, "campaign": 20}[PROFILE]
ROUNDS = {"default": 1, "campaign": 3}[PROFILE]


@pytest.fixture(scope="module")
def child():
    """Runs all relays and machines."""
    with Children() as children:
        child = children.spawn()
        child.run(scripts.load_for_sync)
        yield child


@pytest.mark.requirement("P1", "P6", "P10", "nodes-2")
def test_what_nodes_and_their_database_acknowledge_survives_all_their_ends(
    child,
    postgres,  # noqa: F811 - the fixture
):
    chance = random.Random(7)
    name = postgres.new_name()
    with cluster(child, postgres.tcp_url(name), nodes=NODES) as world:
        for number in range(MACHINES):
            world.add_to(number % NODES, f"m{number}")
        acts = [
            *[lambda node=node: world.crash(node.name) for node in world.nodes],
            lambda: world.crash("m0"),
            lambda: postgres.restart("immediate"),
            lambda: postgres.sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                f" WHERE datname = '{name}'"
            ),
        ]
        with world.running(kill_at={"n0": ("ack.before-send", 2)}):
            for _ in range(ROUNDS):
                for act in chance.sample(acts, len(acts)):
                    for machine in world.machines:
                        world.write(machine)
                    act()
            world.until_settled()
        world.check()
        rows = world.relay.rows()
        alarms = [machine.alarms() for machine in world.machines.values()]

    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    assert len({row.record_id for row in rows}) == len(rows)
    assert alarms == [set()] * MACHINES


@pytest.mark.requirement("nodes-4")
def test_machines_go_on_where_they_were_after_their_relay_has_moved(
    child,
    postgres,  # noqa: F811 - the fixture
):
    url = postgres.new_database()
    with cluster(child, "", nodes=1) as world:
        (node,) = world.nodes
        machines = [world.add_to(0, name) for name in ("a", "b")]
        with world.running():
            for name in world.machines:
                world.write(name, count=40)
            world.until_settled()
        links = [machine.stored_link() for machine in machines]
        before = node.rows()
        assert status_of(["copy", str(node.folder), url]) == 0
        node.move_to(url)
        moved = node.rows()
        with world.running():
            for name in world.machines:
                world.write(name)
            world.until_settled()
            sent = sent_bytes(node.port)
        world.check()
        after = node.rows()
        alarms = [machine.alarms() for machine in machines]
        later = [machine.stored_link() for machine in machines]

    assert moved == before
    assert after[: len(before)] == before
    # What each lane has written since, and nothing again.
    assert {row.kind for row in after[len(before) :]} == {RecordKind.UPDATE}
    assert len(after) <= len(before) + 4
    assert sent < sum(len(row.record or b"") for row in before) / 5
    assert alarms == [set(), set()]
    for old, new in zip(links, later, strict=True):
        assert (new.replica_id, new.relay_id) == (old.replica_id, old.relay_id)
        assert (new.epoch, new.cursor.seq) == (old.epoch, len(after))


@pytest.mark.requirement("nodes-5")
def test_a_relay_tells_what_its_database_lacks_and_goes_on_by_itself(
    child,
    postgres,  # noqa: F811 - the fixture
):
    name = postgres.new_name()
    with (
        proxied(postgres.port) as (port, call),
        cluster(child, postgres.tcp_url(name, port), nodes=1) as world,
        world.running(),
    ):
        (node,) = world.nodes
        pids = dict(world.pids)
        told, found = asyncio.run(troubled(node, postgres, name, call))
        rows = postgres.sql("SELECT seq FROM crdtmem.log ORDER BY seq", name)
        os.kill(pids[node.name], 0)

    assert told == [("storage-full", 30_000), ("busy", 5_000), ("busy", 5_000)]
    assert found == [record(WRITER, n) for n in (1, 2, 3, 4)]
    assert rows == ["1", "2", "3", "4"]


async def troubled(node, server, name, call):
    """Write in each trouble, and after it; return refusals, and what a reader read."""
    token = (node.folder / "first.token").read_text(encoding="ascii").strip()
    told = []
    async with (
        Peer.connected(node.port, token, replica_id=WRITER) as writer,
        Peer.connected(node.port, token) as reader,
    ):
        ns_no = (await writer.join()).ns_no
        await reader.join()
        for number, (begin, end) in enumerate(troubles(server, name, call), 1):
            begin()
            await writer.put(ns_no, record(WRITER, number))
            refused = await writer.hear(ErrorMessage)
            told.append((refused.code, refused.retry_ms))
            end()
            await written(writer, ns_no, number)
        server.sql(SLOW, name)
        await writer.put(ns_no, record(WRITER, 4))
        await writer.acked(4)
        return told, await reader.records_to(4)


def troubles(server, name, call):
    """Give what begins and what ends each: full, read-only, out of reach."""

    def set_read_only(value):
        server.sql(f"ALTER DATABASE {name} SET {READ_ONLY} = {value}")
        server.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            f" WHERE datname = '{name}' AND application_name = 'crdtmem-relay'"
        )

    def cut_off():
        call("refuse")
        call("reset")

    return [
        (lambda: server.sql(FULL, name), lambda: server.sql(NO_TROUBLE, name)),
        (lambda: set_read_only("on"), lambda: set_read_only("off")),
        (cut_off, lambda: call("heal")),
    ]


async def written(writer, ns_no, number):
    """Send a record until it is acknowledged, as a client does by and by."""
    answer = None
    while not isinstance(answer, Ack):
        await writer.put(ns_no, record(WRITER, number))
        answer = await writer.hear((Ack, ErrorMessage))


def sent_bytes(port):
    """Return how many bytes a relay has sent to its clients."""
    url = f"http://127.0.0.1:{port}/metrics"
    with urllib.request.urlopen(url, timeout=20) as answer:
        lines = answer.read().decode().splitlines()
    (found,) = [line for line in lines if 'bytes_total{direction="out"}' in line]
    return float(found.split()[1])
