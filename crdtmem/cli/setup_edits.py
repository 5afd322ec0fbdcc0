"""What an edit of a client's file is: a text with something put in, or taken out."""

from typing import Protocol

__all__ = ["Edit", "TakenError", "UneditableError"]


class UneditableError(ValueError):
    """A text is not what it should be; says why."""


class TakenError(ValueError):
    """A text has an entry of our name that is not ours; says which."""


class Edit(Protocol):
    """One thing that is put into a file.

    ``take(put(text)) == text`` for every text that ``put`` accepts and that has
    nothing of ours in it; both leave a text as it is where there is nothing to do.
    """

    @property
    def empty(self) -> str:
        """Return the text of a file in which nothing but our own is left."""

    @property
    def snippet(self) -> str:
        """Return what is put in, for somebody to do it by hand."""

    def put(self, text: str | None) -> str:
        """Return the text with it; None stands for no file."""

    def take(self, text: str) -> str:
        """Return the text without it."""
