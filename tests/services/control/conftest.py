"""A control plane in a folder of its own, on sockets nobody else uses."""

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn
from fastapi.testclient import TestClient

from services.control.app import create_app
from services.control.auth import Gate
from services.control.connections import bounded
from services.control.launcher import Outcome, RunState, write_outcome
from services.control.plane import ControlPlane
from services.control.progress import ProgressFile
from so101.config import Config, load_config
from so101.files import write_json

TINY = [  # the smallest real run: one demo, pictures as large as a stamp
    "teleop.operator.num_demos=1",
    "cameras.width_px=64",
    "cameras.height_px=64",
    "render.setting=fast",
    *(f"cameras.cameras.{camera}.{key}={value}" for camera in ("ego", "side", "top")
      for key, value in {"cx_px": 32.0, "cy_px": 32.0, "fx_px": 40.0, "fy_px": 40.0}.items()),
]  # fmt: skip


class FakeLauncher:
    """Stands in for processes: `working` maps a run to its process id. `die` and `end` are what processes do."""

    def __init__(self) -> None:
        self.working: dict[str, int] = {}
        self.jobs: dict[str, dict] = {}
        self.signals: list[tuple[str, int]] = []

    def start(self, state: RunState, job: dict) -> bool:
        assert state.root.name not in self.working, "two processes for one run"
        self.working[state.root.name] = 1000 + len(self.jobs)
        self.jobs[state.root.name] = job
        state.root.mkdir(parents=True, exist_ok=True)
        reporter = ProgressFile(state.progress, 0.0)
        reporter.begin(job["start"])
        reporter.close()
        return True

    def pid(self, state: RunState) -> int | None:
        return self.working.get(state.root.name)

    def signal(self, state: RunState, number: int) -> None:
        if state.root.name in self.working:
            self.signals.append((state.root.name, number))

    def die(self, run_id: str) -> None:
        del self.working[run_id]

    def end(self, state: RunState, code: int, text: str = "") -> None:
        write_outcome(state, Outcome(self.jobs[state.root.name]["start"], code, text, time.time()))
        del self.working[state.root.name]


@pytest.fixture
def make_config(tmp_path, monkeypatch) -> Callable[..., Config]:
    """Configurations whose folders are below tmp_path and whose sockets are files there."""
    monkeypatch.chdir(tmp_path)

    def make(*overrides: str) -> Config:
        return load_config(overrides=[*isolated(tmp_path), *overrides])

    return make


def isolated(folder: Path) -> list[str]:
    """Overrides that keep a control plane from meeting others."""
    sockets = [
        f"deploy.sockets.{name}.{side}=ipc://{folder}/{name}"
        for name in ("driver", "driver_state", "cameras", "work")
        for side in ("bind", "connect")
    ]
    return [
        *sockets,
        "deploy.control_plane.http.port=0",
        "deploy.client.port=1",  # nobody serves policies there
        "deploy.control_plane.request_timeout_s=0.3",
        "deploy.control_plane.runs.prefect=false",
        "deploy.control_plane.events.poll_s=0.05",
        "deploy.control_plane.events.slow_poll_s=0.05",
        "deploy.control_plane.events.interval_s=0.02",
    ]


@pytest.fixture
def launcher() -> FakeLauncher:
    return FakeLauncher()


@pytest.fixture
def plane(make_config, launcher):
    """A control plane whose runs are no processes; nothing polls."""
    plane = ControlPlane(make_config(), launcher)
    yield plane
    plane.settings = plane.settings.model_copy(
        update={"runs": plane.settings.runs.model_copy(update={"at_exit": "leave"})}
    )
    plane.close()


@contextmanager
def serving(plane: ControlPlane, gate: Gate) -> Iterator[str]:
    """The application on a real socket; yields its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        app = create_app(plane, gate)
        config = uvicorn.Config(
            app, http=bounded(plane.settings.http), lifespan="off", log_config=None, timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:  # a test that fails must not keep pytest from ending
            plane.closing = server.should_exit = True
            thread.join(timeout=30)


@pytest.fixture
def api(plane) -> TestClient:
    return TestClient(create_app(plane, Gate(None)), base_url="http://localhost:8000", headers={"X-Twin": "1"})


def command_line_run(folder: Path, **settings: object) -> Path:
    """A run folder as `./twin run` leaves it, without demos."""
    folder.mkdir(parents=True)
    write_json(folder / "run.json", {"version": 1, "digest": "", "settings": settings})
    return folder


def environment() -> dict[str, str]:
    """Of a process that must find our packages from any folder."""
    root = Path(__file__).resolve().parents[3]
    return {**os.environ, "PYTHONPATH": str(root), "MUJOCO_GL": os.environ.get("MUJOCO_GL", "egl")}


def events_of(text: str) -> list[dict]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
