"""How far an episode came: the stages of putting things into a container, told by poses and commands alone."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from so101.config import Config
from so101.config.scene import PropConfig
from so101.geometry import invert_pose, pose_from_pos_quat

STAGES = ("approached", "grasped", "lifted", "over_rack", "inserted", "released")
"""In order. Strict success is a test of its own: what was released may still fall, lean, or have moved the rack."""

NONE = "none"  # the stage of an episode that reached none


def stage_frames(
    config: Config, T_base_ee: np.ndarray, q: np.ndarray, sent: np.ndarray, objects: Mapping[str, np.ndarray]
) -> dict[str, int | None]:
    """First frame of each stage, None for one that was not reached. A stage counts after the one before it.

    Of several objects it is the one that came least far.

    Args:
        T_base_ee: (T, 4, 4) of `q`.
        q, sent: (T, 6) measured and commanded joints, rad, jaw last.
        objects: name -> (T, 7) pose in base.
    """
    found = [_of_object(config, name, T_base_ee, q, sent, objects) for name in config.task.active.success.objects]
    return min(found, key=lambda frames: sum(frame is not None for frame in frames.values()))


def furthest(frames: Mapping[str, int | None]) -> str:
    """The last stage reached, "none" when there is none."""
    reached = [stage for stage in STAGES if frames.get(stage) is not None]
    return reached[-1] if reached else NONE


def gaps(config: Config, name: str, T_base_ee: np.ndarray, poses: np.ndarray) -> np.ndarray:
    """(T,) m from the pinch point to the box around an object.

    Args:
        T_base_ee: (T, 4, 4).
        poses: (T, 7) of the object in base.
    """
    low, high = _extent(config.scene.props[config.objects[name].prop])
    point = (invert_pose(pose_from_pos_quat(poses)) @ T_base_ee)[:, :3, 3]
    return np.linalg.norm(point - np.clip(point, low, high), axis=-1)


def _of_object(
    config: Config,
    name: str,
    T_base_ee: np.ndarray,
    q: np.ndarray,
    sent: np.ndarray,
    objects: Mapping[str, np.ndarray],
) -> dict[str, int | None]:
    settings, success = config.deploy.evaluation.stages, config.task.active.success
    low, high = _extent(config.scene.props[config.objects[name].prop])
    floor, rim = _extent(config.scene.props[config.objects[success.container].prop])
    T_base_obj = pose_from_pos_quat(objects[name])
    T_base_cont = pose_from_pos_quat(objects[success.container])
    T_cont_obj = invert_pose(T_base_cont) @ T_base_obj
    gap = gaps(config, name, T_base_ee, objects[name])
    in_hand = gap <= settings.in_hand_m
    middle = (low + high) / 2
    height = (T_base_obj[:, :3, :3] @ middle)[:, 2] + T_base_obj[:, 2, 3]
    rise = height - height[0]
    in_container = T_cont_obj[:, :3, :3] @ middle + T_cont_obj[:, :3, 3]
    over = ((in_container >= floor) & (in_container <= rim))[:, :2].all(-1)
    corners = np.array([[x, y, z] for x in (low[0], high[0]) for y in (low[1], high[1]) for z in (low[2], high[2])])
    lowest = (corners @ np.swapaxes(T_cont_obj[:, :3, :3], -1, -2))[..., 2].min(-1) + T_cont_obj[:, 2, 3]
    to_axis = np.linalg.norm(T_cont_obj[:, None, :2, 3] - np.array(success.openings_m), axis=-1).min(-1)
    jaw = config.robot.joints[-1]
    opened = (q[:, -1] - jaw.lower_rad) / (jaw.upper_rad - jaw.lower_rad) > success.strict.min_jaw_open_fraction
    inserted = (to_axis <= success.strict.max_axis_distance_m) & (lowest < rim[2] - settings.insert_m)
    reached = {
        "approached": gap <= settings.near_m,
        "grasped": in_hand & (_squeezing(config, q, sent) | (rise > success.grasp_lift_m)),
        "lifted": in_hand & (rise > settings.lift_m),
        "over_rack": over & (in_container[:, 2] > success.surface_height_m),
        "inserted": inserted,
        "released": inserted & opened,
    }
    frames: dict[str, int | None] = dict.fromkeys(STAGES)
    first = 0
    for stage in STAGES:
        later = np.flatnonzero(reached[stage][first:])
        if not later.size:
            break
        first += int(later[0])
        frames[stage] = first
    return frames


def _squeezing(config: Config, q: np.ndarray, sent: np.ndarray) -> np.ndarray:
    """(T,) bool: the jaw has been stopped short of its command for some frames."""
    settings, hz = config.deploy.evaluation.stages, config.scene.physics.control_hz
    jaw = q[:, -1]
    speed = np.abs(np.diff(jaw, prepend=jaw[:1])) * hz
    stopped = (jaw - sent[:, -1] > settings.squeeze_rad) & (speed < settings.stall_speed_rad_s)
    counts = np.convolve(stopped, np.ones(settings.stall_frames))[: len(jaw)]
    return counts >= settings.stall_frames


def _extent(prop: PropConfig) -> tuple[np.ndarray, np.ndarray]:
    """Corners (3,) of the box around the geoms of a prop, in its own frame."""
    half = np.array([geom.half_extent_m for geom in prop.geoms])
    center = np.array([geom.position_m for geom in prop.geoms])
    return (center - half).min(0), (center + half).max(0)
