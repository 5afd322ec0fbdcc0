"""Bearer tokens and their file."""

import logging

import pytest

from crdtmem.errors import ConfigError
from crdtmem.limits import SERVE_TOKEN_FILE_BYTES
from crdtmem.serve.tokens import Tokens, read_tokens
from tests.serve.desk import CONTROL, READ, WRITE, token_file


def tokens(path):
    return Tokens(path, control=CONTROL, lane="cli")


def test_a_token_has_a_name_and_a_right(tmp_path):
    known = tokens(token_file(tmp_path))

    reader, writer = known.find(READ), known.find(WRITE)

    assert (reader.lane, reader.may_write) == ("rita", False)
    assert (writer.lane, writer.may_write) == ("wim", True)
    assert not writer.may_choose_lane
    assert known.is_good(reader)
    assert known.is_good(writer)
    assert known.find("x" * 40) is None


def test_the_command_has_a_token_of_its_own():
    known = tokens(None)
    principal = known.find(CONTROL)

    assert (principal.lane, principal.may_write) == ("cli", True)
    assert principal.may_choose_lane
    assert known.is_good(principal)
    assert known.find(WRITE) is None


@pytest.mark.requirement("serve-5")
def test_a_changed_file_counts_at_once(tmp_path):
    path = token_file(tmp_path)
    known = tokens(path)
    reader, writer = known.find(READ), known.find(WRITE)

    token_file(tmp_path, "# a comment", "", f"wim read {WRITE}")

    assert known.find(READ) is None
    assert not known.is_good(reader)
    assert not known.is_good(writer)
    assert not known.find(WRITE).may_write


def test_a_file_that_cannot_be_used_any_more_lets_nobody_in(tmp_path, caplog):
    path = token_file(tmp_path)
    known = tokens(path)

    with caplog.at_level(logging.WARNING):
        path.chmod(0o644)
        found = known.find(WRITE)
        path.unlink()
        gone = known.find(WRITE)

    assert found is None
    assert gone is None
    assert "no token is good any more" in caplog.text
    assert WRITE not in caplog.text


@pytest.mark.requirement("serve-27")
@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["wim write short"], "line 1 is not NAME read|write TOKEN"),
        ([f"wim admin {WRITE}"], "line 1 is not"),
        ([f"wim write {WRITE} more"], "line 1 is not"),
        (["", f"wim write {'ä' * 40}"], "line 2 is not"),
        ([f"a read {READ}", f"a write {WRITE}"], "line 2 has a name or token twice"),
        ([f"a read {READ}", f"b write {READ}"], "line 2 has a name or token twice"),
        ([f"control write {WRITE}"], "line 1 has a name or token twice"),
        ([f"{'n' * 129} write {WRITE}"], "line 1: lane"),
        (["#" * (SERVE_TOKEN_FILE_BYTES + 1)], "is longer than"),
    ],
)
def test_a_bad_line_is_named(tmp_path, lines, why):
    with pytest.raises(ConfigError) as caught:
        read_tokens(token_file(tmp_path, *lines))

    assert caught.value.code == "config-invalid"
    assert why in caught.value.message
    assert WRITE not in caught.value.message


@pytest.mark.requirement("serve-27")
def test_a_file_that_others_may_read_or_that_is_no_text_is_refused(tmp_path):
    path = token_file(tmp_path)
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="has mode 0644"):
        read_tokens(path)
    path.chmod(0o600)
    path.write_bytes(b"\xff\n")

    with pytest.raises(ConfigError, match="is no UTF-8 text"):
        read_tokens(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_tokens(tmp_path / "absent")
