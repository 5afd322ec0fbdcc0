"""A home of its own for every test, and two ways to run a command in it."""

import io
import logging
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass

import pytest

from crdtmem.cli import __main__ as front
from crdtmem.config.keys import BY_VARIABLE

# What would change how a command behaves, wherever the tests are run.
COMMON = ("NO_COLOR", "FORCE_COLOR", "EDITOR", "VISUAL")


@dataclass(frozen=True)
class Result:
    status: int
    out: str
    err: str


@pytest.fixture
def environment(tmp_path):
    """The variables of a process that sees nothing but its own home."""
    return {
        **{k: v for k, v in os.environ.items() if k not in (*BY_VARIABLE, *COMMON)},
        "CRDTMEM_LANE": "tester",
        "CRDTMEM_PROJECT": "demo",
        "CRDTMEM_STORE": str(tmp_path / "store.sqlite"),
        "HOME": str(tmp_path),
        "TERM": "xterm",
        "TMPDIR": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_DATA_HOME": str(tmp_path / "data"),
    }


@pytest.fixture
def home(tmp_path, environment, monkeypatch):
    """This process in that home."""
    for name in (*BY_VARIABLE, *COMMON):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield tmp_path
    logger = logging.getLogger("crdtmem")
    for handler in logger.handlers:
        handler.close()
    logger.handlers.clear()
    logger.setLevel(logging.NOTSET)


@pytest.fixture
def run(home, capsysbinary, monkeypatch):
    """Run a command in this process."""

    def run(*argv, stdin=b""):
        monkeypatch.setattr(
            sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
        )
        status = front.status_of(argv)
        out, err = capsysbinary.readouterr()
        return Result(status, out.decode(), err.decode())

    return run


@pytest.fixture
def spawn(tmp_path, environment):
    """Run a command in a process of its own."""

    def spawn(*argv, stdin=b"", **variables):
        result = subprocess.run(
            [sys.executable, "-m", "crdtmem.cli", *argv],
            cwd=tmp_path,
            env={**environment, **variables},
            input=stdin,
            capture_output=True,
            check=False,
        )
        return Result(result.returncode, result.stdout.decode(), result.stderr.decode())

    return spawn
