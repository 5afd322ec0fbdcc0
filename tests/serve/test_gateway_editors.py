"""Real editors at a real server: y-websocket under Node.js, and hostile ones.

y-websocket is installed from npm when a test first needs it, into a folder that git
ignores; see ``tests.test_interop``.
"""

import json
import os
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from pycrdt import Doc, Text
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

import crdtmem
from crdtmem.protocol.codec import Reader, write_bytes, write_str, write_uint
from crdtmem.serve.runfiles import running_servers
from tests.conftest import PROFILE
from tests.serve.desk import PATIENCE_S, PROJECT
from tests.serve.gateway_server import while_serving

PACKAGES = ["y-websocket@3.1.0", "yjs@13.6.33", "ws@8.18.3"]
FOLDER = Path(__file__).parents[2] / "bench" / "results" / "y-websocket-3.1.0"
NODE = shutil.which("node")
INSTALL_TIMEOUT_S = 50
RUN_TIMEOUT_S = {"default": 50, "campaign": 1_500}[PROFILE]
ROUNDS = {"default": 2, "campaign": 200}[PROFILE]

needs_node = pytest.mark.skipif(
    NODE is None and os.environ.get("CI_RUN") != "1", reason="Node.js is not installed"
)

SCRIPT = """
import * as Y from 'yjs'
import { WebsocketProvider } from 'y-websocket'
import WebSocket from 'ws'
import { createInterface } from 'node:readline'

// Commands in, one a line; what came of each out.
const [url, token, room] = process.argv.slice(2)
const editors = new Map()
const open = (name, id) => {
  const doc = new Y.Doc()
  if (id) doc.clientID = id
  const provider = new WebsocketProvider(url, room, doc, {
    WebSocketPolyfill: WebSocket, disableBc: true, maxBackoffTime: 200,
    protocols: ['crdtmem.yjs', 'crdtmem.token.' + token],
  })
  const editor = { doc, provider, text: doc.getText('content') }
  provider.awareness.setLocalStateField('user', { name })
  editors.set(name, editor)
}
const until = async good => {
  for (let i = 0; i < 2000; i++) {
    if (good()) return true
    await new Promise(resolve => setTimeout(resolve, 10))
  }
  return false
}
const verbs = {
  open: ({ name, id }) => open(name, id),
  synced: ({ name }) => until(() => editors.get(name).provider.synced),
  type: ({ name, words, at }) => {
    const { text } = editors.get(name)
    text.insert(at ?? text.length, words)
  },
  text: ({ name }) => editors.get(name).text.toString(),
  shows: ({ name, part }) => until(() =>
    editors.get(name).text.toString().includes(part)),
  offline: ({ name }) => editors.get(name).provider.disconnect(),
  online: ({ name }) => editors.get(name).provider.connect(),
  others: ({ name }) => until(() =>
    [...editors.get(name).provider.awareness.getStates().values()].some(s => s.crdtmem))
    .then(() => [...editors.get(name).provider.awareness.getStates().values()]),
  wait: ({ ms }) => new Promise(resolve => setTimeout(resolve, ms)),
}
for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line)
  const result = await verbs[command.verb](command)
  console.log(JSON.stringify({ result }))
}
process.exit(0)
"""


class Browser:
    """Editors in a Node.js process; each call is one command."""

    def __init__(self, ready, label="plan", namespace=PROJECT):
        url = ready.running.base.replace("http", "ws") + f"/yjs/{namespace}"
        self.process: Any = subprocess.Popen(
            ["node", "editors.mjs", url, ready.running.control, label],
            cwd=FOLDER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.kill()
        self.process.wait()

    def __getattr__(self, verb):
        def call(name="", **of):
            line = json.dumps({"verb": verb, "name": name, **of}) + "\n"
            self.process.stdin.write(line.encode())
            self.process.stdin.flush()
            return json.loads(self.process.stdout.readline()).get("result")

        return call


@pytest.fixture(scope="session")
def editors_installed():
    FOLDER.mkdir(parents=True, exist_ok=True)
    options = ["--no-audit", "--no-fund", "--ignore-scripts", "--no-save"]
    subprocess.run(
        ["npm", "install", *options, "--prefer-offline", *PACKAGES],
        cwd=FOLDER,
        check=True,
        timeout=INSTALL_TIMEOUT_S,
        stdout=subprocess.DEVNULL,
    )
    (FOLDER / "editors.mjs").write_text(SCRIPT, encoding="utf-8")


@pytest.fixture
def memory(tmp_path):
    with crdtmem.open(tmp_path / "store.db", lane="lane", project=PROJECT) as memory:
        memory.create("plan", "one\ntwo")
        yield memory


def content(memory):
    return memory.slot("plan").read().content


def until_settled(memory, browser):
    """Wait until slot and editors hold one text; return it."""
    for _ in range(200):
        text = content(memory)
        file = f"{text}\n"
        if browser.text("ana") == file and browser.text("ben") == file:
            return text
        browser.wait(ms=50)
    raise AssertionError((content(memory), browser.text("ana"), browser.text("ben")))


@pytest.mark.node
@needs_node
@pytest.mark.requirement("serve-16")
@pytest.mark.requirement("serve-17")
def test_editors_and_a_lane_write_one_slot(tmp_path, memory, editors_installed):
    words = "👩\u200d👧 🇩🇪 漢字 é😀"

    def act(ready):
        with Browser(ready) as browser:
            browser.open("ana")
            browser.open("ben")
            assert browser.synced("ana")
            assert browser.synced("ben")
            browser.type("ana", words=f"ana {words}\n")
            assert browser.shows("ben", part=words)
            browser.type("ben", words="ben: ", at=0)
            memory.slot("plan").append(f"lane {words}")
            first = until_settled(memory, browser)
            states = browser.others("ana")
            lines: list[str] = []
            for round_ in range(ROUNDS):
                browser.offline("ana")
                browser.type("ana", words=f"offline {round_}")
                browser.type("ana", words=f"head {round_} ", at=0)
                for _ in range(2):
                    lines.append(f"lane {len(lines)}")
                    memory.slot("plan").append(lines[-1])
                browser.type("ben", words="end")
                browser.online("ana")
                assert browser.shows("ben", part=f"offline {round_}")
            return first, states, lines, until_settled(memory, browser)

    first, states, lines, last = while_serving(tmp_path, act)

    assert first.split("\n")[0] == "ben: one"
    assert set(first.split("\n")[2:]) == {f"ana {words}", f"lane {words}"}
    assert {"rev", "size", "free"} <= next(s for s in states if "crdtmem" in s)[
        "crdtmem"
    ].keys()
    found = last.split("\n")
    assert [line for line in found if line.startswith("lane ")][-len(lines) :] == lines
    assert "\ufffd" not in last
    for round_ in range(ROUNDS):
        assert last.count(f"offline {round_}") == 1
        assert last.count(f"head {round_} ") == 1


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
        with Socket(ready) as many:
            crowd = [Socket(ready, client=90_000 + n) for n in range(31)]
            extra = Socket(ready)
            closes["crowd"] = extra.close_code()
            for one in [*crowd, extra]:
                one.socket.close()
            many.sync()
        return closes, told

    closes, told = while_serving(tmp_path, act)

    assert closes == {
        "half": 4400, "unknown": 4400, "text": 4400, "small": 4400, "map": 4415,
        "nobody": 4404, "crowd": 4529,
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
