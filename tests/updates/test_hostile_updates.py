"""Updates that were made to do harm, and updates that were damaged at random."""

import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, strategies as st
from pycrdt import Doc, Map, Text

from crdtmem.errors import UpdateRejectedError
from crdtmem.updates import read_state_vector, scan
from tests.apply_updates import Case, judge
from tests.yjs_bytes import number, struct, text, uint, update, value

ROOT = Path(__file__).parents[2]

# Damaged updates for each seed: 2,100 in the default run, 210,000 in the campaign.
DAMAGED_PER_SEED = 700

# Client 10 has written a document; client 20 attacks with ids of its own.
BASE = "a🎉b\nline\n"
UNITS = 10
STATE = {10: UNITS + 1}
END = (10, UNITS - 1)
NESTED = b"\x75\x01" * 30_000 + b"\x7e"
PINNED = {"root": "meta", "key": "pinned"}

ATTACKS = {
    # Each of these was let through by a first draft of the rules or did harm to
    # pycrdt 0.14.13: killed it, erased or hid text, or split two replicas.
    "nested value of 60 KB": (
        [value(NESTED, **PINNED)],
        "update-content",
    ),
    "gc block for the attacker's clock": ([struct(0, uint(5))], "update-content"),
    "gc block of length 0": ([struct(0, uint(0))], "update-content"),
    "gc block with an origin flag": ([struct(0x80, uint(3))], "update-content"),
    "skip": ([struct(10, uint(5)), text("x", origin=END)], "update-content"),
    "origin of an unknown client": ([text("x\n", origin=(99, 5))], "update-origin"),
    "origin in the future": ([text("x\n", origin=(10, 500))], "update-origin"),
    "right origin in the future": (
        [text("x\n", origin=END, right=(10, 900))],
        "update-origin",
    ),
    "origin is itself": ([text("x\n", origin=(20, 0))], "update-origin"),
    "origin later in the update": (
        [text("x\n", origin=(20, 5)), text("yyyy\n", origin=END)],
        "update-origin",
    ),
    "parent is a text struct": ([text("x\n", parent=(10, 0))], "update-root"),
    "parent is a map item": (
        [value(number(1), parent=(10, UNITS), key="k")],
        "update-root",
    ),
    "values in the text by origin": (
        [value(number(1) * 3, count=3, origin=(10, 0))],
        "update-content",
    ),
    "values in the text by root": (
        [value(number(1) * 3, count=3, root="content")],
        "update-content",
    ),
    "text under a key by origin": (
        [text("xy", origin=(10, UNITS), is_keyed=True)],
        "update-content",
    ),
    "value under a key by origin without the flag": (
        [value(number(9), origin=(10, UNITS))],
        "update-content",
    ),
    "text under a key": ([text("xy", **PINNED)], "update-content"),
    "value under a key of the text": (
        [value(number(1), root="content", key="k")],
        "update-root",
    ),
    "list item in the map": ([value(number(1), root="meta")], "update-content"),
    "three values under a key": (
        [value(number(1) * 3, count=3, **PINNED)],
        "update-content",
    ),
    "no value under a key": ([value(b"", count=0, **PINNED)], "update-content"),
    "undefined": ([value(b"\x7f", **PINNED)], "update-content"),
    "bigint": ([value(b"\x7a" + b"\x7f" * 8, **PINNED)], "update-content"),
    "not a number": (
        [value(b"\x7b\x7f\xf8" + b"\0" * 6, root="meta", key="sizeLimit")],
        "update-content",
    ),
    "bytes": ([value(b"\x74\x02ab", **PINNED)], "update-content"),
    "huge array": ([value(b"\x75" + uint(2**32 - 1), **PINNED)], "update-content"),
    "empty text": ([text("", origin=END)], "update-malformed"),
    "deleted text": ([struct(1, uint(3), origin=END)], "update-content"),
    "deleted text of length 0": ([struct(1, uint(0), origin=END)], "update-content"),
    "no structs": ([], "update-malformed"),
    "surrogate half": ([text(b"\xed\xa0\xbd", origin=END)], "update-text"),
    "text in the map without a key": ([text("x", root="meta")], "update-root"),
    "empty key": ([value(number(1), root="meta", key="")], "update-content"),
    "huge text": (
        [struct(4, uint(2**40), root="content")],
        "update-malformed",
    ),
    "wrong type under a known key": ([value(number(1), **PINNED)], "update-content"),
}

WHOLE_ATTACKS = {
    "deletes future text": (update(deletes=[(10, [(11, 1000)])]), "update-delete"),
    "deletes ranges of length 0": (
        update(deletes=[(10, [(0, 0)])]),
        "update-malformed",
    ),
    "gc block for another's next clock": (
        update((10, UNITS + 1, [struct(0, uint(50))])),
        "update-client",
    ),
    "one client twice": (
        update((20, 0, [text("x\n", origin=END)]), (20, 2, [text("y\n", origin=END)])),
        "update-client",
    ),
    "last clock": (update((20, 2**31 - 1, [text("x", origin=END)])), "update-clock"),
    "longest id": (update((2**53 - 1, 0, [text("x", origin=END)])), "update-client"),
    "id of 61 bits": (update((2**60, 0, [text("x", origin=END)])), "update-clock"),
    "trailing byte": (update() + b"\0", "update-malformed"),
    "huge struct count": (
        uint(1) + uint(2**40) + uint(20) + uint(0),
        "update-malformed",
    ),
    "huge delete count": (uint(0) + uint(2**40), "update-malformed"),
}

# The scanner does not know what stands where in the text.
UNSEEN = {
    "deletes half an emoji": update(deletes=[(10, [(1, 1)])]),
    "origin inside an emoji": update(
        (20, 0, [text("x", origin=(10, 1), right=(10, 2))])
    ),
    "right origin inside an emoji": update((20, 0, [text("x", right=(10, 2))])),
    "right origin left of the origin": update(
        (20, 0, [text("x", origin=(10, 6), right=(10, 2))])
    ),
    "right origin in the map": update(
        (20, 0, [text("x", origin=(10, 2), right=(10, UNITS))])
    ),
    "value in the text": update((20, 0, [value(b"\x78", origin=END, is_keyed=True)])),
}

HARMLESS = {
    "deletes a range twice": update(deletes=[(10, [(0, 1), (0, 1), (3, 2)])]),
    "deletes text and values in one range": update(deletes=[(10, [(0, UNITS + 1)])]),
}


@dataclass(frozen=True, slots=True)
class Specimen:
    """An honest update, to be damaged, and where it belongs."""

    data: bytes
    before: tuple[bytes, ...]
    other: bytes
    state: dict[int, int]
    is_snapshot: bool


def scan_write(data):
    return scan(data, client_ids=frozenset({20}), state=STATE, snapshot=False)


@pytest.mark.requirement("testing-F15", "P8")
@pytest.mark.parametrize("name", ATTACKS)
def test_a_hostile_write_is_refused(name):
    structs, code = ATTACKS[name]

    with pytest.raises(UpdateRejectedError) as caught:
        scan_write(update((20, 0, structs)))

    assert caught.value.code == code


@pytest.mark.parametrize("name", WHOLE_ATTACKS)
def test_a_hostile_update_is_refused(name):
    data, code = WHOLE_ATTACKS[name]

    with pytest.raises(UpdateRejectedError) as caught:
        scan_write(data)

    assert caught.value.code == code


def write_specimen(edit):
    """Let client 20 make one edit of a document of both, while 10 appends a line."""
    writer: Doc[Any] = Doc(client_id=20)
    other: Doc[Any] = Doc(client_id=10)
    content, meta = other.get("content", type=Text), other.get("meta", type=Map)
    content += BASE + "third é€ line\nfourth\n"
    meta["sizeLimit"] = 2000
    writer.apply_update(other.get_update())
    own, own_meta = writer.get("content", type=Text), writer.get("meta", type=Map)
    own.insert(len("a🎉b\n".encode()), "mine\n")
    own_meta["description"] = "words"
    before, base = writer.get_update(), read_state_vector(writer.get_state())
    other.apply_update(before)
    state_vector = other.get_state()
    content += "next\n"
    with writer.transaction():
        edit(own, own_meta)
    return Specimen(
        data=writer.get_update(state_vector),
        before=(before,),
        other=other.get_update(state_vector),
        state=base,
        is_snapshot=False,
    )


def append(own, meta):
    own.insert(len(own), "more 🎉\n")
    meta["description"] = "other words"


def rewrite(own, meta):
    del own[len("a🎉b\n".encode()) : len("a🎉b\nmine\n".encode())]
    own.insert(len("a🎉b\n".encode()), "ours\n")
    own.insert(0, "top\n")


def clear(own, meta):
    own.clear()
    meta["deleted"] = True
    meta["sizeLimit"] = 3000


def specimens():
    writes = [write_specimen(edit) for edit in (append, rewrite, clear)]
    snapshots = []
    for write in writes:
        doc: Doc[Any] = Doc()
        for data in (*write.before, write.other, write.data):
            doc.apply_update(data)
        whole = doc.get_update()
        snapshots.append(Specimen(whole, (), b"", {}, is_snapshot=True))
    return writes + snapshots


SPECIMENS = specimens()
TELLING_BYTES = bytes.fromhex("000102030408090a0b14 20212840447f8081848590a0a8c4ff")


def damage(random, data):
    """Change, take out or put in one to three short pieces."""
    damaged = data
    while damaged == data:
        for _ in range(random.randint(1, 3)):
            at = random.randrange(len(damaged))
            source = random.randrange(len(damaged))
            piece = random.choice(
                [
                    b"",
                    bytes([random.randrange(256)]),
                    bytes([random.choice(TELLING_BYTES)]),
                    bytes([damaged[at] + random.choice([1, -1]) & 0xFF]),
                    damaged[source : source + random.randint(1, 8)],
                ]
            )
            rest = damaged[at + random.choice([0, 1, len(piece)]) :]
            damaged = damaged[:at] + piece + rest
    return damaged


def accept(specimen, data):
    """Return the damaged update as a case, or None where the scanner refuses it."""
    try:
        found = scan(
            data,
            client_ids=None if specimen.is_snapshot else frozenset({20}),
            state=specimen.state,
            snapshot=specimen.is_snapshot,
        )
    except UpdateRejectedError:
        return None
    state = dict(specimen.state)
    if specimen.other:
        (client, (_, end)), *_ = scan(
            specimen.other, client_ids=None, state=state, snapshot=False
        ).clients.items()
        state[client] = end
    for client, (_, end) in found.clients.items():
        state[client] = max(end, state.get(client, 0))
    return Case(
        before=tuple(data.hex() for data in specimen.before),
        update=data.hex(),
        other=specimen.other.hex(),
        token="next\n" if specimen.other else "",
        state=tuple(state.items()),
    )


def judge_in_child(cases):
    """Return the outcome of each case, and how the child ended."""
    child = subprocess.run(
        [sys.executable, "-m", "tests.apply_updates"],
        input="".join(case.to_line() for case in cases),
        stdout=subprocess.PIPE,
        cwd=ROOT,
        encoding="utf-8",
        check=False,
    )
    return child.stdout.split(), child.returncode


def attack(data):
    """Return an unscanned update of client 20 as a case; client 10 appends a line."""
    base = update(
        (
            10,
            0,
            [
                text(BASE, root="content"),
                value(number(7), root="meta", key="sizeLimit"),
            ],
        )
    )
    other = update((10, UNITS + 1, [text("next\n", origin=END)]))
    return Specimen(data, (base,), other, STATE, is_snapshot=False)


@pytest.mark.parametrize("name", UNSEEN)
def test_what_no_scanner_sees_is_found_after_applying(name):
    case = accept(attack(b""), UNSEEN[name])

    assert judge(case) == "unsound"


@pytest.mark.parametrize("name", HARMLESS)
def test_a_strange_update_that_does_no_harm_is_accepted(name):
    case = accept(attack(b""), HARMLESS[name])

    assert judge(case) == "same"


def test_the_judge_finds_every_kind_of_harm():
    honest = accept(attack(b""), update((20, 0, [text("mine\n", origin=END)])))
    forked = update((20, 0, [text("ours\n", origin=END)])).hex()
    state = ((10, UNITS + 1), (20, 5))

    assert judge(honest) == "same"
    assert judge(replace(honest, token="absent")) == "lost"
    assert judge(replace(honest, update="ff")) == "raised"
    assert judge(replace(honest, state=())) == "unsound"
    assert judge(replace(honest, other=forked, state=state)) == "diverged"


@pytest.mark.process
def test_an_update_that_kills_pycrdt_kills_only_the_child():
    honest = accept(attack(b""), update((20, 0, [text("mine\n", origin=END)])))
    deadly = replace(honest, update=update((20, 0, [value(NESTED, **PINNED)])).hex())

    answers, status = judge_in_child([honest, deadly, honest])

    assert answers == ["same"]
    assert status != 0


@pytest.mark.process
def test_a_damaged_update_is_refused_or_does_no_harm(seeds):
    cases = []
    for seed in seeds:
        random = Random(seed)
        for _ in range(DAMAGED_PER_SEED):
            specimen = random.choice(SPECIMENS)
            case = accept(specimen, damage(random, specimen.data))
            cases += [case] if case else []

    answers, status = judge_in_child(cases)

    assert len(cases) > 0
    assert status == 0, cases[len(answers)]
    assert [
        (answer, case)
        for answer, case in zip(answers, cases, strict=True)
        if answer not in {"same", "unsound"}
    ] == []


@given(st.binary(), st.booleans())
def test_any_bytes_are_refused_or_read_in_full(data, is_snapshot):
    specimen = Specimen(data, (), b"", STATE, is_snapshot)
    case = accept(specimen, data)

    assert case is None or case.update == data.hex()


@given(
    st.sampled_from(SPECIMENS),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_changed_bytes_end_in_a_refusal_or_in_a_scan(specimen, changes):
    data = bytearray(specimen.data)
    for place, byte in changes:
        data[round(place * (len(data) - 1))] = byte

    case = accept(specimen, bytes(data))

    assert case is None or case.update == data.hex()


@pytest.mark.parametrize("specimen", SPECIMENS)
def test_an_honest_update_is_accepted_and_does_no_harm(specimen):
    assert judge(accept(specimen, specimen.data)) == "same"
