"""Joints for a hand at an object on a table: steep where the arm reaches that, tilted outward where it does not."""

from __future__ import annotations

import mujoco
import numpy as np

from so101.families.declaration import ExpertHand, Family
from so101.families.scene import compiled, hand_bodies
from so101.kinematics.planar import PlanarArm
from so101.sim.bake import EE_SITE

JOINTS = 5
UP = np.array([0.0, 0.0, 1.0])
_SWEEP = 4  # angles of the closing jaw at which its tip is looked at
_ROLL_ROUNDS = 3  # the roll moves the pan a little, which turns the pinch a little


class FamilyKinematics:
    """The family's arm as `PlanarArm` wants it, with the lowest point of the hand. Not thread-safe.

    The hand's frame is robot.yaml's end effector: x = approach, z = from the fixed to the moving jaw.
    """

    def __init__(self, family: Family) -> None:
        self._model = model = compiled(family)
        self._data = mujoco.MjData(model)
        self._site = model.site(EE_SITE).id
        self.lower = np.maximum(model.jnt_range[:6, 0], model.actuator_ctrlrange[:6, 0])
        self.upper = np.minimum(model.jnt_range[:6, 1], model.actuator_ctrlrange[:6, 1])
        bodies = [model.body(name).id for name in hand_bodies(family)]
        self._boxes = [g for g in range(model.ngeom) if model.geom_bodyid[g] in bodies and model.geom_contype[g]]

    def update(self, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Set (5,) or (6,) joints, rad; views of p (3,) m and R (3, 3) of the hand."""
        self._data.qpos[: len(q)] = q
        mujoco.mj_kinematics(self._model, self._data)
        return self._data.site_xpos[self._site], self._data.site_xmat[self._site].reshape(3, 3)

    @property
    def lift_axis(self) -> np.ndarray:
        """(3,) of the lift joint as of the last `update`."""
        return self._data.xaxis[1]

    def joint_axes(self, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(5, 3) a point on each joint's axis, m, and (5, 3) its direction at joints (5,) rad."""
        self.update(q)
        return self._data.xanchor[:JOINTS].copy(), self._data.xaxis[:JOINTS].copy()

    def lowest_m(self, q: np.ndarray) -> float:
        """z, m, of the lowest corner of the hand's boxes at joints (6,) rad."""
        self.update(q)
        data, model = self._data, self._model
        up = data.geom_xmat[self._boxes, 6:9]  # row z of each box's rotation
        return float((data.geom_xpos[self._boxes, 2] - (np.abs(up) * model.geom_size[self._boxes]).sum(-1)).min())


class HandIK:
    """Closed-form joints of the family's arm for a place of the hand and a direction of the pinch."""

    def __init__(self, family: Family, hand: ExpertHand) -> None:
        self.hand = hand
        self.kinematics = FamilyKinematics(family)
        self.planar = PlanarArm(self.kinematics)
        zero = np.zeros(JOINTS)
        heading = self.kinematics.update(zero)[1][:, 0] * [1.0, 1.0, 0.0]
        axes = self.kinematics.joint_axes(zero)[1]
        self._left_sign = float(np.sign(axes[1] @ np.cross(UP, heading)))
        self._roll_sign = float(np.sign(axes[4] @ self.kinematics.update(zero)[1][:, 0]))
        self.level_roll = self._roll_sign * -self._pinch_angle(zero)  # the moving jaw on the left, the camera on top

    def elevations(self, start_rad: float | None = None) -> np.ndarray:
        """Elevations of the approach to try, rad, best first: the steepest, or the nearest to `start_rad`."""
        steepest, flattest, step = np.deg2rad([self.hand.steepest_deg, self.hand.flattest_deg, self.hand.step_deg])
        outward = np.arange(steepest, flattest + 1e-9, step)
        found = np.concatenate([outward, np.arange(steepest - step, np.deg2rad(self.hand.inward_deg) - 1e-9, -step)])
        return found if start_rad is None else found[np.argsort(np.abs(found - start_rad), kind="stable")]

    def solve(
        self,
        position: np.ndarray,
        elevation_rad: float,
        *,
        pinch: np.ndarray | None = None,
        roll_rad: float | None = None,
    ) -> np.ndarray | None:
        """Joints (5,) rad with the hand at position (3,) m, its approach `elevation_rad` over the horizontal.

        Args:
            pinch: (2,) a horizontal direction; the jaws close along it or at a right angle to it (faces of a box),
                whichever is nearer to level. They lean by no more than hand.max_lean_deg. None: the roll stays.
            roll_rad: roll joint without a pinch; that of a level pinch when None.

        Returns:
            None out of reach.
        """
        q = self.planar.solve(position, elevation_rad, self.level_roll if roll_rad is None else roll_rad)
        if q is None or pinch is None:
            return q
        for _ in range(_ROLL_ROUNDS):
            turn = _wrapped(self._wanted_angle(q, pinch, elevation_rad) - self._pinch_angle(q))
            if abs(turn) < 1e-3:
                break
            q = self.planar.solve(position, elevation_rad, q[4] + self._roll_sign * turn)
            if q is None:
                break
        return q

    def first(
        self, position: np.ndarray, *, near_rad: float | None = None, **how: object
    ) -> tuple[np.ndarray, float] | None:
        """As `solve` at the first elevation within reach; (joints, elevation rad) or None."""
        for elevation in self.elevations(near_rad):
            q = self.solve(position, float(elevation), **how)
            if q is not None:
                return q, float(elevation)
        return None

    def over_table(
        self, position: np.ndarray, surface_m: float, jaw_rad: float, pinch: np.ndarray
    ) -> tuple[np.ndarray, float] | None:
        """As `first`, raised as far as the closing finger tips need over a table at `surface_m`: the steepest that
        needs no more than hand.most_raise_m, else what needs least."""
        sweep = np.linspace(jaw_rad, 0.0, _SWEEP)
        best: tuple[float, np.ndarray, float] | None = None
        for elevation in self.elevations():
            q = self.solve(position, float(elevation), pinch=pinch)
            if q is None:
                continue
            lowest = min(self.kinematics.lowest_m(np.append(q, jaw)) for jaw in sweep)
            raised = max(0.0, surface_m + self.hand.tip_clearance_m - lowest)
            if raised > 0.0:
                q = self.solve(position + raised * UP, float(elevation), pinch=pinch)
            if q is not None and (best is None or raised < best[0]):
                best = (raised, q, float(elevation))
            if best is not None and best[0] <= self.hand.most_raise_m:
                break
        return best[1:] if best is not None else None

    def pose(self, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """p (3,) m and R (3, 3) of the hand, own memory."""
        p, R = self.kinematics.update(q)
        return p.copy(), R.copy()

    def _axes(self, q: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Left of the arm's plane, up across the approach, and the pinch, (3,) each."""
        R = self.kinematics.update(q)[1]
        left = self._left_sign * self.kinematics.lift_axis
        return left, np.cross(R[:, 0], left), R[:, 2]

    def _pinch_angle(self, q: np.ndarray) -> float:
        left, up, pinch = self._axes(q)
        return float(np.arctan2(pinch @ up, pinch @ left))

    def _wanted_angle(self, q: np.ndarray, pinch: np.ndarray, elevation_rad: float) -> float:
        """Of the pinch about the approach: along a face of the box, but not leaning more than it may."""
        left, up, _ = self._axes(q)
        along = np.array([*pinch, 0.0])
        angle = float(np.arctan2(along @ up, along @ left))
        turn = (angle + np.pi / 4) % (np.pi / 2) - np.pi / 4  # the nearest of four faces
        flat = abs(np.cos(elevation_rad))
        lean = np.sin(np.deg2rad(self.hand.max_lean_deg))
        most = np.arcsin(lean / flat) if flat > lean else np.pi / 4
        return float(np.clip(turn, -most, most))


def _wrapped(angle: float) -> float:
    return float((angle + np.pi) % (2 * np.pi) - np.pi)
