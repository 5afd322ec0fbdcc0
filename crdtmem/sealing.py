"""End-to-end encryption: records and presences that a relay carries and cannot read.

A secret is shared by those who may read a namespace; everything else follows from it
and from the namespace's name. Each record is sealed under a secret of its own, so its
nonce can be zeros. What stands in its header, and where it belongs, is authenticated:
a record that was moved, or of which a bit was changed, does not open.

Randomness is passed in, and hedged: two stores that draw the same bytes still seal
different texts under different secrets.
"""

import hashlib
import hmac
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from crdtmem.errors import (
    InvalidArgumentError,
    LocalProtocolError,
    MissingExtraError,
    ProtocolError,
    RemoteProtocolError,
)
from crdtmem.limits import SEALED_LEAST_BYTES, U32_MAX
from crdtmem.protocol.codec import Reader, write_bytes, write_str
from crdtmem.protocol.records import HEADER_BYTES, Header, build_record, doc_identity

__all__ = [
    "FIRST_KEY_ID",
    "PLAIN",
    "PRESENCE_SEAL_BYTES",
    "RANDOM_BYTES",
    "SECRET_BYTES",
    "UNKNOWN_KEY",
    "WRONG_KEY",
    "DerivedKeys",
    "Keyring",
    "PresencePlace",
    "Sealer",
    "check_available",
    "derive_keys",
    "open_record",
    "padded_size",
    "seal_record",
    "sealed_doc_tag",
]

SECRET_BYTES = 32
RANDOM_BYTES = 32
SALT_BYTES = 32
COMMIT_BYTES = 16
TAG_BYTES = 16
NONCE_BYTES = 12
PRESENCE_SEAL_BYTES = 4 + NONCE_BYTES + TAG_BYTES
"""How much longer a presence is when it is sealed."""

NO_NONCE = bytes(NONCE_BYTES)
"""Of a secret that seals one text."""

FIRST_KEY_ID = 1
"""The key that the tags of docs follow from, whichever seals: they stay the same."""

UNKNOWN_KEY = "sealed"
"""Code of a record that waits for a key."""

PLAIN = "plain-in-encrypted"
"""Code of a record that anybody could have written."""

WRONG_KEY = "wrong-key"
"""Code of a record that was sealed with another secret under the id of a known one."""

KINDS_OF_KEYS = ("record", "name", "hedge", "presence")


class Keyring:
    """Secrets by their ids; none is ever shown.

    Args:
        secrets: 32 bytes each; the first key must be among them.

    Raises:
        InvalidArgumentError: If an id or a secret is none, or the first key is missing.

    """

    __slots__ = ("_secrets",)

    def __init__(self, secrets: Mapping[int, bytes]) -> None:
        for key_id, secret in secrets.items():
            if not 1 <= key_id <= U32_MAX or len(secret) != SECRET_BYTES:
                raise InvalidArgumentError(
                    "keyring",
                    f"key {key_id} must have an id from 1 on and a secret of"
                    f" {SECRET_BYTES} bytes",
                )
        if FIRST_KEY_ID not in secrets:
            raise InvalidArgumentError(
                "keyring",
                f"key {FIRST_KEY_ID} is missing: the names of docs follow from it",
            )
        self._secrets = dict(sorted(secrets.items()))

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids, in their order."""
        return tuple(self._secrets)

    def reveal(self) -> Iterator[tuple[int, bytes]]:
        """Yield ids and secrets; they go into no message, log line or reply."""
        yield from self._secrets.items()

    def merged(self, other: "Keyring") -> "Keyring":
        """Return a keyring with the keys of both.

        Raises:
            InvalidArgumentError: If both have another secret under one id.

        """
        for key_id, secret in other.reveal():
            if self._secrets.get(key_id, secret) != secret:
                raise InvalidArgumentError(
                    "keyring", f"two secrets have the id {key_id}"
                )
        return Keyring(self._secrets | dict(other.reveal()))

    def __repr__(self) -> str:
        return f"Keyring(ids={self.ids})"


class DerivedKeys(NamedTuple):
    """What follows from a secret for one namespace."""

    record: bytes
    name: bytes
    hedge: bytes
    presence: bytes

    def __repr__(self) -> str:
        return "DerivedKeys()"


class PresencePlace(NamedTuple):
    """What a presence is bound to, beside its namespace."""

    replica_id: bytes
    incarnation: bytes
    counter: int


def derive_keys(secret: bytes, namespace: str) -> DerivedKeys:
    """Return the keys of a namespace that follow from a secret.

    Raises:
        MissingExtraError: If the package is not installed.

    """
    root = _hkdf(secret, namespace.encode(), b"crdtmem/1/root", 32)
    return DerivedKeys(
        *(_hkdf(root, b"", f"crdtmem/1/{kind}".encode(), 32) for kind in KINDS_OF_KEYS)
    )


def sealed_doc_tag(name_key: bytes, doc_kind: int, name: str) -> bytes:
    """Return the 16 bytes that stand for a doc in the headers of sealed records.

    Raises:
        LocalProtocolError: As for ``doc_identity``.

    """
    return _hmac(name_key, doc_identity(doc_kind, name))[:16]


def padded_size(size_bytes: int) -> int:
    """Return the size to which a text is padded (Padmé): by an eighth at most."""
    size_bytes = max(SEALED_LEAST_BYTES, size_bytes)
    exponent = size_bytes.bit_length() - 1
    mask = (1 << (exponent - exponent.bit_length())) - 1
    return (size_bytes + mask) & ~mask


def seal_record(
    keys: DerivedKeys, namespace: str, header: Header, envelope: bytes, random: bytes
) -> bytes:
    """Seal an envelope into a record.

    Args:
        keys: Of the header's key id.
        namespace: What the relay calls it.
        header: Its alg is 1.
        envelope: As ``encode_envelope`` makes it.
        random: 32 bytes, drawn for this record.

    Raises:
        LocalProtocolError: If the header is not that of a sealed record, or there are
            not as many random bytes.

    """
    if header.alg != 1 or len(random) != RANDOM_BYTES:
        raise LocalProtocolError(
            f"alg {header.alg} and {len(random)} random bytes seal nothing"
        )
    plain = write_bytes(envelope)
    plain += bytes(padded_size(len(plain)) - len(plain))
    # With bytes of the right number in the payload's place, its header is the record's.
    blank = bytes(len(plain) + TAG_BYTES)
    head = build_record(header, blank, bytes(SALT_BYTES + COMMIT_BYTES))[:HEADER_BYTES]
    digest = hashlib.sha256(plain).digest()
    salt = _hmac(keys.hedge, random + digest + head)
    secret, commit = _secret_of(keys, namespace, header.doc_tag, salt)
    associated = _associated(namespace, head, salt, commit)
    sealed = _encrypt(secret, NO_NONCE, plain, associated)
    return build_record(header, sealed, salt + commit)


def open_record(
    keys: DerivedKeys, namespace: str, header: Header, record: bytes
) -> bytes:
    """Return the envelope in a sealed record.

    Raises:
        ProtocolError: ``wrong-key`` if it was sealed with another secret, or for
            another doc or namespace; ``tampered`` if anything of it was changed.
        RemoteProtocolError: If its writer has sealed what is no envelope.

    """
    head = record[:HEADER_BYTES]
    salt = record[HEADER_BYTES : HEADER_BYTES + SALT_BYTES]
    commit = record[HEADER_BYTES + SALT_BYTES : header.payload_start]
    secret, wanted = _secret_of(keys, namespace, header.doc_tag, salt)
    if not hmac.compare_digest(commit, wanted):
        message = f"a record says key {header.key_id} and has another one's seal"
        raise ProtocolError(message, code=WRONG_KEY)
    associated = _associated(namespace, head, salt, commit)
    plain = _decrypt(secret, NO_NONCE, record[header.payload_start :], associated)
    if plain is None:
        raise ProtocolError("a record does not fit its seal", code="tampered")
    envelope = Reader(plain).read_bytes(len(plain))
    if any(plain[len(write_bytes(envelope)) :]):
        raise RemoteProtocolError("bad-value", "a record is padded with other bytes")
    return envelope


class Sealer:
    """Opens and seals what belongs to one namespace.

    Args:
        namespace: What the relay calls it.
        keyring: The secrets.

    Raises:
        MissingExtraError: If the package is not installed.

    """

    __slots__ = ("_keys", "namespace")

    def __init__(self, namespace: str, keyring: Keyring) -> None:
        self.namespace = namespace
        self._keys = {
            key_id: derive_keys(secret, namespace)
            for key_id, secret in keyring.reveal()
        }

    @property
    def ids(self) -> tuple[int, ...]:
        """Which keys it has, in their order."""
        return tuple(self._keys)

    def key_id_within(self, newest: int) -> int:
        """Return the newest id that is not above another."""
        return max(i for i in self._keys if i <= max(newest, FIRST_KEY_ID))

    def doc_tag(self, doc_kind: int, name: str) -> bytes:
        """Return the tag of a doc; the same under every key."""
        return sealed_doc_tag(self._keys[FIRST_KEY_ID].name, doc_kind, name)

    def seal(self, header: Header, envelope: bytes, random: bytes) -> bytes:
        """Seal an envelope with the key of a header; see ``seal_record``."""
        keys = self._keys[header.key_id]
        return seal_record(keys, self.namespace, header, envelope, random)

    def open(self, header: Header, record: bytes) -> bytes:
        """Return the envelope in a record.

        Raises:
            ProtocolError: ``plain-in-encrypted`` for a plain record, ``sealed`` if the
                key is not here, and what ``open_record`` raises.

        """
        if not header.alg:
            message = "a plain record in an encrypted namespace"
            raise ProtocolError(message, code=PLAIN)
        keys = self._keys.get(header.key_id)
        if keys is None:
            message = f"record under key {header.key_id}, which is not here"
            raise ProtocolError(message, code=UNKNOWN_KEY)
        return open_record(keys, self.namespace, header, record)

    def seal_presence(
        self, key_id: int, place: PresencePlace, plain: bytes, random: bytes
    ) -> bytes:
        """Seal a presence.

        Args:
            key_id: Which key to use.
            place: Where it will stand.
            plain: What it says; PRESENCE_SEAL_BYTES are added.
            random: 32 bytes, drawn for this one.

        """
        keys = self._keys[key_id]
        associated = self._associated_of(place)
        digest = hashlib.sha256(plain).digest()
        nonce = _hmac(keys.hedge, random + digest + associated)[:NONCE_BYTES]
        sealed = _encrypt(keys.presence, nonce, plain, associated)
        return key_id.to_bytes(4, "big") + nonce + sealed

    def open_presence(self, place: PresencePlace, blob: bytes) -> bytes | None:
        """Return what a presence says; None if it cannot be opened."""
        keys = self._keys.get(int.from_bytes(blob[:4], "big"))
        start = 4 + NONCE_BYTES
        if keys is None or len(blob) < start + TAG_BYTES:
            return None
        associated = self._associated_of(place)
        return _decrypt(keys.presence, blob[4:start], blob[start:], associated)

    def _associated_of(self, place: PresencePlace) -> bytes:
        return b"".join(
            [
                b"crdtmem/1/presence\0",
                write_str(self.namespace),
                place.replica_id,
                place.incarnation,
                place.counter.to_bytes(8, "big"),
            ]
        )

    def __repr__(self) -> str:
        return f"Sealer({self.namespace!r}, ids={self.ids})"


def _secret_of(
    keys: DerivedKeys, namespace: str, doc_tag: bytes, salt: bytes
) -> tuple[bytes, bytes]:
    """Return the secret of one record, and what commits to it."""
    info = b"crdtmem/1/rec\0" + write_str(namespace) + doc_tag
    both = _hkdf(keys.record, salt, info, SECRET_BYTES + COMMIT_BYTES)
    return both[:SECRET_BYTES], both[SECRET_BYTES:]


def _associated(namespace: str, head: bytes, salt: bytes, commit: bytes) -> bytes:
    return b"crdtmem/1/aad\0" + write_str(namespace) + head + salt + commit


def _hmac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


# The package is slow to load, and not everybody has it: only here it is asked for.


def check_available() -> None:
    """Refuse to begin with what could not be ended.

    Raises:
        MissingExtraError: If the package is not installed.

    """
    _hkdf(bytes(SECRET_BYTES), b"", b"", 1)


def _hkdf(secret: bytes, salt: bytes, info: bytes, size: int) -> bytes:
    try:
        from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415 - see above
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415 - see above
    except ImportError as exc:
        raise MissingExtraError(extra="e2ee", package="cryptography") from exc
    return HKDF(SHA256(), size, salt or None, info).derive(secret)


def _encrypt(secret: bytes, nonce: bytes, plain: bytes, associated: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305  # noqa: PLC0415 - see above

    return ChaCha20Poly1305(secret).encrypt(nonce, plain, associated)


def _decrypt(
    secret: bytes, nonce: bytes, sealed: bytes, associated: bytes
) -> bytes | None:
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - see above
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305  # noqa: PLC0415 - see above

    try:
        return ChaCha20Poly1305(secret).decrypt(nonce, sealed, associated)
    except InvalidTag:
        return None
