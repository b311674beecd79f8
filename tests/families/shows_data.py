"""Episodes recorded for tests of what replays them."""

from __future__ import annotations

import numpy as np

from so101.datasets.demo_file import DemoFile, Episode
from so101.datasets.demo_states import header_of
from so101.families import FamilyVectorEnv
from so101.families.drivers import Chance


def recorded(env: FamilyVectorEnv, seed: int, rows: int) -> Episode:
    """An episode of chance."""
    driver, parts = Chance(env), {key: [] for key in ("obs", "action", "reward", "next_obs")}
    obs, _ = env.reset(options={"seeds": [seed]})
    driver.begin(obs)
    for _ in range(rows):
        action = np.asarray(driver.act(obs) * 0.2, np.float32)
        seen, reward, *_ = env.step(action[None])
        for key, value in (("obs", obs[0]), ("action", action), ("reward", reward[0]), ("next_obs", seen[0])):
            parts[key].append(value)
        obs = seen
    arrays = {key: np.array(values, np.float32) for key, values in parts.items()}
    return Episode(**arrays, done=np.zeros(rows, np.float32), flags=np.zeros(rows, np.uint32), seed=seed, success=False)


def demo_of(env: FamilyVectorEnv, seeds: list[int], rows: int) -> DemoFile:
    """A file of such episodes."""
    return DemoFile(header_of(env), [recorded(env, seed, rows) for seed in seeds])
