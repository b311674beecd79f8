from __future__ import annotations

import json

import numpy as np
import pytest

from so101.errors import DataError
from so101.learning.rl.actions import ActionMap, RandomActions, make_action_map
from tests.learning.rl.toy import ToyEnv


@pytest.fixture
def env():
    made = ToyEnv(7)
    made.reset(seed=1)
    return made


def seen(env):
    return env.reset(seed=5)[0]


@pytest.mark.parametrize("mode", ["absolute", "relative"])
def test_what_comes_back_is_what_went_in(env, mode):
    actions = make_action_map(mode, env, scale=0.3, low=-0.6, high=0.2)
    u = np.random.default_rng(0).uniform(-0.9, 0.9, (7, 6)).astype(np.float32)
    inside = np.abs(actions.to_env(seen(env), u)) < 1
    back = actions.from_env(seen(env), actions.to_env(seen(env), u))
    np.testing.assert_allclose(back[inside], u[inside], atol=2e-6)


def test_nothing_relative_stays(env):
    actions = make_action_map("relative", env, scale=0.2)
    obs = seen(env)
    np.testing.assert_allclose(actions.to_env(obs, np.zeros((7, 6))), env.hold_action(env.qpos), atol=1e-6)


def test_absolute_over_the_whole_range_changes_nothing(env):
    u = np.random.default_rng(0).uniform(-1, 1, (7, 6)).astype(np.float32)
    np.testing.assert_array_equal(make_action_map("absolute", env).to_env(seen(env), u), u)


def test_a_relative_target_is_so_far_from_the_joint(env):
    """0.2 of half the range of 1.5 rad is 0.3 rad."""
    obs = seen(env)
    target = env.action_to_ctrl(make_action_map("relative", env, scale=0.2).to_env(obs, np.ones((7, 6))))
    np.testing.assert_allclose(target[:, 0] - obs[:, 0], 0.3, atol=1e-6)


def test_actions_stay_in_range(env):
    actions = make_action_map("relative", env, scale=2.0)
    assert np.abs(actions.to_env(seen(env), np.full((7, 6), 1.0))).max() <= 1.0
    assert np.abs(actions.from_env(seen(env), np.full((7, 6), -1.0))).max() <= 1.0


def test_it_comes_back_from_json(env):
    actions = make_action_map("relative", env, scale=0.25)
    again = ActionMap.from_json(json.loads(json.dumps(actions.to_json())))
    u = np.full((7, 6), 0.4, np.float32)
    np.testing.assert_array_equal(again.to_env(seen(env), u), actions.to_env(seen(env), u))


def test_random_actions_last_as_long_as_they_should():
    act = RandomActions((50, 6), lasts=10.0, seed=0)
    drawn = np.array([act() for _ in range(200)])
    assert (np.diff(drawn, axis=0) != 0).any(-1).mean() == pytest.approx(0.1, abs=0.01)
    assert drawn.mean() == pytest.approx(0, abs=0.05) and drawn.std() == pytest.approx(1 / np.sqrt(3), abs=0.03)
    always = RandomActions((50, 6), lasts=0.0, seed=0)
    assert (always() != always()).all()


def test_an_increment_is_added_to_the_last_action(env):
    env.words = {"previous_action": slice(6, 12)}
    actions = make_action_map("incremental", env, scale=0.1)
    obs = seen(env)
    obs[:, 6:12] = np.random.default_rng(0).uniform(-0.8, 0.8, (7, 6))
    np.testing.assert_allclose(actions.to_env(obs, np.zeros((7, 6))), obs[:, 6:12], atol=1e-6)
    np.testing.assert_allclose(actions.to_env(obs, np.full((7, 6), 0.5)), obs[:, 6:12] + 0.05, atol=1e-6)
    again = ActionMap.from_json(json.loads(json.dumps(actions.to_json())))
    np.testing.assert_allclose(again.from_env(obs, obs[:, 6:12] - 0.1), -1.0, atol=1e-5)


def test_increments_need_the_last_action_in_the_observation(env):
    env.words = {"qpos": slice(0, 6)}
    with pytest.raises(DataError, match="has no previous_action; add it"):
        make_action_map("incremental", env, scale=0.1)
