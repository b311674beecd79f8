"""The twin as a world: what it begins with and does is what an attempt begins with and does."""

import numpy as np
import pytest

from so101.config import load_config
from so101.evaluation.closed_loop import TwinWorld, run_episode
from so101.policies import PolicyOptions, make_policy
from so101.rendering.renderer import StateRenderer

SMALL = ["task.name=vial_to_rack", "cameras.scale=0.125", "render.setting=fast"]


@pytest.fixture(scope="module")
def demo(vial_runner):
    return next(demo for index in range(10) if (demo := vial_runner.run(index)).strict)


@pytest.fixture(scope="module")
def small():
    return load_config(overrides=SMALL)


@pytest.fixture
def world(small):
    made = TwinWorld(small)
    yield made
    made.close()


def test_a_seed_begins_as_the_attempt_with_this_seed(world, demo):
    world.reset(demo.seed)
    np.testing.assert_array_equal(world.physics_state, demo.physics_state)
    np.testing.assert_array_equal(world.measured(), demo.q[0])
    for name, pose in world.objects().items():
        np.testing.assert_array_equal(pose, demo.objects[name][0])
    assert world.meta["randomisation"] == demo.meta["randomisation"]


def test_the_commands_of_an_attempt_do_the_same_again_bit_for_bit(world, demo):
    world.reset(demo.seed + 1)
    world.act(demo.q_target[0])
    world.reset(demo.seed)  # what ran before is gone
    for t in range(demo.num_frames):
        np.testing.assert_array_equal(world.measured(), demo.q[t])
        np.testing.assert_array_equal(world.act(demo.q_target[t]), demo.q_target[t])


def test_commands_beyond_the_joint_limits_are_cut(world, small):
    world.reset(1)
    limits = np.array([[joint.lower_rad, joint.upper_rad] for joint in small.robot.joints])
    np.testing.assert_array_equal(world.act(np.full(6, 9.0)), limits[:, 1])
    np.testing.assert_array_equal(world.act(np.full(6, -9.0)), limits[:, 0])


def test_looking_passes_no_time_and_shows_what_a_dataset_would(world, small):
    world.reset(1)
    before = world.physics_state
    q, pictures = world.look()
    np.testing.assert_array_equal(q, world.measured())
    renderer = StateRenderer(small)
    renderer.set_state(q, world.objects())
    for name, picture in pictures.items():
        assert picture.shape == (60, 80, 3)
        np.testing.assert_array_equal(picture, renderer.render_state(name))
    renderer.close()
    world.reset(1)
    np.testing.assert_array_equal(world.physics_state, before)


def test_only_the_cameras_asked_for_are_drawn(small):
    world = TwinWorld(small, cameras=["top"])
    world.reset(1)
    assert list(world.look()[1]) == ["top"]
    world.close()


def test_physics_and_looks_are_drawn_anew_where_the_settings_say_so():
    config = load_config(overrides=[*SMALL, "scene.randomisation.enabled=true", "render.randomisation.enabled=true"])
    world, pictures, masses = TwinWorld(config, cameras=["top"]), [], []
    for seed in (1, 2, 1):
        world.reset(seed)
        pictures.append(world.look()[1]["top"])
        masses.append(world.meta["randomisation"]["physics"]["objects"]["vial"]["mass_kg"])
    world.close()
    assert masses[0] != masses[1] and masses[0] == masses[2]
    assert (pictures[0] != pictures[1]).any() and (pictures[0] == pictures[2]).all()


def test_the_scripted_operator_does_the_task_in_closed_loop(small):
    """Nothing between a policy and the arm spoils what works in open loop."""
    policy = make_policy(small, "expert", PolicyOptions(seed=3))
    world = TwinWorld(small)
    for seed in (3, 4):
        episode = run_episode(small, world, policy, seed, reset_options={"seed": seed})
        assert episode.strict and episode.ended == "success" and episode.stage == "released"
        assert 5 < episode.time_to_success_s < small.deploy.evaluation.max_s
    world.close()
