"""The runner of seeds finds a seed that fails, and says which."""

from tests import seeds

ODD_ONE = 13


def refuse_thirteen(first, last):
    for seed in range(first, last):
        assert seed != ODD_ONE, f"seed {seed} fails"


def test_a_range_without_a_failing_seed_passes():
    assert seeds.run_seeds("tests.test_seeds:refuse_thirteen", 0, 10) == []


def test_a_failing_seed_is_reported_with_its_output():
    (output,) = seeds.run_seeds("tests.test_seeds:refuse_thirteen", 10, 20)

    assert "seed 13 fails" in output


def test_a_range_runs_in_this_process_as_well():
    seeds.main("tests.test_seeds:refuse_thirteen", "0", "1")
