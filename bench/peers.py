"""The programs that we are compared with, installed at pinned versions on demand.

They lie in ``bench/results``, which git ignores, and are never part of this project. A
peer that cannot be installed is a row of the report that says so.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.workload import RESULTS

__all__ = [
    "ANTHROPIC",
    "HOCUSPOCUS",
    "SERVER_MEMORY",
    "WS",
    "Y_WEBSOCKET",
    "Peer",
    "PeerMissingError",
    "install",
]


@dataclass(frozen=True, slots=True)
class Peer:
    """A package of another project.

    Attributes:
        name: What its registry calls it.
        version: The one that is compared.
        registry: ``npm`` or ``pypi``.

    """

    name: str
    version: str
    registry: str

    @property
    def folder(self) -> Path:
        """Where it is installed."""
        return RESULTS / "peers" / f"{self.name.replace('/', '+')}-{self.version}"

    @property
    def packages(self) -> Path:
        """Where its packages lie; type checkers and test runners skip such names."""
        name = "node_modules" if self.registry == "npm" else "site-packages"
        return self.folder / name


SERVER_MEMORY = Peer("@modelcontextprotocol/server-memory", "2026.8.31", "npm")
ANTHROPIC = Peer("anthropic", "2.14.0", "pypi")
HOCUSPOCUS = Peer("@hocuspocus/server", "4.7.0", "npm")
# The last release with a server inside. The one that followed, @y/websocket-server,
# asks for a package that its registry does not have.
Y_WEBSOCKET = Peer("y-websocket", "2.1.0", "npm")
WS = Peer("ws", "8.23.0", "npm")


class PeerMissingError(Exception):
    """A peer is not there and could not be installed; says why."""


def install(peer: Peer) -> Path:
    """Return the folder of an installed peer, installing it if it is not there.

    Raises:
        PeerMissingError: If its installer is missing or fails.

    """
    if not peer.folder.exists():
        peer.folder.parent.mkdir(parents=True, exist_ok=True)
        # Under another name until it is whole, so that half of one is never used.
        part = Path(tempfile.mkdtemp(dir=peer.folder.parent, prefix="part-"))
        try:
            _run(_command(peer, part))
            part.rename(peer.folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return peer.folder


def _command(peer: Peer, folder: Path) -> list[str]:
    if peer.registry == "npm":
        npm = shutil.which("npm")
        if npm is None:
            raise PeerMissingError("npm is not installed")
        name = f"{peer.name}@{peer.version}"
        return [npm, "install", "--no-save", "--prefix", str(folder), name]
    name = f"{peer.name}=={peer.version}"
    target = str(folder / peer.packages.name)
    return [sys.executable, "-m", "pip", "install", "-q", "-t", target, name]


def _run(command: Sequence[str]) -> None:
    ended = subprocess.run(
        command, check=False, capture_output=True, text=True, encoding="utf-8"
    )
    if ended.returncode:
        last = ended.stderr.strip().splitlines()[-1:] or ["no message"]
        raise PeerMissingError(f"{Path(command[0]).name} install failed: {last[0]}")
