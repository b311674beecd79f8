"""A scripted operator: moves the six leader joints the way a person does, watching the twin, and keeps the takes that
worked.

Cartesian waypoints of a pick-and-place are reached by sub-movements with minimum-jerk speed (Flash and Hogan 1985),
random speed, overshoot with a correction, pauses, and hand tremor on the joints. Near objects the person corrects what
is seen to be off, which is how gravity sag of the follower ends up compensated in the recorded leader targets.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from so101.config import Config
from so101.config.operator import GraspStyle
from so101.datasets.seeds import SeedDemo
from so101.errors import ConfigError, InsufficientDemosError
from so101.geometry import interpolate_pose, invert_pose, make_pose, pose_from_pos_quat, rotation_about_axis
from so101.kinematics import JacobianIk
from so101.kinematics.servo_lead import ServoLead
from so101.pipeline.progress import Reporter
from so101.pipeline.workers import map_unordered
from so101.sim.mujoco_sim import MujocoSimulator
from so101.tasks.hand import UP, dipped, hand_rotation, horizontal, jaw_touching
from so101.tasks.placement import draw_placements
from so101.tasks.success import judge


class TakeFailed(Exception):
    """This take did not work; the operator tries again. The text is the cause."""


@dataclass
class _Take:
    """Everything recorded in one take."""

    q_target: list[np.ndarray] = field(default_factory=list)
    q: list[np.ndarray] = field(default_factory=list)
    objects: dict[str, list[np.ndarray]] = field(default_factory=dict)
    grasped: list[bool] = field(default_factory=list)


class ScriptedOperator:
    """One operator at one simulator."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.settings = config.teleop.operator
        if config.task.name not in self.settings.styles:
            known = ", ".join(sorted(self.settings.styles))
            raise ConfigError(
                f"teleop.yaml: operator.styles has no entry for task {config.task.name!r}; it has: {known}"
            )
        self.style: GraspStyle = self.settings.styles[config.task.name]
        self.simulator = MujocoSimulator(config)
        self.ik = JacobianIk(config, self.simulator.kinematics)
        self.home = np.array([joint.home_rad for joint in config.robot.joints])
        self.dt = self.simulator.control_dt
        grasp = config.task.active.subtasks[0]
        self.object, self.signal = grasp.object, grasp.signal or "grasped"
        self.container = config.task.active.success.container

    def demo(self, seed: int, objects: Mapping[str, np.ndarray] | None = None) -> SeedDemo:
        """One take that worked.

        Args:
            objects: name -> (7,) start pose in base; drawn from the seed too when None.

        Raises:
            TakeFailed: with the cause.
        """
        rng = np.random.default_rng([self.settings.base_seed, seed])
        self._rng = rng
        drawn, draws = draw_placements(self.config, rng)
        objects, draws = (drawn, draws) if objects is None else (objects, {})
        sim = self.simulator
        sim.reset(0, self.home, objects)
        self._q = self.home[:5].copy()
        self._jaw = float(self.home[5])
        self._bias = np.zeros(3)
        self._lead = ServoLead(self.config, sim.kinematics)
        self._lead.reset(self.home)
        self._tremor = np.zeros(5)
        self._sent = self.home.copy()
        self._take = _Take(objects={name: [] for name in sim.object_names})
        self._T = sim.fk(self._q)
        self._start_height = float(objects[self.object][2])
        self._pick_and_place()
        take = self._take
        q = np.array(take.q)
        recorded = {name: np.array(poses) for name, poses in take.objects.items()}
        verdict = judge(self.config, recorded, q)
        if not verdict.strict:
            raise TakeFailed("not placed")
        low, high = self.settings.frames
        if not low <= len(q) <= high:
            raise TakeFailed(f"{len(q)} frames, wanted {low} to {high}")
        return SeedDemo(
            name=f"demo_{seed}",
            task=self.config.task.name,
            source="operator",
            fps=self.config.scene.physics.control_hz,
            q_target=np.array(take.q_target),
            q=q,
            objects={name: pose_from_pos_quat(poses) for name, poses in recorded.items()},
            signals={self.signal: np.array(take.grasped)},
            attrs={"seed": seed, "randomisation": draws},
        )

    # The plan

    def _pick_and_place(self) -> None:
        rng, style = self._rng, self.style
        self._pause()
        self._open_jaw()
        T_obj = self._object_pose()
        T_grasp = self._grasp_pose(T_obj)
        back = -rng.uniform(*style.approach_m) * T_grasp[:3, 0] + [0.0, 0.0, style.approach_rise_m]
        T_pre = make_pose(T_grasp[:3, :3], T_grasp[:3, 3] + back)
        self._reach(T_pre)
        self._pause()
        self._reach(T_grasp, fine=True)
        self._pause(watch=True)
        self._close_jaw()
        self._pause()
        if not jaw_touching(self.simulator, 0, self.object):
            raise TakeFailed("grasp missed")
        T_ee_obj = invert_pose(self._measured()) @ self._object_pose()
        T_lift = self._T.copy()
        T_lift[2, 3] += rng.uniform(*style.lift_m)
        self._reach(T_lift, fine=True)
        if self._object_pose()[2, 3] < self._start_height + self.config.task.active.success.grasp_lift_m:
            raise TakeFailed("slipped")
        self._pause()
        hover = rng.uniform(*style.hover_m)
        T_hover = self._place_pose(T_ee_obj)
        T_hover[2, 3] += hover
        self._reach(self._beside(T_hover))
        self._reach(T_hover)
        self._pause(watch=True)
        T_place = self._place_pose(T_ee_obj)  # look again: the container may have been nudged
        self._reach(T_place, fine=True)
        self._pause(watch=True)
        self._open_jaw()
        self._pause()
        T_clear = T_place.copy()  # the fixed jaw still touches: step aside first, or the retreat drags the object along
        T_clear[:3, 3] -= rng.uniform(*style.release_shift_m) * T_place[:3, 2]
        self._reach(T_clear, fine=True)
        T_away = T_clear.copy()
        T_away[:3, 3] += -rng.uniform(*style.retreat_m) * horizontal(T_place[:3, 0]) * (style.kind == "axis")
        T_away[2, 3] += rng.uniform(*style.retreat_m) * style.retreat_rise
        self._reach(T_away, fine=True)
        self._reach(self.simulator.fk(self.home[:5]))
        self._pause()
        self._pause()

    def _grasp_pose(self, T_base_obj: np.ndarray) -> np.ndarray:
        """The steepest reachable grasp."""
        rng, style = self._rng, self.style
        offset = rng.uniform(*style.grasp_offset_m)
        if style.kind == "axis":
            axis = horizontal(T_base_obj[:3, 2])
            point = T_base_obj[:3, 3] + offset * axis
            heading, pinch = axis, np.cross(UP, axis)
        else:
            point = T_base_obj[:3, 3] + offset * UP
            radial = horizontal(point)
            tangential = np.cross(UP, radial)
            faces = [s * horizontal(T_base_obj[:3, k]) for k in (0, 1) for s in (1, -1) if abs(T_base_obj[2, k]) < 0.7]
            pinch = max(faces or [tangential], key=lambda face: float(face @ tangential))
            heading = np.cross(pinch, UP)
        point = point + rng.normal(0, style.lateral_jitter_m, 3) * [1, 1, 0.5]
        jitter = np.deg2rad(rng.normal(0, style.dip_jitter_deg))
        for dip in np.deg2rad(style.dip_deg):
            T_grasp = make_pose(hand_rotation(dipped(heading, dip + jitter), pinch), point)
            if self._reachable(T_grasp):
                return T_grasp
        raise TakeFailed("grasp out of reach")

    def _place_pose(self, T_ee_obj: np.ndarray) -> np.ndarray:
        """Object over its opening; about the vertical the hand is turned to where the arm can point."""
        rng, style, success = self._rng, self.style, self.config.task.active.success
        opening = np.array([*success.openings_m[style.place_opening], 0.0])
        T_base_cont = pose_from_pos_quat(self.simulator.object_pose(0, self.container))
        spot = T_base_cont[:3, 3] + T_base_cont[:3, :3] @ opening
        height = rng.uniform(*style.place_height_m)
        radial = horizontal(spot)
        if style.kind == "axis":
            seated = 0.5 * (success.strict.min_height_m + success.strict.max_height_m)
            heading = horizontal(invert_pose(T_ee_obj)[:3, 0])
            turn = rotation_about_axis(UP, np.arctan2(np.cross(heading, radial)[2], heading @ radial))
            for lean in np.deg2rad(style.place_lean_deg):
                R_lean = rotation_about_axis(np.cross(UP, radial), lean)
                pivot = style.lean_pivot_m * UP  # this point of the object stays on the opening's axis
                T_obj = make_pose(R_lean @ turn, spot + (seated + height) * UP + pivot - R_lean @ pivot)
                T_place = T_obj @ invert_pose(T_ee_obj)
                if self._reachable(T_place, self.settings.place_tolerance_rad):
                    return T_place
            raise TakeFailed("place out of reach")
        point = spot + (success.surface_height_m + height) * UP
        pinch = np.cross(UP, radial)
        for dip in np.deg2rad(style.place_dip_deg):
            T_place = make_pose(hand_rotation(dipped(radial, dip), pinch), point)
            if self._reachable(T_place):
                return T_place
        raise TakeFailed("place out of reach")

    def _beside(self, T_hover: np.ndarray) -> np.ndarray:
        """The hover pose swung back about the pan axis to where the hand is now: raise and turn here, then swing
        across."""
        pan = np.array([*self.settings.pan_axis_m, 0.0])
        now, then = self._T[:3, 3] - pan, T_hover[:3, 3] - pan
        swing = np.arctan2(now[1], now[0]) - np.arctan2(then[1], then[0])
        R = rotation_about_axis(UP, swing * self.settings.swing_back)
        return make_pose(R @ T_hover[:3, :3], pan + R @ then)

    def _reachable(self, T_base_ee: np.ndarray, tolerance_rad: float | None = None) -> bool:
        s = self.settings
        pan = np.arctan2(*(T_base_ee[:2, 3] - self.settings.pan_axis_m)[::-1])
        start = self.home[:5].copy()
        start[0] = -pan
        result = min(
            (self.ik.solve(q, T_base_ee, s.solve_iterations) for q in (self._q, start)),
            key=lambda r: (r.position_error_m > s.reach_tolerance_m, r.rotation_error_rad),
        )
        tolerance_rad = s.grasp_tolerance_rad if tolerance_rad is None else tolerance_rad
        return result.position_error_m < s.reach_tolerance_m and result.rotation_error_rad < tolerance_rad

    # Movements, one control period a frame

    def _object_pose(self) -> np.ndarray:
        return pose_from_pos_quat(self.simulator.object_pose(0, self.object))

    def _measured(self) -> np.ndarray:
        return self.simulator.ee_pose(0)

    def _frame_step(self, T_base_ee: np.ndarray, watch: bool) -> None:
        """Send one leader sample that aims at T_base_ee; record what is seen."""
        s, sim, rng = self.settings, self.simulator, self._rng
        self._T = T_base_ee
        if watch:
            error = T_base_ee[:3, 3] - self._measured()[:3, 3]
            self._bias += s.correction_gain * error
            length = np.linalg.norm(self._bias)
            if length > s.correction_limit_m:
                self._bias *= s.correction_limit_m / length
        else:
            self._bias *= 1.0 - s.correction_gain
        aim = T_base_ee.copy()
        aim[:3, 3] += self._bias
        self._q = self.ik.solve(self._q, aim).q
        self._tremor = s.tremor_smoothness * self._tremor + rng.normal(0, 1, 5) * s.tremor_rad * np.sqrt(
            1 - s.tremor_smoothness**2
        )
        if not rng.random() < s.repeat_probability or not self._take.q:
            self._sent = np.append(self._lead.command(self._q) + self._tremor, self._jaw)
            self._sent = np.clip(self._sent, sim.kinematics.lower, sim.kinematics.upper)
        take = self._take
        take.q.append(sim.joint_positions(0))
        take.q_target.append(self._sent.copy())
        for name, poses in take.objects.items():
            poses.append(sim.object_pose(0, name))
        lifted = self._object_pose()[2, 3] > self._start_height + self.config.task.active.success.grasp_lift_m
        take.grasped.append(lifted and jaw_touching(sim, 0, self.object))
        if len(take.q) > self.settings.frames[1]:
            raise TakeFailed("took too long")
        sim.step(0, self._sent)

    def _reach(self, T_base_ee: np.ndarray, fine: bool = False) -> None:
        """A sub-movement to a pose, with overshoot and correction."""
        s, rng = self.settings, self._rng
        factor = s.fine_speed_factor if fine else 1.0
        overshoot = rng.uniform(*s.overshoot_fraction) * (s.fine_overshoot if fine else 1.0)
        beyond = T_base_ee.copy()
        beyond[:3, 3] += overshoot * (T_base_ee[:3, 3] - self._T[:3, 3])
        for target in (beyond, T_base_ee):
            for pose in self._minimum_jerk(target, factor):
                self._frame_step(pose, watch=fine)

    def _minimum_jerk(self, T_base_ee: np.ndarray, factor: float) -> Iterator[np.ndarray]:
        s, rng = self.settings, self._rng
        distance = np.linalg.norm(T_base_ee[:3, 3] - self._T[:3, 3])
        cosine = (np.trace(self._T[:3, :3].T @ T_base_ee[:3, :3]) - 1) / 2
        angle = float(np.arccos(np.clip(cosine, -1, 1)))
        duration = max(distance / rng.uniform(*s.speed_m_s), angle / rng.uniform(*s.turn_rate_rad_s)) / factor
        n = max(3, round(duration / self.dt))
        u = np.arange(1, n + 1) / n
        yield from interpolate_pose(self._T, T_base_ee, u**3 * (10 - 15 * u + 6 * u * u))

    def _pause(self, watch: bool = False) -> None:
        for _ in range(round(self._rng.uniform(*self.settings.pause_s) / self.dt)):
            self._frame_step(self._T, watch)

    def _move_jaw(self, target: float) -> None:
        step = self._rng.uniform(*self.settings.jaw_speed_rad_s) * self.dt
        while self._jaw != target:
            self._jaw += float(np.clip(target - self._jaw, -step, step))
            self._frame_step(self._T, watch=True)

    def _open_jaw(self) -> None:
        self._move_jaw(float(self._rng.uniform(*self.settings.jaw_open_rad)))

    def _close_jaw(self) -> None:
        """Close until the jaw stops against something, then squeeze."""
        lower = float(self.simulator.kinematics.lower[5])
        step = self._rng.uniform(*self.settings.jaw_speed_rad_s) * self.dt
        while not jaw_touching(self.simulator, 0, self.object):
            if self._jaw <= lower and abs(self.simulator.joint_velocities(0)[5]) < self.settings.jaw_still_rad_s:
                raise TakeFailed("grasp missed")
            self._jaw = max(self._jaw - step, lower)
            self._frame_step(self._T, watch=True)
        squeezed = float(self.simulator.joint_positions(0)[5]) - self.style.squeeze_rad
        self._move_jaw(max(min(self._jaw, squeezed), lower))


@functools.cache
def _operator(config_json: str) -> ScriptedOperator:
    return ScriptedOperator(Config.model_validate_json(config_json))


def _try_demo(job: tuple[str, int]) -> SeedDemo | str:
    config_json, seed = job
    try:
        return _operator(config_json).demo(seed)
    except TakeFailed as failure:
        return str(failure)


def operator_seeds(config: Config, reporter: Reporter, workers: int) -> list[SeedDemo]:
    """`num_demos` takes that worked, of the lowest take numbers that do, whatever the number of workers.

    Raises:
        InsufficientDemosError: after `max_tries` takes a demo, naming the causes.
    """
    settings = config.teleop.operator
    config_json = config.model_dump_json()
    kept: dict[int, SeedDemo] = {}
    causes: list[str] = []
    reporter.start("seeds", settings.num_demos)
    take, limit = 0, settings.num_demos * settings.max_tries
    while len(kept) < settings.num_demos and take < limit:
        batch = range(take, min(take + settings.num_demos, limit))
        take = batch.stop
        results = map_unordered(_numbered_try, [(config_json, seed) for seed in batch], workers=workers)
        for seed, result in sorted(results, key=lambda pair: pair[0]):
            if isinstance(result, str):
                causes.append(result)
            elif len(kept) < settings.num_demos:
                kept[seed] = result
                reporter.advance(1, f"take {seed}")
    if len(kept) < settings.num_demos:
        why = ", ".join(sorted(set(causes)))
        raise InsufficientDemosError(
            f"the scripted operator got {len(kept)} of {settings.num_demos} demos in {limit} takes ({why}); "
            "check the placement ranges in task.yaml against the arm's reach"
        )
    return [kept[seed] for seed in sorted(kept)]


def _numbered_try(job: tuple[str, int]) -> tuple[int, SeedDemo | str]:
    return job[1], _try_demo(job)
