"""The twin behind a servo bus as a world in lock-step."""

from __future__ import annotations

import numpy as np
import pytest

from so101.config import load_config
from so101.evaluation.closed_loop.bus_world import BusWorld
from so101.robot.base import BusError, CommandRefused
from so101.robot.virtual.pseudo_real import draw_rig
from so101.sim import make_simulator
from so101.tasks.operator import ScriptedOperator
from so101.tasks.success import judge

SMALL = 0.125  # of the cameras


@pytest.fixture(scope="module")
def config():
    return load_config(overrides=["task.name=vial_to_rack", f"cameras.scale={SMALL}"])


@pytest.fixture(scope="module")
def world(config):
    """Its rig is nominal below seed 100, pseudo-real from there on."""
    with BusWorld(config, lambda seed: draw_rig(config, seed, 0.0 if seed < 100 else 1.0)) as world:
        yield world


def _wave(world: BusWorld, steps: int) -> list[np.ndarray]:
    """What is measured and true while the arm waves."""
    begin, seen = world.measured(), []
    for k in range(steps):
        sent = world.act(begin + 0.2 * np.sin(k / 10))
        seen += [sent, world.measured(), *world.objects().values()]
    return seen


def _sent_home(world: BusWorld) -> list[np.ndarray]:
    """What is measured while the driver brings the arm home by itself."""
    world.reset(5)
    begin, seen = world.measured(), []
    for _ in range(10):
        world.act(begin + 0.3)
    world.driver.disarm(wait=False)
    for _ in range(20):
        seen += [world.act(begin), world.measured()]
    return seen


def test_what_the_driver_does_by_itself_is_the_same_every_time(world):
    first, again = _sent_home(world), _sent_home(world)
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert "returning" in world.refusals[0]


@pytest.mark.parametrize("seed", [5, 105])
def test_an_episode_is_a_function_of_its_seed_whatever_was_before(world, seed):
    world.reset(seed)
    first = _wave(world, 20)
    world.reset(seed + 1)
    other = _wave(world, 20)
    world.reset(seed)
    assert all((a == b).all() for a, b in zip(first, _wave(world, 20), strict=True))
    assert any((a != b).any() for a, b in zip(first, other, strict=True))


def test_it_begins_as_attempts_of_skillgen_do(world, config, vial_runner):
    demo = vial_runner.run(3)
    world.reset(demo.seed)
    assert all((pose == demo.objects[name][0]).all() for name, pose in world.objects().items())
    zero_error = draw_rig(config, demo.seed).zero_error_rad if demo.seed >= 100 else 0.0
    assert np.abs(world._plant.truth().q + zero_error - demo.q[0]).max() < 1e-9


def test_the_arm_is_measured_at_its_start_though_its_zero_is_wrong(world, config):
    tick = 2 * np.pi / 4096
    world.reset(105)
    measured = world.measured()
    zero_error = draw_rig(config, 105).zero_error_rad
    true, _ = world._plant.truth().q, world.reset(5)
    assert np.abs(measured - zero_error - true).max() < tick
    home = np.array([joint.home_rad for joint in config.robot.joints])
    assert np.abs(measured - home).max() <= config.skillgen.start_noise_rad + tick


def test_a_nominal_rig_follows_as_the_twin_does(world, config):
    world.reset(5)
    simulator = make_simulator(config)
    begin = world.measured()
    simulator.reset(0, begin, world.objects())
    for k in range(40):
        target = begin + 0.3 * np.sin(k / 15)
        world.act(target)
        simulator.step(0, target)
    assert np.abs(world.measured() - simulator.joint_positions(0)).max() < 0.005  # whole ticks


@pytest.mark.parametrize("seed", [7, 107])
def test_what_works_in_the_twin_places_the_vial_over_the_bus(world, config, seed):
    world.reset(seed)
    plan = ScriptedOperator(config).demo(0, world.objects())
    q, objects = [], {name: [] for name in world.objects()}
    for target in [*plan.q_target, *[plan.q_target[-1]] * 15]:
        world.act(target)
        q.append(world.measured())
        for name, pose in world.objects().items():
            objects[name].append(pose)
    verdict = judge(config, {name: np.array(poses) for name, poses in objects.items()}, np.array(q))
    assert verdict.strict, verdict
    assert not world.refusals and world.meta["limited"].keys() <= {"joint limits", "lead", "step", "speed", "floor"}


def test_the_driver_limits_what_is_sent(world, config):
    world.reset(5)
    begin = world.measured()
    sent = world.act(begin + 1.0)
    assert (np.abs(sent - begin) <= np.array(config.robot.safety.max_step_rad) + 2e-3).all()
    assert "speed" in world.meta["limited"] or "step" in world.meta["limited"]
    with pytest.raises(CommandRefused, match="six finite joints"):
        world.act(np.full(6, np.nan))


def test_an_arm_that_was_stopped_holds_and_says_so_once(world):
    world.reset(5)
    world.act(world.measured() + 0.1)
    world.driver.stop()
    goal = world.driver.read().goal_rad
    for _ in range(3):
        assert (world.act(world.measured() + 0.5) == goal).all()
    assert len(world.refusals) == 1 and "emergency stop" in world.refusals[0]


def test_cameras_of_a_rig_see_something_else(world, config):
    size = (config.cameras.height_px, config.cameras.width_px, 3)
    pictures = {}
    for seed in (5, 105):
        world.reset(seed)
        _, pictures[seed] = world.look()
        assert {name: (p.shape, p.dtype) for name, p in pictures[seed].items()} == dict.fromkeys(
            config.cameras.names, (size, np.dtype(np.uint8))
        )
    for name in config.cameras.names:
        assert np.abs(pictures[5][name].astype(int) - pictures[105][name]).mean() > 2


def test_servos_that_do_not_answer_are_no_failure_of_the_policy(world, monkeypatch):
    world.reset(5)
    monkeypatch.setattr(world._arm, "read", lambda: (_ for _ in ()).throw(BusError("silence")))
    with pytest.raises(BusError, match="did not answer within 30 s, though time waits"):
        world.act(world.measured())


def test_at_the_end_the_arm_is_home_and_released(config):
    world = BusWorld(config)
    world.reset(5)
    for _ in range(10):
        world.act(world.measured() + 0.15)
    bus = world._bus
    world.close()
    world.close()
    home = np.array([joint.home_rad for joint in config.robot.joints])
    assert not bus.state().torque_on.any()
    assert np.abs(world._plant.truth().q - home)[:5].max() < 0.16
