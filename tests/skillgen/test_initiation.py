"""Perturbed starts: within their bounds, free, with a way back to the nominal start; nothing at all when off."""

from __future__ import annotations

import numpy as np
import pytest

from so101.config import load_config
from so101.datasets.demo import demo_to_bytes
from so101.errors import ConfigError
from so101.geometry import rotation_angle
from so101.kinematics.servo_lead import ServoLead
from so101.skillgen.ik_rollout import AttemptRunner

ON = ["task.name=vial_to_rack", "skillgen.base_seed=0", "skillgen.initiation.enabled=true"]


@pytest.fixture(scope="module")
def noisy_runner(vial_seeds):
    return AttemptRunner(load_config(overrides=ON), vial_seeds)


@pytest.fixture(scope="module")
def demos(noisy_runner):
    return [noisy_runner.run(index) for index in range(4)]


def test_every_skill_segment_has_a_detour_and_a_way_back(demos):
    assert sum(demo.strict for demo in demos) >= 3
    for demo in (demo for demo in demos if demo.strict):
        marks = demo.meta["initiation"]
        assert [mark["subtask"] for mark in marks] == ["grasp", "place"]
        for mark, (_, first, end) in zip(marks, demo.meta["subtasks"], strict=True):
            assert first == mark["out"][0] < mark["out"][1] == mark["recovery"][0] < mark["recovery"][1] < end
        assert demo.meta["transits"] == [leg for mark in marks for leg in (mark["out"], mark["recovery"])]


def test_detours_stay_in_their_bounds_and_are_what_the_marks_say(demos, noisy_runner):
    """At the end of each part the hand is commanded to the perturbed and to the nominal start, but for noise, once what
    gravity and friction take is off the commands."""
    s, fk = noisy_runner.settings.initiation, noisy_runner.simulator.fk
    goal_error = noisy_runner.settings.causes.unreachable_m
    lead = ServoLead(noisy_runner.config, noisy_runner.simulator.kinematics)
    for demo in demos:
        wanted = lead.wanted_path(demo.q_target, demo.q[0])
        for mark in demo.meta["initiation"]:
            turned, back = fk(wanted[[mark["out"][1] - 1, mark["recovery"][1] - 1]])
            shift = np.linalg.norm(turned[:3, 3] - back[:3, 3])
            assert shift == pytest.approx(mark["shift_m"], abs=0.02)
            assert mark["shift_m"] <= np.sqrt(3) * s.position_m + goal_error
            assert rotation_angle(turned[:3, :3], back[:3, :3]) == pytest.approx(mark["turn_rad"], abs=0.15)
    shifts = [mark["shift_m"] for demo in demos for mark in demo.meta["initiation"]]
    assert max(shifts) > 0.05 and np.ptp(shifts) > 0.02


def test_off_is_off_whatever_else_is_set(vial_runner, vial_config, vial_seeds, demos):
    section = vial_config.skillgen.initiation.model_copy(update={"position_m": 0.01, "probability": 0.5, "redraws": 1})
    other = vial_config.skillgen.model_copy(update={"initiation": section})
    still_off = AttemptRunner(vial_config.model_copy(update={"skillgen": other}), vial_seeds)
    plain = vial_runner.run(0)
    assert demo_to_bytes(still_off.run(0)) == demo_to_bytes(plain) and "initiation" not in plain.meta
    assert demo_to_bytes(demos[0]) != demo_to_bytes(plain)


def test_the_same_number_is_the_same_bytes(noisy_runner, demos):
    assert demo_to_bytes(noisy_runner.run(1)) == demo_to_bytes(demos[1])


@pytest.mark.parametrize("never", ["probability=0", "position_m=50"])
def test_without_a_start_that_will_do_it_is_the_nominal_one(vial_seeds, never):
    demo = AttemptRunner(load_config(overrides=[*ON, f"skillgen.initiation.{never}"]), vial_seeds).run(0)
    assert demo.strict and demo.meta["initiation"] == [] and len(demo.meta["transits"]) == 2


def test_starts_against_the_vial_are_not_free(noisy_runner, demos):
    """At home the hand is far from everything; where the jaw closes the vial is between the fingers."""
    demo = demos[0]
    objects = {name: poses[0] for name, poses in demo.objects.items()}
    _, _, end = demo.meta["subtasks"][0]
    at_vial = demo.q[np.flatnonzero(np.diff(demo.q_target[:end, 5]) < 0)[0]]
    assert noisy_runner.initiation.stands_free(demo.q[0, :5], demo.q[0, 5], None, objects)
    assert not noisy_runner.initiation.stands_free(at_vial[:5], at_vial[5], None, objects)


def test_the_mean_of_detours_follows_the_probability(noisy_runner, vial_seeds):
    half = AttemptRunner(load_config(overrides=[*ON, "skillgen.initiation.probability=0.5"]), vial_seeds)
    counts = [len(half.run(index).meta["initiation"]) for index in range(8)]
    assert 0 < sum(counts) < 16


@pytest.mark.parametrize("turn", ["[80, 0]", "[-1, 10]", "[0, 181]"])
def test_angles_out_of_order_are_refused(turn):
    with pytest.raises(ConfigError, match=r"skillgen\.yaml: initiation: turn_deg is .*the smaller one first"):
        load_config(overrides=[f"skillgen.initiation.turn_deg={turn}"])


def test_a_clearance_wider_than_is_looked_for_is_refused():
    with pytest.raises(ConfigError, match=r"initiation\.clearance_m is 0\.2; .* transit\.clearances_m, 0\.03"):
        load_config(overrides=["skillgen.initiation.clearance_m=0.2"])
