"""Forward kinematics and Jacobian against the full model and finite differences; the rotation the arm cannot serve."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from so101.geometry import make_pose, rotation_vector
from so101.kinematics import ArmKinematics
from so101.sim.bake import EE_SITE, baked_model

UP = np.array([0.0, 0.0, 1.0])
# shoulder_pan, shoulder_lift, elbow_flex, wrist_flex, wrist_roll.
TYPICAL = {
    "home": [-0.15, -0.61, -0.07, 1.51, 1.57],
    "grasp, dip 65 deg": [0.28, 0.55, -0.43, 1.00, 1.57],
    "grasp, dip 50 deg": [0.28, 0.29, 0.14, 0.43, 1.57],
    "grasp, dip 20 deg": [0.28, 0.35, 0.67, -0.68, 1.57],
    "place, level": [-0.50, 0.20, 0.30, -0.50, 1.57],
}


@pytest.fixture(scope="module")
def arm(vial_config):
    return ArmKinematics(vial_config)


def random_joints(arm: ArmKinematics, n: int, seed: int = 0) -> np.ndarray:
    """(n, 5) within the limits."""
    return np.random.default_rng(seed).uniform(arm.lower[:5], arm.upper[:5], (n, 5))


def unserved(arm: ArmKinematics, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """With the position held: unit direction (3,) in base about which the joints turn the hand least, and the three
    singular values (rad of the hand a rad of the joints, largest first) of the turns they do serve."""
    J = arm.jacobian(q)
    freedom = np.linalg.svd(J[:3])[2][3:].T  # (5, 2) joint motions that keep the position
    u, s, _ = np.linalg.svd(J[3:] @ freedom)
    return u[:, 2], np.append(s, 0.0)


def test_fk_is_the_site_of_the_full_model(arm, vial_config):
    model = baked_model(vial_config)
    data, site = mujoco.MjData(model), model.site(EE_SITE).id
    for q in random_joints(arm, 20):
        data.qpos[:5] = q
        mujoco.mj_forward(model, data)
        expected = make_pose(data.site_xmat[site].reshape(3, 3), data.site_xpos[site])
        np.testing.assert_allclose(arm.fk(q), expected, atol=1e-12)


def test_the_jaw_moves_no_frame_of_the_arm(arm):
    q = random_joints(arm, 1)[0]
    np.testing.assert_array_equal(arm.fk(np.append(q, -0.1)), arm.fk(np.append(q, 1.7)))
    np.testing.assert_array_equal(arm.jacobian(np.append(q, -0.1)), arm.jacobian(np.append(q, 1.7)))


def test_fk_of_many_is_fk_of_each_and_remembers_nothing(arm):
    q = random_joints(arm, 6).reshape(2, 3, 5)
    poses = arm.fk(q)
    assert poses.shape == (2, 3, 4, 4)
    np.testing.assert_array_equal(poses[1, 2], arm.fk(q[1, 2]))


def test_jacobian_is_the_derivative_of_fk(arm):
    h = 1e-6
    for q in random_joints(arm, 15, seed=1):
        J = arm.jacobian(q)
        assert J.shape == (6, 5)
        for joint in range(5):
            step = h * np.eye(5)[joint]
            before, after = arm.fk(q - step), arm.fk(q + step)
            np.testing.assert_allclose(J[:3, joint], (after[:3, 3] - before[:3, 3]) / (2 * h), atol=1e-8)
            turn = rotation_vector(after[:3, :3] @ before[:3, :3].T) / (2 * h)
            np.testing.assert_allclose(J[3:, joint], turn, atol=1e-8)


def test_shoulder_pan_turns_about_minus_the_vertical_and_wrist_roll_about_the_approach(arm):
    for q in random_joints(arm, 10, seed=2):
        J, R = arm.jacobian(q), arm.fk(q)[:3, :3]
        np.testing.assert_allclose(J[3:, 0], -UP, atol=1e-6)
        assert abs(J[3:, 4] @ R[:, 0]) > 0.998  # the blog's "approach axis cannot be controlled" is the opposite


@pytest.mark.parametrize("q", TYPICAL.values(), ids=TYPICAL)
def test_the_rotation_no_joint_serves_is_across_the_approach_in_the_arms_plane(arm, q):
    """docs/ik.md: with the position held, joints serve roll about the approach and pitch about the arm's horizontal
    axis; what is left lies in the vertical plane of the arm, square to the approach: the ee's y axis when the pinch is
    horizontal. It is the base's vertical only as far as the hand is level."""
    lost, served = unserved(arm, np.array(q))
    R = arm.fk(np.array(q))[:3, :3]
    approach, level = R[:, 0], np.cross(UP, R[:, 0]) / np.linalg.norm(np.cross(UP, R[:, 0]))
    assert served[0] > 0.98 and served[1] > 0.2  # two turns are served well
    assert abs(lost @ approach) < 0.08
    assert abs(lost @ level) < 0.08
    assert abs(lost @ R[:, 1]) > 0.98
    assert abs(lost @ UP) == pytest.approx(np.hypot(*approach[:2]), abs=0.03)  # cosine of the dip


def test_five_joints_leave_exactly_one_direction(arm):
    for q in random_joints(arm, 20, seed=3):
        assert np.linalg.matrix_rank(arm.jacobian(q)) == 5
