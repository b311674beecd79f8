import os
from pathlib import Path

import numpy as np
import pytest

from so101.config import load_config
from so101.datasets.demo import demo_file_name, load_demo, save_demo
from so101.datasets.lerobot_v21 import dataset_units, write_dataset
from so101.datasets.recordings import read_recording
from so101.datasets.units import lerobot_to_rad
from so101.errors import DataError
from so101.pipeline.progress import SilentReporter
from so101.policies import POLICIES, PolicyOptions, make_policy
from so101.policies.base import PolicyError
from tests.datasets.synthetic import make_demo, make_run

HORIZON, STRIDE = 16, 8
REAL = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "so101_record_test_4ep"


@pytest.fixture(scope="module")
def config():
    return load_config(overrides=["skillgen.target_demos=10"])


@pytest.fixture(scope="module")
def run(config, tmp_path_factory):
    run = make_run(tmp_path_factory.mktemp("runs") / "run", config, [40, 25])
    write_dataset(config, run, SilentReporter(), 1)
    return run


def demo_file(config, folder, length=40):
    return save_demo(folder, make_demo(config, 3, length))


def replay(config, **options):
    return make_policy(config, "replay", PolicyOptions(**options))


def joined(action):
    return np.concatenate([action["single_arm"][0], action["gripper"][0]], axis=-1)


def executed(policy, steps):
    """What the arm gets: the first rows of each chunk."""
    return np.concatenate([joined(policy.get_action(None)[0])[:STRIDE] for _ in range(steps)])


def test_what_is_executed_is_what_was_recorded_then_the_last_pose(config, tmp_path):
    path = demo_file(config, tmp_path)
    found = executed(replay(config, demo=path), 7)
    units = dataset_units(config)
    wanted = np.clip(load_demo(path).q_target, *(lerobot_to_rad(b, units) for b in (units.lower, units.upper)))
    np.testing.assert_allclose(lerobot_to_rad(found[:40], units), wanted, atol=1e-5)
    np.testing.assert_array_equal(found[40:], np.repeat(found[39:40], 16, axis=0))


def test_a_demo_and_its_episode_are_the_same(config, run):
    demos = sorted(run.verified.glob("*.npz"))
    for episode, demo in enumerate(demos):
        a, b = replay(config, demo=demo), replay(config, dataset=run.dataset, episode=episode)
        np.testing.assert_allclose(executed(a, 6), executed(b, 6), atol=1e-4)


def test_a_dataset_in_other_units_means_the_same_joints(config, run, tmp_path):
    """The configuration says what is spoken on the wire, the dataset what is written in it."""
    other = load_config(overrides=["dataset.units.body=normalized"])
    a, b = (replay(c, dataset=run.dataset) for c in (config, other))
    first, second = executed(a, 5), executed(b, 5)
    assert not np.allclose(first, second)
    q = [lerobot_to_rad(values, dataset_units(c)) for values, c in ((first, config), (second, other))]
    inside = np.abs(second[:, :5]).max(axis=0) < 100  # beyond its span a normalised joint is clamped
    np.testing.assert_allclose(q[0][:, :5][:, inside], q[1][:, :5][:, inside], atol=1e-5)


@pytest.mark.skipif(not REAL.is_dir(), reason="recordings of real arms are not here")
def test_a_recording_of_a_real_arm_is_replayed_in_our_units(config):
    """It was written as shares of each joint's range: what is sent are degrees, a straight line of it a joint."""
    policy = replay(config, dataset=REAL, episode=1)
    recorded = read_recording(REAL, config)[1].action
    found = executed(policy, -(-len(recorded) // STRIDE))[: len(recorded)]
    for joint in range(5):
        slope, offset = np.polyfit(recorded[:, joint], found[:, joint], 1)
        np.testing.assert_allclose(slope * recorded[:, joint] + offset, found[:, joint], atol=1e-3)
        assert 0.5 < slope < 2  # half a range is 50 to 200 degrees
    assert (0 <= found[:, 5]).all() and (found[:, 5] <= 100).all()


def test_chunks_are_whole_float32_and_of_the_batch_asked_for(config, tmp_path):
    policy = replay(config, demo=demo_file(config, tmp_path))
    for batch in (1, 3):
        action, _ = policy.get_action({"state": {"single_arm": np.zeros((batch, 1, 5))}})
        assert {key: value.shape for key, value in action.items()} == {
            "single_arm": (batch, HORIZON, 5),
            "gripper": (batch, HORIZON, 1),
        }
        assert all(value.dtype == np.float32 for value in action.values())
        np.testing.assert_array_equal(action["single_arm"][0], action["single_arm"][-1])
    assert policy.get_action(None, {"batch_size": 2})[0]["gripper"].shape == (2, HORIZON, 1)


def test_info_tells_where_it_is_and_when_it_is_done(config, tmp_path):
    policy = replay(config, demo=demo_file(config, tmp_path))
    infos = [policy.get_action(None)[1] for _ in range(7)]
    assert [info["current_step"] for info in infos] == [0, 8, 16, 24, 32, 39, 39]
    assert [info["done"] for info in infos] == [False] * 4 + [True] * 3
    assert {info["episode_length"] for info in infos} == {40} and {info["episode_index"] for info in infos} == {0}


def test_reset_goes_to_an_episode_and_a_step(config, run):
    policy = replay(config, dataset=run.dataset)
    first = executed(policy, 2)
    assert policy.reset({"episode_index": 1, "step_index": 8}) == {
        "episode_index": 1,
        "episode_length": 25,
        "source": str(run.dataset),
    }
    assert policy.get_action(None)[1]["current_step"] == 8
    policy.reset()  # the same episode, from its start
    assert policy.get_action(None)[1] == {"current_step": 0, "episode_length": 25, "done": False, "episode_index": 1}
    policy.reset({"episode_index": 0})
    np.testing.assert_array_equal(executed(policy, 2), first)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"episode_index": 2}, "option episode_index is 2; it must be an integer from 0 to 1"),
        ({"episode_index": True}, "option episode_index is True"),
        ({"step_index": 40}, "option step_index is 40; it must be an integer from 0 to 39"),
        ({"step_index": -1}, "from 0 to 39"),
        ({"step_index": 1.5}, "from 0 to 39"),
        ({"episode": 1}, "unknown option 'episode'; options: episode_index, step_index; did you mean 'episode_index'?"),
    ],
)
def test_a_wrong_option_is_told_and_changes_nothing(config, run, options, text):
    policy = replay(config, dataset=run.dataset)
    policy.get_action(None)
    with pytest.raises(PolicyError) as caught:
        policy.reset(options)
    assert text in str(caught.value)
    assert policy.get_action(None)[1]["current_step"] == 8


def test_without_a_name_it_is_the_newest_verified_demo(config, run):
    demos = sorted(run.verified.glob("*.npz"))
    os.utime(demos[0], ns=(2**61, 2**61))
    assert replay(config, demo=run.root).source == str(demos[0])
    os.utime(demos[0], ns=(0, 0))
    named = load_config(overrides=[f"deploy.server.run={run.root}"])
    assert replay(named).source == str(demos[1])


def test_nothing_to_replay_says_what_to_do(config, tmp_path):
    with pytest.raises(
        DataError, match=r"no verified demo to replay; make some with `./twin run --run .*--demo.*--datas"
    ):
        replay(config, demo=tmp_path)
    with pytest.raises(DataError, match="no such recording"):
        replay(config, dataset=tmp_path / "none")
    (tmp_path / demo_file_name(0)).write_bytes(b"none")
    with pytest.raises(DataError, match="not a demo file or truncated"):
        replay(config, demo=tmp_path / demo_file_name(0))


def test_another_rate_is_refused(config, tmp_path):
    path = save_demo(tmp_path, make_demo(config, 3, 40).replace(fps=20.0))
    with pytest.raises(DataError, match="recorded at 20 Hz, but the control loop runs at 30"):
        replay(config, demo=path)


def test_the_modality_is_that_of_the_dataset(config, tmp_path):
    modality = replay(config, demo=demo_file(config, tmp_path)).modality
    assert set(modality.video) == {"front", "wrist", "top"}
    assert (modality.state, modality.action) == ({"single_arm": 5, "gripper": 1},) * 2
    assert (modality.language, modality.horizon) == ("annotation.human.task_description", HORIZON)
    assert modality.relative == ("single_arm",)


def test_an_unknown_policy_is_told_with_the_closest(config):
    with pytest.raises(
        PolicyError, match="unknown policy 'expret'; policies: replay, expert, embedded; did you mean 'expe"
    ):
        make_policy(config, "expret")
    assert set(POLICIES) == {"replay", "expert", "embedded"}
