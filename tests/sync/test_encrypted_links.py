"""Encrypted links over real sockets: making them, their keys, and what goes wrong."""

import asyncio
import hashlib
import json
import threading

import pytest

from crdtmem.errors import (
    KeyMissingError,
    KeyringError,
    LinkRefusedError,
    RelayRefusedError,
)
from crdtmem.store.link_status import link_reports
from crdtmem.store.links import find_link, links_of
from crdtmem.sync.driver import Driver
from crdtmem.sync.keyring import add_key, new_keyring, read_keyring, write_keyring
from crdtmem.sync.linking import LinkRequest, link_namespace
from crdtmem.sync.once import sync_once
from crdtmem.sync.thread import SyncThread
from tests.relay.live import PATIENCE_S
from tests.sync.relays import RunningRelay, in_thread
from tests.sync.sites import PROJECT

# Never set: a store's file tells nobody of its changes.
LOOK_AGAIN = threading.Event()


@pytest.fixture(scope="module")
def running():
    relay = RunningRelay()
    yield relay
    relay.stop()


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "keyring.toml"
    write_keyring(file, new_keyring())
    return file


@pytest.fixture
def request_(running, request, path):
    """What is linked, unless a test says otherwise: encrypted, with a file of keys."""
    name = f"n-{hashlib.sha256(request.node.name.encode()).hexdigest()[:32]}"
    return LinkRequest(
        PROJECT,
        name,
        running.url,
        None,
        running.token,
        is_encrypted=True,
        keyring_file=path,
    )


@pytest.fixture
def machine(site, request_):
    """Make a machine that is linked, with a slot of its own."""

    def make(name, **changes):
        made = site(name, is_linked=False)
        made.append(name, f"of {name}")
        in_thread(
            link_namespace,
            made.store,
            request_._replace(**changes),
            lane=name,
            on_overlap="refuse",
            timeout_s=PATIENCE_S,
        )
        return made

    return make


@pytest.fixture
def once(running):
    def once(site, **keys):
        in_thread(
            sync_once,
            site.store,
            token=running.token,
            timeout_s=PATIENCE_S,
            **keys,
        )

    return once


def labels(site):
    return {slot.label for slot in site.memory.slots("project", templates=False)}


def test_two_machines_with_one_keyring_meet(machine, once, path):
    ann, bob = machine("ann"), machine("bob")
    for one in (ann, bob, ann):
        once(one)

    assert labels(ann) == labels(bob) == {"ann", "bob"}
    link = find_link(ann.store, PROJECT)
    assert link.options == {"encrypted": True, "keyring": str(path)}
    assert link.key_id == 1
    assert len(link.replica_id) == 16
    assert "secret" not in repr(link)


def test_a_key_that_comes_into_the_file_is_used_at_the_next_connection(
    machine, once, path
):
    ann, bob = machine("ann"), machine("bob")
    once(ann)
    write_keyring(path, add_key(read_keyring(path)))
    once(ann)
    once(bob)
    once(ann)

    assert find_link(ann.store, PROJECT).key_id == 2
    assert find_link(bob.store, PROJECT).key_id == 2
    assert labels(ann) == labels(bob)


def test_the_environment_may_hold_the_keys(machine, once, path):
    keyring = read_keyring(path)
    ann = machine("ann", keyring_file=None, keyring=keyring)
    once(ann, keyring=keyring)

    assert find_link(ann.store, PROJECT).options["keyring"] == ""
    assert ann.unsent == 0
    with pytest.raises(RelayRefusedError) as refusal:
        once(ann)
    assert refusal.value.cause == "key-missing"


def test_without_keys_nothing_is_linked(machine):
    with pytest.raises(KeyMissingError):
        machine("ann", keyring_file=None)


def test_a_bad_file_of_keys_links_nothing(machine, path, site):
    path.write_text("", encoding="utf-8")

    with pytest.raises(KeyringError):
        machine("ann")


@pytest.mark.parametrize(
    ("first", "second", "code", "what"),
    [
        ({}, {"is_encrypted": False}, "key-missing", "encrypted"),
        ({"is_encrypted": False}, {}, "plain-in-encrypted", "not encrypted"),
        ({}, {"keyring_file": None}, "key-missing", "with keys that are not here"),
    ],
)
def test_a_namespace_that_does_not_open_is_not_linked(
    machine, once, site, first, second, code, what
):
    once(machine("ann", **first))
    other = {} if "keyring_file" not in second else {"keyring": new_keyring()}

    with pytest.raises(LinkRefusedError, match=what) as refusal:
        machine("bob", **second, **other)

    assert refusal.value.code == code


def test_a_keyring_that_is_gone_stops_its_link_and_no_other(machine, once, path, site):
    ann = machine("ann")
    once(ann)
    in_thread(
        link_namespace,
        ann.store,
        LinkRequest("global", "of-all", ann.stored.url, None, token_of(once)),
        lane="ann",
        on_overlap="refuse",
        timeout_s=PATIENCE_S,
    )
    ann.memory.create("shared", "x", scope="global")
    ann.append("ann", "more")
    path.unlink()

    with pytest.raises(RelayRefusedError) as refusal:
        once(ann)

    assert refusal.value.cause == "key-missing"
    with ann.store.reading() as connection:
        sealed, plain = link_reports(connection)
    assert sealed.notes["fault"]["code"] == "key-missing"
    assert (sealed.notes["state"], sealed.unsent.writes) == ("stopped", 1)
    assert (plain.notes["fault"], plain.unsent.writes) == (None, 0)


def token_of(once):
    return once.__closure__[0].cell_contents.token


def test_a_link_whose_keyring_is_gone_says_which_file(machine, once, path):
    ann = machine("ann")
    path.unlink()

    with pytest.raises(RelayRefusedError, match=str(path)) as refusal:
        once(ann)

    assert refusal.value.cause == "keyring-invalid"


def test_a_running_driver_takes_up_a_new_key(machine, running, path):
    ann = machine("ann")

    async def run():
        driver = Driver(ann.store, token=running.token)
        task = asyncio.create_task(driver.run())
        async with asyncio.timeout(PATIENCE_S):
            while ann.unsent:
                await asyncio.to_thread(LOOK_AGAIN.wait, 0.01)
            write_keyring(path, add_key(read_keyring(path)))
            while find_link(ann.store, PROJECT).key_id != 2:
                await asyncio.to_thread(LOOK_AGAIN.wait, 0.01)
        driver.stop()
        await task

    in_thread(asyncio.run, run())


def test_a_thread_takes_the_keys_of_the_environment(machine, running, path, site):
    keyring = read_keyring(path)
    ann = machine("ann", keyring_file=None, keyring=keyring)
    content = path.read_text(encoding="utf-8")
    secret = content.split('"')[1]
    thread = SyncThread(ann.path, token=running.token, keyring_text=f"1:{secret}")
    thread.start()
    wait_until(lambda: not ann.unsent)

    assert thread.stop()


def test_a_thread_with_bad_keys_tells_so_and_goes_on(machine, running, path):
    ann = machine("ann", keyring_file=None, keyring=read_keyring(path))
    thread = SyncThread(ann.path, token=running.token, keyring_text="fd:999")
    thread.start()
    wait_until(lambda: fault_of(ann) == "keyring-invalid")

    assert thread.stop()
    assert ann.unsent == 2


def fault_of(site):
    with site.store.reading() as connection:
        (report,) = link_reports(connection)
    return (report.notes.get("fault") or {}).get("code")


def wait_until(holds):
    async def wait():
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                await asyncio.to_thread(LOOK_AGAIN.wait, 0.01)

    in_thread(asyncio.run, wait())


def test_options_of_a_plain_link_stay_what_they_were(machine):
    ann = machine("ann", is_encrypted=False)

    (link,) = links_of(ann.store)
    assert json.dumps(link.options) == "{}"
