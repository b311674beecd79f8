"""Rigid transforms with numpy. Poses (..., 4, 4), rotations (..., 3, 3), quaternions (..., 4) w x y z, lengths in m."""

from __future__ import annotations

import numpy as np


def make_pose(rotation: np.ndarray, position: np.ndarray) -> np.ndarray:
    """(..., 3, 3) and (..., 3) to (..., 4, 4)."""
    rotation, position = np.asarray(rotation, float), np.asarray(position, float)
    pose = np.zeros(np.broadcast_shapes(rotation.shape[:-2], position.shape[:-1]) + (4, 4))
    pose[..., :3, :3] = rotation
    pose[..., :3, 3] = position
    pose[..., 3, 3] = 1.0
    return pose


def invert_pose(T_A_B: np.ndarray) -> np.ndarray:
    """T_B_A of a (..., 4, 4) rigid transform, exactly (transpose, no general inverse)."""
    R_B_A = np.swapaxes(T_A_B[..., :3, :3], -1, -2)
    return make_pose(R_B_A, -(R_B_A @ T_A_B[..., :3, 3:])[..., 0])


def rotation_from_quat(quat_wxyz: np.ndarray) -> np.ndarray:
    """(..., 4) to (..., 3, 3); the quaternion is normalised first."""
    q = np.asarray(quat_wxyz, float)
    w, x, y, z = np.moveaxis(q / np.linalg.norm(q, axis=-1, keepdims=True), -1, 0)
    return np.stack(
        [
            np.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)], -1),
            np.stack([2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)], -1),
            np.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], -1),
        ],
        -2,
    )


def quat_from_rotation(rotation: np.ndarray) -> np.ndarray:
    """(..., 3, 3) to (..., 4) with w >= 0, by Shepperd's method (1978): the largest of w, x, y, z is found first, so
    the square root never loses digits, neither near the identity nor at half turns."""
    R = np.asarray(rotation, float)
    d0, d1, d2 = R[..., 0, 0], R[..., 1, 1], R[..., 2, 2]
    squares = np.stack([1 + d0 + d1 + d2, 1 + d0 - d1 - d2, 1 - d0 + d1 - d2, 1 - d0 - d1 + d2], -1)  # 4 w^2, 4 x^2 ..
    wx, wy, wz = R[..., 2, 1] - R[..., 1, 2], R[..., 0, 2] - R[..., 2, 0], R[..., 1, 0] - R[..., 0, 1]
    xy, xz, yz = R[..., 0, 1] + R[..., 1, 0], R[..., 0, 2] + R[..., 2, 0], R[..., 1, 2] + R[..., 2, 1]
    rows = np.stack(
        [
            np.stack([squares[..., 0], wx, wy, wz], -1),
            np.stack([wx, squares[..., 1], xy, xz], -1),
            np.stack([wy, xy, squares[..., 2], yz], -1),
            np.stack([wz, xz, yz, squares[..., 3]], -1),
        ],
        -2,
    )
    best = np.argmax(squares, -1)[..., None, None]
    q = np.take_along_axis(rows, best, -2)[..., 0, :]
    q = q / np.linalg.norm(q, axis=-1, keepdims=True)
    return np.where(q[..., :1] < 0, -q, q)


def rotation_vector(rotation: np.ndarray) -> np.ndarray:
    """Logarithm of (..., 3, 3): axis times angle (..., 3), angle in [0, pi] rad."""
    q = quat_from_rotation(rotation)
    sine = np.linalg.norm(q[..., 1:], axis=-1, keepdims=True)  # of the half angle
    angle = 2 * np.arctan2(sine, q[..., :1])
    scale = np.where(sine > 1e-12, angle / np.where(sine > 1e-12, sine, 1.0), 2.0)
    return q[..., 1:] * scale


def rotation_from_rotation_vector(vector: np.ndarray) -> np.ndarray:
    """Exponential of (..., 3) axis times angle [rad] to (..., 3, 3)."""
    v = np.asarray(vector, float)
    angle = np.linalg.norm(v, axis=-1, keepdims=True)
    half_sinc = np.where(angle > 1e-12, np.sin(angle / 2) / np.where(angle > 1e-12, angle, 1.0), 0.5)
    return rotation_from_quat(np.concatenate([np.cos(angle / 2), v * half_sinc], -1))


def rotation_about_axis(axis: np.ndarray, angle: np.ndarray | float) -> np.ndarray:
    """Rotation (..., 3, 3) by `angle` [rad] about the unit vector `axis` (..., 3)."""
    return rotation_from_rotation_vector(np.asarray(axis, float) * np.asarray(angle, float)[..., None])


def rotation_angle(R_A: np.ndarray, R_B: np.ndarray) -> np.ndarray:
    """Angle [rad] in [0, pi] between two rotations (..., 3, 3)."""
    return np.linalg.norm(rotation_vector(np.swapaxes(R_A, -1, -2) @ R_B), axis=-1)


def pose_from_pos_quat(pos_quat: np.ndarray) -> np.ndarray:
    """(..., 7) position [m] and quaternion w x y z to (..., 4, 4)."""
    pos_quat = np.asarray(pos_quat, float)
    return make_pose(rotation_from_quat(pos_quat[..., 3:]), pos_quat[..., :3])


def pose_to_pos_quat(T_A_B: np.ndarray) -> np.ndarray:
    """(..., 4, 4) to (..., 7) position [m] and quaternion w x y z."""
    return np.concatenate([T_A_B[..., :3, 3], quat_from_rotation(T_A_B[..., :3, :3])], -1)


def interpolate_pose(T_A_B: np.ndarray, T_A_C: np.ndarray, fractions: np.ndarray) -> np.ndarray:
    """Poses (N, 4, 4) from B (fraction 0) to C (fraction 1): straight line in position, constant axis in rotation."""
    f = np.asarray(fractions, float)
    R_A_B = T_A_B[:3, :3]
    step = rotation_vector(R_A_B.T @ T_A_C[:3, :3])
    position = T_A_B[:3, 3] + f[:, None] * (T_A_C[:3, 3] - T_A_B[:3, 3])
    return make_pose(R_A_B @ rotation_from_rotation_vector(f[:, None] * step), position)


def align_about_axis(R_A: np.ndarray, R_reference: np.ndarray, axis: np.ndarray) -> np.ndarray:
    """R_A turned about its own `axis` (unit, body frame) so that it is as close to R_reference as it can be.

    Used for objects that look the same from every side of an axis (the vial). Maximises trace(R_reference^T R_A
    R(axis, a))
    over a: with M = R_reference^T R_A the optimum is a = -atan2(s, c), where s = axis . vee(M - M^T) and
    c = trace(M) - axis^T M axis.
    """
    M = R_reference.T @ R_A
    skew = np.array([M[2, 1] - M[1, 2], M[0, 2] - M[2, 0], M[1, 0] - M[0, 1]])
    angle = -np.arctan2(axis @ skew, np.trace(M) - axis @ M @ axis)
    return R_A @ rotation_about_axis(axis, angle)
