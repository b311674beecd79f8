"""Commands that lead by gravity and friction: there and back, and the twin's arm comes to rest where it should."""

from __future__ import annotations

import numpy as np
import pytest

from so101.config import load_config
from so101.kinematics import ArmKinematics
from so101.kinematics.servo_lead import ServoLead
from so101.sim.bake import baked_model
from so101.sim.mujoco_sim import MujocoSimulator
from so101.tasks.placement import nominal_placements


@pytest.fixture(scope="module")
def arm(vial_config):
    return ArmKinematics(vial_config)


@pytest.fixture
def lead(vial_config, arm):
    return ServoLead(vial_config, arm)


def path(config, frames: int, rng) -> np.ndarray:
    """(frames, 5) a random walk that turns often and stands still at times."""
    steps = rng.normal(0, 0.02, (frames, 5)) * (rng.random((frames, 1)) < 0.7)
    home = np.array([joint.home_rad for joint in config.robot.joints[:5]])
    return np.clip(home + np.cumsum(steps, axis=0), -1.5, 1.5)


@pytest.mark.parametrize("seed", range(3))
def test_wanted_undoes_command(vial_config, lead, seed):
    wanted = path(vial_config, 80, np.random.default_rng(seed))
    lead.reset(wanted[0])
    commands = np.array([lead.command(q) for q in wanted])
    assert np.abs(commands - wanted).max() > 0.05
    np.testing.assert_allclose(lead.wanted_path(commands, wanted[0]), wanted, atol=1e-4)


def test_friction_leads_into_the_last_movement_and_turns_over_the_set_way(vial_config, arm, lead):
    q = np.array([0.1, -0.2, 0.3, 0.4, 0.5])
    stiffness = np.array([joint.stiffness_nm_per_rad for joint in vial_config.robot.joints[:5]])
    gravity, turn = arm.gravity_torque(q) / stiffness, vial_config.robot.friction_turn_rad
    lead.reset(q - 0.1)
    np.testing.assert_allclose(lead.command(q) - q - gravity, lead.friction_band)
    back = lead.command(q - turn)
    expected = arm.gravity_torque(q - turn) / stiffness
    np.testing.assert_allclose(back - (q - turn) - expected, 0, atol=1e-12)


def test_gravity_torque_is_that_of_the_physics(vial_config, arm):
    import mujoco

    model = baked_model(vial_config, looks=False, props=False)
    data = mujoco.MjData(model)
    for q in np.random.default_rng(5).uniform(-1, 1, (5, 5)):
        data.qpos[:] = [*q, 0.0]
        mujoco.mj_forward(model, data)
        np.testing.assert_allclose(arm.gravity_torque(q), data.qfrc_bias[:5], atol=1e-12)


def test_the_arm_comes_to_rest_where_it_is_wanted(vial_config):
    """Without the lead the same arm stands several degrees off."""
    sim = MujocoSimulator(vial_config)
    lead = ServoLead(vial_config, sim.kinematics)
    home = np.array([joint.home_rad for joint in vial_config.robot.joints])
    goal = home[:5] + [0.3, 0.35, -0.4, -0.3, 0.4]
    errors = {}
    for label in ("lead", "plain"):
        sim.reset(0, home, nominal_placements(vial_config))
        lead.reset(home)
        for u in np.minimum(np.arange(1, 76) / 45, 1):
            q = home[:5] + (goal - home[:5]) * u
            sim.step(0, [*(lead.command(q) if label == "lead" else q), home[5]])
        errors[label] = np.degrees(np.abs(sim.joint_positions(0)[:5] - goal)).max()
    assert errors["lead"] < 1.5 < 4 < errors["plain"]


def test_seeds_of_stiff_servos_lead_by_little():
    overrides = [f"robot.joints.{j}.stiffness_nm_per_rad=500" for j in range(6)]
    config = load_config(overrides=overrides)
    lead = ServoLead(config, ArmKinematics(config))
    q = np.array([0.0, 0.3, 0.2, 0.5, 0.0])
    lead.reset(q - 0.1)
    assert np.abs(lead.command(q) - q).max() < np.radians(0.3)
