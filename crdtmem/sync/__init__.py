"""The sync client: keeps a store and a relay in step while a lease is held.

``engine`` decides, without a socket or a clock; ``driver`` gives it both; ``transport``
is the one place that knows websockets; ``linking`` makes and takes away links;
``thread`` runs the driver inside a long-lived program.
"""

__all__: list[str] = []
