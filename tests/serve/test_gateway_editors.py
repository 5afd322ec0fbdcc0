"""Editors at a real server, made by hand: hostile ones, and those of a stop."""

import threading
from typing import Any

import pytest
from pycrdt import Doc, Text
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

import crdtmem
from crdtmem.protocol.codec import Reader, write_bytes, write_str, write_uint
from crdtmem.serve.runfiles import running_servers
from tests.serve.desk import PATIENCE_S, PROJECT
from tests.serve.gateway_server import while_serving


@pytest.fixture
def memory(tmp_path):
    with crdtmem.open(tmp_path / "store.db", lane="lane", project=PROJECT) as memory:
        memory.create("plan", "one\ntwo")
        yield memory


def content(memory):
    return memory.slot("plan").read().content


class Socket:
    """A hand-made editor."""

    def __init__(self, ready, label="plan", **of):
        self.doc: Doc[Any] = Doc(client_id=of.pop("client", 70_000))
        self.text = self.doc.get("content", type=Text)
        url = ready.running.base.replace("http", "ws") + f"/yjs/{PROJECT}/{label}"
        headers = {"Authorization": f"Bearer {ready.running.control}"}
        self.socket = connect(
            url,
            additional_headers=headers,
            compression=None,
            max_size=None,
            legacy=True,
            **of,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, *messages):
        self.socket.send(b"".join(messages))

    def next(self):
        """Return kind, step and data of the next message."""
        frame = self.socket.recv(timeout=PATIENCE_S)
        assert isinstance(frame, bytes)
        reader = Reader(frame)
        kind = reader.read_uint()
        step = reader.read_uint() if kind in (0, 2) else 0
        return kind, step, reader.read_bytes(1 << 24)

    def until(self, kind, step=0):
        while (found := self.next())[:2] != (kind, step):
            pass
        return found[2]

    def sync(self):
        """Become live; the document is the gateway's."""
        vector = self.until(0, 0)
        self.send(b"\0\0" + write_bytes(self.doc.get_state()))
        self.send(b"\0\1" + write_bytes(self.doc.get_update(vector)))
        self.doc.apply_update(self.until(0, 1))
        return self

    def type(self, words):
        have = self.doc.get_state()
        self.text += words
        update = self.doc.get_update(have)
        self.send(b"\0\2" + write_bytes(update))
        return update

    def close_code(self):
        with pytest.raises(ConnectionClosed) as caught:
            while True:
                self.socket.recv(timeout=PATIENCE_S)
        assert caught.value.rcvd is not None
        return caught.value.rcvd.code


def word(client, clock, state):
    entry = write_uint(1) + write_uint(client) + write_uint(clock) + write_str(state)
    return b"\1" + write_bytes(entry)


@pytest.mark.requirement("serve-20")
@pytest.mark.requirement("serve-21")
@pytest.mark.requirement("serve-25")
def test_one_server_survives_what_hostile_editors_send(tmp_path, memory):
    def act(ready):
        closes = {}
        for name, frame in {
            "half": b"\0\2\7abc",
            "unknown": b"\7",
            "text": "text",
            "small": b"\0\2" + write_bytes(bytes.fromhex("010107000401")
                                           + write_str("content") + b"\1x\0"),
            "map": b"\0\2" + write_bytes(bytes.fromhex("0101f0a204000401")
                                         + write_str("other") + b"\1x\0"),
        }.items():  # fmt: skip
            with Socket(ready) as bad:
                bad.socket.send(frame)
                closes[name] = bad.close_code()
        with Socket(ready) as big, pytest.raises(ConnectionClosed):
            big.socket.send(b"\0" * (5 << 20))
            big.close_code()
        with Socket(ready, label="nothing") as nobody:
            closes["nobody"] = nobody.close_code()
        with Socket(ready) as ana, Socket(ready, client=80_000) as ben:
            ana.sync()
            ben.sync()
            # Three messages in one frame, and a foreign id beside the own one.
            ana.send(b"\3", word(70_000, 1, '{"user": {"name": "ana"}}'), b"\3")
            ben.send(word(70_000, 9, '{"user": {"name": "not ana"}}'))
            update = ana.type("typed 😀")
            assert ben.until(0, 2) == ana.until(0, 2) == update
            told = ben.until(1)
        return closes, told

    closes, told = while_serving(tmp_path, act)

    assert closes == {
        "half": 4400, "unknown": 4400, "text": 4400, "small": 4400, "map": 4415,
        "nobody": 4404,
    }  # fmt: skip
    assert b"not ana" not in told
    assert content(memory) == "one\ntwo\ntyped 😀"


@pytest.mark.requirement("serve-23")
@pytest.mark.requirement("serve-25")
@pytest.mark.requirement("serve-26")
def test_what_may_not_be_written_is_said_and_a_stop_folds_the_rest(tmp_path, memory):
    def act(ready):
        memory.slot("plan").set_meta(read_only=True)
        with Socket(ready) as ana:
            ana.sync()
            ana.type("refused")
            denied = ana.until(2).decode()
        memory.slot("plan").set_meta(read_only=False)
        with Socket(ready, subprotocols=["crdtmem.yjs"]) as ana:
            assert ana.socket.subprotocol == "crdtmem.yjs"
            ana.sync()
            for number in range(3):
                memory.slot("plan").append(f"lane {number}")
                ana.doc.apply_update(ana.until(0, 2))
            ana.type("kept")
            ana.until(0, 2)
            stopped = threading.Thread(target=lambda: codes.append(ana.close_code()))
            stopped.start()
        return denied

    codes = []
    denied = while_serving(tmp_path, act)

    assert denied == "slot-read-only"
    assert content(memory) == "one\ntwo\nlane 0\nlane 1\nlane 2\nkept"
    assert running_servers(tmp_path) == []
