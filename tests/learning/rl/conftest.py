"""Settings and trainers small enough for a test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from so101.config import load_config
from so101.config.rl import RlConfig
from so101.datasets.demo_episode import DemoHeader
from so101.datasets.demo_transitions import Counts, Transitions
from tests.learning.rl.toy import WORDS, ToyEnv

SMALL = (
    "envs=4", "steps=400", "learning_starts=80", "learning_starts_with_demos=40", "batch_size=32", "log_steps=80",
    "update_ratio=0.5", "actor.hidden=[32]", "critics.hidden=[32]", "evaluation.every_steps=200",
    "evaluation.episodes=6", "evaluation.lanes=4", "evaluation.final_episodes=6", "normalisation.rows=100",
)  # fmt: skip
JOINTS = tuple(f"j{i}" for i in range(6))


def rl_settings(*overrides: str) -> RlConfig:
    """`training.rl`, small, with `overrides` such as "gamma=0.9"."""
    return load_config(overrides=[f"training.rl.{item}" for item in (*SMALL, *overrides)]).training.rl


def toy_demos(episodes: int = 5) -> Transitions:
    """What the toy's expert does."""
    env = ToyEnv(episodes, autoreset=False)
    obs, _ = env.reset(options={"seeds": 10_000 + np.arange(episodes)})
    columns: dict[str, list[Any]] = {key: [] for key in ("obs", "action", "reward", "next_obs")}
    for _ in range(env.horizon):
        action = env.expert(obs)
        after, reward, *_ = env.step(action)
        for key, value in zip(columns, (obs, action, reward, after), strict=True):
            columns[key].append(value)
        obs = after
    joined = {key: np.concatenate(values).astype(np.float32) for key, values in columns.items()}
    n = len(joined["reward"])
    return Transitions(
        **joined,
        done=np.zeros(n, np.float32),
        flags=np.full(n, 2, np.uint32),
        header=DemoHeader("toy", "toys", 10.0, tuple(WORDS), JOINTS),
        counts=Counts(episodes, episodes, n, 0, n),
    )


@pytest.fixture
def make_trainer(tmp_path: Path):
    """(overrides, keywords of RlTrainer) -> a trainer of the toy in ``tmp_path/role``."""
    from so101.learning.rl.beginning import TaskFacts
    from so101.learning.rl.train_rl import RlTrainer

    def make(*overrides: str, folder: Path | None = None, **keywords: Any) -> RlTrainer:
        facts = TaskFacts("toy", "toys", "Go there", JOINTS)
        return RlTrainer(
            rl_settings(*overrides), facts, lambda lanes, autoreset: ToyEnv(lanes, autoreset),
            tmp_path / "role" if folder is None else folder, **keywords,
        )  # fmt: skip

    return make
