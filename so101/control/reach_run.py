"""What became of a reach: how near the hand came, how evenly it went, what was left out or cut."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from so101.datasets.units import RAD_PER_TICK

if TYPE_CHECKING:
    from so101.control.reach import Step


@dataclass(frozen=True)
class ReachRun:
    """T looks at the arm. Joints rad of the model, positions m in base.

    Attributes:
        target: (3,) m.
        time_s: (T,) of the grid.
        q, goals: (T, 6) measured; sent, or in a dry run what would have been.
        points: (T, 3) where the hand was by the measured joints.
        beyond_rad: (6,) the most a joint was outside of the model's limits.
        moved: False: a dry run.
        throttled, limited: steps that the step clamp, and that the driver's own limits changed.
        dropped: steps without a new look at the arm.
        ended_by: why it ended early; empty when it did not.
    """

    target: np.ndarray
    control_dt: float
    time_s: np.ndarray
    q: np.ndarray
    goals: np.ndarray
    points: np.ndarray
    beyond_rad: np.ndarray
    moved: bool
    throttled: int
    limited: int
    dropped: int
    ended_by: str

    @property
    def errors_m(self) -> np.ndarray:
        """(T,) distance of the hand from the target, as the arm tells it."""
        return np.linalg.norm(self.points - self.target, axis=1)

    def summary(self, within_m: float) -> dict[str, Any]:
        """Numbers of the run, plain JSON; None where there is nothing to measure."""
        errors_mm, looks = 1000 * self.errors_m, len(self.time_s)
        span_s = float(self.time_s[-1] - self.time_s[0]) if looks > 1 else 0.0
        steps = np.diff(self.goals, axis=0) / RAD_PER_TICK
        largest = np.abs(steps).max(axis=1) if len(steps) else np.zeros(0)
        return {
            "target_m": self.target.tolist(),
            "moved": self.moved,
            "looks": looks,
            "closest_mm": round(float(errors_mm.min()), 2) if looks else None,
            "final_mm": round(float(errors_mm[-1]), 2) if looks else None,
            "inside_pct": round(100 * float(np.mean(errors_mm <= 1000 * within_m)), 1) if looks else None,
            "rate_hz": round((looks - 1) / span_s, 2) if span_s else None,
            "mean_step_ticks": round(float(largest.mean()), 2) if len(largest) else None,
            "max_step_ticks": round(float(largest.max()), 1) if len(largest) else None,
            "reversals_pct": reversals_pct(steps),
            "throttled": self.throttled,
            "limited": self.limited,
            "dropped": self.dropped,
            "beyond_deg": np.degrees(self.beyond_rad).round(2).tolist(),
            "ended_by": self.ended_by or None,
        }

    def lines(self, within_m: float, throttled_warn: int, joint_names: tuple[str, ...]) -> list[str]:
        """The summary for people."""
        told = self.summary(within_m)
        if not told["looks"]:
            return [f"nothing was measured: {self.ended_by or 'no step had a look at the arm'}"]
        x, y, z = self.target
        lines = [
            f"target {x:.3f}, {y:.3f}, {z:.3f} m: closest {told['closest_mm']:.1f} mm, at the end "
            f"{told['final_mm']:.1f} mm, {told['inside_pct']:.0f} % of the time within {1000 * within_m:g} mm",
            f"  {told['looks']} steps at {told['rate_hz'] or 0:.1f} Hz, {self.dropped} left out; goals moved by "
            f"{told['mean_step_ticks'] or 0:.1f} ticks a step, {told['max_step_ticks'] or 0:.0f} at most, "
            f"{told['reversals_pct'] or 0:.0f} % of the moves turned back",
        ]
        if not self.moved:
            lines[0] = lines[0].replace("target", "dry run, target", 1)
        if self.throttled > throttled_warn:
            lines.append(f"  warning: {self.throttled} steps were shortened (deploy.reach.step_ticks)")
        if self.limited:
            lines.append(f"  {self.limited} goals were changed by the driver's limits (robot.safety)")
        outside = [f"{n} {np.degrees(b):.1f}" for n, b in zip(joint_names, self.beyond_rad, strict=True) if b > 0]
        if outside:
            lines.append(f"  beyond the model's limits, deg: {', '.join(outside)}")
        if self.ended_by:
            lines.append(f"  ended early: {self.ended_by}")
        return lines


def reversals_pct(steps_ticks: np.ndarray) -> float | None:
    """Of a joint's moves (T, 6) ticks of a tick or more that follow one another, how many turn back, %."""
    moving = np.abs(steps_ticks) >= 1
    pairs = moving[1:] & moving[:-1]
    if not pairs.any():
        return None
    turned = pairs & (np.sign(steps_ticks[1:]) != np.sign(steps_ticks[:-1]))
    return round(100 * float(turned.sum() / pairs.sum()), 1)


@dataclass
class Recorder:
    """Collects a `ReachRun`."""

    target: np.ndarray
    control_dt: float
    moves: bool
    dropped: int = 0
    limited: int = 0
    ended_by: str = ""
    _steps: list[tuple[float, Step]] = field(default_factory=list)

    def add(self, time_s: float, step: Step) -> None:
        """A step was made."""
        self._steps.append((time_s, step))

    def sent(self, command: np.ndarray, taken: np.ndarray) -> None:
        """`command` (6,) was sent, the driver took `taken`."""
        self.limited += bool(np.abs(taken - command).max() > RAD_PER_TICK)

    def run(self) -> ReachRun:
        """What was collected."""
        times = [time_s for time_s, _ in self._steps]
        steps = [step for _, step in self._steps]

        def rows(values: list[np.ndarray], width: int) -> np.ndarray:
            return np.array(values, float).reshape(-1, width)

        beyond = rows([step.beyond for step in steps], 6)
        return ReachRun(
            target=np.asarray(self.target, float),
            control_dt=self.control_dt,
            time_s=np.array(times, float),
            q=rows([step.q for step in steps], 6),
            goals=rows([step.goal for step in steps], 6),
            points=rows([step.point for step in steps], 3),
            beyond_rad=beyond.max(axis=0) if len(beyond) else np.zeros(6),
            moved=self.moves,
            throttled=sum(step.throttled for step in steps),
            limited=self.limited,
            dropped=self.dropped,
            ended_by=self.ended_by,
        )
