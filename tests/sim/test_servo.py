"""Servos with a delay: commands act late, exactly by the delay, and a stored state carries those on their way."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from so101.config import load_config
from so101.errors import ConfigError
from so101.sim.bake import bake
from so101.sim.mujoco_sim import MujocoSimulator
from so101.sim.servo import set_past_commands, set_servo
from so101.tasks.placement import nominal_placements

JOINTS = range(6)


def config_with_delay(delay_s: float):
    return load_config(overrides=[f"robot.joints.{j}.delay_s={delay_s}" for j in JOINTS])


def home(config) -> np.ndarray:
    return np.array([joint.home_rad for joint in config.robot.joints])


@pytest.mark.parametrize("steps", [0, 1, 30, 72])
def test_a_command_acts_exactly_the_delay_later(steps):
    config = load_config()
    timestep = config.scene.physics.timestep_s
    model = bake(config_with_delay(steps * timestep), looks=False, props=False).compile()
    q, moved = home(config), home(config) + 0.3
    forces = []
    for command in (q, moved):
        data = mujoco.MjData(model)
        data.qpos[:], data.ctrl[:] = q, command
        set_past_commands(model, data, q)
        rows = []
        for _ in range(steps + 3):
            mujoco.mj_step(model, data)
            rows.append(data.actuator_force.copy())
        forces.append(np.array(rows))
    differs = (forces[0] != forces[1]).all(1)
    assert not differs[:steps].any() and differs[steps]


def test_the_state_after_a_reset_replays_to_the_bit_with_commands_on_their_way():
    config = config_with_delay(0.1)
    sim = MujocoSimulator(config)
    targets = home(config) + 0.2 * np.sin(np.arange(40)[:, None] / 5 + np.arange(6))

    def run(start) -> np.ndarray:
        sim.set_physics_state(0, start)
        return np.array([(sim.step(0, target), sim.joint_positions(0))[1] for target in targets])

    sim.reset(0, home(config), nominal_placements(config))
    first = sim.get_physics_state(0)
    expected = run(first)
    np.testing.assert_array_equal(run(first), expected)
    other = MujocoSimulator(config)
    other.reset(0, home(config), nominal_placements(config))
    np.testing.assert_array_equal(other.get_physics_state(0), first)


def test_past_commands_are_the_last_ones_and_the_first_fills_up():
    model = bake(config_with_delay(0.0), looks=False, props=False).compile()
    data, read = mujoco.MjData(model), np.zeros(1)
    past = np.arange(1.0, 4.0)[:, None] * np.ones(6)
    set_past_commands(model, data, past)

    def command_at(time: float) -> float:
        found = mujoco.mj_readCtrl(model, data, 0, time, read, 0)
        return float(np.ravel(found if found is not None else read)[0])

    timestep = model.opt.timestep
    assert [command_at(-k * timestep + 1e-9) for k in (1, 2, 3, 10)] == [3.0, 2.0, 1.0, 1.0]


def test_set_servo_is_what_baking_the_same_values_gives():
    values = {
        "stiffness_nm_per_rad": 7.5, "velocity_gain_nm_s_per_rad": 0.25, "damping_nm_s_per_rad": 0.5,
        "friction_nm": 0.125, "armature_kg_m2": 0.0625, "force_limit_nm": 2.0, "delay_s": 0.03125,
    }  # fmt: skip
    baked = bake(
        load_config(overrides=[f"robot.joints.2.{k}={v}" for k, v in values.items()]), looks=False, props=False
    )
    expected, changed = baked.compile(), bake(load_config(), looks=False, props=False).compile()
    set_servo(changed, 2, values)
    fields = (
        "actuator_gainprm", "actuator_biasprm", "actuator_forcerange", "actuator_delay", "dof_damping",
        "dof_frictionloss", "dof_armature",
    )  # fmt: skip
    for field in fields:
        np.testing.assert_array_equal(getattr(changed, field), getattr(expected, field), err_msg=field)


def test_lag_is_the_delay_and_all_damping_over_stiffness():
    joint = load_config().robot.joints[0].model_copy(
        update={
            "delay_s": 0.05, "stiffness_nm_per_rad": 20.0, "velocity_gain_nm_s_per_rad": 1.5,
            "damping_nm_s_per_rad": 0.5,
        }
    )  # fmt: skip
    assert joint.lag_s == pytest.approx(0.15)


def test_a_delay_beyond_what_the_twin_keeps_is_refused():
    with pytest.raises(ConfigError, match=r"joints.elbow_flex.delay_s reaches 0.3; max_delay_s allows 0.15"):
        load_config(overrides=["robot.joints.2.delay_s=0.3"])
