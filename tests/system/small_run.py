"""The small run that several tests look at, and the command that makes it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

OVERRIDES = ["teleop.operator.num_demos=2", "render.setting=fast"]
DEMOS = 2
SMALL = ["--demos", str(DEMOS), "--workers", "2", "--set", "render.setting=fast"]


def twin(*arguments: str) -> subprocess.CompletedProcess:
    environment = {"MUJOCO_GL": "egl", **os.environ}
    return subprocess.run(
        [sys.executable, "-m", "so101.cli", *arguments], capture_output=True, text=True, env=environment, timeout=600
    )


def files_and_bytes(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
