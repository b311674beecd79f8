"""SAC and RLPD on a task family: stable-baselines3's SAC with own networks, replay and update.

``learn`` and ``predict`` are those of stable-baselines3; ``save`` and ``load`` too, but they use pickle:
`so101.learning.rl.checkpoint` does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from stable_baselines3 import SAC
from stable_baselines3.common.logger import Logger
from stable_baselines3.sac.policies import SACPolicy
from torch import Tensor, nn
from torch.nn import functional as F

from so101.learning.rl.actions import RandomActions
from so101.learning.rl.networks import Actor, Critics, Standardise
from so101.learning.rl.replay import Batch, Replay
from so101.learning.rl.vec_env import FamilyVecEnv

if TYPE_CHECKING:
    from so101.config.rl import RlConfig

_DRAWN_AT_ONCE = 8  # batches


class Takeover(NamedTuple):
    """Lanes whose action an expert gives: ``lanes`` (N,) bool, ``actions`` (N, A) in [-1, 1] of the environment."""

    lanes: np.ndarray
    actions: np.ndarray


class FamilyPolicy(SACPolicy):
    """Actor and critics of `networks`, looking at standardised observations.

    Args (beyond those of SACPolicy):
        settings: of the networks.
        standardise: fixed.
    """

    actor: Actor
    critic: Critics
    critic_target: Critics

    def __init__(self, *args: Any, settings: RlConfig, standardise: Standardise, **kwargs: Any) -> None:
        self.__dict__["_settings"], self.__dict__["_words"] = settings, len(standardise.mean)
        super().__init__(*args, **kwargs)
        self.standardise = standardise

    def make_actor(self, features_extractor: Any = None) -> nn.Module:
        shape = self._settings.actor
        actor = Actor(self._words, self.action_space.shape[0], shape.hidden, shape.log_std, shape.layer_norm)
        with torch.no_grad():
            actor.head.bias[self.action_space.shape[0] :] += float(np.log(shape.initial_std))
        return actor

    def make_critic(self, features_extractor: Any = None) -> nn.Module:
        shape = self._settings.critics
        return Critics(self._words, self.action_space.shape[0], shape.hidden, shape.count, shape.layer_norm)

    def _predict(self, observation: Tensor, deterministic: bool = False) -> Tensor:
        return self.actor(self.standardise(observation), deterministic)


class FamilySac(SAC):
    """SAC on `env`, with demos when `show` gave it some.

    Args:
        env: of a family.
        settings: `training.rl`, of the task.
        mean, deviation: (D,) of the observations; fixed.
        learning_starts: steps of all lanes before the first update.
        random_steps: of all lanes, at the start, whose actions are random.
        demo_room: rows of demos that may be shown or come from takeovers.
        takeover: asked before every step which lanes an expert drives; its rows go to the demos too.
    """

    replay_buffer: Replay
    env: FamilyVecEnv

    def __init__(
        self,
        env: FamilyVecEnv,
        settings: RlConfig,
        mean: np.ndarray,
        deviation: np.ndarray,
        *,
        learning_starts: int,
        random_steps: int,
        demo_room: int = 0,
        takeover: Callable[[], Takeover | None] | None = None,
    ) -> None:
        self.settings, self.takeover, self.random_steps = settings, takeover, random_steps
        self._owed = 0.0
        self.intervened = 0
        self._overruled: np.ndarray | None = None
        self._random_actions = RandomActions(
            (env.num_envs, *env.action_space.shape), settings.random_hold_s / env.env.control_dt, settings.seed
        )
        self._figures: dict[str, list[Tensor]] = {}
        standardise = Standardise(torch.as_tensor(mean), torch.as_tensor(deviation), settings.normalisation.clip)
        super().__init__(
            FamilyPolicy,
            env,
            learning_rate=settings.learning_rate,
            buffer_size=min(settings.buffer_rows, settings.steps + env.num_envs),
            learning_starts=learning_starts,
            batch_size=settings.batch_size,
            tau=settings.target.tau,
            gamma=settings.gamma,
            train_freq=1,
            gradient_steps=1,
            replay_buffer_class=Replay,
            replay_buffer_kwargs={
                "demo_room": demo_room, "demo_share": settings.demo_share, "seed": settings.seed
            },
            ent_coef=f"auto_{settings.entropy.initial}",
            target_entropy=settings.entropy.aim(env.action_space.shape[0]),
            policy_kwargs={
                "settings": settings,
                "standardise": standardise,
                "optimizer_kwargs": {"fused": True},
            },
            seed=settings.seed,
            device=settings.device,
        )  # fmt: skip
        self.set_logger(Logger(None, []))
        self._networks = {"actor": list(self.actor.parameters()), "critic": list(self.critic.parameters())}
        self._target = list(self.critic_target.requires_grad_(False).parameters())

    def show(self, obs: np.ndarray, u: np.ndarray, reward: np.ndarray, terminal: np.ndarray, nxt: np.ndarray) -> None:
        """Rows of demos, which stay in every batch from now on; `u` as the actor would give it, (n, A)."""
        replay = self.replay_buffer
        inside = np.clip(u, -0.999, 0.999)  # the actor never quite gives 1
        replay.demos.add(replay.rows(obs, inside, reward, terminal, nxt))
        replay.demos.pin()

    # stable-baselines3's collection of experience, with an expert beside

    def _sample_action(self, learning_starts: int, action_noise: Any = None, n_envs: int = 1) -> tuple[Any, Any]:
        if self.num_timesteps < self.random_steps:
            action = stored = self._random_actions()
        else:
            action, stored = super()._sample_action(0, action_noise, n_envs)
        taken = None if self.takeover is None else self.takeover()
        self._overruled = None
        if taken is not None and taken.lanes.any():
            lanes = self._overruled = taken.lanes
            u = self.env.map.from_env(self.env.obs, taken.actions)
            action[lanes] = stored[lanes] = u[lanes]
        return action, stored

    def _store_transition(
        self,
        replay_buffer: Replay,
        buffer_action: np.ndarray,
        new_obs: Any,
        reward: np.ndarray,
        dones: np.ndarray,
        infos: list[dict[str, Any]],
    ) -> None:
        before, after = self._last_obs, new_obs
        if dones.any():
            after = new_obs.copy()
            for lane in np.flatnonzero(dones):
                after[lane] = infos[lane]["terminal_observation"]
        replay_buffer.add(before, after, buffer_action, reward, dones, infos)
        if self._overruled is not None:
            lanes = self._overruled
            ended = np.array([not info.get("TimeLimit.truncated", False) for info in infos]) & dones
            rows = replay_buffer.rows(before, buffer_action, reward, ended, after)
            replay_buffer.demos.add(rows[torch.from_numpy(lanes).to(rows.device)])
            self.intervened += int(lanes.sum())
        self._last_obs = new_obs

    # learning

    def train(self, gradient_steps: int, batch_size: int = 256) -> None:
        """As many updates as `update_ratio` asks for since the last call; the arguments are not used."""
        self._owed += self.settings.update_ratio * self.n_envs
        count = int(self._owed + 1e-6)
        self._owed -= count
        self.update(count)

    def update(self, count: int) -> None:
        """`count` updates of the critics, and of the actor every `actor_every`-th of them."""
        tau = self.settings.target.step(count)
        while count > 0:
            batches = self.replay_buffer.draw(min(count, _DRAWN_AT_ONCE), self.settings.batch_size)
            for batch in batches:
                self._update(batch, tau)
            self._note(batch_reward=torch.stack([batch.reward for batch in batches]).abs().mean())
            count -= len(batches)

    def pretrain(self, count: int) -> None:
        """`count` updates on demos alone, the actor only imitating them, at each."""
        for _ in range(count):
            (batch,) = self.replay_buffer.draw(1, self.settings.batch_size)
            self._update(batch, self.settings.target.tau, imitate=True)

    def figures(self) -> dict[str, float]:
        """Means since the last call: mean_q, critic_loss, entropy, alpha, reward (of what the arm did), and, with
        demos, bc_loss and bc_weight."""
        means = {key: float(torch.stack(values).mean()) for key, values in self._figures.items()}
        self._figures = {}
        replay = self.replay_buffer
        if replay.reward_count:
            means["reward"] = replay.reward_sum / replay.reward_count
        replay.reward_sum = replay.reward_count = 0.0
        return means

    def _update(self, batch: Batch, tau: float, imitate: bool = False) -> None:
        settings = self.settings
        obs, next_obs = self.policy.standardise(torch.stack((batch.obs, batch.next_obs)))
        alpha = self.log_ent_coef.detach().exp()
        self._improve("critic", self._critic_loss(batch, obs, next_obs, alpha))
        with torch.no_grad():
            torch._foreach_lerp_(self._target, self._networks["critic"], tau)
        self._n_updates += 1
        if not imitate and self._n_updates % settings.actor_every:
            return
        action, log_prob, greedy = self.actor.sample(obs)
        loss = torch.zeros((), device=self.device)
        if not imitate:
            values = self.critic(obs, action)
            value = values.amin(0) if settings.critics.cautious else values.mean(0)
            loss = (alpha * log_prob - value).mean()
        shown, weight = batch.demos, self._bc_weight(imitate)
        if shown and weight is not None:
            bc = (greedy[:shown] - batch.action[:shown]).abs().mean()
            loss = loss + weight * bc
            self._note(bc_loss=bc, bc_weight=weight)
        self._improve("actor", loss)
        self._note(entropy=-log_prob.mean(), alpha=alpha[0])
        if not imitate:
            self.log_ent_coef.grad = -(log_prob.detach().mean() + self.target_entropy).reshape(1)
            self.ent_coef_optimizer.step()

    def _critic_loss(self, batch: Batch, obs: Tensor, next_obs: Tensor, alpha: Tensor) -> Tensor:
        shape = self.settings.critics
        with torch.no_grad():
            action, log_prob = self.actor.action_log_prob(next_obs)
            some = None
            if shape.subset < shape.count:
                some = torch.randperm(shape.count, device=self.device)[: shape.subset]
            value = self.critic_target(next_obs, action, some).amin(0)
            if self.settings.entropy.backup:
                value = value - alpha * log_prob
            target = torch.addcmul(batch.reward, 1 - batch.terminal, value, value=self.gamma)
        values = self.critic(obs, batch.action)
        loss = F.mse_loss(values, target.expand_as(values)) * shape.count
        self._note(mean_q=values.mean(), critic_loss=loss)
        if self.settings.bc.q_ratio:
            self._note(abs_q=values.abs().mean())
        return loss

    def _bc_weight(self, imitate: bool) -> Tensor | None:
        """Weight of the imitation of demos: max(weight, q_ratio * mean |Q|), fading; None: there is none."""
        bc = self.settings.bc
        if imitate:
            return torch.ones((), device=self.device)
        left = 1.0 if not bc.decay_steps else max(0.0, 1 - self.num_timesteps / bc.decay_steps)
        if left == 0 or not (bc.weight or bc.q_ratio):
            return None
        if not bc.q_ratio:
            return torch.tensor(left * bc.weight, device=self.device)
        return left * torch.clamp(bc.q_ratio * self._figures["abs_q"][-1], min=bc.weight)

    def _improve(self, name: str, loss: Tensor) -> None:
        network, parameters = getattr(self, name), self._networks[name]
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter.grad = gradient
        network.optimizer.step()

    def _note(self, **values: Tensor) -> None:
        for key, value in values.items():
            self._figures.setdefault(key, []).append(value.detach())

    def _update_learning_rate(self, optimizers: Any) -> None:
        """Constant."""
