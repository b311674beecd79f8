"""Where the parts of a family stand in its model's state, and the words of an observation."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

from so101.errors import SimulationError, did_you_mean
from so101.families.declaration import FamilyTask
from so101.families.goals import Features, Goal
from so101.families.scene import TOUCH, hand_bodies, slot_names


@dataclass(frozen=True)
class Parts:
    """Of the model of a task.

    Attributes:
        slots: free objects; slot_qpos, slot_qvel: where each stands in qpos and qvel.
        sites, site_numbers: those of hand and goal.
        statics: name -> (3,) m.
        touch_columns: (S, 2) of the sensors, fixed and moving jaw.
        parked: (S, 7) poses of absent slots.
    """

    slots: tuple[str, ...]
    slot_qpos: list[slice]
    slot_qvel: list[slice]
    sites: list[str]
    site_numbers: np.ndarray
    statics: dict[str, np.ndarray]
    touch_columns: np.ndarray
    parked: np.ndarray


def read_parts(task: FamilyTask, model: mujoco.MjModel) -> Parts:
    """Look the parts up.

    Raises:
        SimulationError: the goal names a site the model does not have.
    """
    family, slots = task.family, slot_names(task.family)
    known = {model.site(number).name: number for number in range(model.nsite)}
    sites = {family.declaration.arm.gripper_site}
    for kind, value in (leaf.term for leaf in task.goal.leaves):
        if hasattr(value, "site"):
            if value.site not in known:
                raise SimulationError(
                    f"families/{family.name}: tasks.{task.short_name}.goal.{kind}.site names "
                    f"{value.site!r}; the model has {', '.join(known)}{did_you_mean(value.site, known)}"
                )
            sites.add(value.site)
    park = family.declaration.park
    x, y, z = park.position_m
    columns = [[model.sensor(TOUCH.format(slot=s, body=b)).adr[0] for b in hand_bodies(family)] for s in slots]
    return Parts(
        slots=slots,
        slot_qpos=[slice(at := int(model.joint(name).qposadr[0]), at + 7) for name in slots],
        slot_qvel=[slice(at := int(model.joint(name).dofadr[0]), at + 6) for name in slots],
        sites=sorted(sites),
        site_numbers=np.array([known[name] for name in sorted(sites)]),
        statics={name: model.body(name).pos.copy() for name in family.declaration.statics},
        touch_columns=np.array(columns, int).reshape(len(slots), 2),
        parked=np.array([[x + i * park.step_m, y, z, 1, 0, 0, 0] for i in range(len(slots))]).reshape(-1, 7),
    )


class Observation:
    """The words a family shows, in groups.

    Attributes:
        names: of the D words.
        words: group -> where it stands.

    Raises:
        SimulationError: the model has free bodies that are no slots.
    """

    def __init__(self, task: FamilyTask, model: mujoco.MjModel, parts: Parts, goal: Goal) -> None:
        self._parts, self._goal = parts, goal
        joints, slots = task.family.config.robot.joint_names, parts.slots
        pose, twist = ("x", "y", "z", "qw", "qx", "qy", "qz"), ("vx", "vy", "vz", "wx", "wy", "wz")
        names: dict[str, list[str]] = {
            "qpos": [f"{j}.pos" for j in joints] + [f"{s}.{c}" for s in slots for c in pose],
            "qvel": [f"{j}.vel" for j in joints] + [f"{s}.{c}" for s in slots for c in twist],
            "active": [f"{s}.active" for s in slots],
            "goal": [f"{part}.{c}" for part in ("gripper", "to_subject", "to_target") for c in "xyz"],
            "site": [f"gripper.{c}" for c in "xyz"],
            "target": [f"target.{c}" for c in "xyz"],
            "target_minus_site": [f"to_target.{c}" for c in "xyz"],
            "previous_action": [f"{j}.previous_action" for j in joints],
        }
        if len(names["qpos"]) != model.nq or len(names["qvel"]) != model.nv:
            raise SimulationError(f"{task.name}: the model has free bodies that are no slots")
        self.words: dict[str, slice] = {}
        self.names: list[str] = []
        for group in task.family.declaration.observation:
            start = len(self.names)
            self.names += names[group]
            self.words[group] = slice(start, len(self.names))

    def __call__(self, f: Features, active: np.ndarray) -> np.ndarray:
        """(N, D) float32; `active` (N, S) bool: words of absent slots are 0."""
        seen = np.empty((len(f.qpos), len(self.names)), np.float32)
        for group, where in self.words.items():
            seen[:, where] = active if group == "active" else getattr(self, f"_words_{group}")(f)
        if not active.all():
            for group, slots in (("qpos", self._parts.slot_qpos), ("qvel", self._parts.slot_qvel)):
                if group in self.words:
                    words = seen[:, self.words[group]]
                    for number, where in enumerate(slots):
                        words[~active[:, number], where] = 0.0
        return seen

    def _words_qpos(self, f: Features) -> np.ndarray:
        return f.qpos

    def _words_qvel(self, f: Features) -> np.ndarray:
        return f.qvel

    def _words_goal(self, f: Features) -> np.ndarray:
        subject, target = self._goal.subject_m(f), self._goal.target_m(f)
        return np.concatenate([f.gripper, subject - f.gripper, target - subject], axis=-1)

    def _words_site(self, f: Features) -> np.ndarray:
        return f.gripper

    def _words_target(self, f: Features) -> np.ndarray:
        return f.target

    def _words_target_minus_site(self, f: Features) -> np.ndarray:
        return f.target - f.gripper

    def _words_previous_action(self, f: Features) -> np.ndarray:
        return f.action  # before the next step it is the previous one
