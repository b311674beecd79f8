"""Numbers of a dataset to mean 0 and deviation 1, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_LEAST = 1e-2  # of a deviation, in dataset units and m / 10: what hardly moves is not blown up to noise


@dataclass(frozen=True)
class Normalisation:
    """Means and deviations, all float32.

    Attributes:
        state: (2, D): mean, deviation.
        chunk: (2, H, D), row by row; of joints in `relative` less the state the chunk begins at.
        relative: (D,) bool.
        points: (2, P, 3).
        low, high: (D,) smallest and largest action of the dataset; what the policy gives stays within.
    """

    state: np.ndarray
    chunk: np.ndarray
    relative: np.ndarray
    points: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def encode_state(self, state: np.ndarray) -> np.ndarray:
        """(B, D) dataset units -> normalised."""
        return ((state - self.state[0]) / self.state[1]).astype(np.float32)

    def encode_chunk(self, chunk: np.ndarray, state: np.ndarray) -> np.ndarray:
        """(B, H, D) absolute targets seen from `state` (B, D) -> normalised."""
        offset = np.where(self.relative, state, 0.0)[:, None]
        return ((chunk - offset - self.chunk[0]) / self.chunk[1]).astype(np.float32)

    def decode_chunk(self, values: np.ndarray, state: np.ndarray) -> np.ndarray:
        """The inverse, within the range of the dataset's actions."""
        offset = np.where(self.relative, state, 0.0)[:, None]
        return np.clip(values * self.chunk[1] + self.chunk[0] + offset, self.low, self.high).astype(np.float32)

    def encode_points(self, points: np.ndarray) -> np.ndarray:
        """(B, P, 3) m -> normalised; nan stays."""
        return ((points - self.points[0]) / self.points[1]).astype(np.float32)

    def to_json(self) -> dict[str, Any]:
        return {name: np.asarray(value).tolist() for name, value in self.__dict__.items()}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Normalisation:
        kinds = {"relative": bool}
        arrays = {name: np.array(value, kinds.get(name, np.float32)) for name, value in values.items()}
        if not arrays["points"].size:  # JSON has no shape for it
            arrays["points"] = np.zeros((2, 0, 3), np.float32)
        return cls(**arrays)


def chunk_rows(actions: np.ndarray, rows: np.ndarray, horizon: int) -> np.ndarray:
    """(len(rows), horizon, D): the actions from each row on; past the end the last one is held."""
    return actions[np.minimum(rows[:, None] + np.arange(horizon), len(actions) - 1)]


def fit_normalisation(
    states: Sequence[np.ndarray],
    actions: Sequence[np.ndarray],
    points: Sequence[np.ndarray],
    relative: np.ndarray,
    horizon: int,
) -> Normalisation:
    """Over all frames of the episodes; `points` per episode (T, P, 3), nan is left out."""
    every = np.concatenate(states)
    offset = np.where(relative, every, 0.0)[:, None]
    chunks = np.concatenate([chunk_rows(a, np.arange(len(a)), horizon) for a in actions]) - offset
    spots = np.concatenate(points)
    unknown = np.isnan(spots).all(0)
    filled = np.where(unknown, 0.0, spots)
    point_stats = np.stack([np.nanmean(filled, 0), np.maximum(np.nanstd(filled, 0), _LEAST)])
    commanded = np.concatenate(actions)
    return Normalisation(
        state=np.stack([every.mean(0), np.maximum(every.std(0), _LEAST)]).astype(np.float32),
        chunk=np.stack([chunks.mean(0), np.maximum(chunks.std(0), _LEAST)]).astype(np.float32),
        relative=relative.astype(bool),
        points=point_stats.astype(np.float32),
        low=commanded.min(0).astype(np.float32),
        high=commanded.max(0).astype(np.float32),
    )
