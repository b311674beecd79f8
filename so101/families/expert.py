"""The scripted expert: picks up the task's object and, where the goal wants it somewhere, puts it there.

Waypoints of the hand from the true state, joints from closed-form inverse kinematics, smooth joint motion between them.
It looks at the state when a part of its way ends: an object that is not in the hand is grasped again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import mujoco
import numpy as np

from so101.errors import So101Error
from so101.families.declaration import ExpertSettings
from so101.families.expert_ik import UP, HandIK
from so101.families.goals import Above, AllOf, Goal, Near
from so101.families.vector_env import JOINTS, FamilyVectorEnv

PRE, DESCEND, CLOSE, LIFT, CARRY, PLACE, OPEN, RETREAT, HOLD = (
    "pre", "descend", "close", "lift", "carry", "place", "open", "retreat", "hold"
)  # fmt: skip
STAGES = (PRE, DESCEND, CLOSE, LIFT, CARRY, PLACE, OPEN, RETREAT, HOLD)
UNREACHABLE = "unreachable"
_SUBWAYS = 3  # points of a straight way of the hand
_NEARER = (1.0, 0.7, 0.4)  # shares of the approach to try: close to the base there is no room for all of it


class ExpertImpossible(So101Error):
    """The expert does not know how to do a task."""


@dataclass(frozen=True)
class ExpertOptions:
    """What the command line may change. noise: sigma of the Gaussian on normalised actions while the jaw is open."""

    noise: float = 0.0
    flat_noise: bool = False
    feedback: bool = False


class Leg(NamedTuple):
    """A part of a way: from the last command along `path` (K, 6) rad in `steps`."""

    stage: str
    path: np.ndarray
    steps: int


class _Lane:
    """Where one lane is on its way."""

    def __init__(self, q: np.ndarray, rng: np.random.Generator) -> None:
        self.rng = rng
        self.begin(q, [])
        self.tries = 0
        self.stage = PRE

    def begin(self, q: np.ndarray, legs: list[Leg]) -> None:
        self.start, self.legs, self.done = q.copy(), legs, 0

    def next(self) -> np.ndarray:
        """The next command (6,), rad."""
        leg = self.legs[0]
        self.stage = leg.stage
        self.done += 1
        knots = np.vstack([self.start, leg.path])
        along = _smooth(self.done / leg.steps) * len(leg.path)
        before = min(int(along), len(leg.path) - 1)
        q = knots[before] + (knots[before + 1] - knots[before]) * (along - before)
        if self.done >= leg.steps:
            self.begin(leg.path[-1], self.legs[1:])
        return q

    @property
    def along(self) -> float:
        """Share of the present leg that is done."""
        return self.done / self.legs[0].steps if self.legs else 1.0


class Expert:
    """Drives all lanes of an environment; deterministic without noise.

    Args:
        env: its task must be Above or Near a body, with slots (and an ``expert`` section in its family).
        options: noise and feedback.
        settings: instead of the family's.
        seed: of the noise; an episode's noise depends on this and the episode's seed.

    Raises:
        ExpertImpossible: a task it has no plan for.
    """

    def __init__(
        self,
        env: FamilyVectorEnv,
        options: ExpertOptions = ExpertOptions(),  # noqa: B008 (frozen)
        settings: ExpertSettings | None = None,
        seed: int = 0,
    ) -> None:
        self.env, self.options, self.seed = env, options, seed
        self.settings = settings or settings_of(env)
        self.goal = _handled(env.goal, env.task.name, env.slots)
        self.subject = self.goal.subject
        self._ik = HandIK(env.family, self.settings.hand)
        self._subject = env.slots.index(self.subject)
        declared = env.family.declaration
        self._surface_m = declared.regions[env.task.declaration.place[self.subject].region].origin_m[2]
        self._rests_m = self._surface_m - declared.slots[self.subject].bottom_m
        self._falls_m = declared.start.drop_m + 1e-3
        self._beside_m = None  # from what the object is put beside, when the goal lets it stand there
        if isinstance(self.goal, Near):
            self._target = env.slots.index(self.goal.target)
            touching = declared.slots[self.subject].radius_m + declared.slots[self.goal.target].radius_m
            if touching < self.goal.radius_m:
                self._beside_m = (touching + self.goal.radius_m) / 2
        self._lanes = [_Lane(env.qpos[i, :JOINTS], self._rng(i)) for i in range(env.num_envs)]

    # ---- use ------------------------------------------------------------------------------------------------------

    def reset(self, lanes: np.ndarray | None = None) -> None:
        """Begin anew in the lanes of a (N,) bool mask (all when None), from where they are now."""
        for lane in range(self.env.num_envs) if lanes is None else np.flatnonzero(lanes):
            self._lanes[lane] = _Lane(self.env.qpos[lane, :JOINTS], self._rng(int(lane)))

    def take_over(self, lane: int) -> None:
        """Go on from where another controller has left a lane: holding the object, beside it, anywhere."""
        self._lanes[lane] = _Lane(self.env.qpos[lane, :JOINTS], self._rng(lane))
        self._lanes[lane].tries = 1  # it may be low between things: up first

    def act(self) -> np.ndarray:
        """(N, 6) actions in [-1, 1] for the state the environment is in now."""
        return np.stack([self.act_lane(lane) for lane in range(self.env.num_envs)])

    def act_lane(self, lane: int) -> np.ndarray:
        """(6,) action for one lane."""
        state = self._lanes[lane]
        if not state.legs or (state.done == 0 and state.legs[0].stage in (CARRY, PLACE) and not self._in_hand(lane)):
            state.begin(state.start, self._plan(lane))
        leg, share = state.legs[0], state.along
        before = state.start
        command = state.next()
        if self.options.feedback and leg.stage != CLOSE:
            q = self.env.qpos[lane, :JOINTS]
            pace = np.maximum(np.abs(leg.path[-1] - before) / leg.steps, self.settings.feedback_floor_rad)
            command = q + np.clip(command - q, -pace, pace)
        action = self.env.ctrl_to_action(command)
        if self.options.noise and leg.stage in (PRE, DESCEND):
            taper = 1.0 - share if leg.stage == DESCEND and not self.options.flat_noise else 1.0
            action = action + state.rng.normal(0.0, self.options.noise * taper, JOINTS)
        return np.clip(action, -1.0, 1.0)

    @property
    def stages(self) -> list[str]:
        """What each lane is doing; `unreachable` where its object is out of reach."""
        return [lane.stage for lane in self._lanes]

    @property
    def tries(self) -> list[int]:
        """Grasps begun in each lane."""
        return [lane.tries for lane in self._lanes]

    # ---- plans ----------------------------------------------------------------------------------------------------

    def _plan(self, lane: int) -> list[Leg]:
        state = self._lanes[lane]
        if self._in_hand(lane):
            return self._after_grasp(lane, state.start)
        if self._at_goal(lane):
            return [self._leg(HOLD, state.start[:5], state.start[5], self.settings.times_s.retreat)]
        return self._grasp(lane, state)

    def _grasp(self, lane: int, state: _Lane) -> list[Leg]:
        hand, way, times = self.settings.hand, self.settings.way_m, self.settings.times_s
        brick, turned = self._pose(lane, self._subject)
        if 0.0 < brick[2] - self._rests_m <= self._falls_m:
            brick[2] = self._rests_m  # it is still falling
        pinch = turned[:2, 0] / max(np.linalg.norm(turned[:2, 0]), 1e-6)
        found = self._ik.over_table(brick + hand.grasp_over_m * UP, self._surface_m, hand.jaw_open_rad, pinch)
        if found is None:
            state.stage = UNREACHABLE
            return [self._leg(UNREACHABLE, state.start[:5], state.start[5], times.pre)]
        q, elevation = found
        position, R = self._ik.pose(q)
        position = position - hand.pinch_shift_m * R[:, 2]
        ways = (
            self._straight(position - share * way.approach * R[:, 0], position, elevation, q[4]) for share in _NEARER
        )
        down = next((joints for joints in ways if joints is not None), None)
        if down is None:
            state.stage = UNREACHABLE
            return [self._leg(UNREACHABLE, state.start[:5], state.start[5], times.pre)]
        wide, shut = hand.jaw_open_rad, float(self._ik.kinematics.lower[5])
        legs = []
        if self._ik.kinematics.lowest_m(self.env.qpos[lane, :JOINTS]) < self._surface_m + way.clear:
            legs.append(self._up(lane, state.start))
        state.tries += 1
        return [
            *legs,
            self._leg(PRE, down[0], wide, times.pre),
            self._leg(DESCEND, down[1:], wide, times.descend),
            self._leg(DESCEND, down[-1], wide, times.settle),
            self._leg(CLOSE, down[-1], shut, times.close),
            self._leg(CLOSE, down[-1], shut, times.squeeze),
        ]

    def _up(self, lane: int, start: np.ndarray) -> Leg:
        """Straight up, out of what may stand around; a jaw that is closed opens once it is there."""
        way, times = self.settings.way_m, self.settings.times_s
        p, R = self._ik.pose(start)
        elevation = float(np.arcsin(np.clip(R[2, 0], -1, 1)))
        found = self._ik.first(p + way.raised * UP, near_rad=elevation, roll_rad=float(start[4]))
        return self._leg(PRE, start[:5] if found is None else found[0], float(start[5]), times.up)

    def _after_grasp(self, lane: int, start: np.ndarray) -> list[Leg]:
        way, times = self.settings.way_m, self.settings.times_s
        shut = float(self._ik.kinematics.lower[5])
        brick, _ = self._pose(lane, self._subject)
        p, R = self._ik.pose(self.env.qpos[lane, :5])
        in_hand = R.T @ (brick - p)  # of the object, in the hand's frame
        elevation = float(np.arcsin(np.clip(R[2, 0], -1, 1)))
        legs = []
        height = self._surface_m + way.lift
        q, roll = start[:5], float(start[4])
        if brick[2] < height - way.lifted_within:
            found = self._brick_at(np.array([*brick[:2], height]), in_hand, elevation, roll)
            if found is not None:
                q, elevation = found
                legs.append(self._leg(LIFT, q, shut, times.lift))
        if isinstance(self.goal, Near):
            return legs + self._put(lane, in_hand, elevation, q)
        return legs or [self._leg(HOLD, q, shut, times.lift)]

    def _put(self, lane: int, in_hand: np.ndarray, elevation: float, q: np.ndarray) -> list[Leg]:
        way, times, hand = self.settings.way_m, self.settings.times_s, self.settings.hand
        shut = float(self._ik.kinematics.lower[5])
        target, _ = self._pose(lane, self._target)
        ends = [(target + way.carry_over * UP, target + way.release_over * UP)]
        if self._beside_m is not None:
            ends = [
                (np.array([*at, self._surface_m + way.lift]), np.array([*at, self._rests_m + way.set_down_over]))
                for at in self._places_beside(target[:2])
            ]
        for high_m, low_m in ends:
            high = self._brick_at(high_m, in_hand, elevation, float(q[4]))
            low = self._brick_at(low_m, in_hand, high[1] if high else elevation, float(q[4]))
            if high is not None and low is not None:
                break
        else:
            return [self._leg(UNREACHABLE, q, shut, times.carry)]
        return [
            self._leg(CARRY, high[0], shut, times.carry),
            self._leg(PLACE, low[0], shut, times.place),
            self._leg(OPEN, low[0], hand.jaw_release_rad, times.open),
            self._leg(RETREAT, high[0], hand.jaw_release_rad, times.retreat),
            self._leg(HOLD, high[0], hand.jaw_release_rad, times.retreat),
        ]

    def _places_beside(self, target: np.ndarray) -> list[np.ndarray]:
        """(2,) m each: on the arm's side first, where the hand does not stand over the other object."""
        inward = self._ik.planar.pan_axis - target
        heading = np.arctan2(inward[1], inward[0])
        angles = heading + np.deg2rad([0.0, 45.0, -45.0, 180.0])
        return [target + self._beside_m * np.array([np.cos(angle), np.sin(angle)]) for angle in angles]

    def _brick_at(
        self, wanted: np.ndarray, in_hand: np.ndarray, elevation: float, roll: float
    ) -> tuple[np.ndarray, float] | None:
        """Joints (5,) that bring the object in the hand to `wanted` (3,), at the elevation nearest to the given."""
        target = wanted.copy()
        found = None
        for _ in range(4):  # the offset turns with the hand
            found = self._ik.first(target, near_rad=elevation, roll_rad=roll)
            if found is None:
                return None
            p, R = self._ik.pose(found[0])
            target = target + wanted - (p + R @ in_hand)
        return found

    def _straight(self, start: np.ndarray, end: np.ndarray, elevation: float, roll: float) -> list[np.ndarray] | None:
        """Joints of points on a straight way of the hand, its first included."""
        points = [start + (end - start) * k / _SUBWAYS for k in range(_SUBWAYS + 1)]
        joints = [self._ik.first(point, near_rad=elevation, roll_rad=roll) for point in points]
        return None if any(found is None for found in joints) else [found[0] for found in joints]

    def _leg(self, stage: str, joints: np.ndarray | list[np.ndarray], jaw_rad: float, seconds: float) -> Leg:
        path = np.atleast_2d(joints)
        return Leg(stage, np.column_stack([path, np.full(len(path), jaw_rad)]), self._steps(seconds))

    # ---- what it sees ---------------------------------------------------------------------------------------------

    def _pose(self, lane: int, slot: int) -> tuple[np.ndarray, np.ndarray]:
        where = self.env.qpos[lane, JOINTS + 7 * slot : JOINTS + 7 * slot + 7]
        R = np.zeros(9)
        mujoco.mju_quat2Mat(R, where[3:])
        return where[:3].copy(), R.reshape(3, 3)

    def _in_hand(self, lane: int) -> bool:
        """Both jaws touch the object."""
        return bool(self.env.touching[lane, self._subject])

    def _at_goal(self, lane: int) -> bool:
        if not isinstance(self.goal, Near):
            return False
        target, _ = self._pose(lane, self._target)
        subject, _ = self._pose(lane, self._subject)
        return float(np.linalg.norm(target - subject)) <= self.goal.radius_m

    def _steps(self, seconds: float) -> int:
        return max(1, round(seconds / self.env.control_dt))

    def _rng(self, lane: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, int(self.env.episode_seeds[lane])])


def settings_of(env: FamilyVectorEnv) -> ExpertSettings:
    """The family's settings.

    Raises:
        ExpertImpossible: it has none.
    """
    settings = env.family.declaration.expert
    if settings is None:
        raise ExpertImpossible(
            f"{env.task.name}: its family has no `expert` section; configs/families/so101_tower.yaml has one to copy"
        )
    return settings


def _handled(goal: Goal, task: str, slots: tuple[str, ...]) -> Above | Near:
    parts: list[Goal] = goal.parts if isinstance(goal, AllOf) else [goal]
    found = next((part for part in parts if isinstance(part, (Above, Near))), None)
    if found is None or len(parts) != 1 or (isinstance(found, Near) and found.target not in slots):
        raise ExpertImpossible(
            f"{task}: the expert lifts (goal `above`) and puts (goal `near`) an object; this goal is other"
        )
    return found


def _smooth(share: float) -> float:
    return share * share * (3.0 - 2.0 * share)
