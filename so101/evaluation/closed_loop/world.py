"""What an evaluation needs of the place where a policy acts."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np


class World(Protocol):
    """One arm with objects, in control periods. Time passes in `act` alone, however long a policy thinks.

    Attributes:
        physics_state: full simulator state right after `reset`, to replay from; (0,) where there is none.
        meta: JSON values about the episode: what `reset` drew.
    """

    physics_state: np.ndarray
    meta: dict[str, Any]

    def reset(self, seed: int) -> None:
        """Begin an episode: placements, start pose and physics as `so101.tasks.start.draw_start` draws them from
        default_rng(seed), looks as `so101.rendering.looks.draw_looks` does."""

    def look(self) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Measured joints (6,) rad, and camera of cameras.yaml -> (H, W, 3) uint8 RGB, of the same moment."""

    def measured(self) -> np.ndarray:
        """Measured joints (6,) rad, without pictures."""

    def act(self, q_target: np.ndarray) -> np.ndarray:
        """One control period towards `q_target` (6,) rad; returns what was sent after clamps, (6,) rad."""

    def objects(self) -> dict[str, np.ndarray]:
        """Where things really are: name -> (7,) pose in base."""

    def close(self) -> None:
        """Free what it holds."""
