"""crdtmem.cli.sync"""

import functools
import json
import os
import signal
import subprocess
import sys

import pytest

from crdtmem import opening
from crdtmem.models import LinkStatus, StoreStatus, SyncStatus
from crdtmem.store.lease import Lease, lease_path_for
from crdtmem.store.link_status import save_notes
from crdtmem.store.links import add_alarm, find_link, links_of, note_doc
from tests.cli.contract import validated
from tests.relay.live import PATIENCE_S
from tests.sync.relays import RunningRelay, in_thread

REMOTE = "team"


@pytest.fixture(scope="module")
def running():
    relay = RunningRelay()
    yield relay
    relay.stop()


@pytest.fixture
def run(run):
    """Run a command in this process; some have an event loop of their own."""
    return functools.partial(in_thread, run)


@pytest.fixture
def linked(run, monkeypatch, running, request):
    """Run a command in a home where the project is linked, with one slot."""
    monkeypatch.setenv("CRDTMEM_RELAY_TOKEN", running.token)
    monkeypatch.setenv("CRDTMEM_RELAY_URL", running.url)
    name = request.node.name.split("[")[0].replace("_", "-")[:60]
    assert run("create", "plan", "one").status == 0
    assert run("sync", "link", "--namespace", name).status == 0
    return run


@pytest.fixture
def store(linked):
    """The store of that home."""
    memory = opening.open()
    yield memory.store
    memory.close()


def test_a_project_is_linked_and_synced(linked, running):
    assert "0 to come, 2 writes to send" in linked("sync", "status").out

    once = linked("sync", "once")

    assert once.status == 0
    assert once.out.startswith(
        "demo: nobody syncs it now, 0 to come, 0 writes to send\n"
    )
    assert f"at {running.url}, cursor 1" in once.out
    assert "in step at 20" in linked("sync", "status").out


def test_a_link_is_told_with_what_it_links(run, monkeypatch, running):
    monkeypatch.setenv("CRDTMEM_RELAY_TOKEN", running.token)

    told = run("sync", "link", running.url, "--json")
    again = run("sync", "link", running.url)

    link = validated(LinkStatus, told.out)
    assert (link["local"], link["url"]) == ("demo", running.url)
    assert link["remote"].startswith("p-")
    assert (again.status, again.out) == (4, "")
    assert "is linked to" in again.err


@pytest.mark.requirement("sealed-3")
def test_a_project_is_linked_encrypted(run, monkeypatch, running, home):
    monkeypatch.setenv("CRDTMEM_RELAY_TOKEN", running.token)
    words = ("sync", "link", running.url, "--namespace", "sealed-cli", "--encrypted")
    run("create", "plan", "tangerine")
    refused = run(*words)
    run("key", "create")
    made = run(*words)
    synced = run("sync", "once")

    assert (refused.status, refused.out) == (2, "")
    assert "keyring.toml cannot be read" in refused.err
    assert made.out == f"'demo' is linked to 'sealed-cli' at {running.url}, encrypted\n"
    assert synced.status == 0
    assert "0 writes to send" in synced.out
    (record,) = kept_by(running, "sealed-cli")
    assert b"tangerine" not in record
    run("sync", "unlink")
    # From the environment, once the file is out of the way.
    file = home / "config" / "crdtmem" / "keyring.toml"
    secret = file.read_text(encoding="utf-8").split('"')[1]
    file.unlink()
    monkeypatch.setenv("CRDTMEM_RELAY_KEYRING", f"1:{secret}")
    told = [run(*words), run("sync", "once"), run("sync", "status", "--json")]
    assert [one.status for one in told] == [0, 0, 0]
    link = json.loads(told[2].out)["links"][0]
    assert (link["locked"], link["quarantined"]) == (0, 0)
    assert secret not in str([refused, made, synced, *told])


def kept_by(running, namespace):
    storage = running.storage
    found = storage.read(storage.ns_no(namespace), 0, records=99, octets=2**20)
    with pytest.raises(StopIteration) as done:
        found.send(None)
    return [row.record for row in done.value.value.rows]


def test_a_keyring_is_for_encrypted_links_and_may_be_named(
    run, monkeypatch, running, home
):
    monkeypatch.setenv("CRDTMEM_RELAY_TOKEN", running.token)
    run("create", "plan", "one")
    run("key", "create", "--keyring", "mine.toml")
    words = ("sync", "link", running.url, "--namespace", "named", "--keyring")
    refused = run(*words, "mine.toml")
    made = run(*words, "mine.toml", "--encrypted")

    assert (refused.status, made.status) == (2, 0)
    assert "belongs to '--encrypted'" in refused.err
    (link,) = links_here()
    assert link.options["keyring"] == str(home / "mine.toml")


def links_here():
    memory = opening.open()
    try:
        return links_of(memory.store)
    finally:
        memory.close()


def test_a_link_may_be_made_for_everybodys_slots(run, monkeypatch, running, tmp_path):
    file = tmp_path / "token"
    file.write_text(running.token, encoding="utf-8")
    file.chmod(0o600)
    words = ("sync", "link", running.url, "--local", "global")

    refused = run(*words, "--token-file", "token")
    made = run(*words, "--namespace", "me", "--token-file", "token")

    assert refused.status == 2
    assert "--namespace" in refused.err
    assert made.out == f"'global' is linked to 'me' at {running.url}\n"
    assert "sync start" in made.err


def test_slots_that_overlap_are_told_and_may_move(linked, run, running, tmp_path):
    assert linked("sync", "once").status == 0
    remote = json.loads(linked("sync", "status", "--json").out)["links"][0]["remote"]
    elsewhere = ("--store", str(tmp_path / "other.sqlite"))
    run(*elsewhere, "create", "plan", "other")

    refused = run(*elsewhere, "sync", "link", "--namespace", remote, "--json")
    moved = run(
        *elsewhere, "sync", "link", "--namespace", remote, "--on-overlap", "rename"
    )

    error = json.loads(refused.err)["error"]
    assert (refused.status, refused.out) == (4, "")
    assert (error["code"], error["details"]["labels"]) == ("link-overlap", ["plan"])
    assert "'plan' is 'plan_local' now" in moved.err
    assert run(*elsewhere, "sync", "once", "--json").status == 0
    assert run(*elsewhere, "get", "plan").out == "one\n"


def test_a_link_is_taken_away(linked):
    refused = linked("sync", "unlink")
    forced = linked("sync", "unlink", "--force", "--json")
    again = linked("sync", "unlink")

    assert (refused.status, forced.status, again.status) == (4, 0, 3)
    assert "2 writes of 'demo' have not been sent" in refused.err
    assert json.loads(forced.out)["unlinked"] is True
    assert linked("get", "plan").out == "one\n"


def test_an_unlink_says_that_the_slots_stay(linked):
    linked("sync", "once", "-q")

    assert linked("sync", "unlink").out == "'demo' is linked no more; its slots stay\n"


def test_a_quiet_sync_says_nothing(linked):
    result = linked("sync", "once", "-q")

    assert (result.status, result.out, result.err) == (0, "", "")


def test_without_a_link_there_is_nothing_to_show(run):
    run("create", "plan")

    assert "no namespace is linked" in run("sync", "status").err
    assert run("sync", "once").status == 3
    status = validated(SyncStatus, run("sync", "status", "--json").out)
    nobody = {"held": False, "pid": None, "command": None, "since": None}
    assert status == {"lease": nobody, "links": []}


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (("link",), 2, "there is no relay to link to"),
        (("link", "https://relay"), 2, "URL must be wss://"),
        (("link", "wss://relay"), 2, "there is no token"),
        (("link", "--local", "a/b"), 2, "project must be an id"),
        (("once", "--force"), 2, "'sync once' takes no --force"),
        (("unlink", "wss://relay"), 2, "'sync unlink' takes no URL"),
        (("start", "--progress", "plain"), 2, "'sync start' takes no --progress"),
        (("pause",), 2, "'pause' is not one of"),
    ],
)
def test_a_line_that_means_nothing_is_refused(run, words, status, told):
    run("create", "plan")

    result = run("sync", *words)

    assert (result.status, result.out) == (status, "")
    assert told in result.err


def test_a_relay_that_is_not_there_is_told(linked, monkeypatch, store):
    with store.writing() as transaction:
        transaction.connection.execute("UPDATE link SET url = 'ws://127.0.0.1:1'")

    result = linked("sync", "once", "--timeout", "0.2", "--json")

    error = json.loads(result.err)["error"]
    assert (result.status, error["code"]) == (9, "relay-unreachable")
    shown = linked("sync", "status")
    assert "connection-refused: nothing listens there" in shown.out


def test_the_status_tells_all_that_is_wrong(linked, store):
    link = find_link(store, "demo")
    with store.writing() as transaction:
        connection = transaction.connection
        add_alarm(transaction, link.link, "relay-restored", "cursor 1, head 0")
        note_doc(connection, link, 1)
        connection.execute("UPDATE sync_doc SET blocked = 'record-too-large'")
        connection.execute(
            "INSERT INTO held VALUES (:link, 1, 1, x'00', 'update-clock', x'00', 5),"
            " (:link, 2, 1, x'01', '', x'00', 5), (:link, 3, 1, x'02', 'sealed',"
            " x'00', 5)",
            {"link": link.link},
        )
    fault = {"code": "forbidden", "message": "not for you", "permanent": True}
    notes = {
        "state": "stopped",
        "since_ms": 0,
        "head": 9,
        "fault": {**fault, "at_ms": 0},
    }
    save_notes(store, {link.link: notes})
    lease = Lease(lease_path_for(store.path))
    lease.take()

    shown = linked("sync", "status").out
    status = validated(StoreStatus, linked("status", "--json").out)

    for words in (
        "demo: stopped, 9 to come",
        "forbidden: not for you (1970-01-01T00:00:00.000Z)",
        "records wait for plan",
        "1 record waits for a key",
        "the relay does not take plan",
        "alarm relay-restored: cursor 1, head 0",
        f"synced by process {os.getpid()}",
    ):
        assert words in shown
    (found,) = status["sync"]["links"]
    assert (found["state"], found["lag"]) == ("stopped", 9)
    assert found["lastError"]["permanent"] is True
    assert (found["quarantined"], found["locked"]) == (1, 1)
    assert found["held"] == found["blocked"] == ["plan"]
    assert status["sync"]["lease"]["held"] is True
    assert len(status["warnings"]) == 4
    lease.release()
    cleared = linked("sync", "status", "--clear-alarms", "--json")
    assert validated(SyncStatus, cleared.out)["links"][0]["alarms"] == []


def test_the_plain_status_shows_how_sync_stands(linked):
    assert (
        "demo: nobody syncs it now, 0 to come, 2 writes to send" in linked("status").out
    )


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_syncs_until_it_is_told_to_end(linked, store, environment, number):
    process = subprocess.Popen(
        [sys.executable, "-m", "crdtmem.cli", "sync", "start"],
        env={**environment, "CRDTMEM_RELAY_TOKEN": os.environ["CRDTMEM_RELAY_TOKEN"]},
        stderr=subprocess.PIPE,
    )
    memory = opening.open()
    cursor = memory.cursor()
    memory.slot("plan").append("two")
    try:
        while memory.status().sync.links[0].unsent.writes and process.poll() is None:
            cursor = memory.changes(cursor, wait=0.05).cursor
    finally:
        process.send_signal(number)
        _, told = process.communicate(timeout=PATIENCE_S)
    memory.close()

    assert process.returncode == (130 if number == signal.SIGINT else 0)
    assert b"syncing; Ctrl-C stops it" in told
    assert Lease(lease_path_for(store.path)).take()


@pytest.mark.process
def test_who_starts_beside_another_is_told_and_waits(linked, store, environment):
    lease = Lease(lease_path_for(store.path))
    lease.take()
    process = subprocess.Popen(
        [sys.executable, "-m", "crdtmem.cli", "sync", "start"],
        env=environment,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    told = process.stderr.readline()
    process.stderr.readline()
    process.terminate()
    process.communicate(timeout=PATIENCE_S)
    lease.release()

    assert process.returncode == 0
    assert f"process {os.getpid()}" in told.decode()


@pytest.mark.process
def test_a_status_loads_neither_the_document_layer_nor_a_network(linked, environment):
    script = (
        "import sys; from crdtmem.cli.__main__ import status_of;"
        "status_of(['status', '-q']); print(*sys.modules, file=sys.stderr)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", script],
        env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
        capture_output=True,
        encoding="utf-8",
    ).stderr.split()

    heavy = ["asyncio", "click", "pycrdt", "pydantic", "ssl", "websockets"]
    assert [name for name in heavy if name in loaded] == []
    assert "crdtmem.store.links" in loaded
