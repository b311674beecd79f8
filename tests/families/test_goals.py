"""Goals: zero shortfall exactly where they hold, distances worked by hand, laws of their combinations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from so101.families.declaration import AtPoint, Goal, Region, find_task
from so101.families.goals import (
    Above,
    AllOf,
    AnyOf,
    AtRegion,
    Near,
    Negated,
    OnRegion,
    ReachPoint,
    holds,
    make_goal,
    points_of,
    rotate,
)
from tests.families.worlds import features

REGION = Region(origin_m=(0.3, 0.0, 0.02), rect_m=(-0.1, -0.2, 0.1, 0.2), half_height_m=0.03)
length = st.floats(-1.0, 1.0, allow_subnormal=False)
point = st.tuples(length, length, length)


def both(subject, target=(0.0, 0.0, 0.0)):
    return features(bodies={"a": subject, "b": target})


@pytest.mark.parametrize(
    ("goal", "f", "shortfall_m"),
    [
        (Near("a", "b", 0.045), both((0.0, 0.0, 0.045)), 0.0),
        (Near("a", "b", 0.045), both((0.3, 0.4, 0.0)), 0.455),
        (Near("a", "b", 0.06), both((0.0, 0.06, 0.08)), 0.04),
        (Above("a", "b", 0.05), both((0.0, 0.0, 0.0145), (0.32, 0.0, 0.001)), 0.0365),
        (Above("a", "b", 0.05), both((5.0, -3.0, 0.0511), (0.32, 0.0, 0.001)), 0.0),
        (AtRegion("s", REGION), features(sites={"s": (0.3, 0.0, 0.02)}), 0.0),
        (AtRegion("s", REGION), features(sites={"s": (0.399, 0.199, 0.0499)}), 0.0),
        (AtRegion("s", REGION), features(sites={"s": (0.3, 0.0, 0.08)}), 0.03),
        (AtRegion("s", REGION), features(sites={"s": (0.3, 0.0, -0.05)}), 0.04),
        (AtRegion("s", REGION), features(sites={"s": (0.43, 0.24, 0.02)}), 0.05),
        (OnRegion("a", REGION, 0.005, 0.08), both((0.3, 0.0, 0.015)), 0.0),
        (OnRegion("a", REGION, 0.005, 0.08), both((0.3, 0.0, 0.0999)), 0.0),
        (OnRegion("a", REGION, 0.005, 0.08), both((0.3, 0.0, 0.12)), 0.02),
        (OnRegion("a", REGION, 0.005, 0.08), both((0.3, 0.0, 0.005)), 0.01),
    ],
)
def test_shortfall_by_hand(goal, f, shortfall_m):
    assert goal.shortfall_m(f)[0] == pytest.approx(shortfall_m, abs=1e-12)
    assert holds(goal, f)[0] == (shortfall_m == 0.0)


def test_the_desk_has_a_height_above_which_the_gripper_is_no_longer_over_it():
    """A half height of 0.12 m let an untrained policy in everywhere: the site must be within 3 cm."""
    goal = make_goal(find_task("so101_tower_reach_clear"))
    heights = np.array([-0.0281, -0.0279, 0.0, 0.0319, 0.0321, 0.122])
    sites = np.column_stack([np.full(6, 0.3), np.zeros(6), heights])
    assert holds(goal, features(sites={"gripperframe": sites})).tolist() == [False, True, True, True, False, False]


@given(point, point, st.floats(0.001, 1.0))
def test_near_is_symmetric_and_holds_iff_the_distance_is_within(a, b, radius):
    goal, f = Near("a", "b", radius), both(a, b)
    distance = np.linalg.norm(np.subtract([b], a), axis=-1)[0]
    assert goal.shortfall_m(f)[0] == pytest.approx(Near("b", "a", radius).shortfall_m(f)[0])
    assert holds(goal, f)[0] == (distance <= radius)


@given(point, point)
def test_above_does_not_see_x_and_y(a, b):
    goal = Above("a", "b", 0.05)
    moved = both((a[0] + 1.0, a[1] - 2.0, a[2]), b)
    assert goal.shortfall_m(both(a, b)) == goal.shortfall_m(moved)


@given(point)
def test_a_point_outside_a_region_gets_in_by_walking_the_shortfall(at):
    goal, f = AtRegion("s", REGION), features(sites={"s": at})
    low, high = np.array([0.2, -0.2, -0.01]), np.array([0.4, 0.2, 0.05])
    nearest = np.clip(at, low, high)
    assert goal.shortfall_m(f)[0] == pytest.approx(np.linalg.norm(nearest - at), abs=1e-12)


@given(point, point)
def test_combinations(a, b):
    f = both(a, b)
    near, above = Near("a", "b", 0.5), Above("a", "b", 0.1)
    every, some = AllOf([near, above]), AnyOf([near, above])
    assert holds(every, f)[0] == (holds(near, f)[0] and holds(above, f)[0])
    assert holds(some, f)[0] == (holds(near, f)[0] or holds(above, f)[0])
    assert every.shortfall_m(f)[0] == max(near.shortfall_m(f)[0], above.shortfall_m(f)[0])
    assert some.shortfall_m(f)[0] == min(near.shortfall_m(f)[0], above.shortfall_m(f)[0])
    assert holds(Negated([near]), f)[0] != holds(near, f)[0]
    assert holds(Negated([Negated([near])]), f)[0] == holds(near, f)[0]
    both_not, one_not = Negated([some]), AllOf([Negated([near]), Negated([above])])
    assert holds(both_not, f)[0] == holds(one_not, f)[0]  # De Morgan


def test_lanes_do_not_mix():
    f = features(bodies={"a": [(0, 0, 0), (0, 0, 0.3), (0, 0, 0.06)], "b": (0, 0, 0)})
    assert Above("a", "b", 0.05).shortfall_m(f) == pytest.approx([0.05, 0.0, 0.0])


def test_points_are_drawn_in_the_spherical_shell():
    declared = AtPoint(
        site="s", radius_m=0.02, azimuth_rad=(-1.0, 1.0), elevation_rad=(0.2, 0.9), distance_m=(0.2, 0.3),
        center_m=(0.0, 0.0, 0.05),
    )  # fmt: skip
    goal, rng = ReachPoint(declared), np.random.default_rng(0)
    drawn = np.array([goal.draw(rng) for _ in range(500)]) - declared.center_m
    distance = np.linalg.norm(drawn, axis=1)
    elevation, azimuth = np.arcsin(drawn[:, 2] / distance), np.arctan2(drawn[:, 1], drawn[:, 0])
    for values, (low, high) in ((distance, (0.2, 0.3)), (elevation, (0.2, 0.9)), (azimuth, (-1.0, 1.0))):
        assert low <= values.min() < low + 0.05 * (high - low)
        assert high >= values.max() > high - 0.05 * (high - low)
    f = features(sites={"s": (0.1, 0.0, 0.0)}, target=(0.1, 0.0, 0.05))
    assert goal.shortfall_m(f)[0] == pytest.approx(0.03)
    assert points_of(AllOf([AtRegion("s", REGION), goal])) == [goal]


def test_rotate_turns_as_a_quaternion_does():
    half = np.sqrt(0.5)
    quats = np.array([[1, 0, 0, 0], [half, 0, 0, half], [half, half, 0, 0]])
    turned = rotate(quats, np.array([1.0, 0.0, 2.0]))
    np.testing.assert_allclose(turned, [[1, 0, 2], [0, 1, 2], [1, -2, 0]], atol=1e-12)


def test_a_vial_in_an_opening_is_seated_wherever_the_rack_stands():
    task = find_task("so101_vial_to_rack")
    goal = make_goal(task)
    strict = task.family.config.task.tasks["vial_to_rack"].success.strict
    height = (strict.min_height_m + strict.max_height_m) / 2
    turn, rack = np.array([np.cos(0.4), 0.0, 0.0, np.sin(0.4)]), np.array([0.2, -0.1, 0.01])
    opening = np.array([[*goal.openings[0], height]])
    seated = rack + rotate(turn[None], opening)[0]
    upright, lying = (1.0, 0.0, 0.0, 0.0), (np.sqrt(0.5), np.sqrt(0.5), 0.0, 0.0)
    f = features(
        bodies={"vial": [seated, seated + (0, 0, 0.1), seated], "rack": rack},
        rotations={"vial": [upright, upright, lying], "rack": turn},
    )
    beyond = height + 0.1 - strict.max_height_m
    lean = 0.05 * strict.min_upright_cos
    assert goal.shortfall_m(f) == pytest.approx([0.0, beyond, lean], abs=1e-9)


def test_a_goal_is_exactly_one_term():
    with pytest.raises(ValueError, match="exactly one of near, above"):
        Goal(
            near={"subject": "a", "target": "b", "radius_m": 0.1},
            above={"subject": "a", "target": "b", "margin_m": 0.1},
        )
    with pytest.raises(ValueError, match="given: none"):
        Goal()
