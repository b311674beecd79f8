"""A known sequence of joint targets, given out chunk by chunk."""

from __future__ import annotations

from typing import Any

import numpy as np

from so101.config import Config
from so101.errors import did_you_mean
from so101.policies.base import Action, Observation, PolicyError
from so101.policies.interface import PolicyInterface


class Playback:
    """Chunks of `action_horizon` rows; each goes `execute_steps` rows on, as the control loop does. Past the end the
    last row is held."""

    def __init__(self, config: Config) -> None:
        self.interface = PolicyInterface(config)
        self._horizon = config.deploy.control.action_horizon
        self._stride = config.deploy.control.execute_steps
        self._values = np.zeros((1, len(config.robot.joints)))
        self._step = 0

    def start(self, values: np.ndarray, step: int = 0) -> None:
        """Begin `values` (T, 6), dataset units, at row `step`.

        Raises:
            PolicyError: there is no such row.
        """
        if not 0 <= step < len(values):
            raise PolicyError(f"step_index is {step}; the episode has the steps 0 to {len(values) - 1}")
        self._values, self._step = values, step

    def next(self, batch: int) -> tuple[Action, dict[str, Any]]:
        """The next chunk. `done`: after its first `execute_steps` rows nothing new comes."""
        rows = np.minimum(np.arange(self._step, self._step + self._horizon), len(self._values) - 1)
        info = {
            "current_step": self._step,
            "episode_length": len(self._values),
            "done": self._step + self._stride >= len(self._values),
        }
        self._step = min(self._step + self._stride, len(self._values) - 1)
        return self.interface.action(self._values[rows], batch), info


def batch_of(observation: Observation | None, options: dict[str, Any] | None) -> int:
    """Rows of the batch: those of the state, or the option `batch_size` where there is no observation."""
    for array in ((observation or {}).get("state") or {}).values():
        return len(array)
    return option_int(options or {}, "batch_size", 1, least=1, most=1024)


def check_options(options: dict[str, Any] | None, known: tuple[str, ...], policy: str) -> dict[str, Any]:
    """`options`, {} for None.

    Raises:
        PolicyError: one is not known.
    """
    options = options or {}
    for name in options:
        if name not in known:
            raise PolicyError(
                f"{policy}: unknown option {name!r}; options: {', '.join(known)}{did_you_mean(name, known)}"
            )
    return options


def option_int(options: dict[str, Any], name: str, default: int, *, least: int, most: int) -> int:
    """An integer option.

    Raises:
        PolicyError: it is none, or out of range.
    """
    value = options.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise PolicyError(f"option {name} is {value!r}; it must be an integer from {least} to {most}")
    return value
