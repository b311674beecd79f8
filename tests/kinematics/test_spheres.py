"""Collision spheres stand for the meshes: they hold nearly all of the surface and do not bulge far."""

from __future__ import annotations

import numpy as np
import pytest

from so101.kinematics.curobo_robot import JAW, link_spheres, robot_urdf_path
from so101.kinematics.spheres import Spheres, check_spheres, fit_spheres, mesh_parts, surface_samples


@pytest.fixture(scope="module")
def settings(vial_config):
    return vial_config.ik.curobo.spheres


@pytest.fixture(scope="module")
def parts():
    return mesh_parts(robot_urdf_path())


def box(half: float) -> np.ndarray:
    """(12, 3, 3) triangles of a cube."""
    from scipy.spatial import ConvexHull

    corners = half * np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], float)
    return corners[ConvexHull(corners).simplices]


@pytest.mark.parametrize("link", [
    "base_link", "shoulder_link", "upper_arm_link", "lower_arm_link", "wrist_link", "gripper_link", JAW,
])  # fmt: skip
def test_every_link_is_covered_without_much_bulge(settings, parts, link):
    check = check_spheres(fit_spheres(parts[link], settings.per_link[link], settings), parts[link])
    assert check.coverage >= settings.min_coverage
    assert check.protrusion_m <= settings.max_protrusion_m
    assert check.outside_m < 0.006


def test_more_spheres_bulge_less(settings, parts):
    few, many = (check_spheres(fit_spheres(parts[JAW], n, settings), parts[JAW]) for n in (3, 10))
    assert many.protrusion_m < few.protrusion_m


def test_the_check_sees_what_is_missing_and_what_sticks_out():
    cube = box(0.02)
    around = Spheres(np.zeros((1, 3)), np.array([0.02 * 3**0.5]))  # through the corners
    check = check_spheres(around, [cube])
    assert check.coverage == 1.0 and check.outside_m == 0.0
    assert check.protrusion_m == pytest.approx(0.02 * (3**0.5 - 1), abs=1e-3)  # above the middle of a side
    inside = check_spheres(Spheres(np.zeros((1, 3)), np.array([0.02])), [cube])
    assert inside.coverage < 0.05 and inside.protrusion_m == 0.0
    assert inside.outside_m == pytest.approx(0.02 * (3**0.5 - 1), abs=1e-3)


def test_samples_lie_on_the_surface_and_spread_by_area():
    points = surface_samples(box(0.5), 6000, np.random.default_rng(0))
    np.testing.assert_allclose(np.abs(points).max(1), 0.5, atol=1e-12)
    assert np.mean(points[:, 0] > 0.499999) == pytest.approx(1 / 6, abs=0.02)


def test_the_jaw_is_there_at_every_opening_and_rides_on_the_gripper(settings):
    spheres = link_spheres(settings)
    jaw = np.array(spheres.part) == JAW
    assert jaw.sum() == settings.per_link[JAW] * len(settings.jaw_angles_rad)
    assert {link for link, part in zip(spheres.link, spheres.part, strict=True) if part == JAW} == {"gripper_link"}
