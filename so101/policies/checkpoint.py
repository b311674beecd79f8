"""`embedded`: learned policies, found by role in a folder of models.

``models/<role>/manifest.json`` says what lies there: the kind of policy, the task, what it takes and gives, and its
files with their digests.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal

from pydantic import Field

from so101.config import Config
from so101.config.base import Section, validate
from so101.errors import ConfigError, did_you_mean
from so101.policies.base import Modality, Policy, PolicyError, PolicyOptions

MANIFEST = "manifest.json"
LEARNED: dict[str, str] = {"so101-chunk": "so101.learning.policy:make_chunk_policy"}
"""Kind of a checkpoint -> "module:function" that is called with (config, checkpoint) and returns a `Policy`."""


class ModalityManifest(Section):
    """`Modality` in a manifest."""

    video: list[str]
    state: dict[str, int] = Field(min_length=1)
    action: dict[str, int] = Field(min_length=1)
    language: str = Field(min_length=1)
    horizon: int = Field(ge=1, le=1000)
    relative: list[str] = []


class Manifest(Section):
    """Content of manifest.json. `files`: name in the folder -> SHA-256 in hex."""

    format: Literal[1]
    kind: str = Field(min_length=1)
    task: str = Field(min_length=1)
    modality: ModalityManifest
    files: dict[str, str] = Field(min_length=1)


@dataclass(frozen=True)
class Checkpoint:
    """A checked folder of a model."""

    folder: Path
    manifest: Manifest

    @property
    def modality(self) -> Modality:
        m = self.manifest.modality
        return Modality(tuple(m.video), dict(m.state), dict(m.action), m.language, m.horizon, tuple(m.relative))


def find_checkpoint(models_dir: Path | str, role: str) -> Checkpoint:
    """The model in ``models_dir/role``, its manifest valid and all its files there, unchanged.

    Raises:
        PolicyError: says what is missing or wrong, all of it.
    """
    models = Path(models_dir)
    inside = models.iterdir() if models.is_dir() else ()
    roles = sorted(path.name for path in inside if path.is_dir() and not path.name.startswith("."))
    if role not in roles:
        known = f"it has: {', '.join(roles)}{did_you_mean(role, roles)}" if roles else "there is no model in it"
        raise PolicyError(
            f"{models / role}: no such model folder; {known}. Put the checkpoint there, mount the folder at {models}, "
            "or name another with deploy.server.models_dir and deploy.server.role"
        )
    folder = models / role
    try:
        manifest = validate(
            Manifest, json.loads((folder / MANIFEST).read_text(encoding="utf-8")), str(folder / MANIFEST)
        )
    except FileNotFoundError:
        found = ", ".join(sorted(path.name for path in folder.iterdir())[:10]) or "nothing"
        raise PolicyError(f"{folder}: no {MANIFEST} (found: {found}); is this a checkpoint of ours?") from None
    except (OSError, ValueError) as error:
        raise PolicyError(f"{folder / MANIFEST}: cannot be read as JSON ({error})") from None
    except ConfigError as error:
        raise PolicyError(str(error)) from None
    faults = [fault for name, digest in manifest.files.items() if (fault := _file_fault(folder, name, digest))]
    if faults:
        raise PolicyError(f"{folder}: the checkpoint is not whole: {'; '.join(faults)}. Copy it again")
    return Checkpoint(folder, manifest)


def _file_fault(folder: Path, name: str, digest: str) -> str:
    path = folder / name
    if Path(name).is_absolute() or ".." in Path(name).parts:
        return f"{name} points out of the folder"
    if not path.is_file():
        return f"{name} is missing"
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "sha256") if hasattr(hashlib, "file_digest") else hashlib.sha256(file.read())
    return "" if found.hexdigest() == digest.lower() else f"{name} is not the file the manifest means (SHA-256)"


def make_embedded(config: Config, options: PolicyOptions) -> Policy:
    """The learned policy of a role.

    Raises:
        PolicyError: no such checkpoint, or this program cannot run its kind.
    """
    server = config.deploy.server
    checkpoint = find_checkpoint(server.models_dir, server.role)
    kind = checkpoint.manifest.kind
    if kind not in LEARNED:
        known = f"kinds: {', '.join(sorted(LEARNED))}{did_you_mean(kind, LEARNED)}" if LEARNED else "it runs none yet"
        raise PolicyError(
            f"{checkpoint.folder}: the checkpoint is whole, but this program cannot run a policy of kind {kind!r}; "
            f"{known}. Until then serve it with its own server and `--policy groot`, or use replay or expert"
        )
    module, _, function = LEARNED[kind].partition(":")
    return getattr(import_module(module), function)(config, checkpoint)
