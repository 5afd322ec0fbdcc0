"""relay.cli.commands and tokens"""

import asyncio
import json
import os
import re
import stat
import time

import apsw
import pytest

from crdtmem.protocol.tokens import parse_token
from relay.auth import digest_of
from relay.config import default_text
from relay.storage.sqlite.maintenance import tokens_of
from relay.storage.sqlite.storage import SqliteStorage
from tests.contracts.authors import Author

ISO = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00"
NEW = ("--namespace", "notes", "--scope", "read")


def parts_of(text: str) -> tuple[str, bytes]:
    parts = parse_token(text.strip())
    assert parts is not None
    return parts


def granted(folder, text):
    """Return the grant of a token as it was written."""

    async def ask():
        storage = SqliteStorage(folder)
        await storage.open()
        try:
            return await storage.grant(*parts_of(text), 1)
        finally:
            await storage.close()

    return asyncio.run(ask())


def fill(folder):
    """Append three records to a namespace."""

    async def write():
        storage = SqliteStorage(folder, disk_free_bytes=0)
        await storage.open()
        await (await Author.join(storage)).write(1, 2, 3)
        await storage.close()

    asyncio.run(write())


def test_a_new_relay_has_settings_and_one_token_for_its_owner(tmp_path, run):
    folder = tmp_path / "relay"
    made = run("init", folder)
    text = (folder / "first.token").read_text(encoding="ascii")
    (row,) = tokens_of(folder)

    assert (made.status, made.err) == (0, "")
    assert made.out.splitlines()[-1] == f"next: crdtmem relay serve {folder}"
    assert (folder / "relay.toml").read_text(encoding="utf-8") == default_text()
    assert stat.S_IMODE((folder / "first.token").stat().st_mode) == 0o600
    assert (row.pattern, row.label) == ("*", "first")
    assert row.scopes == ("compact", "presence", "read", "write")
    assert granted(folder, text).token_id == row.token_id
    assert text.strip() not in made.out


def test_a_new_relay_may_be_for_one_namespace(tmp_path, run):
    made = run("init", tmp_path / "relay", "--namespace", "p-*", "--json")
    told = json.loads(made.out)
    (row,) = tokens_of(tmp_path / "relay")

    assert row.pattern == "p-*"
    assert re.fullmatch(ISO, told.pop("createdAt"))
    assert told == {
        "folder": str(tmp_path / "relay"),
        "file": str(tmp_path / "relay" / "first.token"),
        "id": row.token_id,
        "namespace": "p-*",
        "scopes": ["compact", "presence", "read", "write"],
        "label": "first",
        "expiresAt": None,
        "revokedAt": None,
        "maxReplicas": None,
    }


def test_a_relay_is_not_made_for_a_namespace_that_cannot_be(tmp_path, run):
    refused = run("init", tmp_path / "relay", "--namespace", "Not One")

    assert (refused.status, refused.out) == (2, "")
    assert "error: namespace 'Not One' is no name" in refused.err
    assert os.listdir(tmp_path) == []


def test_a_relay_is_not_made_twice(folder, run):
    before = sorted(os.listdir(folder))
    refused = run("init", folder, "--json")

    assert (refused.status, refused.out) == (2, "")
    assert json.loads(refused.err)["error"]["code"] == "relay-folder"
    assert sorted(os.listdir(folder)) == before


def test_a_token_goes_to_a_file_of_its_owner(folder, tmp_path, run):
    target = tmp_path / "my.token"
    made = run("token", "create", folder, *NEW, "--label", "laptop", "--out", target)
    row = tokens_of(folder)[-1]
    told = run("token", "create", folder, *NEW, "--out", f"{target}2", "--json").out

    assert made.out == f"{target}: a token for notes (read)\n"
    assert json.loads(told)["file"] == f"{target}2"
    assert "token" not in json.loads(told)
    assert (row.pattern, row.scopes, row.label) == ("notes", ("read",), "laptop")
    assert (row.not_after_ms, row.max_replicas) == (None, None)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert granted(folder, target.read_text(encoding="ascii")).covers("notes")


def test_a_token_that_is_shown_is_shown_alone(folder, run):
    made = run("token", "create", folder, *NEW, "--out", "-")

    assert (made.status, made.err) == (0, "")
    assert granted(folder, made.out).token_id == tokens_of(folder)[-1].token_id


def test_a_token_may_end_and_be_for_few(folder, tmp_path, run):
    before_ms = time.time() * 1_000
    made = run(
        *("token", "create", folder, *NEW, "--scope", "write", "--scope", "read"),
        *("--expires", "90d", "--max-replicas", "2", "--out", "-", "--json"),
    )
    told = json.loads(made.out)
    row = tokens_of(folder)[-1]

    assert row.not_after_ms == row.created_ms + 90 * 86_400_000
    assert row.created_ms >= int(before_ms)
    assert (row.max_replicas, told["maxReplicas"]) == (2, 2)
    assert told["scopes"] == ["read", "write"]
    assert re.fullmatch(ISO, told["expiresAt"])
    assert granted(folder, told["token"]).token_id == told["id"]


def test_a_file_with_a_token_is_never_replaced(folder, tmp_path, run):
    target = folder / "first.token"
    before = target.read_text(encoding="ascii")
    refused = run("token", "create", folder, *NEW, "--out", target, "--json")

    assert refused.status == 2
    assert json.loads(refused.err)["error"]["details"]["path"] == str(target)
    assert target.read_text(encoding="ascii") == before
    assert len(tokens_of(folder)) == 1


def test_a_token_that_was_not_added_leaves_no_file(tmp_path, run):
    target = tmp_path / "my.token"
    refused = run("token", "create", tmp_path, *NEW, "--out", target)

    assert (refused.status, target.exists()) == (2, False)
    assert "holds no relay" in refused.err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--scope", "compact"), "scope 'compact' needs 'write'"),
        (("--scope", "admin"), "'admin' is not one of 'read', 'write', 'compact'"),
        (("--scope", "read", "--expires", "soon"), "'soon' is no time such as 30m"),
        (("--scope", "read", "--max-replicas", "0"), "0 is not in the range x>=1"),
        ((), "missing option '--scope'"),
    ],
)
def test_a_token_that_cannot_be_is_refused(folder, run, words, sentence):
    line = ("token", "create", folder, "--namespace", "notes", *words, "--out", "-")
    refused = run(*line)

    assert (refused.status, refused.out) == (2, "")
    assert sentence in refused.err
    assert len(tokens_of(folder)) == 1


def test_tokens_are_listed_without_their_secrets(folder, run):
    first = tokens_of(folder)[0]
    run("token", "create", folder, *NEW, "--expires", "1h", "--out", "-")
    second = tokens_of(folder)[1]
    revoked = run("token", "revoke", folder, first.token_id)
    listed = run("token", "list", folder)
    told = json.loads(run("token", "list", folder, "--json").out)["tokens"]
    secret = (folder / "first.token").read_text(encoding="ascii")

    assert revoked.out == f"{first.token_id}: revoked\n"
    lines = listed.out.splitlines()
    assert re.fullmatch(
        rf"{first.token_id}  \* \(compact, presence, read, write\),"
        rf" revoked {ISO}  first",
        lines[0],
    )
    assert re.fullmatch(rf"{second.token_id}  notes \(read\), until {ISO}", lines[1])
    assert [one["id"] for one in told] == [first.token_id, second.token_id]
    assert (told[0]["revokedAt"] is None, told[1]["revokedAt"]) == (False, None)
    assert secret.strip() not in listed.out
    assert digest_of(parts_of(secret)[1]).hex() not in str(told)


def test_a_token_without_an_end_is_listed_so(folder, run):
    token_id = tokens_of(folder)[0].token_id

    assert run("token", "list", folder).out == (
        f"{token_id}  * (compact, presence, read, write)  first\n"
    )


def test_a_token_is_revoked_once_and_for_all(folder, run):
    token_id = tokens_of(folder)[0].token_id
    revoked = [run("token", "revoke", folder, token_id, "--json") for _ in range(2)]
    unknown = run("token", "revoke", folder, "bbbbbbbbbb")

    assert [json.loads(one.out) for one in revoked] == [
        {"id": token_id, "revoked": True}
    ] * 2
    assert unknown.status == 3
    assert unknown.err == (
        "error: no token 'bbbbbbbbbb'\n"
        "hint: run 'crdtmem relay token list DIR' to see what there is\n"
    )
    text = (folder / "first.token").read_text(encoding="ascii")
    assert granted(folder, text) is None


def test_a_relay_is_copied(folder, tmp_path, run):
    fill(folder)
    one = run("backup", folder, tmp_path / "one.db")
    two = run("backup", folder, tmp_path / "two.db", "--json")
    again = run("backup", folder, tmp_path / "two.db")
    size = (tmp_path / "two.db").stat().st_size

    assert one.out == f"{tmp_path / 'one.db'}: {size:,} bytes\n"
    assert json.loads(two.out) == {"file": str(tmp_path / "two.db"), "bytes": size}
    assert (again.status, "exists" in again.err) == (2, True)


def test_a_sound_log_is_told_so(folder, run):
    fill(folder)
    checked = run("check", folder)
    told = json.loads(run("check", folder, "--json").out)

    assert (checked.status, checked.out) == (
        0,
        "ok    notes: 3 records, 0 without their payload\n",
    )
    assert told == {
        "ok": True,
        "namespaces": [
            {
                "namespace": "notes",
                "records": 3,
                "dropped": 0,
                "badSeq": None,
                "reason": None,
            }
        ],
    }


def test_a_damaged_log_is_told_with_its_first_bad_place(folder, run):
    fill(folder)
    connection = apsw.Connection(str(folder / "relay.db"))
    connection.execute("UPDATE log SET payload = x'00' WHERE id & 1023 = 2")
    connection.close()
    checked = run("check", folder)
    told = json.loads(run("check", folder, "--json").out)

    assert (checked.status, checked.out) == (
        10,
        "fail  notes: seq 2: the record is not the one that its id names\n",
    )
    assert (told["ok"], told["namespaces"][0]["badSeq"]) == (False, 2)
