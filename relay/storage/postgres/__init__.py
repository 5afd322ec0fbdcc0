"""The storage of a relay in PostgreSQL, and the only place that knows asyncpg.

Any number of processes may serve one database. ``storage`` is what an event loop talks
to, ``maintenance`` what a command does. Below: ``connection`` has pools and
transactions, ``errors`` says what a failure means, ``announcing`` has the one
connection on which the processes tell each other of new heads; ``appending``,
``reading``, ``aging`` and ``tokens`` are the statements.

What makes several writers safe is the row lock of a namespace: every transaction that
writes to its log begins with it, so the order of commits is the order of seqs. Nothing
is numbered by a sequence: there 2 may be seen before 1, and a reader at 2 would never
see 1. A transaction has one namespace, so no two of them wait for each other.
"""

__all__: list[str] = []
