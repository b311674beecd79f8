from __future__ import annotations

import numpy as np
import pytest

from so101.config.rl import RlInterventionConfig
from so101.learning.rl.actions import make_action_map
from so101.learning.rl.intervention import Intervention
from so101.learning.rl.vec_env import FamilyVecEnv
from tests.learning.rl.toy import ToyEnv


class ToyExpert:
    """The toy's expert, lane by lane; remembers what it took over."""

    def __init__(self, toy: ToyEnv) -> None:
        self.toy, self.taken = toy, []

    def take_over(self, lane: int) -> None:
        self.taken.append(lane)

    def act_lane(self, lane: int) -> np.ndarray:
        return self.toy.expert(self.toy._observe())[lane]


@pytest.fixture
def world():
    def make(share: float = 1.0):
        toy = ToyEnv(4, horizon=30)
        env = FamilyVecEnv(toy, make_action_map("absolute", toy))
        expert = ToyExpert(toy)
        settings = RlInterventionConfig(stall_s=0.5, progress=0.01, most_share=share, room_rows=100)
        env.reset()
        return env, expert, Intervention(env, expert, settings)

    return make


def drive(env, intervention, act, steps):
    """Steps of the policy `act`, corrected; which lanes were driven by the expert at each."""
    driven = []
    for _ in range(steps):
        taken = intervention()
        u = act()
        if taken is not None:
            u = np.where(taken.lanes[:, None], taken.actions, u)
        driven.append(np.zeros(4, bool) if taken is None else taken.lanes)
        env.step(u)
    return np.array(driven)


def still(env):
    return lambda: env.env.hold_action(env.env.qpos)


def test_a_policy_that_gets_on_is_left_alone(world):
    env, expert, intervention = world()
    assert not drive(env, intervention, lambda: env.env.expert(env.obs), 29).any()
    assert expert.taken == []


def test_where_nothing_moves_the_expert_takes_over_and_gets_there(world):
    env, expert, intervention = world()
    driven = drive(env, intervention, still(env), 29)
    assert not driven[:5].any() and driven[10].all()
    assert sorted(expert.taken) == [0, 1, 2, 3]
    assert env.info["success"].all()


def test_a_new_episode_is_the_policys_again(world):
    env, _, intervention = world()
    driven = drive(env, intervention, still(env), 33)
    assert driven[29].all() and not driven[30:].any()


def test_it_drives_no_more_lanes_than_it_may(world):
    env, expert, intervention = world(share=0.5)
    driven = drive(env, intervention, still(env), 25)
    assert driven.sum(1).max() == 2 and len(expert.taken) == 2
