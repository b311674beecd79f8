"""What the collision check sees, which clearance a transit keeps, and the order in which ways are tried."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from so101.config import load_config
from so101.geometry import invert_pose, pose_from_pos_quat
from so101.kinematics import make_ik
from so101.sim.mujoco_sim import MujocoSimulator
from so101.skillgen.transit import HeldObject, TransitPlanner
from so101.tasks.placement import nominal_placements

WIDE, NARROW = 0.03, 0.01
HOME = np.array([-0.15, -0.61, -0.07, 1.51, 1.57])
JAW = 0.5


def planner(*overrides: str) -> TransitPlanner:
    config = load_config(overrides=["task.name=three_vials_to_rack", *overrides])
    simulator = MujocoSimulator(config)
    transits = TransitPlanner(config, simulator, make_ik(config, simulator.kinematics))
    transits.objects = nominal_placements(config)
    transits.simulator, transits.config = simulator, config
    transits.checker.start(transits.objects)
    return transits


@pytest.fixture(scope="module")
def transits():
    return planner()


def over_objects(rng: np.random.Generator, n: int) -> np.ndarray:
    """(n, 5) joints with the hand low over the table, where there is something to hit."""
    return np.column_stack([
        rng.uniform(-1.0, 1.0, n), rng.uniform(-0.6, 0.8, n), rng.uniform(-0.8, 0.6, n), rng.uniform(0.3, 1.6, n),
        rng.uniform(0.5, 2.6, n),
    ])  # fmt: skip


def distances(simulator: MujocoSimulator, q: np.ndarray, objects: dict, reach: float) -> dict[tuple[str, str], float]:
    """(arm body, object or mat) -> distance below `reach`, from every pair of geoms that can collide, one by one."""
    model, data = simulator.model, mujoco.MjData(simulator.model)
    data.qpos[:6] = q
    for name, pose in objects.items():
        data.qpos[simulator.object_slice(name)] = pose
    mujoco.mj_kinematics(model, data)
    statics = set(simulator.config.scene.statics)
    found: dict[tuple[str, str], float] = {}
    for a in range(model.ngeom):
        for b in range(model.ngeom):
            names = model.body(model.geom_bodyid[a]).name, model.body(model.geom_bodyid[b]).name
            if names[0] in objects or names[0] in statics or not (names[1] in objects or names[1] in statics):
                continue
            collide = (model.geom_contype[a] & model.geom_conaffinity[b]) | (
                model.geom_contype[b] & model.geom_conaffinity[a]
            )
            if not collide or not model.geom_bodyid[a]:
                continue
            distance = mujoco.mj_geomDistance(model, data, a, b, reach, None)
            if distance < reach:
                found[names] = min(distance, found.get(names, np.inf))
    return found


# The check


def test_everything_nearer_than_the_widest_clearance_is_seen_and_nothing_else(transits):
    """Two geoms' margins add up in MuJoCo: half the clearance each."""
    model, seen, of_boxes = transits.simulator.model, 0, []
    names = {i: model.body(i).name for i in range(model.nbody)}
    for q in over_objects(np.random.default_rng(0), 30):
        q = np.append(q, JAW)
        transits.checker.start(transits.objects)
        near = {(names[a], names[b]): d for (a, b), d in transits.checker.near(q, None).items()}
        expected = distances(transits.simulator, q, transits.objects, WIDE)
        for pair in set(near) | set(expected):
            d = near.get(pair, WIDE), expected.get(pair, WIDE)
            if pair[1] == "rack":  # boxes on boxes: MuJoCo's distance between two edges is not exact
                of_boxes.append(abs(d[0] - d[1]) < 1e-3)
            elif min(d) > 0:  # how deep a penetration is differs by method
                assert d[0] == pytest.approx(d[1], abs=1e-3)
                seen += WIDE > d[0] > NARROW
            else:
                assert max(d) < 2e-3
    assert seen > 10 and np.mean(of_boxes) > 0.7


def test_a_held_object_moves_with_the_hand_and_is_checked_against_the_rest(transits):
    """A vial in the hand over the rack is near the rack; the hand is not, and the vial no longer lies on the table."""
    checker, simulator = transits.checker, transits.simulator
    q = np.append(HOME, 0.2)
    T_base_obj = pose_from_pos_quat(transits.objects["vial_1"])
    held = HeldObject("vial_1", invert_pose(simulator.fk(q)) @ T_base_obj)  # as if it were in the hand from afar
    names = {i: simulator.model.body(i).name for i in range(simulator.model.nbody)}
    checker.start(transits.objects)
    before = {(names[a], names[b]) for a, b in checker.near(q, held)}
    assert ("vial_1", "floor") in before or any(a == "vial_1" for a, _ in before)  # it lies where it lay
    up = q.copy()
    up[1] -= 0.4
    after = {(names[a], names[b]) for a, b in checker.near(up, held)}
    assert not any(a == "vial_1" and b not in simulator.config.objects for a, b in after)
    assert all("vial_1" != b for _, b in before | after)  # what is held is no obstacle


def test_of_the_arm_alone_the_held_object_does_not_count(transits):
    checker, simulator = transits.checker, transits.simulator
    held = HeldObject("vial_1", np.eye(4))
    for q in over_objects(np.random.default_rng(1), 8):
        q = np.append(q, JAW)
        checker.start(transits.objects)
        expected = distances(simulator, q, transits.objects, WIDE)
        rack = min((d for (_, b), d in expected.items() if b == "rack"), default=WIDE)
        if rack > 0:
            assert checker.arm_distance(q, "rack", held) == pytest.approx(rack, abs=1e-3)


def test_clear_of_names_only_what_it_was_asked_about(transits):
    checker = transits.checker
    for q in over_objects(np.random.default_rng(2), 8):
        q = np.append(q, JAW)
        checker.start(transits.objects)
        own = {name: checker.arm_distance(q, name, None) for name in transits.objects}
        for name, distance in own.items():
            if distance < WIDE:
                assert checker.clear_of(q, [name], distance - 1e-9)
                assert not checker.clear_of(q, [name], distance + 1e-9)
            else:
                assert checker.clear_of(q, [name], WIDE)


# What is near an end


@pytest.mark.parametrize(
    ("distances_m", "free"),
    [
        ([0.05, 0.05, 0.05, 0.05, 0.05], True),
        ([0.05, 0.05, 0.005, 0.05, 0.05], False),  # near in the middle
        ([0.005, 0.05, 0.05, 0.05, 0.05], True),  # only where the way begins
        ([0.05, 0.05, 0.05, 0.05, 0.0], True),  # only where it ends
        ([0.005, 0.0092, 0.05, 0.05, 0.05], True),  # moving away as fast as asked
        ([0.005, 0.0065, 0.05, 0.05, 0.05], False),  # lingering beside it
        ([0.05, 0.05, 0.05, 0.0042, 0.0], True),
        ([0.05, 0.05, 0.05, 0.0015, 0.0], False),
        ([0.005, 0.05, 0.05, 0.05, 0.0], True),
    ],
)
def test_what_is_near_an_end_is_excused_near_that_end_alone(monkeypatch, distances_m, free):
    """Five rows at even distances, 1 cm asked for; from what an end has 16 mm more over the whole way, 4 mm a row."""
    checker = planner("skillgen.transit.check_stride=1", "skillgen.transit.penetration_m=0.0005").checker
    path = HOME + np.arange(5)[:, None] * [0.1, 0, 0, 0, 0]
    pair = checker._id["gripper"], checker._id["rack"]
    monkeypatch.setattr(checker, "near", lambda q, held: {pair: distances_m[round((q[0] - HOME[0]) / 0.1)]})
    assert checker.free(path, JAW, None, 0.01, 0.016) == free


@pytest.mark.parametrize(("distance", "free"), [(0.0, True), (-0.0004, True), (-0.0006, False)])
def test_the_table_need_only_not_be_penetrated(monkeypatch, distance, free):
    checker = planner("skillgen.transit.check_stride=1", "skillgen.transit.penetration_m=0.0005").checker
    pair = checker._id["gripper"], checker._id[next(iter(checker._simulator.config.scene.statics))]
    monkeypatch.setattr(checker, "near", lambda q, held: {pair: distance if 0 < q[0] - HOME[0] < 0.35 else 0.05})
    assert checker.free(HOME + np.arange(5)[:, None] * [0.1, 0, 0, 0, 0], JAW, None, 0.01, 0.016) == free


# Clearances


class Judge:
    """Takes the place of `checker.free`: notes what it was asked and says what it was told to."""

    def __init__(self, says):
        self.says, self.asked = says, []

    def __call__(self, path, jaw, held, clearance_m, end_slope_m):
        self.asked.append((clearance_m, path))
        return self.says(len(self.asked), clearance_m)


def ways(transits: TransitPlanner, q_from: np.ndarray, q_to: np.ndarray) -> list[list[np.ndarray]]:
    return list(transits._candidates(q_from, q_to, transits.simulator.fk(q_to)))


def asked(transits, monkeypatch, says) -> tuple[np.ndarray | None, Judge]:
    judge = Judge(says)
    monkeypatch.setattr(transits.checker, "free", judge)
    q_to = HOME + [0.6, 0.7, -0.3, -0.2, 0.0]
    path = transits.plan(HOME, q_to, transits.simulator.fk(q_to), JAW, None, transits.objects)
    return path, judge


def test_the_straight_way_is_taken_at_the_widest_clearance_where_it_is_free(transits, monkeypatch):
    path, judge = asked(transits, monkeypatch, lambda call, clearance: True)
    assert [clearance for clearance, _ in judge.asked] == [WIDE]
    np.testing.assert_allclose(path, transits._timed([HOME, HOME + [0.6, 0.7, -0.3, -0.2, 0.0]]))


def test_a_narrower_clearance_is_used_only_when_no_way_keeps_the_wider_one(transits, monkeypatch):
    number = len(ways(transits, HOME, HOME + [0.6, 0.7, -0.3, -0.2, 0.0]))
    path, judge = asked(transits, monkeypatch, lambda call, clearance: clearance == NARROW)
    assert path is not None
    assert [clearance for clearance, _ in judge.asked] == [WIDE] * number + [NARROW]
    np.testing.assert_array_equal(judge.asked[0][1], judge.asked[-1][1])  # from the first way on again
    path, judge = asked(transits, monkeypatch, lambda call, clearance: call == number)  # the last at the widest
    assert path is not None and [clearance for clearance, _ in judge.asked] == [WIDE] * number


def test_ways_are_worked_out_once_for_all_clearances_and_none_is_none(transits, monkeypatch):
    solved = []
    monkeypatch.setattr(transits, "_raised", lambda q, T, lift: solved.append(lift) or q)
    path, judge = asked(transits, monkeypatch, lambda call, clearance: False)
    assert path is None
    steps = round(transits.settings.max_lift_m / transits.settings.lift_step_m)
    assert len(solved) == 2 * steps + 1  # each height over the goal, and each over the start
    assert len(judge.asked) == 2 * (1 + (steps + 1) + 2 * steps)


def test_a_path_keeps_the_clearance_to_what_is_not_at_its_ends(transits):
    """Along the way found from left to right over the vials nothing is nearer than what was promised."""
    simulator, found = transits.simulator, 0
    for q_from, q_to in (
        (HOME - [0.5, 0, 0, 0, 0], HOME + [0.6, 0, 0, 0, 0]),
        (HOME, HOME + [-0.2, 0.9, -0.5, 0.0, 0]),
    ):
        path = transits.plan(q_from, q_to, simulator.fk(q_to), JAW, None, transits.objects)
        if path is None:
            continue
        ends = {pair for q in (q_from, path[-1]) for pair in distances(
            simulator, np.append(q, JAW), transits.objects, WIDE)}  # fmt: skip
        decay = transits._decays[0]
        for q in transits._followed(q_from, path, decay)[1:-1:6]:
            for pair, d in distances(simulator, np.append(q, JAW), transits.objects, WIDE).items():
                if pair[1] in transits.config.objects and pair not in ends:
                    assert d > NARROW - 1e-3
        found += 1
    assert found


# Ways


def test_ways_go_higher_and_higher_over_the_goal_then_first_up_from_where_the_hand_is(transits):
    q_to, fk = HOME + [0.6, 0.7, -0.3, -0.2, 0.0], transits.simulator.fk
    straight, *rest = ways(transits, HOME, q_to)
    steps = round(transits.settings.max_lift_m / transits.settings.lift_step_m)
    over_goal, first_up = rest[: steps + 1], rest[steps + 1 :]
    assert straight == []
    back = q_to[0] + transits.settings.swing_back * (HOME[0] - q_to[0])
    for k, via in enumerate(over_goal):
        assert via[0][0] == pytest.approx(back, abs=0.05)  # most of the pan is done last
        assert fk(via[-1])[2, 3] - fk(q_to)[2, 3] == pytest.approx(k * transits.settings.lift_step_m, abs=0.01)
    assert len(first_up) == 2 * steps
    for k, via in enumerate(first_up):
        lift = (k // 2 + 1) * transits.settings.lift_step_m
        start = fk(HOME)
        assert fk(via[0])[2, 3] - start[2, 3] == pytest.approx(lift, abs=0.015)
        assert np.linalg.norm(fk(via[0])[:2, 3] - start[:2, 3]) < 0.01  # up, not aside
        np.testing.assert_array_equal(via[-1], over_goal[k // 2 + 1][-1])


# Slow servos


def test_a_path_must_be_free_for_servos_of_every_lag(monkeypatch):
    slow = planner("skillgen.transit.lag_scales=[1.0, 2.5]")
    path, judge = asked(slow, monkeypatch, lambda call, clearance: True)
    (_, quick), (_, late) = judge.asked
    assert np.abs(late - quick).max() > 0.02
    behind = [np.abs(followed[: len(path)] - path).max() for followed in (quick, late)]
    assert behind[1] > 1.5 * behind[0]
    path, judge = asked(slow, monkeypatch, lambda call, clearance: call != 2)  # free, but not for the slow one
    assert len(judge.asked) == 4 and path is not None
    np.testing.assert_array_equal(judge.asked[0][1], quick)


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_the_followed_path_is_that_of_first_order_servos(scale):
    slow = planner(f"skillgen.transit.lag_scales=[{scale}]")
    lag = scale * np.array([joint.lag_s for joint in slow.config.robot.joints[:5]])
    held = np.tile(HOME + 0.1, (200, 1))
    followed = slow._followed(HOME, held, slow._decays[0])
    t = slow.simulator.control_dt * np.arange(1, len(followed) + 1)[:, None]
    np.testing.assert_allclose(followed, HOME + 0.1 * (1 - np.exp(-t / lag)), atol=1e-9)
    assert len(followed) == 200 + slow.settings.min_frames - 1  # it comes to rest before the last check


# Goals


def test_a_good_hint_is_the_goal_and_the_search_ends_there(transits):
    q = np.array([0.2, 0.1, 0.2, 0.9, 1.4])
    np.testing.assert_allclose(transits.goal(HOME, transits.simulator.fk(q), q), q, atol=2e-3)
    T = transits.simulator.fk(q)
    reached = transits.simulator.fk(transits.goal(HOME, T))
    assert np.linalg.norm(reached[:3, 3] - T[:3, 3]) < transits.settings.goal_tolerance_m
