"""One attempt: retargeted segments and transits turned into joint targets by IK and run with physics.

An attempt is a pure function of (configuration, seed demos, attempt seed).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from so101.config import Config
from so101.config.task import SubtaskConfig
from so101.datasets.demo import Demo
from so101.datasets.seeds import SeedDemo
from so101.errors import DataError
from so101.geometry import make_pose, pose_from_pos_quat, rotation_about_axis
from so101.kinematics import make_ik
from so101.sim.mujoco_sim import MujocoSimulator
from so101.skillgen import causes
from so101.skillgen.causes import AttemptFailed
from so101.skillgen.fk_replay import fk_replay
from so101.skillgen.retarget import correct_for_held, retarget
from so101.skillgen.selection import align_symmetric, select_nearest
from so101.skillgen.subtasks import Segment, cut_segment, jaw_changes
from so101.skillgen.transit import HeldObject, TransitPlanner, held_object, object_poses
from so101.tasks.hand import jaw_touching
from so101.tasks.placement import draw_placements
from so101.tasks.success import judge

ARM = slice(0, 5)


def _raised(T: np.ndarray, lift_m: float) -> np.ndarray:
    """Poses (n, 4, 4) moved up by lift_m."""
    T = T.copy()
    T[:, 2, 3] += lift_m
    return T


@dataclass
class _Recording:
    q_target: list[np.ndarray] = field(default_factory=list)
    q: list[np.ndarray] = field(default_factory=list)
    objects: dict[str, list[np.ndarray]] = field(default_factory=dict)
    grasped: list[bool] = field(default_factory=list)


class AttemptRunner:
    """Runs attempts of one configuration and seed set in one process.

    Raises:
        DataError: no seed has all the segments the task needs.
    """

    def __init__(self, config: Config, seeds: list[SeedDemo]) -> None:
        torch.set_num_threads(1)
        self.config = config
        self.settings = config.skillgen
        self.task = config.task.active
        self.simulator = MujocoSimulator(config)
        self.ik = make_ik(config, self.simulator.kinematics)
        self.transits = TransitPlanner(config, self.simulator, self.ik)
        self._home = np.array([joint.home_rad for joint in config.robot.joints])
        self._dt = self.simulator.control_dt
        self._symmetry = {
            name: (np.array(axis) if (axis := config.scene.props[placement.prop].symmetry_axis) else None)
            for name, placement in self.task.objects.items()
        }
        self._paths = {seed.name: fk_replay(seed, self.simulator.kinematics) for seed in seeds}
        self._segments: dict[tuple[str, int, int], Segment] = {}
        faults = []
        self._usable = []
        for seed in seeds:
            try:
                for i, subtask in enumerate(self.task.subtasks):
                    for offset in subtask.end_offset_frames:
                        self._segment(seed, i, offset)
                self._usable.append(seed)
            except DataError as error:
                faults.append(str(error))
        if not self._usable:
            raise DataError(
                "no seed can be cut into the task's subtasks:\n" + "\n".join(faults or ["there are no seeds"])
            )

    def _segment(self, seed: SeedDemo, index: int, offset: int) -> Segment:
        key = (seed.name, index, offset)
        if key not in self._segments:
            self._segments[key] = cut_segment(
                seed, self._paths[seed.name], self.task, index, offset, self.settings.segment,
                self.settings.gate.gripper_change_rad
            )  # fmt: skip
        return self._segments[key]

    def run(self, index: int) -> Demo:
        """Attempt number `index`; its seed is ``base_seed + index``."""
        seed = self.settings.base_seed + index
        rng = np.random.default_rng(seed)
        sim = self.simulator
        objects, draws = draw_placements(self.config, rng)
        start = self._home.copy()
        start[ARM] += rng.uniform(-1, 1, 5) * self.settings.start_noise_rad
        sim.reset(0, start, objects)
        self._rng = rng
        self._noise = np.zeros(5)
        self._offset = np.zeros(5)
        self._command = start.copy()
        self._record = _Recording(objects={name: [] for name in sim.object_names})
        self._start_height = {name: float(sim.object_pose(0, name)[2]) for name in sim.object_names}
        state = sim.get_physics_state(0)
        sources: list[str] = []
        marks: list[list[Any]] = []
        cause, figures = "", {}
        try:
            for i, subtask in enumerate(self.task.subtasks):
                first = len(self._record.q)
                sources.append(self._run_subtask(i, subtask))
                marks.append([subtask.name, first, len(self._record.q)])
            for _ in range(self.settings.settle_frames):
                self._send(self._command[ARM], self._command[5], noisy=False)
        except AttemptFailed as failure:
            cause, figures = failure.cause, failure.figures
        return self._finish(index, seed, state, cause, {
            "sources": sources, "subtasks": marks, "randomisation": draws, "diagnostics": figures,
        })  # fmt: skip

    def _finish(self, index: int, seed: int, state: np.ndarray, cause: str, meta: dict[str, Any]) -> Demo:
        record = self._record
        if not record.q:  # failed before the first frame: keep what the camera would see
            self._record_frame(self._command)
        q = np.array(record.q)
        objects = {name: np.array(poses) for name, poses in record.objects.items()}
        strict = geometric = False
        if not cause:
            verdict = judge(self.config, objects, q)
            strict, geometric = verdict.strict, verdict.geometric
            meta["diagnostics"] = verdict.figures()
            if not strict:
                cause = causes.cause_at_end(verdict.container_moved_m, self.task.success.container_push_m)
        return Demo(
            index=index,
            seed=seed,
            task=self.config.task.name,
            fps=self.config.scene.physics.control_hz,
            q_target=np.array(record.q_target),
            q=q,
            objects=objects,
            physics_state=state,
            cause=cause,
            strict=strict,
            geometric=geometric,
            meta=meta,
        )

    # One subtask: select, retarget, transit, replay

    def _run_subtask(self, index: int, subtask: SubtaskConfig) -> str:
        sim = self.simulator
        T_base_obj = pose_from_pos_quat(sim.object_pose(0, subtask.object))
        low, high = subtask.end_offset_frames
        offset = int(self._rng.integers(low, high + 1))
        candidates = [self._segment(seed, index, offset) for seed in self._usable]
        axis = self._symmetry[subtask.object]
        chosen = candidates[
            select_nearest(T_base_obj, [c.T_base_obj for c in candidates], self.settings.selection, axis, self._rng)
        ]
        held = held_object(sim, 0, subtask.held) if subtask.held else None
        T_target, T_wanted = self._retargeted(chosen, T_base_obj, axis, held)
        self._transit(T_target[0], float(chosen.jaw_target[0]), held)
        self._replay(chosen, T_target, T_wanted, held)
        return chosen.seed_name

    def _retargeted(
        self, segment: Segment, T_base_obj: np.ndarray, axis: np.ndarray | None, held: HeldObject | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Commanded and wanted-measured poses (n, 4, 4) of a segment for the object pose now."""
        T_new = align_symmetric(T_base_obj, segment.T_base_obj, axis)
        paths = torch.from_numpy(np.stack([segment.T_base_target, segment.T_base_ee]))
        moved = retarget(paths, torch.from_numpy(segment.T_base_obj), torch.from_numpy(T_new))
        if held is not None and segment.T_ee_held is not None and self.settings.held_object_correction:
            T_now = align_symmetric(held.T_ee_obj, segment.T_ee_held, self._symmetry[held.name])
            moved = correct_for_held(moved, torch.from_numpy(segment.T_ee_held), torch.from_numpy(T_now))
        target, wanted = moved.numpy()
        if held is not None and (axis_in_obj := self._symmetry[held.name]) is not None:
            turn = self._free_turn(target[segment.anchor], held, axis_in_obj)
            target, wanted = turn @ target, turn @ wanted
        return target, wanted

    def _free_turn(self, T_base_ee: np.ndarray, held: HeldObject, axis_in_obj: np.ndarray) -> np.ndarray:
        """(4, 4) turn of base-frame space about the held object's symmetry axis, where it is let go, that points the
        hand along the arm's own plane. The object does not care; the arm has no joint for the heading of the hand."""
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

    def _transit(self, T_to: np.ndarray, jaw: float, held: HeldObject | None) -> None:
        """The jaw takes the segment's first angle on the way, unless it holds something."""
        if held is not None:
            jaw = float(self._command[5])
        q_to = self.transits.goal(self._command[ARM], T_to)
        path = self.transits.plan(self._command[ARM], q_to, T_to, jaw, held, object_poses(self.simulator, 0))
        if path is None:
            raise AttemptFailed(causes.RACK_COLLISION)
        jaws = np.linspace(self._command[5], jaw, len(path) + 1)[1:]
        for t, q in enumerate(path):
            self._offset *= 1.0 - self.settings.gate.correction_gain
            self._send(q, jaws[t], noisy=True)
            if held is not None and t % self.settings.held_check_frames == 0:
                self._check_held(held.name, causes.DROPPED)

    def _replay(self, segment: Segment, T_target: np.ndarray, T_wanted: np.ndarray, held: HeldObject | None) -> None:
        gate, limits = self.settings.gate, self.settings.causes
        q_plan = self._plan(T_target, held, segment)
        if held is not None and (lift := self._raise_needed(q_plan, T_target, segment, held)):
            T_target, T_wanted = _raised(T_target, lift), _raised(T_wanted, lift)
            q_plan = self._plan(T_target, held, segment)
        starts = {start for start, _ in jaw_changes(segment.jaw_target, gate.gripper_change_rad)} | {segment.anchor}
        jaw_offset = self._command[5] - segment.jaw_target[0] if held is not None else 0.0
        released = False
        for t, q in enumerate(q_plan):
            if t in starts:
                if gate.enabled:
                    self._settle(q_plan[max(t - 1, 0)], T_wanted[t])
                released = released or (held is not None and t == segment.anchor)
            if released:
                jaw_offset = 0.0
            if held is not None and t > segment.release_end:
                self._offset *= 1.0 - gate.correction_gain
            self._send(q, segment.jaw_target[t] + jaw_offset, noisy=t < segment.anchor)
        subtask = segment.subtask
        if subtask.signal is not None:  # a grasp: it must be in the hand now
            lifted = self._lifted(subtask.object)
            if lifted < self.task.success.grasp_lift_m * limits.lift_fraction or not jaw_touching(
                self.simulator, 0, subtask.object
            ):
                ever = any(self._record.grasped)
                raise AttemptFailed(causes.SLIPPED if ever else causes.GRASP_MISSED, lifted_m=lifted)

    def _plan(self, T_target: np.ndarray, held: HeldObject | None, segment: Segment) -> np.ndarray:
        """IK along a segment, (n, 5). With an object in the hand, its pivot is what follows the path: rotation the arm
        cannot serve would otherwise swing the far end of the object away. The retreat after letting go ends where the
        arm's reach ends. IK is solved at every `ik_stride`-th row and where the jaw acts; joints are interpolated
        between."""
        limits = self.settings.causes
        stride = self.settings.segment.ik_stride
        knots = sorted({*range(0, len(T_target), stride), segment.anchor, len(T_target) - 1})
        solved: list[int] = []
        pivot = self._pivot_in_hand(held)
        release_end = segment.release_end if held is not None else len(T_target)
        rows, q, shift, diverged, worst = [], self._command[ARM], np.zeros(3), 0, 0.0
        for t in knots:
            T = T_target[t]
            aim = T
            if pivot is not None:
                aim = T.copy()
                aim[:3, 3] += shift
            result = self.ik.solve(q, aim)
            jump = float(np.abs(result.q - q).max()) if rows else 0.0
            if t >= release_end and (result.position_error_m > limits.unreachable_m or jump > limits.max_jump_rad):
                break
            q = result.q
            rows.append(q)
            solved.append(t)
            if pivot is not None and t < release_end:
                p, R = self.simulator.kinematics.update(q)
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

    def _raise_needed(self, q_plan: np.ndarray, T_target: np.ndarray, segment: Segment, held: HeldObject) -> float:
        """How much higher [m] the path must run for the hand itself to clear the container where it lets go and backs
        out."""
        s, checker = self.settings.place, self.transits.checker
        rows = [*range(segment.anchor, len(q_plan), s.check_stride)] or [len(q_plan) - 1]
        lift = 0.0
        for row in rows:
            while lift < s.max_raise_m:
                T = T_target[row].copy()
                T[2, 3] += lift
                q = q_plan[row] if not lift else self.ik.solve(q_plan[row], T, s.iterations).q
                near = checker.arm_distance(np.append(q, self._command[5]), segment.subtask.object, held)
                if near >= s.clearance_m:
                    break
                lift += s.raise_step_m
        return min(lift, s.max_raise_m)

    def _pivot_in_hand(self, held: HeldObject | None) -> np.ndarray | None:
        """Point of the held object that must follow the path, in the hand frame."""
        if held is None or not self.settings.held_object_correction:
            return None
        return held.T_ee_obj[:3, 3] + held.T_ee_obj[:3, :3] @ np.array(self.task.success.pivot_m)

    def _settle(self, q_hold: np.ndarray, T_wanted: np.ndarray) -> None:
        """Hold, noise-free, until the measured hand stands still where the seed's hand stood; what gravity still takes
        is added. A hand that does not get nearer is held up by something: then nothing is added."""
        gate, sim = self.settings.gate, self.simulator
        jaw, offset_before = self._command[5], self._offset.copy()
        previous = sim.ee_pose(0)[:3, 3]
        first = None
        for _ in range(gate.max_frames):
            self._send(q_hold, jaw, noisy=False)
            T_now = sim.ee_pose(0)
            speed = float(np.linalg.norm(T_now[:3, 3] - previous)) / self._dt
            previous = T_now[:3, 3]
            error = T_wanted[:3, 3] - T_now[:3, 3]
            distance = float(np.linalg.norm(error))
            still = speed < gate.speed_tolerance_m_s
            if distance < gate.position_tolerance_m and still:
                return
            if still and first is None:
                first = distance
            if first is not None:
                J = sim.jacobian(self._command)[:3]
                step = (
                    gate.correction_gain * J.T @ np.linalg.solve(J @ J.T + gate.correction_damping * np.eye(3), error)
                )
                self._offset = np.clip(self._offset + step, -gate.max_correction_rad, gate.max_correction_rad)
        if first is None or distance > gate.worth_keeping * first:
            self._offset = offset_before

    # One frame

    def _send(self, q: np.ndarray, jaw: float, *, noisy: bool) -> None:
        s, kin = self.settings, self.simulator.kinematics
        if len(self._record.q) >= s.max_frames:
            raise AttemptFailed(causes.TIMEOUT, frames=len(self._record.q))
        self._noise *= s.noise_smoothness
        if noisy and s.action_noise_rad:
            self._noise += self._rng.normal(0.0, s.action_noise_rad * np.sqrt(1 - s.noise_smoothness**2), 5)
        command = np.empty(6)
        command[ARM] = q + self._offset + self._noise
        command[5] = jaw
        command = np.minimum(np.maximum(command, kin.lower), kin.upper)
        self._record_frame(command)
        self._command = command
        self._command[ARM] = q  # what the plan continues from; offset and noise are added anew
        self.simulator.step(0, self._record.q_target[-1])

    def _record_frame(self, command: np.ndarray) -> None:
        record, sim = self._record, self.simulator
        record.q_target.append(command.copy())
        record.q.append(sim.joint_positions(0))
        for name, poses in record.objects.items():
            poses.append(sim.object_pose(0, name))
        subject = self.task.success.objects[0]
        record.grasped.append(
            self._lifted(subject) > self.task.success.grasp_lift_m and jaw_touching(self.simulator, 0, subject)
        )

    def _lifted(self, name: str) -> float:
        return float(self.simulator.object_pose(0, name)[2]) - self._start_height[name]

    def _check_held(self, name: str, cause: str) -> None:
        if not jaw_touching(self.simulator, 0, name):
            raise AttemptFailed(cause, lifted_m=self._lifted(name))
