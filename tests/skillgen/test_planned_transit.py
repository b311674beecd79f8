"""Transits with a planner: planned, checked by the twin, counted; and interpolated as without one when there is no
plan."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from so101.config import load_config
from so101.skillgen.ik_rollout import AttemptRunner

pytest.importorskip("curobo")
torch.set_num_threads(1)

PLANNED = [
    "task.name=vial_to_rack",
    "skillgen.transit.planner=curobo",
    "ik.curobo.spheres.samples_per_part=300",
    "ik.curobo.spheres.rounds=4",
]


@pytest.fixture(scope="module")
def runner(vial_seeds):
    return AttemptRunner(load_config(overrides=PLANNED), vial_seeds)


@pytest.fixture(scope="module")
def planned(runner):
    return runner.run(0)


@pytest.fixture
def without_plans(runner, monkeypatch):
    monkeypatch.setattr(runner.transits._planner, "plan", lambda *arguments: None)
    return runner


def test_transits_are_planned_and_the_demo_says_so(planned):
    counts = planned.meta["planner"]
    assert counts["planned"] + sum(counts["fallback"].values()) == len(planned.meta["transits"])
    assert counts["planned"] >= 1


def test_the_same_attempt_gives_the_same_bytes(runner, planned):
    runner.run(1)
    np.testing.assert_array_equal(runner.run(0).q_target, planned.q_target)


def test_planned_commands_keep_the_speed_limit(runner, planned):
    s = runner.settings.transit
    first, end = planned.meta["transits"][0]
    step = np.abs(np.diff(planned.q_target[first:end, :5], axis=0)).max()
    peak = 1.0 + s.ease * (30 / 16 - 1.0)  # minimum jerk peaks at 30/16 of the mean speed
    noise = 6 * runner.settings.action_noise_rad
    assert step <= s.max_joint_speed_rad_s * runner.transits._dt * peak / s.ease_factor + noise


def test_without_a_plan_a_transit_is_what_it_is_without_a_planner(without_plans, vial_runner):
    demo, plain = without_plans.run(0), vial_runner.run(0)
    assert demo.meta["planner"]["planned"] == 0
    assert demo.meta["planner"]["fallback"] == {"no_plan": len(demo.meta["transits"])}
    np.testing.assert_array_equal(demo.q_target, plain.q_target)
    assert "planner" not in plain.meta


def test_a_plan_that_the_twin_finds_too_near_is_not_used(runner, monkeypatch):
    monkeypatch.setattr(runner.transits.checker, "free", lambda *arguments: False)
    demo = runner.run(0)
    assert demo.meta["planner"]["planned"] == 0
    assert set(demo.meta["planner"]["fallback"]) <= {"too_near", "no_plan"}
    assert demo.meta["planner"]["fallback"]["too_near"] >= 1


def test_what_is_near_an_end_is_excused_only_there(runner):
    """The pan sweeps the closed hand low through the rack: neither end is near it, so nothing excuses that."""
    sim, checker = runner.simulator, runner.transits.checker
    from so101.tasks.placement import nominal_placements

    checker.start(nominal_placements(runner.config))
    T = sim.fk(np.array([-0.5, 0.0, 0.3, 1.0, 1.57, 0.0]))
    ends = np.array([[0.0, 0.0, 0.3, 1.0, 1.57], [-1.2, 0.0, 0.3, 1.0, 1.57]])
    path = ends[0] + np.linspace(0, 1, 40)[:, None] * (ends[1] - ends[0])
    assert T[2, 3] < 0.12  # lower than the rim
    assert not checker.free(path, 0.0, None, 0.01, 0.05)
    high = path + [0.0, -0.6, -0.3, 0.0, 0.0]
    assert checker.free(high, 0.0, None, 0.01, 0.05)


def test_obstacles_are_all_but_the_arm_and_what_it_holds(runner):
    from so101.skillgen.transit import HeldObject
    from so101.tasks.placement import nominal_placements

    checker = runner.transits.checker
    checker.start(nominal_placements(runner.config))
    everything, carrying = checker.obstacles(None), checker.obstacles(HeldObject("vial", np.eye(4)))
    vial = checker.shape("vial")
    assert len(everything.half) - len(carrying.half) == len(vial.half) == 2  # body and cap
    model = runner.simulator.model
    floor = model.geom("floor/floor")
    assert any(np.allclose(half, floor.size) for half in everything.half)
