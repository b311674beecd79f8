"""From a source segment to joints: retargeted, turned to what the arm can serve, solved by IK, checked against what
stands around."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from so101.config import Config
from so101.config.task import SubtaskConfig
from so101.geometry import make_pose, pose_from_pos_quat, rotation_about_axis
from so101.kinematics import IkBackend
from so101.sim.mujoco_sim import MujocoSimulator
from so101.skillgen import causes
from so101.skillgen.causes import AttemptFailed
from so101.skillgen.command_offset import commanded
from so101.skillgen.retarget import correct_for_held, retarget
from so101.skillgen.selection import align_symmetric
from so101.skillgen.subtasks import Segment, opening_pose
from so101.skillgen.transit import HeldObject, TransitPlanner
from so101.tasks.grasping import PinchFinder
from so101.tasks.hand import UP, horizontal
from so101.tasks.success import free_openings


@dataclass(frozen=True)
class PlannedSegment:
    """A segment ready to be run.

    Attributes:
        T_wanted: (n, 4, 4) where the measured hand should be, T_base_ee.
        T_start: (4, 4) commanded pose of its first row.
        q: (m, 5) joints [rad] of its rows; m < n where a retreat ends early.
        jaw_target: (n,) rad.
    """

    segment: Segment
    T_wanted: np.ndarray
    T_start: np.ndarray
    q: np.ndarray
    jaw_target: np.ndarray


class SegmentPlanner:
    """Plans segments for the scene as it stands, without moving anything."""

    def __init__(self, config: Config, simulator: MujocoSimulator, ik: IkBackend, transits: TransitPlanner) -> None:
        self.settings = config.skillgen
        self.task = config.task.active
        self._config = config
        self._kinematics = simulator.kinematics
        self._ik = ik
        self._transits = transits
        self._checker = transits.checker
        self._max_lean_rad = np.deg2rad(config.skillgen.place.max_lean_deg)
        self._finder = PinchFinder(config, simulator.kinematics)
        self._symmetry = {
            name: (np.array(axis) if (axis := config.scene.props[placement.prop].symmetry_axis) else None)
            for name, placement in self.task.objects.items()
        }

    def symmetry(self, name: str) -> np.ndarray | None:
        """Symmetry axis of an object, or None."""
        return self._symmetry[name]

    def references(self, subtask: SubtaskConfig, objects: dict[str, np.ndarray]) -> list[np.ndarray]:
        """Poses (4, 4) in base that the subtask's segments may be retargeted to, best first: the object's, or those of
        the container's free openings."""
        T_base_obj = pose_from_pos_quat(objects[subtask.object])
        if subtask.held is None or subtask.object != self.task.success.container:
            return [T_base_obj]
        free = free_openings(self._config, objects, but=subtask.held)
        poses = [opening_pose(T_base_obj, opening) for opening in self.task.success.openings_m]
        if subtask.openings == "farthest":
            pan_axis = self.settings.transit.pan_axis_m
            wanted = sorted(free, key=lambda index: -np.linalg.norm(poses[index][:2, 3] - pan_axis))
        else:
            wanted = [index for index in subtask.openings if index in free]
        return [poses[index] for index in wanted]

    def plans(
        self,
        subtask: SubtaskConfig,
        segment: Segment,
        references: list[np.ndarray],
        q_now: np.ndarray,
        jaw_now: float,
        held: HeldObject | None,
        objects: dict[str, np.ndarray],
    ) -> Iterator[PlannedSegment]:
        """Ways to run a segment that the arm can follow and that keep clear of what stands around, best first.

        Args:
            references: of `references`.
            q_now, jaw_now: commanded joints (5,) and jaw now, rad.
            held: the object in the jaw.
            objects: name -> (7,) pose in base now.

        Raises:
            AttemptFailed: there is none; the cause is that of the first.
        """
        failures: list[AttemptFailed] = []
        leaning: list[PlannedSegment] = []
        found = False
        for wanted in self._paths(subtask, segment, references, held):
            self._checker.start(objects)
            try:
                plan = self._plan(subtask, segment, wanted, q_now, jaw_now, held)
            except AttemptFailed as error:
                failures.append(error)
                continue
            if held is not None and self._lean_rad(plan, wanted, held) > self._max_lean_rad:
                leaning.append(plan)
                continue
            found = True
            yield plan
        yield from leaning
        if not (found or leaning):
            raise failures[0] if failures else AttemptFailed(causes.BLOCKED)

    # Paths

    def _paths(
        self, subtask: SubtaskConfig, segment: Segment, references: list[np.ndarray], held: HeldObject | None
    ) -> Iterator[np.ndarray]:
        """Where the measured hand should go, (n, 4, 4), each way."""
        for reference in references:
            wanted = self.retargeted(subtask, segment, reference, held)
            if held is not None:
                axis = self._symmetry[held.name]
                yield wanted if axis is None else self._turned(wanted, segment, held, axis)
            elif (axis := self._symmetry[subtask.object]) is not None and self.settings.grasp.turn:
                turn = None
                for turn in self._grasp_turns(wanted[segment.anchor], reference[:3, :3] @ axis):
                    yield turn @ wanted
                if turn is None:
                    yield wanted
            else:
                yield wanted

    def retargeted(
        self, subtask: SubtaskConfig, segment: Segment, T_base_ref: np.ndarray, held: HeldObject | None
    ) -> np.ndarray:
        """Poses (n, 4, 4) that stand to the reference now as the segment's measured hand stood to its own."""
        T_new = align_symmetric(T_base_ref, segment.T_base_obj, None if held else self._symmetry[subtask.object])
        moved = retarget(*map(torch.from_numpy, (segment.T_base_ee, segment.T_base_obj, T_new)))
        if held is not None and segment.T_ee_held is not None and self.settings.held_object_correction:
            T_now = align_symmetric(held.T_ee_obj, segment.T_ee_held, self._symmetry[held.name])
            moved = correct_for_held(moved, torch.from_numpy(segment.T_ee_held), torch.from_numpy(T_now))
        return moved.numpy()

    def _grasp_turns(self, T_base_ee: np.ndarray, axis: np.ndarray) -> Iterator[np.ndarray]:
        """(4, 4) motions of base-frame space that bring the grasp pose T_base_ee (as measured in the seed: the commands
        also make up for gravity) of an object with unit `axis` (3,) to one that the arm serves: nearest
        dip first, each on the side of the object where the seed had it, then on the other."""
        s = self.settings.grasp
        own_dip = np.arcsin(np.clip(-T_base_ee[2, 0], -1.0, 1.0))
        others = np.deg2rad(self._config.task.pinch.dips_deg)
        dips = [own_dip, *sorted(others, key=lambda dip: abs(dip - own_dip))]
        across = np.cross(axis, T_base_ee[:3, 0])
        flipped = bool(across @ T_base_ee[:3, 2] < 0)
        T_ee_base = np.linalg.inv(T_base_ee)
        standing_off = make_pose(np.eye(3), [0.0, 0.0, -s.standoff_m])
        ways = (
            self._finder.pinch(T_base_ee[:3, 3] + shift * axis, axis, dip, flip)
            for shift in s.shifts_m
            for dip in dips
            for flip in (flipped, not flipped)
        )
        for pinch in itertools.islice((way for way in ways if way is not None), s.max_ways):
            yield pinch.T_base_ee @ standing_off @ T_ee_base

    def _turned(self, T_wanted: np.ndarray, segment: Segment, held: HeldObject, axis_in_obj: np.ndarray) -> np.ndarray:
        """A path (n, 4, 4) turned about the held object's symmetry axis, where it is let go, so that the hand points
        along the arm's own plane. The object does not care; the arm has no joint for the heading of the hand.

        The hand comes and goes along the path of the seed's hand, as seen from the hand: out and back along its
        heading, up, and aside to the same jaw.
        """
        anchor, T_seed = segment.anchor, segment.T_base_ee
        turn = self._radial_turn(T_wanted[anchor], held, axis_in_obj)
        T = turn @ T_wanted
        way = T_seed[:, :3, 3] - T_seed[anchor, :3, 3]
        T[:, :3, 3] = T[anchor, :3, 3] + way @ _hand_axes(T_seed[anchor]) @ _hand_axes(T[anchor]).T
        return T

    def _radial_turn(self, T_base_ee: np.ndarray, held: HeldObject, axis_in_obj: np.ndarray) -> np.ndarray:
        """(4, 4) turn of base-frame space about the held object's symmetry axis that points the hand away from the pan
        axis."""
        T_base_obj = T_base_ee @ held.T_ee_obj
        center, axis = T_base_obj[:3, 3], T_base_obj[:3, :3] @ axis_in_obj
        approach = T_base_ee[:3, 0] - axis * (axis @ T_base_ee[:3, 0])
        outward = center - np.array([*self.settings.transit.pan_axis_m, center[2]])
        outward = outward - axis * (axis @ outward)
        if min(np.linalg.norm(approach), np.linalg.norm(outward)) < 1e-3:
            return np.eye(4)
        angle = np.arctan2(axis @ np.cross(approach, outward), approach @ outward)
        R = rotation_about_axis(axis, angle)
        return make_pose(R, center - R @ center)

    # Joints

    def _lean_rad(self, plan: PlannedSegment, T_wanted: np.ndarray, held: HeldObject) -> float:
        """Angle between the held object's symmetry axis as it will be let go and as it should be; 0 without an axis."""
        axis = self._symmetry[held.name]
        if axis is None:
            return 0.0
        row = min(plan.segment.anchor, len(plan.q) - 1)
        in_hand = held.T_ee_obj[:3, :3] @ axis
        cosine = (self._kinematics.update(plan.q[row])[1] @ in_hand) @ (T_wanted[row, :3, :3] @ in_hand)
        return float(np.arccos(np.clip(cosine, -1.0, 1.0)))

    def _plan(
        self,
        subtask: SubtaskConfig,
        segment: Segment,
        wanted: np.ndarray,
        q_now: np.ndarray,
        jaw_now: float,
        held: HeldObject | None,
    ) -> PlannedSegment:
        target = commanded(wanted, segment.T_base_target, segment.T_base_ee, self.settings.transit.pan_axis_m)
        q_start = self._transits.goal(q_now, target[0], self._finder.joints(target[0]))
        q = self._follow(target, q_start, held, segment)
        if held is not None and (lift := self._raise_needed(q, target, jaw_now, segment, subtask, held)):
            target, wanted = _raised(target, lift), _raised(wanted, lift)
            q_start = self._transits.goal(q_now, target[0], self._finder.joints(target[0]))
            q = self._follow(target, q_start, held, segment)
        jaw = self._jaw_with_room(q, segment, subtask, held)
        if (
            held is not None
            and (opened := float(jaw[segment.anchor :].max())) < segment.jaw_target[segment.anchor :].max()
        ):
            wanted = self._less_aside(wanted, segment.anchor, opened)
            target = commanded(wanted, segment.T_base_target, segment.T_base_ee, self.settings.transit.pan_axis_m)
            q = self._follow(target, q_start, held, segment)
        return PlannedSegment(segment, wanted, target[0], q, jaw)

    def _follow(self, T_target: np.ndarray, q: np.ndarray, held: HeldObject | None, segment: Segment) -> np.ndarray:
        """IK along a segment from joints q (5,), (n, 5).

        With an object in the hand, its pivot is what follows the path: rotation the arm cannot serve would otherwise
        swing the far end of the object away. The retreat after letting go ends where the arm's reach ends. IK is solved
        at every `ik_stride`-th row and where the jaw acts; joints are interpolated between.
        """
        limits = self.settings.causes
        stride = self.settings.segment.ik_stride
        knots = sorted({*range(0, len(T_target), stride), segment.anchor, len(T_target) - 1})
        solved: list[int] = []
        pivot = self._pivot_in_hand(held)
        release_end = segment.release_end if held is not None else len(T_target)
        rows, shift, diverged, worst = [], np.zeros(3), 0, 0.0
        for t in knots:
            T = T_target[t]
            aim = T
            if pivot is not None:
                aim = T.copy()
                aim[:3, 3] += shift
            result = self._ik.solve(q, aim)
            jump = float(np.abs(result.q - q).max()) if rows else 0.0
            if t >= release_end and (result.position_error_m > limits.unreachable_m or jump > limits.max_jump_rad):
                break
            q = result.q
            rows.append(q)
            solved.append(t)
            if pivot is not None and t < release_end:
                p, R = self._kinematics.update(q)
                shift = shift + (T[:3, 3] + T[:3, :3] @ pivot - p - R @ pivot)
                if (length := float(np.linalg.norm(shift))) > limits.max_pivot_shift_m:
                    shift *= limits.max_pivot_shift_m / length
            worst = max(worst, result.position_error_m)
            bad = result.position_error_m > limits.ik_divergence_m or jump > limits.max_jump_rad
            diverged = diverged + 1 if bad else 0
            if diverged >= limits.ik_divergence_frames:
                raise AttemptFailed(causes.IK_DIVERGENCE, position_error_m=result.position_error_m, frame=t)
        if worst > limits.unreachable_m:
            raise AttemptFailed(causes.UNREACHABLE, position_error_m=worst)
        return np.stack([np.interp(np.arange(solved[-1] + 1), solved, column) for column in np.array(rows).T], -1)

    def _raise_needed(
        self,
        q: np.ndarray,
        T_target: np.ndarray,
        jaw: float,
        segment: Segment,
        subtask: SubtaskConfig,
        held: HeldObject,
    ) -> float:
        """How much higher [m] the path must run for the hand itself to clear the container where it lets go and backs
        out."""
        s = self.settings.place
        rows = [*range(segment.anchor, len(q), s.check_stride)] or [len(q) - 1]
        lift = 0.0
        for row in rows:
            while lift < s.max_raise_m:
                T = T_target[row].copy()
                T[2, 3] += lift
                q_row = q[row] if not lift else self._ik.solve(q[row], T, s.iterations).q
                if self._checker.arm_distance(np.append(q_row, jaw), subtask.object, held) >= s.clearance_m:
                    break
                lift += s.raise_step_m
        return min(lift, s.max_raise_m)

    def _jaw_with_room(
        self, q: np.ndarray, segment: Segment, subtask: SubtaskConfig, held: HeldObject | None
    ) -> np.ndarray:
        """The segment's jaw angles (n,), opened no wider than what stands beside the object allows.

        Raises:
            AttemptFailed: even the narrowest opening of `jaw_limits_rad` hits something, when putting down by more than
                what stands in the container gives way.
        """
        s = self.settings.neighbours
        jaw = segment.jaw_target
        others = [name for name in self._config.objects if name not in (subtask.object, subtask.held)]
        if not s.enabled or not others:
            return jaw
        first = segment.anchor if held is not None else 0
        last = len(q) if held is not None else min(segment.anchor + 1, len(q))
        widest = float(jaw[first:last].max())
        limits = [widest, *(limit for limit in s.jaw_limits_rad if limit < widest)]
        for clearance in (s.clearance_m, 0.0 if held is None else -s.give_m):
            for limit in limits:
                limited = np.minimum(jaw, limit)
                rows = range(first, last, s.check_stride)
                if all(self._checker.clear_of(np.append(q[t], limited[t]), others, clearance) for t in rows):
                    return limited
        raise AttemptFailed(causes.BLOCKED)

    def _less_aside(self, T_wanted: np.ndarray, anchor: int, jaw_rad: float) -> np.ndarray:
        """Poses (n, 4, 4) that after row `anchor` step aside from what was let go no further than a jaw opened to
        `jaw_rad` leaves room for on both sides."""
        pinch = self._config.task.pinch
        room = 0.5 * pinch.jaw_lever_m * max(0.0, jaw_rad - pinch.closed_jaw_rad)
        T = T_wanted.copy()
        across = T[anchor, :3, 2]
        aside = (T[anchor:, :3, 3] - T[anchor, :3, 3]) @ across
        T[anchor:, :3, 3] += (np.clip(aside, -room, room) - aside)[:, None] * across
        return T

    def _pivot_in_hand(self, held: HeldObject | None) -> np.ndarray | None:
        """Point of the held object that must follow the path, in the hand frame."""
        if held is None or not self.settings.held_object_correction:
            return None
        return held.T_ee_obj[:3, 3] + held.T_ee_obj[:3, :3] @ np.array(self.task.success.pivot_m)


def _hand_axes(T_base_ee: np.ndarray) -> np.ndarray:
    """(3, 3) columns in base: horizontally out of the hand, horizontally towards the moving jaw, up."""
    outward = horizontal(T_base_ee[:3, 0])
    left = np.cross(UP, outward)
    return np.column_stack([outward, left if T_base_ee[:3, 2] @ left >= 0 else -left, UP])


def _raised(T: np.ndarray, lift_m: float) -> np.ndarray:
    """Poses (n, 4, 4) moved up by lift_m."""
    T = T.copy()
    T[:, 2, 3] += lift_m
    return T
