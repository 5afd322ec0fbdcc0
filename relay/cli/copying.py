"""Copies a relay from one place to another, whole or not at all."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from relay.cli.places import Place, postgres
from relay.storage.checking import NamespaceCheck
from relay.storage.copying import CopySource, CopyTarget, copy_relay
from relay.storage.sqlite import moving

__all__ = ["copy_place"]


def copy_place(
    source: Place,
    target: Place,
    *,
    now_ms: int,
    begun: Callable[[int], None],
    told: Callable[[int], None],
) -> list[NamespaceCheck]:
    """Copy a relay; what was copied has been read back and checked.

    Args:
        source: A relay that nobody serves.
        target: A new or empty folder, or an empty database.
        now_ms: The wall clock.
        begun: Called with the number of records that there are.
        told: Called with how many more have been copied.

    Returns:
        What was found of each namespace.

    Raises:
        RelayRunningError: If one of them is being served.
        RelayFolderError: If there is no relay to copy, or the target is not empty.
        StorageError: If one cannot be read or written, or the copy is not the same;
            the target is no relay then.

    """

    async def copy() -> list[NamespaceCheck]:
        async with _source(source) as rows:
            begun(await rows.records())
            async with _target(target, now_ms) as made:
                return await copy_relay(rows, made, told)

    return asyncio.run(copy())


def _source(place: Place) -> AbstractAsyncContextManager[CopySource]:
    config = place.config
    if not config.database:
        return moving.copy_source(place.home)
    found: AbstractAsyncContextManager[CopySource] = postgres("moving").copy_source(
        config.database, password_file=config.password_file
    )
    return found


def _target(place: Place, now_ms: int) -> AbstractAsyncContextManager[CopyTarget]:
    config = place.config
    if not config.database:
        return moving.copy_target(place.home, now_ms=now_ms)
    found: AbstractAsyncContextManager[CopyTarget] = postgres("moving").copy_target(
        config.database, password_file=config.password_file
    )
    return found
