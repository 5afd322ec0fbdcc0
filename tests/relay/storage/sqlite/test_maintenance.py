"""relay.storage.sqlite.maintenance and checking"""

import hashlib
import os
import stat

import apsw
import pytest

from crdtmem.errors import (
    InvalidArgumentError,
    PermissionDeniedError,
    RelayFolderError,
    StorageBusyError,
    TokenNotFoundError,
)
from crdtmem.protocol.records import RecordKind
from relay.storage.checking import NamespaceCheck
from relay.storage.rules import StorageLimits
from relay.storage.sqlite import connection as connection_module
from relay.storage.sqlite.folder import init_folder
from relay.storage.sqlite.maintenance import (
    add_token,
    back_up,
    check_log,
    end_token,
    tokens_of,
)
from relay.storage.sqlite.storage import SqliteStorage
from tests.contracts.authors import DIGEST, HOUR_MS, SECRET, Author, aged, token_row
from tests.store.test_lock import unprivileged


@pytest.fixture
async def storage(folder):
    """A storage that serves the folder meanwhile."""
    limits = StorageLimits(grace_ms=HOUR_MS)
    storage = SqliteStorage(folder, limits=limits, disk_free_bytes=0)
    await storage.open()
    yield storage
    await storage.close()


def changed(folder, statement):
    connection = apsw.Connection(str(folder / "relay.db"))
    connection.execute(statement)
    connection.close()


# Tokens.


async def test_a_token_that_a_command_adds_is_known_to_the_one_that_serves(
    folder, storage
):
    seen = await storage.changed_tokens(0)
    add_token(folder, token_row(), DIGEST)
    added = await storage.changed_tokens(0)
    grant = await storage.grant("aaaaaaaaaa", SECRET, 5)
    end_token(folder, "aaaaaaaaaa", 9)
    ended = await storage.changed_tokens(added[-1].number)

    assert (seen, grant.token_id) == ([], "aaaaaaaaaa")
    assert [(one.token_id, one.revoked_ms) for one in ended] == [("aaaaaaaaaa", 9)]
    assert await storage.grant("aaaaaaaaaa", SECRET, 5) is None
    assert tokens_of(folder) == [token_row(revoked_ms=9)]


def test_a_token_that_means_nothing_is_not_added(folder):
    with pytest.raises(InvalidArgumentError, match="scope is 'admin', not one of read"):
        add_token(folder, token_row(scopes=("admin",)), DIGEST)

    assert tokens_of(folder) == []


def test_an_unknown_token_cannot_be_ended(folder):
    add_token(folder, token_row(), DIGEST)
    with pytest.raises(TokenNotFoundError, match="no token 'bbbbbbbbbb'"):
        end_token(folder, "bbbbbbbbbb", 9)

    assert tokens_of(folder) == [token_row()]


def test_secrets_are_kept_as_digests_alone(folder):
    add_token(folder, token_row(), DIGEST)
    content = (folder / "relay.db").read_bytes()

    assert hashlib.sha256(SECRET).digest() in content
    assert SECRET not in content


def test_a_file_that_stays_locked_is_busy(folder, monkeypatch):
    monkeypatch.setattr(connection_module, "SQLITE_BUSY_MS", 1)
    other = apsw.Connection(str(folder / "relay.db"))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageBusyError, match="locked by another process"):
        add_token(folder, token_row(), DIGEST)
    other.close()

    assert tokens_of(folder) == []


@pytest.mark.parametrize("call", [tokens_of, check_log])
def test_a_folder_without_a_relay_has_nothing_to_look_after(tmp_path, call):
    with pytest.raises(RelayFolderError, match="holds no relay"):
        call(tmp_path)

    assert os.listdir(tmp_path) == []


# Copies.


async def test_a_copy_is_the_log_as_it_was_while_it_is_served(folder, storage):
    author = await Author.join(storage)
    await author.write(1, 2)
    before = await author.log()
    size_bytes = back_up(folder, folder.parent / "copy.db")
    await author.write(3)
    await storage.close()
    copy = folder.parent / "copy"
    init_folder(copy, now_ms=0)
    os.replace(folder.parent / "copy.db", copy / "relay.db")
    other = SqliteStorage(copy, is_restored=True)
    identity = await other.open()
    author.storage = other
    after = await author.log()
    await author.write(3)
    await other.close()

    assert after == before
    assert size_bytes > 10_000
    assert identity.relay_id == storage._identity.relay_id
    assert identity.epoch != storage._identity.epoch
    assert stat.S_IMODE((copy / "relay.db").stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["relay/relay.db", "nowhere/copy", "relay/relay.db/x"])
def test_a_copy_replaces_nothing_and_makes_no_folder(folder, name):
    target = folder.parent / name
    before = (folder / "relay.db").read_bytes()
    with pytest.raises(InvalidArgumentError) as refused:
        back_up(folder, target)

    assert (refused.value.argument, str(target) in str(refused.value)) == ("file", True)
    assert (folder / "relay.db").read_bytes() == before


def test_a_copy_may_not_be_written_everywhere(folder):
    with unprivileged(), pytest.raises(PermissionDeniedError) as refused:
        back_up(folder, folder / "copy")

    assert refused.value.details["action"] == "write"


def test_a_copy_that_fails_leaves_nothing_behind(tmp_path):
    with pytest.raises(RelayFolderError):
        back_up(tmp_path, tmp_path / "copy")

    assert os.listdir(tmp_path) == []


# Checks.


async def filled(storage, folder):
    """Give the log two namespaces, one of them with a payload that has gone."""
    one, two = [await Author.join(storage, name) for name in ("one", "two")]
    await one.write(1, 2, 3)
    await two.write(1)
    await two.write(kind=RecordKind.SNAPSHOT, base=1)
    await aged(storage, 2 * HOUR_MS)
    await storage.close()
    assert check_log(folder) == [
        NamespaceCheck("one", 3, 0),
        NamespaceCheck("two", 2, 1),
    ]


@pytest.mark.parametrize(
    ("statement", "seq", "reason"),
    [
        (
            "UPDATE log SET payload = x'00' WHERE id & 1023 = 2",
            2,
            "the record is not the one that its id names",
        ),
        (
            "UPDATE log SET payload = x'7061796c6f6165' WHERE id & 1023 = 2",
            2,
            "the record is not the one that its id names",
        ),
        (
            "UPDATE log SET record_id = zeroblob(32) WHERE id & 1023 = 3",
            3,
            "the record is not the one that its id names",
        ),
        (
            "UPDATE log SET payload = NULL, record_id = x'01' WHERE id & 1023 = 2",
            2,
            "the chain is broken",
        ),
        (
            "UPDATE log SET chain = zeroblob(32) WHERE id & 1023 = 1",
            1,
            "the chain is broken",
        ),
        ("DELETE FROM log WHERE id & 1023 = 2", 2, "a record is missing"),
        (
            "DELETE FROM log WHERE id & 1023 = 3",
            3,
            "the head is not the end of the log",
        ),
    ],
)
async def test_the_first_bad_place_is_named_and_the_other_namespaces_are_well(
    folder, storage, statement, seq, reason
):
    await filled(storage, folder)
    changed(folder, f"{statement} AND id >> 40 = 1")
    one, two = check_log(folder)

    assert (one.namespace, one.bad_seq, one.reason) == ("one", seq, reason)
    assert two == NamespaceCheck("two", 2, 1)
