"""Which servers run on a store, and how the command line speaks to them.

Each keeps a locked file beside the store for as long as it lives, however it ends. It
holds a token, so nobody else may read it.
"""

import contextlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from crdtmem.errors import ServeNotRunningError
from crdtmem.limits import SERVE_OPEN_FILE_S
from crdtmem.model import camel_case
from crdtmem.store.flock import try_lock, unlock

if TYPE_CHECKING:
    from http.client import HTTPConnection

__all__ = [
    "RunFile",
    "Running",
    "folder_for",
    "invitation",
    "open_file",
    "running_servers",
    "sweep_open_files",
]

_TIMEOUT_S = 5.0
_OPEN = "open-"
_BYTES = 16_384
_PAGE = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    '<meta http-equiv="refresh" content="0; url={url}"><title>crdtmem</title></head>'
    '<body><p><a href="{url}">Go on</a></p></body></html>'
)


class Running(NamedTuple):
    """A server that runs.

    Attributes:
        pid: Of its process.
        port: That it listens on.
        address: Where this machine reaches it.
        base: What its addresses begin with.
        control: The token with which to ask it.
        started_at: Since when; ISO 8601, UTC.
        read_only: Whether it writes nothing.
        is_tls: Whether it speaks TLS.
        store: Of which; several may lie in one folder.

    """

    pid: int
    port: int
    address: str
    base: str
    control: str
    started_at: str
    read_only: bool
    is_tls: bool
    store: str


def folder_for(store_path: Path) -> Path:
    """Return the folder of a store's run files."""
    return store_path.parent / "serve"


class RunFile:
    """The file of this server; locked until it is closed, or the process ends.

    Args:
        folder: Where it goes; made if it is absent.
        running: What it holds.

    """

    def __init__(self, folder: Path, running: Running) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = folder / f"{running.pid}.json"
        # What lies there is of an earlier process with this number.
        self.path.unlink(missing_ok=True)
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try_lock(self._fd)
        fields = {camel_case(k): v for k, v in running._asdict().items()}
        os.write(self._fd, json.dumps(fields).encode())

    def close(self) -> None:
        """Take it away. Idempotent."""
        if self._fd >= 0:
            self.path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1


def running_servers(folder: Path) -> list[Running]:
    """Return the servers that run, the newest first; drop what dead ones have left."""
    found = [_look(path) for path in sorted(folder.glob("*.json"))]
    running = [one for one in found if one is not None]
    return sorted(running, key=lambda one: one.started_at, reverse=True)


def _look(path: Path) -> Running | None:
    try:
        fd = os.open(path, os.O_RDWR)
    except OSError:
        return None
    try:
        if try_lock(fd):
            path.unlink(missing_ok=True)
            unlock(fd)
            return None
        fields = json.loads(os.read(fd, _BYTES))
        return Running(*(fields[camel_case(name)] for name in Running._fields))
    except (ValueError, TypeError, LookupError):
        # It is just being written.
        return None
    finally:
        os.close(fd)


def invitation(running: Running, *, store: Path) -> str:
    """Return a new one-time URL of a server.

    Raises:
        ServeNotRunningError: If it does not answer.

    """
    # A server that starts speaks to no other one.
    from http.client import HTTPException  # noqa: PLC0415 - see above

    connection = _connection(running)
    host = f"127.0.0.1:{running.port}"
    headers = {"Authorization": f"Bearer {running.control}", "Host": host}
    try:
        connection.request("POST", "/session/invite", headers=headers)
        answer = connection.getresponse()
        value = json.loads(answer.read(_BYTES))
        return str(value["url"])
    except (OSError, HTTPException, ValueError, KeyError, TypeError) as exc:
        raise ServeNotRunningError(store=str(store)) from exc
    finally:
        connection.close()


def _connection(running: Running) -> "HTTPConnection":
    import ssl  # noqa: PLC0415 - as above
    from http.client import HTTPConnection, HTTPSConnection  # noqa: PLC0415 - as above

    if not running.is_tls:
        return HTTPConnection(running.address, running.port, timeout=_TIMEOUT_S)
    # The certificate names the public host. The port is this server's as long as it
    # holds the lock on its file, so nobody else gets the token.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return HTTPSConnection(
        running.address, running.port, timeout=_TIMEOUT_S, context=context
    )


def open_file(folder: Path, url: str, name: str) -> Path:
    """Return a new file that leads a browser to a URL, which no argv may show.

    Args:
        folder: Of the run files.
        url: One-time.
        name: What nobody can guess.

    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"{_OPEN}{name}.html"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(fd, "w", encoding="utf-8") as file:
        file.write(_PAGE.format(url=url))
    return path


def sweep_open_files(folder: Path, now_s: float) -> None:
    """Take away the files of ``open_file`` that are old.

    Args:
        folder: Of the run files.
        now_s: The time, as files have it.

    """
    for path in folder.glob(f"{_OPEN}*.html"):
        with contextlib.suppress(OSError):
            if now_s - path.stat().st_mtime >= SERVE_OPEN_FILE_S:
                path.unlink(missing_ok=True)
