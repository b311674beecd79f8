"""The twin as an oracle of a reach task: joints in, the hand's point and the policy's observation out.

The same compiled model that the policy was trained in. Its kinematics are computed, its physics never stepped.
"""

from __future__ import annotations

import mujoco
import numpy as np

from so101.errors import ConfigError
from so101.families.declaration import FamilyTask
from so101.families.goals import make_goal
from so101.families.placement import Beginning, draw_beginning
from so101.families.scene import compiled

_ARM = 6  # joints


class ReachModel:
    """One reach task. Positions (3,) m in the base frame, joints (6,) rad of the model. Not thread-safe.

    Attributes:
        control_dt: s between two actions.
        lower, upper: (6,) rad what actions -1 and 1 command.
        start: (6,) rad where episodes of the task begin, without noise.
        words: of an observation, D.

    Raises:
        ConfigError: the task is not about a point, or its observation needs more than an arm tells.
    """

    def __init__(self, task: FamilyTask) -> None:
        declared = task.family.declaration
        kind, point = task.goal.term
        if kind != "at_point":
            raise ConfigError(
                f"{task.name}: its goal is {kind}, not at_point: only a task of reaching a point goes to the arm this "
                "way (deploy.reach.task)"
            )
        self.task, self.name, self.control_dt = task, task.name, declared.control.control_dt
        self._goal = make_goal(task)
        self._model = compiled(task.family)
        self._data = mujoco.MjData(self._model)
        self._site = self._model.site(point.site).id
        self._base = np.array(declared.arm.base_position_m)
        self._jacobian = np.zeros((3, self._model.nv))
        self.lower, self.upper = self._model.actuator_ctrlrange[:_ARM].T.copy()
        self.start = np.array(declared.start.qpos_rad)
        self._groups = declared.observation
        unknown = [name for name in self._groups if name not in _WIDTHS]
        if unknown or self._model.nq != _ARM:
            raise ConfigError(
                f"{task.name}: an arm alone cannot tell {', '.join(unknown) or 'where objects are'}; its observation "
                f"may have {', '.join(_WIDTHS)}"
            )
        self.words = sum(_WIDTHS[name] for name in self._groups)

    def beginning(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Joints (6,) and target (3,) of the training's episode `seed`."""
        drawn: Beginning = draw_beginning(self.task, self._goal, seed)
        return drawn.q, drawn.point - self._base

    def point(self, q: np.ndarray) -> np.ndarray:
        """(3,) m where the hand's point is at joints q (6,)."""
        self._data.qpos[:_ARM] = q
        mujoco.mj_kinematics(self._model, self._data)
        return self._data.site_xpos[self._site] - self._base

    def jacobian(self, q: np.ndarray) -> np.ndarray:
        """(3, 6) m/rad of `point`."""
        self.point(q)
        mujoco.mj_comPos(self._model, self._data)
        mujoco.mj_jacSite(self._model, self._data, self._jacobian, None, self._site)
        return self._jacobian[:, :_ARM].copy()

    def observation(self, q: np.ndarray, qd: np.ndarray, target: np.ndarray, previous_action: np.ndarray) -> np.ndarray:
        """(1, D) float32: what the policy saw in training where an arm is at q (6,) rad, moves at qd (6,) rad/s, and
        was told previous_action (6,) before."""
        site = self.point(q) + self._base
        target = target + self._base
        groups = {
            "qpos": q, "qvel": qd, "site": site, "target": target, "target_minus_site": target - site,
            "previous_action": previous_action,
        }  # fmt: skip
        return np.concatenate([groups[name] for name in self._groups]).astype(np.float32)[None]

    def joints_of(self, action: np.ndarray) -> np.ndarray:
        """(6,) rad that an action (6,) in [-1, 1] commands."""
        return self.lower + (np.asarray(action, float) + 1) / 2 * (self.upper - self.lower)

    def action_of(self, q: np.ndarray) -> np.ndarray:
        """(6,) the action that commands joints q (6,), within [-1, 1]."""
        return np.clip(2 * (np.asarray(q, float) - self.lower) / (self.upper - self.lower) - 1, -1, 1)


_WIDTHS = {"qpos": 6, "qvel": 6, "site": 3, "target": 3, "target_minus_site": 3, "previous_action": 6}
