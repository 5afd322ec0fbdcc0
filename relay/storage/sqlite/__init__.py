"""The storage of a relay in one SQLite file, and the only place that knows apsw.

``storage`` is what an event loop talks to, ``folder`` what lies on the disk around the
file, and ``maintenance`` what a command does to it, served or not. Below: ``writer``
has the one connection that writes, ``appending`` and ``aging`` what it does inside of a
transaction, ``reading`` what the other connections do.
"""

__all__: list[str] = []
