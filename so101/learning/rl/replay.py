"""Transitions in one tensor, and batches that are half demonstrations.

A row is observation, action, reward, terminal, next observation. Rows of demos are pinned: they are drawn from for as
long as the training runs, whatever the arm does meanwhile (RLPD).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor


class Batch(NamedTuple):
    """B transitions. The first `demos` of them are demonstrations. `terminal` is 0 where an episode only ran out."""

    obs: Tensor
    action: Tensor
    reward: Tensor
    terminal: Tensor
    next_obs: Tensor
    demos: int


class Ring:
    """Rows (capacity, W); the oldest after the first `pinned` ones give way."""

    def __init__(self, capacity: int, width: int, device: torch.device) -> None:
        self.rows = torch.empty(capacity, width, device=device)  # pages are taken when they are written
        self.size = self.pinned = self._next = 0

    def add(self, rows: Tensor) -> None:
        """(n, W) rows; not more than fit."""
        while len(rows):
            if self._next == len(self.rows):
                self._next = self.pinned
            part = rows[: len(self.rows) - self._next]
            self.rows[self._next : self._next + len(part)] = part
            self._next += len(part)
            self.size = max(self.size, self._next)
            rows = rows[len(part) :]

    def pin(self) -> None:
        """What is in it stays."""
        self.pinned = self.size

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """(count, W) rows, evenly, with replacement."""
        index = torch.randint(self.size, (count,), generator=generator, device=self.rows.device)
        return self.rows.index_select(0, index)

    def state(self) -> tuple[Tensor, dict[str, int]]:
        """What it holds, to be saved."""
        return self.rows[: self.size], {"pinned": self.pinned, "next": self._next}

    def restore(self, rows: Tensor, facts: dict[str, int]) -> None:
        """What `state` gave."""
        if len(rows) > len(self.rows):  # was larger then: what is newest is kept
            raise ValueError(f"{len(rows)} rows do not fit into {len(self.rows)}")
        self.rows[: len(rows)] = rows
        self.size, self.pinned, self._next = len(rows), facts["pinned"], facts["next"]


class Replay:
    """What the arm did (`online`) and what it was shown (`demos`).

    The constructor and `add` take what stable-baselines3 gives a replay buffer.

    Args:
        buffer_size: online rows.
        observation_space, action_space: boxes of D and A words.
        device: of the tensors.
        n_envs: lanes that `add` is given.
        demo_room: rows of demos, with those that an expert adds while training.
        demo_share: of a batch that is demos, when there are any.
        seed: of the draws.
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: Any,
        action_space: Any,
        device: torch.device | str = "cpu",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        *,
        demo_room: int = 0,
        demo_share: float = 0.5,
        seed: int = 0,
    ) -> None:
        self.observation, self.action = observation_space.shape[0], action_space.shape[0]
        self.device, self.demo_share = torch.device(device), demo_share
        width = 2 * self.observation + self.action + 2
        self.online = Ring(max(buffer_size, n_envs), width, self.device)
        self.demos = Ring(demo_room, width, self.device)
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.reward_sum = self.reward_count = 0.0  # of what the arm did since they were last set to 0

    def rows(self, obs: Any, action: Any, reward: Any, terminal: Any, next_obs: Any) -> Tensor:
        """Arrays of n transitions -> (n, W)."""
        parts = (obs, action, np.reshape(reward, (-1, 1)), np.reshape(terminal, (-1, 1)), next_obs)
        joined = np.concatenate([np.asarray(part, np.float32) for part in parts], axis=1)
        return torch.from_numpy(joined).to(self.device)

    def add(
        self,
        obs: np.ndarray,
        next_obs: np.ndarray,
        action: np.ndarray,
        reward: np.ndarray,
        done: np.ndarray,
        infos: list[dict[str, Any]],
    ) -> None:
        """One transition a lane. An episode that ran out is not terminal: its value goes on."""
        ran_out = np.array([info.get("TimeLimit.truncated", False) for info in infos])
        self.online.add(self.rows(obs, action, reward, done & ~ran_out, next_obs))
        self.reward_sum += float(np.sum(reward))
        self.reward_count += len(reward)

    def draw(self, batches: int, size: int) -> list[Batch]:
        """Independent batches of `size` rows: demos first, then what the arm did."""
        shown = round(size * self.demo_share) if self.demos.size else 0
        if not self.online.size:
            shown = size
        width = self.online.rows.shape[1]
        rows = torch.empty(batches, size, width, device=self.device)
        if shown:
            rows[:, :shown] = self.demos.draw(batches * shown, self.generator).view(batches, shown, width)
        if shown < size:
            rows[:, shown:] = self.online.draw(batches * (size - shown), self.generator).view(batches, -1, width)
        d, a = self.observation, self.action
        obs, action, reward, terminal, next_obs = rows.split([d, a, 1, 1, d], dim=-1)
        return [
            Batch(obs[i], action[i], reward[i, :, 0], terminal[i, :, 0], next_obs[i], shown) for i in range(batches)
        ]

    def size(self) -> int:
        """Rows of what the arm did."""
        return self.online.size
