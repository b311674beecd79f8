"""A reach policy that nobody trained: damped least squares on the model's Jacobian, for comparison and for tests."""

from __future__ import annotations

import numpy as np

from so101.control.reach_model import ReachModel

_GAIN = 0.08  # of the way to the point, a step: with the servos' lag more overshoots [measured]
_DAMPING_M = 0.05  # of the least squares: near a singular pose joints stay slow
_MOST_RAD = 0.06  # a step


class ScriptedReach:
    """`act` as a trained policy has it. It moves what it commanded before by what is left of the way, so that servos
    that hang under gravity are lifted until the point is there."""

    def __init__(self, model: ReachModel) -> None:
        if model.words != 27:
            raise ValueError(f"{model.name} has {model.words} words in its observation; the scripted policy reads 27")
        self._model = model

    def act(self, observation: np.ndarray) -> np.ndarray:
        """(N, 6) actions for observations (N, 27)."""
        return np.array([self._one(row) for row in np.asarray(observation, float)])

    def _one(self, row: np.ndarray) -> np.ndarray:
        q, way, before = row[:6], row[18:21], row[21:27]
        jacobian = self._model.jacobian(q)[:, :5]
        inverse = jacobian.T @ np.linalg.inv(jacobian @ jacobian.T + _DAMPING_M**2 * np.eye(3))
        step = inverse @ way
        step *= min(_GAIN, _MOST_RAD / max(np.abs(step).max(), 1e-9))
        command = self._model.joints_of(before)
        command[:5] += step
        return self._model.action_of(command)
