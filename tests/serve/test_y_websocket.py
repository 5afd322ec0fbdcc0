"""y-websocket, versions 3 and 4, at two servers of one store, beside lanes and kills.

Both are installed from npm when a test first needs them, into a folder that git
ignores; see ``tests.test_interop``. Version 4 is that of yjs 14, which has no
``getText``: there the text is ``doc.get('content')``.
"""

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest

import crdtmem
from crdtmem.store.slots import unfolded_places
from tests.conftest import PROFILE
from tests.scratch import scratch
from tests.serve.desk import PATIENCE_S, PROJECT, WRITE, token_file

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "bench" / "results" / "y-websocket"
PACKAGES = [
    "y-websocket@3.1.0", "yjs@13.6.33", "ws@8.18.3",
    "@y/websocket@4.0.0-3", "@y/y@14.0.0-rc.7",
]  # fmt: skip
NODE = shutil.which("node")
INSTALL_TIMEOUT_S = 50
ROUNDS = {"default": 1, "campaign": 40}[PROFILE]
TYPED = {"default": 5, "campaign": 25}[PROFILE]
LOOKS = 800
FIRST_MARK = 0x20000
WORDS = ["👩\u200d👧", "🇩🇪🇫🇷", "漢字", "é😀", "plain ", "x\n", "👍🏽", "e\u0301"]

SCRIPT = """
import { createInterface } from 'node:readline'
import WebSocket from 'ws'

// Commands in, one a line; what came of each out.
const [token] = process.argv.slice(2)
const editors = new Map()
const [Y3, Y4, P3, P4] = await Promise.all(
  ['yjs', '@y/y', 'y-websocket', '@y/websocket'].map(name => import(name)))
const open = ({ name, url, version }) => {
  const doc = new (version === 4 ? Y4 : Y3).Doc()
  const provider = new (version === 4 ? P4 : P3).WebsocketProvider(url, 'plan', doc, {
    WebSocketPolyfill: WebSocket, disableBc: true, maxBackoffTime: 200,
    protocols: ['crdtmem.yjs', 'crdtmem.token.' + token],
  })
  const text = version === 4 ? doc.get('content') : doc.getText('content')
  editors.set(name, { doc, provider, text })
}
const until = async good => {
  for (let i = 0; i < 2000 && !good(); i++) {
    await new Promise(resolve => setTimeout(resolve, 10))
  }
  return good()
}
const shown = text => text.toString({ forceTag: false })
const verbs = {
  open,
  synced: ({ name }) => until(() => editors.get(name).provider.synced),
  type: ({ name, words, line, at }) => {
    // Somewhere in a line that no lane has appended, between two characters, of which
    // the second one goes, unless some piece begins with it.
    const { text } = editors.get(name)
    const lines = shown(text).split('\\n')
    const free = [...lines.keys()].filter(n => !lines[n].startsWith('lane '))
    const n = free[Math.floor(line * free.length)]
    const before = lines.slice(0, n).map(line => line + '\\n').join('')
    const chars = [...lines[n]]
    const head = chars.slice(0, Math.floor(at * (chars.length + 1)))
    const place = before.length + head.join('').length
    const next = chars[head.length] ?? '\\u{20000}'
    if (!/[\\u{20000}-\\u{2ffff}]/u.test(next)) text.delete(place, next.length)
    text.insert(place, words)
  },
  texts: () => [...editors.values()].map(editor => shown(editor.text)),
  offline: ({ name }) => editors.get(name).provider.disconnect(),
  online: ({ name }) => editors.get(name).provider.connect(),
  states: ({ name }) => until(() =>
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


class Node:
    """Editors in a Node.js process; each call is one command."""

    def __init__(self):
        self.process: Any = subprocess.Popen(
            ["node", "editors.mjs", WRITE],
            cwd=FOLDER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
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


class Server:
    """``crdtmem serve`` in a process of its own, on a port that stays."""

    def __init__(self, folder):
        self.folder = folder
        self.port = 0
        self.start()

    def start(self):
        words = ["serve", "--another", "--json", "--port", str(self.port)]
        self.process = subprocess.Popen(
            [*COMMAND, *words, "--token-file", str(self.folder / "tokens"),
             *where(self.folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=self.folder,
            env=environment(self.folder),
        )  # fmt: skip
        assert self.process.stdout is not None
        self.base = json.loads(self.process.stdout.readline())["base"]
        self.port = int(self.base.rpartition(":")[2])
        self.url = self.base.replace("http", "ws") + f"/yjs/{PROJECT}"

    def kill(self):
        self.process.kill()
        self.close()

    def close(self):
        self.process.terminate()
        self.process.communicate(timeout=PATIENCE_S)

    def append(self, text):
        request = urllib.request.Request(
            f"{self.base}/api/v1/projects/{PROJECT}/slots/plan/append",
            data=json.dumps({"text": text}).encode(),
            headers={
                "Authorization": f"Bearer {WRITE}",
                "Content-Type": "application/json",
            },
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            assert answer.status == 200


COMMAND = [sys.executable, "-m", "crdtmem"]


def where(folder):
    return ["--store", str(folder / "store.db"), "--project", PROJECT]


def environment(folder):
    # What other tests cover is not measured again here.
    kept = {k: v for k, v in os.environ.items() if not k.startswith("COVERAGE")}
    return {**kept, "PYTHONPATH": str(ROOT), "HOME": str(folder)}


def append_by_command(folder, text):
    subprocess.run(
        [*COMMAND, "append", "plan", text, "--lane", "cli", "-q", *where(folder)],
        check=True,
        timeout=PATIENCE_S,
        cwd=folder,
        env=environment(folder),
    )


@pytest.fixture(scope="module")
def installed():
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "editors.mjs").write_text(SCRIPT, encoding="utf-8")
    if all((FOLDER / "node_modules" / one[: one.rindex("@")]).exists()
           for one in PACKAGES):  # fmt: skip
        return
    options = ["--no-audit", "--no-fund", "--ignore-scripts", "--no-save"]
    subprocess.run(
        ["npm", "install", *options, "--prefer-offline", *PACKAGES],
        cwd=FOLDER,
        check=True,
        timeout=INSTALL_TIMEOUT_S,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


class Desk:
    """Two servers, three editors and a lane at one slot.

    Each piece that an editor types begins with a character of its own.
    """

    def __init__(self, folder, memory, node, servers, random):
        self.folder, self.memory, self.node = folder, memory, node
        self.servers, self.random = servers, random
        self.typed = 0
        self.lines = 0
        memory.create("plan", "one 😀\ntwo", size_limit=200_000)
        for name, (server, version) in EDITORS.items():
            node.open(name, url=servers[server].url, version=version)
        assert all(node.synced(name) for name in EDITORS)

    def type(self, name):
        words = chr(FIRST_MARK + self.typed) + self.random.choice(WORDS)
        self.typed += 1
        line, at = self.random.random(), self.random.random()
        self.node.type(name, words=words, line=line, at=at)

    def append(self):
        text = f"lane {self.lines} 漢😀"
        self.lines += 1
        self.memory.slot("plan").append(text)

    def mix(self):
        for _ in range(TYPED):
            for name in EDITORS:
                self.type(name)
            self.append()

    def settle(self):
        """Wait until the slot and all editors hold one text; return it."""
        for _ in range(LOOKS):
            text = self.memory.slot("plan").read().content
            with self.memory.store.reading() as connection:
                is_folded = not unfolded_places(connection, 1 << 50)
            if is_folded and set(self.node.texts()) == {f"{text}\n"}:
                return text
            self.node.wait(ms=50)
        raise AssertionError((text, self.node.texts()))

    def check(self):
        """Everything is there once: each piece typed, each appended line, whole."""
        text = self.settle()
        counts = [text.count(chr(FIRST_MARK + mark)) for mark in range(self.typed)]
        assert counts == [1] * self.typed
        assert "\ufffd" not in text
        lines = [line for line in text.split("\n") if line.startswith("lane ")]
        assert lines == [f"lane {n} 漢😀" for n in range(self.lines)]


EDITORS = {"ana": (0, 3), "ben": (1, 3), "cara": (0, 4)}


@pytest.mark.node
@pytest.mark.skipif(
    NODE is None and os.environ.get("CI_RUN") != "1", reason="Node.js is not installed"
)
@pytest.mark.requirement("serve-16")
@pytest.mark.requirement("serve-17")
@pytest.mark.requirement("serve-18")
@pytest.mark.requirement("serve-24")
@pytest.mark.usefixtures("installed")
def test_editors_of_two_servers_and_lanes_write_one_slot_through_kills_and_offline():
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        token_file(folder)
        memory = stack.enter_context(
            crdtmem.open(folder / "store.db", lane="lane", project=PROJECT)
        )
        servers = [Server(folder) for _ in range(2)]
        for server in servers:
            stack.callback(server.close)
        node = stack.enter_context(Node())
        desk = Desk(folder, memory, node, servers, Random(7))
        for number in range(ROUNDS):
            desk.mix()
            servers[number % 2].kill()
            desk.mix()
            servers[number % 2].start()
            node.offline("ana")
            desk.mix()
            append_by_command(folder, f"lane {desk.lines} 漢😀")
            desk.lines += 1
            servers[0].append(f"lane {desk.lines} 漢😀")
            desk.lines += 1
            node.online("ana")
            desk.check()
        states = node.states("cara")

        assert memory.doctor().ok
        shown = next(state["crdtmem"] for state in states if "crdtmem" in state)
        assert {"rev", "size", "free", "sizeLimit"} <= shown.keys()
        lanes = {line.lane for line in memory.slot("plan").blame()}
        assert {"lane", "cli", "wim"} <= lanes
