"""What a hand must be commanded so that it is where it should be.

A seed's commands run ahead of its measured hand by what gravity and lag take. Both act in the vertical plane of the
arm, so the difference is carried over in the heading of the arm, not with the object.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from so101.geometry import make_pose


def heading(points: np.ndarray, pan_axis_m: Sequence[float]) -> np.ndarray:
    """(n, 3, 3) turns about the vertical from base to the arm's plane through each of the points (n, 3) in base."""
    outward = points[:, :2] - np.asarray(pan_axis_m)
    cosine, sine = (outward / np.linalg.norm(outward, axis=-1, keepdims=True)).T
    zero, one = np.zeros_like(sine), np.ones_like(sine)
    return np.stack([cosine, -sine, zero, sine, cosine, zero, zero, zero, one], -1).reshape(-1, 3, 3)


def commanded(
    T_base_wanted: np.ndarray, T_base_target_seed: np.ndarray, T_base_ee_seed: np.ndarray, pan_axis_m: Sequence[float]
) -> np.ndarray:
    """(n, 4, 4) commands for a hand that should follow T_base_wanted (n, 4, 4), from the commands and the measured path
    (n, 4, 4) of the seed that it was retargeted from."""
    turn = heading(T_base_wanted[:, :3, 3], pan_axis_m) @ heading(T_base_ee_seed[:, :3, 3], pan_axis_m).swapaxes(-1, -2)
    ahead = (turn @ (T_base_target_seed[:, :3, 3] - T_base_ee_seed[:, :3, 3])[..., None])[..., 0]
    R_ahead = T_base_target_seed[:, :3, :3] @ T_base_ee_seed[:, :3, :3].swapaxes(-1, -2)
    R = turn @ R_ahead @ turn.swapaxes(-1, -2) @ T_base_wanted[:, :3, :3]
    return make_pose(R, T_base_wanted[:, :3, 3] + ahead)
