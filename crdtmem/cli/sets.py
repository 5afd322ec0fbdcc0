"""``crdtmem set``: memory sets of a partition, their items, history and search."""

import inspect
import json
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict, Unpack

from crdtmem.cli.grammar import Access, Option, convert
from crdtmem.cli.phrases import columns, plural
from crdtmem.cli.running import Call
from crdtmem.cli.texts import read_text
from crdtmem.errors import InvalidArgumentError
from crdtmem.limits import SET_PAGE_ROWS, SET_SEARCH_ROWS, SETS_ROWS
from crdtmem.models import UNSET, Unset
from crdtmem.partition import PartitionKey

if TYPE_CHECKING:
    from crdtmem.model import Model
    from crdtmem.sets.binding import BoundMemory
    from crdtmem.sets.memory_set import MemorySet
    from crdtmem.sets.values import Item, SetHeadroom

__all__ = ["SetOptions", "set_"]

Order = Literal["newest", "oldest"]
Mode = Literal["auto", "all", "any"]
Sort = Literal["relevance", "recent"]

_PARTITION = "main"
_CANCELLED = 4
_NOT_TEXTS = ("text", "metadata", "id")


class SetOptions(TypedDict, total=False):
    """What was given; each option belongs to some of the things that set does."""

    partition: str
    partition_json: str
    filter_: str
    limit: int
    order: Order
    cursor: str
    mode: Mode
    sort: Sort
    jsonl: bool
    metadata: str
    create: bool
    is_all: bool
    yes: bool
    before: int
    expected_rev: int
    request_id: str


class _Place(NamedTuple):
    """Which set of which partition is meant."""

    call: Call
    key: PartitionKey
    name: str

    def bound(self, access: Access) -> "BoundMemory":
        call = self.call
        scope = call.scope or call.config.scope
        return call.open(access).bind(partition_key=self.key, scope=scope)

    def set(self, access: Access) -> "MemorySet":
        return self.bound(access).memory_set(self.name)

    def tell(self, result: "Model | dict[str, object]", lines: Iterable[str]) -> None:
        """Print a result, and in which partition it was found."""
        out = self.call.out
        if out.as_json:
            out.json(result)
        else:
            for line in lines:
                out.line(line)
        out.note(f"partition {json.dumps(self.key, ensure_ascii=False)}")

    def tell_write(self, result: "Any", done: str) -> None:
        """Print what a write has made of the set."""
        out = self.call.out
        line = f"{self.name}: {done}; {_fullness(result)}"
        self.tell(result, [] if out.is_quiet else [line])
        if not (out.as_json or result.warning is UNSET):
            out.warn(result.warning)


def set_(
    call: Call,
    *,
    action: str,
    name: str | None,
    words: tuple[str, ...],
    **options: Unpack[SetOptions],
) -> int | None:
    """Do one of the things that set is made of."""
    given: dict[str, Any] = dict(options)
    key = _key(given.pop("partition", None), given.pop("partition_json", None))
    act = _ACTIONS[action]
    takes = inspect.signature(act).parameters
    if words or "words" in takes:
        given["words"] = words
    for option in given:
        if option not in takes:
            raise _usage(f"'set {action}' takes no {_spelled(option)}")
    if action == "list" and name is not None:
        raise _usage("'set list' takes no NAME")
    if action != "list" and name is None:
        raise _usage(f"a set is needed: 'set {action} NAME'")
    return act(_Place(call, key, name or ""), **given)


def _list(place: _Place, *, limit: int = SETS_ROWS) -> None:
    """Show the sets of the partition and how full they are."""
    found = place.bound("look").memory_sets(limit=limit)
    rows = [(info.name, _fullness(info), info.updated_at) for info in found]
    answer: dict[str, object] = {"sets": [info.to_dict() for info in found]}
    place.tell(answer, columns(rows) if rows else [])


def _get(
    place: _Place,
    *,
    words: tuple[str, ...],
    filter_: str | None = None,
    limit: int = SET_PAGE_ROWS,
    order: Order = "newest",
    cursor: str | None = None,
) -> None:
    """Print items: those of some ids, or a page."""
    page = place.set("look").get(
        list(words) if words else None,
        _json_option("filters", filter_),
        limit=limit,
        order=order,
        cursor=cursor,
    )
    place.tell(page, (line for item in page.items for line in _item_lines(item)))
    if page.missing is not UNSET and page.missing:
        place.call.out.warn(f"not there: {', '.join(page.missing)}")
    if page.more and page.cursor is not UNSET:
        place.call.out.note(f"there are more; --cursor {page.cursor} goes on")


def _add(
    place: _Place,
    *,
    words: tuple[str, ...],
    jsonl: bool = False,
    metadata: str | None = None,
    request_id: str | Unset = UNSET,
) -> None:
    """Add items: each word, or each line of stdin."""
    if not words:
        raise InvalidArgumentError(
            "text", "text required", code="invalid-text", hint="pass '-' to read stdin"
        )
    if jsonl and (words != ("-",) or metadata is not None):
        raise _usage("--jsonl goes with '-' alone, and has the metadata in its lines")
    texts = _lines(place.call) if words == ("-",) else list(words)
    items: dict[str, Any] = {"items": texts}
    if jsonl:
        items = _records(texts)
    elif metadata is not None:
        items["metadatas"] = _json_option("metadata", metadata)
    result = place.set("write").add(**items, request_id=request_id)
    place.tell_write(result, f"added {plural(len(result.ids), 'item')}")
    if not place.call.out.as_json:
        place.call.out.note(f"ids {', '.join(result.ids)}")


def _update(
    place: _Place,
    *,
    words: tuple[str, ...],
    metadata: str | None = None,
    create: bool = False,
    expected_rev: int | None = None,
    request_id: str | Unset = UNSET,
) -> None:
    """Give an item another text, other metadata, or both."""
    if not 1 <= len(words) <= 2:
        raise _usage("an id, and at most one text, are needed: 'set update NAME ID'")
    given: dict[str, Any] = {}
    if len(words) > 1:
        given["text"] = read_text(place.call.out, words[1], None, keep_newline=False)
    if metadata is not None:
        given["metadata"] = _json_option("metadata", metadata)
    if expected_rev is not None:
        given["expected_rev"] = expected_rev
    found = place.set("write" if create else "read")
    result = found.update(words[0], **given, create=create, request_id=request_id)
    done = "added" if result.created else "updated" if result.changed else "unchanged"
    place.tell_write(result, f"{done} {result.id}")


def _search(
    place: _Place,
    *,
    words: tuple[str, ...],
    filter_: str | None = None,
    limit: int = SET_SEARCH_ROWS,
    mode: Mode = "auto",
    sort: Sort = "relevance",
) -> None:
    """Print the items in which words are found."""
    result = place.set("look").search(
        " ".join(words),
        limit,
        _json_option("filters", filter_),
        mode=mode,
        sort=sort,
    )
    place.tell(
        result,
        (
            line
            for hit in result.hits
            for line in (
                f"{hit.item_id}  {hit.updated_at}  {hit.lane}  {hit.matched}",
                *_indented(hit.snippet),
            )
        ),
    )
    if result.more:
        place.call.out.note("there are more; --limit shows more of them")


def _delete(
    place: _Place,
    *,
    words: tuple[str, ...],
    is_all: bool = False,
    yes: bool = False,
    request_id: str | Unset = UNSET,
) -> int | None:
    """Delete some items, or all."""
    if is_all == bool(words):
        raise _usage("either ids or --all: 'set delete NAME ID', or '--all --yes'")
    if is_all and not (yes or _is_confirmed(place, "delete all items of", "--all ")):
        return _CANCELLED
    ids = list(words) if words else None
    result = place.set("read").delete(ids, request_id=request_id)
    place.tell_write(result, f"deleted {plural(result.deleted, 'item')}")
    if result.missing:
        place.call.out.warn(f"not there: {', '.join(result.missing)}")
    _tell_undo(place, result, result.deleted)
    return None


def _drop(
    place: _Place, *, yes: bool = False, request_id: str | Unset = UNSET
) -> int | None:
    """Delete all items of a set, and the set."""
    if not (yes or _is_confirmed(place, "drop", "")):
        return _CANCELLED
    result = place.set("read").drop(request_id=request_id)
    done = "dropped" if result.existed else "there was none"
    place.tell_write(result, f"{done}, {plural(result.deleted, 'item')} deleted")
    _tell_undo(place, result, result.deleted)
    return None


def _history(
    place: _Place,
    *,
    words: tuple[str, ...],
    limit: int = SET_PAGE_ROWS,
    before: int | None = None,
) -> None:
    """Print what was changed, newest first: in the set, or in one item."""
    if len(words) > 1:
        raise _usage("at most one id: 'set history NAME ID'")
    found = place.set("look").history(*words, limit=limit, before=before)
    rows = [
        (f"rev {entry.rev}", entry.operation, entry.item_id, entry.lane, entry.at)
        for entry in found.entries
    ]
    place.tell(found, columns(rows) if rows else [])
    if found.more:
        place.call.out.note("there are more; --limit shows more of them")


def _undo(
    place: _Place, *, words: tuple[str, ...], request_id: str | Unset = UNSET
) -> None:
    """Take back what one rev changed, but for items that were changed since."""
    if len(words) != 1:
        raise _usage("one rev is needed: 'set undo NAME REV'")
    try:
        rev = int(str(convert(Option(("--rev",), "", "whole"), words[0])))
    except ValueError as error:
        raise _usage(f"the rev {error}") from error
    result = place.set("read").undo(rev, request_id=request_id)
    restored, removed, kept = (
        len(ids) for ids in (result.restored, result.removed, result.kept)
    )
    done = f"restored {restored:,}, removed {removed:,}, left alone {kept:,}"
    place.tell_write(result, done)


def _key(partition: str | None, as_json: str | None) -> PartitionKey:
    """Return the partition's key; which keys there are is the memory's business."""
    if as_json is None:
        return _PARTITION if partition is None else partition
    if partition is not None:
        raise _usage("--partition and --partition-json exclude each other")
    try:
        found: PartitionKey = _tuples(json.loads(as_json))
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(
            "partition_key",
            f"--partition-json {as_json!a:.80} is not JSON",
            code="invalid-partition-key",
            hint="""--partition-json '["job", "key"]' is a key of two parts""",
        ) from error
    return found


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _json_option(argument: str, text: str | None) -> Any:
    """Return the value of an option that is JSON; whether it fits is told below."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(
            argument,
            f"{argument} must be a JSON object, not {text!a:.80}",
            code="invalid-filter" if argument == "filters" else "invalid-metadata",
        ) from error


def _lines(call: Call) -> list[str]:
    text = read_text(call.out, "-", None, keep_newline=False)
    return text.split("\n") if text else []


def _records(lines: list[str]) -> dict[str, Any]:
    """Return what ``add`` takes from lines of JSON.

    Raises:
        InvalidArgumentError: If a line is no such object, or some have ids and some
            have none.

    """
    records = [_record(number, line) for number, line in enumerate(lines, 1)]
    found: dict[str, Any] = {
        "items": [record["text"] for record in records],
        "metadatas": [record.get("metadata", {}) for record in records],
    }
    with_id = sum("id" in record for record in records)
    if with_id:
        if with_id < len(records):
            raise _bad_line(f"{with_id} of {len(records)} lines have an id")
        found["ids"] = [record["id"] for record in records]
    return found


def _record(number: int, line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict) or "text" not in record:
        raise _bad_line(f"line {number} is no JSON object with a 'text'")
    stray = sorted(record.keys() - set(_NOT_TEXTS))
    if stray:
        raise _bad_line(f"line {number} has {stray[0]!a:.80}")
    return record


def _bad_line(reason: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        "items",
        f"{reason}; nothing was added",
        hint="""each line is such as {"text": "…", "metadata": {}, "id": "…"}""",
    )


def _is_confirmed(place: _Place, what: str, option: str) -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        verb = "delete" if option else "drop"
        raise InvalidArgumentError(
            "yes",
            f"to {what} {place.name!r} needs --yes where nobody can be asked",
            code="usage",
            hint=f"run 'crdtmem set {verb} {place.name} {option}--yes'",
        )
    place.call.out.prompt(f"{what} {place.name!r}? [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _tell_undo(place: _Place, result: "SetHeadroom", deleted: int) -> None:
    if deleted and not place.call.out.as_json:
        place.call.out.note(f"'crdtmem set undo {place.name} {result.rev}' undoes it")


def _fullness(headroom: "SetHeadroom") -> str:
    return (
        f"rev {headroom.rev}, {headroom.item_count:,} of {headroom.item_limit:,} items,"
        f" {headroom.size:,} of {headroom.size_limit:,} ({headroom.pct_used} %)"
    )


def _item_lines(item: "Item") -> Iterable[str]:
    yield f"{item.id}  {item.updated_at}  {item.lane}{_shown(item.metadata)}"
    yield from _indented(item.text)
    if item.conflicts is not UNSET:
        for other in item.conflicts:
            yield f"  also  {other.updated_at}  {other.lane}{_shown(other.metadata)}"
            yield from _indented(other.text)


def _shown(metadata: object) -> str:
    return f"  {json.dumps(metadata, ensure_ascii=False)}" if metadata else ""


def _indented(text: str) -> list[str]:
    return [f"  {line}" for line in text.split("\n")]


def _spelled(name: str) -> str:
    words = {"words": "more words", "is_all": "--all"}
    return words.get(name) or "--" + name.rstrip("_").replace("_", "-")


def _usage(message: str) -> InvalidArgumentError:
    hint = "run 'crdtmem set --help' to see what belongs to what"
    return InvalidArgumentError("argv", message, code="usage", hint=hint)


_ACTIONS: dict[str, Callable[..., int | None]] = {
    "list": _list,
    "get": _get,
    "add": _add,
    "update": _update,
    "search": _search,
    "delete": _delete,
    "drop": _drop,
    "history": _history,
    "undo": _undo,
}
