"""The fit finds the servos a recording was made with, leaves the rest alone, and does not depend on threads."""

from __future__ import annotations

import numpy as np
import pytest

from so101.identification import ServoReplay, fit_servos, servos_of
from so101.identification.fit import rmse
from tests.identification.synthetic import TRUE, made_by_twin, quick, true_servos


@pytest.fixture(scope="module")
def config():
    return quick()


@pytest.fixture(scope="module")
def piece(config):
    return made_by_twin(config, true_servos(config))


@pytest.fixture(scope="module")
def fit(config, piece):
    return fit_servos(config, [piece], workers=2)


def test_the_twin_fits_better_than_before_on_what_it_never_saw(config, fit):
    replay, other = ServoReplay(config, 2), [made_by_twin(config, true_servos(config), seed=1)]
    before, after = (rmse(replay.run(servos, other), other) for servos in (servos_of(config), fit.servos))
    assert (after < 0.35 * before).all()
    assert np.degrees(after).max() < 0.5


def test_the_values_are_found(fit):
    for joint in (1, 2):  # gravity gives them their scale
        servo = fit.servos[joint]
        assert servo["stiffness_nm_per_rad"] == pytest.approx(TRUE["stiffness_nm_per_rad"], rel=0.2)
        assert servo["friction_nm"] == pytest.approx(TRUE["friction_nm"], rel=0.4)
        lag = servo["delay_s"] + (servo["velocity_gain_nm_s_per_rad"] + 0.3) / servo["stiffness_nm_per_rad"]
        assert lag == pytest.approx(TRUE["delay_s"] + 1.2 / 14.0, abs=0.02)


def test_what_the_recording_does_not_tell_keeps_its_default(config, fit):
    for servo, default, told, growth in zip(fit.servos, servos_of(config), fit.told, fit.cost_of_default, strict=True):
        for name, value in servo.items():
            assert name in told or value == default[name]
            assert (growth[name] >= config.robot.identification.worth_it) == (name in told)


def test_values_stay_within_their_bounds(config, fit):
    for name in fit.servos[0]:
        low, high = getattr(config.robot.identification.bounds, name)
        for servo, told in zip(fit.servos, fit.told, strict=True):
            assert name not in told or low * 0.999 <= servo[name] <= high * 1.001


def test_the_same_recording_gives_the_same_fit_whatever_the_threads():
    config = quick("robot.identification.scan_candidates=1", "robot.identification.iterations=[1, 1]")
    piece = made_by_twin(config, true_servos(config), frames=30)
    assert fit_servos(config, [piece], workers=1) == fit_servos(config, [piece], workers=3)


def test_frames_that_do_not_count_do_not_count(config, piece):
    tracks = [piece.measured + np.where(piece.counts, 0.1, 5.0)]
    assert rmse(tracks, [piece]) == pytest.approx(0.1)
