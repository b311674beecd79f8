"""A trained policy on disk, ``models/<role>/``: weights.safetensors, policy.json, manifest.json; nothing in it can run.

policy.json holds what the weights mean: shape of the network, normalisation, pictures, cameras, task texts, joints,
units, control rate, and the fingerprint of the dataset. The manifest is written last: a folder that has one is whole.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save

from so101.config import Config
from so101.config.training import PicturesConfig
from so101.errors import did_you_mean
from so101.files import write_atomic, write_text
from so101.learning.model import Architecture, ChunkNetwork
from so101.learning.normalisation import Normalisation
from so101.policies.base import Modality, PolicyError
from so101.policies.checkpoint import MANIFEST
from so101.policies.interface import PolicyInterface

KIND = "so101-chunk"
WEIGHTS, POLICY = "weights.safetensors", "policy.json"
FORMAT = 1


@dataclass(frozen=True)
class TrainedPolicy:
    """What the weights mean. `units`: "scale_per_rad" and "offset", (D,) each; `training`: facts for people."""

    architecture: Architecture
    normalisation: Normalisation
    pictures: PicturesConfig
    cameras: tuple[str, ...]
    tasks: tuple[str, ...]
    joints: tuple[str, ...]
    units: dict[str, list[float]]
    control_hz: float
    dataset_fingerprint: str
    training: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            **self.__dict__,
            "architecture": self.architecture.to_json(),
            "normalisation": self.normalisation.to_json(),
            "pictures": self.pictures.model_dump(mode="json"),
        }


def save_policy(folder: Path, task: str, modality: Modality, policy: TrainedPolicy, network: ChunkNetwork) -> None:
    """Write the folder. A policy that was there is replaced; until the new manifest is written it is not whole."""
    (folder / MANIFEST).unlink(missing_ok=True)
    weights = save({key: value.contiguous().cpu() for key, value in network.state_dict().items()})
    text = json.dumps(policy.to_json(), indent=1, sort_keys=True) + "\n"
    write_atomic(folder / WEIGHTS, lambda file: file.write(weights))
    write_text(folder / POLICY, text)
    manifest = {
        "format": 1,
        "kind": KIND,
        "task": task,
        "modality": {
            "video": list(modality.video),
            "state": modality.state,
            "action": modality.action,
            "language": modality.language,
            "horizon": modality.horizon,
            "relative": list(modality.relative),
        },
        "files": {
            WEIGHTS: hashlib.sha256(weights).hexdigest(),
            POLICY: hashlib.sha256(text.encode()).hexdigest(),
        },
    }
    write_text(folder / MANIFEST, json.dumps(manifest, indent=1) + "\n")


def load_policy(folder: Path, config: Config) -> tuple[TrainedPolicy, ChunkNetwork]:
    """What `save_policy` wrote, checked against the configuration.

    Raises:
        PolicyError: not such a folder, or of another arm, rate, horizon or units: each said.
    """
    try:
        values = json.loads((folder / POLICY).read_text(encoding="utf-8"))
        if (found := values.pop("format")) != FORMAT:
            raise PolicyError(f"{folder / POLICY}: format {found}; this program reads {FORMAT}")
        policy = TrainedPolicy(**{
            **values,
            "architecture": Architecture.from_json(values["architecture"]),
            "normalisation": Normalisation.from_json(values["normalisation"]),
            "pictures": PicturesConfig(**values["pictures"]),
            **{key: tuple(values[key]) for key in ("cameras", "tasks", "joints")},
        })  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PolicyError(f"{folder / POLICY}: cannot be read ({error}); copy the checkpoint again") from None
    faults = _mismatches(policy, config)
    if faults:
        raise PolicyError(
            f"{folder}: was trained for something else: {'; '.join(faults)}. Set the configuration as it was in "
            "training, or train again"
        )
    network = ChunkNetwork(policy.architecture)
    try:
        network.load_state_dict(load_file(folder / WEIGHTS))
    except Exception as error:
        raise PolicyError(
            f"{folder / WEIGHTS}: is not what {POLICY} describes ({error}); copy the checkpoint again"
        ) from None
    return policy, network.eval()


def _mismatches(policy: TrainedPolicy, config: Config) -> list[str]:
    faults = []
    interface = PolicyInterface(config)
    joints = tuple(config.robot.joint_names)
    if policy.joints != joints:
        faults.append(f"its joints are {', '.join(policy.joints)}, those of robot.yaml {', '.join(joints)}")
        return faults
    hz = config.deploy.control.control_hz
    if abs(policy.control_hz - hz) > 1e-3 * hz:
        faults.append(f"its chunks are for {policy.control_hz:g} Hz, deploy.control.control_hz is {hz:g}")
    horizon = config.deploy.control.action_horizon
    if policy.architecture.horizon != horizon:
        faults.append(f"its chunks have {policy.architecture.horizon} rows, deploy.control.action_horizon is {horizon}")
    scale, offset = interface.units
    if not (np.allclose(policy.units["scale_per_rad"], scale) and np.allclose(policy.units["offset"], offset)):
        faults.append(f"it speaks other units than dataset.units (body: {config.dataset.units.body})")
    strange = [name for name in policy.cameras if name not in interface.modality.video]
    if strange:
        known = interface.modality.video
        hint = did_you_mean(strange[0], known)
        faults.append(f"it looks at camera {strange[0]!r}, dataset.cameras gives {', '.join(known)}{hint}")
    return faults


def task_index(policy: TrainedPolicy, text: str) -> int:
    """Which of the task texts it was trained on `text` is; case and punctuation do not count, as GR00T's server takes
    them away too.

    Raises:
        PolicyError: none of them.
    """
    plain = [_plain(task) for task in policy.tasks]
    if _plain(text) not in plain:
        known = " | ".join(repr(task) for task in policy.tasks)
        raise PolicyError(f"the policy does not know the task {text!r}; it was trained on: {known}")
    return plain.index(_plain(text))


def _plain(text: str) -> str:
    return " ".join(re.sub(r"[^\w\s]", "", text.lower()).split())


def to_device(network: ChunkNetwork, wanted: str) -> torch.device:
    """Move the network to `wanted`: auto, cpu or cuda.

    Raises:
        PolicyError: there is no such device.
    """
    available = torch.cuda.is_available()
    if wanted == "cuda" and not available:
        raise PolicyError("training.embedded.device is cuda, but PyTorch sees no GPU; use auto or cpu")
    device = torch.device("cuda" if available and wanted != "cpu" else "cpu")
    network.to(device)
    return device
