"""Damped least squares IK for five joints.

The arm has one direction fewer than a pose, so position comes first: rows of the error are weighted, and rotation is
scaled down continuously while the position is off (`adaptive_rotation`). Two formulations:

- ``weighted``: dq = (J^T W J + l^2 I)^-1 J^T W e, one problem for all six rows;
- ``position_first``: the position rows are served by their own damped pseudo-inverse, rotation only in what joint
  freedom they leave (task priority, Nakamura 1987).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dposv

from so101.config import Config
from so101.config.ik import JacobianConfig
from so101.kinematics.arm import NUM_ARM_JOINTS, ArmKinematics


class IkResult(NamedTuple):
    """Joint angles q (5,) rad and what remains of the error: m and rad."""

    q: np.ndarray
    position_error_m: float
    rotation_error_rad: float
    iterations: int


class IkStep(NamedTuple):
    """One iteration: joint step dq (5,) rad after the clamp, its largest entry, and the errors before it."""

    dq: np.ndarray
    largest_rad: float
    position_error_m: float
    rotation_error_rad: float


def _solve(A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """x with A x = b for small symmetric positive definite A; LAPACK directly, numpy's wrapper costs more than the
    solve."""
    return dposv(A, b)[1]


def _rotation_error(R_target: np.ndarray, R_now: np.ndarray) -> np.ndarray:
    """Rotation vector (3,) in base axes that turns R_now into R_target; plain floats, this is the hot path."""
    (r00, r01, r02), (r10, r11, r12), (r20, r21, r22) = (R_target @ R_now.T).tolist()
    vx, vy, vz = r21 - r12, r02 - r20, r10 - r01
    sine = 0.5 * math.sqrt(vx * vx + vy * vy + vz * vz)
    cosine = 0.5 * (r00 + r11 + r22 - 1.0)
    if sine < 1e-9:
        if cosine > 0:
            return np.zeros(3)
        R = np.array([[r00, r01, r02], [r10, r11, r12], [r20, r21, r22]])  # half turn: axis from the symmetric part
        k = int(np.argmax(np.diag(R)))
        axis = R[:, k] + np.eye(3)[k]
        return np.pi * axis / np.linalg.norm(axis)
    scale = 0.5 * math.atan2(sine, cosine) / sine
    return np.array([vx * scale, vy * scale, vz * scale])


class JacobianIk:
    """Iterative IK from the current joints to a target pose in base."""

    def __init__(self, config: Config, kinematics: ArmKinematics | None = None) -> None:
        self.settings: JacobianConfig = config.ik.jacobian
        self.kinematics = kinematics or ArmKinematics(config)
        weights = self.settings.weights
        self._w_pos = np.array([weights.x, weights.y, weights.z])
        self._w_rot = np.array([weights.rot_x, weights.rot_y, weights.rot_z])
        self._lower = self.kinematics.lower[:NUM_ARM_JOINTS]
        self._upper = self.kinematics.upper[:NUM_ARM_JOINTS]
        self._position_first = self.settings.formulation == "position_first"
        self._eye5, self._zero5 = np.eye(NUM_ARM_JOINTS), np.zeros(NUM_ARM_JOINTS)
        self._damping_pos = self.settings.position_damping**2 * np.eye(3)
        self._damping_rot = self.settings.damping**2 * np.eye(3)
        self._damping_all = self.settings.damping**2 * self._eye5
        self._right = np.empty((3, NUM_ARM_JOINTS + 1))
        margin = self.settings.null_space.margin_rad
        self._margin_low, self._margin_high = self._lower + margin, self._upper - margin
        # Five numbers are compared faster as Python floats than by numpy calls.
        self._lower_list, self._upper_list = self._lower.tolist(), self._upper.tolist()
        self._margin_low_list, self._margin_high_list = self._margin_low.tolist(), self._margin_high.tolist()
        self._adaptive = self.settings.adaptive_rotation.enabled
        self._in_ee = self.settings.rotation_frame == "ee"

    def step(self, q: np.ndarray, T_base_target: np.ndarray) -> IkStep:
        """One iteration from joints q (5,) rad towards T_base_target (4, 4)."""
        s = self.settings
        position, rotation, J_pos, J_rot = self.kinematics.update_with_jacobian(q)
        e_pos = T_base_target[:3, 3] - position
        e_rot = _rotation_error(T_base_target[:3, :3], rotation)
        pos_error, rot_error = math.sqrt(e_pos @ e_pos), math.sqrt(e_rot @ e_rot)
        w_rot = self._w_rot
        if self._adaptive and pos_error > s.adaptive_rotation.threshold_m:
            w_rot = w_rot * max(s.adaptive_rotation.threshold_m / pos_error, s.adaptive_rotation.floor)
        if self._in_ee:
            rotation_T = rotation.T
            e_rot, J_rot = rotation_T @ e_rot, rotation_T @ J_rot
        joints = q.tolist()
        bias = self._limit_bias(q, joints)
        dq = self._joint_step(J_pos, J_rot, e_pos, e_rot, w_rot, bias)
        steps = dq.tolist()
        if any(
            not low <= joint + step <= high
            for joint, step, low, high in zip(joints, steps, self._lower_list, self._upper_list, strict=True)
        ):  # joints that hit a limit stop there, the others solve for what is left
            beyond = np.minimum(np.maximum(dq, self._lower - q), self._upper - q)
            stopped = beyond != dq
            fixed = np.where(stopped, beyond, 0.0)
            J_pos_free, J_rot_free = np.where(stopped, 0.0, J_pos), np.where(stopped, 0.0, J_rot)
            left_pos, left_rot = e_pos - J_pos @ fixed, e_rot - J_rot @ fixed
            rest = self._joint_step(J_pos_free, J_rot_free, left_pos, left_rot, w_rot, bias)
            dq = fixed + np.where(stopped, 0.0, rest)
            steps = dq.tolist()
        largest = max(map(abs, steps))
        if largest > s.max_delta_q_rad:
            dq = dq * (s.max_delta_q_rad / largest)
            largest = s.max_delta_q_rad
        return IkStep(dq, largest, pos_error, rot_error)

    def _joint_step(
        self,
        J_pos: np.ndarray,
        J_rot: np.ndarray,
        e_pos: np.ndarray,
        e_rot: np.ndarray,
        w_rot: np.ndarray,
        bias: np.ndarray,
    ) -> np.ndarray:
        """Unclamped dq (5,) rad of the chosen formulation; `bias` (5,) is the wish of the null space."""
        if self._position_first:
            right = self._right
            right[:, :NUM_ARM_JOINTS] = J_pos
            right[:, NUM_ARM_JOINTS] = self._w_pos * e_pos
            J_pos_T = J_pos.T
            P = J_pos_T @ _solve(J_pos @ J_pos_T + self._damping_pos, right)  # (5, 6)
            dq = P[:, NUM_ARM_JOINTS]
            N = self._eye5 - P[:, :NUM_ARM_JOINTS]
            J_null = (w_rot[:, None] * J_rot) @ N
            left = w_rot * (e_rot - J_rot @ dq)
            return dq + N @ (J_null.T @ _solve(J_null @ J_null.T + self._damping_rot, left[:, None])[:, 0] + bias)
        J = np.concatenate([self._w_pos[:, None] * J_pos, w_rot[:, None] * J_rot])
        e = np.concatenate([self._w_pos * e_pos, w_rot * e_rot])
        right = J.T @ e + self.settings.damping**2 * bias
        return _solve(J.T @ J + self._damping_all, right[:, None])[:, 0]

    def _limit_bias(self, q: np.ndarray, joints: list[float]) -> np.ndarray:
        """Push (5,) rad away from joint limits, zero outside the margin."""
        if all(
            low <= joint <= high
            for joint, low, high in zip(joints, self._margin_low_list, self._margin_high_list, strict=True)
        ):
            return self._zero5
        low, high = np.maximum(self._margin_low - q, 0.0), np.maximum(q - self._margin_high, 0.0)
        return self.settings.null_space.gain * (low - high)

    def solve_from(
        self, starts: np.ndarray, T_base_target: np.ndarray, iterations: int | None = None
    ) -> Iterator[IkResult]:
        """One solution a start (n, 5) rad, in their order, solved when it is asked for."""
        return (self.solve(q, T_base_target, iterations) for q in starts)

    def solve(self, q: np.ndarray, T_base_target: np.ndarray, iterations: int | None = None) -> IkResult:
        """Iterate from q (5,) rad. The errors returned are those of the returned joints.

        Args:
            iterations: at most this many; `iterations_per_frame` of the configuration when None.
        """
        s = self.settings
        limit = iterations if iterations is not None else s.iterations_per_frame
        q = np.array(q[:NUM_ARM_JOINTS], float)
        for iteration in range(limit):
            step = self.step(q, T_base_target)
            if step.largest_rad < s.step_tolerance_rad:
                return IkResult(q, step.position_error_m, step.rotation_error_rad, iteration)
            q = np.minimum(np.maximum(q + step.dq, self._lower), self._upper)
        position, rotation = self.kinematics.update(q)
        e_pos = T_base_target[:3, 3] - position
        e_rot = _rotation_error(T_base_target[:3, :3], rotation)
        return IkResult(q, math.sqrt(e_pos @ e_pos), math.sqrt(e_rot @ e_rot), limit)
