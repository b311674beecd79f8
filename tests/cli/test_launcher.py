"""The launchers, with stand-ins for Python and container engines so that nothing is downloaded or started."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Answers as python, python -m venv, python -m pip and python -m services.cli would, and logs what it was asked for.
FAKE_PYTHON = """#!/usr/bin/env bash
case "$1 $2" in
    "-m venv")
        echo "venv" >>"$LOG"
        mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && echo "version = 3.11" >"$3/pyvenv.cfg" ;;
    "-m pip")
        if [ "$3" = --version ]; then exit 0; fi
        echo "pip $*" >>"$LOG"
        sleep "${PIP_SLEEP_S:-0}"
        if [ -n "${PIP_FAILS:-}" ]; then echo "no network" >&2; exit 1; fi ;;
    "-m services.cli") shift 2; echo "cli MUJOCO_GL=${MUJOCO_GL:-} $*" ;;
    "-c import sys; sys.exit(sys.version_info < (3, 10))") exit "${TOO_OLD:-0}" ;;
    "-c import mujoco"*) exit "${NO_GL:-0}" ;;
    "-c "*) ;;
    *) echo "Python 3.11.0" ;;
esac
"""


@pytest.fixture
def place(tmp_path):
    """A clean clone as far as the launcher sees it."""
    folder = tmp_path / "a clone"
    folder.mkdir()
    for name in ("twin", "real", "policy", "pyproject.toml", "compose.yaml"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "containers", folder / "containers")
    fake = tmp_path / "fake_python"
    fake.write_text(FAKE_PYTHON)
    fake.chmod(0o755)
    return folder


def start(place, *arguments, program="twin", **environment):
    values = {k: v for k, v in os.environ.items() if k != "MUJOCO_GL"}
    values |= {"PYTHON": str(place.parent / "fake_python"), "LOG": str(place.parent / "log"), **environment}
    return subprocess.Popen(
        [str(place / program), *arguments],
        env=values,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def twin(place, *arguments, program="twin", **environment):
    process = start(place, *arguments, program=program, **environment)
    out, errors = process.communicate(timeout=30)
    return process.returncode, out, errors


def installs(place):
    return (place.parent / "log").read_text().count("pip -m pip install")


def test_first_start_installs_later_ones_only_run(place):
    code, out, errors = twin(place, "run", "--run", "two words")
    assert code == 0 and out == "cli MUJOCO_GL=egl run --run two words\n"
    assert "making .venv" in errors and "installing Python packages" in errors
    code, out, errors = twin(place, "report")
    assert (code, out, errors) == (0, "cli MUJOCO_GL=egl report\n", "")
    assert installs(place) == 1


def test_works_from_another_folder_and_through_a_link(place, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(place / "twin")
    twin(place)
    values = {**os.environ, "LOG": str(tmp_path / "log")}
    assert subprocess.run([str(link), "x"], cwd="/", env=values, capture_output=True, text=True).stdout.endswith(" x\n")


def test_a_chosen_gl_is_kept(place):
    assert "MUJOCO_GL=osmesa" in twin(place, MUJOCO_GL="osmesa")[1]


def test_changed_requirements_are_installed_again(place):
    twin(place)
    with open(place / "pyproject.toml", "a") as file:
        file.write("# changed\n")
    assert "bringing .venv up to date" in twin(place)[2]
    assert installs(place) == 2


def test_an_interrupted_installation_starts_over(place):
    process = start(place, PIP_SLEEP_S="30")
    while not (place.parent / "log").exists() or "pip" not in (place.parent / "log").read_text():
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    (place / ".venv/half.txt").write_text("half")
    code, out, errors = twin(place, "x")
    assert code == 0 and "the last installation did not end; starting over" in errors
    assert not (place / ".venv/half.txt").exists()


def test_a_venv_whose_python_is_gone_starts_over(place):
    twin(place)
    (place / ".venv/bin/python").unlink()
    code, _, errors = twin(place, "x")
    assert code == 0 and "half-made or its Python is gone" in errors


def test_an_environment_made_by_hand_is_used_and_never_thrown_away(place):
    (place / ".venv/bin").mkdir(parents=True)
    shutil.copy(place.parent / "fake_python", place / ".venv/bin/python")
    (place / ".venv/mine.txt").write_text("mine")
    assert twin(place, PIP_FAILS="1")[0] == 1
    assert twin(place)[0] == 0
    assert (place / ".venv/mine.txt").exists()


def test_concurrent_first_starts_install_once(place):
    both = [start(place, "x", PIP_SLEEP_S="1") for _ in range(2)]
    ends = [(process.communicate(timeout=30), process.returncode) for process in both]
    assert [code for _, code in ends] == [0, 0]
    assert installs(place) == 1
    assert any("another start is installing" in errors for (_, errors), _ in ends)


def test_pip_that_fails_is_told_and_tried_again(place):
    code, out, errors = twin(place, "x", PIP_FAILS="1")
    assert code == 1 and out == "" and "no network" in errors and "run ./twin again" in errors
    assert twin(place, "x")[:2] == (0, "cli MUJOCO_GL=egl x\n")


def test_too_old_a_python_is_told(place):
    code, _, errors = twin(place, TOO_OLD="1")
    assert code == 1 and "needs Python 3.10 or newer" in errors and "PYTHON=" in errors


def test_missing_gl_prints_the_command_and_goes_on(place):
    tools = place.parent / "tools"  # an apt-get that must not be run for real, and a user without rights
    tools.mkdir()
    for name, text in (("apt-get", "exit 1"), ("sudo", "exit 1"), ("id", "echo 1000")):
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    code, out, errors = twin(place, "x", NO_GL="1", PATH=f"{tools}:{os.environ['PATH']}")
    assert code == 0 and out.startswith("cli")
    assert "sudo apt-get install -y --no-install-recommends libegl1 libgl1 libgl1-mesa-dri" in errors
    assert "everything but rendering works" in errors


# A docker whose daemon runs when DAEMON is set, which has our image when IMAGE is, and compose when COMPOSE_THERE is.
FAKE_DOCKER = """#!/usr/bin/env bash
case "$1 $2" in
    "info "*) [ -n "${DAEMON:-}" ] ;;
    "compose version") [ -n "${COMPOSE_THERE:-}" ] ;;
    "image inspect") echo "\\"${IMAGE_MADE:-2099-01-01T00:00:00Z}\\""; [ -n "${IMAGE:-}" ] || [ -e "$LOG.image" ] ;;
    "build "*) touch "$LOG.image"; echo "built" ;;
    *) echo "docker $* user=$TWIN_USER" ;;
esac
"""
ENGINE_READY = {"DAEMON": "1", "COMPOSE_THERE": "1", "IMAGE": "1"}


def launch(place, program, *arguments, **environment):
    tools = place.parent / "tools"
    tools.mkdir(exist_ok=True)
    for name, text in (("docker", FAKE_DOCKER), ("podman", "#!/bin/sh\nexit 1\n"), ("podman-compose", "#!/bin/sh\n")):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    cleared = {"ENGINE": "", "COMPOSE": "", "TWIN_IMAGE": "", "TWIN_USER": "", "BASE_IMAGE": ""}
    cleared |= {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""}  # folders of this machine are none of docker's
    return twin(place, *arguments, program=program, PATH=f"{tools}:{os.environ['PATH']}", **cleared, **environment)


@pytest.mark.parametrize(
    "environment, reason",
    [
        ({}, "no container engine works here"),  # docker's client alone, without a daemon
        ({"DAEMON": "1"}, "docker has no compose"),
        ({"DAEMON": "1", "COMPOSE_THERE": "1"}, "docker has no image so101-twin; containers/build makes it"),
    ],
)
@pytest.mark.parametrize("program", ["real", "policy"])
def test_local_processes_when_containers_cannot_be_had(place, program, environment, reason):
    code, out, errors = launch(place, program, "--port", "two words", **environment)
    assert code == 0 and out == f"cli MUJOCO_GL=egl {program} --port two words\n"
    assert f"./{program}: local process ({reason}" in errors


def test_containers_when_engine_compose_and_image_are_there(place):
    code, out, errors = launch(place, "real", "--policy", "two words", **ENGINE_READY)
    assert code == 0 and "./real: container so101-real-" in errors
    assert re.match(
        r"docker compose -f compose.yaml --profile launchers run --rm --name so101-real-\d+ -T real real --policy two",
        out,
    )
    assert f"user={os.getuid()}:{os.getgid()}" in out
    assert (place / "runs").is_dir() and not (place / ".venv").exists()  # needs no Python of its own
    assert "-T policy-server policy --port 1" in launch(place, "policy", "--port", "1", **ENGINE_READY)[1]


def test_an_image_older_than_the_code_is_not_used_unless_forced(place):
    old = ENGINE_READY | {"IMAGE_MADE": "2020-01-01T00:00:00Z"}
    code, out, errors = launch(place, "policy", "x", **old)
    assert code == 0 and out.endswith("policy x\n")
    assert "local process (pyproject.toml is newer than the image so101-twin; containers/build brings it up" in errors
    code, out, errors = launch(place, "policy", "x", "--containers", **old)
    assert code == 0 and out.startswith("docker compose") and "is newer than the image" in errors


def test_the_container_is_stopped_when_the_launcher_is(place):
    tools = place.parent / "tools"
    launch(place, "policy", "--local")  # makes the tools
    running = place.parent / "running"
    (tools / "docker").write_text(
        FAKE_DOCKER.replace(
            '*) echo "docker',
            f'"compose -f") touch "{running}"; while [ -e "{running}" ]; do sleep 0.05; done; exit 7 ;;\n'
            f'    "stop "*) echo "$*" >>"$LOG"; rm "{running}" ;;\n    *) echo "docker',
        )
    )
    process = start(place, program="policy", PATH=f"{tools}:{os.environ['PATH']}", ENGINE="docker", **ENGINE_READY)
    while not running.exists():
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 7  # the container's own exit code
    assert re.search(r"^stop -t 30 so101-policy-\d+$", (place.parent / "log").read_text(), re.MULTILINE)


def test_both_can_be_forced(place):
    code, out, errors = launch(place, "policy", "--local", "x", **ENGINE_READY)
    assert code == 0 and out.endswith("policy x\n") and "local process (--local)" in errors
    code, out, errors = launch(place, "policy", "x", "--containers")
    assert code == 1 and out == "" and "./policy: no container engine works here" in errors
    code, out, errors = launch(place, "policy", "--containers", "x", DAEMON="1", COMPOSE_THERE="1")
    assert code == 0 and "built" in errors and "-T policy-server policy x" in out
