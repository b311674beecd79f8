"""Where the objects of a task start: seeded draws from the ranges of task.yaml."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np

from so101.config import Config
from so101.config.scene import PropConfig
from so101.config.task import PlacementConfig
from so101.geometry import make_pose, pose_from_pos_quat, pose_to_pos_quat, rotation_about_axis
from so101.geometry.frames import base_from_world
from so101.kinematics.arm import ArmKinematics
from so101.sim.bake import T_world_base
from so101.tasks.grasping import PinchFinder, ServeCheck

_RANGES = ("x_m", "y_m", "roll_rad", "yaw_rad")
_TURNS = ("roll_rad", "yaw_rad")
_X, _Z = np.array([1.0, 0.0, 0.0]), np.array([0.0, 0.0, 1.0])

Draws = dict[str, dict[str, float]]


def placed_pose(placement: PlacementConfig, draw: Mapping[str, float]) -> np.ndarray:
    """(4, 4) T_world_obj of a placement for drawn increments x_m, y_m, roll_rad, yaw_rad.

    Yaw turns the nominal pose about the vertical through its `yaw_center_m` (in the object's frame); roll is about the
    object's own x.
    """
    T_world_nominal = pose_from_pos_quat([*placement.position_m, *placement.quat_wxyz])
    R = rotation_about_axis(_Z, draw["yaw_rad"]) @ T_world_nominal[:3, :3] @ rotation_about_axis(_X, draw["roll_rad"])
    pivot = T_world_nominal[:3, :3] @ np.array(placement.yaw_center_m)
    position = T_world_nominal[:3, 3] + pivot - rotation_about_axis(_Z, draw["yaw_rad"]) @ pivot
    return make_pose(R, position + [draw["x_m"], draw["y_m"], 0.0])


def draw_placements(config: Config, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], Draws]:
    """Draw the start of every object of the task in use.

    All are drawn again while two of them overlap, seen from above; after `max_redraws`, of turns and of everything
    together, the last draw stays.

    Returns:
        objects: name -> (7,) position m and quaternion w x y z in base.
        draws: name -> the increments drawn, for the demo's record.
    """
    base = T_world_base(config)
    placements = config.task.active.objects
    redraws = config.task.max_redraws
    while True:
        draws = {name: _draw(placement, rng, _RANGES) for name, placement in placements.items()}
        redraws -= _turn_until_servable(config, draws, rng, redraws)
        poses = {name: placed_pose(placement, draws[name]) for name, placement in placements.items()}
        if redraws <= 0 or not overlapping(config, poses):
            break
        redraws -= 1
    return {name: pose_to_pos_quat(base_from_world(base, pose)) for name, pose in poses.items()}, draws


def nominal_placements(config: Config) -> dict[str, np.ndarray]:
    """name -> (7,) pose in base of every object of the task in use, where it stands with nothing drawn."""
    base, nothing = T_world_base(config), dict.fromkeys(_RANGES, 0.0)
    return {
        name: pose_to_pos_quat(base_from_world(base, placed_pose(placement, nothing)))
        for name, placement in config.task.active.objects.items()
    }


def overlapping(config: Config, T_world_objs: Mapping[str, np.ndarray]) -> list[tuple[str, str]]:
    """Pairs of objects whose outlines, seen from above, are nearer than `min_gap_m`."""
    outlines = {
        name: _outline(config.scene.props[config.task.active.objects[name].prop], T)
        for name, T in T_world_objs.items()
    }  # fmt: skip
    names = list(outlines)
    return [
        (a, b)
        for i, a in enumerate(names)
        for b in names[i + 1 :]
        if _gap(outlines[a], outlines[b]) < config.task.min_gap_m
    ]


def _draw(placement: PlacementConfig, rng: np.random.Generator, keys: tuple[str, ...]) -> dict[str, float]:
    return {key: float(rng.uniform(*getattr(placement, key))) for key in keys}


def _turn_until_servable(config: Config, draws: Draws, rng: np.random.Generator, most: int) -> int:
    """Redraw the turns of objects with `servable_at_m`, in place and at most so often; returns how often."""
    task, redraws = config.task.active, 0
    for name, placement in task.objects.items():
        if placement.servable_at_m is None:
            continue
        base, container = T_world_base(config), task.success.container
        T_base_cont = base_from_world(base, placed_pose(task.objects[container], draws[container]))
        check = _serve_check(config.model_dump_json())
        while redraws < most:
            T_base_obj = base_from_world(base, placed_pose(placement, draws[name]))
            if check.pinch(T_base_obj, placement.servable_at_m, T_base_cont) is not None:
                break
            draws[name].update(_draw(placement, rng, _TURNS))
            redraws += 1
    return redraws


@functools.lru_cache(maxsize=4)
def _serve_check(config_json: str) -> ServeCheck:
    config = Config.model_validate_json(config_json)
    kinematics = ArmKinematics(config)
    return ServeCheck(config, PinchFinder(config, kinematics))


def _outline(prop: PropConfig, T_world_obj: np.ndarray) -> np.ndarray:
    """(8, 2) corners, seen from above, of the box around a prop's geoms in its own frame."""
    low = np.full(3, np.inf)
    high = -low
    for geom in prop.geoms:
        half = np.array(geom.half_extent_m)
        low, high = np.minimum(low, geom.position_m - half), np.maximum(high, geom.position_m + half)
    corners = np.array([[x, y, z] for x in (low[0], high[0]) for y in (low[1], high[1]) for z in (low[2], high[2])])
    return (corners @ T_world_obj[:3, :3].T + T_world_obj[:3, 3])[:, :2]


def _gap(a: np.ndarray, b: np.ndarray) -> float:
    """Separation, m, of two convex outlines (n, 2): the largest along any line between two of their corners, negative
    when they overlap (separating axes); of the circles around them when these lie apart already."""
    center_a, center_b = a.mean(0), b.mean(0)
    radii = np.sqrt(((a - center_a) ** 2).sum(-1).max()) + np.sqrt(((b - center_b) ** 2).sum(-1).max())
    if (apart := float(np.sqrt(((center_a - center_b) ** 2).sum()) - radii)) > 0:
        return apart
    edges = np.concatenate([(points[:, None] - points[None]).reshape(-1, 2) for points in (a, b)])
    lengths = np.linalg.norm(edges, axis=-1)
    edges = edges[lengths > 1e-9] / lengths[lengths > 1e-9, None]
    normals = np.column_stack([-edges[:, 1], edges[:, 0]])
    on_a, on_b = a @ normals.T, b @ normals.T
    return float(np.maximum(on_b.min(0) - on_a.max(0), on_a.min(0) - on_b.max(0)).max())
