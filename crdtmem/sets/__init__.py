"""Memory sets: named collections of items, each under one partition key.

A binding says where handles work and what they record, and is carried by every handle
made from it; nothing else decides where an operation goes.
"""

from crdtmem.sets.owners import no_owner_check, owner_task, owner_thread

__all__ = ["no_owner_check", "owner_task", "owner_thread"]
