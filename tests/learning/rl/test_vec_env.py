from __future__ import annotations

import numpy as np
import pytest

from so101.learning.rl.actions import make_action_map
from so101.learning.rl.vec_env import FamilyVecEnv
from tests.learning.rl.toy import ToyEnv


@pytest.fixture
def env():
    toy = ToyEnv(3, horizon=5)
    return FamilyVecEnv(toy, make_action_map("absolute", toy))


def test_episodes_begin_at_the_seeds_it_was_given(env):
    env.begin_at(100_000)
    env.reset()
    assert env.env.episode_seeds.tolist() == [100_000, 100_001, 100_002]


def test_the_end_of_an_episode_is_a_truncation_with_its_last_observation(env):
    obs = env.reset()
    still = env.env.hold_action(env.env.qpos)
    for step in range(5):
        obs, _, done, infos = env.step(still)
        assert done.all() == (step == 4)
    for lane, info in enumerate(infos):
        assert info["TimeLimit.truncated"] is True
        where = env.map.middle + still[lane] * env.map.half
        np.testing.assert_allclose(info["terminal_observation"][:6], where, atol=1e-5)
        assert not np.allclose(info["terminal_observation"], obs[lane])
        assert info["episode"]["l"] == 5


def test_returns_and_success_are_those_of_the_episode(env):
    obs = env.reset()
    total = np.zeros(3)
    for _ in range(5):
        obs, reward, _, infos = env.step(env.env.expert(obs))
        total += reward
    assert [info["episode"]["r"] for info in infos] == pytest.approx(total, rel=1e-6)
    assert all(info["is_success"] for info in infos)
    for _ in range(5):
        obs, _, _, infos = env.step(np.ones((3, 6)))
    assert not any(info["is_success"] for info in infos)


def test_nothing_is_said_of_lanes_that_go_on(env):
    env.reset()
    assert env.step(np.zeros((3, 6)))[3] == [{}, {}, {}]


def test_what_lanes_share_cannot_be_set_for_some(env):
    with pytest.raises(NotImplementedError, match="share"):
        env.set_attr("horizon", 3)
