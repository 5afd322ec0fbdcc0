"""crdtmem.sync.keyring"""

import json
import os
import stat

import pytest

from crdtmem.errors import KeyringError, PermissionDeniedError
from crdtmem.limits import KEYRING_BYTES
from crdtmem.sync.keyring import (
    add_key,
    load_sealers,
    new_keyring,
    parse_keyring,
    process_keyring,
    read_keyring,
    write_keyring,
)

SECRET = "q" * 42 + "g"
OTHER = "x" * 42 + "w"
ENTRY = f'[[key]]\nid = 1\nsecret = "{SECRET}"\n'


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "keyring.toml"


def secrets_of(keyring):
    return dict(keyring.reveal())


def test_keys_are_kept_in_a_file_for_their_owner_alone(path):
    made = add_key(new_keyring())

    write_keyring(path, made, is_new=True)

    assert secrets_of(read_keyring(path)) == secrets_of(made)
    assert made.ids == (1, 2)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["keyring.toml"]


def test_a_file_is_replaced_as_a_whole_and_never_by_a_new_one(path):
    first, second = new_keyring(), new_keyring()
    write_keyring(path, first, is_new=True)

    with pytest.raises(KeyringError, match="is there already"):
        write_keyring(path, second, is_new=True)
    assert secrets_of(read_keyring(path)) == secrets_of(first)
    assert [file.name for file in path.parent.iterdir()] == ["keyring.toml"]

    write_keyring(path, second)
    assert secrets_of(read_keyring(path)) == secrets_of(second)


def test_a_file_that_cannot_be_written_says_why(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")

    with pytest.raises(KeyringError, match="cannot be written: File exists"):
        write_keyring(tmp_path / "file" / "keyring", new_keyring())


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_file_that_others_may_read_is_not_used(path, mode):
    write_keyring(path, new_keyring())
    path.chmod(mode)

    with pytest.raises(PermissionDeniedError, match="others may read it") as refusal:
        read_keyring(path)

    assert refusal.value.hint == f"run 'chmod 600 {path}'"


def test_a_file_that_is_not_there_is_an_error(path):
    with pytest.raises(KeyringError, match="cannot be read: No such file"):
        read_keyring(path)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "key = 1",
        "key = [1]",
        "[[key]]\nid = 1\n",
        ENTRY.replace("= 1", '= "1"'),
        ENTRY.replace("= 1", "= true"),
        ENTRY.replace(SECRET, SECRET[1:]),
        ENTRY.replace(SECRET, SECRET + "="),
        ENTRY.replace(SECRET, SECRET[:-1] + "h"),
        ENTRY.replace(f'"{SECRET}"', "5"),
        ENTRY + ENTRY,
        ENTRY + "[[key",
        "#" * KEYRING_BYTES + ENTRY,
    ],
)
def test_what_holds_no_keys_is_refused_without_being_shown(content):
    with pytest.raises(KeyringError, match=r"k\.toml does not hold keys") as refusal:
        parse_keyring(content.encode(), "k.toml")

    assert SECRET[:20] not in str(refusal.value.to_dict())
    assert refusal.value.__cause__ is None


def test_bytes_that_are_no_text_are_refused():
    with pytest.raises(KeyringError, match="does not hold keys"):
        parse_keyring(b"\xff", "k.toml")


def test_a_keyring_without_the_first_key_says_so():
    with pytest.raises(KeyringError, match="cannot be used: key 1 is missing"):
        parse_keyring(ENTRY.replace("= 1", "= 2").encode(), "k.toml")


def test_the_environment_may_hold_keys():
    found = process_keyring(f"1:{SECRET}  7:{OTHER}")

    assert found.ids == (1, 7)


@pytest.mark.parametrize(
    "text", ["", SECRET, f"x:{SECRET}", f"1:{SECRET[1:]}", f"1:{SECRET} 1:{OTHER}"]
)
def test_an_environment_without_keys_is_refused_without_being_shown(text):
    with pytest.raises(KeyringError, match="is no list of ID:SECRET") as refusal:
        process_keyring(text)

    assert SECRET[:20] not in str(refusal.value.to_dict())


def test_a_descriptor_may_bring_keys_once():
    reader, writer = os.pipe()
    os.write(writer, ENTRY.encode())
    os.close(writer)

    assert process_keyring(f"fd:{reader}").ids == (1,)
    with pytest.raises(KeyringError, match=f"fd:{reader} cannot be read: Bad file"):
        process_keyring(f"fd:{reader}")


def test_a_store_gets_the_keys_of_its_encrypted_links_and_of_no_other(site, path):
    write_keyring(path, new_keyring())
    keys = secrets_of(new_keyring())
    plain, sealed, given = site("a"), site("b", keys=keys), site("c", keys=keys)
    set_options(sealed, {"encrypted": True, "keyring": str(path)})

    failed = [
        load_sealers(one.store, [one.stored], new_keyring())
        for one in (plain, sealed, given)
    ]

    assert failed == [{}, {}, {}]
    assert [len(one.store.sealers) for one in (plain, sealed, given)] == [0, 1, 1]
    path.unlink()
    missing = load_sealers(sealed.store, [sealed.stored], None)
    assert [error.code for error in missing.values()] == ["keyring-invalid"]
    assert load_sealers(given.store, [given.stored], None) == {}
    assert [one.store.sealers for one in (sealed, given)] == [{}, {}]


def set_options(site, options):
    with site.store.writing() as transaction:
        transaction.connection.execute(
            "UPDATE link SET options = :o", {"o": json.dumps(options)}
        )
