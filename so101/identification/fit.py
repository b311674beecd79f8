"""Servo parameters for which the twin moves as the recorded arm did.

Joints hardly disturb each other, so one replay tries a value for every joint at once, and each joint is judged by its
own error: a scan over the bounds, then nonlinear least squares of every joint. At last every parameter goes back to
its default where that costs nothing: such a parameter the recording cannot tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import qmc

from so101.config import Config
from so101.config.robot import ServoBounds
from so101.identification.pieces import Piece
from so101.identification.replay import ServoReplay, Servos
from so101.pipeline.progress import Reporter, SilentReporter

PARAMETERS = tuple(ServoBounds.model_fields)
_FIRST_DAMPING = 0.01  # of the largest diagonal of the normal equations
_DAMPING_FACTOR = 5.0


@dataclass(frozen=True)
class Fit:
    """Servos of the J joints and what the recording says about each parameter.

    Attributes:
        servos: parameter -> value, rounded to four digits.
        cost_of_default: parameter -> by which share the joint's RMSE grows when it keeps its default and the others are
            fitted again; below `worth_it` it does keep it.
        told: the parameters that the recording decides.
    """

    servos: list[dict[str, float]]
    cost_of_default: list[dict[str, float]]
    told: list[list[str]]


def fit_servos(config: Config, pieces: Sequence[Piece], *, workers: int = 1, reporter: Reporter | None = None) -> Fit:
    """Identify the servos of all joints from `pieces`. Equal inputs give equal results, whatever `workers` is."""
    with np.errstate(invalid="ignore"):  # errors of a joint that never counts are 0, their ratios nan
        return _Fitter(config, pieces, workers, reporter or SilentReporter()).run()


def servos_of(config: Config) -> list[dict[str, float]]:
    """The servos of robot.yaml."""
    return [{name: getattr(joint, name) for name in PARAMETERS} for joint in config.robot.joints]


def rmse(tracks: Sequence[np.ndarray], pieces: Sequence[Piece]) -> np.ndarray:
    """(6,) rad root mean square error over the frames that count; nan for a joint without any."""
    errors = np.concatenate([track - piece.measured for track, piece in zip(tracks, pieces, strict=True)])
    counts = np.concatenate([piece.counts for piece in pieces])
    with np.errstate(invalid="ignore"):
        return np.sqrt((errors**2 * counts).sum(0) / counts.sum(0))


class _Fitter:
    """The points it works with are (6, P) in units of the bounds: 0 at the lower one, 1 at the upper one."""

    def __init__(self, config: Config, pieces: Sequence[Piece], workers: int, reporter: Reporter) -> None:
        self.settings = config.robot.identification
        self.pieces = pieces
        self.replay = ServoReplay(config, workers)
        self.reporter = reporter
        bounds = np.array([getattr(self.settings.bounds, name) for name in PARAMETERS])
        self.low, self.high = bounds.T
        self.is_ratio = self.low > 0
        self.counts = np.concatenate([piece.counts for piece in pieces])
        self.default = self._point(servos_of(config))
        self._kept = servos_of(config)

    def run(self) -> Fit:
        s = self.settings
        steps = s.scan_candidates + s.iterations[0] + len(PARAMETERS) * s.iterations[1]
        self.reporter.start("identify", steps, unit="steps")
        free = np.ones(self.default.shape, bool)
        point = self._refine(self._scan(), free, s.iterations[0])
        error = self._rmse(point)
        cost = np.zeros(free.shape)
        for p in range(len(PARAMETERS)):
            fewer = free.copy()
            fewer[:, p] = False
            trial = self._refine(np.where(fewer, point, self.default), fewer, s.iterations[1])
            cost[:, p] = self._rmse(trial) / error - 1
            same = ~(cost[:, p] >= s.worth_it)  # also where a joint never counts (nan)
            free[same, p] = False
            point = np.where(same[:, None], trial, point)
        servos = self._servos(point, free)
        costs = [dict(zip(PARAMETERS, (float(value) for value in row), strict=True)) for row in cost]
        rounded = [{name: float(f"{value:.4g}") for name, value in servo.items()} for servo in servos]
        told = [[name for name, is_free in zip(PARAMETERS, row, strict=True) if is_free] for row in free]
        return Fit(rounded, costs, told)

    def _scan(self) -> np.ndarray:
        """Each joint's best of a spread of candidates and the default."""
        sobol = qmc.Sobol(self.default.size, seed=self.settings.scan_seed)
        candidates = sobol.random(self.settings.scan_candidates).reshape(-1, *self.default.shape)
        best, lowest = self.default.copy(), self._costs(self._errors(self.default))
        for candidate in candidates:
            cost = self._costs(self._errors(candidate))
            best[cost < lowest] = candidate[cost < lowest]
            lowest = np.minimum(cost, lowest)
            self.reporter.advance()
        return best

    def _refine(self, start: np.ndarray, free: np.ndarray, iterations: int) -> np.ndarray:
        """Robust least squares (Levenberg, Marquardt) of every joint over its parameters that are `free` (6, P); the
        others stay as in `start`. Three dampings are tried at once, and each joint takes what suits it."""
        point, damping = start.copy(), np.full(len(start), _FIRST_DAMPING)
        errors = self._errors(point)
        for done in range(iterations):
            slopes = self._slopes(point, errors)
            factors = (1 / _DAMPING_FACTOR, 1.0, _DAMPING_FACTOR)
            trials = [self._stepped(point, free, errors, slopes, damping * factor) for factor in factors]
            before = self._costs(errors)
            costs = np.array([self._costs(trial) for trial in self._errors_of(trials)])
            best = costs.argmin(0)
            gain = 1 - costs.min(0) / before
            better = gain > 0
            for joint in np.flatnonzero(better):
                point[joint] = trials[best[joint]][joint]
            damping *= np.where(better, np.array(factors)[best], _DAMPING_FACTOR**2)
            self.reporter.advance()
            if (gain < self.settings.least_gain).all():
                self.reporter.advance(iterations - done - 1)
                break
            errors = self._errors(point)
        return point

    def _slopes(self, point: np.ndarray, errors: np.ndarray) -> np.ndarray:
        """(N, 6, P) change of each joint's errors (N, 6) with its own parameters."""
        steps = np.where(point < 0.5, 1, -1) * self.settings.step_of_range
        moved = []
        for p in range(len(PARAMETERS)):
            trial = point.copy()
            trial[:, p] += steps[:, p]
            moved.append(trial)
        return np.stack([there - errors for there in self._errors_of(moved)], axis=-1) / steps

    def _stepped(
        self, point: np.ndarray, free: np.ndarray, errors: np.ndarray, slopes: np.ndarray, damping: np.ndarray
    ) -> np.ndarray:
        """`point` after one damped step, within the bounds: a parameter that would leave them waits at its bound."""
        result = point.copy()
        weights = 1 / np.sqrt(1 + errors**2)  # of the robust cost
        for joint, mask in enumerate(free):
            active = mask.copy()
            for _ in range(len(PARAMETERS)):
                slope = slopes[:, joint, active]
                normal = slope.T @ (weights[:, joint, None] * slope)
                gradient = slope.T @ (weights[:, joint] * errors[:, joint])
                ridge = damping[joint] * (np.diag(normal).max(initial=0.0) + 1e-12) * np.eye(len(normal))
                moved = point[joint, active] - np.linalg.solve(normal + ridge, gradient)
                result[joint, active] = np.clip(moved, 0, 1)
                outside = np.zeros(len(PARAMETERS), bool)
                outside[active] = (moved < 0) | (moved > 1)
                if not outside.any():
                    break
                active &= ~outside
        return result

    # --- errors ---

    def _errors(self, point: np.ndarray) -> np.ndarray:
        return self._errors_of([point])[0]

    def _errors_of(self, points: Sequence[np.ndarray]) -> list[np.ndarray]:
        """(N, 6) of each point, in units of `outlier_deg`; 0 where a frame does not count."""
        scale = np.radians(self.settings.outlier_deg)
        recorded = np.concatenate([piece.measured for piece in self.pieces])
        results = self.replay.run_many([self._servos(point) for point in points], self.pieces)
        return [(np.concatenate(tracks) - recorded) * self.counts / scale for tracks in results]

    def _costs(self, errors: np.ndarray) -> np.ndarray:
        """(6,) robust cost, as least squares has it."""
        return (np.sqrt(1 + errors**2) - 1).sum(0)

    def _rmse(self, point: np.ndarray) -> np.ndarray:
        return np.sqrt((self._errors(point) ** 2).sum(0) / np.maximum(self.counts.sum(0), 1))

    # --- points and parameters ---

    def _point(self, servos: Servos) -> np.ndarray:
        values = np.array([[servo[name] for name in PARAMETERS] for servo in servos])
        low = np.where(self.is_ratio, self.low, 1.0)  # of no use elsewhere
        ratio = np.log(np.maximum(values, low * 1e-3) / low) / np.log(self.high / low)
        return np.clip(np.where(self.is_ratio, ratio, (values - self.low) / (self.high - self.low)), 0, 1)

    def _servos(self, point: np.ndarray, free: np.ndarray | None = None) -> list[dict[str, float]]:
        low = np.where(self.is_ratio, self.low, 1.0)
        values = np.where(self.is_ratio, low * (self.high / low) ** point, self.low + point * (self.high - self.low))
        servos = [dict(zip(PARAMETERS, (float(value) for value in row), strict=True)) for row in values]
        if free is not None:
            for joint, p in np.argwhere(~free):
                servos[joint][PARAMETERS[p]] = self._kept[joint][PARAMETERS[p]]
        return servos
