"""Files of keys: who has one reads what its namespaces hold, so only its owner may.

A keyring is TOML, a table ``[[key]]`` with ``id`` and ``secret`` for each key. It is
read when a connection is made, and its keys are in memory only while one lives.
"""

import base64
import os
import re
import secrets
import stat
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from crdtmem.errors import InvalidArgumentError, KeyringError, PermissionDeniedError
from crdtmem.limits import KEYRING_BYTES
from crdtmem.sealing import FIRST_KEY_ID, SECRET_BYTES, Keyring, Sealer
from crdtmem.store.links import Link
from crdtmem.store.store import Store

__all__ = [
    "add_key",
    "load_sealers",
    "new_keyring",
    "parse_keyring",
    "process_keyring",
    "read_keyring",
    "write_keyring",
]

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_SECRET = re.compile(r"[A-Za-z0-9_-]{43}")
_DESCRIPTOR = re.compile(r"fd:([0-9]{1,9})")
_HEAD = "# Keys of crdtmem. Who has this file reads everything that they seal.\n"


def new_keyring() -> Keyring:
    """Return a keyring with a first key."""
    return Keyring({FIRST_KEY_ID: secrets.token_bytes(SECRET_BYTES)})


def add_key(keyring: Keyring) -> Keyring:
    """Return a keyring with another key, which is the newest."""
    newest = {keyring.ids[-1] + 1: secrets.token_bytes(SECRET_BYTES)}
    return Keyring(dict(keyring.reveal()) | newest)


def read_keyring(path: Path) -> Keyring:
    """Return the keys in a file.

    Raises:
        PermissionDeniedError: If others may read the file.
        KeyringError: If it cannot be read, or holds no keys.

    """
    try:
        with path.open("rb") as file:
            # Of the open file: the one behind the name may be another by now.
            mode = os.fstat(file.fileno()).st_mode
            found = file.read(KEYRING_BYTES + 1)
    except OSError as exc:
        reason = f"cannot be read: {exc.strerror}"
        raise KeyringError(path=str(path), reason=reason) from exc
    if os.name == "posix" and mode & _OTHERS:
        raise PermissionDeniedError(
            path=str(path),
            action="use, because others may read it,",
            hint=f"run 'chmod 600 {path}'",
        )
    return parse_keyring(found, str(path))


def parse_keyring(content: bytes, path: str) -> Keyring:
    """Return the keys in the bytes of a keyring.

    Args:
        content: The bytes.
        path: Where they are from, for an error.

    Raises:
        KeyringError: If they hold no keys.

    """
    try:
        if len(content) > KEYRING_BYTES:
            raise ValueError("too long")
        table = tomllib.loads(content.decode())
        rows = table["key"]
        found = {row["id"]: _decoded(row["secret"]) for row in rows}
        is_whole = len(found) == len(rows) and all(type(i) is int for i in found)
    except (ValueError, KeyError, TypeError):
        # From here on nothing that the bytes hold may be told.
        is_whole = False
    if not is_whole:
        reason = "does not hold keys, each of one id and one secret"
        raise KeyringError(path=path, reason=reason)
    return _checked(found, path)


def process_keyring(text: str) -> Keyring:
    """Return the keys that this process was given by its environment.

    Args:
        text: ``ID:SECRET`` words, or ``fd:N``: a keyring is read from a descriptor.

    Raises:
        KeyringError: If that are no keys.

    """
    where = "of the environment"
    match = _DESCRIPTOR.fullmatch(text)
    if match is not None:
        try:
            with open(int(match[1]), "rb") as file:
                content = file.read(KEYRING_BYTES + 1)
        except OSError as exc:
            reason = f"cannot be read: {exc.strerror}"
            raise KeyringError(path=text, reason=reason) from exc
        return parse_keyring(content, text)
    words = [word.partition(":") for word in text.split()]
    try:
        found = {int(key_id): _decoded(secret) for key_id, _, secret in words}
    except ValueError:
        found = {}
    if not found or len(found) != len(words):
        raise KeyringError(path=where, reason="is no list of ID:SECRET")
    return _checked(found, where)


def write_keyring(path: Path, keyring: Keyring, *, is_new: bool = False) -> None:
    """Write keys into a file that its owner alone may read; whole, or not at all.

    Args:
        path: The file.
        keyring: The keys.
        is_new: Whether there must be no such file yet.

    Raises:
        KeyringError: If there is one, or it cannot be written.

    """
    lines = [
        f'[[key]]\nid = {key_id}\nsecret = "{_encoded(secret)}"\n'
        for key_id, secret in keyring.reveal()
    ]
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with open(handle, "w", encoding="ascii") as file:
            file.write("\n".join([_HEAD, *lines]))
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            # Fails where there is a file, and never takes its place.
            os.link(beside, path)
        else:
            beside.replace(path)
    except OSError as exc:
        reason = f"cannot be written: {exc.strerror}"
        if is_new and path.exists():
            reason = "is there already"
        raise KeyringError(path=str(path), reason=reason) from exc
    finally:
        with suppress(OSError):
            beside.unlink()


def load_sealers(
    store: Store, links: Sequence[Link], keyring: Keyring | None
) -> dict[str, KeyringError | PermissionDeniedError]:
    """Give a store the keys of its encrypted links, read anew.

    Args:
        store: The store.
        links: Which links.
        keyring: What the process was given, for links without a file.

    Returns:
        Why there is none, by the local namespace.

    """
    failed: dict[str, KeyringError | PermissionDeniedError] = {}
    for link in links:
        if not link.is_encrypted:
            continue
        path = str(link.options.get("keyring") or "")
        try:
            found = read_keyring(Path(path)) if path else keyring
        except (KeyringError, PermissionDeniedError) as exc:
            failed[link.namespace] = exc
            found = None
        store.sealers.pop(link.namespace, None)
        if found is not None:
            store.sealers[link.namespace] = Sealer(link.remote, found)
    return failed


def _checked(found: dict[int, bytes], path: str) -> Keyring:
    try:
        return Keyring(found)
    except InvalidArgumentError as exc:
        raise KeyringError(path=path, reason=f"cannot be used: {exc.message}") from None


def _encoded(secret: bytes) -> str:
    return base64.urlsafe_b64encode(secret).decode().rstrip("=")


def _decoded(text: object) -> bytes:
    """Return a secret; ValueError for any other text, without it."""
    if not isinstance(text, str) or not _SECRET.fullmatch(text):
        raise ValueError("not a secret")
    found = base64.urlsafe_b64decode(text + "=")
    if _encoded(found) != text:
        raise ValueError("not a secret")
    return found
