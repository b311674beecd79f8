from __future__ import annotations

import pytest

from so101.learning.rl.health import judge


def health(mean_q: float, reward: float = 1.0, entropy: float = 0.0, alpha: float = 0.0, backup: bool = True):
    figures = {"mean_q": mean_q, "batch_reward": reward, "entropy": entropy, "alpha": alpha}
    return judge(figures, 0.99, backup, overshoot=2.0, diverged=10.0)


@pytest.mark.parametrize(("q", "state"), [(90, "fine"), (199, "fine"), (201, "overshoot"), (1001, "diverged")])
def test_values_are_held_against_rewards_for_ever(q, state):
    """1 a step, discounted by 0.99, is 100."""
    assert health(q).state == state
    assert health(q).ratio == pytest.approx(q / 100)


def test_entropy_that_is_paid_for_counts():
    assert health(150, entropy=2.0, alpha=0.5).borne_out == pytest.approx(200)
    assert health(150, entropy=2.0, alpha=0.5, backup=False).borne_out == pytest.approx(100)


def test_there_is_nothing_to_judge_before_the_first_update():
    assert judge({"reward": 1.0}, 0.99, True, 2.0, 10.0) is None


def test_the_advice_names_numbers_and_what_to_do():
    assert "mean Q 1001.0 is 10.0 times" in health(1001).advice and "target.tau" in health(1001).advice
