"""crdtmem.store.progress"""

from hypothesis import example, given, strategies as st

from crdtmem.limits import SAMPLE_STEP_RECORDS, SAMPLES_MAX
from crdtmem.store.progress import kept_samples


@given(st.lists(st.integers(1, 5_000), min_size=1, max_size=60))
@example([200_000] * 5)
def test_places_are_kept_by_their_distance_however_the_cursor_moves(steps):
    step, cursor = SAMPLE_STEP_RECORDS, 0
    kept: set[int] = set()
    for size in steps:
        passed = range(cursor // step * step + step, cursor + size + 1, step)
        cursor += size
        kept = set(kept_samples(kept | set(passed), cursor))
    distances = [cursor - seq for seq in sorted(kept, reverse=True)]
    multiples = range(step, cursor + 1, step)

    assert sorted(kept) == sorted(kept_samples(multiples, cursor))
    assert len(kept) <= SAMPLES_MAX
    assert not multiples or distances[0] < step
    # However far back the relay's log ends, half of that again is in doubt at most.
    gaps = [
        after - before
        for before, after in zip([0, *distances], distances, strict=False)
    ]
    assert all(
        gap <= max(2 * step, distance)
        for gap, distance in zip(gaps, distances, strict=True)
    )


def test_the_newest_places_are_kept_when_there_are_too_many():
    cursor = 1 << 50
    places = [cursor - (part << n) for n in range(8, 48) for part in range(4, 8)]
    found = kept_samples([cursor, *places], cursor)

    assert len(places) > SAMPLES_MAX
    assert found == [cursor, *sorted(places, reverse=True)[: SAMPLES_MAX - 1]]
