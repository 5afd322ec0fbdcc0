r"""Names of mirrored files: from a slot's label to its file, and back.

Decides from names alone; which of them are taken the caller knows. A file that is bound
to a slot keeps its name by the mirror's state, whatever these rules would say, so they
are asked once for each new file and each new slot.

A label is safe and unique as a file name, whatever the file system folds, but for the
names that Windows reserves: their files end in ``-slot.md``. A name from a slot's
description comes from anybody who may write to the namespace: it is used only if it is
one harmless component and would lead back to the slot.
"""

import hashlib
import re
import unicodedata
from collections.abc import Collection

from crdtmem.limits import MIRROR_NAME_BYTES
from crdtmem.scope import LABEL_PATTERN

__all__ = [
    "SUFFIX",
    "description_for",
    "file_name_for",
    "is_conflict_copy",
    "is_label",
    "is_mirrored_name",
    "is_safe_name",
    "label_for",
    "name_key",
]

SUFFIX = ".md"
"""How the name of every mirrored file ends."""

_DESCRIPTION = "file: "
_DEVICE_SUFFIX = "-slot"
_LABEL_CHARS = 64
_DIGEST_CHARS = 6
_DEVICES = frozenset(
    ["con", "prn", "aux", "nul", "conin", "conout", "clock"]
    + [f"{port}{number}" for port in ("com", "lpt") for number in range(10)]
)
# What Windows refuses in a name, and what separates components anywhere.
_RESERVED = frozenset('<>:"/\\|?*')
# Control characters, lone surrogates, line and paragraph separators.
_UNSHOWN = frozenset({"Cc", "Cs", "Zl", "Zp"})


def file_name_for(label: str, description: str, taken: Collection[str]) -> str:
    """Return the name of a slot's new file.

    Args:
        label: Of the slot.
        description: Of the slot; ``file: X.md`` asks for that name.
        taken: Names of the files of other slots.

    Returns:
        The name that the description asks for, if it is safe, leads to this label and
        is not taken; else ``<label>.md``, or with ``-slot`` where that is reserved.
        Never a name that a file system which folds case would take for a taken one.

    Raises:
        ValueError: If the label is none. Labels come from peers, too: ask ``is_label``.

    """
    if not is_label(label):
        raise ValueError("no label")
    keys = {name_key(name) for name in taken}
    wanted = description.removeprefix(_DESCRIPTION)
    is_asked_for = wanted != description and _leads_to(wanted, label)
    if is_asked_for and name_key(wanted) not in keys:
        return wanted
    stem = f"{label}{_DEVICE_SUFFIX}" if label in _DEVICES else label
    name = f"{stem}{SUFFIX}"
    attempt = 1
    # Only a file made by hand can have such a name and belong to another slot.
    while name in keys:
        attempt += 1
        name = f"{label}{_DEVICE_SUFFIX}-{attempt}{SUFFIX}"
    return name


def label_for(name: str, taken: Collection[str]) -> str:
    """Return the label of the slot that a new file stands for.

    A name that ``file_name_for`` makes of a label alone leads back to it, so a folder
    can be mirrored again when its state is gone.

    Args:
        name: Of the file.
        taken: Labels of other files' slots.

    """
    label = _derived(name)
    if label not in taken:
        return label
    digest = hashlib.sha256(_composed(name).encode("utf-8", "surrogatepass"))
    while (numbered := _marked(label, digest.hexdigest())) in taken:
        digest = hashlib.sha256(digest.digest())
    return numbered


def description_for(name: str, label: str) -> str | None:
    """Return the description by which other mirrors find the name of a slot's file.

    None where the label says as much already, or where no other mirror would use the
    name because it is not safe.
    """
    if name == f"{label}{SUFFIX}" or not is_safe_name(name):
        return None
    return f"{_DESCRIPTION}{name}"


def is_mirrored_name(name: str) -> bool:
    """Tell whether a file of this name is mirrored.

    Dot-files, names that do not end in ``.md``, editors' backups and conflict copies of
    synchronising tools are not, nor is what is no Unicode: no row could keep it.
    """
    return (
        name.endswith(SUFFIX)
        and not name.startswith(".")
        and not is_conflict_copy(name)
        and not any(unicodedata.category(char) == "Cs" for char in name)
    )


def is_conflict_copy(name: str) -> bool:
    """Tell whether a synchronising tool has put a file's other version under it."""
    folded = name.casefold()
    return folded.endswith(SUFFIX) and (
        ".sync-conflict-" in folded or "conflicted copy" in folded
    )


def is_label(label: str) -> bool:
    """Tell whether it is a label, as a whole."""
    return re.fullmatch(LABEL_PATTERN, label) is not None


def is_safe_name(name: str) -> bool:
    """Tell whether a file may be made under a name that came from elsewhere.

    It is one component of at most ``MIRROR_NAME_BYTES``, means the same on every system
    and is a mirrored name.
    """
    return (
        is_mirrored_name(name)
        and not _RESERVED.intersection(name)
        and not any(unicodedata.category(char) in _UNSHOWN for char in name)
        and len(name.encode()) <= MIRROR_NAME_BYTES
        and not _is_device(name)
    )


def name_key(name: str) -> str:
    """Return what is equal for names that some file system takes for the same."""
    return _composed(_composed(name).casefold())


def _composed(name: str) -> str:
    return unicodedata.normalize("NFC", name)


def _is_device(name: str) -> bool:
    """Tell whether Windows opens a device instead: "con.old.md", "COM¹.md"."""
    first = unicodedata.normalize("NFKC", name).casefold().split(".", 1)[0]
    return first.rstrip(" ").rstrip("$") in _DEVICES


def _derived(name: str) -> str:
    folded = name_key(name.removesuffix(SUFFIX))
    device = folded.removesuffix(_DEVICE_SUFFIX)
    if device in _DEVICES:
        return device
    # A label may begin or end with "_" as it is: only what is changed is trimmed.
    if is_label(folded):
        return folded
    label = re.sub(r"[^a-z0-9_]+", "_", folded).strip("_")
    if not label[:1].isalpha():
        label = f"m_{label}"
    return label[:_LABEL_CHARS]


def _marked(label: str, digest: str) -> str:
    return f"{label[: _LABEL_CHARS - 1 - _DIGEST_CHARS]}_{digest[:_DIGEST_CHARS]}"


def _leads_to(name: str, label: str) -> bool:
    """Tell whether a file of this safe name becomes this label, first or second."""
    return is_safe_name(name) and label in (
        _derived(name),
        label_for(name, (_derived(name),)),
    )
