"""crdtmem.errors.mirror"""

import pickle

import pytest

from crdtmem.errors import (
    MirrorBusyError,
    MirrorError,
    MirrorNotFoundError,
    MirrorUnsafeError,
    UnreadableFileError,
)


def test_a_busy_mirror_names_its_folder_and_who_has_it():
    error = MirrorBusyError(folder="/notes", pid=7)

    assert str(error) == "process 7 mirrors /notes already"
    assert str(MirrorBusyError(folder="/n", pid=None)).startswith("another process")
    assert error.details == {"folder": "/notes", "pid": 7}
    assert (error.code, error.exit_status, error.http_status) == ("mirror-busy", 6, 503)


def test_an_unsafe_folder_says_what_it_lacks():
    error = MirrorUnsafeError(folder="/usb", reason="no hard links")

    assert str(error) == "/usb cannot be mirrored safely: no hard links"
    assert error.details == {"folder": "/usb", "reason": "no hard links"}
    assert (error.code, error.exit_status) == ("mirror-unsafe-filesystem", 7)


def test_an_unknown_folder_is_a_lookup_error():
    error = MirrorNotFoundError(folder="/notes")

    assert str(error) == "/notes is not mirrored"
    assert isinstance(error, LookupError)
    assert (error.exit_status, error.http_status) == (3, 404)


def test_a_blocked_file_has_its_reason_for_a_code():
    error = UnreadableFileError("source-encoding-invalid", "byte 3 is 0xff")

    assert error.code == "source-encoding-invalid"
    assert str(error) == "byte 3 is 0xff"
    assert isinstance(error, ValueError)


@pytest.mark.parametrize(
    "error",
    [
        MirrorBusyError(folder="/notes", pid=7),
        MirrorUnsafeError(folder="/usb", reason="no hard links"),
        MirrorNotFoundError(folder="/notes"),
        UnreadableFileError("text-too-large", "the file is too large (9 > 8)"),
    ],
)
def test_an_error_of_a_mirror_survives_the_way_back_from_another_process(error):
    copy = pickle.loads(pickle.dumps(error))

    assert isinstance(copy, MirrorError)
    assert copy.to_dict() == error.to_dict()
