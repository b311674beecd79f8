"""The twin behind the servos does what the twin does, and what a rig does besides."""

from __future__ import annotations

import numpy as np
import pytest

from so101.errors import SimulationError
from so101.geometry import pose_to_pos_quat
from so101.robot.virtual.pseudo_real import NOMINAL, RigDraw, draw_rig
from so101.robot.virtual.twin_plant import TwinPlant
from so101.sim import make_simulator
from so101.tasks.placement import nominal_placements

FULL = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 0.5])  # the jaw as the driver sets it up
SOFT = np.ones(6)


@pytest.fixture(scope="module")
def plant(vial_config):
    return TwinPlant(vial_config)


def _home(config) -> np.ndarray:
    return np.array([joint.home_rad for joint in config.robot.joints])


def _run(plant: TwinPlant, target: np.ndarray, seconds: float, strength: np.ndarray = FULL) -> np.ndarray:
    for _ in range(round(seconds / plant.step_s)):
        plant.step(target, strength, SOFT)
    return plant.truth().q


def test_a_nominal_rig_is_the_twin_to_the_last_bit(vial_config, vial_seeds, plant):
    """A demonstration through the plant ends as it does in the simulator, with the task done."""
    seed = vial_seeds[0]
    simulator = make_simulator(vial_config)
    start = {name: pose_to_pos_quat(poses[0]) for name, poses in seed.objects.items()}
    simulator.reset(0, seed.q[0], start)
    plant.reset(start, q=seed.q[0])
    for target in seed.q_target:
        simulator.step(0, target)
        for _ in range(vial_config.scene.physics.substeps):
            plant.step(target, FULL, SOFT)
    truth = plant.truth()
    assert (truth.q == simulator.joint_positions(0)).all()
    assert all((truth.objects[name] == simulator.object_pose(0, name)).all() for name in start)
    assert plant.verdict().strict


def test_nothing_is_done_right_after_a_reset(plant):
    plant.reset()
    assert not plant.verdict().strict


def test_a_limp_joint_is_moved_by_gravity_only_and_a_weak_one_gives_way(vial_config, plant):
    stretched = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    plant.reset(q=stretched)
    held = _run(plant, stretched, 1.0)
    plant.reset(q=stretched)
    fallen = _run(plant, stretched, 1.0, strength=np.zeros(6))
    assert np.abs(held - stretched).max() < 0.2
    assert np.abs(fallen - stretched).max() > 0.3
    assert plant.state()[2] == pytest.approx(np.zeros(6))


def test_a_stuck_joint_stays_and_pushes_until_it_is_free(vial_config, plant):
    home = _home(vial_config)
    plant.reset(q=home)
    plant.stuck[0] = True
    target = home + [0.3, 0, 0, 0, 0, 0]
    assert _run(plant, target, 1.0)[0] == pytest.approx(home[0], abs=5e-3)
    assert plant.state()[2][0] > 0.5
    plant.stuck[0] = False
    assert _run(plant, target, 1.0)[0] == pytest.approx(target[0], abs=0.02)


def test_backlash_is_lost_when_the_direction_turns(vial_config):
    home, play = _home(vial_config), 0.05
    plant = TwinPlant(vial_config, RigDraw(backlash_rad=np.full(6, play)))
    there = _run(plant, home + [0.3, 0, 0, 0, 0, 0], 1.5)[0]
    back = _run(plant, home, 1.5)[0]
    assert there - home[0] == pytest.approx(0.3 - play / 2, abs=0.01)
    assert back - home[0] == pytest.approx(play / 2, abs=0.01)


def test_a_zero_error_is_in_what_is_measured_and_in_where_it_goes(vial_config):
    home, error = _home(vial_config), np.array([0.05, 0, 0, 0, 0, 0])
    plant = TwinPlant(vial_config, RigDraw(zero_error_rad=error))
    assert plant.state()[0] == pytest.approx(home + error)
    target = home + [0.2, 0, 0, 0, 0, 0]
    assert _run(plant, target, 1.5)[0] == pytest.approx(target[0] - 0.05, abs=0.01)
    assert plant.state()[0][0] == pytest.approx(target[0], abs=0.01)


def test_objects_are_put_where_they_shall_be_or_where_the_seed_says(vial_config, plant):
    nominal = nominal_placements(vial_config)
    shifted = {name: pose + [0.01, 0, 0, 0, 0, 0, 0] for name, pose in nominal.items()}
    plant.reset(shifted)
    assert all(plant.truth().objects[name] == pytest.approx(pose) for name, pose in shifted.items())
    plant.reset(seed=3)
    first = plant.truth().objects
    plant.reset(seed=4)
    assert any(np.abs(first[name] - pose).max() > 1e-3 for name, pose in plant.truth().objects.items())
    plant.reset(seed=3)
    assert all((first[name] == pose).all() for name, pose in plant.truth().objects.items())


def test_wrong_placements_are_named(vial_config, plant):
    nominal = nominal_placements(vial_config)
    with pytest.raises(SimulationError, match="no object 'cup' in this scene; it has"):
        plant.reset({"cup": nominal["vial"]})
    with pytest.raises(SimulationError, match="vial cannot be put at .*unit quaternion"):
        plant.reset({**nominal, "vial": np.zeros(7)})


def test_equal_seeds_draw_equal_rigs_inside_the_ranges(vial_config):
    ranges = vial_config.robot.virtual.pseudo_real
    rigs = [draw_rig(vial_config, seed) for seed in range(8)]
    assert repr(draw_rig(vial_config, 3)) == repr(rigs[3]) != repr(rigs[4])
    for rig in rigs:
        assert (np.abs(rig.zero_error_rad) <= ranges.zero_error_rad[1]).all()
        assert (rig.backlash_rad >= ranges.backlash_rad[0]).all() and (rig.backlash_rad <= ranges.backlash_rad[1]).all()
        assert ranges.reply_delay_s[0] <= rig.reply_delay_s <= ranges.reply_delay_s[1]
        assert set(rig.physics) == {"joints"}
        assert set(rig.looks["cameras"]) == set(vial_config.cameras.names)


def test_a_pseudo_real_rig_goes_near_the_same_places_but_not_to_them(vial_config, plant):
    home = _home(vial_config)
    target = home + 0.2
    plant.reset(q=home)
    there = _run(plant, target, 1.5)
    other = TwinPlant(vial_config, draw_rig(vial_config, 1), q=home)
    difference = np.abs(_run(other, target, 1.5) - there)
    assert 1e-4 < difference.max() < 0.05
    assert NOMINAL.physics == {} and other.randomisation["physics"]["joints"]
