"""A closed jaw holds a family's object, the controls do not; objects begin beside the hand and stay where they land."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from so101.cli.app import main
from so101.errors import ConfigError
from so101.families import find_task, load_tasks, make_env
from so101.families.grasp_check import FamilyGraspChecker, check_family_grasp, grasp_tasks
from so101.tasks.grasp_check import CREPT, HELD, LOST, MISSED, UNREACHABLE

BRICK = "so101_tower_lift_brick"


def checker(soft: bool = False, hold_s: float = 5.0) -> FamilyGraspChecker:
    made = FamilyGraspChecker(find_task(BRICK), soft_friction=soft)
    made.limits = made.limits.model_copy(update={"hold_s": hold_s})
    return made


def test_a_closed_jaw_holds_and_an_open_one_does_not():
    check = checker()
    assert check.limits.hold_s == 5.0
    trial = check.trial(0.008, 90.0)
    assert trial.outcome == HELD
    assert 0 < trial.creep_m < 0.001
    assert 0.08 < trial.lifted_m < 0.11
    assert trial.squeeze_n > 5.0
    assert check.trial(0.008, 90.0) == trial
    opened = check.trial(0.008, 90.0, close=False)
    assert opened.outcome == LOST and opened.lifted_m < 0.001


def test_soft_friction_does_not_hold():
    assert checker(soft=True).trial(0.008, 90.0).outcome in (CREPT, LOST, MISSED)


def test_without_friction_the_brick_is_lost():
    check = checker(hold_s=0.5)
    check.model = slippery = check.model.__copy__()
    slippery.geom_friction[:] = [0.01, 0.0, 0.0]
    check.data = mujoco.MjData(slippery)
    assert check.trial(0.008, 90.0).outcome in (LOST, MISSED)


def test_what_is_out_of_reach_is_said_and_far_away_touches_nothing():
    check = checker()
    check.grasp = check.grasp.model_copy(update={"place_m": (0.6, 0.0)})
    assert check.trial(0.008, 90.0).outcome == UNREACHABLE
    assert check.far_contacts() == 0


def test_each_object_of_a_scene_is_checked_once():
    assert list(grasp_tasks(load_tasks())) == ["so101_lift_brick", BRICK]


def test_a_task_without_a_grasp_is_refused(capsys):
    with pytest.raises(ConfigError, match="so101_tower_reach_clear: no grasp to check.*`grasp` with place"):
        check_family_grasp(find_task("so101_tower_reach_clear"))
    assert main(["grasp-check", "--task", "so101_tower_lift_brik"]) == 2
    assert f"did you mean '{BRICK}'" in capsys.readouterr().err


@pytest.mark.parametrize("task", [BRICK, "so101_tower_cube_in_bowl"])
def test_nothing_begins_inside_the_arm(task):
    env = make_env(task, 1, autoreset=False)
    arm = env.mj_model.body("base").id
    slots = [env.mj_model.body(name).id for name in env.slots]
    for seed in range(60):
        env.reset(seed=seed)
        data = env.data(0)
        for contact in data.contact:
            bodies = env.mj_model.geom_bodyid[contact.geom]
            roots = env.mj_model.body_rootid[bodies]
            assert not (arm in roots and any(body in slots for body in bodies)), f"seed {seed}"


def test_a_brick_that_lands_stays_where_it_lands():
    env = make_env("so101_tower_cube_in_bowl", 24, autoreset=False)
    env.reset(seed=0)
    hold, start = env.hold_action(env.qpos[:, :6]), 6 + 7 * env.slots.index("brick")
    before = env.qpos[:, start : start + 2].copy()
    for _ in range(15):
        env.step(hold)
    assert np.abs(env.qpos[:, start : start + 2] - before).max() < 1e-3
