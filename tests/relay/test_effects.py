"""relay.effects"""

import pytest

from crdtmem.errors import (
    StorageBusyError,
    StorageCorruptError,
    StorageFullError,
    StorageUncertainError,
)
from relay.effects import Close, Send, StorageFailure


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StorageFullError(path="relay.db"), "storage-full"),
        (StorageBusyError(path="relay.db"), "busy"),
        (StorageUncertainError(path="relay.db", reason="x"), "storage-failed"),
        (StorageCorruptError(path="relay.db", reason="x"), "storage-failed"),
    ],
)
def test_only_an_error_that_left_the_log_as_it_was_keeps_its_connections(error, code):
    assert StorageFailure.of(error) == StorageFailure(code)


def test_no_frame_shows_in_a_log_line():
    shown = repr([Send(1, [b"secret"]), Close(1, 1011, "storage-failed", [b"secret"])])

    assert "secret" not in shown
