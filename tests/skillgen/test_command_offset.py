"""Commands keep the lead that the seed's commands had over its hand, in the heading of the arm."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from so101.geometry import make_pose, rotation_about_axis, rotation_from_rotation_vector
from so101.skillgen.command_offset import commanded, heading

PAN_AXIS = (0.04, 0.0)
UP = np.array([0.0, 0.0, 1.0])

seeds, angles = st.integers(0, 100_000), st.floats(-np.pi, np.pi)


def path(rng: np.random.Generator, n: int = 5) -> np.ndarray:
    """(n, 4, 4) poses that keep away from the pan axis."""
    turn, distance = rng.uniform(-np.pi, np.pi, n), rng.uniform(0.1, 0.3, n)
    xy = PAN_AXIS + distance[:, None] * np.column_stack([np.cos(turn), np.sin(turn)])
    R = rotation_from_rotation_vector(rng.normal(size=(n, 3)))
    return make_pose(R, np.column_stack([xy, rng.uniform(0, 0.3, n)]))


def lead(rng: np.random.Generator, T: np.ndarray) -> np.ndarray:
    """A path a little beside T, as the commands of a seed are beside its hand."""
    off = make_pose(
        rotation_from_rotation_vector(0.1 * rng.normal(size=(len(T), 3))), 0.01 * rng.normal(size=(len(T), 3))
    )
    return T @ off


def about_pan(angle: float) -> np.ndarray:
    """(4, 4) turn of base about the pan axis."""
    R, center = rotation_about_axis(UP, angle), np.array([*PAN_AXIS, 0.0])
    return make_pose(R, center - R @ center)


@given(seeds)
def test_an_unmoved_path_has_the_commands_of_the_seed(seed):
    rng = np.random.default_rng(seed)
    measured = path(rng)
    target = lead(rng, measured)
    np.testing.assert_allclose(commanded(measured, target, measured, PAN_AXIS), target, atol=1e-9)


@given(seeds)
def test_without_a_lead_the_command_is_what_is_wanted(seed):
    rng = np.random.default_rng(seed)
    wanted, measured = path(rng), path(rng)
    np.testing.assert_allclose(commanded(wanted, measured, measured, PAN_AXIS), wanted, atol=1e-9)


@given(seeds, angles)
def test_turning_what_is_wanted_about_the_pan_axis_turns_the_commands(seed, angle):
    rng = np.random.default_rng(seed)
    wanted, measured = path(rng), path(rng)
    target, turn = lead(rng, measured), about_pan(angle)
    np.testing.assert_allclose(
        commanded(turn @ wanted, target, measured, PAN_AXIS),
        turn @ commanded(wanted, target, measured, PAN_AXIS), atol=1e-9,
    )  # fmt: skip


@given(seeds, angles)
def test_where_about_the_pan_axis_the_seed_was_shown_does_not_matter(seed, angle):
    rng = np.random.default_rng(seed)
    wanted, measured = path(rng), path(rng)
    target, turn = lead(rng, measured), about_pan(angle)
    np.testing.assert_allclose(
        commanded(wanted, turn @ target, turn @ measured, PAN_AXIS),
        commanded(wanted, target, measured, PAN_AXIS), atol=1e-9,
    )  # fmt: skip


@given(seeds)
def test_a_heading_turns_the_x_axis_of_base_towards_the_point(seed):
    points = path(np.random.default_rng(seed))[:, :3, 3]
    turns = heading(points, PAN_AXIS)
    outward = points[:, :2] - PAN_AXIS
    np.testing.assert_allclose(turns[:, :2, 0], outward / np.linalg.norm(outward, axis=-1, keepdims=True), atol=1e-12)
    np.testing.assert_allclose(turns[:, :, 2], np.tile(UP, (len(points), 1)))
    np.testing.assert_allclose(np.linalg.det(turns), 1)


def test_a_hand_to_the_left_leads_to_the_left_what_one_in_front_led_ahead():
    """1 cm outward and 2 mm up, nose 0.1 rad up: in front of the arm along x, at its left along y."""
    ahead, beside = np.array([0.24, 0.0, 0.1]), np.array([0.04, 0.2, 0.1])
    measured, wanted = make_pose(np.eye(3), ahead)[None], make_pose(rotation_about_axis(UP, np.pi / 2), beside)[None]
    nose_up = rotation_about_axis(np.array([0.0, 1.0, 0.0]), -0.1)
    target = make_pose(nose_up, ahead + [0.01, 0.0, 0.002])[None]
    (T,) = commanded(wanted, target, measured, PAN_AXIS)
    np.testing.assert_allclose(T[:3, 3], [0.04, 0.21, 0.102], atol=1e-12)
    assert T[2, 0] == pytest.approx(np.sin(0.1)) and T[1, 0] == pytest.approx(np.cos(0.1))
