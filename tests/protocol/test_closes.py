"""crdtmem.protocol.closes"""

import pytest

from crdtmem.protocol.closes import CLOSE_CODES, Close, close_for, is_permanent_close


@pytest.mark.parametrize(("code", "number"), CLOSE_CODES.items())
def test_a_code_of_the_protocol_has_its_close(code, number):
    assert close_for(code) == Close(number, code)


def test_a_code_of_a_later_version_may_be_tried_again():
    assert close_for("solar-flare") == Close(4500, "solar-flare")
    assert not is_permanent_close(4500)


@pytest.mark.parametrize(
    "number", [1002, 1003, 1007, 1008, 1009, 4400, 4401, 4409, 4499]
)
def test_a_close_for_what_a_peer_said_is_permanent(number):
    assert is_permanent_close(number)


@pytest.mark.parametrize(
    "number", [1000, 1001, 1006, 1011, 1012, 1013, 1015, 4500, 4508, 4599]
)
def test_every_other_close_is_transient(number):
    assert not is_permanent_close(number)
