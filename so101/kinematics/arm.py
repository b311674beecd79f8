"""Forward kinematics and Jacobian of the arm alone, in the base frame, from the baked model (no objects, no
physics)."""

from __future__ import annotations

import mujoco
import numpy as np

from so101.config import Config
from so101.sim.bake import EE_SITE, baked_model

NUM_ARM_JOINTS = 5


class ArmKinematics:
    """FK and Jacobian at the end effector. Not thread-safe: it owns one MjData."""

    def __init__(self, config: Config) -> None:
        self._model = baked_model(config, looks=False, props=False)
        self._data = mujoco.MjData(self._model)
        self._site = self._model.site(EE_SITE).id
        self._jac_pos = np.zeros((3, self._model.nv))
        self._jac_rot = np.zeros((3, self._model.nv))
        self._torque = np.zeros(self._model.nv)
        self._qpos = self._data.qpos
        self._xpos = self._data.site_xpos[self._site]
        self._xmat = self._data.site_xmat[self._site].reshape(3, 3)
        joints = config.robot.joints
        self.lower = np.array([joint.lower_rad for joint in joints])
        self.upper = np.array([joint.upper_rad for joint in joints])

    def update(self, q_arm: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Set (5,) or (6,) joints [rad]; returns views of p_base_ee (3,) m and R_base_ee (3, 3), valid until the next
        call.

        The jaw angle is left at 0: it moves no frame of the arm, but it would reach the last bits of the Jacobian (by
        way of the centre of mass MuJoCo measures from) and make a solution depend on what was asked before.
        """
        self._qpos[:NUM_ARM_JOINTS] = q_arm[:NUM_ARM_JOINTS]
        mujoco.mj_kinematics(self._model, self._data)
        return self._xpos, self._xmat

    def update_with_jacobian(self, q_arm: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """As `update`, with views of the (3, 5) translation and (3, 5) rotation Jacobians in base axes."""
        position, rotation = self.update(q_arm)
        mujoco.mj_comPos(self._model, self._data)
        mujoco.mj_jacSite(self._model, self._data, self._jac_pos, self._jac_rot, self._site)
        return position, rotation, self._jac_pos[:, :NUM_ARM_JOINTS], self._jac_rot[:, :NUM_ARM_JOINTS]

    def joint_axes(self, q_arm: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(5, 3) a point on each joint's axis, m, and (5, 3) its unit direction, in base at joints (5,) rad."""
        self.update(q_arm)
        return self._data.xanchor[:NUM_ARM_JOINTS].copy(), self._data.xaxis[:NUM_ARM_JOINTS].copy()

    def gravity_torque(self, q_arm: np.ndarray) -> np.ndarray:
        """(5,) N m by which the servos hold the arm, hand empty, at rest at joints (5,) or (6,) rad."""
        self.update(q_arm)
        model, data = self._model, self._data
        mujoco.mj_comPos(model, data)
        mujoco.mj_rne(model, data, 0, self._torque)  # with the velocities this data was made with: zero
        return self._torque[:NUM_ARM_JOINTS].copy()

    def body_ids(self, names: list[str]) -> np.ndarray:
        """(n,) ids of bodies for `bodies`."""
        return np.array([self._model.body(name).id for name in names])

    def bodies(self, q_arm: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Positions (n, 3) m and rotations (n, 3, 3) in base of bodies at joints (5,) or (6,) rad."""
        self.update(q_arm)
        return self._data.xpos[ids], self._data.xmat[ids].reshape(-1, 3, 3)

    def fk(self, q: np.ndarray) -> np.ndarray:
        """(N, 5 or 6) joints [rad] to (N, 4, 4) T_base_ee; (5 or 6,) to (4, 4)."""
        q = np.asarray(q, float)
        poses = np.zeros((*q.shape[:-1], 4, 4))
        poses[..., 3, 3] = 1.0
        flat = poses.reshape(-1, 4, 4)
        for row, joints in zip(flat, q.reshape(-1, q.shape[-1]), strict=True):
            row[:3, 3], row[:3, :3] = self.update(joints)
        return poses

    def jacobian(self, q: np.ndarray) -> np.ndarray:
        """(5 or 6,) joints [rad] to (6, 5): rows [0:3] translation m/rad, [3:6] rotation, base axes, at the ee
        point."""
        _, _, translation, rotation = self.update_with_jacobian(np.asarray(q, float))
        return np.vstack([translation, rotation])
