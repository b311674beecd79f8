"""States the rendering tests draw."""

from __future__ import annotations

import numpy as np

from so101.config import Config
from so101.geometry import invert_pose, pose_from_pos_quat, pose_to_pos_quat
from so101.sim.bake import T_world_base


def start_objects(config: Config) -> dict[str, np.ndarray]:
    """Objects of the task at their nominal places, poses in base."""
    T_base_world = invert_pose(T_world_base(config))
    return {
        name: pose_to_pos_quat(T_base_world @ pose_from_pos_quat([*place.position_m, *place.quat_wxyz]))
        for name, place in config.task.active.objects.items()
    }


def home(config: Config) -> np.ndarray:
    """(6,) home angles, rad."""
    return np.array([joint.home_rad for joint in config.robot.joints])
