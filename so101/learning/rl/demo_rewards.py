"""Rewards of demos as the training pays them, whatever was paid when they were recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from so101.datasets.demo_file import INTERVENED, SUCCESS, Episode, read_demo
from so101.datasets.demo_rebuild import RecordedStates
from so101.datasets.demo_transitions import Transitions

if TYPE_CHECKING:
    from so101.families import FamilyTask


def with_rewards(
    demos: Transitions, paths: Sequence[Path], demo_filter: str, task: FamilyTask, reward_mode: str
) -> Transitions:
    """`demos`, which ``load_transitions(paths, demo_filter)`` gave, with rewards of `reward_mode`.

    The states of the observations are looked at, nothing is simulated: what the jaws touch is what touches there.
    """
    looking = RecordedStates(task, reward_mode)
    episodes = [episode for path in paths for episode in read_demo(path).episodes]
    rewards = np.concatenate([_rewards(looking, episode) for episode in episodes])
    flags = np.concatenate([episode.flags for episode in episodes])
    wanted = {"all": None, "success": SUCCESS, "intervened": INTERVENED}[demo_filter]
    keep = np.ones(len(flags), bool) if wanted is None else (flags & wanted) > 0
    return replace(demos, reward=rewards[keep].astype(np.float32))


def _rewards(looking: RecordedStates, episode: Episode) -> np.ndarray:
    """(T,)"""
    env = looking.env
    seen = np.concatenate([episode.obs, episode.next_obs[-1:]]).astype(float)
    words = {group: seen[:, where] for group, where in env.words.items()}
    active = words["active"][0] > 0.5 if "active" in words else np.ones(len(env.slots), bool)
    poses = words["qpos"][:, 6:].reshape(len(seen), len(env.slots), 7)
    objects = {name: poses[:, number] for number, name in enumerate(env.slots) if active[number]}
    qpos = env.qpos_of(words["qpos"][:, :6], objects)
    target = words["target"][0] if "target" in words else None
    return env.look_along(qpos, words["qvel"], active, episode.action, target).reward
