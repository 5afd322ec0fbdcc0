"""Rows of condense passes, for the tests of the store."""

from typing import Any

from crdtmem.store.passes import PassRow
from tests.store.writes import NAMESPACE

__all__ = ["ONE", "TWO", "row_of"]

ONE, TWO = "cp_" + "a" * 16, "cp_" + "b" * 16


def row_of(doc: int, pass_id: str = ONE, **of: Any) -> PassRow:
    """Return an open pass of slot plan, with some fields changed."""
    plain = PassRow(
        number=0,
        pass_id=pass_id,
        doc=doc,
        namespace=NAMESPACE,
        label="plan",
        lane="a",
        summariser="m",
        state="open",
        reason="",
        after=None,
        is_remote=0,
        base_rev=1,
        base_hash="h",
        pin=None,
        archive=b"x",
        settings="{}",
        reply=None,
        result=None,
        lsn=None,
        begun_ms=1,
        expires_ms=2,
        ended_ms=None,
    )
    return plain._replace(**of)
