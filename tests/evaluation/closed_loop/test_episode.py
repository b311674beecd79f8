from types import SimpleNamespace

import numpy as np
import pytest

from so101.cameras.base import Frame
from so101.config import load_config
from so101.control.asking import Answer
from so101.control.boundary import PolicyBoundary
from so101.control.pilot import Look
from so101.control.policy_pilot import PolicyPilot
from so101.control.stats import LoopStats
from so101.errors import ConfigError, DataError
from so101.evaluation.closed_loop import run_episode
from so101.evaluation.closed_loop.record import list_episodes, load_episode, save_episode
from so101.geometry import make_pose, pose_from_pos_quat, pose_to_pos_quat
from tests.evaluation.closed_loop.fakes import Ramp, StillWorld

MAX_S = 2.0


def config_with(*overrides):
    return load_config(overrides=["task.name=vial_to_rack", f"deploy.evaluation.max_s={MAX_S}", *overrides])


@pytest.fixture(scope="module")
def config():
    return config_with()


@pytest.fixture(scope="module")
def unsmoothed():
    return config_with("deploy.control.ema_alpha=1")


def settle_frames(config):
    return round(config.deploy.control.settle_s * config.deploy.control.control_hz)


def test_the_policy_is_asked_every_execute_steps_and_its_rows_are_sent(unsmoothed):
    policy = Ramp(unsmoothed)
    episode = run_episode(unsmoothed, StillWorld(unsmoothed), policy, seed=7)
    frames = round(MAX_S * episode.fps)
    assert episode.asked.tolist() == list(range(0, frames, 8))
    for frame in range(frames):
        assert (episode.chunk[frame], episode.row[frame]) == (frame // 8, frame % 8)
        np.testing.assert_allclose(episode.q_target[frame], policy.target(frame // 8), atol=1e-4)
    np.testing.assert_array_equal(episode.q[1:], episode.sent[:-1])
    assert episode.chunks.shape == (len(episode.asked), 16, 6) and len(episode.latency_ms) == len(episode.asked)


def test_when_time_is_up_the_last_pose_is_held_until_things_have_settled(unsmoothed):
    episode = run_episode(unsmoothed, StillWorld(unsmoothed), Ramp(unsmoothed), seed=7)
    frames = round(MAX_S * episode.fps)
    assert episode.ended == "time" and not episode.strict and episode.success_frame is None
    assert episode.num_frames == frames + settle_frames(unsmoothed) + 1
    assert (episode.chunk[frames:] == -1).all() and (episode.row[frames:] == -1).all()
    assert (episode.sent[frames:] == episode.sent[frames - 1]).all()


def test_pictures_are_drawn_only_when_the_policy_is_asked_and_show_that_moment(config):
    world, policy = StillWorld(config), Ramp(config)
    episode = run_episode(config, world, policy, seed=7)
    assert world.looks == episode.asked.tolist()
    seen = [observation["video"]["wrist"][0, 0, 0, 0, 0] for observation in policy.observations]
    assert seen == world.looks


def test_a_policy_that_does_not_look_costs_no_picture(config):
    world, policy = StillWorld(config), Ramp(config, sees=False)
    run_episode(config, world, policy, seed=7)
    assert world.looks == [] and policy.observations[0]["video"] == {}


def test_seams_are_smoothed_as_the_control_loop_does_it(config):
    """The new chunk weighs alpha where it meets the old one; the first one meets the pose at the start."""
    world = StillWorld(config)
    episode = run_episode(config, world, Ramp(config), seed=7)
    alpha, step = config.deploy.control.ema_alpha, 0.01
    np.testing.assert_allclose(episode.q_target[0], world.start + alpha * step, atol=1e-4)


def test_what_is_sent_is_what_the_world_says(unsmoothed):
    policy = Ramp(unsmoothed, step=0.5)
    episode = run_episode(unsmoothed, StillWorld(unsmoothed), policy, seed=7)
    assert episode.q_target.max() > 1.5 and episode.sent.max() == 1.5


def test_a_late_chunk_leaves_the_arm_where_it_is(unsmoothed):
    config = config_with("deploy.control.ema_alpha=1", "deploy.evaluation.observation_delay_frames=3")
    episode = run_episode(config, StillWorld(config), Ramp(config), seed=7)
    assert episode.asked.tolist()[:3] == [0, 11, 22]
    assert episode.chunk[:14].tolist() == [-1] * 3 + [0] * 8 + [-1] * 3
    assert episode.row[3:11].tolist() == list(range(8))
    assert (episode.q_target[11:14] == episode.q_target[10]).all()


def test_with_overlap_the_old_chunk_runs_on_and_the_new_one_begins_where_the_arm_is(unsmoothed):
    config = config_with(
        "deploy.control.ema_alpha=1", "deploy.control.overlap=true", "deploy.evaluation.observation_delay_frames=3"
    )
    episode = run_episode(config, StillWorld(config), Ramp(config), seed=7)
    assert episode.row[3:14].tolist() == list(range(11))  # 3 more rows while the second chunk is computed
    assert (episode.chunk[14], episode.row[14]) == (1, 3)
    assert episode.asked.tolist()[:2] == [0, 11]


class Paced:
    """An `Asker` in ticks: an answer is there `delay` ticks after its question."""

    def __init__(self, policy, delay):
        self._policy, self._delay, self._due, self.tick = policy, delay, None, 0

    @property
    def waiting(self):
        return self._due is not None

    def ask(self, observation):
        self._due, self._action = self.tick + self._delay, self._policy.get_action(observation)

    def answer(self, timeout_s=0.0):
        if self._due is None or self.tick < self._due:
            return None
        self._due = None
        return Answer(*self._action)


class Waves(Ramp):
    """Chunks that disagree with each other, and whose rows do."""

    def get_action(self, observation, options=None):
        self.observations.append(observation)
        rows = self.home + 0.3 * np.sin(np.arange(self.horizon)[:, None] * 0.7 + np.arange(6) + len(self.observations))
        return self.interface.action(self.interface.to_units(rows)), {}


@pytest.mark.parametrize("delay", [1, 3, 9, 20])
@pytest.mark.parametrize("overlap", ["true", "false"])
def test_an_episode_executes_chunks_as_the_pilot_of_the_real_arm_does(overlap, delay):
    """Also where an answer takes longer than a chunk lasts, and longer than its horizon."""
    config = config_with(f"deploy.control.overlap={overlap}", f"deploy.evaluation.observation_delay_frames={delay}")
    world = StillWorld(config)
    episode = run_episode(config, world, Waves(config), seed=7)
    policy, clock = Waves(config), SimpleNamespace(now=lambda: asker.tick / 30)
    asker = Paced(policy, delay)
    pilot = PolicyPilot(config, PolicyBoundary(config, policy.modality), asker, "words", clock=clock)
    pilot.begin(world.start, LoopStats())
    world.reset(7)
    for asker.tick in range(round(MAX_S * 30)):
        q, images = world.look()
        frames = {name: Frame(image, 0.0, 0.0, 0, name) for name, image in images.items()}
        look = Look(None, SimpleNamespace(q_rad=q), frames, 0.0, 0.0)
        choice = pilot.choose(look)
        place = (-1, -1) if choice.target is None else (choice.chunk - 1, choice.row)
        assert (episode.chunk[asker.tick], episode.row[asker.tick]) == place
        if choice.target is not None:
            np.testing.assert_array_equal(episode.q_target[asker.tick], choice.target)
    assert len(policy.observations) == len(episode.asked) > 2


def test_a_world_of_another_rate_is_refused():
    config = config_with("deploy.control.control_hz=25")
    with pytest.raises(ConfigError, match="control_hz is 25 and scene.physics.control_hz 30: .* make them equal"):
        run_episode(config, StillWorld(config), Ramp(config), seed=7)


def test_a_policy_that_is_done_ends_the_episode(unsmoothed):
    episode = run_episode(unsmoothed, StillWorld(unsmoothed), Ramp(unsmoothed, done_after=2), seed=7)
    assert episode.ended == "done" and len(episode.asked) == 2
    assert episode.num_frames == 16 + settle_frames(unsmoothed) + 1


def test_a_policy_that_fails_is_a_failure_that_says_why(config):
    episode = run_episode(config, StillWorld(config), Ramp(config, fails_at=2), seed=7)
    assert (episode.ended, episode.error, episode.strict) == ("error", "no idea what to do", False)
    assert episode.num_frames == 9  # what came before it is kept


def test_a_policy_that_fails_at_once_leaves_a_frame(config, tmp_path):
    episode = run_episode(config, StillWorld(config), Ramp(config, fails_at=1), seed=7)
    assert episode.num_frames == 1 and episode.chunks.shape == (0, 0, 6) and episode.stage == "none"
    assert load_episode(save_episode(tmp_path, episode)).error == "no idea what to do"


def test_reset_is_told_the_options_and_the_text_goes_to_the_policy(config):
    policy, world = Ramp(config), StillWorld(config)
    episode = run_episode(config, world, policy, 7, "Sort the cubes", reset_options={"seed": 7})
    assert policy.options == [{"seed": 7}] and world.seed == 7
    assert policy.observations[0]["language"]["annotation.human.task_description"] == [["Sort the cubes"]]
    assert episode.meta["policy"]["began"] is True


class OpenHand(Ramp):
    """Keeps the jaw wide open."""

    def target(self, chunk):
        return np.array([*self.home[:5], 1.2])


def seated(config, world, falls_at=None):
    """A script that puts the vial into the first opening at frame 20."""
    success = config.task.active.success
    T_rack = pose_from_pos_quat(world.nominal[success.container])
    in_rack = make_pose(np.eye(3), np.array([*success.openings_m[0], 0.031]))
    pose = pose_to_pos_quat(T_rack @ in_rack)

    def script(frame):
        there = frame >= 20 and (falls_at is None or frame < falls_at)
        return {"vial": pose if there else world.nominal["vial"]}

    return script


def test_success_that_holds_ends_the_episode_and_is_dated_to_its_beginning(config):
    world = StillWorld(config)
    world.script = seated(config, world)
    episode = run_episode(config, world, OpenHand(config), seed=7)
    hold = round(config.deploy.evaluation.success_hold_s * episode.fps)
    still = config.task.active.success.strict.still_frames
    assert episode.ended == "success" and episode.strict and episode.geometric
    assert episode.success_frame == 20 + still  # so many frames it has then stood still
    assert episode.num_frames == episode.success_frame + hold
    assert episode.time_to_success_s == pytest.approx(episode.success_frame / 30)


def test_success_is_not_latched(config):
    world = StillWorld(config)
    world.script = seated(config, world, falls_at=40)
    episode = run_episode(config, world, OpenHand(config), seed=7)
    assert episode.ended == "time" and not episode.strict and episode.success_frame is None


def test_a_closed_hand_is_no_success(config):
    world = StillWorld(config)
    world.script = seated(config, world)
    policy = Ramp(config, step=0.0)
    policy.home[5] = -0.1
    assert not run_episode(config, world, policy, seed=7).strict


def test_an_episode_survives_its_file(config, tmp_path):
    world = StillWorld(config)
    world.script = seated(config, world)
    episode = run_episode(config, world, OpenHand(config), seed=1_000_003)
    path = save_episode(tmp_path, episode)
    assert path.name == "episode_1000003.npz" and list_episodes(tmp_path) == [path]
    again = load_episode(path)
    for name, value in vars(episode).items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(getattr(again, name), value, err_msg=name)
        elif name != "objects":
            assert getattr(again, name) == value, name
    for name, poses in episode.objects.items():
        np.testing.assert_array_equal(again.objects[name], poses)
    demo = again.as_demo(3)
    assert (demo.index, demo.seed, demo.strict, demo.num_frames) == (3, 1_000_003, True, episode.num_frames)


def test_a_cut_off_file_is_told(config, tmp_path):
    path = save_episode(tmp_path, run_episode(config, StillWorld(config), Ramp(config, fails_at=1), seed=7))
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match="episode_0000007.npz: cannot be read as an episode .* delete it"):
        load_episode(path)
