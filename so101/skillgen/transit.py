"""Interpolated motion between skill segments, checked in the twin against everything the arm and the held object could
hit."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np

from so101.config import Config
from so101.geometry import pose_from_pos_quat
from so101.kinematics import IkBackend
from so101.kinematics.boxes import RoundedBoxes, boxes_around, boxes_of_body
from so101.sim.mujoco_sim import MujocoSimulator
from so101.skillgen.causes import UNREACHABLE, AttemptFailed


@dataclass(frozen=True)
class HeldObject:
    """An object in the jaw: its name and pose in the hand, T_ee_obj (4, 4)."""

    name: str
    T_ee_obj: np.ndarray


class CollisionChecker:
    """Places the arm and a held object kinematically in a scratch copy of the scene and asks what comes too near."""

    def __init__(self, config: Config, simulator: MujocoSimulator) -> None:
        self._simulator = simulator
        self._settings = config.skillgen.transit
        self._model = copy.copy(simulator.model)
        self._range_m = max(self._settings.clearances_m)
        self._model.geom_margin[:] = 0.5 * self._range_m  # MuJoCo adds the margins of the two geoms
        self._model.body_margin[:] = 0.5 * self._range_m  # or bodies of several geoms are passed over
        self._data = mujoco.MjData(self._model)
        names = [self._model.body(i).name for i in range(self._model.nbody)]
        self._is_static = np.array([name in config.scene.statics for name in names])
        self._is_object = np.array([name in config.objects for name in names])
        self._is_arm = ~(self._is_static | self._is_object)
        self._id = {name: i for i, name in enumerate(names)}
        self._quat = np.zeros(4)

    def start(self, objects: dict[str, np.ndarray]) -> None:
        """Objects as they stand now, (7,) in base."""
        for name, pose in objects.items():
            self._data.qpos[self._simulator.object_slice(name)] = pose

    def near(self, q: np.ndarray, held: HeldObject | None) -> dict[tuple[int, int], float]:
        """Body pairs of (arm or held object, table or other object) within the widest of `clearances_m`, with their
        distance in m.

        Args:
            q: (6,) joints, rad.
        """
        data, model = self._data, self._model
        data.qpos[:6] = q
        if held is not None:
            position, rotation = self._simulator.kinematics.update(q)
            slot = self._simulator.object_slice(held.name)
            data.qpos[slot.start : slot.start + 3] = position + rotation @ held.T_ee_obj[:3, 3]
            mujoco.mju_mat2Quat(self._quat, (rotation @ held.T_ee_obj[:3, :3]).ravel())
            data.qpos[slot.start + 3 : slot.stop] = self._quat
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_collision(model, data)
        if not data.ncon:
            return {}
        pairs = model.geom_bodyid[data.contact.geom]
        moves = self._moves(held)[pairs]
        chosen = moves[:, 0] != moves[:, 1]
        found: dict[tuple[int, int], float] = {}
        for (a, b), first_moves, distance in zip(
            pairs[chosen].tolist(), moves[chosen, 0].tolist(), data.contact.dist[chosen].tolist(), strict=True
        ):
            pair = (a, b) if first_moves else (b, a)
            found[pair] = min(distance, found.get(pair, np.inf))
        return found

    def free(
        self, path: np.ndarray, jaw: float, held: HeldObject | None, clearance_m: float, end_slope_m: float
    ) -> bool:
        """Whether (n, 5) arm joints keep the clearance. What is nearer at either end (the object being approached, the
        rack that something was put into) excuses little: the clearance grows from there by `end_slope_m` over the whole
        way. The table need only not be penetrated."""
        rows = np.column_stack([path, np.full(len(path), jaw)])
        way = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(path, axis=0)).max(1))])
        share = way / max(way[-1], 1e-9)
        first, last = self.near(rows[0], held), self.near(rows[-1], held)
        for t in range(0, len(rows), self._settings.check_stride):
            u = share[t]
            for pair, distance in self.near(rows[t], held).items():
                at_ends = first.get(pair, np.inf), last.get(pair, np.inf)
                least = clearance_m
                if self._is_static[pair[1]]:
                    least = 0.0
                least = min(least, at_ends[0] + end_slope_m * u, at_ends[1] + end_slope_m * (1 - u))
                if distance < least - self._settings.penetration_m:
                    return False
        return True

    def arm_distance(self, q: np.ndarray, name: str, held: HeldObject | None) -> float:
        """Distance [m] of the arm's links at joints q (6,) to an object, at most the widest clearance; `held` does
        not count."""
        held_id = self._id[held.name] if held is not None else -1
        target = self._id[name]
        near = [d for (a, b), d in self.near(q, held).items() if b == target and a != held_id]
        return min(near, default=self._range_m)

    def clear_of(self, q: np.ndarray, names: Sequence[str], distance_m: float) -> bool:
        """Whether the arm's links at joints q (6,) stay `distance_m` (up to the clearance) away from these objects."""
        bodies = {self._id[name] for name in names}
        return all(d >= distance_m for (_, b), d in self.near(q, None).items() if b in bodies)

    def obstacles(self, held: HeldObject | None) -> RoundedBoxes:
        """What stands around, in base: everything that neither is the arm nor the held object."""
        mujoco.mj_kinematics(self._model, self._data)
        still = ~self._moves(held)
        return boxes_around(self._model, self._data, [b for b in range(1, self._model.nbody) if still[b]])

    def shape(self, name: str) -> RoundedBoxes:
        """An object in its own frame."""
        return boxes_of_body(self._model, self._id[name])

    def _moves(self, held: HeldObject | None) -> np.ndarray:
        """(bodies,) whether a body is part of the arm or held."""
        if held is None:
            return self._is_arm
        moves = self._is_arm.copy()
        moves[self._id[held.name]] = True
        return moves


class _Kept:
    """Iterates lazily the first time and remembers for the next."""

    def __init__(self, items: Iterator) -> None:
        self._items, self._kept = items, []

    def __iter__(self) -> Iterator:
        yield from self._kept
        for item in self._items:
            self._kept.append(item)
            yield item


class TransitPlanner:
    """Joint paths from where the arm is to the first pose of a segment."""

    def __init__(self, config: Config, simulator: MujocoSimulator, ik: IkBackend) -> None:
        self.settings = config.skillgen.transit
        self._unreachable_m = config.skillgen.causes.unreachable_m
        self._simulator, self._ik = simulator, ik
        self._dt = simulator.control_dt
        self.checker = CollisionChecker(config, simulator)
        lag_s = np.array([joint.lag_s for joint in config.robot.joints[:5]])
        self._decays = [np.exp(-self._dt / (scale * lag_s)) for scale in self.settings.lag_scales]
        self._planner, self._dilation = None, 1.0
        if self.settings.planner == "curobo":
            from so101.kinematics.curobo_planner import CuroboPlanner  # optional, and seconds to import

            self._planner = CuroboPlanner(config, simulator.kinematics)
            self._dilation = config.ik.curobo.planner.time_dilation
            self._end_slope_m = config.ik.curobo.planner.followed_slope_m
        self.start_attempt()

    def start_attempt(self) -> None:
        """Counts what the planner does from here on: `planner_counts`."""
        self._planned_count, self._fallbacks = 0, {}

    def planner_counts(self) -> dict[str, Any] | None:
        """{"planned": transits planned, "fallback": {reason: transits interpolated}} since `start_attempt`; None when
        no planner was chosen. Reasons: no_plan (none found), too_near (found, but not free by the twin's own check)."""
        if self._planner is None:
            return None
        return {"planned": self._planned_count, "fallback": dict(sorted(self._fallbacks.items()))}

    def plan(
        self,
        q_from: np.ndarray,
        q_to: np.ndarray,
        T_to: np.ndarray,
        jaw: float,
        held: HeldObject | None,
        objects: dict[str, np.ndarray],
    ) -> np.ndarray | None:
        """(n, 5) joint path [rad] from q_from to q_to (`goal` of T_to (4, 4)), or None when every candidate comes too
        near something.

        Candidates, first free one wins, at the widest clearance and then at narrower ones: straight in joint space;
        then by way of the goal with the pan joint turned back towards where the arm is now, raised a little more each
        time; then the same after raising the hand where it is.
        """
        q_from = np.asarray(q_from, float)
        self.checker.start(objects)
        if self._planner is not None and (path := self._planned(q_from, q_to, jaw, held)) is not None:
            return path
        candidates = _Kept(self._candidates(q_from, q_to, T_to))
        for clearance in self.settings.clearances_m:
            for via in candidates:
                path = self._timed([q_from, *via, q_to])
                if self._free(q_from, path, jaw, held, clearance):
                    return path
        return None

    def _planned(self, q_from: np.ndarray, q_to: np.ndarray, jaw: float, held: HeldObject | None) -> np.ndarray | None:
        """(n, 5) planned path, or None after counting why there is none."""
        points = self._planner.plan(
            q_from, q_to, self.checker.obstacles(held),
            self.checker.shape(held.name) if held is not None else None,
            held.T_ee_obj if held is not None else None,
        )  # fmt: skip
        reason = "no_plan"
        if points is not None:
            path = self._timed(list(points), self._dilation)
            clearance = min(self.settings.clearances_m)
            if all(
                self.checker.free(self._followed(q_from, path, decay), jaw, held, clearance, self._end_slope_m)
                for decay in self._decays
            ):
                self._planned_count += 1
                return path
            reason = "too_near"
        self._fallbacks[reason] = self._fallbacks.get(reason, 0) + 1
        return None

    def goal(self, q_from: np.ndarray, T_to: np.ndarray, hint: np.ndarray | None = None) -> np.ndarray:
        """Joints for T_to: the first solution within tolerance from the hint (5,) rad, from here or from a posture
        turned towards the goal, else the best of them.

        Raises:
            AttemptFailed: no posture brings the hand near T_to.
        """
        s = self.settings
        azimuth = float(np.arctan2(*(T_to[:2, 3] - s.pan_axis_m)[::-1]))
        results = []
        hints = [] if hint is None else [hint]
        starts = np.array([*hints, q_from, *([-azimuth, *posture] for posture in s.postures_rad)])
        for result in self._ik.solve_from(starts, T_to, s.goal_iterations):
            if result.position_error_m <= s.goal_tolerance_m and result.rotation_error_rad <= s.goal_tolerance_rad:
                return result.q
            results.append(result)
        nearest = min(result.position_error_m for result in results)
        if nearest > self._unreachable_m:
            raise AttemptFailed(UNREACHABLE, position_error_m=nearest)
        return min(results, key=lambda r: (r.position_error_m > s.goal_tolerance_m, round(r.rotation_error_rad, 2))).q

    def _candidates(self, q_from: np.ndarray, q_to: np.ndarray, T_to: np.ndarray) -> Iterator[list[np.ndarray]]:
        """Way points, (5,) each, between start and goal."""
        s = self.settings
        yield []
        back = s.swing_back * (q_from[0] - q_to[0])
        over_goal = []
        for lift in np.arange(0.0, s.max_lift_m + 1e-9, s.lift_step_m):
            above = self._raised(q_to, T_to, lift)
            beside = above.copy()
            beside[0] += back
            over_goal.append([beside, above] if lift else [beside])
            yield over_goal[-1]
        T_from = self._simulator.fk(q_from)
        for lift, via in zip(np.arange(s.lift_step_m, s.max_lift_m + 1e-9, s.lift_step_m), over_goal[1:], strict=True):
            up = self._raised(q_from, T_from, lift)
            yield [up, *via]
            yield [up, via[-1]]

    def _raised(self, q: np.ndarray, T: np.ndarray, lift_m: float) -> np.ndarray:
        """Joints near q (5,) whose hand is lift_m higher than T (4, 4)."""
        if not lift_m:
            return q
        T = T.copy()
        T[2, 3] += lift_m
        return self._ik.solve(q, T, self.settings.goal_iterations).q

    def _free(
        self, q_from: np.ndarray, path: np.ndarray, jaw: float, held: HeldObject | None, clearance_m: float
    ) -> bool:
        """Whether a path is free as servos of every lag will follow it."""
        return all(
            self.checker.free(self._followed(q_from, path, decay), jaw, held, clearance_m, self.settings.end_slope_m)
            for decay in self._decays
        )

    def _followed(self, q_from: np.ndarray, path: np.ndarray, decay: np.ndarray) -> np.ndarray:
        """Where the servos will really be, (n, 5): each joint follows its target as a first-order lag whose error
        shrinks by `decay` (5,) a frame."""
        rows, q = [], np.array(q_from)
        for target in path:
            q = target + (q - target) * decay
            rows.append(q)
        rows.extend(target + (q - target) * decay**k for k in range(1, self.settings.min_frames))
        return np.array(rows)

    def _timed(self, corners: list[np.ndarray], speed_share: float = 1.0) -> np.ndarray:
        """One row a frame along straight joint-space legs: speed limit of the fastest joint, eased ends, rounded
        corners."""
        s = self.settings
        knots = np.array(corners)
        step = s.max_joint_speed_rad_s * speed_share * self._dt
        clock = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(knots, axis=0)).max(1) / step)])
        n = max(s.min_frames, int(np.ceil(clock[-1] * s.ease_factor)))
        u = np.arange(1, n + 1) / n
        eased = u + (u**3 * (10 - 15 * u + 6 * u * u) - u) * s.ease
        path = np.stack([np.interp(eased * clock[-1], clock, column) for column in knots.T], -1)
        if len(corners) > 2 and s.rounding_frames > 1:
            half = s.rounding_frames // 2
            padded = np.concatenate([np.repeat(knots[:1], half, 0), path, np.repeat(knots[-1:], half, 0)])
            kernel = np.full(2 * half + 1, 1.0 / (2 * half + 1))
            path = np.stack([np.convolve(column, kernel, "valid") for column in padded.T], -1)
            path[-1] = knots[-1]
        return path


def object_poses(simulator: MujocoSimulator, env: int) -> dict[str, np.ndarray]:
    """name -> (7,) of all objects now."""
    return {name: simulator.object_pose(env, name) for name in simulator.object_names}


def held_object(simulator: MujocoSimulator, env: int, name: str) -> HeldObject:
    """`name` as it sits in the hand now."""
    T_base_ee = simulator.ee_pose(env)
    T_base_obj = pose_from_pos_quat(simulator.object_pose(env, name))
    T_ee_base = np.linalg.inv(T_base_ee)
    return HeldObject(name, T_ee_base @ T_base_obj)
