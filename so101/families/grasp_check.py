"""`./twin grasp-check` of a family: does the closed jaw hold the object for long? With controls that must not hold.

Places, hand and jaw are the scripted expert's; times and limits those of `grasp_check` in task.yaml.
"""

from __future__ import annotations

import mujoco
import numpy as np

from so101.errors import ConfigError
from so101.families.declaration import Family, FamilyTask
from so101.families.expert_ik import UP, HandIK
from so101.families.scene import build, compiled, hand_bodies, slot_names
from so101.geometry import invert_pose, make_pose, pose_from_pos_quat, rotation_angle
from so101.sim.bake import EE_SITE
from so101.tasks.grasp_check import CREPT, HELD, LOST, MISSED, UNREACHABLE, GraspReport, Trial, slides


def grasp_tasks(tasks: dict[str, FamilyTask]) -> dict[str, FamilyTask]:
    """Those whose object a jaw is to hold, one for each object of a scene; those in the pipeline's scene left out."""
    found: dict[tuple[str, str], str] = {}
    for name, task in tasks.items():
        declared = task.family.declaration
        if task.declaration.grasp is not None and declared.workshop_task is None:
            scene = declared.model_dump_json(exclude={"control": {"horizon"}, "tasks": True, "variants": True})
            found.setdefault((scene, task.declaration.grasp.slot), name)
    return {name: tasks[name] for name in found.values()}


def check_family_grasp(task: FamilyTask) -> GraspReport:
    """Grasp, lift and hold the object of `task` for every offset and dip of its `grasp`, and the controls.

    Raises:
        ConfigError: the task declares no grasp, or its family no expert.
    """
    declared = task.family.declaration
    grasp, limits = task.declaration.grasp, task.family.config.task.grasp_check
    if declared.expert is None or grasp is None or not (grasp.place_m and grasp.offsets_m and grasp.dips_deg):
        lacks = "`expert` section in its family" if declared.expert is None else "`grasp` with place, offsets and dips"
        raise ConfigError(
            f"{task.name}: no grasp to check, it has no {lacks}; see lift_brick in configs/families/so101_tower.yaml"
        )
    checker = FamilyGraspChecker(task)
    grid = [(offset, dip) for offset in grasp.offsets_m for dip in grasp.dips_deg]
    trials = tuple(checker.trial(*each) for each in grid)
    reached = next((trial for trial in trials if trial.outcome != UNREACHABLE), trials[0])
    soft = FamilyGraspChecker(task, soft_friction=True)
    return GraspReport(
        task=task.name,
        trials=trials,
        jaw_open=checker.trial(reached.offset_m, reached.dip_deg, close=False),
        far_contacts=checker.far_contacts(),
        soft_friction=tuple(soft.trial(t.offset_m, t.dip_deg) for t in trials if t.outcome != UNREACHABLE),
        hold_s=limits.hold_s,
        max_creep_m=limits.max_creep_m,
    )


class FamilyGraspChecker:
    """Grasps of one task's object in the family's own physics and servos.

    Args:
        soft_friction: pyramidal cone and impratio 1 instead of the family's.
    """

    def __init__(self, task: FamilyTask, *, soft_friction: bool = False) -> None:
        family = task.family
        declared = family.declaration
        self.model = _soft(family) if soft_friction else compiled(family)
        self.data = mujoco.MjData(self.model)
        self.limits, self.hand = family.config.task.grasp_check, declared.expert.hand
        self.grasp, self.slot = task.declaration.grasp, task.declaration.grasp.slot
        self._ik = HandIK(family, self.hand)
        self._start = np.array(declared.start.qpos_rad)
        self._dt = declared.control.control_dt
        self._skip = declared.control.frame_skip
        self._shut = float(self._ik.kinematics.lower[5])
        self._surface_m = declared.regions[task.declaration.place[self.slot].region].origin_m[2]
        self._rests_m = self._surface_m - declared.slots[self.slot].bottom_m
        self._object = self.model.body(self.slot).id
        self._site = self.model.site(EE_SITE).id
        self._jaws = [self.model.body(name).id for name in hand_bodies(family)]
        self._qpos = {name: int(self.model.joint(name).qposadr[0]) for name in slot_names(family)}
        self._qvel = {name: int(self.model.joint(name).dofadr[0]) for name in slot_names(family)}
        park, self._parked = declared.park, {}
        for number, name in enumerate(self._qpos):
            x, y, z = park.position_m
            self._parked[name] = np.array([x + number * park.step_m, y, z, 1, 0, 0, 0])

    def trial(self, offset_m: float, dip_deg: float, *, close: bool = True) -> Trial:
        """Grasp at one height over the object's centre and one dip of the hand; `close` false: the jaw stays open."""
        s, wide = self.limits, self.hand.jaw_open_rad
        reach = self._reach(offset_m, np.deg2rad(-dip_deg), wide)
        if reach is None:
            return Trial(offset_m, dip_deg, UNREACHABLE)
        above, grasp, lifted = reach
        self._begin(above, wide, np.array([*self.grasp.place_m, self._rests_m, 1, 0, 0, 0]))
        self._stay(above, wide, s.settle_s)
        jaw = wide
        self._move(above, grasp, jaw)
        self._stay(grasp, jaw, s.settle_s)
        p_obj_pinch = invert_pose(self._in_hand())[:3, 3]
        start_height = self._height_of(p_obj_pinch)
        if close:
            jaw = self._shut
            self._stay(grasp, jaw, s.close_s)
            if not self._touching():
                return Trial(offset_m, dip_deg, MISSED)
        self._stay(grasp, jaw, s.first_hold_s)
        T_before = self._in_hand()
        self._move(grasp, lifted, jaw)
        self._stay(lifted, jaw, s.settle_s)
        T_start = self._in_hand()
        squeeze: list[float] = []
        poses = self._stay(lifted, jaw, s.hold_s, squeeze)
        rise = self._height_of(p_obj_pinch) - start_height
        creep = float(slides(T_start, poses).max())
        outcome = CREPT if creep > s.max_creep_m else HELD
        if rise < s.min_lifted_share * s.lift_m or not self._touching():
            outcome = LOST
        return Trial(
            offset_m=offset_m,
            dip_deg=dip_deg,
            outcome=outcome,
            lifted_m=rise,
            creep_m=creep,
            creep_rad=float(rotation_angle(T_start[:3, :3], poses[:, :3, :3]).max()),
            slip_m=float(slides(T_before, poses).max()),
            squeeze_n=float(np.mean(squeeze)),
        )

    def far_contacts(self) -> int:
        """Contacts between the arm and the object when it lies `far_m` away and the jaw closes on nothing."""
        x, y = self.grasp.place_m
        far = np.array([x + self.limits.far_m, y, self._rests_m, 1, 0, 0, 0])
        self._begin(self._start[:5], self.hand.jaw_open_rad, far)
        arm, found = self.model.body("base").id, 0
        for _ in range(round(self.limits.close_s / self._dt)):
            self._step(np.append(self._start[:5], self._shut))
            for contact in self.data.contact:
                bodies = self.model.geom_bodyid[contact.geom]
                others = bodies[bodies != self._object]
                found += len(others) == 1 and self.model.body_rootid[others[0]] == arm
        return found

    def _reach(self, offset_m: float, elevation: float, wide: float) -> tuple[np.ndarray, ...] | None:
        """Joints (5,) above, at, and lifting the object; the hand no lower than its closing tips may come."""
        ik, s = self._ik, self.limits
        center = np.array([*self.grasp.place_m, self._rests_m])
        q = ik.solve(center + offset_m * UP, elevation, pinch=np.array([1.0, 0.0]))
        if q is None:
            return None
        position, R = ik.pose(q)
        position = position - self.hand.pinch_shift_m * R[:, 2]
        low = min(ik.kinematics.lowest_m(np.append(q, jaw)) for jaw in np.linspace(wide, 0.0, 4))
        position = position + max(0.0, self._surface_m + self.hand.tip_clearance_m - low) * UP
        places = (position - s.approach_m * R[:, 0], position, position + s.lift_m * UP)
        joints = [ik.first(place, near_rad=elevation, roll_rad=q[4]) for place in places]
        near = [found is not None and abs(found[1] - elevation) < s.reach_tolerance_rad for found in joints]
        return tuple(found[0] for found in joints) if all(near) else None

    def _begin(self, q: np.ndarray, jaw: float, pose: np.ndarray) -> None:
        model, data = self.model, self.data
        mujoco.mj_resetData(model, data)
        data.qpos[:6] = data.ctrl[:6] = np.append(q, jaw)
        for name, start in self._qpos.items():
            data.qpos[start : start + 7] = pose if name == self.slot else self._parked[name]
        mujoco.mj_forward(model, data)

    def _step(self, command: np.ndarray) -> None:
        """One control period; what is absent stays where it is parked."""
        self.data.ctrl[:6] = command
        mujoco.mj_step(self.model, self.data, self._skip)
        for name, start in self._qpos.items():
            if name != self.slot:
                self.data.qpos[start : start + 7] = self._parked[name]
                self.data.qvel[self._qvel[name] : self._qvel[name] + 6] = 0.0

    def _stay(self, q: np.ndarray, jaw: float, seconds: float, squeeze: list[float] | None = None) -> np.ndarray:
        """Hold still; T_ee_obj (n, 4, 4) after each control period. `squeeze` receives the squeeze of each, N."""
        poses = []
        for _ in range(round(seconds / self._dt)):
            self._step(np.append(q, jaw))
            poses.append(self._in_hand())
            if squeeze is not None:
                squeeze.append(self._squeeze())
        return np.array(poses)

    def _move(self, q_from: np.ndarray, q_to: np.ndarray, jaw: float) -> None:
        way = np.linalg.norm(self._ik.pose(q_to)[0] - self._ik.pose(q_from)[0])
        steps = max(2, round(way / self.limits.speed_m_s / self._dt))
        for share in np.arange(1, steps + 1) / steps:
            self._step(np.append(q_from + share * (q_to - q_from), jaw))

    def _in_hand(self) -> np.ndarray:
        """(4, 4) T_ee_obj now."""
        mujoco.mj_kinematics(self.model, self.data)
        site = self.data.site_xmat[self._site].reshape(3, 3)
        return invert_pose(make_pose(site, self.data.site_xpos[self._site])) @ self._pose()

    def _pose(self) -> np.ndarray:
        start = self._qpos[self.slot]
        return pose_from_pos_quat(self.data.qpos[start : start + 7])

    def _height_of(self, p_obj: np.ndarray) -> float:
        T = self._pose()
        return float(T[2, 3] + T[2, :3] @ p_obj)

    def _forces(self) -> dict[int, float]:
        """Normal forces, N, of the jaws on the object."""
        forces, force = dict.fromkeys(self._jaws, 0.0), np.zeros(6)
        for number, contact in enumerate(self.data.contact):
            bodies = self.model.geom_bodyid[contact.geom]
            if self._object in bodies:
                other = int(bodies.sum() - self._object)
                if other in forces:
                    mujoco.mj_contactForce(self.model, self.data, number, force)
                    forces[other] += force[0]
        return forces

    def _touching(self) -> bool:
        return self._squeeze() > 0.0

    def _squeeze(self) -> float:
        return min(self._forces().values())


def _soft(family: Family) -> mujoco.MjModel:
    spec = build(family)
    spec.option.cone, spec.option.impratio = mujoco.mjtCone.mjCONE_PYRAMIDAL, 1.0
    return spec.compile()
