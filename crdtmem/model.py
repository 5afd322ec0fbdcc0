"""The frozen values that results are made of: dataclasses without the decorator.

They are dataclasses to all who ask: ``dataclasses.fields`` and ``replace`` work, and
pydantic reads them where a schema is wanted. But the decorator is not used. It takes
more than a millisecond a class, and ``dataclasses`` itself as long as starting Python:
together they would double the time of every command that only reads.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, ClassVar, Final, Self, dataclass_transform

__all__ = ["UNSET", "LazyFields", "Model", "ModelType", "Unset", "camel_case"]


class Unset(Enum):
    """The type of UNSET."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return "UNSET"

    def __bool__(self) -> bool:
        return False


UNSET: Final = Unset.UNSET
"""No value was given: other than None, which is a value, and mostly a wrong one."""


def camel_case(name: str) -> str:
    """Return the JSON name of a field."""
    head, *rest = name.rstrip("_").split("_")
    return head + "".join(part.capitalize() for part in rest)


TEXTS = frozenset({"content", "diff", "preview", "text", "unified", "value"})
"""Fields that hold words of a slot, or of an item."""


def _json_form(value: object) -> object:
    if isinstance(value, Model):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_json_form(item) for item in value]
    return value


def _annotations_of(namespace: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the annotations of a class that is being made (PEP 649 from 3.14 on)."""
    if "__annotations__" in namespace:
        found: Mapping[str, Any] = namespace["__annotations__"]
        return found
    annotate = namespace.get("__annotate__") or namespace.get("__annotate_func__")
    return annotate(1) if annotate else {}


@dataclass_transform(frozen_default=True, kw_only_default=True)
class ModelType(type):
    """Makes a class of frozen values from its annotations."""

    names: tuple[str, ...] = ()
    known: frozenset[str] = frozenset()
    defaults: Mapping[str, object] = {}

    def __new__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]
    ) -> "ModelType":
        """Make the class, with the defaults of its fields set apart."""
        annotations = {
            key: value
            for key, value in _annotations_of(namespace).items()
            if not key.startswith("_")
        }
        defaults = {k: namespace.pop(k) for k in annotations if k in namespace}
        made = super().__new__(cls, name, bases, namespace)
        parent = bases[0] if bases else None
        if isinstance(parent, ModelType):
            made.names = (*parent.names, *annotations)
            made.known = frozenset(made.names)
            made.defaults = {**parent.defaults, **defaults}
        return made

    def kinds(cls) -> Iterator[tuple[str, Any]]:
        """Yield each field's name and type, those of the parent first."""
        for base in reversed(cls.__mro__):
            for name, kind in getattr(base, "__annotations__", {}).items():
                if name in cls.names:
                    yield name, kind


class LazyFields:
    """The fields of a model, for all who take it for the dataclass that it is."""

    def __init__(self) -> None:
        self._known: dict[type, dict[str, Any]] = {}

    def __get__(self, instance: object, owner: "ModelType") -> dict[str, Any]:
        """Return them by name; made at the first question."""
        import dataclasses  # noqa: PLC0415 - see the module

        if owner not in self._known:
            plan = [
                (name, kind, dataclasses.field(default=owner.defaults[name]))
                if name in owner.defaults
                else (name, kind)
                for name, kind in owner.kinds()
            ]
            twin = dataclasses.make_dataclass(owner.__name__, plan, kw_only=True)
            self._known[owner] = vars(twin)["__dataclass_fields__"]
        return self._known[owner]


class Model(metaclass=ModelType):
    """Base of every result."""

    __pydantic_config__: ClassVar[dict[str, object]] = {
        "alias_generator": camel_case,
        "extra": "forbid",
    }
    __dataclass_fields__ = LazyFields()

    def __init__(self, **values: object) -> None:
        # Straight into the dict: a verb that reads makes one of twenty fields, and
        # object.__setattr__ for each would take longer than the SELECT.
        fields = self.__dict__
        fields.update(type(self).defaults)
        fields.update(values)
        if len(fields) != len(type(self).names) or fields.keys() != type(self).known:
            raise TypeError(_misfit(type(self).__name__, type(self).names, fields))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: {name}")

    def __repr__(self) -> str:
        # Without the text of slots, which belongs in no log line; see TEXTS.
        shown = (
            f"{name}=<{len(value)} characters>"
            if name in TEXTS and isinstance(value, str)
            else f"{name}={value!r}"
            for name, value in zip(type(self).names, self._values(), strict=True)
        )
        return f"{type(self).__name__}({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self) -> int:
        return hash((type(self), self._values()))

    def __reduce__(self) -> tuple[object, ...]:
        values = dict(zip(type(self).names, self._values(), strict=True))
        return _restored, (type(self), values)

    def _values(self) -> tuple[object, ...]:
        return tuple(map(self.__dict__.__getitem__, type(self).names))

    def replaced(self, **values: object) -> Self:
        """Return the value with some fields changed."""
        old = dict(zip(type(self).names, self._values(), strict=True))
        return type(self)(**{**old, **values})

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form, without the keys that do not apply."""
        return {
            camel_case(name): _json_form(value)
            for name in type(self).names
            if (value := getattr(self, name)) is not UNSET
        }


def _misfit(kind: str, names: tuple[str, ...], given: Mapping[str, object]) -> str:
    unknown = ", ".join(sorted(given.keys() - set(names)))
    missing = ", ".join(name for name in names if name not in given)
    return f"{kind} has no {unknown}" if unknown else f"{kind} needs {missing}"


def _restored(cls: type[Model], values: dict[str, object]) -> Model:
    return cls(**values)
