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
from typing import Any, BinaryIO

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save

from so101.config import Config
from so101.config.base import validate
from so101.config.training import PicturesConfig
from so101.errors import ConfigError, did_you_mean
from so101.files import write_atomic, write_text
from so101.learning.model import Architecture, ChunkNetwork
from so101.learning.normalisation import Normalisation
from so101.learning.policy_file import FORMAT, PolicyFile
from so101.policies.base import Modality, PolicyError
from so101.policies.checkpoint import MANIFEST, Checkpoint
from so101.policies.interface import PolicyInterface

KIND = "so101-chunk"
WEIGHTS, POLICY = "weights.safetensors", "policy.json"
_LONGEST = 300  # characters of what a library says


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
    weights = save({key: value.contiguous().cpu() for key, value in network.state_dict().items()})
    text = json.dumps(policy.to_json(), indent=1, sort_keys=True) + "\n"

    def write(file: BinaryIO) -> None:
        file.write(weights)
        file.flush()  # a full disk is told here, while the old policy is whole
        (folder / MANIFEST).unlink(missing_ok=True)

    write_atomic(folder / WEIGHTS, write)
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


def load_policy(checkpoint: Checkpoint, config: Config) -> tuple[TrainedPolicy, ChunkNetwork]:
    """What `save_policy` wrote, checked against the configuration. Nothing is made that its files do not bear out.

    Raises:
        PolicyError: not such a folder, or of another arm, rate, horizon or units: each said.
    """
    folder = checkpoint.folder
    unchecked = {WEIGHTS, POLICY} - checkpoint.manifest.files.keys()
    if unchecked:
        raise PolicyError(
            f"{folder / MANIFEST}: files leaves out {', '.join(sorted(unchecked))}; copy the checkpoint again"
        )
    policy = _read_policy(folder / POLICY)
    faults = _mismatches(policy, checkpoint.modality, config)
    if faults:
        raise PolicyError(
            f"{folder}: was trained for something else: {'; '.join(faults)}. Set the configuration as it was in "
            "training, or train again"
        )
    try:
        return policy, _read_network(folder / WEIGHTS, policy.architecture)
    except Exception as error:  # of safetensors and PyTorch
        raise PolicyError(
            f"{folder / WEIGHTS}: is not what {POLICY} describes ({_shortened(error)}); copy the checkpoint again"
        ) from None


def _read_policy(path: Path) -> TrainedPolicy:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        found = values.get("format")
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise PolicyError(f"{path}: cannot be read ({error}); copy the checkpoint again") from None
    if found != FORMAT:
        raise PolicyError(f"{path}: format {found}; this program reads {FORMAT}")
    try:
        read = validate(PolicyFile, values, str(path))
    except ConfigError as error:
        raise PolicyError(f"{error}\nCopy the checkpoint again") from None
    values = read.model_dump(exclude={"format"})
    return TrainedPolicy(**{
        **values,
        "architecture": Architecture.from_json(values["architecture"]),
        "normalisation": Normalisation.from_json(values["normalisation"]),
        "pictures": read.pictures,
        **{key: tuple(values[key]) for key in ("cameras", "tasks", "joints")},
    })  # fmt: skip


def _read_network(path: Path, shape: Architecture) -> ChunkNetwork:
    """The network with the weights in the file. It takes no memory before the file is known to be of that shape."""
    with torch.device("meta"):
        network = ChunkNetwork(shape)
    with safe_open(path, "pt") as file:
        found = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        wanted = {name: tuple(value.shape) for name, value in network.state_dict().items()}
        differing = [name for name in sorted(found.keys() | wanted.keys()) if found.get(name) != wanted.get(name)]
        if differing:
            name = differing[0]
            more = f" and {len(differing) - 1} more" if len(differing) > 1 else ""
            raise ValueError(f"{name}: {found.get(name, 'absent')}, expected {wanted.get(name, 'none')}{more}")
        weights = {name: file.get_tensor(name).float() for name in found}
    broken = [name for name, value in weights.items() if not torch.isfinite(value).all()]
    if broken:
        raise ValueError(f"{broken[0]} holds numbers that are not finite")
    network.load_state_dict(weights, assign=True)
    return network.eval()


def _shortened(error: Exception) -> str:
    text = str(error)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _mismatches(policy: TrainedPolicy, modality: Modality, config: Config) -> list[str]:
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
    if not faults:
        ours = interface.modality_for(policy.cameras, policy.architecture.horizon)
        faults += [
            f"{key} of its manifest is {getattr(modality, key)}, it gives and takes {getattr(ours, key)}"
            for key in ("video", "state", "action", "horizon")
            if getattr(modality, key) != getattr(ours, key)
        ]
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
