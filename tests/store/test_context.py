"""crdtmem.store.context"""

import fcntl
import os
import re
import shutil
import subprocess
import sys

import pytest

from crdtmem.errors import StoreNotFoundError
from crdtmem.store import context as context_module
from crdtmem.store.context import new_replica_id, store_context

OTHER_PROCESS = """
import sys
from pathlib import Path
from crdtmem.store.context import store_context
print(store_context(Path(sys.argv[1])))
"""

TRY_TO_LOCK = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
"""


@pytest.fixture
def store(tmp_path):
    store = tmp_path / "store.db"
    store.write_bytes(b"one")
    return store


def run(script, path):
    return subprocess.run(
        [sys.executable, "-c", script, str(path)],
        capture_output=True,
        encoding="utf-8",
    )


def test_a_context_is_a_digest(store):
    assert re.fullmatch(r"[0-9a-f]{64}", store_context(store))


def test_a_store_that_is_written_keeps_its_context(store):
    before = store_context(store)

    store.write_bytes(b"two")
    os.utime(store, (0, 0))
    store.chmod(0o600)

    assert store_context(store) == before


def test_a_link_to_a_store_has_its_context(store):
    link = store.with_name("link.db")
    link.symlink_to(store)

    assert store_context(link) == store_context(store)


@pytest.mark.process
def test_another_process_sees_the_same_context(store):
    assert run(OTHER_PROCESS, store).stdout.strip() == store_context(store)


def test_a_copy_and_a_restored_copy_have_contexts_of_their_own(store):
    copy = store.with_name("copy.db")
    shutil.copy2(store, copy)
    original = store_context(store)

    copied = store_context(copy)
    copy.replace(store)

    assert copied != original
    assert store_context(store) == copied


@pytest.mark.parametrize(
    ("name", "content"),
    [("machine-id", "another machine\n"), ("boot-id", "another start\n")],
)
def test_another_machine_or_start_is_another_context(
    store, tmp_path, monkeypatch, name, content
):
    before = store_context(store)
    file = tmp_path / name
    file.write_text(content, encoding="utf-8")
    if_machine = {
        "machine-id": ("_MACHINE_IDS", (file,)),
        "boot-id": ("_BOOT_ID", file),
    }

    monkeypatch.setattr(context_module, *if_machine[name])

    assert store_context(store) != before


def test_another_container_is_another_context(store, tmp_path, monkeypatch):
    before = store_context(store)
    (tmp_path / "mnt").symlink_to("mnt:[1]")

    monkeypatch.setattr(context_module, "_MOUNT_NAMESPACE", tmp_path / "mnt")

    assert store_context(store) != before


def test_what_the_system_does_not_tell_counts_as_empty(store, tmp_path, monkeypatch):
    (tmp_path / "empty").touch()
    for name in ("absent", "empty"):
        monkeypatch.setattr(context_module, "_MACHINE_IDS", (tmp_path / name,))
        monkeypatch.setattr(context_module, "_BOOT_ID", tmp_path / name)
        monkeypatch.setattr(context_module, "_MOUNT_NAMESPACE", tmp_path / name)

        assert store_context(store) == store_context(store)


def test_the_first_machine_id_that_is_there_counts(tmp_path):
    absent, empty, first, second = (tmp_path / name for name in "aefs")
    empty.touch()
    first.write_text("one\n", encoding="utf-8")
    second.write_text("two\n", encoding="utf-8")

    assert context_module._machine_id([absent, empty, first, second]) == "one"


def test_the_address_of_a_network_card_serves_but_no_random_number():
    assert context_module._stable_node(0x0011_2233_4455) == "001122334455"
    assert context_module._stable_node(0x0111_2233_4455) == ""


def test_the_context_of_an_absent_store_is_refused(store):
    absent = store.with_name("absent.db")

    with pytest.raises(StoreNotFoundError) as caught:
        store_context(absent)

    assert caught.value.code == "store-not-found"
    assert str(absent) in str(caught.value)
    assert not absent.exists()


@pytest.mark.process
def test_looking_at_a_store_keeps_the_locks_that_this_process_has_on_it(store):
    with store.open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)

        store_context(store)

        assert "BlockingIOError" in run(TRY_TO_LOCK, store).stderr
    assert run(TRY_TO_LOCK, store).stderr == ""


def test_replica_ids_are_16_bytes_and_never_alike():
    ids = {new_replica_id() for _ in range(1000)}

    assert len(ids) == 1000
    assert {len(replica_id) for replica_id in ids} == {16}
