"""Transfer: slots as JSON lines, out of a store and into another.

The form keeps what a slot is: text, settings, kept texts. It is for people's backups
and for moving; replicas that are to stay alike exchange records instead.
"""

from crdtmem.transfer.exporting import export_slots
from crdtmem.transfer.importing import import_slots

__all__ = ["export_slots", "import_slots"]
