"""Machines, a relay, bad wires, crashes and restores: what holds in every order."""

from collections import Counter

import pytest

from tests.conftest import PROFILE
from tests.scratch import scratch
from tests.seeds import run_seeds
from tests.simulator import WEIGHTS, run_world

SEEDS = {"default": 2_000, "campaign": 20_000}[PROFILE]
# A test that takes a minute is taken for one that hangs.
PER_TEST = 100
# The last two go on for long enough that snapshots come and payloads go.
SOME_SEEDS = [*range(30), 41, 54]
KINDS = {"update from 0", "update from 1", "snapshot from 0", "snapshot from 1"}
KINDS |= {"dropped"}
SEALED_SEEDS = {"default": 0, "campaign": 4_000}[PROFILE]
SOME_SEALED_SEEDS = [2, 3, 4, 5, 8]
SEALED_KINDS = {"rotate", "learn_keys", "key_notice from 1", "receipt from 1"}


@pytest.mark.requirement("sync-simulator")
@pytest.mark.requirement("P1", "P2", "P6", "P8", "P10")
def test_machines_converge_and_lose_nothing_whatever_happens_to_them():
    done: Counter[str] = Counter()
    for seed in SOME_SEEDS:
        with scratch() as folder:
            done += run_world(seed, folder).done

    assert {what for what, times in done.items() if times} == {*WEIGHTS, *KINDS}


@pytest.mark.requirement("sealed-4")
def test_machines_of_an_encrypted_namespace_lose_nothing_whatever_happens_to_them():
    done: Counter[str] = Counter()
    for seed in SOME_SEALED_SEEDS:
        with scratch() as folder:
            done += run_world(seed, folder, is_encrypted=True).done

    assert done.keys() >= SEALED_KINDS


@pytest.mark.requirement("sync-simulator", "sealed-4")
@pytest.mark.requirement("P1", "P6", "P10")
@pytest.mark.parametrize(
    ("experiment", "first"),
    [
        *(("run_worlds", first) for first in range(0, SEEDS, PER_TEST)),
        *(("run_encrypted_worlds", n) for n in range(0, SEALED_SEEDS, PER_TEST)),
    ],
)
def test_thousands_of_machines_converge_and_lose_nothing(experiment, first):
    last = first + PER_TEST
    assert run_seeds(f"tests.simulator:{experiment}", first, last) == []
