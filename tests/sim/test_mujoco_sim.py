"""The simulator: repeatable to the bit, the same for any base pose, honest about twists, contacts and stored states."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from so101.config import Config, load_config
from so101.errors import SimulationError
from so101.geometry import (
    make_pose,
    pose_from_pos_quat,
    rotation_about_axis,
    rotation_from_quat,
    rotation_vector,
)
from so101.sim import make_simulator
from so101.sim.mujoco_sim import MujocoSimulator
from so101.tasks.placement import nominal_placements
from so101.tasks.success import judge

UP = np.array([0.0, 0.0, 1.0])
UPRIGHT = [1.0, 0.0, 0.0, 0.0]


@pytest.fixture(scope="module")
def sim(vial_config):
    return MujocoSimulator(vial_config)


def home(config: Config) -> np.ndarray:
    return np.array([joint.home_rad for joint in config.robot.joints])


def commands(config: Config, frames: int) -> np.ndarray:
    """(frames, 6) targets that swing all joints, jaw included."""
    t = np.arange(frames)[:, None] / config.scene.physics.control_hz
    return home(config) + [0.4, 0.2, 0.2, 0.3, 0.5, 0.4] * np.sin(2 * t + np.arange(6))


def run(simulator: MujocoSimulator, env: int, targets: np.ndarray, objects: dict | None = None) -> np.ndarray:
    """Physics states after each target, from a reset."""
    objects = objects or nominal_placements(simulator.config)
    simulator.reset(env, home(simulator.config), objects)
    states = []
    for target in targets:
        simulator.step(env, target)
        states.append(simulator.get_physics_state(env))
    return np.array(states)


def hold(simulator: MujocoSimulator, seconds: float) -> dict[str, np.ndarray]:
    """Stay at home; (T, 7) poses of all objects."""
    poses: dict[str, list] = {name: [] for name in simulator.object_names}
    for _ in range(round(seconds / simulator.control_dt)):
        simulator.step(0, home(simulator.config))
        for name, rows in poses.items():
            rows.append(simulator.object_pose(0, name))
    return {name: np.array(rows) for name, rows in poses.items()}


def test_the_same_commands_give_the_same_bits(sim, vial_config):
    targets = commands(vial_config, 40)
    first = run(sim, 0, targets)
    run(sim, 0, targets[::-1])  # whatever happened before
    np.testing.assert_array_equal(run(sim, 0, targets), first)
    np.testing.assert_array_equal(run(MujocoSimulator(vial_config), 0, targets), first)


def test_environments_differ_in_the_world_and_nowhere_else(vial_config):
    rng = np.random.default_rng(4)
    bases = make_pose(rotation_about_axis(UP, rng.uniform(-3, 3, 3)), rng.uniform(-5, 5, (3, 3)))
    many, one = make_simulator(vial_config, 3, bases), make_simulator(vial_config)
    targets = commands(vial_config, 25)
    alone = run(one, 0, targets)
    for env in range(3):
        np.testing.assert_array_equal(run(many, env, targets), alone)
        T_world_vial = many.world_pose(env, pose_from_pos_quat(many.object_pose(env, "vial")))
        T_base_vial = pose_from_pos_quat(one.object_pose(0, "vial"))
        np.testing.assert_allclose(T_world_vial, bases[env] @ T_base_vial, atol=1e-12)


def test_environments_do_not_touch_each_other(vial_config):
    many, targets = make_simulator(vial_config, 2), commands(vial_config, 10)
    first = run(many, 0, targets)
    run(many, 1, targets[:3])
    np.testing.assert_array_equal(many.get_physics_state(0), first[-1])


def test_the_world_pose_of_the_task_is_where_the_task_puts_it(sim, vial_config):
    sim.reset(0, home(vial_config), nominal_placements(vial_config))
    for name, placement in vial_config.task.active.objects.items():
        T_world = sim.world_pose(0, pose_from_pos_quat(sim.object_pose(0, name)))
        np.testing.assert_allclose(T_world[:3, 3], placement.position_m, atol=1e-12)


def test_moving_the_base_in_the_configuration_keeps_the_world_and_moves_the_objects_in_base():
    moved = load_config(overrides=["robot.base_position_m=[0.1, 0.2, 0.0]", "robot.base_yaw_rad=0.5"])
    pose = nominal_placements(moved)["rack"]
    expected = rotation_about_axis(UP, -0.5) @ (np.array([0.18, 0.08, 0.04135]) - [0.1, 0.2, 0.0])
    np.testing.assert_allclose(pose[:3], expected, atol=1e-12)


def test_a_tilted_base_is_refused(vial_config):
    tilted = make_pose(rotation_about_axis(np.array([1.0, 0.0, 0.0]), 0.01), np.zeros(3))
    with pytest.raises(SimulationError, match="gravity is fixed in base"):
        MujocoSimulator(vial_config, 1, tilted)


def test_no_environments_are_refused(vial_config):
    with pytest.raises(SimulationError, match="num_envs is 0"):
        MujocoSimulator(vial_config, 0)


def test_the_state_after_a_reset_replays_to_the_bit(sim, vial_config):
    """What generation stores and verification starts from; objects fall asleep and wake on the way."""
    targets = commands(vial_config, 60)
    expected = run(sim, 0, targets)
    sim.reset(0, home(vial_config), nominal_placements(vial_config))
    start = sim.get_physics_state(0)
    run(sim, 0, targets[:25])  # leaves objects asleep: restoring must not depend on it
    sim.set_physics_state(0, start)
    for target, state in zip(targets, expected, strict=True):
        sim.step(0, target)
        np.testing.assert_array_equal(sim.get_physics_state(0), state)


def test_without_sleep_any_state_replays_to_the_bit():
    config = load_config(overrides=["task.name=vial_to_rack", "scene.physics.sleep=false"])
    simulator = MujocoSimulator(config)
    targets = commands(config, 30)
    states = run(simulator, 0, targets)
    simulator.set_physics_state(0, states[11])
    for target, expected in zip(targets[12:], states[12:], strict=True):
        simulator.step(0, target)
        np.testing.assert_array_equal(simulator.get_physics_state(0), expected)


def test_a_state_of_another_size_is_refused(sim):
    with pytest.raises(SimulationError, match=r"shape \(3,\); this model needs"):
        sim.set_physics_state(0, np.zeros(3))


def test_reset_is_at_rest_with_targets_at_the_joints(sim, vial_config):
    run(sim, 0, commands(vial_config, 5))
    q = home(vial_config) + 0.1
    sim.reset(0, q, nominal_placements(vial_config))
    np.testing.assert_array_equal(sim.joint_positions(0), q)
    assert not sim.joint_velocities(0).any()
    np.testing.assert_array_equal(sim.data[0].ctrl, q)


def test_object_twist_is_the_derivative_of_the_pose(sim, vial_config):
    rng = np.random.default_rng(2)
    sim.reset(0, home(vial_config), {"vial": np.array([0.3, 0.0, 2.0, 0.5, 0.5, 0.1, 0.7])})
    slot = slice(int(a := sim.model.joint("vial").dofadr[0]), int(a) + 6)
    sim.data[0].qvel[slot] = rng.normal(size=6) * [1, 1, 1, 6, 6, 6]
    twist, before = sim.object_twist(0, "vial"), sim.object_pose(0, "vial")
    dt, qpos = 1e-6, sim.data[0].qpos.copy()
    mujoco.mj_integratePos(sim.model, qpos, sim.data[0].qvel, dt)
    after = qpos[sim.object_slice("vial")]
    np.testing.assert_allclose(twist[:3], (after[:3] - before[:3]) / dt, atol=1e-6)
    turned = rotation_from_quat(after[3:]) @ rotation_from_quat(before[3:]).T
    np.testing.assert_allclose(twist[3:], rotation_vector(turned) / dt, atol=1e-5)


def test_a_resting_object_presses_with_its_weight(vial_config):
    sim = MujocoSimulator(load_config(overrides=["task.name=vial_to_rack", "scene.physics.sleep=false"]))
    sim.reset(0, home(vial_config), nominal_placements(vial_config))
    hold(sim, 4.0)
    for name in ("vial", "rack"):
        mass = sim.model.body(name).mass[0]
        contacts = [c for c in sim.contacts(0) if name in (c.body_1, c.body_2)]
        assert {c.body_1 for c in contacts} | {c.body_2 for c in contacts} == {name, "mat"}
        assert sum(c.normal_force for c in contacts) == pytest.approx(9.81 * mass, rel=1e-2)
        assert all(0 <= c.depth < 2e-4 for c in contacts)
        assert sim.touching_bodies(0, name) == {sim.model.body("mat").id}
    assert not sim.object_twist(0, "vial")[:3].max() > 1e-3


def test_the_free_arm_touches_nothing_at_home(sim, vial_config):
    sim.reset(0, home(vial_config), nominal_placements(vial_config))
    hold(sim, 0.5)
    arm = {"base", "shoulder", "upper_arm", "lower_arm", "wrist", "gripper", "moving_jaw_so101_v1"}
    assert not [c for c in sim.contacts(0) if {c.body_1, c.body_2} & arm]


def test_joints_follow_their_targets(sim, vial_config):
    sim.reset(0, home(vial_config), nominal_placements(vial_config))
    target = home(vial_config) + [0.3, -0.2, 0.1, -0.2, 0.3, 0.5]
    for _ in range(60):
        sim.step(0, target)
    stiffness = np.array([joint.stiffness_nm_per_rad for joint in vial_config.robot.joints])
    friction = np.array([joint.friction_nm for joint in vial_config.robot.joints])
    sag = target - sim.joint_positions(0) - sim.data[0].qfrc_bias[:6] / stiffness
    assert (np.abs(sag) <= friction / stiffness + 1e-3).all()  # what gravity and dry friction leave, nothing else


@pytest.mark.parametrize("opening", range(4))
@pytest.mark.parametrize("lean_m", [0.0, 0.006])
def test_a_vial_let_go_in_an_opening_stays_and_counts(sim, vial_config, opening, lean_m):
    success = vial_config.task.active.success
    objects = nominal_placements(vial_config)
    x, y = success.openings_m[opening]
    objects["vial"] = np.array([*(objects["rack"][:3] + [x + lean_m, y, 0.036]), *UPRIGHT])
    q = home(vial_config)
    q[5] = 0.8
    sim.reset(0, q, objects)
    poses: dict[str, list] = {name: [] for name in sim.object_names}
    for _ in range(150):
        sim.step(0, q)
        for name, rows in poses.items():
            rows.append(sim.object_pose(0, name))
    verdict = judge(vial_config, {name: np.array(rows) for name, rows in poses.items()}, np.tile(q, (150, 1)))
    assert verdict.strict, verdict
    assert verdict.axis_distance_m < 0.014  # leaning into a corner: (24 - 14.45) mm in x and in y
    assert verdict.height_m == pytest.approx(0.031, abs=0.002)
    assert verdict.container_moved_m < 0.001


def test_a_vial_dropped_on_the_mat_upright_falls_over_and_comes_to_rest(sim, vial_config):
    objects = nominal_placements(vial_config)
    objects["vial"] = np.array([0.3, -0.1, 0.035 + 0.01725 + 0.02, *UPRIGHT]) + [0, 0, 0, 0, 0.02, 0, 0]
    sim.reset(0, home(vial_config), objects)
    poses = hold(sim, 5.0)["vial"]
    upright = rotation_from_quat(poses[-1, 3:])[2, 2]
    assert abs(upright) < 0.2  # a round bottom does not stand
    assert np.linalg.norm(sim.object_twist(0, "vial")[:3]) < 0.05
    assert poses[:, 2].min() > 0.035  # never through the mat


def test_a_lying_vial_rests_at_the_measured_height(sim, vial_config):
    sim.reset(0, home(vial_config), nominal_placements(vial_config))
    poses = hold(sim, 1.0)["vial"]
    assert poses[-1, 2] == pytest.approx(0.0505, abs=0.003)
    assert np.linalg.norm(poses[-1, :2] - poses[0, :2]) < 0.002


def test_unknown_and_fixed_objects_are_named(sim):
    with pytest.raises(SimulationError, match="no object 'cup' in this scene; it has vial, rack"):
        sim.object_pose(0, "cup")


def test_a_fixed_object_has_a_pose_and_cannot_be_moved():
    fixed = load_config(overrides=["scene.props.rack.free=false", "scene.props.rack.mass_kg=null"])
    sim = MujocoSimulator(fixed)
    sim.reset(0, home(fixed), {"vial": nominal_placements(fixed)["vial"]})
    np.testing.assert_allclose(sim.object_pose(0, "rack"), nominal_placements(fixed)["rack"], atol=1e-12)
    with pytest.raises(SimulationError, match="object 'rack' is fixed"):
        sim.object_slice("rack")
    assert not sim.touching_bodies(0, "rack")
