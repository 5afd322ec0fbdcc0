"""relay.config"""

import ipaddress
import tomllib
from dataclasses import fields

import pytest
from hypothesis import example, given, strategies as st

from crdtmem.errors import ConfigError
from crdtmem.protocol.serving import RelayLimits
from relay.config import (
    RelayConfig,
    database_of_environment,
    default_text,
    parse_database,
    parse_listen,
    parse_network,
    parse_origin,
    read_config,
)
from relay.storage.rules import StorageLimits


@pytest.fixture
def write(tmp_path):
    def write(text):
        content = text if isinstance(text, bytes) else text.encode()
        (tmp_path / "relay.toml").write_bytes(content)
        return tmp_path

    return write


def refused(folder):
    with pytest.raises(ConfigError) as error:
        read_config(folder)
    assert error.value.exit_status == 2
    assert error.value.details["file"] == str(folder / "relay.toml")
    return error.value


def test_a_folder_without_settings_has_the_defaults(tmp_path):
    assert read_config(tmp_path) == RelayConfig()
    assert RelayConfig() == RelayConfig(
        "127.0.0.1", 8787, None, None, (), (), RelayLimits(), StorageLimits()
    )


def test_the_file_of_a_new_relay_changes_nothing(write):
    assert read_config(write(default_text())) == RelayConfig()


def test_the_file_of_a_new_relay_shows_every_limit_with_its_default():
    shown = default_text().partition("[limits]")[2].replace("# ", "")
    known = [*fields(RelayLimits), *fields(StorageLimits)]

    assert tomllib.loads(shown) == {
        one.name: one.default for one in known if one.name != "agent"
    }


def test_every_limit_may_be_set_to_its_default(write):
    text = default_text().partition("[limits]")[2].replace("# ", "")

    assert read_config(write(f"[limits]{text}")) == RelayConfig()


def test_settings_are_read(write):
    folder = write(
        "\ufeff"
        'listen = "[::1]:443"\ntls_cert = "cert.pem"\ntls_key = "/keys/key.pem"\n'
        'behind_proxy = ["10.0.0.0/8", "::1"]\norigins = ["https://example.org"]\n'
        "[limits]\nquota_bytes = 4_096\nstall_s = 7\n"
    )
    config = read_config(folder)

    assert (config.host, config.port) == ("::1", 443)
    assert config.tls_cert == folder / "cert.pem"
    assert str(config.tls_key) == "/keys/key.pem"
    assert config.proxies == (
        ipaddress.ip_network("10.0.0.0/8"),
        ipaddress.ip_network("::1"),
    )
    assert config.origins == ("https://example.org",)
    assert config.storage == StorageLimits(quota_bytes=4_096)
    assert config.limits == RelayLimits(stall_s=7.0)
    assert type(config.limits.stall_s) is float


@pytest.mark.parametrize(
    ("text", "key", "sentence"),
    [
        ("listen = 8787", "listen", "cannot be used: 8787 is no text"),
        ('listen = "here"', "listen", "'here' is no address such as 127.0.0.1:8787"),
        ('tls_cert = ""', "tls_cert", "'' is no text on one line"),
        ('tls_key = "a\\u0000"', "tls_key", "is no text on one line"),
        ('behind_proxy = "10.0.0.0/8"', "behind_proxy", "is '10.0.0.0/8', and no list"),
        ('behind_proxy = ["x"]', "behind_proxy", "'x' is no network such as"),
        ("behind_proxy = [1]", "behind_proxy", "1 is no text"),
        ('origins = ["*"]', "origins", "'*' is no origin such as"),
        ("limits = 1", "limits", "is no table"),
        ("[limits]\ndocs_max = true", "limits.docs_max", "is True, and no such number"),
        ("[limits]\ndocs_max = 1.5", "limits.docs_max", "is 1.5, and no such number"),
        ("[limits]\ndocs_max = 0", "limits.docs_max", "is 0, not within 1 and 1_000_"),
        ("[limits]\njoins_max = 65", "limits.joins_max", "not within 1 and 64"),
        ("[limits]\nstall_s = nan", "limits.stall_s", "is nan, not within 0.1 and"),
        ("[limits]\nstall_s = inf", "limits.stall_s", "is inf, not within"),
        (
            f"[limits]\nstall_s = 0x{'f' * 9_000}",
            "limits.stall_s",
            "is a number of very many digits, not within",
        ),
        (
            "[limits]\nsnapshot_bytes = 99_999_999",
            "limits.snapshot_bytes",
            "is 99999999, not within 1_024 and 67_108_864",
        ),
        (f'listen = "{"x" * 500}"', "listen", f"'{'x' * 119}…"),
        ("storage = 1", "storage", "cannot be used: it is no text"),
        ('storage = "mysql://x"', "storage", "is no URL such as postgresql://user@"),
        ('password_file = ""', "password_file", "'' is no text on one line"),
    ],
)
def test_a_value_that_cannot_be_used_is_named_with_its_bounds(
    write, text, key, sentence
):
    error = refused(write(text))

    assert (error.code, error.details["key"]) == ("config-invalid", key)
    assert sentence in str(error) or sentence[:100] in str(error)


@pytest.mark.parametrize(
    ("text", "key", "hint"),
    [
        ("listn = 1", "listn", "did you mean 'listen'?"),
        ("[limits]\nquota_byte = 1", "limits.quota_byte", "did you mean 'quota_bytes'"),
        ("[limits]\nagent = 'x'", "limits.agent", "see 'relay.toml'"),
    ],
)
def test_an_unknown_setting_is_named_with_the_nearest(write, text, key, hint):
    error = refused(write(text))

    assert (error.code, error.details["key"]) == ("config-unknown-key", key)
    assert error.hint.startswith(hint)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"listen = ", "is not TOML"),
        (b'listen = "\xff"', "is not TOML"),
        (b"x = " + b"[" * 20_000, "is not TOML"),
        (b"x = " + b"1" * 5_000, "is not TOML"),
        (b"#" * 65_537, "is longer than 65536 bytes"),
    ],
)
def test_a_file_that_is_no_settings_is_refused(write, content, sentence):
    error = refused(write(content))

    assert error.code == "config-invalid"
    assert sentence in str(error)


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    (tmp_path / "relay.toml").mkdir()
    assert "is no regular file" in str(refused(tmp_path))
    (tmp_path / "relay.toml").rmdir()
    (tmp_path / "relay.toml").symlink_to("relay.toml")
    assert "cannot be read" in str(refused(tmp_path))


@given(st.binary(max_size=200))
@example(b"limits = {a = 1}")
def test_no_file_raises_anything_else(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("relay")
    (folder / "relay.toml").write_bytes(content)
    try:
        config = read_config(folder)
    except ConfigError:
        config = RelayConfig()

    assert config.limits == RelayLimits()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8787", ("127.0.0.1", 8787)),
        ("localhost:0", ("localhost", 0)),
        ("[::1]:65535", ("::1", 65_535)),
        ("relay.example.org:443", ("relay.example.org", 443)),
    ],
)
def test_an_address_has_a_host_and_a_port(text, address):
    assert parse_listen(text) == address


@pytest.mark.parametrize(
    "text", ["", ":80", "a", "a:", "a:65536", "a:-1", "::1:80", "[g]:80", "a b:1"]
)
def test_an_address_without_one_of_them_is_none(text):
    with pytest.raises(ValueError, match="is no address such as"):
        parse_listen(text)


def test_a_network_with_bits_of_a_host_is_none():
    with pytest.raises(ValueError, match=r"'10\.0\.0\.1/8' is no network"):
        parse_network("10.0.0.1/8")


@pytest.mark.parametrize("text", ["example.org", "https://a/b", "https://", "ws://a"])
def test_an_origin_is_scheme_host_and_port_alone(text):
    with pytest.raises(ValueError, match="is no origin such as"):
        parse_origin(text)


# A database.


def test_a_folder_may_name_a_database_instead(write):
    folder = write(
        'storage = "postgresql://relay:secret@db/relay"\npassword_file = "word"\n'
    )
    config = read_config(folder)

    assert config.database == "postgresql://relay:secret@db/relay"
    assert config.password_file == folder / "word"
    assert "secret" not in repr(config)
    assert read_config(write('storage = ""')) == RelayConfig()


@pytest.mark.parametrize(
    "text", ["", "secret", "http://u:secret@h/d", "postgresql:/secret", "postgres://\n"]
)
def test_what_is_no_url_of_a_database_is_refused_without_a_word_of_it(text):
    with pytest.raises(ValueError, match="is no URL such as postgresql://") as error:
        parse_database(text)

    assert "secret" not in str(error.value)


def test_the_environment_may_name_a_database(monkeypatch):
    monkeypatch.delenv("CRDTMEM_RELAY_STORAGE", raising=False)
    absent = database_of_environment()
    monkeypatch.setenv("CRDTMEM_RELAY_STORAGE", "postgres://db/relay")
    found = database_of_environment()
    monkeypatch.setenv("CRDTMEM_RELAY_STORAGE", "secret")
    with pytest.raises(ConfigError, match="CRDTMEM_RELAY_STORAGE cannot be used") as no:
        database_of_environment()

    assert (absent, found) == ("", "postgres://db/relay")
    assert (no.value.code, no.value.exit_status) == ("config-invalid", 2)
    assert "secret" not in str(no.value)
