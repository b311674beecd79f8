import numpy as np
import pytest

from so101.config import load_config
from so101.datasets.lerobot_v21 import dataset_units
from so101.datasets.units import lerobot_to_rad
from so101.policies import PolicyOptions, make_policy
from so101.policies.base import PolicyError
from so101.sim import make_simulator
from so101.tasks.placement import draw_placements
from so101.tasks.success import judge

STRIDE = 8


@pytest.fixture(scope="module")
def config():
    return load_config(overrides=["task.name=cube_in_box", "deploy.server.expert_takes=5"])


@pytest.fixture(scope="module")
def policy(config):
    return make_policy(config, "expert", PolicyOptions(seed=5))


def run_in_the_twin(config, policy, objects):
    """Execute chunks as the control loop does, in a simulator of its own; the verdict of the task."""
    sim = make_simulator(config.without_randomisation)
    home = np.array([joint.home_rad for joint in config.robot.joints])
    sim.reset(0, home, objects)
    units, done = dataset_units(config), False
    joints, poses = [], {name: [] for name in sim.object_names}
    while not done:
        action, info = policy.get_action(None)
        done = info["done"]
        rows = np.concatenate([action["single_arm"][0], action["gripper"][0]], axis=-1)[:STRIDE]
        for target in lerobot_to_rad(rows, units):
            joints.append(sim.joint_positions(0))
            for name, values in poses.items():
                values.append(sim.object_pose(0, name))
            sim.step(0, target)
    return judge(config, {name: np.array(values) for name, values in poses.items()}, np.array(joints))


def test_its_chunks_do_the_task_where_the_seed_puts_the_objects(config, policy):
    objects, _ = draw_placements(config.without_randomisation, np.random.default_rng(5))
    assert run_in_the_twin(config, policy, objects).strict


def test_its_chunks_do_the_task_where_it_is_told_the_objects_are(config, policy):
    objects, _ = draw_placements(config.without_randomisation, np.random.default_rng(6))
    facts = policy.reset({"objects": {name: pose.tolist() for name, pose in objects.items()}})
    assert "seed" not in facts and facts["episode_length"] > 100
    assert run_in_the_twin(config, policy, objects).strict


def test_the_same_seed_is_the_same_plan(policy):
    chunks = []
    for _ in range(2):
        assert policy.reset({"seed": 5})["seed"] == 5
        chunks.append([policy.get_action(None)[0]["single_arm"] for _ in range(10)])
        policy.reset({"seed": 6})
    np.testing.assert_array_equal(*chunks)


def test_reset_without_options_begins_the_plan_again(policy):
    policy.reset({"seed": 5})
    first = policy.get_action(None)
    policy.get_action(None)
    policy.reset()
    again = policy.get_action(None)
    assert again[1] == first[1]
    np.testing.assert_array_equal(again[0]["single_arm"], first[0]["single_arm"])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"seed": -1}, "option seed is -1; it must be an integer from 0"),
        ({"seed": "1"}, "option seed is '1'"),
        ({"sede": 1}, "expert: unknown option 'sede'; options: seed, objects; did you mean 'seed'?"),
        ({"seed": 1, "objects": {}}, "give seed or objects, not both"),
        ({"objects": {"cube": [0] * 7}}, "objects must be a map of cube, box to poses, got cube"),
        ({"objects": 3}, "objects must be a map of cube, box to poses, got int"),
        (
            {"objects": {"cube": [0, 0, 0, 2, 0, 0, 0], "box": [0] * 7}},
            "objects.cube must be x, y, z in m and a unit quat",
        ),
        ({"objects": {"cube": ["a"] * 7, "box": [0] * 7}}, "objects.cube must be"),
    ],
)
def test_a_wrong_option_is_told_and_the_old_plan_stays(policy, options, text):
    policy.reset()
    policy.get_action(None)
    with pytest.raises(PolicyError) as caught:
        policy.reset(options)
    assert text in str(caught.value)
    assert policy.get_action(None)[1]["current_step"] == STRIDE


def test_a_task_that_cannot_be_done_is_told_with_the_causes(policy):
    far = {"cube": [2.0, 0, 0.02, 1, 0, 0, 0], "box": [0.2, -0.2, 0.02, 1, 0, 0, 0]}
    with pytest.raises(PolicyError, match=r"did not get cube_in_box done in 5 takes for the objects given \(.* times"):
        policy.reset({"objects": far})
