"""Carry end-effector paths from a seed's object pose to a new one. Pure tensor algebra: no simulator, any batch
size."""

from __future__ import annotations

import torch
from torch import Tensor

from so101.geometry.se3_torch import invert_pose, quat_from_rotation, rotation_from_quat


def object_shift(T_base_obj_new: Tensor, T_base_obj_seed: Tensor) -> Tensor:
    """dT = T_new T_seed^-1, (..., 4, 4): the motion of base-frame space that carries the seed's object onto the new
    one."""
    return T_base_obj_new @ invert_pose(T_base_obj_seed)


def retarget(T_base_ee_seed: Tensor, T_base_obj_seed: Tensor, T_base_obj_new: Tensor) -> Tensor:
    """Poses that stand to the new object as the seed's stood to the seed's object.

    Args:
        T_base_ee_seed: (..., n, 4, 4) path of a seed.
        T_base_obj_seed: (..., 4, 4) object pose in the seed.
        T_base_obj_new: (..., 4, 4) object pose now.

    Returns:
        (..., n, 4, 4). Rotations pass through unit quaternions, so that they stay orthonormal along long products.
    """
    moved = object_shift(T_base_obj_new, T_base_obj_seed)[..., None, :, :] @ T_base_ee_seed
    result = torch.zeros_like(moved)
    result[..., :3, :3] = rotation_from_quat(quat_from_rotation(moved[..., :3, :3]))
    result[..., :3, 3] = moved[..., :3, 3]
    result[..., 3, 3] = 1.0
    return result


def correct_for_held(T_base_ee: Tensor, T_ee_obj_seed: Tensor, T_ee_obj_now: Tensor) -> Tensor:
    """Move a path (..., n, 4, 4) so that the object held now follows the path of the object held in the seed.

    T_base_obj = T_base_ee T_ee_obj_seed must equal T_base_ee' T_ee_obj_now.
    """
    return T_base_ee @ (T_ee_obj_seed @ invert_pose(T_ee_obj_now))[..., None, :, :]
