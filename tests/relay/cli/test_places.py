"""relay.cli.places and copying: commands on a relay whose log is in a database."""

import json
import os
import signal
import sys
from contextlib import closing

import apsw
import pytest

from relay.cli.places import Place, place_of, storage_at
from relay.cli.serving import serve_place
from relay.config import RelayConfig
from relay.storage.postgres.storage import PostgresStorage
from relay.storage.sqlite.storage import SqliteStorage
from tests.postgres import PASSWORD, postgres  # noqa: F401 - a fixture

pytestmark = pytest.mark.postgres

NEW = ("--namespace", "notes", "--scope", "write")


@pytest.fixture
def name(postgres):  # noqa: F811 - the fixture
    return postgres.emptied()


@pytest.fixture
def url(postgres, name):  # noqa: F811 - the fixture
    return postgres.url(name)


def test_tokens_of_a_database_are_made_shown_and_revoked(url, tmp_path, run):
    shown = run("token", "create", url, *NEW, "--out", "-")
    made = run("token", "create", url, *NEW, "--out", tmp_path / "token", "--json")
    listed = json.loads(run("token", "list", url, "--json").out)["tokens"]
    token_id = json.loads(made.out)["id"]
    revoked = run("token", "revoke", url, token_id)
    unknown = run("token", "revoke", url, "aaaaaaaaaa")
    after = json.loads(run("token", "list", url, "--json").out)["tokens"]

    assert (shown.status, made.status, revoked.status) == (0, 0, 0)
    assert [one["id"] for one in listed] == [shown.out.split("_")[1], token_id]
    assert [one["revokedAt"] is None for one in after] == [True, False]
    assert (unknown.status, "no token 'aaaaaaaaaa'" in unknown.err) == (3, True)


def test_a_database_is_served_until_a_signal_and_checked(url, run):
    ports = []

    def end(port):
        ports.append(port)
        os.kill(os.getpid(), signal.SIGTERM)

    place = Place(None, RelayConfig(port=0, database=url))
    status = serve_place(place, is_restored=False, on_ready=end)
    checked = run("check", url, "--json")

    assert (status, len(ports)) == (0, 1)
    assert json.loads(checked.out) == {"ok": True, "namespaces": []}


def test_a_relay_is_copied_and_what_was_copied_is_told(folder, url, tmp_path, run):
    copied = run("copy", folder, url)
    again = run("copy", folder, url)
    back = run("copy", url, tmp_path / "back", "--json")
    listed = run("token", "list", url).out

    assert (copied.status, copied.err) == (0, "")
    assert copied.out == "copied 0 records of 0 namespaces\n"
    assert (again.status, again.out) == (2, "")
    assert "is not empty\nhint: name a new database" in again.err
    assert json.loads(back.out) == {"namespaces": 0, "records": 0}
    assert run("token", "list", tmp_path / "back").out == listed
    assert run("token", "list", folder).out == listed


def test_a_copy_from_folder_to_folder_is_one_too(folder, tmp_path, run):
    assert run("copy", folder, tmp_path / "other").status == 0
    with (
        closing(apsw.Connection(str(folder / "relay.db"))) as one,
        closing(apsw.Connection(str(tmp_path / "other" / "relay.db"))) as other,
    ):
        question = "SELECT hex(relay_id), (SELECT hex(epoch) FROM epoch) FROM relay"
        assert one.execute(question).get == other.execute(question).get


def test_only_a_folder_can_be_backed_up(folder, url, tmp_path, run):
    by_url = run("backup", url, tmp_path / "copy")
    (folder / "relay.toml").write_text(f'storage = "{url}"', encoding="utf-8")
    by_folder = run("backup", folder, tmp_path / "copy")

    for refused in (by_url, by_folder):
        assert refused.status == 2
        assert "the log is in a database" in refused.err
        assert "use pg_dump" in refused.err
    assert not (tmp_path / "copy").exists()


def test_the_settings_of_a_folder_may_name_its_database(
    folder,
    postgres,  # noqa: F811 - the fixture
    name,
    run,
):
    address = postgres.tcp_url(name).partition("@")[2]
    (folder / "word").write_text(f"{PASSWORD}\n", encoding="utf-8")
    (folder / "relay.toml").write_text(
        f'storage = "postgresql://root@{address}"\npassword_file = "word"\n',
        encoding="utf-8",
    )
    created = run("token", "create", folder, *NEW, "--out", "-")
    listed = run("token", "list", folder, "--json")

    assert created.status == 0
    assert len(json.loads(listed.out)["tokens"]) == 1


@pytest.mark.parametrize("command", [("token", "list"), ("check",), ("serve",)])
def test_no_password_is_told(postgres, name, run, command):  # noqa: F811 - the fixture
    wrong = postgres.tcp_url(name).replace("root:", "root:very-")
    refused = run(*command, wrong)
    bad = run(*command, "postgresql://root:very-secret@db@/x")

    assert refused.status == 6
    assert f"127.0.0.1:{postgres.port}/{name} cannot be reached" in refused.err
    assert bad.status == 2
    assert "very" not in refused.err + bad.err + refused.out + bad.out


def test_what_stands_first_decides_where_the_log_is(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("CRDTMEM_RELAY_STORAGE", "postgres://of/environment")
    word = tmp_path / "word"
    plain = place_of(str(folder))
    (folder / "relay.toml").write_text(
        'storage = "postgres://of/file"\npassword_file = "w"\n', encoding="utf-8"
    )

    def database(*named, **options):
        return place_of(*named, **options).config.database

    assert (plain.home, plain.config.database) == (folder, "")
    assert database(str(folder)) == "postgres://of/file"
    assert database(str(folder), database="postgres://opt") == "postgres://opt"
    assert database("postgres://named") == "postgres://named"
    assert database("postgres://named", database="postgres://opt") == "postgres://opt"
    assert database(None) == "postgres://of/environment"
    assert place_of(None).folder is None
    assert place_of(str(folder)).config.password_file == folder / "w"
    assert place_of(str(folder), password_file=word).config.password_file == word


def test_where_nothing_is_named_that_is_told(monkeypatch, run):
    monkeypatch.delenv("CRDTMEM_RELAY_STORAGE", raising=False)
    refused = run("serve")
    mistyped = run("serve", "--storage", "secret")
    unprintable = run("check", "postgres://secret\x01")

    assert refused.status == mistyped.status == unprintable.status == 2
    assert "name the folder of a relay or a database" in refused.err
    assert "no URL such as postgresql://user@host/database" in mistyped.err
    assert "no URL such as postgresql://user@host/database" in unprintable.err
    assert "secret" not in mistyped.err + unprintable.err


def test_each_place_has_its_storage(folder, url):
    at_home = storage_at(place_of(str(folder)), is_restored=False)
    away = storage_at(place_of(url), is_restored=True)

    assert isinstance(at_home, SqliteStorage)
    assert isinstance(away, PostgresStorage)


def test_without_asyncpg_the_extra_is_named(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "relay.storage.postgres.maintenance", None)
    refused = run("token", "list", "postgres://db/relay")

    assert refused.status == 2
    assert 'pip install "crdtmem[postgres]"' in refused.err


def test_serve_takes_the_database_from_its_options(tmp_path, run, monkeypatch):
    seen = []

    def serve_nothing(place, *, is_restored, on_ready):
        seen.append((place.folder, place.config, is_restored))
        return 0

    monkeypatch.setattr("relay.cli.commands.serve_place", serve_nothing)
    word = tmp_path / "word"
    run("serve", "--storage", "postgres://db/relay", "--password-file", word)
    run("serve", tmp_path, "--storage", "postgres://db/relay", "--restored")
    (first, config, _), (second, _, is_restored) = seen

    assert (first, second, is_restored) == (None, tmp_path, True)
    assert (config.database, config.password_file) == ("postgres://db/relay", word)


def test_the_environment_may_hold_the_password(postgres, name, run, monkeypatch):  # noqa: F811 - the fixture
    address = postgres.tcp_url(name).partition("@")[2]
    created = run("token", "create", postgres.url(name), *NEW, "--out", "-")
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    listed = run("token", "list", f"postgresql://root@{address}", "--json")

    assert [one["id"] for one in json.loads(listed.out)["tokens"]] == [
        created.out.split("_")[1]
    ]
