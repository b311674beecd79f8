"""A reach policy on an arm: what the arm tells in, joint goals out, at the rate of its training.

`Reacher` is one step, without time and without an arm. `run_reach` gives it both: a `so101.robot.base.Robot`, near,
far or virtual, and a clock that may be that of a simulation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from so101.config.reach import ReachConfig
from so101.control.pacing import Clock, Grid
from so101.control.reach_model import ReachModel
from so101.control.reach_run import ReachRun, Recorder
from so101.policies.base import PolicyError
from so101.robot.base import BusError, CalibrationError, Robot, RobotError, RobotState
from so101.robot.safety import WayHome
from so101.robot.tick_map import TickMap


class Policy(Protocol):
    """A trained one (`so101.learning.rl.load_policy`) or any other."""

    def act(self, observation: np.ndarray) -> np.ndarray:
        """(N, 6) actions in [-1, 1] for observations (N, D)."""


class Step(NamedTuple):
    """One step. Joints (6,) rad of the model, unless said.

    Attributes:
        q: measured.
        point: (3,) m, base: where the hand is by them.
        goal: to be sent; `command`: the same in the driver's joints.
        throttled: the step clamp shortened it.
        beyond: (6,) rad by which q is outside of the model's limits.
    """

    q: np.ndarray
    point: np.ndarray
    goal: np.ndarray
    command: np.ndarray
    throttled: bool
    beyond: np.ndarray


class Reacher:
    """The policy between an arm's joints and the model's.

    Args:
        model: what the policy was trained in.
        tick_map: of the arm.

    Raises:
        CalibrationError: the map does not come back to where it began.
    """

    def __init__(self, model: ReachModel, tick_map: TickMap, policy: Policy, settings: ReachConfig) -> None:
        error_rad = tick_map.round_trip_error_rad(settings.map_fractions)
        if not error_rad <= settings.max_map_error_rad:
            raise CalibrationError(
                f"ticks to the model and back are {error_rad:.3f} rad off inside of the joints' ranges; allowed: "
                f"{settings.max_map_error_rad:g} (deploy.reach.max_map_error_rad). The arm is not moved: look at its "
                "calibration (./real status) and at deploy.reach.tick_map"
            )
        self.model, self.tick_map = model, tick_map
        self._policy, self._settings = policy, settings

    def begin(self, target: np.ndarray, state: RobotState) -> None:
        """A new point (3,) m, base. The policy is told that the arm was told to be where it is."""
        self._target = np.asarray(target, float)
        self._aim = self.tick_map.of_joints(state.q_rad)
        self._previous = self.model.action_of(self._aim)

    def step(self, state: RobotState) -> Step:
        """What to send now.

        Raises:
            PolicyError: the policy gave no six finite numbers.
        """
        q, qd = self.tick_map.of_joints(state.q_rad), self.tick_map.speeds(state.qd_rad_s)
        observation = self.model.observation(q, qd, self._target, self._previous)
        action = np.asarray(self._policy.act(observation), float).reshape(-1)
        if action.shape != (6,) or not np.isfinite(action).all():
            raise PolicyError(
                f"the policy answered {np.array2string(action, precision=3, threshold=12)} to a pose of "
                f"{self.model.name}; it must give six finite numbers. The arm goes home"
            )
        self._previous = np.clip(action, -1, 1)
        wanted = self.model.joints_of(self._previous)
        self._aim = self._aim + self._settings.ema_alpha * (wanted - self._aim)
        goal, throttled = self.tick_map.nearby(self._aim, q, self._settings.step_ticks)
        return Step(
            q=q,
            point=self.model.point(q),
            goal=goal,
            command=self.tick_map.to_joints(goal),
            throttled=throttled,
            beyond=self.tick_map.beyond(q),
        )


def run_reach(
    robot: Robot,
    reacher: Reacher,
    target: np.ndarray,
    *,
    seconds: float,
    clock: Clock,
    moves: bool,
    stopped: Callable[[], bool] = lambda: False,
    watch: Callable[[Step, int], None] = lambda step, index: None,
) -> ReachRun:
    """Reach one point. A step without a new and whole look at the arm is left out. What stops the arm (a fault,
    somebody's Stop) ends the run and stands in it; home it goes by its driver.

    Args:
        robot: connected, and armed if it is to move.
        moves: False: a dry run, nothing is sent.
        stopped: asked before every step; True ends the run.
        watch: told every step and its number.

    Raises:
        PolicyError: as `Reacher.step`.
    """
    dt = reacher.model.control_dt
    grid, steps = Grid(1.0 / dt, clock), round(seconds / dt)
    record = Recorder(target, dt, moves)
    reacher.begin(target, robot.read())
    stamp_s, index = float("-inf"), -1
    try:
        while index < steps and not stopped():
            index = grid.wait().index
            state = robot.read()
            if state.mode == "lost":
                raise BusError(state.reason)
            if state.missed_reads or state.stamp_s == stamp_s:
                record.dropped += 1
                continue
            stamp_s = state.stamp_s
            step = reacher.step(state)
            record.add(index * dt, step)
            watch(step, index)
            if moves and index < steps:  # the last look tells where it ended
                record.sent(step.command, robot.command(step.command))
    except RobotError as error:
        record.ended_by = str(error)
    else:
        record.ended_by = "stopped" if index < steps else ""
    return record.run()


def ease_to(
    robot: Robot,
    q: np.ndarray,
    *,
    seconds: float,
    speed_rad_s: float,
    rate_hz: float,
    clock: Clock,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Bring an armed arm to the driver's joints q (6,) rad in `seconds` or, where that is too fast, as `speed_rad_s`
    allows.

    Raises:
        RobotError: as `Robot.command`.
    """
    way = WayHome(robot.read().q_rad, [q], speed_rad_s, seconds)
    grid, began_s = Grid(rate_hz, clock), clock.now()
    while not stopped() and (gone_s := clock.now() - began_s) < way.duration_s:
        robot.command(way.at(gone_s))
        grid.wait()
