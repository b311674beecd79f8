"""Did it work? Judged on the settled end of an episode from recorded arrays alone, so that a rollout, an open-loop
replay and a foreign recording are judged by the same code. Nothing is latched: only the last frames count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

import numpy as np

from so101.config import Config
from so101.geometry import invert_pose, pose_from_pos_quat, rotation_angle


@dataclass(frozen=True)
class Verdict:
    """The two tests and the figures behind them."""

    strict: bool
    geometric: bool
    axis_distance_m: float
    height_m: float
    upright_cos: float
    jaw_open_fraction: float
    speed_m_s: float
    angular_speed_rad_s: float
    container_moved_m: float

    def figures(self) -> dict[str, float]:
        """JSON-ready figures."""
        return {key: round(float(value), 6) for key, value in asdict(self).items()}


def free_openings(config: Config, objects: Mapping[str, np.ndarray], *, but: str | None = None) -> list[int]:
    """Openings of the container, by index, that no object stands in.

    Args:
        objects: name -> (7,) pose in base now.
        but: an object that does not count, the one to be put there.
    """
    success = config.task.active.success
    T_cont_base = invert_pose(pose_from_pos_quat(objects[success.container]))
    others = [pose[:3] for name, pose in objects.items() if name not in (success.container, but)]
    in_container = [T_cont_base[:3, :3] @ position + T_cont_base[:3, 3] for position in others]
    near = [position for position in in_container if abs(position[2]) < success.occupied_height_m]
    return [
        index
        for index, opening in enumerate(success.openings_m)
        if all(np.linalg.norm(position[:2] - opening) >= success.occupied_radius_m for position in near)
    ]


def judge(config: Config, objects: Mapping[str, np.ndarray], q: np.ndarray) -> Verdict:
    """Judge an episode of the task in use: every object of the task, each in an opening of its own.

    Args:
        objects: name -> (T, 7) poses in base at the control rate, position m and quaternion w x y z.
        q: (T, 6) measured joints, rad.

    Returns:
        the verdict on the last `strict.still_frames` frames (all of them must be still and inside). The figures are
        those of the worst frame of the worst object: the first that failed a test, else the one farthest off its axis.
    """
    success = config.task.active.success
    verdicts, taken = [], []
    for name in success.objects:
        verdict, opening = judge_object(config, objects, q, name)
        verdicts.append(verdict)
        taken.append(opening)
    worst = min(verdicts, key=lambda v: (v.strict, v.geometric, -v.axis_distance_m))
    return replace(
        worst,
        strict=all(v.strict for v in verdicts) and len(set(taken)) == len(taken),
        geometric=all(v.geometric for v in verdicts),
    )


def judge_object(config: Config, objects: Mapping[str, np.ndarray], q: np.ndarray, name: str) -> tuple[Verdict, int]:
    """Verdict of one object and the index of the opening it is nearest to."""
    success = config.task.active.success
    strict, loose = success.strict, success.geometric
    frames = min(strict.still_frames + 1, len(q))
    T_base_obj = pose_from_pos_quat(objects[name][-frames:])
    T_base_cont = pose_from_pos_quat(objects[success.container][-frames:])
    T_cont_obj = invert_pose(T_base_cont) @ T_base_obj
    position = T_cont_obj[:, :3, 3]
    upright = float(T_base_obj[:, 2, 2].min())
    openings = np.array(success.openings_m)
    to_axis = np.linalg.norm(position[:, None, :2] - openings[None], axis=-1).max(0)  # (openings,) worst frame
    nearest = float(to_axis.min())
    hz = config.scene.physics.control_hz
    speed = angular = 0.0
    if frames > 1:
        speed = float(np.linalg.norm(np.diff(T_base_obj[:, :3, 3], axis=0), axis=-1).max()) * hz
        angular = float(rotation_angle(T_base_obj[:-1, :3, :3], T_base_obj[1:, :3, :3]).max()) * hz
    jaw = config.robot.joints[-1]
    jaw_open = float(((q[-frames:, -1] - jaw.lower_rad) / (jaw.upper_rad - jaw.lower_rad)).min())
    heights = position[:, 2]
    moved = float(np.linalg.norm(objects[success.container][-1, :3] - objects[success.container][0, :3]))
    is_strict = (
        nearest <= strict.max_axis_distance_m
        and strict.min_height_m <= heights.min()
        and heights.max() <= strict.max_height_m
        and upright > strict.min_upright_cos
        and jaw_open > strict.min_jaw_open_fraction
        and speed < strict.max_speed_m_s
        and angular < strict.max_angular_speed_rad_s
        and frames == strict.still_frames + 1
    )
    to_center = float(np.linalg.norm(position[-1, :2] - success.center_m))
    over_surface = float(heights[-1] - success.surface_height_m)
    is_geometric = (
        to_center <= loose.max_horizontal_m
        and loose.min_height_m <= over_surface <= loose.max_height_m
        and float(T_base_obj[-1, 2, 2]) > loose.min_upright_cos
    )
    verdict = Verdict(
        strict=bool(is_strict),
        geometric=bool(is_geometric),
        axis_distance_m=nearest,
        height_m=float(heights[-1]),
        upright_cos=upright,
        jaw_open_fraction=jaw_open,
        speed_m_s=speed,
        angular_speed_rad_s=angular,
        container_moved_m=moved,
    )
    return verdict, int(to_axis.argmin())
