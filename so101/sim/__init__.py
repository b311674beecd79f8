"""The twin. `make_simulator(config)` gives a `Simulator` (see `base`)."""

from __future__ import annotations

import numpy as np

from so101.config import Config
from so101.sim.base import Contact, Simulator

__all__ = ["Contact", "Simulator", "make_simulator"]


def make_simulator(
    config: Config, num_envs: int = 1, T_world_base: np.ndarray | None = None, *, looks: bool = False
) -> Simulator:
    """A simulator of the task in use with `num_envs` environments; `looks` adds what rendering needs."""
    from so101.sim.mujoco_sim import MujocoSimulator

    return MujocoSimulator(config, num_envs, T_world_base, looks=looks)
