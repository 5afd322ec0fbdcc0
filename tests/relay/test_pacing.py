"""relay.pacing"""

from crdtmem.limits import TOKEN_BURST_RECORDS, TOKEN_RATE_BYTES, TOKEN_RATE_RECORDS
from relay.pacing import Allowance, Pace, Progress


def test_a_burst_costs_no_time():
    allowance = Allowance(10, 100, 0.0)
    allowance.spend(100, 0.0)

    assert allowance.wait_s(0.0) == 0


def test_what_exceeds_the_burst_is_waited_off_at_the_rate():
    allowance = Allowance(10, 100, 0.0)
    allowance.spend(130, 0.0)

    assert allowance.wait_s(0.0) == 3.0
    assert allowance.wait_s(2.0) == 1.0
    assert allowance.wait_s(3.0) == 0


def test_no_more_than_a_burst_is_saved_up():
    allowance = Allowance(10, 100, 0.0)
    allowance.spend(50, 0.0)
    allowance.spend(100, 1_000.0)
    allowance.spend(10, 1_000.0)

    assert allowance.wait_s(1_000.0) == 1.0


def test_a_flood_of_tiny_frames_is_read_more_slowly():
    pace = Pace(0.0)
    for _ in range(TOKEN_BURST_RECORDS + TOKEN_RATE_RECORDS):
        pace.frame(3, 0.0)

    assert pace.wait_s(0.0) == 1.0


def test_records_and_bytes_are_bounded_beside_the_frames():
    puts = Pace(0.0)
    puts.records(TOKEN_BURST_RECORDS + 2 * TOKEN_RATE_RECORDS, 0.0)
    long = Pace(0.0)
    long.frame(4 * TOKEN_RATE_BYTES, 0.0)

    assert puts.wait_s(0.0) == 2.0
    assert long.wait_s(0.0) == 3.0


def test_a_peer_that_takes_nothing_is_idle_for_as_long():
    progress = Progress(0.0)

    assert progress.idle_s(1_000, 900, 5.0) == 0
    assert progress.idle_s(1_000, 900, 65.0) == 60.0


def test_a_peer_that_takes_a_little_is_not_idle_though_its_buffer_grows():
    progress = Progress(0.0)

    assert progress.idle_s(1_000, 900, 10.0) == 0
    assert progress.idle_s(5_000, 4_899, 50.0) == 0


def test_a_peer_for_which_nothing_waits_is_not_idle():
    progress = Progress(0.0)

    assert progress.idle_s(1_000, 0, 100.0) == 0
    assert progress.idle_s(1_000, 0, 200.0) == 0
    assert progress.idle_s(1_001, 1, 230.0) == 30.0
