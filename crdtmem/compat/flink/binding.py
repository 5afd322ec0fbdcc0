"""Sets that carry what they are bound to, and what sets from elsewhere are bound to.

The binding stands in a private attribute of a private subclass: JSON and pickle leave
it out, so a set that was sent somewhere comes back unbound and is refused, never bound
to whatever key is current there. A copy keeps it.
"""

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

from crdtmem.compat.flink.classes import BaseLongTermMemory, MemorySet

if TYPE_CHECKING:
    from crdtmem.sets.memory_set import MemorySet as Items

__all__ = ["Context", "bound_items", "bound_set", "context_of"]


class Context(NamedTuple):
    """What an action works in: the fields that later releases give to a set.

    Attributes:
        partition_key: The key of the stream.
        observation_id: Under which records of its operations are drained.
        observation_suppressed: Whether none are made.

    """

    partition_key: Any
    observation_id: str = ""
    observation_suppressed: bool = False


def bound_set(
    set_type: type[MemorySet], ltm: BaseLongTermMemory, items: "Items", about: Context
) -> MemorySet:
    """Return a set that works on some items only, whatever becomes current.

    Args:
        set_type: Class of the set. Its fields of a context are filled where it has
            them and the key is a string; for another key they stay empty.
        ltm: Whose set it is.
        items: What it works on.
        about: What it was bound in.

    """
    known = getattr(set_type, "model_fields", {})
    fields = about._asdict() if type(about.partition_key) is str else {}
    filled = {name: value for name, value in fields.items() if name in known}
    bound_type = _bound_type(set_type)  # type: ignore[arg-type] # classes have a hash
    made: MemorySet = bound_type(name=items.name, ltm=ltm, **filled)
    made._binding = (items, about)  # type: ignore[attr-defined] # of the subclass
    return made


def bound_items(memory_set: MemorySet) -> "Items | None":
    """Return what a set was bound to when it was made, or None."""
    items: Items | None
    items, _ = getattr(memory_set, "_binding", (None, None))
    return items


def context_of(memory_set: MemorySet) -> Context | None:
    """Return the context in the fields of a set that was rebuilt, or None.

    A bridge to Java makes sets anew from their fields. A key that is no string is in
    none of them, so such a set is bound to nothing, not to a string that looks alike.
    """
    key = getattr(memory_set, "partition_key", None)
    if type(key) is not str:
        return None
    return Context(
        key,
        getattr(memory_set, "observation_id", ""),
        getattr(memory_set, "observation_suppressed", False),
    )


@functools.cache
def _bound_type(set_type: Any) -> Any:
    """Return the private subclass of a class of sets; the same one each time."""

    class BoundSet(set_type):  # type: ignore[misc] # which class, the caller says
        # pydantic keeps an attribute of such a name apart from the fields.
        _binding: Any

        def __copy__(self) -> MemorySet:
            return bound_set(set_type, self.ltm, *self._binding)

        def __deepcopy__(self, memo: object) -> MemorySet:
            return self.__copy__()

        def __reduce_ex__(self, protocol: object) -> tuple[object, ...]:
            return _unbound, (set_type, self.name)

        # Without a hash, as the classes of which it is one: fields can be set.
        def __eq__(self, other: object) -> bool:
            return (
                type(other) is type(self)
                and other.ltm is self.ltm
                and other._binding == self._binding
            )

    BoundSet.__name__ = BoundSet.__qualname__ = set_type.__name__
    if hasattr(BoundSet, "model_rebuild"):
        # Upstream's class names one that comes after it, for which pydantic would look
        # in this module.
        names = {"BaseLongTermMemory": BaseLongTermMemory}
        BoundSet.model_rebuild(_types_namespace=names)
    return BoundSet


def _unbound(set_type: type[MemorySet], name: str) -> MemorySet:
    return set_type(name=name)
