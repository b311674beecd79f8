"""Closed-form joints of the arm for a hand whose approach lies in the arm's own vertical plane.

Pan turns the plane, wrist roll turns the hand about its approach; lift, elbow and wrist flex are a planar arm of three
links.
"""

from __future__ import annotations

import numpy as np

from so101.geometry import rotation_about_axis
from so101.kinematics.arm import ArmKinematics

UP = np.array([0.0, 0.0, 1.0])

Plane = np.ndarray  # (2,) outward and up, m


class PlanarArm:
    """The planar chain, measured from the model at zero joints."""

    def __init__(self, kinematics: ArmKinematics) -> None:
        zero = np.zeros(5)
        anchors, axes = kinematics.joint_axes(zero)
        p, R = (part.copy() for part in kinematics.update(zero))
        self._lower, self._upper = kinematics.lower[:5], kinematics.upper[:5]
        self.pan_axis = anchors[0][:2]
        self._pan_sign = float(np.sign(axes[0][2]))
        outward = np.array([*R[:2, 0], 0.0]) / np.linalg.norm(R[:2, 0])  # where the hand points with the pan at zero
        self._zero_azimuth = float(np.arctan2(outward[1], outward[0]))
        left = np.cross(UP, outward)
        self._frame = np.stack([outward, UP, left])
        self._signs = [-float(np.sign(axes[joint] @ left)) for joint in (1, 2, 3)]  # positive turns outward to up
        shoulder, elbow, wrist = (self._in_plane(anchors[joint]) for joint in (1, 2, 3))
        self._shoulder, self._wrist = shoulder, wrist
        self._upper_arm, self._forearm = elbow - shoulder, wrist - elbow
        self._elevation = float(np.arctan2(R[2, 0], R[:, 0] @ outward))
        self._roll_axis = axes[4]
        along = anchors[4] + axes[4] * (axes[4] @ (p - anchors[4]))
        self._on_roll_axis, self._off_roll_axis = along, p - along

    def solve(self, position: np.ndarray, elevation_rad: float, roll_rad: float) -> np.ndarray | None:
        """Joints (5,) rad with the end effector at position (3,) in base, its approach `elevation_rad` above the
        horizontal and away from the pan axis; elbow up. None out of reach or beyond a joint limit."""
        rolled = self._on_roll_axis + rotation_about_axis(self._roll_axis, roll_rad) @ self._off_roll_axis
        hand = self._in_plane(rolled) - self._wrist
        sideways = float(self._frame[2] @ rolled[:3] - self._frame[2, :2] @ self.pan_axis)
        offset = np.asarray(position[:2]) - self.pan_axis
        distance = float(np.hypot(*offset))
        if distance <= abs(sideways):
            return None
        azimuth = np.arctan2(offset[1], offset[0]) - np.arcsin(sideways / distance)
        pan = self._pan_sign * _wrapped(azimuth - self._zero_azimuth)
        turn_hand = elevation_rad - self._elevation
        wrist = np.array([np.sqrt(distance**2 - sideways**2), position[2]]) - _turned(hand, turn_hand)
        reach = wrist - self._shoulder
        a, b, d = np.linalg.norm(self._upper_arm), np.linalg.norm(self._forearm), np.linalg.norm(reach)
        cosine = (a * a + d * d - b * b) / (2 * a * d)
        if abs(cosine) > 1:
            return None
        turn_upper = _angle(reach) + np.arccos(cosine) - _angle(self._upper_arm)
        elbow = self._shoulder + _turned(self._upper_arm, turn_upper)
        turn_fore = _angle(wrist - elbow) - _angle(self._forearm)
        turns = (turn_upper, turn_fore - turn_upper, turn_hand - turn_fore)
        flex = [sign * _wrapped(turn) for sign, turn in zip(self._signs, turns, strict=True)]
        q = np.array([pan, *flex, roll_rad])
        return q if ((q >= self._lower) & (q <= self._upper)).all() else None

    def _in_plane(self, point: np.ndarray) -> Plane:
        return self._frame[:2] @ (point - [*self.pan_axis, 0.0])


def _turned(v: Plane, angle: float) -> Plane:
    c, s = np.cos(angle), np.sin(angle)
    return np.array([c * v[0] - s * v[1], s * v[0] + c * v[1]])


def _angle(v: Plane) -> float:
    return float(np.arctan2(v[1], v[0]))


def _wrapped(angle: float) -> float:
    return float((angle + np.pi) % (2 * np.pi) - np.pi)
