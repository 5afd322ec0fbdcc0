"""Epochs: since which restore a relay's log is the log that it is.

Clients find every loss by the chain of their cursor; the epoch tells them that the
relay went back to an earlier state, rather than that somebody forked its log.
"""

import apsw

from crdtmem.protocol.relaying import RelayIdentity
from relay.storage.sqlite.folder import HighWater, new_id

__all__ = ["settle_epoch"]


def settle_epoch(
    connection: apsw.Connection,
    mark: HighWater | None,
    *,
    is_restored: bool,
    now_ms: int,
) -> RelayIdentity:
    """Return who the relay is, after a new epoch has begun where one is due.

    That is where its owner says so, and where there are fewer records than were noted
    to be on disk. The caller has the transaction.
    """
    relay_id, total = connection.execute("SELECT relay_id, total FROM relay").get
    has_lost = mark is not None and mark.relay_id == relay_id and mark.total > total
    if is_restored or has_lost:
        connection.execute(
            "INSERT INTO epoch(epoch, reason, total, created_ms)"
            " VALUES (:epoch, :reason, :total, :now)",
            {
                "epoch": new_id(),
                "reason": "restored" if is_restored else "lost",
                "total": total,
                "now": now_ms,
            },
        )
    epoch = connection.execute("SELECT epoch FROM epoch ORDER BY n DESC LIMIT 1").get
    return RelayIdentity(relay_id, epoch)
