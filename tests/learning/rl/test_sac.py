from __future__ import annotations

import numpy as np
import pytest
import torch

from so101.learning.rl.actions import make_action_map
from so101.learning.rl.sac import FamilySac, Takeover
from so101.learning.rl.vec_env import FamilyVecEnv
from tests.learning.rl.conftest import rl_settings, toy_demos
from tests.learning.rl.toy import WORDS, ToyEnv


def make(*overrides: str, demos: bool = False, takeover=None, horizon: int = 20) -> FamilySac:
    torch.set_num_threads(1)
    settings, toy = rl_settings(*overrides), ToyEnv(4, horizon=horizon)
    env = FamilyVecEnv(toy, make_action_map("absolute", toy))
    shown = toy_demos()
    sac = FamilySac(
        env, settings, shown.obs.mean(0), shown.obs.std(0) + 0.1, learning_starts=0, random_steps=0,
        demo_room=len(shown) + 50, takeover=takeover,
    )  # fmt: skip
    if demos:
        sac.show(shown.obs, env.map.from_env(shown.obs, shown.action), shown.reward, shown.done, shown.next_obs)
    return sac


def weights(network: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in network.parameters()])


def fill(sac: FamilySac, reward: float, terminal: bool, count: int = 200) -> None:
    """Rows that all pay `reward` and lead to where they began."""
    random = np.random.default_rng(0)
    obs = after = random.normal(size=(count, len(WORDS)))
    u = random.uniform(-1, 1, (count, 6))
    replay = sac.replay_buffer
    replay.online.add(replay.rows(obs, u, np.full(count, reward), np.full(count, float(terminal)), after))


def test_values_of_what_ends_are_its_rewards():
    sac = make("learning_rate=0.003")
    fill(sac, reward=3.0, terminal=True)
    sac.update(400)
    assert sac.figures()["mean_q"] != 0
    sac.update(20)
    assert sac.figures()["mean_q"] == pytest.approx(3.0, abs=0.15)


def test_values_of_what_goes_on_are_rewards_for_ever():
    """3 a step, each next one worth 0.5 of the last, is 6; entropy is left out."""
    sac = make("learning_rate=0.003", "gamma=0.5", "entropy.backup=false", "target.tau=0.05", "target.most=0.5")
    fill(sac, reward=3.0, terminal=False)
    for _ in range(60):  # between them the target may go on
        sac.update(10)
    sac.figures()
    sac.update(20)
    assert sac.figures()["mean_q"] == pytest.approx(6.0, abs=0.3)


def test_entropy_counts_in_values_unless_told_otherwise():
    told = []
    for backup in ("true", "false"):
        backed = f"entropy.backup={backup}"
        sac = make("learning_rate=0.003", "gamma=0.5", "target.tau=0.05", backed, "entropy.initial=1")
        fill(sac, reward=0.0, terminal=False)
        sac.update(300)
        sac.figures()
        sac.update(20)
        told.append(sac.figures()["mean_q"])
    assert told[0] > 0.5 and abs(told[1]) < 0.3


def test_updates_keep_to_the_ratio():
    """0.3 of 4 lanes is 1.2 a step of all lanes."""
    sac = make("update_ratio=0.3")
    sac.learn(40)
    assert sac._n_updates == 12


def test_the_actor_waits_for_its_turn():
    sac = make("actor_every=3")
    fill(sac, 1.0, terminal=True)
    before = weights(sac.actor)
    sac.update(2)
    assert torch.equal(weights(sac.actor), before)
    sac.update(1)
    assert not torch.equal(weights(sac.actor), before)


def test_a_target_goes_no_further_than_it_may():
    """As many updates as fit between two steps move it `most` of the way together."""
    target = rl_settings("target.tau=0.005", "target.most=0.08").target
    assert target.step(1) == 0.005
    for updates in (32, 500):
        assert 1 - (1 - target.step(updates)) ** updates == pytest.approx(0.08)


def test_the_target_follows_the_critics():
    sac = make("target.tau=0.25", "target.most=1")
    fill(sac, 1.0, terminal=True)
    before = weights(sac.critic_target)
    sac.update(1)
    wanted = before + 0.25 * (weights(sac.critic) - before)
    torch.testing.assert_close(weights(sac.critic_target), wanted)


def test_critics_of_ten_are_judged_by_two():
    sac = make("critics.count=10", "critics.subset=2")
    fill(sac, 1.0, terminal=False)
    sac.update(2)
    assert len(sac.critic.weights[0]) == 10 and not sac.settings.critics.cautious


def test_imitation_brings_the_actor_to_the_demos():
    sac = make("learning_rate=0.003", demos=True)
    sac.pretrain(2)
    apart = sac.figures()["bc_loss"]
    sac.pretrain(400)
    sac.figures()
    sac.pretrain(10)
    assert sac.figures()["bc_loss"] < 0.25 * apart


def test_imitation_weighs_as_much_as_it_should_and_fades():
    sac = make("bc.weight=2.0", "bc.q_ratio=0.5", "bc.decay_steps=100", demos=True)
    fill(sac, 1.0, terminal=True)
    sac._figures["abs_q"] = [torch.tensor(10.0)]
    assert float(sac._bc_weight(imitate=False)) == 5.0
    sac._figures["abs_q"] = [torch.tensor(1.0)]
    assert float(sac._bc_weight(imitate=False)) == 2.0
    sac.num_timesteps = 75
    assert float(sac._bc_weight(imitate=False)) == pytest.approx(0.5)
    sac.num_timesteps = 100
    assert sac._bc_weight(imitate=False) is None


def test_predict_is_that_of_stable_baselines3():
    sac = make()
    obs = np.random.default_rng(0).normal(size=(3, len(WORDS))).astype(np.float32)
    greedy, _ = sac.predict(obs, deterministic=True)
    assert greedy.shape == (3, 6) and (greedy == sac.predict(obs, deterministic=True)[0]).all()
    assert not np.allclose(greedy, sac.predict(obs)[0])


def test_random_actions_last():
    sac = make("random_hold_s=1.0")
    sac.random_steps = 800
    drawn = []
    for sac.num_timesteps in range(0, 800, 4):
        drawn.append(sac._sample_action(0, None, 4)[0])
    changes = (np.diff(drawn, axis=0) != 0).any(-1).mean()
    assert 0.05 < changes < 0.16  # every tenth step of 0.1 s


def test_rows_of_a_takeover_are_demos_and_are_what_was_done():
    lanes, wanted = np.array([True, False, False, True]), np.full((4, 6), 0.25, np.float32)
    sac = make(takeover=lambda: Takeover(lanes, wanted), horizon=3)
    sac.settings = sac.settings.model_copy(update={"update_ratio": 1e-9})
    sac.learn(16)
    demos, online = sac.replay_buffer.demos, sac.replay_buffer.online
    d = len(WORDS)
    assert demos.size == 8 and online.size == 16 and sac.intervened == 8
    assert (demos.rows[:8, d : d + 6] == 0.25).all()
    done = np.stack(sac.env.env.actions)
    assert (done[:, lanes] == 0.25).all() and not (done[:, ~lanes] == 0.25).any()
    assert (demos.rows[:8, d + 7] == 0).all()  # running out is not terminal
