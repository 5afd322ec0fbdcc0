"""The log of a relay in a database, as tests read it, whether it is served or not."""

import asyncio

from crdtmem.protocol.relaying import LogRow
from relay.storage.checking import NamespaceCheck
from relay.storage.postgres.connection import Database
from relay.storage.postgres.maintenance import check_log
from relay.storage.postgres.reading import read_slice

__all__ = ["check_of", "rows_of"]


def rows_of(url: str) -> list[LogRow]:
    """Return the log of the first namespace."""

    async def read() -> list[LogRow]:
        async with Database(url).connection() as connection:
            found = await read_slice(
                connection, ns_no=1, after=0, records=1_000_000, octets=2**40
            )
        return list(found.rows)

    return asyncio.run(read())


def check_of(url: str) -> list[NamespaceCheck]:
    """Compute all ids and chains anew."""
    return asyncio.run(check_log(url))
