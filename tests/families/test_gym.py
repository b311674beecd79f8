"""As gymnasium has it: its own checkers, registered names, its wrappers and its own vectorisation."""

from __future__ import annotations

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics
from gymnasium.wrappers.vector import RecordEpisodeStatistics as RecordLanes

import so101.families  # noqa: F401 (registers)
from so101.families import gym_id, make_env, task_names
from tests.families.worlds import TASKS


def test_every_task_is_registered():
    assert set(task_names()) == set(TASKS)
    assert {gym_id(name) for name in TASKS} == {name for name in gymnasium.registry if name.startswith("so101/")}


@pytest.mark.parametrize("name", TASKS)
def test_gymnasium_finds_nothing_to_complain_about(name):
    env = gymnasium.make(gym_id(name), horizon=5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*Box observation space (minimum|maximum) value is.*infinity.*")
        warnings.filterwarnings("ignore", message=".*different from the unwrapped version.*")
        check_env(env.unwrapped, skip_render_check=True)
    env.close()


def test_one_environment_is_a_lane():
    alone, lanes = gymnasium.make(gym_id("so101_lift_brick")), make_env("so101_lift_brick")
    np.testing.assert_array_equal(alone.reset(seed=8)[0], lanes.reset(seed=8)[0][0])
    for action in np.random.default_rng(0).uniform(-1, 1, (5, 6)):
        observation, reward, terminated, truncated, info = alone.step(action)
        theirs = lanes.step(action[None])
        np.testing.assert_array_equal(observation, theirs[0][0])
        assert (reward, terminated, truncated) == (theirs[1][0], False, False)
        assert info["goal_shortfall_m"] == theirs[-1]["goal_shortfall_m"][0]
    assert isinstance(reward, float)
    assert isinstance(truncated, bool)


def test_make_vec_gives_the_lanes():
    lanes = gymnasium.make_vec(gym_id("so101_reach"), num_envs=3, vectorization_mode="vector_entry_point")
    assert lanes.unwrapped.num_envs == 3
    assert lanes.unwrapped.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    observation, _ = lanes.reset(seed=2)
    np.testing.assert_array_equal(observation, make_env("so101_reach", 3).reset(seed=2)[0])
    assert lanes.action_space.shape == (3, 6)
    lanes.close()


@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
def test_gymnasiums_own_vectorisation_sees_the_same_numbers(kind):
    """Lanes of ours against copies of the single environment; gymnasium gives copy i the seed + i, as we do."""
    theirs = kind([lambda: gymnasium.make(gym_id("so101_lift_brick"))] * 2)
    ours = make_env("so101_lift_brick", 2)
    np.testing.assert_array_equal(theirs.reset(seed=3)[0], ours.reset(seed=3)[0])
    for action in np.random.default_rng(0).uniform(-1, 1, (5, 2, 6)):
        observation, reward, *_ = ours.step(action)
        observation_theirs, reward_theirs, *_ = theirs.step(action)
        np.testing.assert_array_equal(observation, observation_theirs)
        np.testing.assert_array_equal(reward, reward_theirs)
    theirs.close()


def test_wrappers_count_episodes():
    lanes = RecordLanes(make_env("so101_lift_brick", 2, horizon=3))
    lanes.reset(seed=0)
    total = np.zeros(2)
    for _ in range(3):
        _, reward, _, truncated, info = lanes.step(lanes.action_space.sample())
        total += reward
    assert truncated.all()
    assert info["episode"]["r"] == pytest.approx(total)
    assert info["episode"]["l"].tolist() == [3, 3]
    alone = RecordEpisodeStatistics(gymnasium.make(gym_id("so101_lift_brick"), horizon=3))
    alone.reset(seed=0)
    for _ in range(3):
        *_, truncated, info = alone.step(alone.action_space.sample())
    assert truncated
    assert info["episode"]["l"] == 3


def test_same_seed_same_actions_from_the_space():
    first, second = (gymnasium.make(gym_id("so101_reach")) for _ in range(2))
    for env in (first, second):
        env.reset(seed=1)
        env.action_space.seed(1)
    assert first.action_space.sample().tobytes() == second.action_space.sample().tobytes()


def test_episodes_follow_one_another():
    env = gymnasium.make(gym_id("so101_reach"), seed=5)
    seeds = [env.reset()[1]["episode_seed"] for _ in range(3)]
    assert seeds == [5, 6, 7]


def test_a_picture_of_the_tower():
    env = gymnasium.make(gym_id("so101_tower_lift_brick"), render_mode="rgb_array", camera="wrist")
    env.reset(seed=0)
    picture = env.render()
    assert picture.shape == (240, 320, 3)
    assert picture.dtype == np.uint8
    assert picture.std() > 10.0
    env.close()
