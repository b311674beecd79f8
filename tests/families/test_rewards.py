"""Rewards: the tolerance, what staged terms pay, telescoping of potential steps, the product of reach."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from so101.families import find_task
from so101.families.goals import make_goal
from so101.families.rewards import make_reward, tolerance
from tests.families.worlds import features

JAW = (-0.17453, 1.74533)
DESK, BOWL = (0.32, 0.0, 0.001), (0.3, 0.1, 0.002)
RESTING, LIFTED = (0.3, -0.1, 0.0145), (0.3, -0.1, 0.0511)


def lift(mode=None):
    task = find_task("so101_tower_lift_brick")
    return make_reward(task, make_goal(task), JAW, mode)


def carry(mode=None):
    task = find_task("so101_tower_cube_in_bowl")
    return make_reward(task, make_goal(task), JAW, mode)


def scene(brick, grip=(1.0, 1.0, 1.0), jaw=JAW[1], grasped=False, bowl=BOWL):
    qpos = np.zeros((np.size(jaw), 6))
    qpos[:, 5] = jaw
    return features(
        bodies={"brick": brick, "desk": DESK, "bowl": bowl}, sites={"grip": grip}, qpos=qpos, grasped={"brick": grasped}
    )


@pytest.mark.parametrize(
    ("x", "within", "margin", "value"),
    [
        (0.0, 0.0, 0.1, 1.0),
        (0.1, 0.0, 0.1, 0.1),
        (0.12, 0.02, 0.1, 0.1),
        (0.2, 0.0, 0.1, 1e-4),
        (0.05, 0.0, 0.1, 10**-0.25),
    ],
)
def test_tolerance_by_hand(x, within, margin, value):
    assert tolerance(x, within, margin) == pytest.approx(value, rel=1e-9)


@given(st.floats(0, 2), st.floats(0, 2), st.floats(0, 1), st.floats(0.01, 1))
def test_tolerance_falls_and_stays_in_0_1(x, further, within, margin):
    here, there = tolerance(x, within, margin), tolerance(x + further, within, margin)
    assert 0.0 <= there <= here <= 1.0
    assert (here == 1.0) or x > within


def test_a_brick_at_rest_earns_most_of_the_goal_term():
    """Short of the goal by 36.5 mm: why plain SAC parks over the brick."""
    reward = lift()
    shortfall = reward.goal.shortfall_m(scene(RESTING))
    assert shortfall[0] == pytest.approx(0.0365, abs=1e-12)
    assert reward.goal_term(shortfall)[0] == pytest.approx(0.7358, abs=5e-5)


def test_staged_pays_its_weights():
    reward = lift()
    far = scene(RESTING)
    assert reward(far)[0] == pytest.approx(0.7358, abs=5e-5)  # hand far away, jaw open
    over = scene(RESTING, grip=RESTING)
    assert reward(over)[0] == pytest.approx(0.7358 + 0.5, abs=5e-5)
    half = scene(RESTING, grip=RESTING, jaw=sum(JAW) / 2)
    assert reward(half)[0] == pytest.approx(0.7358 + 0.5 + 0.125, abs=5e-5)
    pinched = scene(RESTING, grip=RESTING, jaw=sum(JAW) / 2, grasped=True)
    assert reward(pinched)[0] == pytest.approx(0.7358 + 0.5 + 0.125 + 0.5, abs=5e-5)
    away = scene(RESTING, grip=(0.3, -0.1, 0.0445 + 1e-6), jaw=JAW[0])  # closing is paid within 30 mm
    assert reward(away)[0] == pytest.approx(0.7358 + 0.5 * tolerance(0.03, 0.02, 0.2), abs=5e-5)


def test_staged_pays_at_most_2_25():
    reward = lift()
    best = scene(LIFTED, grip=LIFTED, jaw=JAW[0] - 0.1, grasped=True)
    assert reward(best)[0] == pytest.approx(2.25)
    assert reward.largest == pytest.approx(2.25)
    rng = np.random.default_rng(0)
    drawn = scene(
        rng.uniform(-0.2, 0.4, (500, 3)), grip=rng.uniform(-0.2, 0.4, (500, 3)), jaw=rng.uniform(-1, 2, 500),
        grasped=rng.random(500) < 0.5,
    )  # fmt: skip
    assert (reward(drawn) > 0.0).all()
    assert (reward(drawn) <= 2.25).all()


def test_a_task_of_the_hand_alone_pays_the_goal_term_only():
    task = find_task("so101_tower_reach_clear")
    reward = make_reward(task, make_goal(task), JAW)
    f = features(sites={"gripperframe": (0.3, 0.0, 0.01), "grip": (0.3, 0.0, 0.01)})
    assert reward(f)[0] == reward.largest == 1.0


def walk(goal_bodies, steps=60, seed=0):
    """Features along a way of hand and brick that never meets the goal."""
    rng = np.random.default_rng(seed)
    brick, grip, jaw = np.array(goal_bodies), np.array([0.2, 0.1, 0.1]), 1.0
    for _ in range(steps):
        brick = np.clip(brick + rng.normal(0, 0.003, 3), (0.25, -0.2, 0.01), (0.35, -0.1, 0.045))
        grip = grip + rng.normal(0, 0.01, 3)
        jaw = np.clip(jaw + rng.normal(0, 0.1), *JAW)
        yield scene(brick, grip=grip, jaw=jaw, grasped=rng.random() < 0.5)


@pytest.mark.parametrize("make", [lift, carry])
def test_potential_steps_telescope(make):
    reward = make("potential")
    way = list(walk(RESTING))
    reward.reset(way[0], np.array([True]))
    paid = sum(reward(f)[0] for f in way[1:])
    assert paid == pytest.approx(reward._potential(way[-1])[0][0] - reward._potential(way[0])[0][0], abs=1e-9)
    reward.reset(way[0], np.array([True]))
    there_and_back = sum(reward(f)[0] for f in way[1:] + way[::-1])
    assert there_and_back == pytest.approx(0.0, abs=1e-9)


def test_potential_of_a_lift_steps_with_the_staged_sum():
    """While the goal does not hold, a step pays by how much the staged sum grew."""
    staged, potential = lift(), lift("potential")
    way = list(walk(RESTING, seed=3))
    potential.reset(way[0], np.array([True]))
    for before, after in zip(way, way[1:], strict=False):
        assert potential(after)[0] == pytest.approx(staged(after)[0] - staged(before)[0], abs=1e-12)


def test_hovering_pays_nothing_holding_pays_all_and_the_bonus_once():
    reward = lift("potential")
    hover, held = scene(RESTING, grip=RESTING), scene(LIFTED, grip=LIFTED, grasped=True)
    reward.reset(hover, np.array([True]))
    assert [reward(f)[0] for f in (hover, hover)] == [0.0, 0.0]
    assert [reward(f)[0] for f in (held, held)] == pytest.approx([2.25 + 5.0, 2.25])
    fell = reward(hover)[0]
    assert fell < 0.0
    assert reward(held)[0] == pytest.approx(2.25)  # the bonus was paid
    reward.reset(hover, np.array([True]))
    assert reward(held)[0] == pytest.approx(2.25 + 5.0)


def test_potential_resets_only_the_lanes_that_begin():
    reward = lift("potential")
    start = scene([RESTING, RESTING], grip=[RESTING, (0.3, -0.1, 0.3)])
    reward.reset(start, np.array([True, True]))
    now = scene([RESTING, RESTING], grip=[(0.3, -0.1, 0.3), RESTING])
    reward.reset(now, np.array([True, False]))
    paid = reward(now)
    assert paid[0] == 0.0
    assert paid[1] > 0.3


def test_a_cube_is_carried_only_in_the_hand():
    """Near the bowl without a grasp earns no transport; over the bowl counts by the larger of across and along."""
    reward = carry("potential")
    beside = scene((0.3, 0.0, 0.0145), grip=(0.3, 0.0, 0.0145))
    in_hand = scene((0.3, 0.0, 0.0145), grip=(0.3, 0.0, 0.0145), grasped=True)
    gain = reward._potential(in_hand)[0] - reward._potential(beside)[0]
    assert gain[0] == pytest.approx(0.5 + tolerance(0.1 - 0.045, 0.0, 0.1))


@pytest.mark.parametrize(
    ("distance_m", "speed", "change", "value"),
    [
        (0.005, 0.3, 0.05, 1.0),
        (0.055, 0.3, 0.05, 0.5 * 0.1 + 0.5 * 0.1**0.04),  # one narrow margin beyond, a fifth of the wide one
        (0.255, 0.3, 0.05, 0.5 * 0.1**25 + 0.5 * 0.1),
        (0.005, 5.3, 0.05, 0.5 + 0.5 * 0.1),
        (0.005, 0.3, 1.05, 0.5 + 0.5 * 0.1),
        (0.005, 5.3, 1.05, 0.55 * 0.55),
    ],
)
def test_reach_by_hand(distance_m, speed, change, value):
    task = find_task("so101_reach")
    reward = make_reward(task, make_goal(task), JAW)
    f = features(
        sites={"grasp_center": (distance_m, 0, 0)}, qvel=(speed, 0, 0, 0, 0, 0), action=(0, change, 0, 0, 0, 0)
    )
    assert reward(f)[0] == pytest.approx(value)
    assert reward.largest == 1.0


@pytest.mark.parametrize(
    ("task", "mode", "text"),
    [("so101_reach", "staged", "mode 'reach' only"), ("so101_lift_brick", "shaped", "staged, potential")],
)
def test_modes_that_do_not_fit(task, mode, text):
    found = find_task(task)
    with pytest.raises(Exception, match=text) as caught:
        make_reward(found, make_goal(found), JAW, mode)
    assert task in str(caught.value)
