"""Crossings between `world` and `base`, the only place they are written.

The arm, its planners and the physics think in `base`; the configuration and a scene of many robots think in `world`.
Environment b has its own T_world_base[b], so a crossing that forgets the base is right for one robot at the origin and
wrong for all others. Targets going in, plans coming out and obstacles all go through these two functions.
"""

from __future__ import annotations

import numpy as np

from so101.geometry.se3 import invert_pose


def base_from_world(T_world_base: np.ndarray, T_world_x: np.ndarray) -> np.ndarray:
    """T_base_x of poses given in world: inv(T_world_base) @ T_world_x.

    Args:
        T_world_base: (4, 4), or (B, 4, 4) with one base an environment.
        T_world_x: (..., 4, 4); with B bases (B, ..., 4, 4), row b seen from base b.
    """
    return _for_each(invert_pose(T_world_base), T_world_x) @ T_world_x


def world_from_base(T_world_base: np.ndarray, T_base_x: np.ndarray) -> np.ndarray:
    """T_world_x of poses given in base: T_world_base @ T_base_x. Shapes as in `base_from_world`."""
    return _for_each(T_world_base, T_base_x) @ T_base_x


def _for_each(T: np.ndarray, x: np.ndarray) -> np.ndarray:
    """(B, 4, 4) as (B, 1, .., 1, 4, 4), so that it meets (B, ..., 4, 4) row by row and never along a later axis.

    Raises:
        ValueError: B bases meet something that has not B rows.
    """
    if T.ndim == 2:
        return T
    if x.ndim < T.ndim or x.shape[: T.ndim - 2] != T.shape[:-2]:
        raise ValueError(f"{T.shape[:-2]} base poses cannot be applied to poses of shape {x.shape}: one row a base")
    return T.reshape(*T.shape[:-2], *(1,) * (x.ndim - T.ndim), 4, 4)
