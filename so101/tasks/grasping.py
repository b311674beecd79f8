"""Hand poses for an object that is the same all around its axis, for an arm of five joints.

The hand's approach always lies in the vertical plane through the shoulder pan axis: the wrist rolls about the approach
and bends in that plane, nothing turns it out. A round object does not mind: any approach in the plane will do as long
as the jaws close across the object's axis, and once the object hangs in the hand, any turn about its own axis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import mujoco
import numpy as np

from so101.config import Config
from so101.geometry import invert_pose, make_pose, rotation_about_axis, rotation_angle
from so101.kinematics import ArmKinematics
from so101.kinematics.planar import PlanarArm
from so101.sim.bake import EE_SITE, baked_model
from so101.tasks.hand import UP, dipped, horizontal


class Pinch(NamedTuple):
    """A hand pose T_base_ee (4, 4) with the joints (5,) rad that reach it, its approach below the horizontal, and
    whether the object will hang upside down under the camera (`flipped`)."""

    T_base_ee: np.ndarray
    q: np.ndarray
    dip_rad: float
    flipped: bool


def table_top_m(config: Config) -> float:
    """Height in base of the highest thing that objects can lie on."""
    tops = [
        config.scene.static_positions_m[name][2] + geom.position_m[2] + geom.size_m[-1]
        for name, static in config.scene.statics.items()
        for geom in static.geoms
        if geom.collide
    ]
    return max(tops) - config.robot.base_position_m[2]


def finger_corners(config: Config, jaw_rad: float) -> np.ndarray:
    """(n, 3) corners of the finger boxes in the ee frame, jaw at `jaw_rad`."""
    model = baked_model(config, props=False)
    data = mujoco.MjData(model)
    data.qpos[5] = jaw_rad
    mujoco.mj_kinematics(model, data)
    site = model.site(EE_SITE).id
    R, p = data.site_xmat[site].reshape(3, 3), data.site_xpos[site]
    signs = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
    corners = []
    for box in config.robot.jaw_boxes:
        geom = model.geom(box.name).id
        corners.append(data.geom_xpos[geom] + signs * model.geom_size[geom] @ data.geom_xmat[geom].reshape(3, 3).T)
    return (np.concatenate(corners) - p) @ R


def turned_radial(T_base_obj: np.ndarray, T_ee_obj: np.ndarray, pan_axis_m: Sequence[float]) -> np.ndarray:
    """(4, 4) T_base_obj turned about the vertical through its origin so that the hand holding it points straight away
    from the pan axis (xy in base)."""
    approach = horizontal(T_base_obj[:3, :3] @ invert_pose(T_ee_obj)[:3, 0])
    outward = horizontal(T_base_obj[:3, 3] - [*pan_axis_m, T_base_obj[2, 3]])
    angle = np.arctan2(np.cross(approach, outward)[2], approach @ outward)
    return make_pose(rotation_about_axis(UP, angle) @ T_base_obj[:3, :3], T_base_obj[:3, 3])


class PinchFinder:
    """Finds reachable pinches across an axis, in closed form (`so101.kinematics.planar`)."""

    def __init__(self, config: Config, kinematics: ArmKinematics) -> None:
        self.settings = config.task.pinch
        self._kinematics = kinematics
        self._planar = PlanarArm(kinematics)
        self.pan_axis = self._planar.pan_axis
        self.level_roll_rad = level_roll(kinematics)
        self._lower, self._upper = kinematics.lower[4], kinematics.upper[4]
        self._corners = finger_corners(config, self.settings.closed_jaw_rad)
        self._table_m = table_top_m(config)
        self._max_tilt = np.sin(np.deg2rad(self.settings.max_tilt_deg))

    def pinches(
        self, point: np.ndarray, axis: np.ndarray, dips_rad: Sequence[float], flips: Sequence[bool] = (False, True)
    ) -> Iterator[Pinch]:
        """Reachable pinches at `point` (3,) of an object with unit `axis` (3,), in the order of dips, then flips."""
        for dip in dips_rad:
            for flipped in flips:
                if (pinch := self.pinch(point, axis, dip, flipped)) is not None:
                    yield pinch

    def pinch(self, point: np.ndarray, axis: np.ndarray, dip_rad: float, flipped: bool) -> Pinch | None:
        """The pinch with one dip and side, or None when the arm does not reach it."""
        outward = horizontal(point - [*self.pan_axis, point[2]])
        approach = dipped(outward, dip_rad)
        across = np.cross(axis, approach)
        length = np.linalg.norm(across)
        if length < 1e-6:
            return None
        z = across / length * (-1.0 if flipped else 1.0)
        if abs(z[2]) > self._max_tilt:
            return None
        R = np.column_stack([approach, np.cross(z, approach), z])
        lowest = point[2] + float((self._corners @ R[2]).min())
        position = point + max(0.0, self._table_m + self.settings.table_clearance_m - lowest) * UP
        T = make_pose(R, position)
        q = self._solve(T)
        return None if q is None else Pinch(T, q, dip_rad, flipped)

    def reachable(self, T_base_ee: np.ndarray) -> bool:
        """Whether the arm reaches a pose whose approach lies in its plane."""
        return self._solve(T_base_ee) is not None

    def joints(self, T_base_ee: np.ndarray) -> np.ndarray | None:
        """Joints (5,) rad that put the end effector there with the approach turned into the arm's plane; None out of
        reach or beyond a joint limit."""
        outward = horizontal(T_base_ee[:3, 3] - [*self.pan_axis, T_base_ee[2, 3]])
        roll = self._roll(T_base_ee, outward)
        if roll is None:
            return None
        elevation = np.arctan2(T_base_ee[2, 0], T_base_ee[:3, 0] @ outward)
        return self._planar.solve(T_base_ee[:3, 3], float(elevation), roll)

    def _solve(self, T_base_ee: np.ndarray) -> np.ndarray | None:
        """`joints`, or None where they miss the rotation by more than the tolerance."""
        q = self.joints(T_base_ee)
        if q is None:
            return None
        error = rotation_angle(self._kinematics.update(q)[1], T_base_ee[:3, :3])
        return q if error < self.settings.tolerance_rad else None

    def _roll(self, T_base_ee: np.ndarray, outward: np.ndarray) -> float | None:
        """Wrist roll, rad, that the pose needs; None when it lies beyond the joint's limits."""
        left = np.cross(UP, outward)
        x, z = T_base_ee[:3, 0], T_base_ee[:3, 2]
        turn = np.arctan2(-x @ np.cross(left, z), left @ z)  # positive roll turns the hand about its own -x
        for roll in (
            self.level_roll_rad + turn,
            self.level_roll_rad + turn - 2 * np.pi,
            self.level_roll_rad + turn + 2 * np.pi,
        ):
            if self._lower <= roll <= self._upper:
                return float(roll)
        return None


def level_roll(kinematics: ArmKinematics) -> float:
    """Wrist roll, rad, at which the ee z axis is horizontal and points to the arm's left: the camera is on top."""
    rotation = kinematics.update(np.zeros(5))[1]
    x, z = rotation[:, 0], rotation[:, 2]
    left = np.cross(UP, horizontal(x))
    return float(np.arctan2(-x @ np.cross(z, left), z @ left))


class ServeCheck:
    """Whether the arm can grasp an object as it lies and stand it up in an opening of the container: reach alone, no
    physics."""

    def __init__(self, config: Config, finder: PinchFinder) -> None:
        self.finder = finder
        success = config.task.active.success
        self._openings = np.array([[x, y, 0.0] for x, y in success.openings_m])
        self._height_m = (
            0.5 * (success.strict.min_height_m + success.strict.max_height_m) + config.task.pinch.place_height_m
        )
        self._dips = np.deg2rad(config.task.pinch.dips_deg)
        self._leans = np.deg2rad(config.task.pinch.place_lean_deg)
        self._pivot = success.pivot_m

    def pinch(self, T_base_obj: np.ndarray, offset_m: float, T_base_cont: np.ndarray) -> Pinch | None:
        """The first pinch at `offset_m` along the object's z from which some opening is reached; None when there is
        none."""
        axis = T_base_obj[:3, 2]
        point = T_base_obj[:3, 3] + offset_m * axis
        for pinch in self.finder.pinches(point, axis, self._dips):
            if self.opening(invert_pose(pinch.T_base_ee) @ T_base_obj, T_base_cont) is not None:
                return pinch
        return None

    def opening(self, T_ee_obj: np.ndarray, T_base_cont: np.ndarray) -> int | None:
        """The first opening of the container in which an object held like this can be stood up; None when none is
        reached."""
        for index, opening in enumerate(self._openings):
            spot = T_base_cont[:3, 3] + T_base_cont[:3, :3] @ opening + self._height_m * UP
            for lean in self._leans:
                T = upright(spot, T_ee_obj, lean, self._pivot, self.finder.pan_axis)
                if self.finder.reachable(T @ invert_pose(T_ee_obj)):
                    return index
        return None


def upright(
    spot: np.ndarray, T_ee_obj: np.ndarray, lean_rad: float, pivot_m: Sequence[float], pan_axis_m: Sequence[float]
) -> np.ndarray:
    """(4, 4) T_base_obj of an object standing with its origin at `spot` (3,), the hand that holds it pointing away from
    the pan axis, its top leaning away from the arm by `lean_rad` about the point `pivot_m` of it."""
    T = turned_radial(make_pose(np.eye(3), spot), T_ee_obj, pan_axis_m)
    outward = horizontal(spot - [*pan_axis_m, spot[2]])
    R_lean = rotation_about_axis(np.cross(UP, outward), lean_rad)
    pivot = T[:3, :3] @ np.array(pivot_m)
    return make_pose(R_lean @ T[:3, :3], spot + pivot - R_lean @ pivot)
