"""Export and import: our JSON lines, which keep everything, or a folder of Markdown."""

import io
import json
import os
import sys
from pathlib import Path
from typing import Literal, TextIO

from crdtmem.cli.markdown import file_of, records_from
from crdtmem.cli.phrases import plural
from crdtmem.cli.progress import progress
from crdtmem.cli.running import Call
from crdtmem.cli.texts import decode_text
from crdtmem.errors import ImportRefusedError, InvalidArgumentError
from crdtmem.models import BadRecord, ExportReport, ImportedSet, ImportReport, Unset

__all__ = ["export", "import_"]

SKIPPED = 10
_RECORD_TYPES = frozenset({"header", "slot", "history", "item", "end"})


def export(
    call: Call, *, path: str | None, form: str, no_history: bool, progress_: str | None
) -> None:
    """Write all slots to a file, to stdout, or to a folder of Markdown files."""
    is_stdout = path in (None, "-")
    if is_stdout and (call.out.as_json or form == "markdown"):
        raise InvalidArgumentError(
            "path",
            "a report in JSON, and a folder of Markdown, need a PATH",
            code="usage",
            hint="run 'crdtmem export PATH'",
        )
    with progress(call.out, "exporting", progress_):
        if form == "markdown":
            report = _export_folder(call, Path(str(path)))
        else:
            target = sys.stdout if is_stdout else Path(str(path))
            report = call.memory.export(
                target, scope=call.scope, history=not no_history
            )
    if call.out.as_json:
        call.out.json(report)
    else:
        items = "" if isinstance(report.items, Unset) else plural(report.items, "item")
        call.out.note(
            f"exported {plural(report.slots, 'slot')} and"
            f" {plural(report.history, 'past text')}{items and f', {items} of sets'},"
            f" {report.bytes:,} bytes"
        )


def import_(
    call: Call,
    *,
    path: str,
    on_conflict: Literal["report", "append", "replace"],
    revive: bool,
    strict: bool,
    dry_run: bool,
    progress_: str | None,
) -> int | None:
    """Take in an export or a folder of Markdown files; tell what was done with each."""
    source, bad = _source(call, path)
    if strict and bad:
        raise _refused(f"{bad[0].reason}; and it was to be strict")
    try:
        with progress(call.out, "importing", progress_):
            report = call.memory.import_(
                source,
                on_conflict=on_conflict,
                revive=revive,
                strict=strict,
                dry_run=dry_run,
            )
    except KeyboardInterrupt:
        call.out.warn("stopped: each slot is in, whole, or as it was; run it again")
        raise
    report = report.replaced(bad=(*bad, *report.bad))
    _print_report(call, report)
    settles = on_conflict != "report"
    return SKIPPED if _has_skipped(report, settles=settles) else None


def _export_folder(call: Call, folder: Path) -> ExportReport:
    views = call.memory.slots(call.scope, templates=False)
    size_bytes = 0
    for view in views:
        path, raw = file_of(view)
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        # Beside its place first: who stops an export finds old files or new ones.
        partial = target.with_name(f".{target.name}.crdtmem-part")
        partial.write_bytes(raw)
        partial.replace(target)
        size_bytes += len(raw)
    folder.mkdir(parents=True, exist_ok=True)
    return ExportReport(slots=len(views), history=0, bytes=size_bytes)


def _source(call: Call, path: str) -> tuple[Path | TextIO, list[BadRecord]]:
    """Return what the importer reads, and the files that are no records.

    Raises:
        ImportRefusedError: If it is neither of the two forms.

    """
    if path == "-":
        text = decode_text(sys.stdin.buffer.read(), "stdin", keep_newline=True)
        _require_records(text, "stdin")
        return io.StringIO(text), []
    if os.path.isdir(path):
        scope = call.scope or call.config.scope
        lines, bad = records_from(_markdown_files(Path(path)), scope)
        return io.StringIO("".join(lines)), bad
    try:
        with open(path, encoding="utf-8-sig", errors="replace", newline="\n") as file:
            _require_records(file, path)
    except OSError as error:
        raise _refused(f"{path!r} cannot be read: {error.strerror}") from error
    return Path(path), []


def _markdown_files(folder: Path) -> dict[str, bytes]:
    """Read the Markdown files of a folder; hidden ones and links are not ours."""
    found: dict[str, bytes] = {}
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in names:
            file = Path(root, name)
            is_ours = name.endswith(".md") and not name.startswith(".")
            if is_ours and not file.is_symlink():
                found[file.relative_to(folder).as_posix()] = file.read_bytes()
    return found


def _require_records(lines: "TextIO | str", origin: str) -> None:
    """Refuse a source none of whose lines is a record of ours.

    One bad line is the importer's business, and a stranger's file is nobody's.
    """
    if not any(map(_is_record, lines.split("\n") if isinstance(lines, str) else lines)):
        raise _refused(f"{origin!r} holds no record of an export")


def _is_record(line: str) -> bool:
    try:
        record = json.loads(line.strip().removeprefix("\ufeff") or "null")
    except (ValueError, RecursionError):
        return False
    return isinstance(record, dict) and record.get("type") in _RECORD_TYPES


def _refused(reason: str) -> ImportRefusedError:
    return ImportRefusedError(
        f"{reason}: nothing was imported",
        hint="give a file of 'crdtmem export', or a folder of Markdown files",
        details={"formats": ["jsonl", "markdown"]},
    )


def _print_report(call: Call, report: ImportReport) -> None:
    if call.out.as_json:
        call.out.json(report)
        return
    for slot in report.slots:
        code = "" if isinstance(slot.code, Unset) else f" ({slot.code})"
        call.out.line(f"{slot.action}  {slot.label}  {slot.scope}{code}")
    for found in () if isinstance(report.sets, Unset) else report.sets:
        call.out.line(_set_line(found))
    for record in report.bad:
        call.out.warn(f"skipped {record.line}: {record.code}: {record.reason}")
    if report.ignored:
        call.out.note(f"ignored {plural(report.ignored, 'record')} of unknown type")
    if report.truncated:
        call.out.warn("the source ends early: it has no 'end' record")
    if report.dry_run:
        call.out.note("dry run: nothing was written")


def _set_line(found: ImportedSet) -> str:
    code = "" if isinstance(found.code, Unset) else f" ({found.code})"
    counts = {
        "added": found.added,
        "updated": found.updated,
        "same": found.same,
        "differing": found.differing,
        "deleted here": found.deleted,
    }
    told = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    return (
        f"{found.action}  set {found.set} of {found.partition}  {found.scope}"
        f"{told and f'  {told}'}{code}"
    )


def _has_skipped(report: ImportReport, *, settles: bool) -> bool:
    """Tell whether anything of the source is not in; conflicts may be settled."""
    left_out = {"refused"} if settles else {"refused", "conflict"}
    sets = () if isinstance(report.sets, Unset) else report.sets
    actions = {slot.action for slot in report.slots}
    actions |= {found.action for found in sets}
    differs = any(found.differing for found in sets) and not settles
    return bool(report.bad or report.truncated or actions & left_out or differs)
