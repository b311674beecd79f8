""".demo files to HDF5 and LeRobot and back, and rows rebuilt from recorded states."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from so101.config import load_config
from so101.datasets.demo_convert import convert, merge, recover
from so101.datasets.demo_file import INTERVENED, SUCCESS, Episode, read_demo, write_demo
from so101.datasets.demo_rebuild import RecordedStates
from so101.datasets.demo_seeds import to_seeds
from so101.datasets.demo_states import find_words, header_of
from so101.datasets.lerobot_source import read_source
from so101.datasets.seeds_hdf5 import read_seeds
from so101.datasets.validate import validate_dataset
from so101.errors import ConfigError, DataError
from so101.families import find_task, make_env
from so101.families.scene import workshop
from so101.pipeline.progress import SilentReporter
from tests.datasets.demos import assert_same, make_episode, make_header, mrl_bytes

CONFIG = load_config()
REAL = Path(__file__).resolve().parents[3] / "shared" / "data"
LIFT, REACH, VIAL = "so101_tower_lift_brick", "so101_reach", "so101_vial_to_rack"
ROWS = 12


def rollouts(task: str, count: int = 3) -> tuple:
    """An environment and episodes of small random motions in it; the second did not succeed."""
    env, episodes = make_env(task, 1, horizon=ROWS, autoreset=False, threads=1), []
    for number in range(count):
        rng = np.random.default_rng(number)
        obs, _ = env.reset(seed=number)
        action, rows = env.hold_action(env.qpos[0, :6]), []
        for _ in range(ROWS):
            action = np.clip(action + rng.normal(0, 0.03, 6), -1, 1)
            after, reward, *_ = env.step(action[None])
            rows.append((obs[0], action, reward[0], after[0]))
            obs = after
        columns = dict(
            zip(("obs", "action", "reward", "next_obs"), map(np.float32, zip(*rows, strict=True)), strict=True)
        )
        success = number != 1
        flags = np.where(np.arange(ROWS) % 3, 0, INTERVENED) | (SUCCESS if success else 0)
        done = np.zeros(ROWS, np.float32)
        episodes.append(
            Episode(
                **columns, done=done, flags=flags.astype(np.uint32), seed=number, success=success, meta={"k": number}
            )
        )
    return env, episodes


@pytest.fixture(scope="module")
def lift():
    return rollouts(LIFT)


@pytest.fixture(scope="module")
def reach():
    return rollouts(REACH)


@pytest.fixture
def files(tmp_path, lift, reach):
    """Task -> its .demo file."""
    paths = {}
    for env, episodes in (lift, reach):
        paths[env.task.name] = tmp_path / f"{env.task.name}.demo"
        write_demo(paths[env.task.name], header_of(env, {"who": "test"}), episodes)
    return paths


def go(source, out, **options):
    return convert(source, out, CONFIG, SilentReporter(), **options)


# --- states ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["lift", "reach"])
def test_states_that_were_simulated_are_seen_as_the_simulation_saw_them(which, request):
    env, episodes = request.getfixturevalue(which)
    words = find_words(header_of(env), CONFIG.robot.joint_names)
    for episode in episodes:
        obs = np.vstack([episode.obs, episode.next_obs[-1:]])
        objects = {name: obs[:, words.objects[name]] for name in words.present(obs)}
        target = obs[0, words.target] if words.target else None
        seen = RecordedStates(env.task).along(obs[:, words.joints], objects, episode.action, target)
        for group, place in env.words.items():
            if group != "qvel":
                np.testing.assert_allclose(seen.obs[:, place], obs[:, place], atol=1e-6, err_msg=group)
        tolerance = 1e-5 if which == "lift" else 0.05  # the reward of reach looks at speeds, which are differences here
        np.testing.assert_allclose(seen.reward, episode.reward, atol=tolerance)


def test_a_reward_that_remembers_the_step_before_is_seen_in_order(lift):
    env = make_env(LIFT, 1, horizon=ROWS, autoreset=False, threads=1, reward_mode="potential")
    words = find_words(header_of(env), CONFIG.robot.joint_names)
    episode = lift[1][0]
    env.reset(seed=episode.seed)
    rewards = [env.step(action[None])[1][0] for action in episode.action]
    obs = np.vstack([episode.obs, episode.next_obs[-1:]])
    objects = {name: obs[:, words.objects[name]] for name in words.present(obs)}
    seen = RecordedStates(env.task, "potential").along(obs[:, words.joints], objects, episode.action)
    assert np.abs(rewards).max() > 1e-3
    np.testing.assert_allclose(seen.reward, rewards, atol=1e-5)


def test_speeds_of_a_steady_turn_are_exact(lift):
    env, dt = lift[0], lift[0].control_dt
    rate = np.array([0.5, -0.3, 0.2, 0.1, 0.4, 0.3])
    q = np.arange(5)[:, None] * dt * rate
    yaw = 2.0 * dt * np.arange(5)
    turning = np.column_stack(
        [0.3 + 0.1 * dt * np.arange(5), *np.zeros((2, 5)), np.cos(yaw / 2), *np.zeros((2, 5)), np.sin(yaw / 2)]
    )
    objects = {"bowl": np.tile([0.3, 0.1, 0.0, 1, 0, 0, 0], (5, 1)), "brick": turning}
    seen = RecordedStates(env.task).along(q, objects, np.zeros((4, 6)))
    qvel = seen.obs[:, env.words["qvel"]]
    np.testing.assert_allclose(qvel[:, :6], np.tile(rate, (5, 1)), atol=1e-5)
    np.testing.assert_allclose(qvel[:, 12:], np.tile([0.1, 0, 0, 0, 0, 2.0], (5, 1)), atol=1e-4)


# --- HDF5 ------------------------------------------------------------------------------------------------------------


def test_through_hdf5_the_successes_come_back_bit_for_bit(tmp_path, files, lift):
    written = go(files[LIFT], tmp_path / "a.hdf5")
    assert written.episodes == 2 and any("1 episodes that did not succeed" in text for text in written.left_out)
    assert go(tmp_path / "a.hdf5", tmp_path / "b.demo").left_out == []
    there, back = read_demo(files[LIFT]), read_demo(tmp_path / "b.demo")
    assert back.header == there.header
    for a, b in zip([lift[1][0], lift[1][2]], back.episodes, strict=True):
        assert_same(a, b)
        assert a.meta == b.meta


def test_the_hdf5_has_joints_and_poses_in_the_base(tmp_path, files, lift):
    import h5py

    go(files[LIFT], tmp_path / "a.hdf5")
    env, (first, *_) = lift
    words = find_words(header_of(env), CONFIG.robot.joint_names)
    with h5py.File(tmp_path / "a.hdf5") as file:
        demo = file["data/demo_0"]
        assert demo.attrs["fps"] == 31.25
        np.testing.assert_allclose(demo["states/articulation/robot/joint_position"][()], first.obs[:, words.joints])
        np.testing.assert_allclose(demo["actions"][()], env.action_to_ctrl(first.action), atol=1e-6)
        brick = demo["obs/datagen_info/object_pose/brick"][()]
        np.testing.assert_allclose(brick[:, :3, 3], first.obs[:, words.objects["brick"][:3]] - [0, 0, 0.005], atol=1e-7)
        np.testing.assert_array_equal(demo["rewards"][()], first.reward)
        np.testing.assert_array_equal(demo["next_obs/state"][()], first.next_obs)


def test_seeds_of_the_pipeline_become_episodes_and_seeds_again(tmp_path, vial_seeds, vial_config):
    """The scripted operator's seeds: grasped, carried, placed. Their signal is seen again in the states alone."""
    from so101.datasets.seeds_hdf5 import write_seeds
    from so101.sim import make_simulator

    fk = make_simulator(vial_config).fk
    write_seeds(tmp_path / "seeds.hdf5", vial_seeds, vial_config, fk)
    with pytest.raises(DataError, match="--task TASK computes them"):
        go(tmp_path / "seeds.hdf5", tmp_path / "no.demo")
    with pytest.raises(DataError, match="is not one of task.yaml"):
        go(tmp_path / "seeds.hdf5", tmp_path / "no.demo", task=LIFT)
    go(tmp_path / "seeds.hdf5", tmp_path / "a.demo", task=VIAL)
    file, task = read_demo(tmp_path / "a.demo"), find_task(VIAL)
    assert file.header.task == VIAL and file.header.family == "so101_vial"
    for seed, episode in zip(vial_seeds, file.episodes, strict=True):
        assert episode.success and episode.num_rows == seed.num_frames - 1
        held = seed.signals["grasped"][1:]
        assert episode.reward[held].min() > episode.reward[:20].max()  # a grasp pays
    to_seeds(file, task, tmp_path / "again.hdf5", SilentReporter())
    again = read_seeds(tmp_path / "again.hdf5", workshop(task.family))
    for a, b in zip(vial_seeds, again, strict=True):
        np.testing.assert_allclose(a.q[:-1], b.q, atol=1e-6)
        low, high = make_env(VIAL).action_to_ctrl(np.array([[-1.0] * 6, [1.0] * 6]))
        np.testing.assert_allclose(np.clip(a.q_target[:-1], low, high), b.q_target, atol=1e-6)
        np.testing.assert_allclose(a.objects["vial"][:-1], b.objects["vial"], atol=1e-5)
        rises = [int(np.argmax(seed.signals["grasped"])) for seed in (a, b)]
        assert abs(rises[0] - rises[1]) <= 1


def test_hdf5_without_a_success_or_with_damaged_rows_is_refused(tmp_path, files, lift):
    import h5py

    env, episodes = lift
    write_demo(tmp_path / "failed.demo", header_of(env), episodes[1:2])
    with pytest.raises(DataError, match="none of 1 episodes .* succeeded"):
        go(tmp_path / "failed.demo", tmp_path / "a.hdf5")
    go(files[LIFT], tmp_path / "a.hdf5")
    with pytest.raises(DataError, match="rows of task 'so101_tower_lift_brick', not of 'so101_reach'"):
        go(tmp_path / "a.hdf5", tmp_path / "b.demo", task=REACH)
    with h5py.File(tmp_path / "a.hdf5", "r+") as file:
        file["data/demo_0/rewards"][3] = np.nan
    with pytest.raises(DataError, match="demo_0: .*reward is not finite in row 3"):
        go(tmp_path / "a.hdf5", tmp_path / "b.demo")
    (tmp_path / "text.hdf5").write_text("no")
    with pytest.raises(DataError, match="cannot be read as HDF5"):
        go(tmp_path / "text.hdf5", tmp_path / "b.demo")


# --- LeRobot ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["lift", "reach"])
def test_through_lerobot_all_but_the_last_row_and_the_speeds_come_back(tmp_path, files, which, request):
    env, episodes = request.getfixturevalue(which)
    source = files[env.task.name]
    written = go(source, tmp_path / "lerobot")
    assert written.episodes == 3 and validate_dataset(tmp_path / "lerobot") == []
    assert any("last observation" in text for text in written.left_out)
    info = json.loads((tmp_path / "lerobot/meta/info.json").read_text())
    assert info["fps"] == round(1 / env.control_dt) and info["total_frames"] == 3 * ROWS
    go(tmp_path / "lerobot", tmp_path / "b.demo")
    back = read_demo(tmp_path / "b.demo")
    assert back.header.difference(read_demo(source).header) == "" and back.header.meta["who"] == "test"
    lower, upper = env.action_to_ctrl(np.array([[-1.0] * 6, [1.0] * 6]))
    for a, b in zip(episodes, back.episodes, strict=True):
        assert b.num_rows == ROWS - 1 and (b.seed, b.success, b.meta) == (a.seed, a.success, a.meta)
        np.testing.assert_array_equal(a.reward[:-1], b.reward)
        np.testing.assert_array_equal(a.flags[:-1], b.flags)
        assert np.abs(a.action[:-1] - b.action).max() < 1e-5 / (upper - lower).min()
        for group, place in env.words.items():
            if group != "qvel":
                np.testing.assert_allclose(a.obs[:-1, place], b.obs[:, place], atol=2e-6, err_msg=group)
        np.testing.assert_array_equal(b.next_obs[:-1], b.obs[1:])


def test_values_beyond_lerobots_range_are_clamped_and_counted(tmp_path, lift):
    env, (first, *_) = lift
    obs = first.obs.copy()
    obs[:, 5] = -0.3  # the jaw cannot be less than closed
    write_demo(tmp_path / "a.demo", header_of(env), [replace(first, obs=obs)])
    left_out = go(tmp_path / "a.demo", tmp_path / "lerobot").left_out
    assert any(f"{ROWS} joint values beyond" in text for text in left_out)
    states = read_source(tmp_path / "lerobot").episodes[0].columns["observation.state"]
    assert (states[:, 5] == 0).all()


def test_pictures_are_drawn_when_asked(tmp_path, lift):
    env, episodes = lift
    write_demo(tmp_path / "a.demo", header_of(env), [replace_rows(episodes[0], 4)])
    left_out = go(tmp_path / "a.demo", tmp_path / "lerobot", render=True).left_out
    assert not any("pictures" in text for text in left_out) and validate_dataset(tmp_path / "lerobot") == []
    clips = read_source(tmp_path / "lerobot").episodes[0].clips
    assert list(clips) == ["observation.images.overhead", "observation.images.wrist"]


def replace_rows(episode: Episode, count: int) -> Episode:
    arrays = {key: value[:count] for key, value in vars(episode).items() if isinstance(value, np.ndarray)}
    return replace(episode, **arrays)


def test_a_dataset_that_does_not_say_where_objects_were_is_refused(tmp_path, files):
    go(files[LIFT], tmp_path / "lerobot")
    objects = tmp_path / "lerobot/meta/so101_objects.parquet"
    content = objects.read_bytes()
    objects.unlink()
    with pytest.raises(DataError, match=r"needs where bowl, brick were in every frame.*so101_tower_reach_clear"):
        go(tmp_path / "lerobot", tmp_path / "b.demo")
    (tmp_path / "lerobot/meta/so101.json").unlink()
    with pytest.raises(DataError, match="does not say of which task family"):
        go(tmp_path / "lerobot", tmp_path / "b.demo")
    with pytest.raises(ConfigError, match="did you mean 'so101_tower_reach_clear'"):
        go(tmp_path / "lerobot", tmp_path / "b.demo", task="so101_tower_reach_clea")
    objects.write_bytes(content)
    assert not (tmp_path / "b.demo").exists()


def test_a_dataset_without_its_point_cannot_become_reach(tmp_path, files):
    go(files[REACH], tmp_path / "lerobot")
    (tmp_path / "lerobot/meta/so101_demo.jsonl").unlink()
    with pytest.raises(DataError, match="does not say which .no target_m"):
        go(tmp_path / "lerobot", tmp_path / "b.demo")


@pytest.mark.skipif(not (REAL / "so101_record_test_4ep").is_dir(), reason="no real recordings here")
def test_a_real_recording_becomes_episodes_of_a_task_without_objects(tmp_path):
    source, task = REAL / "so101_record_test_4ep", "so101_tower_reach_clear"
    with pytest.raises(DataError, match=r"30 rows a second, task so101_tower_reach_clear has 31.25; --accept-rate"):
        go(source, tmp_path / "a.demo", task=task)
    written = go(source, tmp_path / "a.demo", task=task, accept_rate=True)
    assert written.episodes == 4 and any("30 Hz count as 31.25 Hz" in text for text in written.left_out)
    file = read_demo(tmp_path / "a.demo")
    names = file.header.observation_names
    speeds = np.concatenate([episode.obs[:, names.index("shoulder_pan.vel")] for episode in file.episodes])
    assert np.ptp(file.episodes[0].obs[:, names.index("shoulder_pan.pos")]) > 0.1 and 0.05 < np.abs(speeds).max() < 10
    for episode in file.episodes:
        assert (episode.obs[:, [names.index("bowl.active"), names.index("brick.x")]] == 0).all()


# --- others ----------------------------------------------------------------------------------------------------------


def test_an_older_file_gets_the_words_of_the_task_it_is_of(tmp_path):
    episodes = [make_episode(1, 5, make_header(49, 6))]
    (tmp_path / "old.demo").write_bytes(mrl_bytes(episodes))
    with pytest.raises(DataError, match="does not say its task; --task TASK"):
        go(tmp_path / "old.demo", tmp_path / "new.demo")
    with pytest.raises(DataError, match="rows of 49 words and 6 actions, task so101_reach has 27 and 6"):
        go(tmp_path / "old.demo", tmp_path / "new.demo", task=REACH)
    go(tmp_path / "old.demo", tmp_path / "new.demo", task=LIFT)
    new = read_demo(tmp_path / "new.demo")
    assert new.header.task == LIFT and new.header.control_hz == 31.25
    assert new.header.observation_names[:2] == ("shoulder_pan.pos", "shoulder_lift.pos")
    np.testing.assert_array_equal(new.episodes[0].obs, episodes[0].obs)


def test_files_of_one_task_are_joined_and_others_refused(tmp_path, files, lift, reach):
    assert merge([files[LIFT], files[LIFT]], tmp_path / "both.demo").episodes == 6
    back = read_demo(tmp_path / "both.demo").episodes
    for number, episode in enumerate(back):
        assert_same(lift[1][number % 3], episode)
    with pytest.raises(DataError, match="task is 'so101_tower_lift_brick' in one and 'so101_reach' in the other"):
        merge([files[LIFT], files[REACH]], tmp_path / "no.demo")
    with pytest.raises(DataError, match="exists; name another --out"):
        merge([files[LIFT]], tmp_path / "both.demo")


def test_recover_writes_what_is_whole_and_leaves_the_damaged_file(tmp_path, files):
    content = bytearray(files[LIFT].read_bytes())
    content[len(content) // 2] ^= 1
    damaged = tmp_path / "damaged.demo"
    damaged.write_bytes(content)
    lost = recover(damaged, tmp_path / "whole.demo").lost
    assert lost.startswith("episode 1 (12 rows) does not fit its checksum")
    assert [episode.seed for episode in read_demo(tmp_path / "whole.demo").episodes] == [0, 2]
    assert damaged.read_bytes() == content
    assert recover(files[LIFT], tmp_path / "nothing.demo").lost == "" and not (tmp_path / "nothing.demo").exists()


@pytest.mark.parametrize(
    ("source", "out", "text"),
    [
        ("missing.demo", "a.hdf5", "no such file or folder"),
        ("lift", "lift", "exists; name another"),
        ("folder", "a.hdf5", "one of the two must be a .demo file"),
        ("lift", "a.demo", "a .demo file already"),
    ],
)
def test_what_cannot_be_converted_is_said(tmp_path, files, source, out, text):
    (tmp_path / "folder").mkdir()
    place = {"lift": files[LIFT]}
    with pytest.raises(DataError, match=text):
        go(place.get(source, tmp_path / source), place.get(out, tmp_path / out))
