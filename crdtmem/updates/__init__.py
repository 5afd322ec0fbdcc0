"""The scanner: Yjs v1 updates accepted or refused before pycrdt sees a byte.

Nothing that came from outside reaches pycrdt unscanned. yrs decodes nested values by
recursion, takes a delete set of text that is still to be written, and lets structs wait
for others that never come: 60 KB end the process, 10 bytes erase what a writer will
write next, and 8 bytes make two stores differ for good (all measured with pycrdt
0.14.13). So only what our own documents emit is let in, and everything else is refused
with the code of the rule that it breaks.

The scanner reads bytes and knows no document. What it cannot see is checked by the
document layer after applying: half a surrogate pair deleted, an origin inside a pair, a
right origin left of the origin, and the parent of a struct that hangs on one the store
holds. The form of an update, every integer in lib0's variable length:

    update   = count section* deletes
    section  = count client clock struct*
    struct   = info [client clock] [client clock] [parent] content
    deletes  = count (client count (clock length)*)*

``scanner`` has the verbs, ``reader`` the grammar, ``write`` and ``snapshot`` what may
refer to what, ``content`` the values, ``cursor`` the bytes. ``editor`` is another
scanner, for the documents that editors share with the gateway.
"""

from crdtmem.updates.content import SET_ROOTS, SLOT_ROOTS, Place, Roots
from crdtmem.updates.editor import EditorScan, scan_editor, scan_other
from crdtmem.updates.scanner import Scan, read_state_vector, scan, scan_genesis

__all__ = [
    "SET_ROOTS",
    "SLOT_ROOTS",
    "EditorScan",
    "Place",
    "Roots",
    "Scan",
    "read_state_vector",
    "scan",
    "scan_editor",
    "scan_genesis",
    "scan_other",
]
