"""A real PostgreSQL server in a temporary folder, and fresh databases on it.

    server = shared_server()
    url = server.new_database()
    server.stop("immediate")
    server.start()

It syncs as a real one does, but on a file system in memory where there is one. It runs
as an unprivileged user: PostgreSQL refuses to be run by root. A process of tests starts
one when it needs it first, and ends it when it exits.
"""

import atexit
import contextlib
import functools
import itertools
import os
import pwd
import re
import select
import shutil
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import quote

import pytest

from tests.scratch import scratch

__all__ = [
    "PASSWORD",
    "Server",
    "binaries",
    "postgres",
    "running_server",
    "shared_server",
]

PASSWORD = "p@ss/w:rd#1"
"""Of the superuser over TCP, spelled as hard as it may be."""

NEEDED = ("initdb", "pg_ctl", "postgres", "psql")
USERS = ("postgres", "nobody")

SETTINGS = {
    "autovacuum_naptime": "1h",
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "shared_buffers": "32MB",
}

EMPTYING = """
DO $$ DECLARE name text; BEGIN
FOR name IN SELECT tablename FROM pg_tables
    WHERE schemaname = 'crdtmem' AND tablename <> 'migration'
LOOP EXECUTE format('DELETE FROM crdtmem.%I', name); END LOOP;
END $$
"""
END = "-- end --"

How = Literal["fast", "immediate", "kill"]


def binaries() -> Path | None:
    """Return the folder of a server's programs, the newest one's; None for none."""
    roots = [Path(shutil.which("initdb") or "/nowhere").resolve().parent]
    found = Path("/usr/lib/postgresql").glob("*/bin")
    roots += sorted(found, key=_version, reverse=True)
    for root in roots:
        if all((root / name).exists() or shutil.which(name) for name in NEEDED):
            break
    else:
        return None
    return root


def _version(folder: Path) -> int:
    digits = re.sub(r"\D", "", folder.parent.name)
    return int(digits or 0)


class Server:
    """One server; made in ``__enter__``, gone after ``__exit__``.

    Args:
        programs: As ``binaries`` found them.
        folder: Where its files go; a folder in memory where none is given.
        options: More of initdb.

    Attributes:
        port: On the loopback address, with a password.
        is_running: Whether it has been started and not stopped since.

    """

    def __init__(
        self, programs: Path, folder: Path | None = None, options: Sequence[str] = ()
    ) -> None:
        self.port = 0
        self.is_running = False
        self._programs = programs
        self._folder = folder
        self._options = options
        self._resources = contextlib.ExitStack()
        self._names = itertools.count(1)
        self._user = _unprivileged_user()
        self._kept = ""
        self._clients: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> Self:
        folder = self._folder or self._resources.enter_context(scratch())
        self._home = folder / "postgres"
        self._home.mkdir(mode=0o700)
        # Its user has to come through to a folder of its own.
        folder.chmod(0o711)
        words = self._home / "words"
        words.write_text(PASSWORD + "\n", encoding="utf-8")
        for path in (self._home, words):
            shutil.chown(path, self._user)
        with self._resources:
            self._run(
                "initdb",
                *("--pgdata", str(self._data), "--username", "root"),
                *("--auth-local", "trust", "--auth-host", "scram-sha-256"),
                *("--pwfile", str(words), "--encoding", "UTF8", "--no-locale"),
                *("--no-sync", "--no-instructions", *self._options),
            )
            self._start_anywhere()
            self._resources = self._resources.pop_all()
        return self

    def __exit__(self, *_: object) -> None:  # pragma: no cover - the process ends
        with contextlib.suppress(AssertionError):
            self.stop("immediate")
        self._resources.close()

    @property
    def _data(self) -> Path:
        return self._home / "data"

    @property
    def has_ended(self) -> bool:
        """Whether it has stopped by itself."""
        return not (self._data / "postmaster.pid").exists()

    def url(self, name: str = "postgres") -> str:
        """Return how to come to a database over a Unix socket, without a password."""
        return f"postgresql://root@/{name}?host={self._home}&port={self.port}"

    def tcp_url(self, name: str = "postgres", port: int = 0) -> str:
        """Return how to come to a database over TCP, or over a proxy's port."""
        word = quote(PASSWORD, safe="")
        return f"postgresql://root:{word}@127.0.0.1:{port or self.port}/{name}"

    def new_database(self, template: str = "template0") -> str:
        """Make a database, empty or like another one; return its URL."""
        return self.url(self.new_name(template))

    def new_name(self, template: str = "template0") -> str:
        """Make a database; return its name."""
        name = f"test{next(self._names)}"
        # Not through the log of writes: that costs twice as much.
        self.sql(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
        return name

    def new_on(self, folder: Path) -> str:
        """Make an empty database whose tables are in a folder of their own."""
        name = f"test{next(self._names)}"
        shutil.chown(folder, self._user)
        self.sql(f"CREATE TABLESPACE {name} LOCATION '{folder}'")
        self.sql(
            f"CREATE DATABASE {name} TEMPLATE template0 STRATEGY FILE_COPY"
            f" TABLESPACE {name}"
        )
        return name

    def emptied(self) -> str:
        """Return the name of a database without a relay.

        It is the same one each time, which is much cheaper than a new one: tables that
        are there are emptied.
        """
        if not self._kept:
            self._kept = self.new_name()
        self.sql(EMPTYING, self._kept)
        return self._kept

    def sql(self, statement: str, name: str = "postgres") -> list[str]:
        """Run statements as the superuser; return the lines of the answer."""
        client = self._clients.pop(name, None) or self._client(name)
        assert client.stdin
        assert client.stdout
        client.stdin.write(f"{statement}\n;\n\\echo {END}\n")
        client.stdin.flush()
        lines: list[str] = []
        for line in client.stdout:
            if line == f"{END}\n":
                self._clients[name] = client
                return lines
            lines.append(line.rstrip("\n"))
        # It ends at the first error.
        client.communicate()
        raise AssertionError(f"{statement}: {lines}")

    def _client(self, name: str) -> subprocess.Popen[str]:
        """Start a client that runs one statement after the other."""
        return subprocess.Popen(
            [
                self._program("psql"),
                *("--no-psqlrc", "--quiet", "--tuples-only", "--no-align"),
                *("--set", "ON_ERROR_STOP=1", "--host", str(self._home)),
                *("--port", str(self.port), "--username", "root", "--dbname", name),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            env=self._environment(),
        )

    def _hang_up(self) -> None:
        """End the clients; the server would wait for them."""
        for client in self._clients.values():
            client.communicate()
        self._clients.clear()

    def start(self, **settings: str) -> None:
        """Start it, with other settings if some are given; it takes connections."""
        chosen = {**SETTINGS, "unix_socket_directories": str(self._home), **settings}
        options = [f"-c {name}={value}" for name, value in chosen.items()]
        try:
            self._control("start", "--options", f"-p {self.port} {' '.join(options)}")
        except AssertionError as error:
            error.add_note((self._home / "log").read_text(encoding="utf-8")[-2_000:])
            raise
        self.is_running = True

    def reload(self, **settings: str) -> None:
        """Use other settings from soon on; without any, those of its start again."""
        self.sql("ALTER SYSTEM RESET ALL")
        for name, value in settings.items():
            self.sql(f"ALTER SYSTEM SET {name} = {value}")
        self.sql("SELECT pg_reload_conf()")

    def start_as_standby(self) -> None:
        """Start it in recovery, as a standby is: it takes no writes until promoted."""
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self._data / "standby.signal", os.O_CREAT | os.O_EXCL))
        self.start()

    def stop(self, how: How = "fast") -> None:
        """End it: in order, at once, or by SIGKILL to all of its processes."""
        self.is_running = False
        self._hang_up()
        if how != "kill":
            self._control("stop", "--mode", how)
            return
        lock = self._data / "postmaster.pid"
        first = int(lock.read_text(encoding="utf-8").split()[0])
        with contextlib.ExitStack() as opened:
            for pid in [first, *_children(first)]:
                with contextlib.suppress(ProcessLookupError):
                    ended = os.pidfd_open(pid)
                    opened.callback(os.close, ended)
                    os.kill(pid, signal.SIGKILL)
                    select.select([ended], [], [])
        # Who is to reap them may not have done so yet, and they would count as alive.
        for left in (lock, *self._home.glob(".s.PGSQL.*.lock")):
            left.unlink()

    def restart(self, how: How = "fast", **settings: str) -> None:
        """Stop it and start it."""
        self.stop(how)
        self.start(**settings)

    def _start_anywhere(self) -> None:
        """Start it on a free port; another process may be faster to take that one."""
        self.port = _free_port()
        try:
            self.start()
        except AssertionError:
            self.port = _free_port()
            self.start()

    def _control(self, action: str, *options: str) -> None:
        log = ("--log", str(self._home / "log")) if action == "start" else ()
        self._run("pg_ctl", action, "--wait", "-D", str(self._data), *log, *options)

    def _program(self, name: str) -> str:
        path = self._programs / name
        return str(path) if path.exists() else name

    def _environment(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "LC_ALL": "C", "TZ": "UTC"}

    def _run(self, program: str, *words: str) -> str:
        """Run one of its programs; return what it printed."""
        # A server keeps the descriptors that pg_ctl was started with, so no pipes.
        with (self._home / "printed").open("w+", encoding="utf-8") as printed:
            ran = subprocess.run(
                [self._program(program), *words],
                cwd=self._home,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                env=self._environment(),
                check=False,
                **_run_as(self._user),
            )
            printed.seek(0)
            text = printed.read()
        assert not ran.returncode, f"{program} {words[0]}: {text}"
        return text


def _unprivileged_user() -> str:
    """Return whom to run a server as: the user of this process, unless that is root."""
    if os.geteuid():
        return pwd.getpwuid(os.geteuid()).pw_name
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in USERS if name in known)


def _run_as(user: str) -> dict[str, Any]:
    """Return how to run a process as somebody; only root may become another one."""
    group = pwd.getpwnam(user).pw_gid
    root = {"user": user, "group": group, "extra_groups": ()}
    return {} if os.geteuid() else root


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as plug:
        port: int = plug.getsockname()[1]
    return port


def _children(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in path.read_text(encoding="utf-8").split()]


@functools.cache
def shared_server() -> Server:
    """Return the server of this process; skips the test where there is none."""
    programs = binaries()
    if programs is None:
        pytest.skip("no PostgreSQL server here")
    server = Server(programs)
    server.__enter__()
    atexit.register(server.__exit__)
    return server


def running_server() -> Server:
    """Return the server of this process, running."""
    server = shared_server()
    if not server.is_running:
        server.start()
    return server


@pytest.fixture
def postgres() -> Server:
    """The server of this process, running; a test leaves it with its first settings."""
    return running_server()
