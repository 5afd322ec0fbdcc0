"""Records of operations as events: at most one of each kind, the last word of each.

Pure: what a list of records says is decided here, without a store.
"""

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any, NamedTuple

from crdtmem.model import Model

__all__ = ["Folded", "fold_observations"]

_VERSION = 1
_UPDATE = "_long_term_update_event"
_GET = "_long_term_get_event"
_SEARCH = "_long_term_search_event"


class Folded(NamedTuple):
    """Events, and how many records could not be read."""

    events: list[dict[str, Any]]
    skipped: int


def fold_observations(records: Iterable[object], key: object) -> Folded:
    """Return what records say in all, as at most one event of each kind.

    Args:
        records: In the order in which the operations ended; observations, or what was
            read from their JSON.
        key: Of the events.

    Returns:
        The events of updates, gets and searches, in this order, none that would be
        empty; and the number of records that are none.

    """
    fold = _Fold()
    skipped = sum(not fold.take(record) for record in records)
    return Folded(fold.events(key), skipped)


class _Fold:
    """What the records so far say, by set."""

    def __init__(self) -> None:
        self.updates: dict[str, dict[str, str | None]] = {}
        self.cleared: dict[str, None] = {}
        self.gets: dict[str, dict[str, str]] = {}
        self.searches: dict[str, dict[str, list[object]]] = {}

    def take(self, record: object) -> bool:
        """Take one record; return whether it was one."""
        if isinstance(record, Model):
            record = record.to_dict()
        if not isinstance(record, Mapping):
            return False
        name = record.get("set")
        if not isinstance(name, str) or not name:
            return False
        if type(record.get("version")) is not int or record["version"] != _VERSION:
            return self._stale(record, name)
        op = record.get("op")
        if op == "DELETE_SET":
            self.cleared[name] = None
            self.updates.pop(name, None)
            return True
        if op == "SEARCH":
            return self._search(record, name)
        if op in ("ADD", "UPDATE", "DELETE", "GET"):
            return self._item(record, name, str(op))
        return self._stale(record, name)

    def _item(self, record: Mapping[Any, Any], name: str, op: str) -> bool:
        item, value = record.get("id"), record.get("value")
        if not isinstance(item, str) or not item:
            return False
        if not (value is None if op == "DELETE" else isinstance(value, str)):
            return self._stale(record, name)
        if op == "GET":
            _put(self.gets, name, item, value)
        else:
            _put(self.updates, name, item, value)
        return True

    def _search(self, record: Mapping[Any, Any], name: str) -> bool:
        query, hits = record.get("query"), record.get("value")
        if not isinstance(query, str):
            return False
        if not isinstance(hits, list) or not all(map(_is_hit, hits)):
            _remove(self.searches, name, query)
            return False
        _put(self.searches, name, query, hits)
        return True

    def _stale(self, record: Mapping[Any, Any], name: str) -> bool:
        """Forget what a record that cannot be read was about: it has changed since."""
        item = record.get("id")
        if isinstance(item, str) and item:
            of_kind: dict[str, dict[str, Any]] = (
                self.gets if record.get("op") == "GET" else self.updates
            )
            _remove(of_kind, name, item)
        return False

    def events(self, key: object) -> list[dict[str, Any]]:
        """Return the events."""
        found: list[dict[str, Any]] = []
        if self.updates or self.cleared:
            attributes = {"key": key, "value": self.updates}
            if self.cleared:
                attributes["cleared_sets"] = list(self.cleared)
            found.append({"type": _UPDATE, "attributes": attributes})
        for kind, value in ((_GET, self.gets), (_SEARCH, self.searches)):
            if value:
                attributes = {"key": key, "value": value}
                found.append({"type": kind, "attributes": attributes})
        return found


def _put(of_kind: dict[str, dict[str, Any]], name: str, at: str, value: object) -> None:
    of_kind.setdefault(name, {})[at] = value


def _remove(of_kind: dict[str, dict[str, Any]], name: str, at: str) -> None:
    members = of_kind.get(name, {})
    members.pop(at, None)
    if not members:
        of_kind.pop(name, None)


def _is_hit(hit: object) -> bool:
    """Tell whether a hit has an id, a text and a score that JSON can hold."""
    if not isinstance(hit, Mapping):
        return False
    score = hit.get("score")
    is_number = isinstance(score, (int, float)) and not isinstance(score, bool)
    return (
        isinstance(hit.get("id"), str)
        and isinstance(hit.get("value"), str)
        and (score is None or (is_number and isfinite(float(str(score)))))
    )
