"""Which records a relay's log takes: the table of the protocol's section 5, as data in.

Every storage asks here, so that none of them can be more lenient than the others. A
storage itself tells a record that it has already from a fork of it.
"""

from dataclasses import dataclass

from crdtmem.limits import DROP_GRACE_MS, NAMESPACE_DOCS_MAX, NAMESPACE_QUOTA_BYTES
from crdtmem.protocol.records import Header, RecordKind
from crdtmem.protocol.relaying import Grant, Scope

__all__ = ["Standing", "StorageLimits", "is_cover", "refusal_of"]

# Plain numbers: every record passes here, and the operators of enums are slow.
_SNAPSHOT = int(RecordKind.SNAPSHOT)
_DOC_DELETE = int(RecordKind.DOC_DELETE)
_SNAPSHOT_VOID = int(RecordKind.SNAPSHOT_VOID)
_WRITE = int(Scope.WRITE)
_COMPACT = int(Scope.COMPACT)


@dataclass(frozen=True, slots=True)
class StorageLimits:
    """What a relay's owner may set for every namespace.

    Attributes:
        quota_bytes: Most bytes of records whose payload is kept. What makes room may
            pass it by a tenth.
        docs_max: Most docs.
        grace_ms: How long a covered payload is kept, in observed running time.

    """

    quota_bytes: int = NAMESPACE_QUOTA_BYTES
    docs_max: int = NAMESPACE_DOCS_MAX
    grace_ms: int = DROP_GRACE_MS


@dataclass(slots=True)
class Standing:
    """What a log knows just before a record that it does not have yet.

    Attributes:
        head: Newest seq of the namespace.
        max_seq: Highest replica_seq of the record's replica there.
        live_bytes: Size of all records there whose payload is kept.
        docs: How many docs there are.
        is_new_doc: Whether the record is the first of its doc.
        covered: Up to which seq its doc's newest snapshot covers it.
        other_replicas: How many replicas write there under the same token, if this one
            never has; else 0.

    """

    head: int
    max_seq: int
    live_bytes: int
    docs: int
    is_new_doc: bool
    covered: int
    other_replicas: int = 0


def is_cover(header: Header) -> bool:
    """Tell whether a record covers earlier ones of its doc, which then may go."""
    return header.base > 0 and header.kind == _SNAPSHOT


def refusal_of(
    header: Header,
    size_bytes: int,
    grant: Grant,
    standing: Standing,
    limits: StorageLimits,
) -> str:
    """Return why a record is refused, or nothing where it is to be inserted.

    Args:
        header: Of a record with a higher replica_seq than any of its replica.
        size_bytes: Of the whole record.
        grant: Of the connection that brought it.
        standing: See there.
        limits: Of the relay.

    """
    if header.replica_seq != standing.max_seq + 1:
        return "replica-gap"
    if header.base > standing.head:
        return "base-ahead"
    is_covering = is_cover(header)
    is_compacting = is_covering or header.kind in (_DOC_DELETE, _SNAPSHOT_VOID)
    if not int(grant.scopes) & (_COMPACT if is_compacting else _WRITE):
        return "forbidden"
    if grant.max_replicas is not None and standing.other_replicas >= grant.max_replicas:
        return "forbidden"
    quota_bytes = limits.quota_bytes
    if is_covering or header.kind == _DOC_DELETE:
        quota_bytes += quota_bytes // 10
    is_full = standing.is_new_doc and standing.docs >= limits.docs_max
    if is_full or standing.live_bytes + size_bytes > quota_bytes:
        return "quota-exceeded"
    if is_covering and header.base < standing.covered:
        return "snapshot-stale"
    return ""
