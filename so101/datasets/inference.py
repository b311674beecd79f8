"""What a joint-space recording tells about the scene it was made in: when the jaw held something, where that lay and
where it was put, and how the arm's zeros differ from the twin's. Pure geometry; the physics test is in `seeding`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import mujoco
import numpy as np
from scipy.optimize import least_squares

from so101.config import Config
from so101.config.scene import PropConfig
from so101.geometry import make_pose, pose_to_pos_quat, rotation_about_axis
from so101.kinematics import ArmKinematics
from so101.sim.bake import baked_model

NUM_SEARCHED = slice(1, 4)  # shoulder_lift, elbow_flex, wrist_flex: the joints that decide the height of the hand
_Z = np.array([0.0, 0.0, 1.0])


class NotUsable(Exception):
    """This recording cannot become a seed; the text is the cause that the report counts."""


class Grasp(NamedTuple):
    """Frames of the one carry of a recording.

    begin: first frame to keep; start: the jaw starts its last closing move; close: it has stopped on the object;
    open: last frame it is closed; end: one past the last frame to keep (the jaw shuts again, or the recording ends).
    """

    begin: int
    start: int
    close: int
    open: int
    end: int


def find_grasp(jaw: np.ndarray, jaw_command: np.ndarray, has_command: bool, fps: float, config: Config) -> Grasp:
    """Find the carry from the jaw alone.

    With a leader the held object shows as a jaw that stands still well above its command. An arm moved by hand has no
    command: there it stands near its lowest angle, between times when it is open. Of several carries the last counts
    (people try again), and frames before the release of the one before are dropped.

    Args:
        jaw, jaw_command: (T,) rad, measured and commanded.
        has_command: False when the two are the same thing.

    Raises:
        NotUsable: with the cause.
    """
    s = config.teleop.replay
    speed = np.abs(np.gradient(jaw)) * fps
    shut = min(0.5 * (jaw.min() + jaw.max()), jaw.min() + s.closed_jaw_rad)
    held = (jaw - jaw_command > s.held_gap_rad) & (speed < s.jaw_still_rad_s) if has_command else jaw < shut
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
    begin = 0 if len(runs) < 2 else runs[-2][1]
    waiting = np.flatnonzero((speed[begin:close] < s.jaw_still_rad_s) & (jaw[begin:close] > level + s.jaw_open_rad))
    start = begin + int(waiting[-1]) if waiting.size else begin
    peak = release + int(np.argmax(jaw[release:]))
    shuts = np.flatnonzero(jaw[peak:] < 0.5 * (jaw[peak] + level))
    end = peak + int(np.argmax(jaw[peak:] < jaw[peak] - s.jaw_level_rad)) if shuts.size else len(jaw)
    return Grasp(begin, start, close, open_frame, max(end, release + 1))


def _runs(mask: np.ndarray) -> list[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(int), [0]])))
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]


def offset_spread(spans_ticks: Sequence[int | None], config: Config) -> np.ndarray:
    """(6,) rad: how far each zero may be off. The spread of range centres among real calibrations, plus half of what
    a joint was not swept: a range that stops short on one side moves its centre by half of the missing part."""
    s = config.teleop.replay
    missing = [
        0 if span is None else max(full - span, 0) for span, full in zip(spans_ticks, s.full_span_ticks, strict=True)
    ]
    return np.array(s.zero_spread_rad) + np.array(missing) * np.pi / 4096


def fit_offsets(kinematics: ArmKinematics, q_close: np.ndarray, spread: np.ndarray, config: Config) -> np.ndarray:
    """(6,) rad zero offsets of one calibration, from all its grasps: whatever was picked up lay on the table, so the
    hand must have been at one height above it each time. Robust least squares with the spread as prior; only the
    joints of the arm's plane are fitted, pan and roll cannot be seen this way.

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
    """(6,) rad: the smallest change of lift, elbow and wrist, in units of their spread, that brings the hand to
    `height` m at q_close (6,)."""
    change = np.zeros(6)
    for _ in range(iterations):
        gap = height - kinematics.fk(q_close + change)[2, 3]
        slope = kinematics.jacobian(q_close + change)[2, NUM_SEARCHED] * spread[NUM_SEARCHED]
        change[NUM_SEARCHED] += spread[NUM_SEARCHED] * slope * gap / (slope @ slope + 1e-9)
    return change


class Fingers:
    """Where the collision boxes of the two jaws are, for any joint angles. Owns one MjData."""

    POINTS_PER_EDGE = 6

    def __init__(self, config: Config) -> None:
        self.fixed_body = config.robot.ee_body
        self._model = baked_model(config, looks=False, props=False)
        self._data = mujoco.MjData(self._model)
        self._boxes = [(box.body, self._model.geom(box.name).id) for box in config.robot.jaw_boxes]
        ticks = np.linspace(-1.0, 1.0, self.POINTS_PER_EDGE)
        grid = np.stack(np.meshgrid(ticks, ticks, ticks, indexing="ij"), -1).reshape(-1, 3)
        self._surface = grid[np.abs(grid).max(axis=1) == 1.0]

    def points(self, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(N, 3) m in base, points on the fixed and on the moving jaw at joints q (6,) rad."""
        self._data.qpos[:6] = q
        mujoco.mj_kinematics(self._model, self._data)
        jaws: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
        for body, geom in self._boxes:
            local = self._surface * self._model.geom_size[geom]
            rotation = self._data.geom_xmat[geom].reshape(3, 3)
            jaws[body != self.fixed_body].append(local @ rotation.T + self._data.geom_xpos[geom])
        return np.concatenate(jaws[0]), np.concatenate(jaws[1])


def place_objects(
    config: Config,
    kinematics: ArmKinematics,
    fingers: Fingers,
    q_approach: np.ndarray,
    T_base_open: np.ndarray,
    shifts_m: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Object between the fingers when they closed, container under them when they opened, both upright on the table.

    The fingers of the last row pinch the object's height; along the pinch it lay where neither finger ran into it
    while they came down around it, near the fixed finger against which it ended up.

    Args:
        q_approach: (N, 6) rad from before the approach to the moment when the jaw starts to close.
        T_base_open: (4, 4) end effector when the jaw opened.
        shifts_m: (4,) what the recording does not show: the object's place along the pinch and across it, and x and y
            of the container (the object fell somewhere inside).

    Returns:
        name -> (7,) pose in base.
    """
    s, task = config.teleop.replay, config.task.active
    shifts = np.zeros(4) if shifts_m is None else shifts_m
    thing, container = task.success.objects[0], task.success.container
    prop = config.scene.props[task.objects[thing].prop]
    center_height = s.table_height_m - bottom_m(prop)
    half = footprint_m(prop)
    T_close = kinematics.fk(q_approach[-1])
    approach, pinch = T_close[:3, 0], T_close[:3, 2]
    along = (T_close[2, 3] - center_height) / -approach[2] if approach[2] < -0.3 else 0.0
    spot = (T_close[:3, 3] + along * approach)[:2]  # on the line through the fingers, at the object's height
    u = pinch[:2] / np.linalg.norm(pinch[:2])
    v = np.array([-u[1], u[0]])
    top = 2 * center_height - s.table_height_m
    low, high = _between_fingers(fingers, q_approach, u, v, spot, half, top)
    place = min(0.5 * (low + high), low + s.finger_clearance_m)
    spot = spot + (place - u @ spot + shifts[0]) * u + shifts[1] * v
    yaw = np.arctan2(u[1], u[0])
    yaw -= np.pi / 2 * np.round(yaw / (np.pi / 2))  # a block has four equal sides
    container_height = s.table_height_m - bottom_m(config.scene.props[task.objects[container].prop])
    return {
        thing: pose_to_pos_quat(make_pose(rotation_about_axis(_Z, yaw), [*spot, center_height])),
        container: pose_to_pos_quat(make_pose(np.eye(3), [*(T_base_open[:2, 3] + shifts[2:]), container_height])),
    }


def _between_fingers(
    fingers: Fingers, q_approach: np.ndarray, u: np.ndarray, v: np.ndarray, spot: np.ndarray, half: float, top: float
) -> tuple[float, float]:
    """Least and greatest place along u, m, of an object of half width `half` that no finger runs into below `top`."""
    limits = [-np.inf, np.inf]
    for q in q_approach:
        for side, points in enumerate(fingers.points(q)):
            near = (points[:, 2] < top) & (np.abs((points[:, :2] - spot) @ v) < half)
            if near.any():
                places = points[near, :2] @ u
                limits[side] = max(limits[0], float(places.max())) if side == 0 else min(limits[1], float(places.min()))
    if not np.isfinite(limits).all():
        return float(u @ spot), float(u @ spot)  # a finger was never that low: nothing more is known
    return limits[0] + half, limits[1] - half


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
