"""A task family as stable-baselines3 wants environments."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv

from so101.learning.rl.actions import ActionMap


class FamilyVecEnv(VecEnv):
    """Steps a `FamilyVectorEnv`; what it is given are outputs of the actor, u in [-1, 1].

    A lane whose episode ran out begins the next one in the same step; its last observation is in
    ``infos[lane]["terminal_observation"]``, and "TimeLimit.truncated" says that the value of it goes on.

    Args:
        env: a `so101.families.FamilyVectorEnv` with autoreset.
        actions: from u to what `env` takes.

    Attributes:
        info: of the last step, arrays (N,) as `env` gave them.
        obs: (N, D) of the last step or reset.
    """

    def __init__(self, env: Any, actions: ActionMap) -> None:
        action = spaces.Box(-1.0, 1.0, env.single_action_space.shape, np.float32)
        self.env, self.map = env, actions
        super().__init__(env.num_envs, env.single_observation_space, action)
        self.info: dict[str, Any] = {}
        self.obs = np.zeros((env.num_envs, *env.single_observation_space.shape), np.float32)
        self._u = np.zeros((env.num_envs, *action.shape), np.float32)
        self._returns, self._lengths = np.zeros(env.num_envs), np.zeros(env.num_envs, int)
        self._succeeded = np.zeros(env.num_envs, bool)
        self._first_seeds: np.ndarray | None = None
        self._began_s = time.monotonic()

    def begin_at(self, first_seed: int) -> None:
        """The next reset begins with the episode seeds ``first_seed + lane``."""
        self._first_seeds = first_seed + np.arange(self.num_envs)

    def reset(self) -> np.ndarray:
        options = None if self._first_seeds is None else {"seeds": self._first_seeds}
        self.obs, self.info = self.env.reset(options=options)
        self._returns[:], self._lengths[:], self._succeeded[:] = 0, 0, False
        return self.obs

    def step_async(self, actions: np.ndarray) -> None:
        self._u = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        obs, reward, terminated, truncated, info = self.env.step(self.map.to_env(self.obs, self._u))
        self._returns += reward
        self._lengths += 1
        self._succeeded |= info["success"]
        done = terminated | truncated
        infos: list[dict[str, Any]] = [_NOTHING] * self.num_envs
        for lane in np.flatnonzero(done):
            infos[lane] = {
                "terminal_observation": info["final_obs"][lane],
                "TimeLimit.truncated": bool(truncated[lane] and not terminated[lane]),
                "is_success": bool(self._succeeded[lane]),
                "episode": {
                    "r": float(self._returns[lane]),
                    "l": int(self._lengths[lane]),
                    "t": time.monotonic() - self._began_s,
                },
            }
        self._returns[done], self._lengths[done], self._succeeded[done] = 0, 0, False
        self.obs, self.info = obs, info
        return obs, np.asarray(reward, np.float32), done, infos

    def close(self) -> None:
        self.env.close()

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Episode seeds are given by `begin_at`; this one is of stable-baselines3's own draws and changes nothing."""
        return [None] * self.num_envs

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self.env, attr_name, None)] * len(self._lanes(indices))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError("the lanes of a family share their attributes; set them on the family's environment")

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        raise NotImplementedError("the lanes of a family are one object; call its methods on FamilyVecEnv.env")

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        return [False] * len(self._lanes(indices))

    def _lanes(self, indices: None | int | Iterable[int]) -> list[int]:
        if indices is None:
            return list(range(self.num_envs))
        return [indices] if isinstance(indices, int) else list(indices)


_NOTHING: dict[str, Any] = {}
