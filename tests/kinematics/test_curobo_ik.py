"""cuRobo as a backend: reaches, frees what has no weight, repeats itself, says what is wrong with the installation."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from so101.config import load_config
from so101.config.ik import AxisWeights
from so101.errors import ConfigError
from so101.geometry import rotation_about_axis, rotation_angle
from so101.kinematics import ArmKinematics, make_ik
from so101.kinematics import curobo_package as package

pytest.importorskip("curobo")
torch.set_num_threads(1)  # as workers do; its threads would wait for each other on tensors this small

# A few seeds and iterations: what is tested does not need more, and a test should take seconds.
QUICK = [
    "ik.backend=curobo",
    "ik.curobo.goal={seeds: 8, iterations: 24}",
    "ik.curobo.spheres.samples_per_part=300",
    "ik.curobo.spheres.rounds=4",
]


def make(*overrides: str):
    return make_ik(load_config(overrides=[*QUICK, *overrides]))


@pytest.fixture(scope="module")
def ik():
    return make()


@pytest.fixture(scope="module")
def targets(vial_config) -> np.ndarray:
    """(12, 5) joints well inside the limits, free of self-collision."""
    arm = ArmKinematics(vial_config)
    middle, half = (arm.lower + arm.upper)[:5] / 2, (arm.upper - arm.lower)[:5] / 2
    return middle + half * np.random.default_rng(7).uniform(-0.5, 0.5, (12, 5))


@pytest.fixture(scope="module")
def home(vial_config) -> np.ndarray:
    return np.array([joint.home_rad for joint in vial_config.robot.joints[:5]])


def one(ik, q, T):
    return next(ik.solve_from(np.atleast_2d(q), T))


def test_poses_of_the_arm_are_found_from_far_away(ik, targets, home):
    results = ik.solve_batch(np.repeat(home[None], len(targets), 0), ik.kinematics.fk(targets))
    reached = [r.position_error_m < 1e-3 and r.rotation_error_rad < 0.02 for r in results]
    assert sum(reached) >= 11
    for r in results:
        assert (r.q >= ik.kinematics.lower[:5]).all() and (r.q <= ik.kinematics.upper[:5]).all()


def test_errors_returned_are_those_of_the_joints_returned(ik, targets):
    T = ik.kinematics.fk(targets[0])
    result = ik.solve(targets[1], T)
    now = ik.kinematics.fk(result.q)
    assert result.position_error_m == pytest.approx(np.linalg.norm(now[:3, 3] - T[:3, 3]), abs=1e-12)
    assert result.rotation_error_rad == pytest.approx(rotation_angle(now[:3, :3], T[:3, :3]), abs=1e-7)


def test_without_rotation_weights_position_is_exact_and_rotation_free(vial_config, targets, home):
    """The order of cuRobo's weight vector is right: were it rotation first, rotation would be exact instead."""
    free = make(
        "ik.curobo.weights={x: 1, y: 1, z: 1, rot_x: 0, rot_y: 0, rot_z: 0}",
        "ik.curobo.polish_iterations=0",
        "ik.curobo.joint_distance_weight=0.0",
    )
    rotation_errors = []
    for q in targets[:3]:
        T = free.kinematics.fk(q)
        T[:3, :3] = T[:3, :3] @ rotation_about_axis(np.array([0.0, 1.0, 0.0]), 0.8)  # nobody can serve this
        effort = free.settings.goal
        found = free.candidates(free._seeds(home[None], effort), T[None], effort)[0]
        T_found = free.kinematics.fk(found)
        best = np.linalg.norm(T_found[:, :3, 3] - T[:3, 3], axis=1).argmin()
        assert np.linalg.norm(T_found[best, :3, 3] - T[:3, 3]) < 5e-5
        rotation_errors.append(rotation_angle(T_found[best, :3, :3], T[:3, :3]))
    assert min(rotation_errors) > 0.1


def test_weights_go_by_name(monkeypatch):
    weights = AxisWeights(x=1.0, y=2.0, z=3.0, rot_x=4.0, rot_y=5.0, rot_z=16.0)
    monkeypatch.setattr(package, "installed_package", lambda: package.METAL)
    assert package.axis_weights(weights) == [1.0, 2.0, 3.0, 4.0, 5.0, 16.0]
    monkeypatch.setattr(package, "installed_package", lambda: "nvidia-curobo")  # it squares the weights
    assert package.axis_weights(weights)[-1] == pytest.approx(4.0)


def test_rotation_that_cannot_be_served_costs_no_position(ik, targets):
    for q in targets[:3]:
        T = ik.kinematics.fk(q)
        T[:3, :3] = T[:3, :3] @ rotation_about_axis(np.array([0.0, 1.0, 0.0]), 0.3)
        assert one(ik, q, T).position_error_m < 2e-4


def test_the_same_question_gets_the_same_bits_whatever_was_asked_before(ik, targets, home):
    T = ik.kinematics.fk(targets[2])
    first, near = one(ik, home, T), ik.solve(targets[2] + 0.03, T)
    for q in targets[4:5]:  # others in between
        one(ik, q, ik.kinematics.fk(targets[8]))
        ik.solve(q, ik.kinematics.fk(targets[9]))
    ik.solve_batch(targets[:3], ik.kinematics.fk(targets[3:6]))
    again = one(make(), home, T)  # another solver altogether
    np.testing.assert_array_equal(one(ik, home, T).q, first.q)
    np.testing.assert_array_equal(again.q, first.q)
    np.testing.assert_array_equal(ik.solve(targets[2] + 0.03, T).q, near.q)


def test_a_batch_finds_what_single_solves_find(ik, targets, home):
    T = ik.kinematics.fk(targets[:3])
    batch = ik.solve_batch(np.repeat(home[None], 3, 0), T)
    for result, pose in zip(batch, T, strict=True):
        alone = one(ik, home, pose)
        assert result.position_error_m < 1e-3 and result.rotation_error_rad < 0.02
        np.testing.assert_allclose(result.q, alone.q, atol=1e-3)  # float32 sums differ by the size of a batch


def test_a_path_is_followed_without_change_of_branch(ik, home):
    q, joints = home, home + np.linspace(0, 1, 25)[:, None] * np.array([0.5, 0.3, -0.3, -0.2, 0.2])
    for T in ik.kinematics.fk(joints)[1:]:
        result = ik.solve(q, T)
        assert np.abs(result.q - q).max() < 0.1
        assert result.position_error_m < 1e-3
        q = result.q
    np.testing.assert_allclose(q, joints[-1], atol=0.05)


# Self-collision


def test_home_and_working_poses_are_free_and_a_folded_arm_is_not(ik, home, vial_seeds):
    assert ik.self_collision.free(home)
    for seed in vial_seeds:
        for q in seed.q[::15]:
            assert ik.self_collision.free(q[:5])
    assert ik.self_collision.depth_m(np.array([0.0, -1.7, 1.69, 1.6, 0.0])) > 0.005  # the hand in the base
    assert not ik.self_collision.free(np.array([0.0, -1.7, 1.69, 1.6, 0.0]))


def test_a_solution_in_self_collision_is_passed_over(ik):
    folded = np.array([0.0, -1.7, 1.69, 1.6, 0.0])
    T = ik.kinematics.fk(folded)
    free = np.array([0.0, -1.0, 1.0, 1.0, 0.0])
    np.testing.assert_array_equal(ik._choose(np.stack([folded, free]), folded, T), free)
    careless = make("ik.curobo.self_collision.enabled=false")
    np.testing.assert_array_equal(careless._choose(np.stack([folded, free]), folded, T), folded)


def test_spheres_stand_where_curobo_has_them(ik, targets):
    from so101.kinematics.curobo_robot import link_spheres, robot_description

    config = load_config(overrides=QUICK)
    robot = package.make_kinematics(robot_description(config))
    state = robot.compute_kinematics(package.joint_state(targets, robot.joint_names))
    spheres = state.robot_spheres.reshape(len(targets), -1, 4).cpu().numpy()
    for q, found in zip(targets, spheres, strict=True):
        np.testing.assert_allclose(found[:, :3], ik.self_collision.centers(q), atol=1e-5)
    overlap = config.ik.curobo.self_collision.allowed_overlap_m
    np.testing.assert_allclose(spheres[0, :, 3], link_spheres(config.ik.curobo.spheres).radii - overlap / 2, atol=1e-6)
    poses = state.tool_poses.position.reshape(-1, 3).cpu().numpy()
    np.testing.assert_allclose(poses, ik.kinematics.fk(targets)[:, :3, 3], atol=1e-5)


# What is installed


def test_a_missing_package_is_named_with_the_command_that_installs_it():
    with pytest.raises(ConfigError, match="pip install curobo-metal") as caught:
        package.choose_package([], importable=False)
    assert "ik.backend=jacobian" in str(caught.value)


def test_two_packages_are_refused_and_both_are_named():
    with pytest.raises(ConfigError, match="overwrite each other") as caught:
        package.choose_package(["curobo-metal", "nvidia-curobo"], importable=True)
    assert "pip uninstall curobo-metal nvidia-curobo" in str(caught.value)


def test_the_fused_kernels_are_off_and_the_iterations_ours(vial_config):
    settings = vial_config.ik.curobo
    values = package._lbfgs(settings, settings.goal)
    optimizer = values["optimizer"]
    assert not any(value for key, value in optimizer.items() if key.startswith("use_cuda_kernel"))
    assert optimizer["num_iters"] == 100 and optimizer["num_iters"] % optimizer["inner_iters"] == 0


def test_the_default_never_imports_curobo():
    code = (
        "import sys; from so101.config import load_config; from so101.kinematics import make_ik; "
        "make_ik(load_config()); import so101.skillgen.ik_rollout; "
        "sys.exit(any(name.split('.')[0].startswith('curobo') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=False).returncode == 0
