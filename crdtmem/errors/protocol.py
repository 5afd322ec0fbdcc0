"""Errors of the wire: what a peer, or this side, may not send."""

from crdtmem.errors.tree import CrdtmemError

__all__ = [
    "LocalProtocolError",
    "ProtocolError",
    "RecordMalformedError",
    "RemoteProtocolError",
    "UpdateRejectedError",
]


class ProtocolError(CrdtmemError):
    """A message breaks the wire protocol."""

    code = "protocol-error"


class LocalProtocolError(ProtocolError):
    """This side would have sent something that the protocol forbids."""

    code = "local-protocol-error"


class RecordMalformedError(ProtocolError):
    """The header of a record breaks a rule; its other bytes were not looked at.

    Args:
        detail: Which rule: ``version``, ``kind``, ``alg``, ``flags``, ``doc-tag``,
            ``replica-seq``, ``base``, ``key-id`` or ``length``.
        message: See CrdtmemError.

    """

    code = "record-malformed"

    def __init__(self, detail: str, message: str) -> None:
        super().__init__(message, details={"detail": detail})
        self.detail = detail


class RemoteProtocolError(ProtocolError):
    """The peer sent something that the protocol forbids.

    Args:
        detail: Which rule it broke, in kebab-case; the peer is told.
        message: See CrdtmemError.

    """

    code = "remote-protocol-error"

    def __init__(self, detail: str, message: str) -> None:
        super().__init__(message, details={"detail": detail})
        self.detail = detail


class UpdateRejectedError(ProtocolError):
    """A Yjs update breaks a rule of the scanner; pycrdt never saw it.

    Args:
        code: The rule, as one of the codes ``update-*``.
        reason: What is wrong, without any text of the document.
        at_byte: Where in the update it was noticed.

    """

    code = "update-rejected"

    def __init__(self, *, code: str, reason: str, at_byte: int) -> None:
        super().__init__(
            f"update refused at byte {at_byte}: {reason}",
            code=code,
            details={"reason": reason, "at_byte": at_byte},
        )
