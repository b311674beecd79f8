"""An episode of a task family, and what the episodes of a file share."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

INTERVENED, SUCCESS = 1, 2  # bits of `Episode.flags`
NO_SEED = -1  # of an episode whose start is not known by a seed
_SAME_RATE = 1e-6  # relative; 1 / (1 / 30) is 30
_ACTION_MARGIN = 1e-5  # float32 noise beyond [-1, 1]


@dataclass(frozen=True)
class DemoHeader:
    """What all episodes of a file share. Of an MRLDEMO1 file only the number of words is known.

    Attributes:
        task: name of the task, e.g. "so101_tower_lift_brick".
        family: name of its family, e.g. "so101_tower".
        control_hz: rows a second, Hz.
        observation_names: of the D words of an observation.
        action_names: of the A words of an action, the joints.
        meta: JSON values kept with the file.
    """

    task: str
    family: str
    control_hz: float
    observation_names: tuple[str, ...]
    action_names: tuple[str, ...]
    meta: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key in ("observation_names", "action_names"):
            object.__setattr__(self, key, tuple(getattr(self, key)))

    @property
    def widths(self) -> tuple[int, int]:
        """D and A."""
        return len(self.observation_names), len(self.action_names)

    def difference(self, other: DemoHeader) -> str:
        """Why rows of the two do not go together, naming both values; "" when they do. `meta` may differ."""
        for key in ("task", "family", "control_hz", "observation_names", "action_names"):
            ours, theirs = getattr(self, key), getattr(other, key)
            if key == "control_hz" and math.isclose(ours, theirs, rel_tol=_SAME_RATE):
                continue
            if ours != theirs and isinstance(ours, tuple):
                ours, theirs = (f"{len(names)} words" for names in (ours, theirs))
                if ours == theirs:
                    ours, theirs = _first_difference(getattr(self, key), getattr(other, key))
            if ours != theirs:
                return f"{key} is {ours!r} in one and {theirs!r} in the other"
        return ""


@dataclass(frozen=True)
class Episode:
    """T rows. Row t: what was seen, the action executed, the reward, and what was seen next.

    Attributes:
        obs, next_obs: (T, D) float32.
        action: (T, A) float32, normalised to [-1, 1], as executed, noise included.
        reward: (T,) float32.
        done: (T,) float32, 1 where the task ended for good; a time limit is none.
        flags: (T,) uint32, bits INTERVENED and SUCCESS; SUCCESS stands on all rows of a successful episode, and only
            there.
        seed: of its start, NO_SEED when there is none.
        success: the task was achieved.
        meta: JSON values kept with it.
    """

    obs: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    next_obs: np.ndarray
    done: np.ndarray
    flags: np.ndarray
    seed: int
    success: bool
    meta: dict[str, Any] = field(default_factory=dict)

    @property
    def num_rows(self) -> int:
        return len(self.obs)


def stamp_success(flags: np.ndarray, success: bool) -> np.ndarray:
    """(T,) uint32 flags with the SUCCESS bit of an episode that ended so."""
    flags = np.asarray(flags).astype(np.uint32)
    return flags | np.uint32(SUCCESS) if success else flags & ~np.uint32(SUCCESS)


def header_fault(header: DemoHeader) -> str:
    """Why a file cannot have this header; "" when it can."""
    names = (header.task, header.family, *header.observation_names, *header.action_names)
    if not all(isinstance(name, str) for name in names) or not isinstance(header.meta, dict):
        return "its header has names that are no text, or a meta that is no mapping"
    if fault := _json_fault(header.meta):
        return fault
    if not header.task or min(header.widths) == 0:
        return "its header names no task, no observation words or no actions; an imported file needs its task named"
    rate = header.control_hz
    if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 < rate < math.inf:
        return f"control_hz is {rate!r}; needed are rows a second"
    return ""


def episode_fault(episode: Episode, header: DemoHeader) -> str:
    """Why an episode cannot be in a file with this header; "" when it can."""
    rows = episode.num_rows
    if rows == 0:
        return "it has no rows"
    obs_dim, action_dim = header.widths
    shapes = {"obs": (rows, obs_dim), "next_obs": (rows, obs_dim), "action": (rows, action_dim)}
    for key in ("obs", "action", "reward", "next_obs", "done", "flags"):
        values = np.asarray(getattr(episode, key), np.uint32 if key == "flags" else np.float32)
        wanted = shapes.get(key, (rows,))
        if values.shape != wanted:
            return (
                f"{key} has shape {values.shape}, needed is {wanted} (task {header.task}, {obs_dim} words, {rows} rows)"
            )
        if not np.isfinite(values).all():
            return f"{key} is not finite in row {np.argwhere(~np.isfinite(values))[0][0]}"
    beyond = np.abs(episode.action).max()
    if beyond > 1 + _ACTION_MARGIN:
        return f"an action is {beyond:g} from 0; actions are normalised to [-1, 1], clip what is executed"
    if isinstance(episode.seed, bool) or not isinstance(episode.seed, (int, np.integer)):
        return f"its seed is {episode.seed!r}; needed is a whole number"
    return _json_fault(episode.meta)


def _json_fault(meta: dict[str, Any]) -> str:
    try:
        json.dumps(meta, allow_nan=False)
    except (TypeError, ValueError) as error:
        return f"meta holds something that is no JSON ({error}); numbers of numpy need int() or float()"
    return ""


def _first_difference(ours: tuple[str, ...], theirs: tuple[str, ...]) -> tuple[str, str]:
    return next(pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1])
