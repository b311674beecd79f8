"""The containers, really: a base image from nothing, our image on it, `compose up`, work over the network, a kill.

Needs root, podman, debootstrap and podman-compose; `.ci/run` installs them and turns skipping into failure
(SO101_CONTAINERS=must). SO101_TEST_IMAGE names an image that is there already, to try things out without the rebuild.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from tests.ports import free_port, free_ports
from tests.system.small_run import DEMOS, OVERRIDES, files_and_bytes

ROOT = Path(__file__).resolve().parents[2]
MUST = os.environ.get("SO101_CONTAINERS") == "must"
USER = "12345:12345"  # nobody in particular

pytestmark = pytest.mark.container


def _missing() -> str | None:
    """Why the containers cannot be tried here."""
    if os.geteuid() != 0:
        return "debootstrap needs root"
    tools = ["podman", "podman-compose", "debootstrap", "apt-get"]
    if absent := [tool for tool in tools if shutil.which(tool) is None]:
        return f"not installed: {', '.join(absent)} (.ci/run installs them)"
    return (
        None
        if MUST or "SO101_TEST_IMAGE" in os.environ
        else "takes minutes; set SO101_CONTAINERS=must, as .ci/run does"
    )


@pytest.fixture(scope="module", autouse=True)
def needed():
    if reason := _missing():
        (pytest.fail if MUST else pytest.skip)(f"containers: {reason}")


def run(*command: str, **environment: str) -> subprocess.CompletedProcess:
    values = {**os.environ, "CONTAINERS_CONF": str(ROOT / "containers/restricted.conf"), **environment}
    return subprocess.run(command, cwd=ROOT, env=values, capture_output=True, text=True)


def done(*command: str, **environment: str) -> str:
    """stdout of a command that must succeed."""
    result = run(*command, **environment)
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stdout[-4000:]}\n{result.stderr[-4000:]}"
    return result.stdout


@pytest.fixture(scope="module")
def image(needed) -> str:
    """Our image, built on a base made by debootstrap: nothing but packages from registries goes in."""
    if "SO101_TEST_IMAGE" in os.environ:
        yield os.environ["SO101_TEST_IMAGE"]
        return
    base, image = f"localhost/so101-test-base:{os.getpid()}", f"localhost/so101-test:{os.getpid()}"
    began = time.monotonic()
    try:
        done("containers/make_base.sh", base, ENGINE="podman")
        based = time.monotonic()
        done(
            "containers/build", image, ENGINE="podman", BASE_IMAGE=base, BUILD_ARGS="--isolation=chroot --network=host"
        )
        print(f"\nbase image {based - began:.0f} s, image {time.monotonic() - based:.0f} s")
        yield image
    finally:
        run("podman", "rmi", "--force", image, base)


class Project:
    """One `compose up`, on free ports and folders of its own."""

    def __init__(self, image: str, folder: Path):
        self.name = f"so101test{os.getpid()}"
        self.folder = folder
        sockets = ("driver", "driver_state", "cameras", "rig_state", "work", "rig")
        ports = free_ports(len(sockets) + 2)
        self.http, policy, *ports = ports
        settings = [f"deploy.control_plane.http.port={self.http}", f"deploy.server.port={policy}"]
        for key, port in zip(sockets, ports, strict=True):
            settings += [f"deploy.sockets.{key}.{end}=tcp://127.0.0.1:{port}" for end in ("bind", "connect")]
        self.environment = {"TWIN_IMAGE": image, "TWIN_USER": USER, "TWIN_SET": " ".join(settings)}
        for name in ("runs", "datasets", "models", "keys", "state"):
            path = folder / name
            path.mkdir()
            os.chown(path, *map(int, USER.split(":")))
            self.environment[f"TWIN_{name.upper()}"] = str(path)

    def compose(self, *arguments: str) -> str:
        files = ["-f", "compose.yaml", "-f", "containers/compose.host.yaml"]
        return done("podman-compose", "-p", self.name, *files, *arguments, **self.environment)

    def containers(self, service: str) -> list[str]:
        """Names of the running containers of `service`."""
        labels = [f"io.podman.compose.project={self.name}", f"com.docker.compose.service={service}"]
        filters = [word for label in labels for word in ("--filter", f"label={label}")]
        return sorted(done("podman", "ps", *filters, "--format", "{{.Names}}").split())

    def logs(self) -> str:
        names = done(
            "podman", "ps", "-a", "--filter", f"label=io.podman.compose.project={self.name}", "--format", "{{.Names}}"
        )
        texts = {name: run("podman", "logs", "--tail", "25", name) for name in names.split()}
        return "\n".join(f"== {name}\n{result.stdout}{result.stderr}" for name, result in texts.items())

    def wait_workers(self, kind: str, count: int) -> None:
        """Until so many workers have joined: they load their libraries first."""
        end = time.monotonic() + 300
        while True:
            workers = self.api("GET", "/api/workers")["values"]["workers"]
            if sum(kind in worker["kinds"] for worker in workers) >= count:
                return
            assert time.monotonic() < end, f"{workers}\n{self.logs()}"
            time.sleep(0.5)

    def wait_healthy(self, service: str, count: int = 1, timeout_s: float = 300.0) -> None:
        """Ask the health check of each container until all are well (there is no systemd here to ask by itself)."""
        end = time.monotonic() + timeout_s
        while True:
            names = self.containers(service)
            results = {name: run("podman", "healthcheck", "run", name) for name in names}
            bad = {name: result.stdout for name, result in results.items() if result.returncode}
            if len(names) == count and not bad:
                return
            assert time.monotonic() < end, f"{service}: {len(names)} of {count} containers, {bad}\n{self.logs()}"
            time.sleep(1.0)

    def api(self, method: str, path: str, body: dict | None = None) -> dict:
        token = (self.folder / "keys/control.token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.http}{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)


@pytest.fixture(scope="module")
def project(image, tmp_path_factory):
    project = Project(image, tmp_path_factory.mktemp("containers"))
    try:
        project.compose("up", "-d", "--scale", "generator=3", "control", "generator", "renderer")
        yield project
    finally:
        project.compose("down", "--remove-orphans", "-t", "10")  # else podman-compose leaves generators 2 and 3


def test_services_turn_healthy_with_keys_made_on_the_way(project):
    project.wait_healthy("control")
    project.wait_healthy("generator", 3)
    project.wait_healthy("renderer")
    assert oct((project.folder / "keys").stat().st_mode & 0o777) == "0o700"


def test_containers_are_confined(project):
    name = project.containers("generator")[0]
    assert done("podman", "exec", name, "id", "-u").strip() == USER.split(":")[0]
    assert "Read-only file system" in run("podman", "exec", name, "touch", "/app/x").stderr
    status = done("podman", "exec", name, "cat", "/proc/1/status")
    fields = dict(line.split(":", 1) for line in status.splitlines())
    assert int(fields["CapEff"], 16) == int(fields["CapBnd"], 16) == 0 and int(fields["NoNewPrivs"]) == 1
    host = json.loads(done("podman", "inspect", name))[0]["HostConfig"]
    assert host["Memory"] == 2 << 30 and host["NanoCpus"] == 1_000_000_000
    assert done("podman", "exec", name, "python", "-c", "import torch; print(torch.version.cuda)").strip() == "None"
    environment = done("podman", "exec", name, "env")
    assert "PIP_" not in environment and not run("podman", "exec", name, "ls", "/etc/pip.conf").stdout


def test_a_generation_over_three_containers_survives_a_kill_and_equals_a_local_one(project, operator_run):
    project.wait_healthy("generator", 3)
    project.wait_workers("attempt", 3)
    run_id = project.api("POST", "/api/runs", {"name": "small", "demos": DEMOS, "overrides": OVERRIDES})["id"]
    killed, end = None, time.monotonic() + 600
    while (state := project.api("GET", f"/api/runs/{run_id}"))["state"] not in ("finished", "failed", "stopped"):
        assert time.monotonic() < end, f"{state}\n{project.logs()}"
        workers = project.api("GET", "/api/workers")["values"]["workers"]
        if killed is None and sum(worker["job"].startswith("attempt") for worker in workers) == 3:
            killed = project.containers("generator")[0]
            done("podman", "kill", "--signal", "KILL", killed)
        time.sleep(0.2)
    assert state["state"] == "finished", f"{state}\n{project.logs()}"
    assert killed is not None
    assert files_and_bytes(project.folder / "runs/small/dataset") == files_and_bytes(operator_run / "dataset")


def test_the_simulated_arm_and_the_policy_server_turn_healthy(project):
    project.compose("up", "-d", "rig", "rig-camera", "policy")
    for service in ("rig", "rig-camera", "policy"):
        project.wait_healthy(service)


def test_policy_launcher_starts_a_container_and_ends_it_with_itself(project):
    from services.policy.client import PolicyClient

    port = free_port()
    environment = {**os.environ, **project.environment, "CONTAINERS_CONF": str(ROOT / "containers/restricted.conf")}
    command = ["./policy", "--containers", "--policy", "expert", "--port", str(port)]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**environment, "ENGINE": "podman"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        with PolicyClient("127.0.0.1", port, timeout_ms=120_000) as client:
            assert client.ping(), process.poll()
    finally:
        process.terminate()
        told, _ = process.communicate(timeout=60)
    assert "./policy: container so101-policy-" in told and process.returncode == 143, told
    assert "so101-policy-" not in done("podman", "ps", "-a", "--format", "{{.Names}}")
