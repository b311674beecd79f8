"""FRAME metrics: what robometric-frame says of the same arrays, and numbers worked by hand on a line and a circle."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from so101.datasets.units import make_units
from so101.errors import ConfigError
from so101.evaluation.frame import (
    action_mse,
    ate,
    dtw,
    frame_metrics,
    ndtw,
    nearest_reference,
    path_length,
    rte,
    smoothness,
    smoothness_by_length,
)
from so101.evaluation.tracks import Track

robometric_frame = pytest.importorskip("robometric_frame")
STEPS, RADIUS_M = 40, 0.2


def line(points=11, step=0.01):
    return np.arange(points)[:, None] * step * np.array([1.0, 0.0, 0.0])


def circle(radius=RADIUS_M, phase=0.0, steps=STEPS):
    """Once round, steps + 1 points, in a plane of its own."""
    angle = 2 * np.pi * np.arange(steps + 1) / steps + phase
    return radius * np.stack([np.cos(angle), np.sin(angle), np.zeros(steps + 1)], axis=1) + [0.1, 0.2, 0.3]


HALF = np.pi / STEPS  # half the angle of a step
CHORD = 2 * RADIUS_M * np.sin(HALF)


def test_a_straight_line_by_hand():
    path, beside = line(), line() + [0.0, 0.03, 0.0]
    assert path_length(path) == pytest.approx(0.1)
    assert smoothness(path) == pytest.approx(0, abs=1e-8) and smoothness_by_length(path) == pytest.approx(0, abs=1e-8)
    assert ate(path, beside) == pytest.approx(0.03) and rte(path, beside) == pytest.approx(0, abs=1e-8)
    assert dtw(path, beside) == pytest.approx(11 * 0.03)
    assert ndtw(path, beside) == pytest.approx(np.exp(-11 * 0.03 / (11 * 0.01)), rel=1e-4)


def test_a_line_at_double_speed_by_hand():
    path, fast = line(), line(6, 0.02)
    assert path_length(fast) == pytest.approx(0.1) and rte(line(6), fast) == pytest.approx(0.01)
    assert ate(line(6), fast) == pytest.approx(0.01 * (0 + 1 + 2 + 3 + 4 + 5) / 6)
    assert dtw(path, fast) == pytest.approx(5 * 0.01)  # every second point lies between two


def test_a_stop_on_a_line_by_hand():
    path = np.array([[0.0], [0.01], [0.02], [0.02], [0.02]])  # second differences 0, 0.01, 0
    assert smoothness(path) == pytest.approx(0.01 / 3) and smoothness_by_length(path) == pytest.approx(0.01 / 0.02)


def test_a_circle_by_hand():
    path = circle()
    bend = 2 * CHORD * np.sin(HALF)  # between two chords
    assert path_length(path) == pytest.approx(STEPS * CHORD, rel=1e-5)
    assert path_length(path) == pytest.approx(2 * np.pi * RADIUS_M, rel=2e-3)
    assert smoothness(path) == pytest.approx(bend, rel=1e-4)
    assert smoothness_by_length(path) == pytest.approx((STEPS - 1) / STEPS * 2 * np.sin(HALF))
    assert dtw(path, circle(RADIUS_M + 0.05)) == pytest.approx((STEPS + 1) * 0.05, rel=1e-5)


@pytest.mark.parametrize("delta", [1, 5])
def test_a_circle_ahead_of_itself_by_hand(delta):
    phase = 0.3
    path, ahead = circle(), circle(phase=phase)
    apart = 2 * np.sin(phase / 2)
    assert ate(path, ahead) == pytest.approx(RADIUS_M * apart, rel=1e-5)
    assert rte(path, ahead, delta) == pytest.approx(2 * RADIUS_M * np.sin(delta * HALF) * apart, rel=1e-4)


def test_action_mse_sums_over_joints_and_averages_over_frames():
    assert action_mse(np.array([[1.0, 2.0], [0.0, 0.0]]), np.zeros((2, 2))) == pytest.approx((1 + 4 + 0) / 2)


@pytest.mark.parametrize("seed", range(3))
def test_they_are_those_of_robometric_frame_and_of_their_formulas(seed):
    import torch
    from robometric_frame import task_performance, trajectory_quality

    rng = np.random.default_rng(seed)
    a, b = (np.cumsum(rng.normal(0, 0.01, (60, 3)), axis=0) for _ in range(2))
    steps = np.diff(a, axis=0)
    formulas = {
        (path_length, "PathLength"): np.linalg.norm(steps, axis=1).sum(),
        (smoothness, "PathSmoothness"): np.linalg.norm(np.diff(steps, axis=0), axis=1).mean(),
        (ate, "AbsoluteTrajectoryError"): np.linalg.norm(a - b, axis=1).mean(),
        (rte, "RelativeTrajectoryError"): np.linalg.norm(steps - np.diff(b, axis=0), axis=1).mean(),
        (dtw, "DTWDistance"): plain_dtw(a, b),
    }
    for (ours, name), formula in formulas.items():
        arrays = (a,) if name.startswith("Path") else (a, b)
        metric = getattr(trajectory_quality, name)()
        metric.update(*map(torch.tensor, arrays))
        assert ours(*arrays) == pytest.approx(float(metric.compute()), rel=1e-6)
        assert ours(*arrays) == pytest.approx(formula, rel=1e-4)
    accuracy = task_performance.ActionAccuracy()
    accuracy.update(torch.tensor(a), torch.tensor(b))
    assert action_mse(a, b) == pytest.approx(float(accuracy.compute()["mse"]), rel=1e-6)
    assert action_mse(a, b) == pytest.approx(((a - b) ** 2).sum(1).mean(), rel=1e-5)


def plain_dtw(a, b):
    cost = np.linalg.norm(a[:, None] - b[None], axis=-1)
    total = np.full((len(a) + 1, len(b) + 1), np.inf)
    total[0, 0] = 0
    for i in range(len(a)):
        for j in range(len(b)):
            total[i + 1, j + 1] = cost[i, j] + min(total[i, j], total[i, j + 1], total[i + 1, j])
    return total[-1, -1]


def test_a_track_is_measured_in_metres_and_lerobot_units(config, fk):
    q = np.zeros((31, 6))
    q[:, 0] = np.linspace(0, 0.3, 31)  # pan alone: the hand goes along an arc
    sent = q.copy()
    sent[:, 1] += np.radians(2.0)
    track = Track("x", 30.0, q, sent, sent, np.full(31, -1))
    found = frame_metrics(config, track, fk)
    radius = np.linalg.norm(fk(q[0])[:2, 3] - axis_of_pan(fk))
    assert found.duration_s == pytest.approx(31 / 30)
    assert found.path_length_m == pytest.approx(0.3 * radius, rel=1e-3)
    assert found.action_mse == pytest.approx(4.0, rel=1e-6)  # degrees squared
    jaw = make_units("degrees", config.robot).scale[-1]
    shut = Track("x", 30.0, q, sent, q + [0, 0, 0, 0, 0, 0.1], np.full(31, -1))
    assert frame_metrics(config, shut, fk).action_mse == pytest.approx((0.1 * jaw) ** 2, rel=1e-6)


def axis_of_pan(fk):
    """Where the line through the middles of hand positions half a turn apart crosses the table."""
    a, b = (fk(np.array([angle, 0, 0, 0, 0, 0.0]))[:2, 3] for angle in (0.0, np.pi))
    return (a + b) / 2


def test_the_nearest_demo_is_found_among_many():
    demos = [(f"demo {i}", circle() + [0.02 * i, 0, 0]) for i in range(-5, 6)]
    near = nearest_reference(circle() + [0.047, 0, 0], demos)
    assert near.reference == "demo 2" and near.end_m == pytest.approx(0.007)
    assert 0 < near.distance_m <= 0.007 + 1e-6 and 0 < near.ndtw < 1
    same = nearest_reference(circle(), demos)
    assert same.reference == "demo 0" and same.distance_m < 1e-4 and same.ndtw > 0.99


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "robometric_frame.trajectory_quality", None)
    with pytest.raises(ConfigError, match=r"need the package robometric-frame .*pip install -e \.\[training\]"):
        path_length(line())
