"""Obstacles as boxes with rounded edges: box, sphere (no sides), capsule (one side) and, a little too big, cylinder."""

from __future__ import annotations

from typing import Any, NamedTuple

import mujoco
import numpy as np

from so101.errors import SimulationError


class RoundedBoxes(NamedTuple):
    """M boxes: poses T (M, 4, 4) in base or in a body, half sides (M, 3), and the radius (M,) around the box, m."""

    T: np.ndarray
    half: np.ndarray
    radius: np.ndarray


def boxes_of_geoms(model: mujoco.MjModel, geoms: list[int], T: np.ndarray) -> RoundedBoxes:
    """Rounded boxes for primitive geoms of a model, at poses T (M, 4, 4).

    Raises:
        SimulationError: a geom is no primitive.
    """
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
    return RoundedBoxes(np.asarray(T, float).reshape(-1, 4, 4), half, radius)


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
