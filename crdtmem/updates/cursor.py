"""A cursor over a received update: lib0's forms, minimal and bounded by their end.

The wire's own codec isn't used: its errors close a connection, and these end in the
quarantine; and a scan stands in the way of every received write, so this one is quick.
"""

from crdtmem.errors import UpdateRejectedError

__all__ = ["Cursor"]

# Enough for 64 bits: a value beyond its own bound is named as such, and an integer that
# never ends is no value.
UINT_BYTES = 10


class Cursor:
    """Place in the received bytes.

    Every method returns what the bytes announce, whole, or raises UpdateRejectedError
    with ``update-malformed``; after that the cursor is spent.

    Args:
        data: The whole update.

    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def refusal(self, code: str, reason: str) -> UpdateRejectedError:
        """Return the error that says what is wrong here."""
        return UpdateRejectedError(code=code, reason=reason, at_byte=self.at)

    def byte(self) -> int:
        """Take one byte."""
        at = self.at
        if at >= len(self.data):
            raise self.refusal("update-malformed", "1 byte announced, 0 left")
        self.at = at + 1
        return self.data[at]

    def take(self, size_bytes: int) -> bytes:
        """Take exactly this many bytes."""
        start = self.at
        left_bytes = len(self.data) - start
        if size_bytes > left_bytes:
            reason = f"{size_bytes} bytes announced, {left_bytes} left"
            raise self.refusal("update-malformed", reason)
        self.at = start + size_bytes
        return self.data[start : self.at]

    def uint(self) -> int:
        """Decode an unsigned integer in its shortest form."""
        # Most are one byte long, and a scan reads little else.
        at = self.at
        data = self.data
        if at < len(data) and data[at] < 0x80:
            self.at = at + 1
            return data[at]
        value = 0
        for shift, byte in enumerate(data[at : at + UINT_BYTES]):
            value |= (byte & 0x7F) << 7 * shift
            if byte < 0x80:
                break
        else:
            raise self.refusal("update-malformed", "integer does not end")
        if not byte:
            raise self.refusal("update-malformed", "integer ends in an empty group")
        self.at = at + shift + 1
        return value

    def text(self) -> str:
        """Decode a string of strict UTF-8.

        Raises:
            UpdateRejectedError: Also ``update-text``, for what is no UTF-8.

        """
        encoded = self.take(self.uint())
        try:
            return encoded.decode()
        except UnicodeDecodeError as exc:
            # Surrogate halves too, which yrs refuses and Yjs replaces.
            raise self.refusal("update-text", f"not UTF-8: {exc.reason}") from exc

    def expect_end(self) -> None:
        """Check that nothing is left."""
        left_bytes = len(self.data) - self.at
        if left_bytes:
            raise self.refusal("update-malformed", f"{left_bytes} bytes left over")
