"""How far a pseudo-real rig is from the twin."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from so101.config import load_config
from so101.errors import ConfigError
from so101.robot.virtual.pseudo_real import NOMINAL, RigDraw, draw_rig

CONFIG = load_config(overrides=["task.name=vial_to_rack"])
SEEDS = st.integers(0, 2_000_000)
STRENGTHS = st.floats(0.01, 3.0)


def _differences(rig: RigDraw) -> np.ndarray:
    """Signed distances of every drawn number from the twin: logarithms of factors, differences of the rest."""
    joints, looks = rig.physics["joints"], rig.looks
    nominal = {key: [getattr(joint, key) for joint in CONFIG.robot.joints] for key in joints}
    found = [
        math.log(v / n) for key in joints if key != "delay_s" for v, n in zip(joints[key], nominal[key], strict=True)
    ]
    found += (np.array(joints["delay_s"]) - nominal["delay_s"]).tolist()
    found += [*rig.backlash_rad, *rig.zero_error_rad, rig.reply_delay_s - CONFIG.robot.virtual.reply_delay_s]
    white_k = CONFIG.robot.virtual.pseudo_real.looks.temperature.white_k
    found += [looks["exposure_ev"], math.log(looks["temperature_k"] / white_k)]
    found += [value for shift in looks["lamps"].values() for value in shift]
    for camera in looks["cameras"].values():
        found += [math.log(camera["focal"]), *camera["shift_m"], *camera["turn_rad"]]
    return np.array(found)


@given(SEEDS)
def test_without_strength_it_is_the_twin_itself(seed):
    assert draw_rig(CONFIG, seed, 0.0) is NOMINAL


@given(SEEDS)
def test_strength_one_is_the_rig_that_was_always_drawn(seed):
    assert repr(draw_rig(CONFIG, seed, 1.0)) == repr(draw_rig(CONFIG, seed))


@settings(max_examples=30)
@given(SEEDS, STRENGTHS)
def test_every_number_is_strength_times_as_far_in_the_same_direction(seed, strength):
    once, far = _differences(draw_rig(CONFIG, seed)), _differences(draw_rig(CONFIG, seed, strength))
    assert far == pytest.approx(strength * once, rel=1e-9, abs=1e-12)


@settings(max_examples=30)
@given(SEEDS, STRENGTHS, STRENGTHS)
def test_more_strength_is_nowhere_nearer_to_the_twin(seed, a, b):
    near, far = (np.abs(_differences(draw_rig(CONFIG, seed, strength))) for strength in sorted((a, b)))
    assert (far >= near * (1 - 1e-9)).all()


@given(SEEDS)
def test_however_strong_a_rig_it_is_a_possible_one(seed):
    rig = draw_rig(CONFIG, seed, 50.0)
    joints = rig.physics["joints"]
    assert all(value > 0 for key in joints if key != "delay_s" for value in joints[key])
    assert all(0 <= value <= CONFIG.robot.max_delay_s for value in joints["delay_s"])
    assert (rig.backlash_rad >= 0).all() and rig.reply_delay_s >= 0
    assert rig.looks["temperature_k"] > 0 and np.isfinite(rig.looks["light_rgb"]).all()


def test_a_rig_twice_as_far_in_numbers():
    rig, far = draw_rig(CONFIG, 3), draw_rig(CONFIG, 3, 2.0)
    nominal = CONFIG.robot.joints[0].stiffness_nm_per_rad
    once = rig.physics["joints"]["stiffness_nm_per_rad"][0]
    assert far.physics["joints"]["stiffness_nm_per_rad"][0] == pytest.approx(once**2 / nominal)
    assert far.zero_error_rad == pytest.approx(2 * rig.zero_error_rad)
    assert far.looks["exposure_ev"] == pytest.approx(2 * rig.looks["exposure_ev"])
    assert far.looks["light_rgb"] != rig.looks["light_rgb"]


def test_colours_of_objects_go_away_from_theirs_too():
    change = {"hue_turn": [0.1, 0.1], "saturation": [0.8, 0.8], "value": [0.5, 0.5]}
    objects = f"robot.virtual.pseudo_real.looks.objects={change}"
    config = load_config(overrides=["task.name=vial_to_rack", objects])
    vial = draw_rig(config, 1, 2.0).looks["objects"]["vial"]
    assert vial == pytest.approx({"hue_turn": 0.2, "saturation": 0.64, "value": 0.25})


@pytest.mark.parametrize("strength", [-0.1, math.nan, math.inf])
def test_a_strength_that_is_none_is_refused(strength):
    with pytest.raises(ConfigError, match="strength of a pseudo-real rig is .*; it must be 0 .* or more"):
        draw_rig(CONFIG, 1, strength)
