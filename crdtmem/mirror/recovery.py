"""What a mirror does first: end what an earlier run was killed in the middle of.

It holds the folder's lock, so whatever is half done now is nobody's work any more. The
store says what was intended, the files say how far it came:

    intended, not exchanged           the swap file goes, the intent is cleared
    exchanged, not noted              noted now, and the other file drained
    in ``swap/``, of nobody           removed if its slot has, or had, that text; else
                                      kept in ``rejected/``
    noted as swapped out, not there   done with
"""

import logging

from crdtmem.doc.text_form import view_of
from crdtmem.errors import UnreadableFileError
from crdtmem.limits import TEXT_BYTES
from crdtmem.mirror.folder import MirrorFolder
from crdtmem.mirror.forms import PlainForm
from crdtmem.mirror.importing import Importer
from crdtmem.mirror.writing import Writer
from crdtmem.store.history import entries_of
from crdtmem.store.mirrors import files_of, retired_of
from crdtmem.store.slots import find_slot

__all__ = ["recover"]

_logger = logging.getLogger(__name__)


def recover(importer: Importer, folder: MirrorFolder, writer: Writer) -> None:
    """Bring all swaps that were interrupted to one of their ends.

    May itself be interrupted, and repeated.

    Raises:
        OSError: If a file cannot be read, moved or removed.

    """
    with importer.session.store.reading() as connection:
        names = [
            row.name for row in files_of(connection, importer.mirror) if row.intent
        ]
    for name in names:
        writer.recover(name)
    with importer.session.store.reading() as connection:
        known = {row.swap_name for row in retired_of(connection, importer.mirror)}
    for swap_name in folder.leftovers(known):
        _clear_leftover(importer, folder, swap_name)


def _clear_leftover(importer: Importer, folder: MirrorFolder, swap_name: str) -> None:
    """Remove what was never intended, or of which the store knows nothing (more)."""
    label = swap_name.removesuffix(".old").rpartition(".")[2]
    try:
        data, _ = folder.read_swap(swap_name, limit_bytes=TEXT_BYTES + 1)
    except OSError as exc:
        _logger.warning("%s in swap/ is left alone: %s", swap_name, exc)
        return
    if not _has_been(importer, label, data):
        rejected = importer.reject(label or "unknown", data)
        with importer.session.writing() as writing:
            details = {"reason": "mirror-leftover", "rejected": rejected}
            importer.note(writing, "mirror-rejected", swap_name, label, **details)
    folder.unlink_swap(swap_name)


def _has_been(importer: Importer, label: str, data: bytes) -> bool:
    """Tell whether a slot has this text, or had it as far back as its history goes."""
    try:
        view = view_of(PlainForm().first(data).file)
    except UnreadableFileError:
        return False
    with importer.session.store.reading() as connection:
        slot = find_slot(connection, importer.namespace, label)
        if slot is None:
            return not data
        kept = [entry.file for entry in entries_of(connection, slot.doc)]
    return not view or view in {view_of(file) for file in (slot.file, *kept)}
