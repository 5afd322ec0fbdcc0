"""The commands that write text or what is known of a slot."""

import sys
import tempfile
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack

from crdtmem.cli.phrases import columns, headroom_phrase, write_notes
from crdtmem.cli.running import Call, Guards
from crdtmem.cli.texts import decode_text, read_text
from crdtmem.errors import CrdtmemError, InvalidArgumentError
from crdtmem.models import UNSET, DeleteResult, SlotView, Unset, WriteResult

if TYPE_CHECKING:
    from crdtmem.slot import Slot

__all__ = [
    "BasedGuards",
    "Meta",
    "NewSlot",
    "append",
    "create",
    "delete",
    "edit",
    "meta",
    "replace",
    "tell_write",
]

NOT_CONFIRMED = 1


class NewSlot(TypedDict, total=False):
    """What a new slot may be given; only what was given is in it."""

    size_limit: int
    description: str
    request_id: str


class Meta(TypedDict, total=False):
    """What can be changed of a slot besides its text; only what was given is in it."""

    size_limit: int
    description: str
    pinned: bool
    read_only: bool
    append_only: bool
    request_id: str


class BasedGuards(Guards, total=False):
    """The guards of a write that can also be merged."""

    base_rev: int


def create(
    call: Call,
    *,
    label: str,
    text: str | None,
    source: str | None,
    keep_newline: bool,
    no_pin: bool,
    read_only: bool,
    append_only: bool,
    **given: Unpack[NewSlot],
) -> None:
    """Make a slot; without a text it is empty."""
    content = ""
    if text is not None or source is not None:
        content = read_text(call.out, text, source, keep_newline=keep_newline)
    pinned = {"pinned": False} if no_pin else {}
    result = call.memory.create(
        label,
        content,
        scope=call.scope or call.config.scope,
        read_only=read_only,
        append_only=append_only,
        **pinned,
        **given,
    )
    tell_write(call, result)


def append(
    call: Call,
    *,
    label: str,
    text: str | None,
    source: str | None,
    keep_newline: bool,
    **guards: Unpack[Guards],
) -> None:
    """Add text to a slot, on lines of its own."""
    content = read_text(call.out, text, source, keep_newline=keep_newline)
    tell_write(call, call.slot(label).append(content, **guards))


def replace(
    call: Call,
    *,
    label: str,
    text: str | None,
    force: bool,
    source: str | None,
    keep_newline: bool,
    **guards: Unpack[BasedGuards],
) -> None:
    """Give a slot a new text, merged or guarded."""
    if not force and not guards.keys() & {"base_rev", "expected_rev", "expected_hash"}:
        raise InvalidArgumentError(
            "base_rev",
            "base_rev, expected_rev or expected_hash is required: others may have"
            " written since you read the slot",
            code="invalid-precondition",
            hint=f"pass --base-rev with the rev that 'crdtmem get {label} -v' shows,"
            " or --force",
            details={"reason": "guard-required"},
        )
    content = read_text(call.out, text, source, keep_newline=keep_newline)
    tell_write(call, call.slot(label).replace(content, **guards))


def edit(
    call: Call,
    *,
    label: str,
    text: str | None,
    old: str | None,
    new: str | None,
    occurrence: int | None,
    is_all: bool,
    insert_after: int | None,
    source: str | None,
    keep_newline: bool,
    **guards: Unpack[BasedGuards],
) -> None:
    """Change a part of a slot, insert lines, or open it in the user's editor."""
    has_text = text is not None or source is not None
    is_edit = old is not None or new is not None or occurrence is not None or is_all
    is_insert = insert_after is not None
    if (is_edit and is_insert) or (has_text and not is_insert):
        raise _usage("edit takes --old and --new, or --insert-after N TEXT, or neither")
    slot = call.slot(label)
    if insert_after is not None:
        inserted = read_text(call.out, text, source, keep_newline=keep_newline)
        tell_write(call, slot.insert(insert_after, inserted, **guards))
    elif is_edit:
        which = _occurrence(occurrence, is_all=is_all)
        tell_write(call, _edit_part(slot, old, new, which, guards))
    elif guards:
        raise _usage("in $EDITOR the text is saved with the rev that was opened")
    else:
        _edit_whole(call, slot)


def delete(
    call: Call, *, label: str, yes: bool, **guards: Unpack[Guards]
) -> int | None:
    """Delete a slot; asks first on a terminal."""
    if not yes and not _confirmed(call, label):
        call.out.warn("nothing was deleted")
        return NOT_CONFIRMED
    _tell_deleted(call, call.memory.delete(label, call.scope, **guards))
    return None


def meta(call: Call, *, label: str, **given: Unpack[Meta]) -> None:
    """Change what is known of a slot, or print it."""
    slot = call.slot(label)
    view = slot.set_meta(**given) if given else slot.read()
    if call.out.as_json:
        call.out.json(view)
    elif not (given and call.out.is_quiet):
        for line in columns(_meta_rows(view)):
            call.out.line(line)


def tell_write(call: Call, result: WriteResult) -> None:
    """Print what came of a write, and warn of what must not be overlooked."""
    if call.out.as_json:
        call.out.json(result)
    elif not call.out.is_quiet:
        call.out.line(headroom_phrase(result.label, result))
    if not call.out.as_json:
        if result.replayed is True:
            call.out.note("already written by an earlier call with this request id")
        elif not result.changed:
            call.out.note("nothing changed: that already was the text")
        for note in write_notes(result):
            call.out.warn(note)


def _usage(message: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        "argv", message, code="usage", hint="run 'crdtmem edit --help'"
    )


def _occurrence(number: int | None, *, is_all: bool) -> int | Literal["all"] | Unset:
    if number is not None and is_all:
        raise _usage("--occurrence and --all exclude each other")
    if is_all:
        return "all"
    return UNSET if number is None else number


def _edit_part(
    slot: "Slot",
    old: str | None,
    new: str | None,
    which: int | Literal["all"] | Unset,
    guards: BasedGuards,
) -> WriteResult:
    if old is None or new is None:
        raise _usage("--old and --new go together")
    if "base_rev" in guards:
        raise _usage("--base-rev goes with --insert-after; --old is looked for now")
    return slot.edit(
        old,
        new,
        occurrence=which,
        expected_rev=guards.get("expected_rev", UNSET),
        expected_hash=guards.get("expected_hash", UNSET),
        request_id=guards.get("request_id", UNSET),
    )


def _edit_whole(call: Call, slot: "Slot") -> None:
    """Open the text in the user's editor; merge the result into what is there then.

    What was typed is never lost: if it cannot be written, it is kept in a file.
    """
    import click  # noqa: PLC0415 - finds and starts the editor; not needed otherwise

    view = slot.read()
    before = f"{view.content}\n".encode() if view.content else b""
    try:
        after = click.edit(before, extension=".md")
    except click.ClickException as error:
        raise InvalidArgumentError(
            "editor", error.message.removesuffix("."), hint="set EDITOR to one that is"
        ) from error
    if after is None or after == before:
        call.out.note("nothing was changed")
        return
    try:
        result = slot.replace(decode_text(after, "the editor"), base_rev=view.rev)
    except CrdtmemError:
        call.out.warn(f"what you typed is in {_keep(after)}")
        raise
    tell_write(call, result)


def _keep(typed: bytes) -> str:
    with tempfile.NamedTemporaryFile(
        prefix="crdtmem-edit-", suffix=".md", delete=False
    ) as file:
        file.write(typed)
    return file.name


def _confirmed(call: Call, label: str) -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InvalidArgumentError(
            "yes",
            f"deleting {label!r} needs --yes where nobody can be asked",
            code="usage",
            hint=f"run 'crdtmem delete {label} --yes'; undo brings it back",
        )
    call.out.prompt(f"delete slot {label!r}? [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _tell_deleted(call: Call, result: DeleteResult) -> None:
    if call.out.as_json:
        call.out.json(result)
        return
    if not call.out.is_quiet:
        call.out.line(
            f"{result.label}: deleted, {result.previous_size:,} characters;"
            f" 'crdtmem undo {result.label} --scope {result.scope}' brings it back"
        )
    if result.uncovers == "global":
        call.out.warn(f"the label {result.label!r} now means the global slot")


def _meta_rows(view: SlotView) -> list[tuple[str, str]]:
    return [
        ("label", view.label),
        ("scope", view.scope),
        ("description", view.description or "-"),
        ("size limit", f"{view.size_limit:,}"),
        ("size", f"{view.size:,} ({view.pct_used} %), {view.free:,} free"),
        ("rev", f"{view.rev}, hash {view.content_hash}"),
        ("pinned", "yes" if view.pinned else "no"),
        ("writes", _writes_allowed(view)),
        ("created", view.created_at or "never written"),
        ("updated", view.updated_at or "never written"),
    ]


def _writes_allowed(view: SlotView) -> str:
    if view.read_only:
        return "none (read-only)"
    return "appends only" if view.append_only else "all"
