from __future__ import annotations

import numpy as np
import pytest

from so101.evaluation.statistics import wilson_interval
from so101.learning.rl.evaluate_rl import run_episodes, told
from tests.learning.rl.toy import ToyEnv


def test_an_expert_succeeds_whatever_the_lanes():
    """Ten episodes on four lanes are those ten, each once."""
    results = []
    for lanes in (4, 10):
        env = ToyEnv(lanes, autoreset=False)
        results.append(run_episodes(env.expert, env, range(50, 60), held_s=0.5))
    for result in results:
        assert result.seeds.tolist() == list(range(50, 60))
        assert result.any.all() and result.end.all() and result.held.all()
    np.testing.assert_allclose(results[0].returns, results[1].returns, rtol=1e-6)


def test_any_end_and_held_are_told_apart():
    """Goes to the target, stays three steps of 0.1 s, leaves again."""
    env = ToyEnv(4, autoreset=False)

    def act(obs):
        return env.expert(obs) if env.steps[0] < 12 else np.ones((4, 6))

    near = run_episodes(act, env, range(4), held_s=0.2)
    assert near.any.all() and not near.end.any() and near.held.all()
    assert not run_episodes(act, env, range(4), held_s=1.5).held.any()
    assert (near.closest_m < near.last_m).all()


def test_the_summary_gives_n_seeds_and_wilson_intervals():
    env = ToyEnv(4, autoreset=False)
    summary = run_episodes(env.expert, env, range(1_000_000, 1_000_006), held_s=0.5).summary()
    assert (summary["n"], summary["first_seed"], summary["last_seed"]) == (6, 1_000_000, 1_000_005)
    assert summary["end"]["wilson95"] == pytest.approx(list(wilson_interval(6, 6)))
    text = told(summary)
    assert "END 100.0% (61.0% to 100.0%)" in text and "of 6 episodes, seeds 1000000 to 1000005" in text
