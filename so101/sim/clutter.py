"""Where optional bodies stand at the start: a pre-racked object in an opening, distractors away from the task."""

from __future__ import annotations

import itertools

import numpy as np

from so101.config import Config
from so101.config.ranges import between
from so101.config.scene import DistractorArea, PropConfig
from so101.config.task import PlacementConfig
from so101.geometry import make_pose, pose_from_pos_quat, pose_to_pos_quat, rotation_about_axis
from so101.geometry.frames import base_from_world
from so101.sim.bake import T_world_base
from so101.tasks.placement import placed_pose

_UP = np.array([0.0, 0.0, 1.0])
_latest_areas: tuple[Config, list[tuple[np.ndarray, np.ndarray]]] | None = None
_TURN_STEP_RAD = 0.25  # ranges of turns are looked at this finely: a corner moves 1 % of its radius between two steps


def racked_pose(config: Config, container: np.ndarray, prop: str, opening: int, yaw_rad: float) -> np.ndarray:
    """(7,) pose in base of a prop that stands upright in an opening of the task's container, itself at (7,)."""
    success = config.task.active.success
    bottom = corners(config.scene.props[prop])[:, 2].min()
    place = np.array([*success.openings_m[opening], success.surface_height_m - bottom])
    T_container_obj = make_pose(rotation_about_axis(_UP, yaw_rad), place)
    return pose_to_pos_quat(pose_from_pos_quat(container) @ T_container_obj)


def draw_distractors(config: Config, rng: np.random.Generator) -> dict[str, list[float]]:
    """name -> (7,) pose in base of the distractors that are there. Takes equally many numbers from `rng` always."""
    settings = config.scene.randomisation.distractors
    names = list(config.distractors)
    count = int(rng.random() * (len(names) + 1))
    order = rng.permutation(len(names))
    places = rng.random((len(names), settings.tries, 4))
    taken = list(start_areas(config))
    base = T_world_base(config)
    poses = {}
    for i in order[:count].tolist():
        prop = config.scene.props[config.distractors[names[i]].prop]
        for u in places[i].tolist():
            area = settings.areas[int(u[0] * len(settings.areas))]
            position = _place_in(config, area, prop, u[1], u[2])
            if position is None:
                continue
            radius = footprint_radius(prop)
            low, high = position[:2] - radius, position[:2] + radius
            if all(_gap(low, high, *other) >= settings.gap_m for other in taken):
                T_world_obj = make_pose(rotation_about_axis(_UP, between((-np.pi, np.pi), u[3])), position)
                poses[names[i]] = pose_to_pos_quat(base_from_world(base, T_world_obj)).tolist()
                taken.append((low, high))
                break
    return {name: poses[name] for name in names if name in poses}


def start_areas(config: Config) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rectangles in the world, low (2,) and high (2,), that hold each object of the task at every start it can have."""
    global _latest_areas
    if _latest_areas is None or _latest_areas[0] is not config:  # the same for every attempt of a run
        areas = [
            _start_area(placement, corners(config.scene.props[placement.prop]))
            for placement in config.task.active.objects.values()
        ]
        _latest_areas = config, areas
    return _latest_areas[1]


def corners(prop: PropConfig) -> np.ndarray:
    """(8 n, 3) corners of the boxes around the n geoms of a prop, in its frame."""
    signs = np.array(list(itertools.product((-1, 1), repeat=3)))
    return np.concatenate([np.array(geom.position_m) + signs * geom.half_extent_m for geom in prop.geoms])


def footprint_radius(prop: PropConfig) -> float:
    """Farthest that an upright prop reaches from the vertical through its origin, m."""
    return float(np.linalg.norm(corners(prop)[:, :2], axis=1).max())


def _start_area(placement: PlacementConfig, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    nothing = {"x_m": 0.0, "y_m": 0.0, "roll_rad": 0.0, "yaw_rad": 0.0}
    T_world_nominal = placed_pose(placement, nothing)
    center = (T_world_nominal[:3, :3] @ placement.yaw_center_m + T_world_nominal[:3, 3])[:2]
    rolled = [placed_pose(placement, {**nothing, "roll_rad": roll}) for roll in _steps(placement.roll_rad)]
    x, y = (np.concatenate([points @ T[:3, :3].T + T[:3, 3] for T in rolled])[:, :2] - center).T
    c, s = (turn(_steps(placement.yaw_rad)[:, None]) for turn in (np.cos, np.sin))
    outline = center + np.stack([c * x - s * y, s * x + c * y], -1).reshape(-1, 2)
    low, high = np.array([placement.x_m, placement.y_m]).T
    return outline.min(0) + low, outline.max(0) + high


def _steps(interval: tuple[float, float]) -> np.ndarray:
    width = interval[1] - interval[0]
    return np.linspace(*interval, 2 + int(width / _TURN_STEP_RAD) if width else 1)


def _place_in(config: Config, area: DistractorArea, prop: PropConfig, u: float, v: float) -> np.ndarray | None:
    """(3,) position in the world at shares u, v of the area, or None when the prop does not fit in it."""
    radius = footprint_radius(prop)
    x_m, y_m = ((low + radius, high - radius) for low, high in (area.x_m, area.y_m))
    if x_m[0] > x_m[1] or y_m[0] > y_m[1]:
        return None
    top = corners(config.scene.statics[area.surface])[:, 2].max() + config.scene.static_positions_m[area.surface][2]
    return np.array([between(x_m, u), between(y_m, v), top - corners(prop)[:, 2].min()])


def _gap(low: np.ndarray, high: np.ndarray, other_low: np.ndarray, other_high: np.ndarray) -> float:
    """Distance of two rectangles, m; negative when they overlap."""
    apart = np.maximum(other_low - high, low - other_high)
    return float(np.linalg.norm(np.maximum(apart, 0.0))) if apart.max() > 0 else float(apart.max())
