"""Runs a command of the relay in this process."""

from dataclasses import dataclass

import pytest

from relay.cli import status_of


@dataclass(frozen=True)
class Result:
    status: int
    out: str
    err: str


@pytest.fixture
def run(capsys):
    def run(*argv):
        status = status_of([str(word) for word in argv])
        out, err = capsys.readouterr()
        return Result(status, out, err)

    return run


@pytest.fixture
def folder(tmp_path, run):
    """A new relay."""
    assert run("init", tmp_path / "relay").status == 0
    return tmp_path / "relay"
