"""What the driver does to commands, and when it stops listening to them. Pure: no bus, no clock of its own.

A goal lies, joint by joint, between the goal before it and the command as far as limits and measured joints allow it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from so101.config.driver import CutoffsConfig, SafetyConfig
from so101.robot.base import CommandRefused

Level = Literal["ok", "warn", "hold", "home"]
LEVELS: tuple[Level, ...] = ("ok", "warn", "hold", "home")
_BISECTIONS = 12  # of the way to the floor: a 4000th of a step
_ROUNDING_RAD = 1e-6  # less is not worth telling


class Limited(NamedTuple):
    """A goal (6,) rad and the limits that took something off the command."""

    goal: np.ndarray
    by: tuple[str, ...]


class CommandLimiter:
    """Turns commands into goals that may be sent.

    Args:
        lower, upper: (6,) rad, joint limits.
        lowest_m: lowest point of the hand over joints (6,), m in base; None: no floor.
    """

    def __init__(
        self,
        settings: SafetyConfig,
        lower: np.ndarray,
        upper: np.ndarray,
        lowest_m: Callable[[np.ndarray], float] | None = None,
    ) -> None:
        self.lower, self.upper = lower, upper
        self._max_step = np.array(settings.max_step_rad)
        self._max_speed = np.array(settings.max_speed_rad_s)
        self._memory_s = settings.speed_memory_s
        self._max_lead = np.array(settings.max_lead_rad)
        self._floor_m, self._lowest_m = settings.floor_z_m, lowest_m

    def limit(self, command: np.ndarray, goal: np.ndarray, present: np.ndarray, elapsed_s: float) -> Limited:
        """The next goal.

        Args:
            command: (6,) rad.
            goal: (6,) rad, what was sent last.
            present: (6,) rad, where the arm is.
            elapsed_s: since `goal` was sent.

        Raises:
            CommandRefused: not six finite numbers.
        """
        wanted = checked(command)
        by = []
        inside = np.clip(wanted, self.lower, self.upper)
        if np.abs(inside - wanted).max() > _ROUNDING_RAD:
            by.append("joint limits")
        near = np.clip(inside, present - self._max_lead, present + self._max_lead)
        if np.abs(near - inside).max() > _ROUNDING_RAD:
            by.append("lead")
        for name, allowed in (
            ("step", self._max_step),
            ("speed", self._max_speed * min(max(elapsed_s, 0.0), self._memory_s)),
        ):
            reached = np.clip(near, goal - allowed, goal + allowed)
            if np.abs(reached - near).max() > _ROUNDING_RAD:
                by.append(name)
            near = reached
        held = self._above_floor(near, goal)
        if held is not near:
            by.append("floor")
        return Limited(held, tuple(by))

    def _above_floor(self, wanted: np.ndarray, goal: np.ndarray) -> np.ndarray:
        """`wanted`, or as far towards it from `goal` as the hand does not sink below the floor, or below where it is
        when that is lower."""
        if self._lowest_m is None or self._lowest_m(wanted) >= self._floor_m:
            return wanted
        bound = min(self._floor_m, self._lowest_m(goal))
        if self._lowest_m(wanted) >= bound:
            return wanted
        good, bad = 0.0, 1.0
        for _ in range(_BISECTIONS):
            middle = (good + bad) / 2
            if self._lowest_m(goal + middle * (wanted - goal)) >= bound:
                good = middle
            else:
                bad = middle
        return goal + good * (wanted - goal)


def checked(command: np.ndarray) -> np.ndarray:
    """`command` as six finite floats.

    Raises:
        CommandRefused: it is not.
    """
    wanted = np.asarray(command, float)
    if wanted.shape != (6,) or not np.isfinite(wanted).all():
        raise CommandRefused(f"a command must be six finite joints, rad; got {np.array2string(wanted, threshold=12)}")
    return wanted


class Cutoff:
    """One measured quantity against its cut-offs: the level it has had for `after_s` without a break.

    Args:
        what: for texts, with a place for joint and value.
        joint_names: (6,).
    """

    def __init__(self, what: str, settings: CutoffsConfig, joint_names: tuple[str, ...]) -> None:
        self._what, self._settings, self._joints = what, settings, joint_names
        self._bounds = np.array([settings.warn, settings.hold, settings.home])
        self._since_s: list[float | None] = [None, None, None]

    def update(self, values: np.ndarray, now_s: float) -> tuple[Level, str]:
        """The level now, and a text when it is not "ok"."""
        worst = int(np.argmax(values))
        lasting = 0
        for index, bound in enumerate(self._bounds):
            if values[worst] < bound:
                self._since_s[index] = None
                continue
            if self._since_s[index] is None:
                self._since_s[index] = now_s
            if now_s - self._since_s[index] >= self._settings.after_s:
                lasting = index + 1
        if not lasting:
            return "ok", ""
        level = LEVELS[lasting]
        text = f"{self._joints[worst]}: {self._what.format(values[worst])} ({level} from {self._bounds[lasting - 1]:g})"
        return level, text


@dataclass(frozen=True)
class Health:
    """The worst level of all checks, why, and everything worth telling."""

    level: Level
    reason: str
    warnings: tuple[str, ...]


class HealthMonitor:
    """Temperature, load, supply and the servos' own faults.

    Args:
        supply_v: lowest and highest voltage, V.
    """

    def __init__(self, settings: SafetyConfig, joint_names: tuple[str, ...], supply_v: tuple[float, float]) -> None:
        self._joints, self._supply_v = joint_names, supply_v
        self._heat = Cutoff("{:.0f} degrees C", settings.temperature_c, joint_names)
        self._load = Cutoff("{:.0f} % load", settings.load_pct, joint_names)
        self._bits_before = np.zeros(len(joint_names), int)

    def update(
        self,
        temperature_c: np.ndarray,
        load_pct: np.ndarray,
        voltage_v: np.ndarray,
        error_bits: np.ndarray,
        now_s: float,
    ) -> Health:
        """Judge one look at the arm; arrays (6,)."""
        found = [self._heat.update(temperature_c, now_s), self._load.update(np.abs(load_pct), now_s)]
        low, high = self._supply_v
        if voltage_v.min() < low or voltage_v.max() > high:
            found.append(
                ("warn", f"supply is {voltage_v.min():g} to {voltage_v.max():g} V, must be {low:g} to {high:g}")
            )
        told_twice = error_bits & self._bits_before  # one broken packet in 256 has the right checksum
        self._bits_before = error_bits
        for index, bits in enumerate(told_twice.tolist()):
            found += [
                (level, f"{self._joints[index]}: servo reports {text}") for level, text in self._faults(index, bits)
            ]
        found = [(level, text) for level, text in found if level != "ok"]
        if not found:
            return Health("ok", "", ())
        level, reason = max(found, key=lambda each: LEVELS.index(each[0]))
        return Health(level, reason, tuple(text for _, text in found))

    def _faults(self, index: int, bits: int) -> list[tuple[Level, str]]:
        jaw = index == len(self._joints) - 1  # it squeezes on purpose, and goes on with its protective torque
        levels: dict[int, tuple[Level, str]] = {
            1: ("warn", "voltage"),
            2: ("home", "encoder"),
            4: ("home", "overheated"),
            8: ("warn" if jaw else "hold", "current"),
            32: ("warn" if jaw else "hold", "overload"),
        }
        return [found for bit, found in levels.items() if bits & bit]


class WayHome:
    """Joint goals from a pose through waypoints, each leg eased in and out, none faster than allowed.

    Args:
        start: (6,) rad.
        waypoints: (6,) rad each, the last one is home.
        speed_rad_s: of the fastest joint, at its fastest.
        min_s: the least time of a leg.
    """

    def __init__(self, start: np.ndarray, waypoints: list[np.ndarray], speed_rad_s: float, min_s: float) -> None:
        self._points = [np.asarray(point, float) for point in (start, *waypoints)]
        ways = [np.abs(b - a).max() for a, b in zip(self._points, self._points[1:], strict=False)]
        self._times = np.cumsum([0.0] + [max(min_s, np.pi / 2 * way / speed_rad_s) for way in ways])

    @property
    def duration_s(self) -> float:
        return float(self._times[-1])

    def at(self, time_s: float) -> np.ndarray:
        """(6,) rad, `time_s` after the start; home from `duration_s` on."""
        leg = int(np.clip(np.searchsorted(self._times, time_s, side="right") - 1, 0, len(self._points) - 2))
        share = np.clip((time_s - self._times[leg]) / (self._times[leg + 1] - self._times[leg]), 0.0, 1.0)
        eased = (1 - np.cos(np.pi * share)) / 2
        return self._points[leg] + eased * (self._points[leg + 1] - self._points[leg])
