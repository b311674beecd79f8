"""./twin up, ps, health and down with real services: the broker and generators, on a port of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from services.cli.app import main
from services.process import start_mark
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def twin(tmp_path):
    """Runs one command; everything is down at the end."""
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    values = {
        "deploy.supervisor.state_dir": tmp_path / "state",
        "deploy.control_plane.embed_broker": "false",
        "deploy.sockets.work.bind": endpoint,
        "deploy.sockets.work.connect": endpoint,
    }
    settings = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]

    def run(command, *arguments):
        argv = [sys.executable, "-m", "services.cli", command, *settings, *arguments]
        return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120)

    run.state, run.settings = tmp_path / "state", settings
    yield run
    if run.state.exists():
        run("down")


def pids(twin) -> dict[str, int]:
    return {path.stem: json.loads(path.read_text())["pid"] for path in sorted(twin.state.glob("*.json"))}


def test_up_scale_ps_health_down(twin):
    result = twin("up", "broker", "generator")
    assert result.returncode == 0, result.stdout + result.stderr
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["broker", "generator-1"]
    first = pids(twin)
    assert twin("up", "broker", "generator").stdout == "already up\n" and pids(twin) == first

    result = twin("up", "--generators", "2", "broker", "generator")
    assert result.returncode == 0, result.stdout + result.stderr
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["generator-2"]  # only what is new
    assert pids(twin).items() > first.items()

    result = twin("up", "--arm", "broker", "generator")
    assert result.returncode == 2 and "up with other choices (arm); run ./twin down first" in result.stderr

    rows = [line.split()[:3] for line in twin("ps").stdout.splitlines()[1:]]
    assert rows == [[name, str(pid), "up"] for name, pid in pids(twin).items()]
    assert twin("health", "generator").stdout == "generator: up\n"

    running = pids(twin)
    result = twin("down")
    assert result.stdout.split("\n")[:3] == ["generator-2 stopped", "generator-1 stopped", "broker stopped"]
    assert all(start_mark(pid) is None for pid in running.values())
    assert twin("down").stdout == "nothing is up\n" and "nothing is up" in twin("ps").stdout
    assert twin("health", "generator").returncode == 1


def test_what_dies_is_started_again_and_what_a_killed_up_left_is_taken_down(twin):
    assert twin("up", "broker").returncode == 0
    old = pids(twin)["broker"]
    os.kill(old, signal.SIGKILL)
    for _ in range(1000):
        if pids(twin)["broker"] != old:
            break
        time.sleep(0.1)
    supervisor = json.loads((twin.state / "supervisor/up.json").read_text())["pid"]
    os.kill(supervisor, signal.SIGKILL)
    broker = pids(twin)["broker"]
    assert broker != old and start_mark(broker)
    assert "nobody looks after them" in twin("ps").stdout
    assert twin("down").stdout == "broker stopped\n"
    assert start_mark(broker) is None


def test_one_that_cannot_start_shows_why_and_leaves_nothing(twin):
    result = twin(
        "up",
        "broker",
        "--set",
        "deploy.sockets.work.bind=tcp://192.0.2.1:5560",
        "--set",
        "deploy.security.allow_open=true",
    )
    assert result.returncode == 1 and "broker ended with exit code" in result.stdout
    assert "cannot bind tcp://192.0.2.1:5560" in result.stdout and "did not come up" in result.stderr
    assert pids(twin) == {}


@pytest.mark.parametrize(
    "arguments, text",
    [
        (["--profile", "reel"], "--profile reel: must be one of sim, real; did you mean 'real'?"),
        (["generater"], "has no service 'generater'; it has broker, control, generator,"),
        (["--profile", "real", "rig"], "--profile real has no service 'rig'"),
        (["--generators", "-1"], "--generators"),
    ],
)
def test_typos_are_told_before_anything_starts(twin, arguments, text, capsys):
    assert main(["up", *twin.settings, *arguments]) == 2
    assert text in capsys.readouterr().err
    assert not twin.state.exists()
