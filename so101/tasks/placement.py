"""Where the objects of a task start: seeded draws from the ranges of task.yaml."""

from __future__ import annotations

import numpy as np

from so101.config import Config
from so101.config.task import PlacementConfig
from so101.geometry import invert_pose, make_pose, pose_from_pos_quat, pose_to_pos_quat, rotation_about_axis
from so101.sim.bake import T_world_base

_RANGES = ("x_m", "y_m", "roll_rad", "yaw_rad")
_X, _Z = np.array([1.0, 0.0, 0.0]), np.array([0.0, 0.0, 1.0])


def placed_pose(placement: PlacementConfig, draw: dict[str, float]) -> np.ndarray:
    """(4, 4) T_world_obj of a placement for drawn increments x_m, y_m, roll_rad, yaw_rad.

    Yaw turns the nominal pose about the vertical through its `yaw_center_m` (in the object's frame); roll is about the
    object's own x.
    """
    T_world_nominal = pose_from_pos_quat([*placement.position_m, *placement.quat_wxyz])
    R = rotation_about_axis(_Z, draw["yaw_rad"]) @ T_world_nominal[:3, :3] @ rotation_about_axis(_X, draw["roll_rad"])
    pivot = T_world_nominal[:3, :3] @ np.array(placement.yaw_center_m)
    position = T_world_nominal[:3, 3] + pivot - rotation_about_axis(_Z, draw["yaw_rad"]) @ pivot
    return make_pose(R, position + [draw["x_m"], draw["y_m"], 0.0])


def draw_placements(
    config: Config, rng: np.random.Generator
) -> tuple[dict[str, np.ndarray], dict[str, dict[str, float]]]:
    """Draw the start of every object of the task in use.

    Returns:
        objects: name -> (7,) position m and quaternion w x y z in base.
        draws: name -> the increments drawn, for the demo's record.
    """
    T_base_world = invert_pose(T_world_base(config))
    objects, draws = {}, {}
    for name, placement in config.task.active.objects.items():
        draw = {key: float(rng.uniform(*getattr(placement, key))) for key in _RANGES}
        objects[name] = pose_to_pos_quat(T_base_world @ placed_pose(placement, draw))
        draws[name] = draw
    return objects, draws


def nominal_placements(config: Config) -> dict[str, np.ndarray]:
    """name -> (7,) pose in base of every object of the task in use, where it stands with nothing drawn."""
    T_base_world, nothing = invert_pose(T_world_base(config)), dict.fromkeys(_RANGES, 0.0)
    return {
        name: pose_to_pos_quat(T_base_world @ placed_pose(placement, nothing))
        for name, placement in config.task.active.objects.items()
    }
