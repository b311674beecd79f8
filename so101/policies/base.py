"""What every policy offers, in the units and shapes that a LeRobot dataset holds and GR00T sends.

Letters: B batch, T time steps of an observation (1), H horizon of an action chunk, D numbers of a group.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from so101.errors import So101Error

Observation = dict[str, dict[str, Any]]
"""{"video": {camera: (B, T, H, W, 3) uint8 RGB}, "state": {group: (B, T, D) float32}, "language": {key: B lists of T
texts}}. States are in dataset units: degrees, gripper 0..100."""

Action = dict[str, np.ndarray]
"""{group: (B, H, D) float32}, absolute joint targets in dataset units, row k for k control periods from now."""


class PolicyError(So101Error):
    """A policy cannot be made, or cannot do what was asked of it."""


@dataclass(frozen=True)
class Modality:
    """What a policy takes and gives.

    Attributes:
        video: names of the cameras it looks at.
        state: group -> numbers in it; None where that is not known.
        action: likewise.
        language: key of the task text.
        horizon: rows of a chunk.
        relative: action groups it was trained on as offsets from the state; what it gives is absolute all the same.
        video_steps, state_steps: T of each.
    """

    video: tuple[str, ...]
    state: dict[str, int | None]
    action: dict[str, int | None]
    language: str
    horizon: int
    relative: tuple[str, ...] = ()
    video_steps: int = 1
    state_steps: int = 1


@dataclass(frozen=True)
class PolicyOptions:
    """What the user may say beyond the configuration; each policy reads what concerns it.

    Attributes:
        demo: replay: a demo file, or the folder of a run.
        dataset: replay: a LeRobot folder.
        episode: replay: of `dataset`.
        seed: expert: of the placement it plans first.
    """

    demo: Path | None = None
    dataset: Path | None = None
    episode: int = 0
    seed: int = 0


class Policy(Protocol):
    """One policy. Not for two threads at once."""

    modality: Modality

    def get_action(
        self, observation: Observation | None, options: dict[str, Any] | None = None
    ) -> tuple[Action, dict[str, Any]]:
        """The next chunk, and facts about it that may travel (numbers, text, lists, maps)."""

    def reset(self, options: dict[str, Any] | None = None) -> dict[str, Any]:
        """Begin an episode anew; facts about it.

        Raises:
            PolicyError: an option is unknown or wrong.
        """
