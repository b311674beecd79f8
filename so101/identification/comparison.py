"""How well a twin follows a recording: errors and lags of each joint, for servos before and after the fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from so101.identification.fit import rmse
from so101.identification.pieces import Piece
from so101.identification.replay import ServoReplay, Servos


@dataclass(frozen=True)
class Comparison:
    """Figures of one set of episodes, (6,) each: root mean square errors in degrees, lags behind the command in
    frames of the recording; nan where a joint never counts or moves."""

    rmse_before_deg: np.ndarray
    rmse_after_deg: np.ndarray
    lag_recorded: np.ndarray
    lag_before: np.ndarray
    lag_after: np.ndarray

    def to_json(self, joint_names: Sequence[str]) -> dict[str, dict[str, float | None]]:
        """joint -> figure -> value; None for nan."""
        columns = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {
            joint: {
                name: None if np.isnan(values[j]) else round(float(values[j]), 4) for name, values in columns.items()
            }
            for j, joint in enumerate(joint_names)
        }


def compare(
    replay: ServoReplay, pieces: Sequence[Piece], before: Servos, after: Servos, max_lag_frames: int
) -> Comparison:
    """Replay `pieces` with both sets of servos."""
    tracks = replay.run_many([before, after], pieces)
    return Comparison(
        rmse_before_deg=np.degrees(rmse(tracks[0], pieces)),
        rmse_after_deg=np.degrees(rmse(tracks[1], pieces)),
        lag_recorded=lag_frames([piece.measured for piece in pieces], pieces, max_lag_frames),
        lag_before=lag_frames(tracks[0], pieces, max_lag_frames),
        lag_after=lag_frames(tracks[1], pieces, max_lag_frames),
    )


def lag_frames(tracks: Sequence[np.ndarray], pieces: Sequence[Piece], max_lag: int) -> np.ndarray:
    """(6,) frames by which joints run behind their commands: where the speeds of the two correlate best, between
    frames by the parabola through the best and its neighbours.

    Args:
        tracks: (T, 6) rad of each piece.
    """
    score = np.zeros((max_lag + 1, 6))
    for track, piece in zip(tracks, pieces, strict=True):
        if len(track) < max_lag + 3:
            continue
        command_speed, speed = np.diff(piece.command, axis=0), np.diff(track, axis=0) * piece.counts[1:]
        for lag in range(max_lag + 1):
            share = len(speed) / (len(speed) - lag)  # fewer pairs the later: no reason to count less
            score[lag] += (command_speed[: len(speed) - lag] * speed[lag:]).sum(0) * share
    best = score.argmax(0)
    lags = best.astype(float)
    for joint, k in enumerate(best):
        if score[k, joint] <= 0:
            lags[joint] = np.nan
        elif 0 < k < max_lag:
            low, here, high = score[k - 1 : k + 2, joint]
            lags[joint] += 0.5 * (low - high) / (low - 2 * here + high)
    return lags


def rmse_by_joint(
    joint_names: Sequence[str], fitted: Comparison, held_out: Comparison | None
) -> Mapping[str, dict[str, float]]:
    """joint -> degrees before and after, for the rig file."""
    sets = {"": fitted} | ({"held_out_": held_out} if held_out is not None else {})
    return {
        joint: {
            f"{prefix}{when}": round(float(getattr(figures, f"rmse_{when}_deg")[j]), 3)
            for prefix, figures in sets.items()
            for when in ("before", "after")
            if not np.isnan(getattr(figures, f"rmse_{when}_deg")[j])
        }
        for j, joint in enumerate(joint_names)
    }
