"""What a mirror tells: values that callers get."""

from crdtmem.model import UNSET, Model, Unset
from crdtmem.models import Scope

__all__ = ["BlockedFile", "MirrorReport", "MirrorStatus"]


class BlockedFile(Model):
    """A file that is left alone, or a slot without a file.

    Attributes:
        file: Its name; of a file that was swapped out the name that it had.
        label: The slot.
        reason: Why, in kebab-case.
        hint: What to do about it.
        free: UTF-16 units that the slot has left, where its limit is the reason.

    """

    file: str
    label: str
    reason: str
    hint: str
    free: int | Unset = UNSET


class MirrorReport(Model):
    """What one pass over a folder has done.

    Attributes:
        imported: Changes of files that went into slots.
        written: Files that were written.
        created: Slots that were made from files.
        deleted: Slots that were deleted because their files were gone.
        blocked: Files that are left alone.
        retired: Files that were swapped out and may still be written to by who has them
            open; the next run goes on with them.
        duration_ms: How long it took.
        dry_run: Whether nothing was done, and the figures say what would have been.

    """

    imported: int
    written: int
    created: int
    deleted: int
    blocked: tuple[BlockedFile, ...]
    retired: int
    duration_ms: int
    dry_run: bool | Unset = UNSET


class MirrorStatus(Model):
    """A folder that is mirrored.

    Attributes:
        folder: Where it is, or was when it was mirrored last.
        scope: Of its slots.
        namespace: Of its slots.
        mirror: Its id.
        files: How many are bound to slots.
        retired: As in MirrorReport.
        blocked: As in MirrorReport; of a mirror that does not run as far as the store
            knows them.
        is_running: Whether a process mirrors it now.
        pid: Which one, if that is known.

    """

    folder: str
    scope: Scope
    namespace: str
    mirror: str
    files: int
    retired: int
    blocked: tuple[BlockedFile, ...]
    is_running: bool
    pid: int | None
