"""relay.metrics"""

import pytest

from relay.metrics import COUNTERS, GAUGES, HISTOGRAMS, PREFIX, Metrics


def samples(text):
    """Return the value of each line that is no comment, by what stands before it."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {line.rpartition(" ")[0]: line.rpartition(" ")[2] for line in lines}


def test_everything_is_there_from_the_start_with_its_help_and_its_type():
    text = Metrics("1.2").render()

    for name in [*GAUGES, *COUNTERS, *HISTOGRAMS]:
        assert f"# HELP {PREFIX}{name} " in text
        assert f"# TYPE {PREFIX}{name} " in text
    assert samples(text)[f'{PREFIX}build_info{{version="1.2"}}'] == "1"
    assert samples(text)[f"{PREFIX}connections"] == "0"
    assert samples(text)[f"{PREFIX}stalls_total"] == "0"
    assert text.endswith("\n")


def test_a_gauge_shows_what_it_was_set_to_last():
    metrics = Metrics("1")
    metrics.set("connections", 3)
    metrics.set("connections", 2)

    assert metrics.value("connections") == 2
    assert samples(metrics.render())[f"{PREFIX}connections"] == "2"


def test_a_counter_counts_under_each_value_of_its_label():
    metrics = Metrics("1")
    metrics.add("bytes_total", "in", 2**53)
    metrics.add("bytes_total", "out")
    metrics.add("bytes_total", "out", 4)
    metrics.add("stalls_total")
    metrics.set("errors_total", 7, "busy")

    assert metrics.value("bytes_total", "out") == 5
    assert metrics.value("errors_total", "busy") == 7
    assert metrics.value("bytes_total", "sideways") == 0
    shown = samples(metrics.render())
    assert shown[f'{PREFIX}bytes_total{{direction="in"}}'] == str(2**53)
    assert shown[f'{PREFIX}bytes_total{{direction="out"}}'] == "5"
    assert shown[f"{PREFIX}stalls_total"] == "1"


def test_a_histogram_counts_each_value_in_all_buckets_that_hold_it():
    metrics = Metrics("1")
    for value in (1, 4, 5, 5000):
        metrics.observe("commit_records", value)

    shown = samples(metrics.render())
    name = f"{PREFIX}commit_records"
    assert shown[f'{name}_bucket{{le="1"}}'] == "1"
    assert shown[f'{name}_bucket{{le="4"}}'] == "2"
    assert shown[f'{name}_bucket{{le="16"}}'] == "3"
    assert shown[f'{name}_bucket{{le="1024"}}'] == "3"
    assert shown[f'{name}_bucket{{le="+Inf"}}'] == "4"
    assert shown[f"{name}_sum"] == "5010"
    assert shown[f"{name}_count"] == "4"


def test_a_name_that_does_not_exist_is_refused():
    metrics = Metrics("1")
    before = metrics.render()

    for call in (metrics.set, metrics.observe):
        with pytest.raises(KeyError):
            call("conections", 1)
    for ask in (metrics.add, metrics.value):
        with pytest.raises(KeyError):
            ask("conections")
    assert metrics.render() == before


def test_a_label_cannot_break_out_of_its_quotes():
    metrics = Metrics("1")
    metrics.add("errors_total", 'a"\\\nb')

    assert f'{PREFIX}errors_total{{code="a\\"\\\\\\nb"}} 1' in metrics.render()
