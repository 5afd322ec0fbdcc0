"""Stores that saw the same records are equal, whatever was done and in which order."""

from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from crdtmem.protocol.envelopes import (
    UpdateEnvelope,
    decode_envelope,
    encode_envelope,
)
from crdtmem.protocol.records import RecordKind
from tests.conftest import PROFILE
from tests.exchange import outgoing
from tests.histories import History
from tests.seeds import run_seeds
from tests.sites import LANES, NAMESPACE, site_pool

HISTORIES = {"default": 400, "campaign": 20_000}[PROFILE]
# A test that takes a minute is taken for one that hangs.
PER_TEST = 200


@pytest.fixture(scope="module")
def sites():
    with site_pool(3) as found:
        yield found
        assert all(site.handles[LANES[0]].doctor().ok for site in found)


@contextmanager
def told(history, seed=None):
    """Let an error say what was done."""
    try:
        yield
    except AssertionError as exc:
        exc.add_note("\n".join([f"seed {seed}", *history.trace]))
        raise


def run_histories(sites, first, last):
    done: Counter[str] = Counter()
    for seed in range(first, last):
        random = Random(seed)
        history = History(sites, random)
        with told(history, seed):
            history.run(random.randint(5, 25))
            history.settle()
        done += history.done
    return done


def histories(first, last):
    """Run histories on stores of their own; the experiment of `tests.seeds`."""
    with site_pool(3) as sites:
        run_histories(sites, first, last)
        assert all(site.handles[LANES[0]].doctor().ok for site in sites)


@pytest.mark.requirement("slots-C17")
@pytest.mark.requirement("P2", "P3", "P6")
def test_random_histories_converge_and_keep_every_append(sites):
    done = run_histories(sites, 0, 60)
    histories(60, 62)

    assert {"append", "create", "replace"} <= set(done)


@pytest.mark.requirement("P6")
@pytest.mark.parametrize("first", range(0, HISTORIES, PER_TEST))
def test_hundreds_of_random_histories_converge(first):
    experiment = "tests.test_convergence:histories"

    assert run_seeds(experiment, first, first + PER_TEST) == []


@pytest.mark.requirement("P6")
@given(random=st.randoms(use_true_random=False), steps=st.integers(1, 25))
@settings(max_examples=30 if PROFILE == "default" else 2_000)
def test_any_history_converges(sites, random, steps):
    history = History(sites, random)
    with told(history):
        history.run(steps)
        history.settle()


@pytest.mark.requirement("P2")
def test_concurrent_appends_stay_together_line_by_line(sites):
    for seed in range(HISTORIES // 20):
        random = Random(seed)
        history = History(sites, random)
        start = random.choice(["", "a", "a\n"])
        history.create(history.sites[0], "s", LANES[0], start)
        history.exchange_all()
        blocks = []
        for _ in range(random.randint(2, 12)):
            site, lane = random.choice(history.sites), random.choice(LANES)
            form = random.choice(["{}", "{}\n", "\n{}", "{}\n{}", "{}\n{}\n{}"])
            blocks.append(history.append_markers(site, "s", lane, form))
            if random.random() < 0.3:
                history.deliver(random.choice(history.sites), lane, 3)
        history.exchange_all()
        file = history.sites[0].file("s")
        history.settle()

        for lines in blocks:
            block = "".join(f"{line}\n" for line in lines)
            assert f"\n{file}".count(f"\n{block}") == 1, (seed, file)


@pytest.mark.requirement("P6")
def test_long_histories_squash_on_their_own_and_converge_all_the_same(sites):
    for seed in range(HISTORIES // 250):
        history = History(sites, Random(seed))
        for site in history.sites:
            site.handles[LANES[0]].configure(history_keep=3)
        for _ in range(200):
            history.step()
            # What has been squashed can no longer be sent.
            for site in history.sites:
                history.traffic.collect(site)
        records = sum(len(outgoing(site.store, NAMESPACE)) for site in history.sites)
        made = len(history.traffic.posts)
        history.settle()

        assert records < made * len(history.sites)


def test_a_record_that_is_changed_on_its_way_is_found(sites):
    history = settled(sites)
    first, second = history.sites
    history.append_markers(first, "s", LANES[0], "{}")
    (post,) = history.traffic.batch_for(second, Random(0), 9)
    envelope = decode_envelope(RecordKind.UPDATE, post.record.envelope)
    assert isinstance(envelope, UpdateEnvelope)
    (write,) = envelope.writes
    forged = replace(envelope, writes=(replace(write, lane="mallory"),))
    record = replace(post.record, envelope=encode_envelope(forged))
    history.traffic.deliver(second, LANES[0], [replace(post, record=record)])

    with pytest.raises(AssertionError, match="the stores differ"), told(history):
        history.settle()


def test_a_marker_that_a_write_glues_to_another_is_found(sites):
    history = settled(sites)
    slot = history.sites[0].handles[LANES[0]].slot("s")
    slot.replace("".join(history.untouched))
    history.traffic.note_write(history.sites[0])

    with pytest.raises(AssertionError, match="is glued or torn"):
        history.settle()


def test_a_marker_that_a_write_takes_away_is_found(sites):
    history = settled(sites)
    history.sites[0].handles[LANES[0]].slot("s").replace("")
    history.traffic.note_write(history.sites[0])

    with pytest.raises(AssertionError, match="stands 0 times"):
        history.settle()


def settled(sites):
    """Return a history of two stores with two markers."""
    history = History(sites[:2], Random(1))
    site = history.sites[0]
    history.create(site, "s", LANES[0], "")
    history.append_markers(site, "s", LANES[0], "{}")
    history.append_markers(site, "s", LANES[1], "{}")
    history.exchange_all()
    return history
