"""Who drives one lane of a family: nobody, chance, the scripted expert, or a policy of ./twin rl."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from so101.errors import ConfigError, did_you_mean
from so101.families.vector_env import FamilyVectorEnv

if TYPE_CHECKING:
    from so101.learning.rl.checkpoint import RlPolicy

BUILT_IN = ("hold", "random", "expert")


class Driver(Protocol):
    """Chooses the actions of lane 0."""

    def begin(self, obs: np.ndarray) -> None:
        """A new episode; obs (1, D) is its first observation."""

    def act(self, obs: np.ndarray) -> np.ndarray:
        """(6,) in [-1, 1] for obs (1, D)."""


class Hold:
    """Stays where the episode began, or where `goal_rad` (6,) is put."""

    def __init__(self, env: FamilyVectorEnv) -> None:
        self._env = env
        self.goal_rad = np.zeros(6)

    def begin(self, obs: np.ndarray) -> None:
        self.goal_rad = self._env.qpos[0, :6].copy()

    def act(self, obs: np.ndarray) -> np.ndarray:
        return self._env.ctrl_to_action(self.goal_rad)


class Chance:
    """Uniform actions, the same for the same episode seed."""

    def __init__(self, env: FamilyVectorEnv) -> None:
        self._env = env

    def begin(self, obs: np.ndarray) -> None:
        self._rng = np.random.default_rng(int(self._env.episode_seeds[0]))

    def act(self, obs: np.ndarray) -> np.ndarray:
        return self._rng.uniform(-1.0, 1.0, 6)


class Scripted:
    """`so101.families.expert`."""

    def __init__(self, env: FamilyVectorEnv) -> None:
        from so101.families.expert import Expert

        self._expert = Expert(env)

    def begin(self, obs: np.ndarray) -> None:
        self._expert.reset()

    def take_over(self) -> None:
        """From wherever the arm is."""
        self._expert.take_over(0)

    def act(self, obs: np.ndarray) -> np.ndarray:
        return self._expert.act_lane(0)


class Learnt:
    """A policy: anything with act(obs (1, D)) -> (1, 6)."""

    def __init__(self, act: Callable[[np.ndarray], np.ndarray]) -> None:
        self._act = act

    def begin(self, obs: np.ndarray) -> None:
        pass

    def act(self, obs: np.ndarray) -> np.ndarray:
        return self._act(obs)[0]


def policy_task(name: str, models: Path) -> str | None:
    """The task that a policy was trained for; None of what is built in.

    Raises:
        ConfigError, PolicyError: there is no such policy.
    """
    return None if name in BUILT_IN else load_role(name, models).task


def make_driver(name: str, env: FamilyVectorEnv, models: Path) -> Driver:
    """hold, random, expert, or the role of a policy in the folder `models`.

    Raises:
        ConfigError, PolicyError: there is no such policy, or it looks at other words than the environment has.
        ExpertImpossible: the expert does not know the task.
    """
    if name in BUILT_IN:
        return {"hold": Hold, "random": Chance, "expert": Scripted}[name](env)
    policy = load_role(name, models)
    if list(policy.observation_names) != list(env.observation_names):
        raise ConfigError(
            f"the policy {name!r} was trained for {policy.task} ({len(policy.observation_names)} words); "
            f"{env.task.name} shows {len(env.observation_names)} other words: choose a task of its family"
        )
    return Learnt(policy.act)


def load_role(name: str, models: Path) -> RlPolicy:
    """The policy in the folder `name` of `models`.

    Raises:
        ConfigError: there is no such folder.
        PolicyError: it holds no policy of ./twin rl.
    """
    folder = models / name
    if not folder.is_dir():
        roles = sorted(path.name for path in models.iterdir() if path.is_dir()) if models.is_dir() else []
        known = [*BUILT_IN, *roles]
        raise ConfigError(
            f"no policy {name!r}: {folder} is no folder; there are {', '.join(known)}{did_you_mean(name, known)}. "
            "./twin rl trains one"
        )
    from so101.learning.rl.checkpoint import load_policy

    return load_policy(folder)
