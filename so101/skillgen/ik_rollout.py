"""One attempt: retargeted segments and transits turned into joint targets by IK and run with physics.

An attempt is a pure function of (configuration, seed demos, attempt seed).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch

from so101.config import Config
from so101.config.task import SubtaskConfig
from so101.datasets.demo import Demo
from so101.datasets.seeds import SeedDemo
from so101.geometry import invert_pose, pose_from_pos_quat
from so101.kinematics import make_ik
from so101.kinematics.servo_lead import ServoLead
from so101.sim.mujoco_sim import MujocoSimulator
from so101.skillgen import causes
from so101.skillgen.causes import AttemptFailed
from so101.skillgen.initiation import InitiationNoise
from so101.skillgen.planning import PlannedSegment, SegmentPlanner
from so101.skillgen.segment_pool import SegmentPool
from so101.skillgen.selection import nearest_first, select_nearest
from so101.skillgen.subtasks import Segment, jaw_changes
from so101.skillgen.transit import HeldObject, TransitPlanner, held_object, object_poses
from so101.tasks.hand import jaw_touching
from so101.tasks.start import draw_start
from so101.tasks.success import judge

ARM = slice(0, 5)


@dataclass
class _Recording:
    q_target: list[np.ndarray] = field(default_factory=list)
    q: list[np.ndarray] = field(default_factory=list)
    objects: dict[str, list[np.ndarray]] = field(default_factory=dict)


class _Way(NamedTuple):
    """What a subtask is about to do: joints now (5,) rad, transit path (n, 5) rad with the jaw at `jaw` rad, then the
    plan."""

    plan: PlannedSegment
    path: np.ndarray
    q_now: np.ndarray
    jaw: float
    held: HeldObject | None


class AttemptRunner:
    """Runs attempts of one configuration and seed set in one process.

    Args:
        simulator: where they run, one attempt at a time in any of its environments; a new one with one environment when
            None.

    Raises:
        DataError: no seed has all the segments the task needs.
    """

    def __init__(self, config: Config, seeds: list[SeedDemo], simulator: MujocoSimulator | None = None) -> None:
        torch.set_num_threads(1)
        self.config = config
        self.settings = config.skillgen
        self.task = config.task.active
        self.simulator = simulator or MujocoSimulator(config)
        self.ik = make_ik(config, self.simulator.kinematics)
        self.transits = TransitPlanner(config, self.simulator, self.ik)
        self.planner = SegmentPlanner(config, self.simulator, self.ik, self.transits)
        self.initiation = InitiationNoise(config, self.simulator, self.transits)
        self.pool = SegmentPool(config, seeds, self.simulator.kinematics)
        self._dt = self.simulator.control_dt

    def run(self, index: int, env: int = 0) -> Demo:
        """Attempt number `index`; its seed is ``base_seed + index``. The environment makes no difference."""
        seed = self.settings.base_seed + index
        rng = np.random.default_rng(seed)
        sim = self.simulator
        start, objects, draws, randomisation = draw_start(self.config, rng)
        sim.reset(env, start, objects, randomisation)
        self._env = env
        self._rng = rng
        self._noise = np.zeros(5)
        self._offset = np.zeros(5)
        self._lead = ServoLead(self.config, sim.kinematics)
        self._lead.reset(start)
        self._command = start.copy()
        self._to_grasp: str | None = None
        self._record = _Recording(objects={name: [] for name in sim.object_names})
        self._start_height = {name: float(sim.object_pose(env, name)[2]) for name in sim.object_names}
        self._transit_frames: list[list[int]] = []
        self.transits.start_attempt()
        state = sim.get_physics_state(env)
        self._detours: list[dict[str, Any]] = []
        self._sources: list[str] = []
        marks: list[list[Any]] = []
        cause, figures = "", {}
        try:
            for i, subtask in enumerate(self.task.subtasks):
                first = len(self._record.q)
                self._run_subtask(i, subtask)
                marks.append([subtask.name, first, len(self._record.q)])
            for _ in range(self.settings.settle_frames):
                self._send(self._command[ARM], self._command[5], noisy=False)
        except AttemptFailed as failure:
            cause, figures = failure.cause, failure.figures
        meta = {
            "sources": self._sources, "subtasks": marks, "transits": self._transit_frames,
            "randomisation": {"placements": draws, **randomisation}, "diagnostics": figures,
        }  # fmt: skip
        if self.settings.initiation.enabled:
            meta["initiation"] = self._detours
        if (counts := self.transits.planner_counts()) is not None:
            meta["planner"] = counts
        return self._finish(index, seed, state, cause, meta)

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

    # One subtask: select, plan, transit, replay

    def _run_subtask(self, index: int, subtask: SubtaskConfig) -> None:
        sim, planner = self.simulator, self.planner
        objects = object_poses(sim, self._env)
        low, high = subtask.end_offset_frames
        offset = int(self._rng.integers(low, high + 1))
        candidates = self.pool.candidates(index, offset)
        references = planner.references(subtask, objects)
        if not references:
            raise AttemptFailed(causes.BLOCKED)
        way = self._first_way(index, subtask, candidates, references, objects)
        detour = self.initiation.detour(self._rng, way.q_now, way.plan, way.jaw, way.held, objects)
        for leg in (way.path,) if detour is None else (detour.out, detour.recovery):
            self._transit(leg, way.jaw, way.held)
        if detour is not None:
            self._detours.append(detour.mark(subtask.name, *self._transit_frames[-2:]))
        self._replay(subtask, way.plan, way.held)

    def _first_way(
        self,
        index: int,
        subtask: SubtaskConfig,
        candidates: list[Segment],
        references: list[np.ndarray],
        objects: dict[str, np.ndarray],
    ) -> _Way:
        """The first plan with a free transit to it: of the segment drawn among the nearest, else of the nearest others.

        Raises:
            AttemptFailed: there is none; the cause is that of the segment drawn.
        """
        settings, axis = self.settings.selection, self.planner.symmetry(subtask.object)
        poses = [candidate.T_base_obj for candidate in candidates]
        drawn = select_nearest(references[0], poses, settings, axis, self._rng)
        self._sources.append(candidates[drawn].seed_name)
        held = held_object(self.simulator, self._env, subtask.held) if subtask.held else None
        q_now, jaw_now = self._command[ARM].copy(), float(self._command[5])
        others = [i for i in nearest_first(references[0], poses, settings, axis) if i != drawn]
        failure: AttemptFailed | None = None
        for i in [drawn, *others[: settings.fallbacks]]:
            try:
                plans = self.planner.plans(subtask, candidates[i], references, q_now, jaw_now, held, objects)
                if held is None:
                    plans = self._servable_first(index, plans, objects)
                for plan in plans:
                    # The jaw takes the segment's first angle on the way, unless it holds something.
                    jaw = float(plan.jaw_target[0]) if held is None else jaw_now
                    path = self.transits.plan(q_now, plan.q[0], plan.T_start, jaw, held, objects)
                    if path is not None:
                        self._sources[-1] = candidates[i].seed_name
                        return _Way(plan, path, q_now, jaw, held)
                raise AttemptFailed(causes.RACK_COLLISION)
            except AttemptFailed as error:
                failure = failure or error
        raise failure

    def _servable_first(
        self, index: int, plans: Iterator[PlannedSegment], objects: dict[str, np.ndarray]
    ) -> Iterator[PlannedSegment]:
        """Plans of grasp `index`, those first from which the subtask after it can put the object down. Only looked at
        when something already stands in the container: it may be in the way of the hand on one side."""
        following = self.task.subtasks[index + 1] if index + 1 < len(self.task.subtasks) else None
        puts_down = following is not None and following.held is not None
        references = self.planner.references(following, objects) if puts_down else []
        if not 0 < len(references) < len(self.task.success.openings_m):
            yield from plans
            return
        nearest = self.pool.candidates(index + 1, following.end_offset_frames[0])[0]
        T_base_obj = pose_from_pos_quat(objects[following.held])

        def serves(plan: PlannedSegment) -> bool:
            T_base_ee = self.simulator.fk(plan.q[plan.segment.anchor])
            held = HeldObject(following.held, invert_pose(T_base_ee) @ T_base_obj)
            jaw = float(plan.jaw_target[-1])
            try:
                next(self.planner.plans(following, nearest, references, plan.q[-1], jaw, held, objects))
            except AttemptFailed:
                return False
            return True

        useless = []
        for plan in plans:
            if serves(plan):
                yield plan
            else:
                useless.append(plan)
        yield from useless

    def _transit(self, path: np.ndarray, jaw: float, held: HeldObject | None) -> None:
        first = len(self._record.q)
        jaws = np.linspace(self._command[5], jaw, len(path) + 1)[1:]
        for t, q in enumerate(path):
            self._offset *= 1.0 - self.settings.gate.correction_gain
            self._send(q, jaws[t], noisy=True)
            if self.settings.gate.enabled:
                self._arrive(q, self.settings.gate.max_lag_m)
            if held is not None and t % self.settings.held_check_frames == 0:
                self._check_held(held.name, causes.DROPPED)
        if self.settings.gate.enabled:
            self._arrive(path[-1], self.settings.gate.arrival_tolerance_m)
        self._transit_frames.append([first, len(self._record.q)])

    def _replay(self, subtask: SubtaskConfig, plan: PlannedSegment, held: HeldObject | None) -> None:
        gate, limits, segment = self.settings.gate, self.settings.causes, plan.segment
        changes = jaw_changes(plan.jaw_target, gate.gripper_change_rad)
        starts, stops = {start for start, _ in changes} | {segment.anchor}, {stop for _, stop in changes}
        jaw_offset = self._command[5] - plan.jaw_target[0] if held is not None else 0.0
        released = False
        self._to_grasp = subtask.object if held is None else None  # until it was seen lifted between the jaws
        if gate.enabled and gate.at_start:
            self._settle(plan.q[0], plan.T_wanted[0])
        for t, q in enumerate(plan.q):
            if t in starts:
                if gate.enabled:
                    self._settle(plan.q[max(t - 1, 0)], plan.T_wanted[t])
                released = released or (held is not None and t == segment.anchor)
            if t in stops and gate.enabled:
                self._await_jaw(plan.q[t - 1])
            if released:
                jaw_offset = 0.0
            self._send(q, plan.jaw_target[t] + jaw_offset, noisy=t < segment.anchor)
        if held is None:  # a grasp: it must be in the hand now
            if gate.enabled:
                self._arrive(plan.q[-1], gate.arrival_tolerance_m)
            lifted = self._lifted(subtask.object)
            if lifted < self.task.success.grasp_lift_m * limits.lift_fraction or not jaw_touching(
                self.simulator, self._env, subtask.object
            ):
                raise AttemptFailed(causes.GRASP_MISSED if self._to_grasp else causes.SLIPPED, lifted_m=lifted)

    def _settle(self, q_hold: np.ndarray, T_wanted: np.ndarray) -> None:
        """Hold, noise-free, until the measured hand stands still where the seed's hand stood; what gravity still takes
        is added. A hand that does not get nearer is held up by something: then nothing is added."""
        gate, sim = self.settings.gate, self.simulator
        jaw, offset_before = self._command[5], self._offset.copy()
        previous = sim.ee_pose(self._env)[:3, 3]
        first = None
        for _ in range(gate.max_frames):
            self._send(q_hold, jaw, noisy=False)
            T_now = sim.ee_pose(self._env)
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

    def _arrive(self, q_hold: np.ndarray, tolerance_m: float) -> None:
        """Hold, noise-free, until the measured hand is within the tolerance of where it should be: a slow arm cuts
        corners otherwise."""
        sim = self.simulator
        wanted = sim.kinematics.update(q_hold)[0].copy()
        for _ in range(self.settings.gate.max_frames):
            behind = sim.kinematics.update(sim.joint_positions(self._env))[0] - wanted
            if behind @ behind < tolerance_m**2:
                return
            self._send(q_hold, self._command[5], noisy=False)

    def _await_jaw(self, q_hold: np.ndarray) -> None:
        """Hold, noise-free, until the jaw has arrived or is stopped by what it holds: a weak or late servo must not be
        left behind by the arm."""
        gate, jaw, still = self.settings.gate, self._command[5], 0
        for _ in range(gate.max_frames):
            before = self.simulator.joint_positions(self._env)[5]
            self._send(q_hold, jaw, noisy=False)
            now = self.simulator.joint_positions(self._env)[5]
            still = still + 1 if abs(now - before) < gate.jaw_speed_tolerance_rad_s * self._dt else 0
            if abs(jaw - now) < gate.jaw_tolerance_rad or still >= gate.jaw_still_frames:
                return

    # One frame

    def _send(self, q: np.ndarray, jaw: float, *, noisy: bool) -> None:
        s, kin = self.settings, self.simulator.kinematics
        if len(self._record.q) >= s.max_frames_per_subtask * len(self.task.subtasks):
            raise AttemptFailed(causes.TIMEOUT, frames=len(self._record.q))
        self._noise *= s.noise_smoothness
        if noisy and s.action_noise_rad:
            self._noise += self._rng.normal(0.0, s.action_noise_rad * np.sqrt(1 - s.noise_smoothness**2), 5)
        command = np.empty(6)
        command[ARM] = self._lead.command(q + self._offset) + self._noise
        command[5] = jaw
        command = np.minimum(np.maximum(command, kin.lower), kin.upper)
        self._record_frame(command)
        self._command = command
        self._command[ARM] = q  # what the plan continues from; offset and noise are added anew
        self.simulator.step(self._env, self._record.q_target[-1])

    def _record_frame(self, command: np.ndarray) -> None:
        record, sim = self._record, self.simulator
        record.q_target.append(command.copy())
        record.q.append(sim.joint_positions(self._env))
        for name, poses in record.objects.items():
            poses.append(sim.object_pose(self._env, name))
        name = self._to_grasp
        if name is not None and self._lifted(name) > self.task.success.grasp_lift_m:
            if jaw_touching(sim, self._env, name):
                self._to_grasp = None

    def _lifted(self, name: str) -> float:
        return float(self.simulator.object_pose(self._env, name)[2]) - self._start_height[name]

    def _check_held(self, name: str, cause: str) -> None:
        if not jaw_touching(self.simulator, self._env, name):
            raise AttemptFailed(cause, lifted_m=self._lifted(name))
