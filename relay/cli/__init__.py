"""The command ``crdtmem-relay``, which ``crdtmem relay`` runs too.

Each command works on the folder of a relay on this machine, or on its database; none
asks a relay over the network. Answers go to stdout, as lines for people or as one JSON
object; errors go to stderr, with the same codes and exit statuses as those of
``crdtmem``.
"""

from relay.cli.running import main, status_of

__all__ = ["main", "status_of"]
