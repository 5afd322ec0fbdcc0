"""crdtmem.sync.board"""

import json

from crdtmem.limits import PRESENCE_BYTES, PRESENCE_TOLD_BYTES
from crdtmem.sealing import PRESENCE_SEAL_BYTES
from crdtmem.sync.board import Board, lanes_in, presence_of

ANA = ("yjs:ana", "plan", "editing")


def test_what_is_told_is_read_again():
    board = Board()
    board.tell(lambda _: [ANA])
    board.others["demo"] = {}
    board.tell(lambda namespace: [ANA] if namespace == "demo" else [])
    told = lanes_in({b"\2": board.own["demo"], b"\1": b'{"lanes": [{"lane": 1}]}'})

    assert list(board.own) == ["demo"]
    assert told == [
        {"replica": "01", "lane": "1", "slot": "", "doing": ""},
        {"replica": "02", "lane": "yjs:ana", "slot": "plan", "doing": "editing"},
    ]


def test_nobody_is_told_of_by_nothing():
    assert presence_of([]) == b""


def test_too_many_lanes_are_cut_and_fit_sealed_too():
    blob = presence_of(("é" * 60, "plan", "editing") for _ in range(9))

    assert 0 < len(json.loads(blob)["lanes"]) < 9
    assert len(blob) <= PRESENCE_TOLD_BYTES == PRESENCE_BYTES - PRESENCE_SEAL_BYTES


def test_what_cannot_be_read_is_passed_over():
    blobs = [
        b"\xff",
        b"[" * 100_000,
        b"[]",
        b'{"lanes": 3}',
        b'{"lanes": [1, {}]}',
        b"",
    ]

    assert lanes_in({bytes([n]): blob for n, blob in enumerate(blobs)}) == []
