"""Does a closed jaw hold the object? Grasp, lift and hold over a grid of grasps, with controls that must not hold."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from so101.config import Config
from so101.errors import ConfigError, So101Error
from so101.geometry import interpolate_pose, invert_pose, make_pose, pose_from_pos_quat, rotation_angle
from so101.kinematics import make_ik
from so101.kinematics.servo_lead import ServoLead
from so101.sim.base import Contact
from so101.sim.mujoco_sim import MujocoSimulator
from so101.tasks.hand import UP, dipped, hand_rotation, horizontal, jaw_touching
from so101.tasks.placement import nominal_placements

HELD, CREPT, LOST, MISSED, UNREACHABLE = "held", "crept", "lost", "missed", "unreachable"
SOLVE_ITERATIONS = 80


class GraspNotHeld(So101Error):
    """The closed jaw did not hold the object, or a control did."""


@dataclass(frozen=True)
class Trial:
    """One grasp. Creep is measured in the hand over the long hold, slip from before the lift to the end of the hold.

    Attributes:
        lifted_m: height gained by the point of the object that was between the open jaws.
        creep_m: how far the point of the object that is between the jaws slid away from there, the largest of the hold.
        creep_rad: how far the object turned in the hand, the largest of the hold.
        slip_m: as `creep_m`, from before the lift.
        squeeze_n: smaller of the two jaws' mean normal forces during the hold.
    """

    offset_m: float
    dip_deg: float
    outcome: str
    lifted_m: float = 0.0
    creep_m: float = 0.0
    creep_rad: float = 0.0
    slip_m: float = 0.0
    squeeze_n: float = 0.0

    @property
    def measured(self) -> bool:
        """Whether it came to the hold, so that the figures mean something."""
        return self.outcome not in (MISSED, UNREACHABLE)


@dataclass(frozen=True)
class GraspReport:
    """All trials of one task and the controls."""

    task: str
    trials: tuple[Trial, ...]
    jaw_open: Trial  # must not hold
    far_contacts: int  # contacts with the arm of an object far away; must be 0
    soft_friction: tuple[Trial, ...]  # pyramidal cone, impratio 1: for comparison, not required
    hold_s: float
    max_creep_m: float

    @property
    def tried(self) -> list[Trial]:
        """The trials the arm could reach."""
        return [trial for trial in self.trials if trial.outcome != UNREACHABLE]

    @property
    def faults(self) -> list[str]:
        """Why the check failed, one a line; empty when it passed."""
        faults = [
            f"offset {t.offset_m * 1e3:g} mm, dip {t.dip_deg:g} degrees: {t.outcome} "
            f"(lifted {t.lifted_m * 1e3:.0f} mm, crept {t.creep_m * 1e3:.2f} mm)"
            for t in self.tried
            if t.outcome != HELD
        ]
        if not self.tried:
            faults.append("no grasp of the grid is within the arm's reach: see task.grasp_check in task.yaml")
        if self.jaw_open.outcome in (HELD, CREPT):
            faults.append("the control with an open jaw lifted the object too: what is measured is not the grasp")
        if self.far_contacts:
            faults.append(f"the control far away has {self.far_contacts} contacts between the arm and the object")
        return faults

    def to_json(self) -> dict[str, Any]:
        tried = self.tried
        return {
            "task": self.task,
            "passed": not self.faults,
            "faults": self.faults,
            "hold_s": self.hold_s,
            "max_creep_m": max((t.creep_m for t in tried), default=0.0),
            "allowed_creep_m": self.max_creep_m,
            "trials": [asdict(trial) for trial in self.trials],
            "controls": {
                "jaw_open": asdict(self.jaw_open),
                "far_contacts": self.far_contacts,
                "pyramidal_impratio_1": [asdict(trial) for trial in self.soft_friction],
            },
        }


def check_grasp(config: Config) -> GraspReport:
    """Run the grid and the controls for the task in use.

    Raises:
        ConfigError: task.yaml has no grasp offsets for the task.
    """
    settings, config = config.task.grasp_check, config.of_seeds
    if config.task.name not in settings.offsets_m:
        known = ", ".join(sorted(settings.offsets_m))
        raise ConfigError(f"task.yaml: grasp_check.offsets_m has no entry for {config.task.name!r}; it has: {known}")
    offsets, dips = settings.offsets_m[config.task.name], settings.dips_deg
    checker = GraspChecker(config)
    trials = tuple(checker.trial(offset, dip) for offset in offsets for dip in dips)
    reached = next((trial for trial in trials if trial.outcome != UNREACHABLE), trials[0])
    soft = GraspChecker(_with_soft_friction(config))
    return GraspReport(
        task=config.task.name,
        trials=trials,
        jaw_open=checker.trial(reached.offset_m, reached.dip_deg, close=False),
        far_contacts=checker.far_contacts(),
        soft_friction=tuple(soft.trial(t.offset_m, t.dip_deg) for t in trials if t.outcome != UNREACHABLE),
        hold_s=settings.hold_s,
        max_creep_m=settings.max_creep_m,
    )


def _with_soft_friction(config: Config) -> Config:
    physics = config.scene.physics.model_copy(update={"cone": "pyramidal", "impratio": 1.0})
    return config.model_copy(update={"scene": config.scene.model_copy(update={"physics": physics})})


class GraspChecker:
    """Grasps of one configuration in one simulator."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.settings = config.task.grasp_check
        self.name = config.task.active.success.objects[0]
        self.simulator = MujocoSimulator(config)
        self._ik = make_ik(config, self.simulator.kinematics)
        self._style = config.teleop.operator.styles[config.task.name]
        self._home = np.array([joint.home_rad for joint in config.robot.joints])
        self._lead = ServoLead(config, self.simulator.kinematics)
        self._nudge = config.teleop.operator.correction_gain
        self._pan_axis = np.array(config.teleop.operator.pan_axis_m)
        self._objects = nominal_placements(config)

    def trial(self, offset_m: float, dip_deg: float, *, close: bool = True) -> Trial:
        """Grasp at one offset and dip; with `close` false the jaw stays open."""
        s, sim = self.settings, self.simulator
        sim.reset(0, self._home, self._objects)
        self._lead.reset(self._home)
        self._offset = np.zeros(5)
        self._stay(self._home[:5], self._home[5], s.settle_s)
        T_grasp = self._grasp_pose(offset_m, np.deg2rad(dip_deg))
        T_above = T_grasp.copy()
        T_above[:3, 3] -= s.approach_m * T_grasp[:3, 0]
        T_lifted = T_grasp.copy()
        T_lifted[2, 3] += s.lift_m
        q_above = self._solve(T_above)
        if q_above is None or self._solve(T_grasp) is None or self._solve(T_lifted) is None:
            return Trial(offset_m, dip_deg, UNREACHABLE)
        objects = {name: sim.object_pose(0, name) for name in sim.object_names}
        sim.reset(0, np.append(q_above, s.jaw_open_rad), objects)
        self._lead.reset(q_above)
        self._offset = np.zeros(5)
        self._stay(q_above, s.jaw_open_rad, s.settle_s)
        self._q, self._jaw = q_above, s.jaw_open_rad
        self._move(T_above, T_grasp)
        self._stay(self._q, self._jaw, s.settle_s)
        p_obj_pinch = invert_pose(self._in_hand())[:3, 3]
        start_height = self._height_of(p_obj_pinch)
        if close:
            self._close()
            if not jaw_touching(sim, 0, self.name):
                return Trial(offset_m, dip_deg, MISSED)
        self._stay(self._q, self._jaw, s.first_hold_s)
        T_before = self._in_hand()
        self._move(T_grasp, T_lifted)
        self._stay(self._q, self._jaw, s.settle_s)
        T_start = self._in_hand()
        squeeze: list[float] = []
        poses = self._stay(self._q, self._jaw, s.hold_s, squeeze)
        lifted = self._height_of(p_obj_pinch) - start_height
        creep = float(slides(T_start, poses).max())
        outcome = CREPT if creep > s.max_creep_m else HELD
        if lifted < s.min_lifted_share * s.lift_m or not jaw_touching(sim, 0, self.name):
            outcome = LOST
        return Trial(
            offset_m=offset_m,
            dip_deg=dip_deg,
            outcome=outcome,
            lifted_m=lifted,
            creep_m=creep,
            creep_rad=float(rotation_angle(T_start[:3, :3], poses[:, :3, :3]).max()),
            slip_m=float(slides(T_before, poses).max()),
            squeeze_n=float(np.mean(squeeze)),
        )

    def far_contacts(self) -> int:
        """Contacts between the arm and the object when the object lies `far_m` away and the jaw closes on nothing."""
        sim, s = self.simulator, self.settings
        objects = {**self._objects, self.name: self._objects[self.name] + [s.far_m, 0, 0, 0, 0, 0, 0]}
        sim.reset(0, self._home, objects)
        ground, lower, found = set(self.config.scene.statics), float(sim.kinematics.lower[5]), 0
        for _ in range(round(s.close_s / sim.control_dt)):
            sim.step(0, np.append(self._home[:5], lower))
            found += sum(self.name in pair and not pair & ground for pair in map(_pair, sim.contacts(0)))
        return found

    def _grasp_pose(self, offset_m: float, dip_rad: float) -> np.ndarray:
        """(4, 4) T_base_ee of a grasp of the object as it lies now."""
        T_obj = self._object()
        if self._style.kind == "axis":  # along the lying object, pinching across it
            heading = horizontal(T_obj[:3, 2])
            point = T_obj[:3, 3] + offset_m * heading
            return make_pose(hand_rotation(dipped(heading, dip_rad), np.cross(UP, heading)), point)
        point = T_obj[:3, 3] + offset_m * UP
        heading = max((s * horizontal(T_obj[:3, k]) for k in (0, 1) for s in (1, -1)), key=lambda v: float(v @ point))
        return make_pose(hand_rotation(dipped(heading, dip_rad), np.cross(UP, heading)), point)

    def _solve(self, T_base_ee: np.ndarray) -> np.ndarray | None:
        """Joints (5,) rad for a pose, or None out of reach."""
        s = self.settings
        start = self._home[:5].copy()
        start[0] = -np.arctan2(*(T_base_ee[:2, 3] - self._pan_axis)[::-1])
        result = self._ik.solve(start, T_base_ee, SOLVE_ITERATIONS)
        reached = result.position_error_m < s.reach_tolerance_m and result.rotation_error_rad < s.reach_tolerance_rad
        return result.q if reached else None

    def _object(self) -> np.ndarray:
        return pose_from_pos_quat(self.simulator.object_pose(0, self.name))

    def _height_of(self, p_obj: np.ndarray) -> float:
        """Height in base, m, of a point (3,) of the object."""
        T = self._object()
        return float(T[2, 3] + T[2, :3] @ p_obj)

    def _in_hand(self) -> np.ndarray:
        """(4, 4) T_ee_obj now."""
        return invert_pose(self.simulator.ee_pose(0)) @ self._object()

    def _send(self, q_arm: np.ndarray, jaw: float) -> None:
        """One control period; joints aim beyond q_arm by what gravity and friction take off: the hand goes there."""
        self.simulator.step(0, np.append(self._lead.command(q_arm) + self._offset, jaw))
        self._q, self._jaw = q_arm, jaw

    def _stay(self, q_arm: np.ndarray, jaw: float, seconds: float, squeeze: list[float] | None = None) -> np.ndarray:
        """Hold still, where friction keeps the hand off q_arm nudging it on; T_ee_obj (n, 4, 4) after each control
        period. `squeeze` receives the squeeze of each, N."""
        poses = []
        for _ in range(round(seconds / self.simulator.control_dt)):
            error = q_arm - self.simulator.joint_positions(0)[:5]
            limit = self._lead.friction_band
            self._offset = np.clip(self._offset + self._nudge * error, -limit, limit)
            self._send(q_arm, jaw)
            poses.append(self._in_hand())
            if squeeze is not None:
                squeeze.append(self._squeeze())
        return np.array(poses)

    def _squeeze(self) -> float:
        """Normal force, N, of the jaw that presses less on the object."""
        forces = dict.fromkeys(self.config.robot.hull_free_bodies, 0.0)
        for contact in self.simulator.contacts(0):
            other = contact.body_2 if contact.body_1 == self.name else contact.body_1
            if self.name in (contact.body_1, contact.body_2) and other in forces:
                forces[other] += contact.normal_force
        return min(forces.values())

    def _move(self, T_from: np.ndarray, T_to: np.ndarray) -> None:
        s = self.settings
        n = max(2, round(np.linalg.norm(T_to[:3, 3] - T_from[:3, 3]) / s.speed_m_s / self.simulator.control_dt))
        for T in interpolate_pose(T_from, T_to, np.arange(1, n + 1) / n):
            self._send(self._ik.solve(self._q, T).q, self._jaw)

    def _close(self) -> None:
        """Close until both jaws touch, then go on by the operator's squeeze."""
        s, sim = self.settings, self.simulator
        lower, step = float(sim.kinematics.lower[5]), s.jaw_speed_rad_s * sim.control_dt
        goal = lower
        for _ in range(round(s.close_s / sim.control_dt)):
            if goal == lower and jaw_touching(sim, 0, self.name):
                goal = max(float(sim.joint_positions(0)[5]) - self._style.squeeze_rad, lower)
            self._send(self._q, self._jaw + float(np.clip(goal - self._jaw, -step, step)))


def _pair(contact: Contact) -> set[str]:
    return {contact.body_1, contact.body_2}


def slides(T_ee_obj_start: np.ndarray, T_ee_obj: np.ndarray) -> np.ndarray:
    """(n,) m: how far the object's point that was at the pinch point (the origin of ee) lies from it in (n, 4, 4)."""
    p_obj_pinch = invert_pose(T_ee_obj_start)[:3, 3]
    return np.linalg.norm(T_ee_obj[:, :3, :3] @ p_obj_pinch + T_ee_obj[:, :3, 3], axis=-1)
