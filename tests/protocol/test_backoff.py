"""crdtmem.protocol.backoff"""

from itertools import islice
from random import Random

from hypothesis import given, strategies as st

from crdtmem.protocol.backoff import delays

CAPS = [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


@given(st.integers(0, 2**32))
def test_each_wait_lies_below_a_bound_that_doubles_up_to_30_seconds(seed):
    waits = list(islice(delays(Random(seed)), len(CAPS)))

    assert all(0 <= wait <= cap for wait, cap in zip(waits, CAPS, strict=True))


def test_the_waits_of_many_clients_fill_the_whole_span():
    waits = [next(islice(delays(Random(seed)), 6, None)) for seed in range(1_000)]
    per_tenth = [
        sum(tenth * 3 <= w < tenth * 3 + 3 for w in waits) for tenth in range(10)
    ]

    assert all(60 <= count <= 140 for count in per_tenth)


def test_the_same_chance_gives_the_same_waits():
    assert list(islice(delays(Random(7)), 50)) == list(islice(delays(Random(7)), 50))
