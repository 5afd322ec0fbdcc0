"""Yjs itself reads what the stores write, and the stores take what Yjs writes.

Yjs is installed from npm when a test first needs it, into a folder that git ignores.
On a machine of a developer without Node.js these tests are skipped, in CI never.
"""

import json
import os
import shutil
import subprocess
from base64 import b64decode, b64encode
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from crdtmem.doc.slot_doc import SlotDoc
from crdtmem.doc.text_form import units_of
from crdtmem.protocol.envelopes import (
    UpdateEnvelope,
    Write,
    decode_envelope,
    encode_envelope,
)
from crdtmem.protocol.records import DocKind, RecordKind, client_id
from tests.conftest import PROFILE
from tests.exchange import Record, receive
from tests.histories import History
from tests.sites import LANES, NAMESPACE, site_pool

YJS = "yjs@13.6.33"
FOLDER = Path(__file__).parents[1] / "bench" / "results" / YJS.replace("@", "-")
NODE = shutil.which("node")
INSTALL_TIMEOUT_S = 50
RUN_TIMEOUT_S = 50

HISTORIES = {"default": 30, "campaign": 2_000}[PROFILE]
EDITOR = bytes(range(16))

needs_node = pytest.mark.skipif(
    NODE is None and os.environ.get("CI_RUN") != "1", reason="Node.js is not installed"
)


class Vector(NamedTuple):
    """What a library wrote once, and meant by it.

    Attributes:
        writer: Its name and version.
        updates: In their order, each with the client id of who wrote it.
        state: The squashed state after them.

    """

    writer: str
    updates: tuple[tuple[int, str], ...]
    state: str
    text: str
    settings: dict[str, object]
    clocks: dict[int, int]


GOLDEN = [
    Vector(
        writer="pycrdt 0.14.13",
        updates=(
            (7, (
                "01020700040107636f6e74656e7413c3a920e6bca2e5ad970af09f8e8920780d0a0a28"
                "01046d6574610973697a654c696d6974017c44fa000000"
            )),
            (7, "0101070d84070b046100620a0107010b01"),
            (9, (
                "010309004407000765cc81e280a80a2801046d6574610b6465736372697074696f6e01"
                "7706c3a9f09f8e892801046d6574610670696e6e656401780107010005"
            )),
        ),
        state=(
            "020309004407000765cc81e280a80a2801046d6574610b6465736372697074696f6e017706"
            "c3a9f09f8e892801046d6574610670696e6e65640178050700010107636f6e74656e740584"
            "070408f09f8e8920780d0a81070a012801046d6574610973697a654c696d6974017c44fa00"
            "0084070b046100620a01070200050b01"
        ),
        text="e\u0301\u2028\n🎉 x\r\na\x00b\n",
        settings={"sizeLimit": 2000, "description": "é🎉", "pinned": True},
        clocks={7: 17, 9: 6},
    ),
    # Here the two clients wrote at the same time.
    Vector(
        writer="yjs 13.6.33",
        updates=(
            (7, "01010700040107636f6e74656e7412c3a920e6bca2e5ad970af09f8e8920780d0a00"),
            (7, "0101070b2801046d6574610973697a654c696d6974017d901f00"),
            (7, "0101070c84070a046100620a00"),
            (9, "0101090084070a0765cc81e280a80a00"),
            (9, (
                "010209042801046d6574610b6465736372697074696f6e017706c3a9f09f8e89280104"
                "6d6574610670696e6e656401780107010005"
            )),
        ),
        state=(
            "0203090084070a0765cc81e280a80a2801046d6574610b6465736372697074696f6e017706"
            "c3a9f09f8e892801046d6574610670696e6e65640178040700010107636f6e74656e740584"
            "070408f09f8e8920780d0a2801046d6574610973697a654c696d6974017d901f84070a0461"
            "00620a0107010005"
        ),
        text="🎉 x\r\na\x00b\ne\u0301\u2028\n",
        settings={"sizeLimit": 2000, "description": "é🎉", "pinned": True},
        clocks={7: 16, 9: 6},
    ),
]  # fmt: skip

SCRIPT = """
import * as Y from 'yjs'
import { readFileSync } from 'node:fs'

// Documents in, as updates in their order; what Yjs makes of them out.
const bytes = text => new Uint8Array(Buffer.from(text, 'base64'))
const text = bytes => Buffer.from(bytes).toString('base64')
const documents = JSON.parse(readFileSync(0, 'utf8'))
const results = documents.map(({ updates, clientId, add }) => {
  const doc = new Y.Doc()
  for (const update of updates) Y.applyUpdate(doc, bytes(update))
  const content = doc.getText('content')
  const result = {
    text: content.toString(),
    settings: doc.getMap('meta').toJSON(),
    clocks: Object.fromEntries(Y.decodeStateVector(Y.encodeStateVector(doc))),
    isPending: Boolean(doc.store.pendingStructs || doc.store.pendingDs),
    state: text(Y.encodeStateAsUpdate(doc)),
  }
  if (add !== undefined) {
    doc.clientID = clientId
    doc.on('update', update => { result.update = text(update) })
    content.insert(content.length, add)
  }
  return result
})
console.log(JSON.stringify(results))
"""


@pytest.fixture(scope="module")
def yjs():
    """Return a function that hands documents to Yjs, all in one process."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    # A second, where it is there already.
    options = ["--no-audit", "--no-fund", "--ignore-scripts", "--no-save"]
    subprocess.run(
        ["npm", "install", *options, "--prefer-offline", YJS],
        cwd=FOLDER,
        check=True,
        timeout=INSTALL_TIMEOUT_S,
    )
    script = FOLDER / "apply.mjs"
    script.write_text(SCRIPT, encoding="utf-8")

    def run(documents):
        done = subprocess.run(
            ["node", script.name],
            cwd=FOLDER,
            input=json.dumps(documents).encode(),
            stdout=subprocess.PIPE,
            check=True,
            timeout=RUN_TIMEOUT_S,
        )
        return json.loads(done.stdout)

    return run


@pytest.fixture(scope="module")
def sites():
    with site_pool(3) as found:
        yield found


def updates_in(posts, label):
    """Return the updates of a slot in some records, for JSON."""
    found = []
    for post in posts:
        envelope = decode_envelope(RecordKind.UPDATE, post.record.envelope)
        assert isinstance(envelope, UpdateEnvelope)
        if envelope.name == label:
            found += [b64encode(write.update).decode() for write in envelope.writes]
    return found


def settled_history(sites, seed):
    history = History(sites, Random(seed))
    history.run(15)
    history.exchange_all()
    return history


def as_yjs_has_it(look):
    return {
        "text": look.file,
        "settings": dict(look.settings),
        "clocks": {str(client): clock for client, clock in look.clocks.items()},
        "isPending": False,
    }


@pytest.mark.parametrize("vector", GOLDEN, ids=lambda vector: vector.writer)
def test_golden_updates_still_mean_what_they_meant(vector):
    document = SlotDoc(1)
    for client, update in vector.updates:
        document.apply(bytes.fromhex(update), client)

    for found in (document, SlotDoc.load(1, bytes.fromhex(vector.state))):
        assert found.file == vector.text
        assert (found.meta, found.clocks) == (vector.settings, vector.clocks)


@pytest.mark.node
@needs_node
def test_golden_updates_mean_the_same_to_yjs(yjs):
    documents, expected = [], []
    for vector in GOLDEN:
        log = [update for _, update in vector.updates]
        documents += [{"updates": in_base64(log)}]
        documents += [{"updates": in_base64([vector.state])}]
        clocks = {str(client): clock for client, clock in vector.clocks.items()}
        known = {"text": vector.text, "settings": vector.settings}
        expected += [known | {"clocks": clocks, "isPending": False}] * 2

    found = yjs(documents)

    for document in found:
        del document["state"]
    assert found == expected


def in_base64(updates):
    return [b64encode(bytes.fromhex(update)).decode() for update in updates]


@pytest.mark.node
@needs_node
@pytest.mark.requirement("P6")
def test_yjs_makes_the_same_of_each_stores_log_and_of_its_squashed_state(sites, yjs):
    documents, expected = [], []
    for seed in range(HISTORIES):
        history = settled_history(sites, seed)
        for site in [site for site in history.sites if site.row("s")]:
            look = site.look("s")
            log = updates_in(history.traffic.arrived[site.replica], "s")
            site.squash_all("s")
            state = b64encode(site.look("s").state).decode()
            documents += [{"updates": log}, {"updates": [state]}]
            expected += [as_yjs_has_it(look)] * 2

    found = yjs(documents)

    states = [b64decode(document.pop("state")) for document in found]
    assert found == expected
    # And back: what Yjs squashes is a state that a store can load.
    for squashed, look in zip(states, expected, strict=True):
        document = SlotDoc.load(1, squashed)
        assert (document.file, document.meta) == (look["text"], look["settings"])


@pytest.mark.node
@needs_node
def test_whole_lines_that_yjs_writes_at_the_end_are_taken(sites, yjs):
    added = "§é 漢字 🎉\u2028§\nx\x00y\r\n"
    for seed in range(3):
        history = settled_history(sites, seed)
        site = history.sites[0]
        before = site.look("s")
        log = updates_in(history.traffic.arrived[site.replica], "s")
        editor = client_id(EDITOR, 0)
        (found,) = yjs([{"updates": log, "clientId": editor, "add": added}])
        record = record_of(b64decode(found["update"]))

        assert receive(site.handles[LANES[0]].store, NAMESPACE, [record]) == 1

        after = site.look("s")
        assert site.quarantined() == []
        assert after.file == before.file + added
        assert [run.lane for run in after.runs][-1] == "editor"
        assert after.clocks == {**before.clocks, editor: units_of(added)}


def record_of(update):
    write = Write(
        is_genesis=False, counter=0, lane="editor", at_ms=5, op="append", update=update
    )
    envelope = encode_envelope(UpdateEnvelope(DocKind.SLOT, "s", (write,)))
    return Record(EDITOR, 1, envelope, origin=0)
