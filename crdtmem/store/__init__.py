"""The local store: one SQLite file that all sessions of a user share.

Each module is one part of it; none is imported here, so that a reading command loads
only what it needs. Below lie the documents and the wire; above, ``crdtmem.memory``.
"""
