"""A few seconds of chaos; `python -m tests.chaos` has as much of it as one likes."""

import pytest

from tests.chaos import hold, run


def test_every_episode_is_accounted_for_while_processes_die():
    outcome = run(6, 6, 3, seed=1, rates={"kill": 1e-3, "exit": 1e-3})
    assert outcome.steps > 500
    assert outcome.episodes > 10
    assert outcome.lost > 0
    assert outcome.survived > 0
    assert not outcome.faults
    hold(outcome)


@pytest.mark.long
def test_a_minute_of_all_faults_leaves_nothing_behind():
    outcome = run(60, 12, 3, seed=2)
    assert outcome.lost > 0
    hold(outcome)
