"""Linking a namespace to a relay, after a look at what is there.

Two machines that wrote a slot of one name apart from each other have two documents: a
merge would put one text behind the other. So the relay's side is read into a store of
its own first, and held against this one.
"""

import asyncio
import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from crdtmem.errors import (
    InvalidArgumentError,
    KeyMissingError,
    LinkExistsError,
    LinkOverlapError,
    LinkRefusedError,
    SlotExistsError,
)
from crdtmem.limits import JOINS_MAX
from crdtmem.memory import Memory
from crdtmem.protocol.messages import is_namespace
from crdtmem.scope import GLOBAL_NAMESPACE, scope_of
from crdtmem.sealing import PLAIN, UNKNOWN_KEY, WRONG_KEY, Keyring, Sealer
from crdtmem.session import Session
from crdtmem.store.holding import held_codes
from crdtmem.store.links import add_link, find_link, links_of
from crdtmem.store.rows import SlotRow
from crdtmem.store.slots import slots_of
from crdtmem.store.store import Store
from crdtmem.sync.driver import Driver
from crdtmem.sync.keyring import read_keyring
from crdtmem.sync.token import read_token
from crdtmem.sync.transport import check_url

__all__ = ["LinkRequest", "OnOverlap", "default_remote", "link_namespace"]

OnOverlap = Literal["refuse", "merge", "rename"]

RENAMED_SUFFIX = "_local"


class LinkRequest(NamedTuple):
    """What is to be linked with what.

    Attributes:
        local: The namespace here: a project id, or ``global``.
        remote: What the relay calls it.
        url: Of the relay.
        token_file: Where the token lies; None: the environment has it.
        token: What the environment has.
        is_encrypted: Whether the relay must not be able to read it.
        keyring_file: Where its keys lie; None: the environment has them.
        keyring: What the environment has.

    """

    local: str
    remote: str
    url: str
    token_file: Path | None
    token: str | None
    is_encrypted: bool = False
    keyring_file: Path | None = None
    keyring: Keyring | None = None

    @property
    def options(self) -> dict[str, object]:
        """What the link keeps of it: where the keys are, and none of them."""
        if not self.is_encrypted:
            return {}
        return {"encrypted": True, "keyring": str(self.keyring_file or "")}


def default_remote(local: str) -> str:
    """Return what a relay calls a project where nobody says otherwise.

    Clones of a project agree on it without having to agree on a name.

    Raises:
        InvalidArgumentError: For the global namespace: it belongs to a person, and no
            two persons may meet in it.

    """
    if local == GLOBAL_NAMESPACE:
        raise InvalidArgumentError(
            "namespace",
            "the global namespace has no name at a relay by itself",
            hint="name it with --namespace",
        )
    digest = hashlib.sha256(b"crdtmem/1/ns\0" + local.encode())
    return f"p-{digest.hexdigest()[:32]}"


def link_namespace(
    store: Store,
    request: LinkRequest,
    *,
    lane: str,
    on_overlap: OnOverlap,
    timeout_s: float,
) -> list[tuple[str, str]]:
    """Link a namespace, once its relay has been read and found to fit.

    Args:
        store: The store.
        request: What with what.
        lane: Who renames slots.
        on_overlap: What becomes of slots with unrelated texts here and there.
        timeout_s: Longest time for reading.

    Returns:
        The slots that were renamed: old and new label of each.

    Raises:
        InvalidArgumentError: If a name is none.
        InsecureUrlError: If the token would go over the net in the clear.
        LinkExistsError: If either side is linked already.
        LinkOverlapError: If slots overlap and that is to be refused.
        KeyringError: If it is to be encrypted, and there are no keys.
        LinkRefusedError: If the relay has what these keys do not open.
        SlotExistsError: If a slot cannot be renamed, as its new label is taken.
        SyncError: If the relay cannot be read. After any of them nothing was changed.

    """
    _check(store, request)
    sealer = _sealer(request)
    if sealer is not None:
        store.sealers[request.local] = sealer
    renamed: list[tuple[str, str]] = []
    if on_overlap != "merge":
        remote, overlaps = _look(store, request, timeout_s)
        if overlaps and on_overlap == "refuse":
            raise LinkOverlapError(local=request.local, labels=overlaps)
        renamed = _rename(store, request.local, lane, overlaps, remote)
    add_link(
        store,
        namespace=request.local,
        remote=request.remote,
        url=request.url,
        token_file="" if request.token_file is None else str(request.token_file),
        options=request.options,
    )
    return renamed


def _check(store: Store, request: LinkRequest) -> None:
    if not is_namespace(request.remote):
        raise InvalidArgumentError(
            "namespace",
            "namespace must be 1 to 64 of a-z, 0-9, '.', '_' and '-', with a letter or"
            f" digit at both ends, not {request.remote!r:.80}",
        )
    check_url(request.url)
    if request.token_file is not None:
        read_token(request.token_file)
    elif request.token is None:
        raise InvalidArgumentError(
            "token_file",
            "there is no token for the relay",
            hint="run 'crdtmem config set relay.token_file FILE', or give --token-file",
        )
    links = links_of(store)
    for link in links:
        is_there = (link.url, link.remote) == (request.url, request.remote)
        if link.namespace == request.local or is_there:
            raise LinkExistsError(
                local=link.namespace, remote=link.remote, url=link.url
            )
    if len(links) >= JOINS_MAX:
        raise LinkRefusedError(
            f"{len(links)} namespaces are linked, which is as many as can be",
            hint="run 'crdtmem sync unlink --local NS' for one of them",
        )


def _sealer(request: LinkRequest) -> Sealer | None:
    if not request.is_encrypted:
        return None
    keyring = request.keyring
    if request.keyring_file is not None:
        keyring = read_keyring(request.keyring_file)
    if keyring is None:
        raise KeyMissingError(local=request.local)
    return Sealer(request.remote, keyring)


def _look(
    store: Store, request: LinkRequest, timeout_s: float
) -> tuple[frozenset[str], list[str]]:
    """Read what the relay has; return its labels, and those that overlap."""
    with tempfile.TemporaryDirectory(prefix="crdtmem-link-") as folder:
        scratch = Store(Path(folder, "store.db"), durability="normal")
        try:
            add_link(
                scratch,
                namespace=request.local,
                remote=request.remote,
                url=request.url,
                token_file=str(request.token_file or ""),
                options=request.options,
            )
            driver = Driver(scratch, token=request.token, keyring=request.keyring)
            asyncio.run(driver.once(timeout_s=timeout_s))
            _check_keys(scratch, request)
            theirs = _written(scratch, request.local)
            ours = _written(store, request.local)
            both = sorted(theirs.keys() & ours.keys())
            overlaps = [
                label
                for label in both
                if not _clients(scratch, theirs[label]) & _clients(store, ours[label])
            ]
            return frozenset(theirs), overlaps
        finally:
            scratch.close()


def _check_keys(scratch: Store, request: LinkRequest) -> None:
    """Refuse a namespace of which the relay has records that do not open here."""
    with scratch.snapshot() as connection:
        codes = held_codes(connection, find_link(scratch, request.local))
    strange = codes & {UNKNOWN_KEY, WRONG_KEY, PLAIN}
    if not strange:
        return
    code, hint = "key-missing", "run 'crdtmem key import' with the keys that it has"
    what = "encrypted with keys that are not here"
    if not request.is_encrypted:
        what, hint = "encrypted", "link it with --encrypted"
    elif strange == {PLAIN}:
        code, what = PLAIN, "not encrypted"
        hint = "link it without --encrypted, or name another with --namespace"
    raise LinkRefusedError(
        f"'{request.remote}' at {request.url} is {what}", code=code, hint=hint
    )


def _written(store: Store, namespace: str) -> dict[str, SlotRow]:
    """Return the slots that have any text, by label; damaged ones are left out."""
    with store.snapshot() as connection:
        return {
            row.label: row
            for row in slots_of(connection, namespace)
            if row.size and row.quarantined is None
        }


def _clients(store: Store, row: SlotRow) -> frozenset[int]:
    """Return who wrote in a doc.

    Clocks of a client begin at 0 and have no gaps: two docs with a client in common
    have its first struct in common.
    """
    with store.writing() as transaction:
        return frozenset(transaction.document(row).clocks)


def _rename(
    store: Store,
    local: str,
    lane: str,
    labels: Sequence[str],
    remote: frozenset[str],
) -> list[tuple[str, str]]:
    pairs = [(label, f"{label}{RENAMED_SUFFIX}") for label in labels]
    for _, label in pairs:
        if label in remote:
            raise SlotExistsError(label=label, scope=scope_of(local))
    if pairs:
        memory = Memory(Session(store, lane, local))
        memory.rename(pairs, scope=scope_of(local))
    return pairs
