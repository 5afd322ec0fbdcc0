"""Vectors of texts: what an embedder is, and one for tests.

The seam of a search by meaning, which nothing uses yet: no verb takes an Embedder, so
no text leaves the process.
"""

import hashlib
from collections.abc import Mapping, Sequence
from math import sqrt
from types import MappingProxyType
from typing import Literal, Protocol

from crdtmem.errors import InvalidArgumentError
from crdtmem.limits import EMBEDDING_DIM_MAX
from crdtmem.tokens import tokens

__all__ = ["Embedder", "HashEmbedder", "Use"]

Use = Literal["document", "query"]
"""What a text is: one that is searched, or one that searches."""

_NO_ALIASES: Mapping[str, str] = MappingProxyType({})
_HEAD_BYTES = 4


class Embedder(Protocol):
    """Gives each text a vector; texts that mean the same have vectors alike.

    Attributes:
        id: Names the model and its version: vectors of two ids are never compared.
        dim: How many numbers a vector has, 1 to 4,096.
        floor: The least cosine of two vectors whose texts belong together.

    """

    id: str
    dim: int
    floor: float

    def embed(self, texts: Sequence[str], kind: Use) -> Sequence[Sequence[float]]:
        """Return a vector for each text, in their order."""


class HashEmbedder:
    """An embedder for tests: texts are alike as far as they have words in common.

    Each token adds one to a component that a hash of it chooses, or takes one away. The
    vector is normalised; a text without tokens has a vector of zeros.

    Args:
        dim: How many numbers a vector has, 1 to 4,096.
        aliases: Tokens that count as another one.

    Raises:
        InvalidArgumentError: If dim is out of its bounds.

    """

    def __init__(self, dim: int = 64, aliases: Mapping[str, str] = _NO_ALIASES) -> None:
        if not 1 <= dim <= EMBEDDING_DIM_MAX:
            message = f"dim must be between 1 and {EMBEDDING_DIM_MAX}, not {dim}"
            raise InvalidArgumentError("dim", message)
        self.id = f"hash-{dim}"
        self.dim = dim
        self.floor = 0.3
        self._aliases = dict(aliases)

    def embed(self, texts: Sequence[str], kind: Use) -> list[list[float]]:
        """Return a vector for each text, in their order."""
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> list[float]:
        vector = [0.0] * self.dim
        w, x = tokens(text)
        for token in (*w, *x):
            name = self._aliases.get(token, token)
            digest = hashlib.sha256(name.encode()).digest()
            place = int.from_bytes(digest[:_HEAD_BYTES], "big") % self.dim
            vector[place] += -1.0 if digest[_HEAD_BYTES] % 2 else 1.0
        length = sqrt(sum(part * part for part in vector))
        return [part / length for part in vector] if length else vector
