"""crdtmem.cli.key"""

import json
import os
import stat

import pytest

from crdtmem.sync.keyring import new_keyring, read_keyring, write_keyring


def shown(*results):
    return "".join(result.out + result.err for result in results)


def secrets_in(path):
    return [
        line.split('"')[1]
        for line in path.read_text(encoding="utf-8").split("\n")
        if line.startswith("secret")
    ]


@pytest.fixture
def ring(run, home):
    """Run a command where there is a keyring; give its path."""
    path = home / "config" / "crdtmem" / "keyring.toml"
    assert run("key", "create").status == 0
    return path


@pytest.mark.requirement("sealed-3")
def test_keys_are_made_carried_and_told_of_and_no_secret_is_ever_shown(run, home, ring):
    told = [
        run("key", "create"),
        run("key", "rotate"),
        run("key", "export", "away.toml"),
        run("key", "export", "away.toml"),
        run("key", "import", "away.toml", "--keyring", "other.toml"),
        run("key", "import", "away.toml"),
        run("key", "list", "--json"),
        run("key", "list", "--keyring", "other.toml"),
        run("--verbose", "key", "list"),
    ]

    assert [one.status for one in told] == [2, 0, 0, 2, 0, 0, 0, 0, 0]
    assert f"keyring {ring} is there already" in told[0].err
    assert told[1].out == f"{ring}: rotated keys 1, 2\n"
    assert told[2].out == f"{home / 'away.toml'}: exported keys 1, 2\n"
    assert "is there already" in told[3].err
    assert json.loads(told[6].out) == {"path": str(ring), "ids": [1, 2], "newest": 2}
    assert told[7].out == f"{home / 'other.toml'}: keys 1, 2\n"
    files = [ring, home / "away.toml", home / "other.toml"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    secrets = secrets_in(ring)
    assert secrets == secrets_in(files[1]) == secrets_in(files[2])
    assert len(secrets) == len(set(secrets)) == 2
    assert [one for one in secrets if one in shown(*told)] == []


def test_a_first_key_is_told_of_in_the_singular(run, ring):
    assert run("key", "list").out == f"{ring}: key 1\n"


def test_keys_may_come_from_stdin_or_a_descriptor(run, home, ring):
    content = ring.read_bytes()
    words = "key", "import", "--keyring", "a.toml"
    reader, writer = os.pipe()
    os.write(writer, content)
    os.close(writer)

    assert run(*words, "-", stdin=content).status == 0
    assert run("key", "import", f"fd:{reader}", "--keyring", "b.toml").status == 0

    assert secrets_in(home / "a.toml") == secrets_in(home / "b.toml")


@pytest.mark.requirement("sealed-3")
def test_keys_are_not_printed(run, ring):
    refused = run("key", "export", "-")

    assert (refused.status, refused.out) == (2, "")
    assert "not printed" in refused.err


def test_another_secret_of_the_same_id_is_not_taken_in(run, home, ring):
    before = ring.read_bytes()
    write_keyring(home / "foreign.toml", new_keyring())

    refused = run("key", "import", "foreign.toml")

    assert refused.status == 2
    assert "two secrets have the id 1" in refused.err
    assert ring.read_bytes() == before


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("list", "file"), "'key list' takes no FILE"),
        (("import",), "'key import' takes a FILE"),
        (("export",), "'key export' takes a FILE"),
    ],
)
def test_what_an_action_takes_is_said(run, words, why):
    refused = run("key", *words)

    assert refused.status == 2
    assert why in refused.err


def test_the_setting_says_where_the_keys_are(run, home):
    run("config", "set", "relay.keyring_file", str(home / "mine.toml"))

    assert run("key", "create").out == f"{home / 'mine.toml'}: made key 1\n"
    assert read_keyring(home / "mine.toml").ids == (1,)


def test_a_file_that_others_may_read_is_not_used(run, ring):
    ring.chmod(0o644)

    refused = run("key", "list")

    assert refused.status != 0
    assert f"chmod 600 {ring}" in refused.err
