"""The commands that look after the store itself."""

from pathlib import Path

from crdtmem.cli.phrases import plural
from crdtmem.cli.progress import progress
from crdtmem.cli.running import Call
from crdtmem.models import DoctorCheck, DoctorReport, Unset

__all__ = ["backup", "compact", "doctor"]

PROBLEMS_LEFT = 10
_STYLES = {"ok": "green", "fixed": "green", "warn": "yellow", "fail": "red"}


def doctor(
    call: Call, *, repair: bool, deep: bool, progress_: str | None
) -> int | None:
    """Check the store; without --repair nothing is written."""
    memory = call.open("read" if repair else "look")
    with progress(call.out, "checking", progress_):
        report = memory.doctor(repair=repair, deep=deep)
    if call.out.as_json:
        call.out.json(report)
    else:
        _print_checks(call, report)
    return None if report.ok else PROBLEMS_LEFT


def compact(call: Call, *, progress_: str | None) -> None:
    """Squash the records that no history entry needs, and give back the space."""
    with progress(call.out, "compacting", progress_):
        report = call.memory.compact()
    if call.out.as_json:
        call.out.json(report)
    elif not call.out.is_quiet:
        call.out.line(
            f"{plural(report.docs, 'doc')}:"
            f" {report.records_before:,} → {report.records_after:,} records,"
            f" {report.bytes_before:,} → {report.bytes_after:,} bytes"
        )


def backup(call: Call, *, path: str, progress_: str | None) -> None:
    """Copy the store while it is in use; the copy takes new ids when it is opened."""
    with progress(call.out, "copying", progress_):
        report = call.memory.backup(Path(path))
    if call.out.as_json:
        call.out.json(report)
    elif not call.out.is_quiet:
        call.out.line(f"{report.path}: {report.bytes:,} bytes")


def _print_checks(call: Call, report: DoctorReport) -> None:
    for check in report.checks:
        call.out.line(_check_line(check), _STYLES[check.status])
        if check.status in ("warn", "fail") and check.hint:
            call.out.line(f"      {check.hint}")


def _check_line(check: DoctorCheck) -> str:
    slot = "" if isinstance(check.label, Unset) else f" {check.label}"
    return f"{check.status:<5} {check.id}{slot}: {check.message}"
