"""Batched SE(3) on torch tensors, for retargeting. Poses (..., 4, 4), quaternions (..., 4) w x y z."""

from __future__ import annotations

import torch
from torch import Tensor


def invert_pose(T_A_B: Tensor) -> Tensor:
    """T_B_A of a rigid transform (..., 4, 4), by transposition."""
    R_B_A = T_A_B[..., :3, :3].transpose(-1, -2)
    T_B_A = torch.zeros_like(T_A_B)
    T_B_A[..., :3, :3] = R_B_A
    T_B_A[..., :3, 3] = -(R_B_A @ T_A_B[..., :3, 3:])[..., 0]
    T_B_A[..., 3, 3] = 1.0
    return T_B_A


def quat_from_rotation(R: Tensor) -> Tensor:
    """(..., 3, 3) to (..., 4) w x y z with w >= 0, by Shepperd's method (J. Guidance and Control 1 (3), 1978).

    The largest of 4w^2, 4x^2, 4y^2, 4z^2 is divided by, never a small one: exact near 0 and near 180 degrees.
    """
    m00, m11, m22 = R[..., 0, 0], R[..., 1, 1], R[..., 2, 2]
    squares = torch.stack([1 + m00 + m11 + m22, 1 + m00 - m11 - m22, 1 - m00 + m11 - m22, 1 - m00 - m11 + m22], -1)
    wx, wy, wz = R[..., 2, 1] - R[..., 1, 2], R[..., 0, 2] - R[..., 2, 0], R[..., 1, 0] - R[..., 0, 1]
    xy, xz, yz = R[..., 0, 1] + R[..., 1, 0], R[..., 0, 2] + R[..., 2, 0], R[..., 1, 2] + R[..., 2, 1]
    w2, x2, y2, z2 = squares.unbind(-1)
    candidates = torch.stack(
        [
            torch.stack([w2, wx, wy, wz], -1),
            torch.stack([wx, x2, xy, xz], -1),
            torch.stack([wy, xy, y2, yz], -1),
            torch.stack([wz, xz, yz, z2], -1),
        ],
        -2,
    )
    best = squares.argmax(-1)[..., None, None].expand(*squares.shape[:-1], 1, 4)
    q = torch.gather(candidates, -2, best)[..., 0, :]
    q = q / q.norm(dim=-1, keepdim=True)
    return torch.where(q[..., :1] < 0, -q, q)


def rotation_from_quat(q: Tensor) -> Tensor:
    """(..., 4) w x y z to (..., 3, 3); normalised first."""
    w, x, y, z = (q / q.norm(dim=-1, keepdim=True)).unbind(-1)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return torch.stack([torch.stack(row, -1) for row in rows], -2)
