"""What stores tell each other of the moment, through a relay that keeps none of it."""

import secrets
from collections.abc import Callable

from crdtmem.errors import KeyMissingError, LocalProtocolError
from crdtmem.limits import PRESENCE_BYTES
from crdtmem.protocol.messages import Presence
from crdtmem.sealing import PRESENCE_SEAL_BYTES, RANDOM_BYTES, PresencePlace
from crdtmem.store.links import Link

__all__ = ["check_presence", "opened_presence", "presence_seal"]


def check_presence(link: Link, blob: bytes) -> None:
    """Refuse what a relay would not carry.

    Raises:
        KeyMissingError: If the namespace is encrypted, and no key is at hand.
        LocalProtocolError: If it is too long.

    """
    if link.is_locked:
        raise KeyMissingError(local=link.namespace)
    limit = PRESENCE_BYTES - (PRESENCE_SEAL_BYTES if link.is_encrypted else 0)
    if len(blob) > limit:
        raise LocalProtocolError(
            f"presence of {len(blob)} bytes exceeds the limit of {limit}"
        )


def presence_seal(
    link: Link, incarnation: bytes
) -> Callable[[int, bytes], bytes] | None:
    """Return what seals a presence for its counter; None in a plain namespace."""
    sealer = link.sealer
    if not link.is_encrypted or sealer is None:
        return None
    key_id = sealer.key_id_within(link.key_id)

    def seal(counter: int, blob: bytes) -> bytes:
        place = PresencePlace(link.replica_id, incarnation, counter)
        return sealer.seal_presence(
            key_id, place, blob, secrets.token_bytes(RANDOM_BYTES)
        )

    return seal


def opened_presence(link: Link, presence: Presence) -> bytes | None:
    """Return what another store is at; None if it is not for this one to read."""
    if not link.is_encrypted:
        return presence.blob
    place = PresencePlace(presence.replica_id, presence.incarnation, presence.counter)
    sealer = link.sealer
    return None if sealer is None else sealer.open_presence(place, presence.blob)
