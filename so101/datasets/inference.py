"""What a joint-space recording tells about the scene it was made in: when the jaw held something, where that lay and where it was
put, and how the arm's zeros differ from the twin's. Pure geometry; the physics test is in `seeding`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares

from so101.config import Config
from so101.config.scene import PropConfig
from so101.geometry import make_pose, pose_to_pos_quat, rotation_about_axis
from so101.kinematics import ArmKinematics

NUM_SEARCHED = slice(1, 4)  # shoulder_lift, elbow_flex, wrist_flex: the joints that decide the height of the hand
_Z = np.array([0.0, 0.0, 1.0])


class NotUsable(Exception):
    """This recording cannot become a seed; the text is the cause that the report counts."""


class Grasp(NamedTuple):
    """Frames of the one carry of a recording.

    begin: first frame to keep; start: the jaw starts to close; close: it has stopped on the object; open: last frame it is closed;
    end: one past the last frame to keep (the jaw shuts again, or the recording ends).
    """

    begin: int
    start: int
    close: int
    open: int
    end: int


def find_grasp(jaw: np.ndarray, jaw_command: np.ndarray, has_command: bool, fps: float, config: Config) -> Grasp:
    """Find the carry from the jaw alone.

    With a leader the held object shows as a jaw that stands still well above its command. An arm moved by hand has no command:
    there the jaw stands still below half of its opening, before and after it stood open. Of several carries the last counts
    (people try again), and frames before the release of the one before are dropped.

    Args:
        jaw, jaw_command: (T,) rad, measured and commanded.
        has_command: False when the two are the same thing.

    Raises:
        NotUsable: with the cause.
    """
    s = config.teleop.replay
    speed = np.abs(np.gradient(jaw)) * fps
    middle = 0.5 * (jaw.min() + jaw.max())
    held = (jaw - jaw_command > s.held_gap_rad) & (speed < s.jaw_still_rad_s) if has_command else jaw < middle
    runs = [run for run in _runs(held) if run[1] - run[0] >= s.min_held_frames]
    if not has_command:
        runs = [run for run in runs if run[0] > 0]  # closed from the start: nothing was grasped
    if jaw.max() - jaw.min() < s.min_jaw_travel_rad or not runs:
        raise NotUsable("no grasp found")
    first, last = runs[-1]
    level = float(np.median(jaw[first:last]))
    close = first + int(np.argmax(jaw[first:last] <= level + s.jaw_level_rad))
    opened = np.flatnonzero(jaw[close:] > level + s.jaw_level_rad)
    wide = np.flatnonzero(jaw[close:] > level + s.jaw_open_rad)
    if not wide.size:
        raise NotUsable("jaw never opens")
    release = close + int(wide[0])
    open_frame = close + int(opened[opened < wide[0]][0] if (opened < wide[0]).any() else wide[0]) - 1
    open_frame = max(open_frame, close)
    before = jaw[: close + 1]
    floor = 0 if len(runs) < 2 else runs[-2][1]
    widest = floor + int(np.argmax(before[floor:]))
    threshold = level + s.closing_share * (jaw[widest] - level)
    start = widest + int(np.flatnonzero(before[widest:] >= threshold)[-1])
    peak = release + int(np.argmax(jaw[release:]))
    shut = np.flatnonzero(jaw[peak:] < 0.5 * (jaw[peak] + level))
    end = peak + int(np.argmax(jaw[peak:] < jaw[peak] - s.jaw_level_rad)) if shut.size else len(jaw)
    begin = 0 if len(runs) < 2 else runs[-2][1]
    return Grasp(begin, start, close, open_frame, max(end, release + 1))


def _runs(mask: np.ndarray) -> list[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(int), [0]])))
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]


def offset_spread(spans_ticks: Sequence[int | None], config: Config) -> np.ndarray:
    """(6,) rad: how far each zero may be off. The spread of range centres among real calibrations, plus half of what a joint was
    not swept: a range that stops short on one side moves its centre by half of the missing part."""
    s = config.teleop.replay
    missing = [0 if span is None else max(full - span, 0) for span, full in zip(spans_ticks, s.full_span_ticks, strict=True)]
    return np.array(s.zero_spread_rad) + np.array(missing) * np.pi / 4096


def fit_offsets(kinematics: ArmKinematics, q_close: np.ndarray, spread: np.ndarray, config: Config) -> np.ndarray:
    """(6,) rad zero offsets of one calibration, from all its grasps: whatever was picked up lay on the table, so the hand must
    have been at one height above it each time. Robust least squares with the spread as prior; only the joints of the arm's
    plane are fitted, pan and roll cannot be seen this way.

    Args:
        q_close: (N, 6) rad measured when the jaw closed.
        spread: (6,) rad from `offset_spread`.
    """
    s = config.teleop.replay
    target = s.table_height_m + s.pinch_height_m

    def residuals(offsets: np.ndarray) -> np.ndarray:
        q = q_close.copy()
        q[:, NUM_SEARCHED] += offsets
        heights = kinematics.fk(q)[:, 2, 3]
        return np.concatenate([(heights - target) / s.pinch_height_spread_m, offsets / spread[NUM_SEARCHED]])

    bound = s.max_spreads * spread[NUM_SEARCHED]
    fit = least_squares(residuals, np.zeros(3), loss="soft_l1", bounds=(-bound, bound))
    offsets = np.zeros(6)
    offsets[NUM_SEARCHED] = fit.x
    return offsets


def correct_height(
    kinematics: ArmKinematics, q_close: np.ndarray, height: float, spread: np.ndarray, iterations: int = 8
) -> np.ndarray:
    """(6,) rad: the smallest change of lift, elbow and wrist, in units of their spread, that brings the hand to `height` m at q_close (6,)."""
    change = np.zeros(6)
    for _ in range(iterations):
        gap = height - kinematics.fk(q_close + change)[2, 3]
        slope = kinematics.jacobian(q_close + change)[2, NUM_SEARCHED] * spread[NUM_SEARCHED]
        change[NUM_SEARCHED] += spread[NUM_SEARCHED] * slope * gap / (slope @ slope + 1e-9)
    return change


def place_objects(
    config: Config, T_base_close: np.ndarray, T_base_open: np.ndarray, shift_m: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """Object between the jaws when they closed, container under them when they opened, both upright on the table.

    Args:
        T_base_close, T_base_open: (4, 4) end effector at the two moments.
        shift_m: (2,) the container is moved by this: where in the container the object fell is not recorded.

    Returns:
        name -> (7,) pose in base.
    """
    s, task = config.teleop.replay, config.task.active
    thing, container = task.success.object, task.success.container
    thing_prop = config.scene.props[task.objects[thing].prop]
    center_height = s.table_height_m - bottom_m(thing_prop)
    approach = T_base_close[:3, 0]
    along = (T_base_close[2, 3] - center_height) / -approach[2] if approach[2] < -0.3 else 0.0
    spot = T_base_close[:3, 3] + along * approach  # on the line through the fingers, at the object's height
    pinch = T_base_close[:3, 2]
    yaw = np.arctan2(pinch[1], pinch[0])
    yaw -= np.pi / 2 * np.round(yaw / (np.pi / 2))  # a block has four equal sides
    fall = T_base_open[:2, 3] + (np.zeros(2) if shift_m is None else shift_m)
    container_height = s.table_height_m - bottom_m(config.scene.props[task.objects[container].prop])
    return {
        thing: pose_to_pos_quat(make_pose(rotation_about_axis(_Z, yaw), [*spot[:2], center_height])),
        container: pose_to_pos_quat(make_pose(np.eye(3), [*fall, container_height])),
    }


def bottom_m(prop: PropConfig) -> float:
    """Lowest point of an upright prop, in its frame."""
    extent = {"box": 2, "cylinder": 1, "sphere": 0}
    lows = []
    for geom in prop.geoms:
        half = sum(geom.size_m[:2]) if geom.type == "capsule" else geom.size_m[extent[geom.type]]
        lows.append(geom.position_m[2] - half)
    return min(lows)


def footprint_m(prop: PropConfig) -> float:
    """Half width of an upright prop's smallest square around its frame's vertical axis."""
    return max(
        abs(geom.position_m[axis]) + (geom.size_m[axis] if geom.type == "box" else geom.size_m[0])
        for geom in prop.geoms
        for axis in (0, 1)
    )
