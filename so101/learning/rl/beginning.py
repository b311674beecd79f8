"""How a training begins: with which actions, weights and demos, and what makes it the same training."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from so101.config.rl import RlConfig
from so101.datasets.demo_transitions import Transitions
from so101.errors import DataError
from so101.learning.rl.actions import ActionMap, make_action_map
from so101.learning.rl.checkpoint import RlPolicy

_SCALES = {"relative": 0.2, "incremental": 0.03}  # without demos
_LEAST_SCALE = {"relative": 0.02, "incremental": 0.005}  # with them
_FREE = {"steps", "evaluation", "save_minutes", "log_steps", "threads", "health", "device", "tasks"}


@dataclass(frozen=True)
class TaskFacts:
    """What a checkpoint says of its task."""

    name: str
    family: str
    language: str
    action_names: tuple[str, ...]


@dataclass(frozen=True)
class Beginning:
    """Where a training starts from. `role`: named in the files."""

    role: str
    policy: RlPolicy
    critics: dict[str, Tensor]


def choose_actions(settings: RlConfig, env: Any, demos: Transitions | None) -> ActionMap:
    """What the actor's output means in a training with these demos."""
    wanted = settings.actions
    if wanted.mode == "absolute":
        if wanted.range == "full" or demos is None:
            return make_action_map("absolute", env)
        low, high = demos.action.min(0), demos.action.max(0)
        margin = np.maximum(0.05 * (high - low), 0.01)
        return make_action_map("absolute", env, low=np.clip(low - margin, -1, 1), high=np.clip(high + margin, -1, 1))
    if wanted.scale is not None or demos is None:
        return make_action_map(wanted.mode, env, scale=_SCALES[wanted.mode] if wanted.scale is None else wanted.scale)
    unit = make_action_map(wanted.mode, env, scale=2.0)
    used = np.quantile(np.abs(unit.from_env(demos.obs, demos.action)) * 2.0, 0.995, axis=0)
    return make_action_map(wanted.mode, env, scale=np.maximum(1.1 * used, _LEAST_SCALE[wanted.mode]).astype(np.float32))


def check_beginning(begin_with: Beginning, names: tuple[str, ...], settings: RlConfig) -> None:
    """Raise DataError when its policy looks at other words than `names` or has another network than `settings`."""
    policy = begin_with.policy
    if policy.observation_names != names:
        raise DataError(
            f"--init {begin_with.role}: looks at {len(policy.observation_names)} words of {policy.family}, the task "
            f"gives {len(names)}; begin with a policy of the same family"
        )
    if policy.shape.hidden != settings.actor.hidden or policy.shape.layer_norm != settings.actor.layer_norm:
        raise DataError(
            f"--init {begin_with.role}: its actor is {policy.shape.hidden}, layer_norm {policy.shape.layer_norm}; "
            f"training.rl.actor is {settings.actor.hidden}, {settings.actor.layer_norm}: set it as it was"
        )


def training_identity(
    settings: RlConfig, task: TaskFacts, demos: Transitions | None, begin_with: Beginning | None, takeover: bool
) -> dict[str, Any]:
    """What a training that goes on must have in common with what it was."""
    digest = None
    if demos is not None:
        parts = (demos.obs, demos.action, demos.reward)
        digest = hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()[:16]
    values = settings.model_dump(mode="json")
    return {
        "task": task.name,
        "demos": digest,
        "demo_rows": 0 if demos is None else len(demos),
        "init": None if begin_with is None else begin_with.role,
        "takeover": takeover,
        **{key: value for key, value in values.items() if key not in _FREE},
    }


def first_change(before: dict[str, Any], now: dict[str, Any], at: str = "") -> str:
    """The first value that differs, as key: before -> now; "" when none does. Settings that were not there before do
    not count."""
    for key in [key for key in now if key in before]:
        old, new = before[key], now[key]
        if isinstance(old, dict) and isinstance(new, dict):
            if text := first_change(old, new, f"{at}{key}."):
                return text
        elif old != new:
            return f"{at}{key}: {str(old)[:40]} -> {str(new)[:40]}"
    return ""
