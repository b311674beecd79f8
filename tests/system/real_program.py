"""`./real` as a process of its own, with sockets of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.ports import free_port

REPOSITORY = Path(__file__).parents[2]
POLL_S = 0.1


def own_sockets(folder: Path) -> list[str]:
    """Options with which nothing meets the services of others on this machine."""
    settings = ["deploy.control.start_ease_s=1.0"]
    for name in ("driver", "driver_state", "cameras", "rig_state", "rig"):
        settings += [f"deploy.sockets.{name}.{end}=ipc://{folder}/{name}" for end in ("bind", "connect")]
    port = free_port()
    settings += [f"deploy.server.port={port}", f"deploy.client.port={port}"]
    return [word for setting in settings for word in ("--set", setting)]


class RealProgram:
    """``./real ARGUMENTS`` in `folder`; its output goes to a file. A context: ended at its end."""

    def __init__(self, folder: Path, *arguments: str, command: str = "", stdin: int = subprocess.DEVNULL) -> None:
        self._output = folder / "output.txt"
        argv = [sys.executable, "-m", "services.cli", "real", *[command] * bool(command)]
        with open(self._output, "wb") as output:
            self.process = subprocess.Popen(
                [*argv, *own_sockets(folder), *arguments],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(REPOSITORY), "MUJOCO_GL": os.environ.get("MUJOCO_GL", "egl")},
                stdin=stdin,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def said(self) -> str:
        return self._output.read_text(errors="replace")

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for `condition` while the program runs."""
        while not condition():
            assert self.process.poll() is None, self.said
            time.sleep(POLL_S)

    def ends(self, timeout_s: float = 90.0) -> int:
        """Wait for its end; returns the exit code."""
        return self.process.wait(timeout_s)

    def __enter__(self) -> RealProgram:
        return self

    def __exit__(self, *exception: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)
