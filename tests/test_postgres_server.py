"""tests.postgres: the server that other tests need."""

import os
import socket

import pytest

from tests import postgres as servers
from tests.postgres import binaries, postgres, running_server, shared_server  # noqa: F401 - a fixture

pytestmark = pytest.mark.postgres


def test_a_server_runs_as_somebody_without_privileges(postgres):  # noqa: F811 - the fixture
    pid = postgres.sql("SELECT pg_read_file('postmaster.pid')")[0]

    assert os.stat(f"/proc/{pid}").st_uid != 0


def test_a_database_may_be_made_like_another(postgres):  # noqa: F811 - the fixture
    first = postgres.new_name()
    postgres.sql("CREATE TABLE kept(n int); INSERT INTO kept VALUES (7)", first)
    postgres.stop()
    running_server()
    url = postgres.new_database(first)
    name = url.partition("@/")[2].partition("?")[0]

    assert postgres.sql("SELECT n FROM kept", name) == ["7"]


def test_what_goes_wrong_is_shown(postgres):  # noqa: F811 - the fixture
    with pytest.raises(AssertionError, match='column "nosuch" does not exist'):
        postgres.sql("SELECT nosuch")

    assert postgres.sql("SELECT 1") == ["1"]


def test_a_server_that_finds_its_port_taken_takes_another(
    postgres,  # noqa: F811 - the fixture
    monkeypatch,
):
    postgres.stop()
    with socket.create_server(("127.0.0.1", 0)) as plug:
        taken = plug.getsockname()[1]
        ports = iter([taken, servers._free_port()])
        monkeypatch.setattr(servers, "_free_port", lambda: next(ports))
        postgres._start_anywhere()

    assert postgres.port != taken
    assert postgres.sql("SHOW fsync") == ["on"]


def test_where_there_is_no_server_its_tests_are_skipped(monkeypatch):
    monkeypatch.setattr(servers, "NEEDED", ("nosuch",))

    assert binaries() is None
    with pytest.raises(pytest.skip.Exception, match="no PostgreSQL server here"):
        shared_server.__wrapped__()


def test_who_is_not_root_runs_it_as_themselves(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1)

    assert servers._unprivileged_user() == "daemon"
    assert servers._run_as("daemon") == {}
