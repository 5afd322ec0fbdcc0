"""Rows of a log as every storage gives them: of what comes, and of what is kept."""

import struct

from crdtmem.protocol.relaying import LogRow, PutRecord

__all__ = ["fresh_row", "kept_row"]

# Of a header that was checked when its record came: kind, doc_tag, replica_id,
# replica_seq and base. Its record may be gone, so parse_header cannot read it.
_HEADER = struct.Struct(">xB2x16s16sQQ")


def fresh_row(
    seq: int,
    chain: bytes,
    record: PutRecord,
    snap_seq: int,
    *,
    has_dropped: bool,
) -> LogRow:
    """Return the row of a record that is being stored.

    Args:
        seq: Its place.
        chain: The chain after it.
        record: What came.
        snap_seq: Where its doc's newest snapshot is; 0 for none.
        has_dropped: Whether any payload of its doc has been dropped.

    """
    header = record.header
    # By position: names take twice the time, and every record passes here.
    return LogRow(
        seq,
        record.record_id,
        chain,
        header.kind,
        header.base,
        header.doc_tag,
        header.replica_id,
        header.replica_seq,
        record.record,
        snap_seq == seq,
        has_dropped,
    )


def kept_row(
    seq: int,
    record_id: bytes,
    chain: bytes,
    header: bytes,
    payload: bytes | None,
    snap_seq: int | None,
    dropped_seq: int | None,
) -> LogRow:
    """Return a row as it is kept: its header apart, and what its doc's row says."""
    kind, doc_tag, replica_id, replica_seq, base = _HEADER.unpack_from(header)
    return LogRow(
        seq,
        record_id,
        chain,
        kind,
        base,
        doc_tag,
        replica_id,
        replica_seq,
        None if payload is None else header + payload,
        snap_seq == seq,
        bool(dropped_seq),
    )
