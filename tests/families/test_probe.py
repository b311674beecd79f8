"""Policies beside the demos they learnt from."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from so101.cli.app import main
from so101.config import load_config
from so101.config.rl import RlActorConfig
from so101.datasets.demo_file import write_demo
from so101.families import find_task, make_env
from so101.families.probe import closed_loop, open_loop, rates, replay_gaps, teacher_forced
from so101.learning.rl.actions import ActionMap
from so101.learning.rl.checkpoint import RlPolicy, save_policy
from so101.learning.rl.networks import Actor, Standardise
from tests.families.shows_data import demo_of

TASK = "so101_tower_lift_brick"


@pytest.fixture(scope="module")
def env():
    made = make_env(TASK, autoreset=False)
    yield made
    made.close()


@pytest.fixture(scope="module")
def demo(env):
    return demo_of(env, [10_001, 10_002], 9)


@pytest.fixture(scope="module")
def settings():
    return load_config().deploy.family_probe


def knows(demo, offset=0.0):
    """A policy that has learnt the rows by heart, and is off by `offset`."""
    rows = {obs.tobytes(): action for e in demo.episodes for obs, action in zip(e.obs, e.action, strict=True)}
    return lambda obs: np.array([rows.get(np.float32(o).tobytes(), np.zeros(6)) + offset for o in obs])


def test_who_knows_the_demos_by_heart_makes_no_error_and_one_who_is_off_is_off_by_that(demo):
    joints = demo.header.action_names
    assert teacher_forced(knows(demo), demo.episodes, joints).overall == 0
    off = teacher_forced(knows(demo, np.array([0, 0, 0.3, 0, 0, 0])), demo.episodes, joints)
    assert off.overall == pytest.approx(0.05) and off.rows == 18
    assert off.per_joint["elbow_flex"] == pytest.approx(0.3) and off.per_joint["gripper"] == 0


def test_thirds_and_the_worst_episode(demo):
    worse = demo.episodes[1]
    action = worse.action.copy()
    action[6:] += 0.6
    found = teacher_forced(knows(demo), [demo.episodes[0], replace(worse, action=action)], demo.header.action_names)
    assert found.per_third == pytest.approx((0, 0, 0.3)) and (found.worst_episode, found.worst) == (
        1,
        pytest.approx(0.2),
    )


def test_the_twin_repeats_a_demo_and_other_actions_depart(env, demo, settings):
    same = open_loop(env, 0, demo.episodes[0], settings)
    assert same.departs_at is None and same.largest_gap < 1e-5
    assert same.reward_sum == pytest.approx(same.recorded_reward_sum, rel=1e-5)
    other = open_loop(env, 0, replace(demo.episodes[0], action=demo.episodes[0].action + np.float32(0.1)), settings)
    assert other.departs_at == 1 and other.word in env.observation_names


def test_who_knows_a_demo_by_heart_stays_on_it(env, demo):
    gaps = replay_gaps(knows(demo), env, demo.episodes[1])
    assert len(gaps) == 9 and max(gap.observation for gap in gaps) < 1e-5 and max(gap.action for gap in gaps) == 0
    astray = replay_gaps(knows(demo, 0.2), env, demo.episodes[1])
    assert (
        astray[0].observation < 1e-5 and astray[8].observation > 0.01 and astray[0].teacher_forced == pytest.approx(0.2)
    )


def test_closed_loop_counts_what_happened(settings):
    own = closed_loop(lambda obs: np.zeros((len(obs), 6)), find_task(TASK), [5000, 5001], 10, settings)
    assert [e.seed for e in own] == [5000, 5001] and not any(e.ever or e.at_end for e in own)
    assert all(0 < e.reward_sum < 22.5 and e.above == (0, 0) and e.least_reach_mm > 20 for e in own)
    assert all(5 < e.most_height_mm < 30 for e in own), "the brick stays on the desk"
    found = rates(own)
    assert (
        found["n"] == 2
        and found["any"]["successes"] == 0
        and found["any"]["wilson_95"][1] == pytest.approx(0.658, abs=1e-3)
    )


@pytest.fixture(scope="module")
def models(tmp_path_factory, demo):
    """A folder with a policy that never learnt anything."""
    folder = tmp_path_factory.mktemp("models")
    shape = RlActorConfig(hidden=[8], layer_norm=True, log_std=(-5, 2), initial_std=1)
    words = demo.header.widths[0]
    torch.manual_seed(0)
    save_policy(
        folder / "green",
        RlPolicy(
            task=TASK, family="so101_tower", language="", control_hz=31.25,
            observation_names=demo.header.observation_names, action_names=demo.header.action_names,
            actions=ActionMap("absolute", *(np.full(6, x, np.float32) for x in (0, 1, 0, 1))), shape=shape,
            standardise=Standardise(torch.zeros(words), torch.ones(words), 5.0),
            actor=Actor(words, 6, shape.hidden, shape.log_std, shape.layer_norm),
        ),
    )  # fmt: skip
    return folder


def test_the_command_prints_and_writes_all_of_it(tmp_path, capsys, monkeypatch, models, demo):
    monkeypatch.setenv("COLUMNS", "120")
    write_demo(tmp_path / "x.demo", demo.header, demo.episodes)
    options = ["--episodes", "2", "--steps", "5", "--replay-episode", "1", "--open-loop", "--models", str(models)]
    figures = tmp_path / "probe.json"
    assert main(["probe", "green", "--demos", str(tmp_path / "x.demo"), *options, "--json", str(figures)]) == 0
    out = capsys.readouterr().out
    for text in ("Teacher-forced", "18 rows of 2 episodes", "seeds 5000 to 5001", "Beside demo 1", "2 of 2 repeated"):
        assert text in out
    found = json.loads(figures.read_text())
    assert set(found) == {"teacher_forced", "closed_loop", "rates", "replay", "open_loop"} and len(found["replay"]) == 9


def test_a_policy_of_other_words_and_an_episode_that_is_not_there_are_told(tmp_path, capsys, models):
    reach = demo_of(make_env("so101_reach", autoreset=False), [1], 2)
    write_demo(tmp_path / "reach.demo", reach.header, reach.episodes)
    assert main(["probe", "green", "--demos", str(tmp_path / "reach.demo"), "--models", str(models)]) == 3
    assert "holds so101_reach (27 words); green looks at the 49 words" in capsys.readouterr().err
    assert main(["probe", "grean", "--demos", str(tmp_path / "reach.demo"), "--models", str(models)]) == 2
    assert "did you mean 'green'" in capsys.readouterr().err
