"""Seed demonstrations in memory. Reading and writing HDF5 is `seeds_hdf5`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class SeedDemo:
    """One demonstration to multiply. Row t is the observation at t and the leader command at t.

    Attributes:
        name: unique in its file, e.g. "demo_0".
        task: key in task.yaml.
        source: where it comes from, e.g. "operator" or "so101_record_test_4ep/episode_000002".
        fps: Hz.
        q_target: (T, 6) leader joint targets, rad.
        q: (T, 6) measured follower joints, rad.
        objects: name -> (T, 4, 4) T_base_obj.
        signals: subtask termination signal -> (T,) bool; the first 0 -> 1 edge ends the subtask.
        attrs: JSON values kept with it (assumptions, randomisation, offsets).
    """

    name: str
    task: str
    source: str
    fps: float
    q_target: np.ndarray
    q: np.ndarray
    objects: dict[str, np.ndarray]
    signals: dict[str, np.ndarray]
    attrs: dict[str, Any] = field(default_factory=dict)

    @property
    def num_frames(self) -> int:
        return len(self.q)
