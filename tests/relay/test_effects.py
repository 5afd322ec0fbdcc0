"""relay.effects"""

import pytest

from crdtmem.errors import (
    StorageBusyError,
    StorageCorruptError,
    StorageFullError,
    StorageLostError,
    StorageReadOnlyError,
    StorageUncertainError,
    StorageUnreachableError,
)
from relay.effects import Announce, Close, Send, StorageFailure


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StorageFullError(path="relay.db"), "storage-full"),
        (StorageBusyError(path="relay.db"), "busy"),
        (StorageUnreachableError(path="db", reason="x"), "busy"),
        (StorageReadOnlyError(path="db", reason="x"), "busy"),
        (StorageLostError(path="db"), "storage-failed"),
        (StorageUncertainError(path="relay.db", reason="x"), "storage-failed"),
        (StorageCorruptError(path="relay.db", reason="x"), "storage-failed"),
    ],
)
def test_only_an_error_that_left_the_log_as_it_was_keeps_its_connections(error, code):
    assert StorageFailure.of(error) == StorageFailure(code)


def test_no_frame_shows_in_a_log_line():
    close = Close(1, 1011, "storage-failed", [b"secret"])
    shown = repr([Send(1, [b"secret"]), close, Announce(b"secret")])

    assert "secret" not in shown
