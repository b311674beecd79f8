"""Which joint the tracking error of a rollout comes from, how far each lags, and how far off it stands at rest."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from so101.config import Config
from so101.datasets.lerobot_v21 import dataset_units
from so101.datasets.units import rad_to_lerobot
from so101.evaluation.tracks import Track
from so101.identification.pieces import held_frames


@dataclass(frozen=True)
class JointErrors:
    """(J,) each, J = 6 joints in the order of robot.yaml; nan where a joint tells nothing.

    Attributes:
        names: of the joints.
        mse: mean squared difference of command and observation, LeRobot units squared; their sum is the action MSE.
        share: of that sum, in [0, 1]; 0 for a sum of 0.
        lag_frames: by which the joint runs behind its command; the command of a frame is sent after the frame was
            observed, so an ideal servo has 1.
        lag_ms: the same in time.
        offset: median of observed - commanded while both stand still, LeRobot units; of the jaw without what it holds.
        range_commanded, range_observed: largest - smallest, LeRobot units.
    """

    names: tuple[str, ...]
    mse: np.ndarray
    share: np.ndarray
    lag_frames: np.ndarray
    lag_ms: np.ndarray
    offset: np.ndarray
    range_commanded: np.ndarray
    range_observed: np.ndarray

    @property
    def action_mse(self) -> float:
        """Sum over joints, LeRobot units squared."""
        return float(self.mse.sum())

    @property
    def worst(self) -> str:
        """The joint with the largest share."""
        return self.names[int(self.mse.argmax())]

    def figures(self) -> dict[str, dict[str, Any]]:
        """joint -> figure -> value, JSON-ready; None for nan."""
        columns = {key: getattr(self, key) for key in self.__dataclass_fields__ if key != "names"}
        return {
            joint: {key: None if np.isnan(v[j]) else round(float(v[j]), 4) for key, v in columns.items()}
            for j, joint in enumerate(self.names)
        }


def joint_errors(config: Config, track: Track) -> JointErrors:
    """Compare what was commanded with what was observed in the same frame, as a dataset has it.

    Raises:
        DataError: the calibration file of dataset.units is not usable.
    """
    settings = config.deploy.evaluation.diagnosis
    units = dataset_units(config)
    observed, commanded = rad_to_lerobot(track.q, units), rad_to_lerobot(track.sent, units)
    mse = ((commanded - observed) ** 2).mean(0)
    lag = tracking_lag(config, track)
    return JointErrors(
        names=tuple(config.robot.joint_names),
        mse=mse,
        share=mse / mse.sum() if mse.sum() > 0 else np.zeros_like(mse),
        lag_frames=lag,
        lag_ms=1000 * lag / track.fps,
        offset=_steady_offset(observed - commanded, commanded, observed, _free(config, track), settings),
        range_commanded=np.ptp(commanded, axis=0),
        range_observed=np.ptp(observed, axis=0),
    )


def tracking_lag(config: Config, track: Track) -> np.ndarray:
    """(J,) frames by which each joint runs behind: where the speeds of command and joint correlate best. Nan for one
    that moves less than `min_move_rad`. As in the identification, the first moments do not count: an arm that is
    catching up with its first command would tell a lag of its own."""
    settings = config.deploy.evaluation.diagnosis
    free = _free(config, track)[1:]
    free[: math.ceil(config.robot.identification.skip_s * track.fps)] = False
    command, speed = np.diff(track.sent, axis=0), np.diff(track.q, axis=0)
    most = min(settings.max_lag_frames, max(0, len(speed) - 2))
    scores = np.array([_correlation(command[: len(speed) - k], speed[k:], free[k:]) for k in range(most + 1)])
    moved = (np.ptp(track.sent, axis=0) >= settings.min_move_rad) & (scores.max(0) > 0)
    return np.where(moved, _peak(scores), np.nan)


def _correlation(a: np.ndarray, b: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """(J,) cosine between columns of (T, J) over the frames that count; 1 for columns that agree, 0 for still ones."""
    size = np.sqrt((a**2 * counts).sum(0) * (b**2 * counts).sum(0))
    return (a * b * counts).sum(0) / np.where(size > 0, size, 1.0)


def _peak(scores: np.ndarray) -> np.ndarray:
    """(J,) place of the largest of (K, J), between rows by the parabola through it and its neighbours."""
    best = scores.argmax(0)
    place = best.astype(float)
    for joint, k in enumerate(best):
        if 0 < k < len(scores) - 1:
            low, here, high = scores[k - 1 : k + 2, joint]
            place[joint] += 0.5 * (low - high) / (low - 2 * here + high)
    return place


def _free(config: Config, track: Track) -> np.ndarray:
    """(T, J) bool: not the frames in which the jaw holds something and cannot follow."""
    free = np.ones(track.q.shape, bool)
    for first, last in held_frames(track.q[:, -1], track.sent[:, -1], track.fps, config):
        free[first:last, -1] = False
    return free


def _steady_offset(
    error: np.ndarray, commanded: np.ndarray, observed: np.ndarray, free: np.ndarray, settings: Any
) -> np.ndarray:
    """(J,) median error of the frames at whose end command and joint have stood still for `still_frames`."""
    frames = settings.still_frames
    if len(error) <= frames:
        return np.full(error.shape[1], np.nan)

    def calm(values: np.ndarray) -> np.ndarray:
        windows = np.lib.stride_tricks.sliding_window_view(values, frames + 1, axis=0)
        return np.ptp(windows, axis=-1) <= settings.still_units

    steady = calm(commanded) & calm(observed) & free[frames:]
    return np.array([np.median(e[s]) if s.any() else np.nan for e, s in zip(error[frames:].T, steady.T, strict=True)])
