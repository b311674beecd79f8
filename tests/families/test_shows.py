"""What is shown: driven episodes and those of .demo files, and how a show is run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from so101.cli.progress import PlainReporter
from so101.config import load_config
from so101.datasets.demo_file import DemoHeader, write_demo
from so101.errors import ConfigError, DataError
from so101.families import make_env
from so101.families.drivers import Hold, make_driver
from so101.families.replay import ReplayShow, demo_task, placed_qpos, start_at
from so101.families.shows import DrivenShow, goal_marks
from so101.families.video import write_show
from so101.families.viewer import Blind, Wish, run_show
from tests.families.shows_data import demo_of


@pytest.fixture(scope="module")
def env():
    made = make_env("so101_tower_reach_clear", autoreset=False, horizon=5)
    yield made
    made.close()


@pytest.fixture(scope="module")
def tower():
    made = make_env("so101_tower_cube_in_bowl", autoreset=False)
    yield made
    made.close()


class Clock:
    """Time that passes in `sleep` only."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class Person(Blind):
    """Has wishes at given looks, and sees every frame."""

    def __init__(self, wishes):
        self.later, self.look, self.frames, self.statuses = wishes, -1, [], []

    def wishes(self):
        self.look += 1
        return self.later.get(self.look, [])

    def show(self, frame, status):
        self.frames.append(frame())
        self.statuses.append(status)


def run(show, wishes, **options):
    person, clock = Person(wishes), Clock()
    run_show(show, person, clock=clock, sleep=clock.sleep, **options)
    return person, clock


def test_a_show_runs_in_the_time_of_its_task_and_at_other_speeds(env):
    show = DrivenShow(env, Hold(env), 0, title="", horizon=False)
    _, clock = run(show, {100: [Wish("quit")]})
    assert clock.now == pytest.approx(100 * env.control_dt)
    _, clock = run(show, {100: [Wish("quit")]}, speed=4.0)
    assert clock.now == pytest.approx(25 * env.control_dt)


def test_pause_one_step_and_go_on(env):
    show = DrivenShow(env, Hold(env), 0, title="", horizon=False)
    wishes = {3: [Wish("pause")], 6: [Wish("step")], 9: [Wish("pause")], 12: [Wish("quit")]}
    person, _ = run(show, wishes)
    steps = [int(dict(line[:2] for line in frame.readouts)["step"].split(",")[0]) for frame in person.frames]
    assert steps == [1, 2, 3, 3, 3, 3, 4, 4, 4, 5, 6, 7]
    assert [status.paused for status in person.statuses] == [False] * 3 + [True] * 6 + [False] * 3


def test_a_restart_is_the_same_start_again_and_a_seed_another(tower):
    show = DrivenShow(tower, Hold(tower), 3, title="", horizon=False)
    first = show.frame().qpos
    for _ in range(3):
        show.advance()
    show.restart(None)
    assert (show.frame().qpos == first).all() and show.frame().seed == 3
    show.restart(4)
    assert (show.frame().qpos != first).any() and show.frame().seed == 4


def test_sliders_drive_an_arm_that_nobody_else_drives(env):
    driver = Hold(env)
    show = DrivenShow(env, driver, 0, title="", horizon=False)
    goal = show.frame().qpos[:6] + [0.2, 0.1, -0.1, -0.1, 0.2, 0.2]
    show.drive(goal)
    for _ in range(60):
        show.advance()
    assert show.drivable and np.abs(env.qpos[0, :6] - goal).max() < 0.02
    assert not DrivenShow(env, make_driver("random", env, None), 0, title="", horizon=False).drivable


def test_episodes_end_at_the_horizon_and_are_counted(env):
    show = DrivenShow(env, make_driver("random", env, None), 7, title="", horizon=True)
    for _ in range(6):
        show.advance()
    assert show.frame().seed == 8 and len(show.ended) == 1
    assert ("episodes", "of 1 (95 %") in [(line.label, line.value[2:12]) for line in show.frame().readouts]


def test_marks_join_hand_subject_and_target(tower):
    obs, _ = tower.reset(options={"seeds": [5]})
    to_subject, to_target, _ = goal_marks(tower, obs[0])
    assert to_subject.to_m == pytest.approx(tower.qpos[0, 13:16], abs=1e-6)
    assert to_target.to_m == pytest.approx(tower.qpos[0, 6:9], abs=1e-6)


def test_a_policy_that_is_not_there_is_told_with_those_that_are(env, tmp_path):
    (tmp_path / "lift").mkdir()
    with pytest.raises(ConfigError, match="no policy 'lyft'.*hold, random, expert, lift; did you mean 'lift'"):
        make_driver("lyft", env, tmp_path)


def test_states_come_back_as_they_were(tower):
    demo = demo_of(tower, [11], 6)
    show = ReplayShow(tower, demo, 0, "x.demo")
    seen = [show.frame().qpos]
    while show.advance():
        seen.append(show.frame().qpos)
    seen.append(show.frame().qpos)
    assert len(seen) == show.num_frames == 7
    rows = [*demo.episodes[0].obs, demo.episodes[0].next_obs[-1]]
    assert np.array(seen) == pytest.approx(np.array(rows)[:, tower.words["qpos"]], abs=1e-6)


def test_what_is_absent_is_parked_not_at_the_origin(env):
    obs, _ = env.reset(options={"seeds": [0]})
    assert (obs[0, env.words["qpos"]][6:] == 0).all() and placed_qpos(env, obs[0])[[8, 15]] == pytest.approx([50, 50])


def test_executed_again_from_its_seed_an_episode_is_the_same(tower):
    show = ReplayShow(tower, demo_of(tower, [11], 8), 0, "x.demo", actions=True)
    while show.advance():
        pass
    assert show.worst_gap[0] < 1e-5


def test_without_a_seed_it_begins_from_its_words(tower):
    demo = demo_of(tower, [11], 8)
    _, _, gap = start_at(tower, replace(demo.episodes[0], seed=-1))
    assert gap < 1e-5
    demo.episodes[0] = replace(demo.episodes[0], action=demo.episodes[0].action * 0)
    show = ReplayShow(tower, demo, 0, "x.demo", actions=True)
    while show.advance():
        pass
    assert show.worst_gap[0] > 0.01 and show.worst_gap[1] in tower.observation_names


def test_a_loop_begins_again(tower):
    show = ReplayShow(tower, demo_of(tower, [11], 4), 0, "x.demo", loop=True)
    rows = [show.frame().readouts[2].value[0]]
    for _ in range(6):
        assert show.advance()
        rows.append(show.frame().readouts[2].value[0])
    assert rows == ["0", "1", "2", "3", "4", "0", "1"]


def test_files_that_do_not_fit_are_told(tower, env):
    demo = demo_of(env, [1], 2)
    with pytest.raises(DataError, match="x.demo: does not fit so101_tower_cube_in_bowl.*task is"):
        ReplayShow(tower, demo, 0, "x.demo")
    with pytest.raises(DataError, match="has episodes 0 to 0; --episode is 1"):
        ReplayShow(env, demo, 1, "x.demo")
    header = DemoHeader("so101_tower_lift", "", 31.25, ("a",), ("b",))
    with pytest.raises(DataError, match="of the task 'so101_tower_lift', which no family has"):
        demo_task(replace(demo, header=header), {"so101_reach": None}, "x.demo")


def test_a_video_of_all_cameras(tmp_path, env):
    import av

    config = load_config(overrides=["deploy.viewer.width_px=64", "deploy.viewer.height_px=48"])
    show = ReplayShow(env, demo_of(env, [1], 5), 0, "x.demo")
    assert write_show(tmp_path / "x.mp4", show, show.num_frames, config, PlainReporter(lambda line: None)) == 6
    with av.open(str(tmp_path / "x.mp4")) as video:
        stream = video.streams.video[0]
        assert (stream.width, stream.height) == (3 * 64, 48)
        assert float(stream.average_rate) == pytest.approx(31.25)


def test_replay_writes_a_video_and_says_how_far_actions_depart(tmp_path, env, capsys):
    from services.cli.app import main

    demo = demo_of(make_env("so101_tower_reach_clear", autoreset=False), [1], 3)
    write_demo(tmp_path / "x.demo", demo.header, demo.episodes)
    small = ["--set", "deploy.viewer.width_px=64", "--set", "deploy.viewer.height_px=48"]
    assert main(["replay", str(tmp_path / "x.demo"), "--actions", "--out", str(tmp_path / "x.mp4"), *small]) == 0
    out = capsys.readouterr().out
    assert "(4 frames)" in out and "departs at most 0 from" in out
