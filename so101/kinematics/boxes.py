"""Obstacles as boxes with rounded edges: box, sphere (no sides), capsule (one side) and, a little too big, cylinder."""

from __future__ import annotations

from typing import Any, NamedTuple

import mujoco
import numpy as np

from so101.errors import SimulationError
from so101.geometry import make_pose, rotation_from_quat


class RoundedBoxes(NamedTuple):
    """M boxes: poses T (M, 4, 4) in base or in a body, half sides (M, 3), and the radius (M,) around the box, m."""

    T: np.ndarray
    half: np.ndarray
    radius: np.ndarray


def boxes_around(model: mujoco.MjModel, data: mujoco.MjData, bodies: list[int]) -> RoundedBoxes:
    """All colliding geoms of `bodies` where `data` has them, in the model's frame (base).

    Raises:
        SimulationError: a geom is no primitive.
    """
    geoms = _colliding(model, bodies)
    return _boxes(model, geoms, data.geom_xpos[geoms], data.geom_xmat[geoms].reshape(-1, 3, 3))


def boxes_of_body(model: mujoco.MjModel, body: int) -> RoundedBoxes:
    """All colliding geoms of one body, in its own frame. Errors as `boxes_around`."""
    geoms = _colliding(model, [body])
    return _boxes(model, geoms, model.geom_pos[geoms], rotation_from_quat(model.geom_quat[geoms]))


def _colliding(model: mujoco.MjModel, bodies: list[int]) -> np.ndarray:
    return np.nonzero(np.isin(model.geom_bodyid, bodies) & ((model.geom_contype | model.geom_conaffinity) > 0))[0]


def _boxes(model: mujoco.MjModel, geoms: np.ndarray, position: np.ndarray, rotation: np.ndarray) -> RoundedBoxes:
    half, radius = np.zeros((len(geoms), 3)), np.zeros(len(geoms))
    for row, geom in enumerate(geoms):
        kind, size = int(model.geom_type[geom]), model.geom_size[geom]
        if kind == mujoco.mjtGeom.mjGEOM_BOX:
            half[row] = size
        elif kind == mujoco.mjtGeom.mjGEOM_SPHERE:
            radius[row] = size[0]
        elif kind == mujoco.mjtGeom.mjGEOM_CAPSULE:
            half[row, 2], radius[row] = size[1], size[0]
        elif kind == mujoco.mjtGeom.mjGEOM_CYLINDER:
            half[row] = size[0], size[0], size[1]
        else:
            raise SimulationError(
                f"geom {model.geom(geom).name!r} of body {model.body(model.geom_bodyid[geom]).name!r} is no box, "
                "sphere, capsule or cylinder; transits are planned around these only"
            )
    return RoundedBoxes(make_pose(rotation, position), half, radius)


def fill_with_spheres(boxes: RoundedBoxes, spacing: float) -> tuple[np.ndarray, np.ndarray]:
    """Centres (n, 3) in the boxes' common frame and radii (n,), m: a lattice in each box, `spacing` radii apart."""
    centers, radii = [], []
    for T, half, rounding in zip(*boxes, strict=True):
        radius = rounding or half.min()
        inner = half if rounding else half - radius
        steps = [np.linspace(-h, h, int(np.ceil(2 * h / (spacing * radius))) + 1) if h > 0 else [0.0] for h in inner]
        lattice = np.stack(np.meshgrid(*steps, indexing="ij"), -1).reshape(-1, 3)
        centers.append(lattice @ T[:3, :3].T + T[:3, 3])
        radii.append(np.full(len(lattice), radius))
    return np.concatenate(centers), np.concatenate(radii)


def distance(points: Any, position: Any, rotation: Any, half: Any, radius: Any) -> Any:
    """Signed distance (...,) m of points to rounded boxes, torch tensors that broadcast: points (..., 3) and boxes at
    position (..., 3), rotation (..., 3, 3), with half (..., 3), radius (...,). Negative inside."""
    local = ((points - position).unsqueeze(-2) @ rotation).squeeze(-2)
    beyond = local.abs() - half
    outside = (beyond.clamp_min(0.0).square().sum(-1) + 1e-12).sqrt()
    return outside + beyond.amax(-1).clamp_max(0.0) - radius
