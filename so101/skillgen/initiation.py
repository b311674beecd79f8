"""Skill segments that begin from somewhere else: the hand first goes to a perturbed start, then recovers to the nominal
one (SkillGen's initiation noise). The policy sees how to come back; the skill itself is replayed as it was."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from so101.config import Config
from so101.geometry import make_pose, rotation_about_axis, rotation_angle
from so101.sim.mujoco_sim import MujocoSimulator
from so101.skillgen.causes import AttemptFailed
from so101.skillgen.planning import PlannedSegment
from so101.skillgen.transit import HeldObject, TransitPlanner


class Detour(NamedTuple):
    """Joint paths, rad: `out` (n, 5) to a perturbed start and `recovery` (m, 5) from there to the nominal one; how far
    and how much turned the hand is in between."""

    out: np.ndarray
    recovery: np.ndarray
    shift_m: float
    turn_rad: float

    def mark(self, subtask: str, out: list[int], recovery: list[int]) -> dict[str, Any]:
        """For the demo's record: the frames [first, end) of both parts, and how far off the start was."""
        return {
            "subtask": subtask,
            "out": out,
            "recovery": recovery,
            "shift_m": round(self.shift_m, 5),
            "turn_rad": round(self.turn_rad, 5),
        }


class InitiationNoise:
    """Draws detours for the scene as it stands; moves nothing."""

    def __init__(self, config: Config, simulator: MujocoSimulator, transits: TransitPlanner) -> None:
        self.settings = config.skillgen.initiation
        self._transits, self._simulator = transits, simulator

    def detour(
        self,
        rng: np.random.Generator,
        q_now: np.ndarray,
        plan: PlannedSegment,
        jaw: float,
        held: HeldObject | None,
        objects: dict[str, np.ndarray],
    ) -> Detour | None:
        """A detour on the way to the start of `plan`, or None: not drawn this time, or `redraws` perturbed starts in a
        row that the arm does not reach or that are not free.

        Args:
            rng: used only when the noise is enabled.
            q_now: commanded joints (5,) now, rad.
            jaw: jaw angle on the way, rad.
            objects: name -> (7,) pose in base now.
        """
        s = self.settings
        if not s.enabled or rng.random() >= s.probability:
            return None
        T_nominal = self._simulator.fk(plan.q[0])
        for _ in range(1 + s.redraws):
            try:
                q = self._transits.goal(plan.q[0], self._perturbed(T_nominal, rng))
            except AttemptFailed:  # out of reach
                continue
            if not self.stands_free(q, jaw, held, objects):
                continue
            T = self._simulator.fk(q)
            out = self._transits.plan(q_now, q, T, jaw, held, objects)
            if out is None:
                continue
            recovery = self._transits.plan(q, plan.q[0], plan.T_start, jaw, held, objects)
            if recovery is None:
                continue
            shift = float(np.linalg.norm(T[:3, 3] - T_nominal[:3, 3]))
            return Detour(out, recovery, shift, float(rotation_angle(T_nominal[:3, :3], T[:3, :3])))
        return None

    def _perturbed(self, T_base_ee: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """(4, 4): position off by up to `position_m` an axis, turned about a random axis by an angle of `turn_deg`."""
        s = self.settings
        shift = rng.uniform(-s.position_m, s.position_m, 3)
        axis = rng.normal(size=3)
        turn = rotation_about_axis(axis / np.linalg.norm(axis), np.deg2rad(rng.uniform(*s.turn_deg)))
        return make_pose(turn @ T_base_ee[:3, :3], T_base_ee[:3, 3] + shift)

    def stands_free(self, q: np.ndarray, jaw: float, held: HeldObject | None, objects: dict[str, np.ndarray]) -> bool:
        """Whether arm and held object keep `clearance_m` to everything at joints q (5,)."""
        checker = self._transits.checker
        checker.start(objects)
        distances = checker.near(np.append(q, jaw), held).values()
        return min(distances, default=np.inf) >= self.settings.clearance_m
