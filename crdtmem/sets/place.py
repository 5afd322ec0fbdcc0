"""Where a set's verbs work: a session, a binding and a name, never anything else."""

from typing import NamedTuple

from crdtmem.arguments import Request
from crdtmem.model import Unset
from crdtmem.session import Session
from crdtmem.sets.values import Binding
from crdtmem.store.sets import SetPlace

__all__ = ["BoundSet"]


class BoundSet(NamedTuple):
    """A set, by what its handle was made with."""

    session: Session
    binding: Binding
    name: str

    @property
    def stored(self) -> SetPlace:
        """Where the store has it."""
        return SetPlace(self.binding.namespace, self.binding.encoded_key, self.name)

    def request(
        self, verb: str, request_id: str | Unset, **arguments: object
    ) -> Request | None:
        """Return the name of a call; None where it has none.

        Raises:
            InvalidArgumentError: ``invalid-request-id``.

        """
        return Request.of(
            request_id,
            f"set {verb}",
            namespace=self.binding.namespace,
            key=self.binding.encoded_key,
            set=self.name,
            **arguments,
        )
