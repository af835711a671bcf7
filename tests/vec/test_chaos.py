"""A few seconds of chaos; `python -m tests.chaos` has as much of it as one likes."""

import pytest

from tests.chaos import run


def test_every_episode_is_accounted_for_while_processes_die():
    outcome = run(6, 6, 3, seed=1, rates={"kill": 1e-3, "exit": 1e-3})
    assert outcome.steps > 500
    assert outcome.episodes > 10
    assert outcome.lost > 0
    assert not outcome.faults
    assert outcome.descriptors[1] <= outcome.descriptors[0]


@pytest.mark.long
def test_a_minute_of_all_faults_leaves_nothing_behind():
    outcome = run(60, 12, 3, seed=2)
    assert outcome.lost > 0
    assert outcome.descriptors[1] <= outcome.descriptors[0]
    assert outcome.mebibytes[1] < outcome.mebibytes[0] + 32
