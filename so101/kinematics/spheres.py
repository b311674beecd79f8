"""Collision spheres of the arm, fitted to the meshes of the stock model and checked against them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np
from scipy.spatial import ConvexHull, cKDTree
from scipy.spatial.transform import Rotation

from so101.config.ik import SpheresConfig
from so101.geometry import make_pose
from so101.sim.meshes import read_stl

_BALL_STEPS = 40  # of the enclosing-ball iteration: its radius is then within a few per cent of the smallest
_CHECK_SAMPLES = 4000  # a part, other ones than those fitted to
_CHECK_SEED = 1
_DIRECTIONS = 200  # points on each sphere


class Spheres(NamedTuple):
    """Spheres of one link, in the link's frame, m."""

    centers: np.ndarray  # (k, 3)
    radii: np.ndarray  # (k,)


class SphereCheck(NamedTuple):
    """How well the spheres of a link stand for its meshes."""

    coverage: float  # share of surface samples inside the union
    outside_m: float  # how far the farthest surface sample sticks out
    protrusion_m: float  # how far the union bulges out of the parts' convex hulls


def mesh_parts(urdf: Path) -> dict[str, list[np.ndarray]]:
    """link name -> triangles (F, 3, 3) of each part, in the link's frame, m. Links without meshes are left out."""
    parts: dict[str, list[np.ndarray]] = {}
    for link in ElementTree.parse(urdf).getroot().findall("link"):
        for collision in link.findall("collision"):
            origin, mesh = collision.find("origin"), collision.find("geometry/mesh")
            rotation = Rotation.from_euler("xyz", _numbers(origin.get("rpy"))).as_matrix()
            triangles = read_stl(urdf.parent / mesh.get("filename")).astype(float)
            parts.setdefault(link.get("name"), []).append(triangles @ rotation.T + _numbers(origin.get("xyz")))
    return parts


def joint_origin(urdf: Path, name: str) -> np.ndarray:
    """(4, 4) pose of a joint's child link in its parent at angle 0; these joints turn about their own z."""
    for joint in ElementTree.parse(urdf).getroot().findall("joint"):
        if joint.get("name") == name:
            origin = joint.find("origin")
            return make_pose(
                Rotation.from_euler("xyz", _numbers(origin.get("rpy"))).as_matrix(), _numbers(origin.get("xyz"))
            )
    raise KeyError(name)


def fit_spheres(parts: list[np.ndarray], count: int, settings: SpheresConfig) -> Spheres:
    """`count` spheres that hold nearly all of the surface of `parts` (F, 3, 3), small ones.

    Lloyd's iteration with balls: samples go to the nearest centre, a centre goes to the middle of the smallest ball
    around its samples; of all rounds the one with the least volume is kept. Radii are then shortened to the quantile
    `radius_quantile` of their samples' distances.
    """
    rng = np.random.default_rng(settings.seed)
    points = np.concatenate([surface_samples(p, settings.samples_per_part, rng) for p in parts])
    centers = _far_apart(points, count)
    best: tuple[float, np.ndarray, np.ndarray] | None = None
    for _ in range(settings.rounds):
        nearest = cKDTree(centers).query(points)[1]
        centers = np.array(
            [_ball_center(points[nearest == k]) if (nearest == k).any() else centers[k] for k in range(count)]
        )
        distance = _distances(points, centers[nearest])
        radii = np.array(
            [np.quantile(distance[nearest == k], settings.radius_quantile) if (nearest == k).any() else 0.0
             for k in range(count)]
        )  # fmt: skip
        volume = float((radii**3).sum())
        if best is None or volume < best[0]:
            best = (volume, centers, radii)
    used = best[2] > 0
    return Spheres(best[1][used], best[2][used])


def check_spheres(spheres: Spheres, parts: list[np.ndarray]) -> SphereCheck:
    """Compare spheres with the meshes they stand for, on samples they were not fitted to."""
    rng = np.random.default_rng(_CHECK_SEED)
    surface = np.concatenate([surface_samples(p, _CHECK_SAMPLES, rng) for p in parts])
    outside = _gaps(surface, spheres).min(1)
    shell = (spheres.centers[:, None] + spheres.radii[:, None, None] * _even_directions(_DIRECTIONS)).reshape(-1, 3)
    shell = shell[_gaps(shell, spheres).min(1) > -1e-9]  # on the union, not inside another sphere
    inside = np.zeros(len(shell), bool)
    for part in parts:
        hull = ConvexHull(part.reshape(-1, 3)).equations
        inside |= (shell @ hull[:, :3].T + hull[:, 3]).max(1) <= 0
    bulge = cKDTree(surface).query(shell[~inside])[0]
    return SphereCheck(
        float((outside <= 0).mean()), float(max(outside.max(), 0.0)), float(bulge.max()) if len(bulge) else 0.0
    )


def surface_samples(triangles: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """(count, 3) points spread evenly over triangles (F, 3, 3)."""
    a, b, c = triangles[:, 0], triangles[:, 1], triangles[:, 2]
    area = np.linalg.norm(np.cross(b - a, c - a), axis=1)
    chosen = rng.choice(len(triangles), count, p=area / area.sum())
    root, along = np.sqrt(rng.random((count, 1))), rng.random((count, 1))
    return (1 - root) * a[chosen] + root * (1 - along) * b[chosen] + root * along * c[chosen]


def _numbers(text: str) -> np.ndarray:
    return np.array(text.split(), float)


def _distances(points: np.ndarray, center: np.ndarray) -> np.ndarray:
    difference = points - center
    return np.sqrt(np.einsum("ij,ij->i", difference, difference))


def _gaps(points: np.ndarray, spheres: Spheres) -> np.ndarray:
    """(n, k) signed distance of points (n, 3) to each sphere."""
    return np.linalg.norm(points[:, None] - spheres.centers, axis=-1) - spheres.radii


def _far_apart(points: np.ndarray, count: int) -> np.ndarray:
    """`count` of the points, each the farthest from those before it."""
    chosen = [points[0]]
    nearest = _distances(points, points[0])
    for _ in range(count - 1):
        chosen.append(points[nearest.argmax()])
        nearest = np.minimum(nearest, _distances(points, chosen[-1]))
    return np.array(chosen)


def _ball_center(points: np.ndarray) -> np.ndarray:
    """Centre (3,) of nearly the smallest ball around points: step towards the farthest, ever shorter (Badoiu and
    Clarkson 2003)."""
    center = points.mean(0)
    for i in range(1, _BALL_STEPS):
        center = center + (points[_distances(points, center).argmax()] - center) / (i + 1)
    return center


def _even_directions(count: int) -> np.ndarray:
    """(count, 3) unit vectors on a golden spiral."""
    i = np.arange(count) + 0.5
    polar, around = np.arccos(1 - 2 * i / count), np.pi * (1 + 5**0.5) * i
    return np.stack([np.cos(around) * np.sin(polar), np.sin(around) * np.sin(polar), np.cos(polar)], 1)
