"""A policy of reinforcement learning on disk: ``models/<role>/`` with weights, what they mean, and a manifest.

``manifest.json`` names the files and their digests and is replaced last, in one go: a folder always holds one whole
checkpoint. Nothing in it can run code. Reading one takes torch and safetensors; stable-baselines3 is not needed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from safetensors.torch import load, save
from torch import Tensor

from so101.config.base import Section, validate
from so101.config.rl import RlActorConfig
from so101.errors import ConfigError
from so101.files import write_atomic, write_text
from so101.learning.rl.actions import ActionMap
from so101.learning.rl.networks import Actor, Standardise
from so101.policies.base import PolicyError
from so101.policies.checkpoint import MANIFEST, Checkpoint, find_checkpoint

KIND = "so101-rl"
FORMAT = 1


class ActionFile(Section):
    """`ActionMap` in a file."""

    mode: Literal["absolute", "relative", "incremental"]
    at: int = 0
    centre: list[float] = Field(min_length=1, max_length=64)
    scale: list[float]
    middle: list[float]
    half: list[float]


class PolicyFile(Section):
    """Content of policy-*.json. `training`: facts for people."""

    format: Literal[1]
    task: str = Field(min_length=1)
    family: str
    language: str
    control_hz: float = Field(gt=0)
    observation_names: list[str] = Field(min_length=1, max_length=4096)
    action_names: list[str] = Field(min_length=1, max_length=64)
    actions: ActionFile
    actor: RlActorConfig
    mean: list[float]
    deviation: list[float]
    clip: float = Field(gt=0)
    training: dict[str, Any]


@dataclass
class RlPolicy:
    """A policy that acts greedily. Observations are those of its task, `observation_names`."""

    task: str
    family: str
    language: str
    control_hz: float
    observation_names: tuple[str, ...]
    action_names: tuple[str, ...]
    actions: ActionMap
    shape: RlActorConfig
    standardise: Standardise
    actor: Actor
    training: dict[str, Any] = field(default_factory=dict)

    @torch.inference_mode()
    def act(self, obs: np.ndarray) -> np.ndarray:
        """(N, D) float32 -> (N, A) actions in [-1, 1] as the environment takes them, float32.

        Raises:
            PolicyError: another number of words than the policy was trained on.
        """
        obs = np.asarray(obs, np.float32)
        if obs.ndim != 2 or obs.shape[1] != len(self.observation_names):
            raise PolicyError(
                f"the policy of {self.task} looks at (N, {len(self.observation_names)}) observations, got "
                f"{obs.shape}; it is of another family"
            )
        u = self.actor(self.standardise(torch.from_numpy(obs)), deterministic=True)
        return self.actions.to_env(obs, u.numpy())


def save_policy(folder: Path, policy: RlPolicy, critics: Mapping[str, Tensor] | None = None) -> None:
    """Write the folder; the policy that was there is there until the new one is whole.

    Args:
        critics: their weights, for trainings that begin with this one.
    """
    tensors = {f"actor.{key}": value for key, value in policy.actor.state_dict().items()}
    tensors |= {f"critics.{key}": value for key, value in (critics or {}).items()}
    weights = save({key: value.detach().cpu().contiguous() for key, value in tensors.items()})
    described = {
        "format": FORMAT,
        **{key: getattr(policy, key) for key in ("task", "family", "language", "control_hz", "training")},
        "observation_names": list(policy.observation_names),
        "action_names": list(policy.action_names),
        "actions": policy.actions.to_json(),
        "actor": policy.shape.model_dump(mode="json"),
        "mean": policy.standardise.mean.tolist(),
        "deviation": policy.standardise.deviation.tolist(),
        "clip": policy.standardise.clip,
    }
    text = (json.dumps(described, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()
    mark = hashlib.sha256(weights + text).hexdigest()[:12]
    files = {f"weights-{mark}.safetensors": weights, f"policy-{mark}.json": text}
    for name, content in files.items():
        write_atomic(folder / name, lambda file, content=content: file.write(content))
    manifest = {
        "format": 1,
        "kind": KIND,
        "task": policy.task,
        "modality": {
            "video": [],
            "state": {"observation": len(policy.observation_names)},
            "action": {"joints": len(policy.action_names)},
            "language": policy.language or policy.task,
            "horizon": 1,
        },
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
    }
    write_text(folder / MANIFEST, json.dumps(manifest, indent=1) + "\n")
    for path in [*folder.glob("weights-*.safetensors"), *folder.glob("policy-*.json")]:
        if path.name not in files:
            path.unlink(missing_ok=True)


def load_policy(folder: Path | str, device: str = "cpu") -> RlPolicy:
    """The policy in ``models/<role>``.

    Raises:
        PolicyError: not such a folder, not whole, or its files do not fit together: each said.
    """
    return load_checkpoint(folder, device)[0]


def load_checkpoint(folder: Path | str, device: str = "cpu") -> tuple[RlPolicy, dict[str, Tensor]]:
    """The policy, and the weights of its critics, empty when it has none.

    Raises:
        PolicyError: as `load_policy`.
    """
    folder = Path(folder)
    checkpoint = find_checkpoint(folder.parent, folder.name)
    if checkpoint.manifest.kind != KIND:
        raise PolicyError(
            f"{folder}: holds a policy of kind {checkpoint.manifest.kind!r}, not one of `./twin rl` ({KIND})"
        )
    weights_path, policy_path = _file(checkpoint, "weights-*.safetensors"), _file(checkpoint, "policy-*.json")
    try:
        read = validate(PolicyFile, json.loads(policy_path.read_text(encoding="utf-8")), str(policy_path))
    except (OSError, ValueError, RecursionError) as error:
        raise PolicyError(f"{policy_path}: cannot be read ({error}); copy the checkpoint again") from None
    except ConfigError as error:
        raise PolicyError(f"{error}\nCopy the checkpoint again") from None
    if fault := _sizes(read):
        raise PolicyError(f"{policy_path}: {fault}; copy the checkpoint again")
    shape = read.actor
    try:
        tensors = load(weights_path.read_bytes())
        if broken := [key for key, value in tensors.items() if not torch.isfinite(value).all()]:
            raise ValueError(f"{broken[0]} holds numbers that are not finite")
        with torch.device("meta"):  # no memory before the file is known to be of that shape
            actor = Actor(
                len(read.observation_names), len(read.action_names), shape.hidden, shape.log_std, shape.layer_norm
            )
        own = {key.removeprefix("actor."): value for key, value in tensors.items() if key.startswith("actor.")}
        actor.load_state_dict(own, assign=True)
    except Exception as error:  # of safetensors and PyTorch
        raise PolicyError(
            f"{weights_path}: is not what {policy_path.name} describes ({str(error)[:300]}); copy the checkpoint again"
        ) from None
    policy = RlPolicy(
        task=read.task,
        family=read.family,
        language=read.language,
        control_hz=read.control_hz,
        observation_names=tuple(read.observation_names),
        action_names=tuple(read.action_names),
        actions=ActionMap.from_json(read.actions.model_dump()),
        shape=shape,
        standardise=Standardise(torch.tensor(read.mean), torch.tensor(read.deviation), read.clip),
        actor=actor.to(device).eval().requires_grad_(False),
        training=read.training,
    )
    critics = {key.removeprefix("critics."): value for key, value in tensors.items() if key.startswith("critics.")}
    return policy, critics


def _file(checkpoint: Checkpoint, pattern: str) -> Path:
    found = [name for name in checkpoint.manifest.files if Path(name).match(pattern)]
    if len(found) != 1:
        raise PolicyError(
            f"{checkpoint.folder / MANIFEST}: files names {len(found)} of {pattern}, needed is one; copy the "
            "checkpoint again"
        )
    return checkpoint.folder / found[0]


def _sizes(read: PolicyFile) -> str:
    """Which list has another length than it should; "" when none has."""
    words, joints = len(read.observation_names), len(read.action_names)
    wanted = {"mean": words, "deviation": words}
    lengths = {key: len(getattr(read, key)) for key in wanted}
    for key in ("centre", "scale", "middle", "half"):
        wanted[f"actions.{key}"], lengths[f"actions.{key}"] = joints, len(getattr(read.actions, key))
    wrong = [
        f"{key} has {lengths[key]} values, needed are {wanted[key]}" for key in wanted if lengths[key] != wanted[key]
    ]
    if not wrong and min(read.deviation) <= 0:
        wrong = ["a deviation is not above 0"]
    return "; ".join(wrong)
