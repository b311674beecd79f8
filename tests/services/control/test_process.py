"""The control plane as a process, with a real run: killed and started again while the run goes on."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from so101.datasets.validate import validate_dataset
from tests.services.control.conftest import TINY, environment, isolated

PATIENCE_S = 300  # of a busy machine


class Control:
    """`./twin serve control` in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / f"control-{time.monotonic_ns()}.log"
        overrides = [part for value in isolated(folder) for part in ("--set", value)]
        with open(self._log, "w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "services.cli", "serve", "control", *overrides],
                cwd=folder,
                env=environment(),
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.address = self.wait_for(self._told_address)
        self.http = httpx.Client(base_url=self.address, headers={"X-Twin": "1"}, timeout=60)

    def _told_address(self) -> str | None:
        found = re.search(r"at (http://\S+)", self._log.read_text())
        return found and found[1]

    def wait_for(self, condition, what=""):
        end = time.monotonic() + PATIENCE_S
        while not (value := condition()):
            assert self.process.poll() is None, self._log.read_text()
            assert time.monotonic() < end, f"{what}\n{self._log.read_text()}"
            time.sleep(0.1)
        return value

    def run(self, run_id: str) -> dict:
        return self.http.get(f"/api/runs/{run_id}").json()

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        self.http.close()
        return self.process.wait(PATIENCE_S)


@pytest.fixture
def start(tmp_path):
    controls = []

    def start() -> Control:
        controls.append(Control(tmp_path))
        return controls[-1]

    yield start
    for control in controls:
        if control.process.poll() is None:
            control.end(signal.SIGTERM)


def pid_of(folder: Path) -> int:
    return int((folder / ".control" / "runs" / "one" / "lock").read_text().split()[0])


def test_a_run_outlives_the_control_plane_and_its_own_process(start, tmp_path):
    control = start()
    request = {"name": "one", "demos": 1, "workers": 1, "overrides": TINY}
    assert control.http.post("/api/runs", json=request).json()["state"] == "running"
    control.wait_for(lambda: any(stage["state"] == "running" for stage in control.run("one")["stages"]), "it works")
    pid = pid_of(tmp_path)
    control.end(signal.SIGKILL)
    os.kill(pid, 0)  # it lives

    control = start()
    run = control.run("one")
    assert (run["state"], run["crashes"], pid_of(tmp_path)) == ("running", 0, pid)

    os.killpg(pid, signal.SIGKILL)
    control.wait_for(
        lambda: control.run("one")["crashes"] == 1 and control.run("one")["state"] == "running", "taken up"
    )
    assert pid_of(tmp_path) != pid

    control.http.post("/api/runs/one/stop")
    control.wait_for(lambda: control.run("one")["state"] == "stopped", "stopped")
    control.http.post("/api/runs/one/resume")
    control.wait_for(lambda: control.run("one")["state"] in ("finished", "failed"), "finished")
    run = control.run("one")
    assert (run["state"], run["error"]) == ("finished", "")
    assert run["outcomes"]["verified"]["count"] == 1
    assert validate_dataset(tmp_path / "runs" / "one" / "dataset") == []
    results = control.http.get("/api/runs/one/results").json()
    assert results["dataset"]["episodes"] == 1 and results["report_url"]
    video = control.http.get("/api/videos", params={"run": "one"}).json()[0]
    assert control.http.get(video["url"], headers={"Range": "bytes=4-7"}).content == b"ftyp"
    assert control.end(signal.SIGTERM) == 128 + signal.SIGTERM


def test_a_second_control_plane_in_one_folder_is_refused(start, tmp_path):
    control = start()
    overrides = [part for value in isolated(tmp_path) for part in ("--set", value)]
    second = subprocess.run(
        [sys.executable, "-m", "services.cli", "serve", "control", *overrides],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert second.returncode == 1 and "another control plane works with this folder" in second.stderr
    port = control.address.rpartition(":")[2]
    taken = [
        *overrides,
        "--set",
        f"deploy.control_plane.http.port={port}",
        "--set",
        "deploy.control_plane.state_dir=other",
    ]
    third = subprocess.run(
        [sys.executable, "-m", "services.cli", "serve", "control", *taken],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert third.returncode == 1 and f"cannot listen on 127.0.0.1:{port}" in third.stderr
