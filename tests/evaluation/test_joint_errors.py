"""Errors by joint: they add up to the action MSE; a delay is found as lag, a shift as offset."""

from __future__ import annotations

import numpy as np
import pytest

from so101.datasets.units import lerobot_to_rad, make_units
from so101.evaluation.frame import action_mse
from so101.evaluation.joint_errors import joint_errors
from so101.evaluation.tracks import Track

FRAMES = 240


def moves(seed=0):
    """(T, 6) LeRobot values: smooth, all joints, standing still in between; the jaw opens and closes."""
    rng = np.random.default_rng(seed)
    t = np.linspace(0, 1, FRAMES)
    eased = np.clip(4 * t - 0.5, 0, 1) - np.clip(4 * t - 2.5, 0, 1)
    eased = eased**2 * (3 - 2 * eased)
    wave = 1 + 0.3 * np.sin(2 * np.pi * np.outer(t, rng.uniform(1, 2, 6))) * (eased[:, None] * (1 - eased[:, None]))
    return eased[:, None] * rng.uniform(20, 60, 6) * wave + 10


def track(config, observed, commanded):
    units = make_units("degrees", config.robot)
    q, sent = lerobot_to_rad(observed, units), lerobot_to_rad(commanded, units)
    return Track("x", 30.0, q, sent, sent, np.full(len(q), -1))


def test_the_joints_add_up_to_the_action_mse(config):
    commanded = moves()
    observed = commanded + np.random.default_rng(1).normal(0, 1, commanded.shape)
    errors = joint_errors(config, track(config, observed, commanded))
    assert errors.action_mse == pytest.approx(errors.mse.sum())
    assert errors.action_mse == pytest.approx(action_mse(commanded, observed), rel=1e-5)
    assert errors.share.sum() == pytest.approx(1) and errors.names == tuple(config.robot.joint_names)


def test_a_gripper_that_is_off_has_all_of_the_error(config):
    commanded = moves()
    observed = commanded.copy()
    observed[:, -1] -= 3.0
    errors = joint_errors(config, track(config, observed, commanded))
    assert errors.mse == pytest.approx([0, 0, 0, 0, 0, 9.0], abs=1e-9)
    assert errors.share[-1] == pytest.approx(1) and errors.worst == "gripper"
    assert errors.figures()["gripper"]["mse"] == 9.0


@pytest.mark.parametrize("frames", [0, 1, 4, 11])
def test_a_delay_is_the_lag(config, frames):
    commanded = moves()
    observed = np.concatenate([np.repeat(commanded[:1], frames, axis=0), commanded])[:FRAMES]
    errors = joint_errors(config, track(config, observed, commanded))
    assert errors.lag_frames == pytest.approx(np.full(6, frames), abs=0.3)
    assert errors.lag_ms == pytest.approx(errors.lag_frames * 1000 / 30)


def test_a_shift_is_the_offset_and_no_lag(config):
    commanded = moves()
    offsets = np.array([1.0, -2.0, 3.0, 0.5, -0.25, -1.5])
    errors = joint_errors(config, track(config, commanded + offsets, commanded))
    assert errors.offset == pytest.approx(offsets, abs=1e-6)
    assert errors.lag_frames == pytest.approx(np.zeros(6), abs=0.3)


def test_what_the_jaw_holds_is_neither_lag_nor_offset(config):
    commanded = moves()
    commanded[:, -1] = np.where(np.arange(FRAMES) // 60 % 3 == 1, 5.0, 60.0)  # closes for two seconds
    observed = np.concatenate([np.repeat(commanded[:1], 4, axis=0), commanded])[:FRAMES]
    observed[:, -1] = np.maximum(observed[:, -1], 40.0)  # on an object
    errors = joint_errors(config, track(config, observed, commanded))
    assert errors.offset[-1] == pytest.approx(0, abs=0.01)
    assert errors.range_commanded[-1] == pytest.approx(55) and errors.range_observed[-1] == pytest.approx(20)


def test_a_joint_that_is_not_commanded_tells_no_lag(config):
    commanded = moves()
    commanded[:, 4] = 10.0
    errors = joint_errors(config, track(config, commanded, commanded))
    assert np.isnan(errors.lag_frames[4]) and np.isfinite(np.delete(errors.lag_frames, 4)).all()
    assert errors.figures()["wrist_roll"]["lag_frames"] is None and errors.action_mse == 0
    assert errors.share == pytest.approx(np.zeros(6))


def test_two_frames_are_enough(config):
    assert np.isnan(joint_errors(config, track(config, moves()[:2], moves()[:2])).offset).all()
