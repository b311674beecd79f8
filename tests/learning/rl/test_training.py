from __future__ import annotations

from itertools import count

import numpy as np
import pytest
import torch

from so101.errors import DataError
from so101.learning.rl.beginning import Beginning
from so101.learning.rl.checkpoint import load_checkpoint, load_policy
from so101.learning.rl.curve import read_curve
from so101.learning.rl.train_rl import CURVE, PICTURE, STATE
from so101.learning.rl.training_state import read_facts
from so101.pipeline.progress import SilentReporter
from so101.tracking import NullRun
from tests.learning.rl.conftest import toy_demos
from tests.learning.rl.toy import WORDS, ToyEnv


class Interrupting(SilentReporter):
    """Stops the training as Ctrl-C does, after so many steps."""

    def __init__(self, after: int) -> None:
        self.left = after

    def advance(self, count: int = 1, note: str = "") -> None:
        self.left -= count
        if self.left <= 0:
            raise KeyboardInterrupt


def train(trainer, reporter=None, clock=None):
    seconds = count()
    return trainer.run(reporter or SilentReporter(), NullRun(), clock or (lambda: float(next(seconds))))


def test_a_training_leaves_policy_curve_picture_and_state(make_trainer):
    trainer = make_trainer()
    best = train(trainer)
    assert trainer.step == 416  # 13 looks at the clock of 8 steps of 4 lanes
    policy = load_policy(trainer.folder)
    assert policy.task == "toy" and policy.observation_names == tuple(WORDS)
    assert best["summary"]["n"] == 6 and best["summary"]["last_seed"] == 5
    rows = read_curve(trainer.own / CURVE)
    evaluated = [row["step"] for row in rows if not np.isnan(row["eval_end"])]
    assert evaluated == [224, 416]
    assert any(row["mean_q"] == row["mean_q"] for row in rows)
    assert (trainer.own / PICTURE).read_bytes()[:4] == b"\x89PNG"
    assert read_facts(trainer.own / STATE)["counts"]["steps"] == 416


def test_training_episodes_begin_above_those_of_demos(make_trainer):
    trainer = make_trainer()
    train(trainer)
    assert trainer.env.env.episode_seeds.min() >= 100_000
    assert read_facts(trainer.own / STATE)["next_seed"] == trainer.env.env.episode_seeds.max() + 1


def test_held_out_seeds_are_never_trained_on(make_trainer):
    with pytest.raises(DataError, match="would reach the held-out seeds from 1000000 on"):
        make_trainer("first_seed=999990")


def test_what_was_stopped_goes_on_where_it_was(make_trainer):
    trainer = make_trainer()
    with pytest.raises(KeyboardInterrupt):
        train(trainer, Interrupting(250))
    reached = trainer.step
    again = make_trainer()
    assert again.step == reached < 400
    assert again.sac._n_updates == trainer.sac._n_updates
    for key, value in trainer.sac.policy.state_dict().items():
        assert torch.equal(value, again.sac.policy.state_dict()[key]), key
    assert again.sac.replay_buffer.online.size == trainer.sac.replay_buffer.online.size
    for sac in (trainer.sac, again.sac):  # the same draws, the same steps of the optimisers
        torch.manual_seed(0)
        sac.update(3)
    for key, value in trainer.sac.policy.state_dict().items():
        assert torch.equal(value, again.sac.policy.state_dict()[key]), key
    train(again)
    steps = [row["step"] for row in read_curve(again.own / CURVE) if not np.isnan(row["mean_q"])]
    assert steps == sorted(set(steps))


def test_a_kill_loses_no_more_than_since_the_last_save(make_trainer):
    trainer = make_trainer("save_minutes=0.05")  # a clock that ticks a second a look saves every few looks
    with pytest.raises(SystemError):
        seconds = count()

        def clock() -> float:
            if trainer.step > 300:
                raise SystemError("as if killed: nothing is saved on the way out")
            return float(next(seconds))

        train(trainer, clock=clock)
    saved = read_facts(trainer.own / STATE)["counts"]["steps"]
    assert 0 < saved < trainer.step
    again = make_trainer("save_minutes=0.05")
    assert again.step == saved
    assert all(row["step"] <= saved for row in read_curve(again.own / CURVE))


def test_other_settings_are_another_training(make_trainer):
    train(make_trainer("steps=100"))
    make_trainer("steps=900", "evaluation.episodes=7", "log_steps=20")  # these may change
    with pytest.raises(DataError, match=r"something else \(gamma: 0.99 -> 0.9\).*--fresh"):
        make_trainer("gamma=0.9")
    with pytest.raises(DataError, match="demos: None ->"):
        make_trainer(demos=toy_demos())


def test_a_setting_that_there_was_not_does_not_count():
    from so101.learning.rl.beginning import first_change

    assert first_change({"a": 1, "b": {"c": 2}}, {"a": 1, "b": {"c": 2, "new": 3}, "more": 4}) == ""
    assert first_change({"b": {"c": 2}}, {"b": {"c": 3}}) == "b.c: 2 -> 3"


def test_a_damaged_state_is_told(make_trainer):
    trainer = make_trainer("steps=100")
    train(trainer)
    path = trainer.own / STATE
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(DataError, match="not the state of a training.*--fresh"):
        make_trainer("steps=100")


def test_it_learns_from_demos(make_trainer):
    """Imitation of 80 episodes alone: staying where one is returns about 0.4 of 20."""
    trainer = make_trainer("steps=100", "bc.pretrain_updates=600", "learning_rate=0.003", demos=toy_demos(80))
    assert trainer.sac.replay_buffer.demos.pinned == 1600
    train(trainer)
    rows = read_curve(trainer.own / CURVE)
    assert rows[0]["step"] == 0 and rows[0]["eval_return"] > 3


def test_relative_actions_are_as_wide_as_the_demos_need(make_trainer):
    demos = toy_demos()
    trainer = make_trainer("actions.mode=relative", demos=demos)
    u = trainer.actions.from_env(demos.obs, demos.action)
    assert (np.abs(u) < 1).mean() > 0.98 and trainer.actions.scale.max() < 0.9


def test_a_training_can_begin_with_another(make_trainer, tmp_path):
    first = make_trainer("steps=200")
    train(first)
    begin_with = Beginning("role", *load_checkpoint(first.folder))
    second = make_trainer("steps=200", folder=tmp_path / "second", begin_with=begin_with)
    obs = ToyEnv(4).reset(seed=3)[0]
    u, _ = second.sac.predict(obs, deterministic=True)
    np.testing.assert_allclose(second.actions.to_env(obs, u), begin_with.policy.act(obs), atol=1e-6)
    with pytest.raises(DataError, match="its actor is .*set it as it was"):
        make_trainer("actor.hidden=[16]", folder=tmp_path / "third", begin_with=begin_with)
    with pytest.raises(DataError, match="critics are of another shape"):
        make_trainer("critics.count=3", folder=tmp_path / "third", begin_with=begin_with)


def test_values_that_run_away_end_it(make_trainer):
    trainer = make_trainer()
    trainer.sac.critic.weights[0].data.fill_(float("inf"))
    with pytest.raises(DataError, match="ran away. Lower training.rl.learning_rate"):
        train(trainer)
