"""Families of tasks: scenes, goals and rewards declared in configs/families, run as gymnasium environments.

``make_env("so101_tower_lift_brick", 32)`` makes 32 lanes; ``gymnasium.make("so101/so101_tower_lift_brick-v0")`` one.
"""

from __future__ import annotations

from pathlib import Path

import gymnasium

from so101.families.declaration import Family, FamilyTask, find_task, load_families, load_tasks, task_names
from so101.families.vector_env import EnvironmentFault, FamilyVectorEnv

__all__ = [
    "EnvironmentFault",
    "Family",
    "FamilyTask",
    "FamilyVectorEnv",
    "find_task",
    "load_families",
    "load_tasks",
    "make_env",
    "register_all",
    "task_names",
]


def make_env(
    task: str,
    num_envs: int = 1,
    *,
    seed: int = 0,
    horizon: int | None = None,
    reward_mode: str | None = None,
    autoreset: bool = True,
    threads: int | None = None,
    configs: Path | str | None = None,
) -> FamilyVectorEnv:
    """`num_envs` lanes of the task called `task`; arguments as of `FamilyVectorEnv`.

    Raises:
        ConfigError: no such task, or a declaration is not valid.
    """
    return FamilyVectorEnv(
        find_task(task, configs), num_envs, seed=seed, horizon=horizon, reward_mode=reward_mode, autoreset=autoreset,
        threads=threads,
    )  # fmt: skip


def gym_id(task: str) -> str:
    """Its name in gymnasium's registry."""
    return f"so101/{task}-v0"


def register_all() -> None:
    """Put every stock task into gymnasium's registry."""
    for name in task_names():
        if gym_id(name) not in gymnasium.registry:
            gymnasium.register(
                gym_id(name), entry_point="so101.families.env:FamilyEnv", vector_entry_point="so101.families:make_env",
                kwargs={"task": name},
            )  # fmt: skip


register_all()
