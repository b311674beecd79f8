"""What a training needs to go on after it was stopped or killed: networks, optimisers, replay, random states."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from so101.errors import DataError
from so101.files import atomic_path
from so101.learning.state_file import state_facts

if TYPE_CHECKING:
    from so101.learning.rl.sac import FamilySac

_MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # of Adam


def save_state(path: Path, sac: FamilySac, facts: dict[str, Any]) -> None:
    """Write the state; `facts`, JSON, are kept with it."""
    tensors = {f"policy.{key}": value for key, value in sac.policy.state_dict().items()}
    tensors["log_alpha"] = sac.log_ent_coef
    for name, optimizer in _optimizers(sac).items():
        for number, state in optimizer.state_dict()["state"].items():
            tensors |= {f"{name}.{number}.{key}": torch.as_tensor(state[key]) for key in _MOMENTS}
    replay = sac.replay_buffer
    rings = {}
    for name in ("online", "demos"):
        tensors[f"replay.{name}"], rings[name] = getattr(replay, name).state()
    tensors["random.replay"], tensors["random.torch"] = replay.generator.get_state(), torch.get_rng_state()
    counts = {"steps": sac.num_timesteps, "episodes": sac._episode_num, "updates": sac._n_updates, "owed": sac._owed}
    metadata = {"training": json.dumps({**facts, "counts": counts, "rings": rings})}
    with atomic_path(path) as temporary:
        save_file({key: value.detach().cpu().contiguous() for key, value in tensors.items()}, temporary, metadata)


def read_facts(path: Path) -> dict[str, Any]:
    """The facts of a saved state; {} when there is none.

    Raises:
        DataError: it is damaged.
    """
    return state_facts(path, "counts", "rings")


def restore_state(path: Path, sac: FamilySac) -> None:
    """Put the state of `path` into `sac`, which was made with the same settings.

    Raises:
        DataError: it is damaged, or of another shape.
    """
    facts = read_facts(path)
    try:
        with safe_open(path, "pt", device=str(sac.device)) as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        for key, value in tensors.items():
            if value.is_floating_point() and not torch.isfinite(value).all():
                raise ValueError(f"{key} holds numbers that are not finite")
        _put(tensors, facts, sac)
    except Exception as error:  # of safetensors and PyTorch: tensors that are missing, cut off or of other shapes
        raise DataError(f"{path}: not the state of this training ({error}); begin anew with --fresh") from None


def _put(tensors: dict[str, Tensor], facts: dict[str, Any], sac: FamilySac) -> None:
    own = {key.removeprefix("policy."): value for key, value in tensors.items() if key.startswith("policy.")}
    sac.policy.load_state_dict(own)
    with torch.no_grad():
        sac.log_ent_coef.copy_(tensors["log_alpha"])
    for name, optimizer in _optimizers(sac).items():
        described = optimizer.state_dict()
        count = len(described["param_groups"][0]["params"])
        described["state"] = {
            number: {key: tensors[f"{name}.{number}.{key}"] for key in _MOMENTS}
            for number in range(count)
            if f"{name}.{number}.step" in tensors
        }
        optimizer.load_state_dict(described)
    replay = sac.replay_buffer
    for name in ("online", "demos"):
        getattr(replay, name).restore(tensors[f"replay.{name}"], facts["rings"][name])
    replay.generator.set_state(tensors["random.replay"].cpu())
    torch.set_rng_state(tensors["random.torch"].cpu())
    counts = facts["counts"]
    sac.num_timesteps, sac._episode_num = counts["steps"], counts["episodes"]
    sac._n_updates, sac._owed = counts["updates"], counts["owed"]


def _optimizers(sac: FamilySac) -> dict[str, torch.optim.Optimizer]:
    return {
        "adam_actor": sac.actor.optimizer,
        "adam_critic": sac.critic.optimizer,
        "adam_alpha": sac.ent_coef_optimizer,
    }
