"""Lags and errors of tracks whose lag and error are known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from so101.config import load_config
from so101.identification import Piece, ServoReplay, choose, compare, read_pieces, servos_of
from so101.identification.comparison import lag_frames

REPO = Path(__file__).resolve().parents[2]
REAL = REPO.parent / "shared" / "data" / "so101_record_test_4ep"


def piece(frames: int = 200) -> Piece:
    t = np.arange(frames)[:, None] / 30
    command = 0.3 * np.sin(2 * t + np.arange(6)) + 0.1 * np.sin(7 * t)
    return Piece("made", 30.0, command, command, np.ones(command.shape, bool), command[:1], np.zeros(6))


@pytest.mark.parametrize("frames", [0.0, 1.0, 3.5, 4.0])
def test_a_shifted_command_lags_by_its_shift(frames):
    made = piece()
    clock = np.arange(len(made.command))
    shifted = np.stack([np.interp(clock - frames, clock, column) for column in made.command.T], -1)
    np.testing.assert_allclose(lag_frames([shifted], [made], 8), frames, atol=0.15)


def test_a_joint_that_stands_still_has_no_lag():
    made = piece()
    still = made.command.copy()
    still[:, 2] = 0.4
    lags = lag_frames([still], [made], 8)
    assert np.isnan(lags[2]) and np.isfinite(np.delete(lags, 2)).all()
    config = load_config()
    values = compare(ServoReplay(config, 1), [replace(made, measured=still)], servos_of(config), servos_of(config), 8)
    assert values.to_json(config.robot.joint_names)["elbow_flex"]["lag_recorded"] is None


@pytest.mark.skipif(not REAL.is_dir(), reason="needs the real recording beside the repository")
def test_the_shipped_twin_follows_held_out_episodes_of_a_real_arm():
    """And the servos it had before do not."""
    config, former = load_config(), load_config(rig=REPO / "benchmarks" / "workshop_servos.yaml")
    held_out = choose(read_pieces(REAL, former), [2, 3], "held out")
    figures = compare(ServoReplay(former, 2), held_out, servos_of(former), servos_of(config), 12)
    assert (figures.rmse_after_deg < figures.rmse_before_deg).all()
    assert figures.rmse_after_deg.max() < 1.2 and figures.rmse_after_deg.mean() < 0.5 * figures.rmse_before_deg.mean()
    assert np.abs(figures.lag_after - figures.lag_recorded).max() < 0.7
    assert np.abs(figures.lag_before - figures.lag_recorded).max() > 1.5
