"""A vector environment that behaves as those of families do, in microseconds: six joints, the first three of which are
a point that shall come to a target."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

MIDDLE, HALF = np.array([0.1, 0, 0, 0, 0, 0.5]), np.array([1.5, 1.5, 1.5, 1.5, 2.0, 0.9])
REACH_M = 0.05
WORDS = [f"j{i}.pos" for i in range(6)] + [f"j{i}.vel" for i in range(6)] + ["tx", "ty", "tz"]


class ToyEnv(gymnasium.vector.VectorEnv):
    """Joints go at most 0.3 rad a step to where they are told; the point is 0.2 m times the first three."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self, num_envs: int, autoreset: bool = True, horizon: int = 20) -> None:
        self.num_envs, self.autoreset, self.horizon = num_envs, autoreset, horizon
        self.control_dt = 0.1
        self.observation_names = list(WORDS)
        self.single_observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (len(WORDS),), np.float32)
        self.single_action_space = gymnasium.spaces.Box(-1.0, 1.0, (6,), np.float32)
        self.episode_seeds = np.arange(num_envs)
        self.steps, self._held = np.zeros(num_envs, int), np.zeros(num_envs, int)
        self.qpos, self.qvel, self._target = np.zeros((num_envs, 6)), np.zeros((num_envs, 6)), np.zeros((num_envs, 3))
        self.actions: list[np.ndarray] = []

    def action_to_ctrl(self, action: np.ndarray) -> np.ndarray:
        return MIDDLE + np.clip(action, -1, 1) * HALF

    def ctrl_to_action(self, q: np.ndarray) -> np.ndarray:
        return np.clip((q - MIDDLE) / HALF, -1, 1)

    hold_action = ctrl_to_action

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        seeds = (options or {}).get("seeds")
        seeds = (seed or 0) + np.arange(self.num_envs) if seeds is None else np.asarray(seeds)
        return self.reset_lanes(np.ones(self.num_envs, bool), seeds)

    def reset_lanes(self, lanes: np.ndarray, seeds: np.ndarray) -> tuple[np.ndarray, dict]:
        for lane in np.flatnonzero(lanes):
            random = np.random.default_rng(int(seeds[lane]))
            self.episode_seeds[lane] = seeds[lane]
            self.qpos[lane], self.qvel[lane] = random.uniform(-0.1, 0.1, 6), 0
            self._target[lane] = random.uniform(-0.2, 0.2, 3)
            self.steps[lane] = self._held[lane] = 0
        return self._observe(), self._info()

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, ...]:
        self.actions.append(np.array(actions))
        move = np.clip(self.action_to_ctrl(actions) - self.qpos, -0.3, 0.3)
        self.qpos, self.qvel = self.qpos + move, move / self.control_dt
        self.steps += 1
        distance = self._distance()
        self._held = np.where(distance < REACH_M, self._held + 1, 0)
        reward = np.exp(-((distance / 0.1) ** 2))
        obs, info = self._observe(), self._info()
        truncated = self.steps >= self.horizon
        if self.autoreset and truncated.any():
            info["final_obs"] = obs
            obs, _ = self.reset_lanes(truncated, self.episode_seeds + self.num_envs)
        return obs, reward, np.zeros(self.num_envs, bool), truncated, info

    def expert(self, obs: np.ndarray) -> np.ndarray:
        """(N, 6): straight to the target."""
        q = np.array(obs[:, :6], float)
        q[:, :3] = obs[:, 12:15] / 0.2
        return self.ctrl_to_action(q).astype(np.float32)

    def _distance(self) -> np.ndarray:
        return np.linalg.norm(0.2 * self.qpos[:, :3] - self._target, axis=1)

    def _observe(self) -> np.ndarray:
        return np.concatenate([self.qpos, self.qvel, self._target], axis=1).astype(np.float32)

    def _info(self) -> dict[str, np.ndarray]:
        return {
            "success": self._distance() < REACH_M,
            "held_steps": self._held.copy(),
            "reach_m": self._distance(),
            "goal_shortfall_m": np.maximum(0, self._distance() - REACH_M),
            "episode_seed": self.episode_seeds.copy(),
            "steps": self.steps.copy(),
        }
