"""What the verbs of memory sets accept; see ``crdtmem.arguments`` for the manner."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from crdtmem.doc.text_form import bytes_of, lone_surrogate, units_of
from crdtmem.errors import InvalidArgumentError, SetLimitError
from crdtmem.filters import check, checked_metadata
from crdtmem.limits import (
    FILTER_LEVELS,
    ITEM_ID_BYTES,
    ITEM_TEXT_UNITS,
    METADATA_BYTES,
    METADATA_LEVELS,
    SET_CALL_BYTES,
    SET_CALL_IDS_MAX,
    SET_CALL_ITEMS_MAX,
)
from crdtmem.sets.values import OBSERVED, ObservedKind
from crdtmem.views import iso_time

__all__ = [
    "NewItem",
    "checked_filters",
    "checked_id",
    "checked_ids",
    "checked_items",
    "checked_known_id",
    "checked_new_ids",
    "checked_observation_id",
    "checked_observe",
    "checked_order",
    "checked_text",
    "require_call_size",
    "require_item_size",
    "too_many",
]


_DEEPEST = 2 * FILTER_LEVELS + METADATA_LEVELS + 2
"""No filter is deeper: each of its levels may be a list in an object."""


class NewItem(NamedTuple):
    """An item that is to be: its text, and its metadata as canonical JSON."""

    text: str
    meta: str


def checked_items(items: object, metadatas: object) -> list[NewItem]:
    """Return the items that are to be added, each with its metadata.

    Raises:
        InvalidArgumentError: ``too-many``, ``invalid-text``, ``invalid-metadata`` or
            ``metadata-mismatch``.

    """
    texts = _several(items, "items", "invalid-text")
    if len(texts) > SET_CALL_ITEMS_MAX:
        raise too_many("items", len(texts), SET_CALL_ITEMS_MAX, "items")
    checked = [checked_text(text, "items") for text in texts]
    metas = _checked_metadatas(metadatas, len(checked))
    added = [NewItem(*pair) for pair in zip(checked, metas, strict=True)]
    require_call_size(added, "items")
    return added


def checked_text(value: object, argument: str = "text") -> str:
    """Return the text of an item, which may be empty.

    Raises:
        InvalidArgumentError: ``invalid-text``.

    """
    if not isinstance(value, str):
        kind = type(value).__name__
        message = f"{argument} must be text, not a value of type {kind}"
        raise InvalidArgumentError(argument, message, code="invalid-text")
    position = lone_surrogate(value)
    if position is not None:
        raise InvalidArgumentError(
            argument,
            f"{argument} holds half a surrogate pair, at character {position}",
            code="invalid-text",
            details={"reason": "lone-surrogate", "position": position},
        )
    return value


def checked_new_ids(ids: object, count: int) -> list[str] | None:
    """Return the ids that a caller gives to new items; None where none are given.

    Raises:
        InvalidArgumentError: ``metadata-mismatch`` unless there is one for each.

    """
    if ids is None:
        return None
    given = _several(ids, "ids", "invalid-argument")
    if len(given) != count:
        raise _mismatch("ids", len(given), count)
    return [checked_id(one, "ids") for one in given]


def checked_id(value: object, argument: str = "id") -> str:
    """Return an id that an item may have.

    Raises:
        InvalidArgumentError: ``invalid-argument``.

    """
    name = _checked_name(value, argument)
    if not 1 <= len(name.encode()) <= ITEM_ID_BYTES:
        message = (
            f"{argument} must have 1 to {ITEM_ID_BYTES} bytes of UTF-8,"
            f" not {len(name.encode())}"
        )
        raise InvalidArgumentError(argument, message)
    return name


def checked_known_id(value: object) -> str:
    """Return the id of an item that may be there; one that none can have is absent.

    Raises:
        InvalidArgumentError: ``invalid-argument`` for what is no text.

    """
    return _checked_name(value, "id")


def checked_ids(ids: object) -> list[str] | None:
    """Return the ids of items that a caller means, each once; None for all items.

    What no item can have as its id is absent, and no error.

    Raises:
        InvalidArgumentError: ``too-many``, or ``invalid-argument`` for what is no text.

    """
    if ids is None:
        return None
    given = _several(ids, "ids", "invalid-argument")
    if len(given) > SET_CALL_IDS_MAX:
        raise too_many("ids", len(given), SET_CALL_IDS_MAX, "ids")
    return list(dict.fromkeys(_checked_name(one, "ids") for one in given))


def checked_filters(filters: object) -> Mapping[str, Any] | None:
    """Return a filter with its times as text; None where none is given.

    Raises:
        InvalidArgumentError: ``invalid-filter``.

    """
    return None if filters is None else check(_with_times_as_text(filters, 1))


def checked_order(order: object) -> Literal["newest", "oldest"]:
    """Return the order of a page.

    Raises:
        InvalidArgumentError: ``invalid-argument``.

    """
    if order == "newest":
        return "newest"
    if order == "oldest":
        return "oldest"
    message = f"order must be 'newest' or 'oldest', not {order!r:.40}"
    raise InvalidArgumentError("order", message)


def checked_observe(observe: object) -> frozenset[ObservedKind]:
    """Return which kinds of operations leave records.

    Raises:
        InvalidArgumentError: ``invalid-argument``.

    """
    if isinstance(observe, Collection) and not isinstance(observe, (str, bytes)):
        found = frozenset(kind for kind in OBSERVED if kind in observe)
        if len(found) == len(set(observe)):
            return found
    message = f"observe must be some of {', '.join(OBSERVED)}, not {observe!r:.80}"
    raise InvalidArgumentError("observe", message)


def checked_observation_id(value: object) -> str:
    """Return who drains the records; "" for nobody.

    Raises:
        InvalidArgumentError: ``invalid-argument``.

    """
    return _checked_name(value, "observation_id")


def require_call_size(items: Iterable[NewItem], argument: str) -> None:
    """Refuse a call that holds more than an update does, in items that fit alone.

    Raises:
        InvalidArgumentError: ``too-many``.

    """
    sizes = [(bytes_of(item.text), bytes_of(item.meta)) for item in items]
    total = sum(map(sum, sizes))
    # One that is too large by itself is refused as such, with the limits of the set.
    is_each_fine = all(
        text <= 3 * ITEM_TEXT_UNITS and meta <= METADATA_BYTES for text, meta in sizes
    )
    if total > SET_CALL_BYTES and is_each_fine:
        raise too_many(argument, total, SET_CALL_BYTES, "bytes of text and metadata")


def require_item_size(item: NewItem) -> None:
    """Refuse a text or metadata that no item may have.

    Raises:
        SetLimitError: ``item-too-large`` or ``metadata-too-large``.

    """
    size = units_of(item.text)
    if size > ITEM_TEXT_UNITS:
        raise SetLimitError(
            code="item-too-large",
            what="the text of an item",
            size=size,
            limit=ITEM_TEXT_UNITS,
            unit="UTF-16 units",
        )
    size = bytes_of(item.meta)
    if size > METADATA_BYTES:
        raise SetLimitError(
            code="metadata-too-large",
            what="the metadata of an item",
            size=size,
            limit=METADATA_BYTES,
            unit="bytes",
        )


def too_many(argument: str, count: int, most: int, what: str) -> InvalidArgumentError:
    """Return the refusal of a call that is too large."""
    return InvalidArgumentError(
        argument,
        f"{argument}: too many {what} in one call ({count} > {most})",
        code="too-many",
        hint="make several calls of it",
        details={"count": count, "max": most},
    )


def _checked_metadatas(metadatas: object, count: int) -> list[str]:
    if metadatas is None:
        return [""] * count
    if isinstance(metadatas, Mapping):
        return [checked_metadata(metadatas, "metadatas")] * count
    given = _several(metadatas, "metadatas", "invalid-metadata", may_be_text=False)
    if len(given) != count:
        raise _mismatch("metadatas", len(given), count)
    return [checked_metadata(one, "metadatas") for one in given]


def _several(
    value: object, argument: str, code: str, *, may_be_text: bool = True
) -> Sequence[object]:
    """Return one value or several as several.

    Raises:
        InvalidArgumentError: Of that code.

    """
    if may_be_text and isinstance(value, str):
        return [value]
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return value
    wanted = "a text or a list of texts" if may_be_text else "an object or a list"
    message = f"{argument} must be {wanted}, not a value of type {type(value).__name__}"
    raise InvalidArgumentError(argument, message, code=code)


def _checked_name(value: object, argument: str) -> str:
    if isinstance(value, str) and lone_surrogate(value) is None:
        return value
    shown = "half a surrogate pair" if isinstance(value, str) else type(value).__name__
    message = f"{argument} must be text without lone surrogates, not {shown}"
    raise InvalidArgumentError(argument, message)


def _mismatch(argument: str, given: int, count: int) -> InvalidArgumentError:
    return InvalidArgumentError(
        argument,
        f"{argument} must be one for each item: there are {given} for {count} items",
        code="metadata-mismatch",
        details={"given": given, "items": count},
    )


def _with_times_as_text(value: object, level: int) -> Any:
    """Return a filter whose aware datetimes are what items have; see filters."""
    from datetime import datetime  # noqa: PLC0415 - who filters, pays for it

    if isinstance(value, datetime) and value.tzinfo is not None:
        return iso_time(round(value.timestamp() * 1000))
    # Deeper than any filter may be it is left as it is, and refused by the check.
    if level > _DEEPEST:
        return value
    if isinstance(value, Mapping):
        return {
            name: _with_times_as_text(one, level + 1) for name, one in value.items()
        }
    if isinstance(value, list):
        return [_with_times_as_text(one, level + 1) for one in value]
    return value
