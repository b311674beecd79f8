"""compose.yaml without an engine: what it promises of every service of ours; its commands and settings exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from services.cli.serve import SERVICES
from services.lineup import health_check
from so101.config import load_config

ROOT = Path(__file__).resolve().parents[2]


def plain(value):
    """`value` with ${NAME:-default} replaced by its default, as compose does for unset variables."""
    if isinstance(value, str):
        return re.sub(r"\$\{\w+(?::-([^}]*))?\}", lambda match: match[1] or "", value)
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list) else value


COMPOSE = plain(yaml.safe_load((ROOT / "compose.yaml").read_text()))
OURS = {name: service for name, service in COMPOSE["services"].items() if service["image"] == "so101-twin"}


def words(service: dict) -> list[str]:
    command = service["command"]
    return shlex.split(command) if isinstance(command, str) else command


def test_the_services_of_each_profile():
    profiles = {name: tuple(service.get("profiles", ())) for name, service in COMPOSE["services"].items()}
    always = {name for name, wanted in profiles.items() if not wanted}
    assert always == {"control", "generator", "renderer", "policy"}
    assert {name for name, wanted in profiles.items() if "sim" in wanted} == {"rig", "rig-camera"}
    assert {name for name, wanted in profiles.items() if "real" in wanted} == {"driver", "camera"}
    assert {name for name, wanted in profiles.items() if "gpu" in wanted} == {"groot", "isaaclab"}


@pytest.mark.parametrize("name", OURS)
def test_every_service_of_ours_is_confined_and_limited(name):
    service = OURS[name]
    assert service["user"].split(":")[0] not in ("0", "root")
    assert service["read_only"] and service["cap_drop"] == ["ALL"] and "no-new-privileges" in service["security_opt"]
    assert service["mem_limit"] and service["cpus"] and service["pids_limit"]
    assert service["restart"] == ("no" if "launchers" in service.get("profiles", ()) else "unless-stopped")


@pytest.mark.parametrize("name", [name for name in OURS if "launchers" not in OURS[name].get("profiles", ())])
def test_commands_and_health_checks_name_services_that_exist(name):
    command = words(OURS[name])
    assert command[0] in ("serve", "up")
    assert command[0] == "up" or command[1] in SERVICES
    test = OURS[name]["healthcheck"]["test"]
    assert test[:3] == ["CMD", "/app/containers/entrypoint", "health"]
    for service in test[3:]:
        health_check(load_config(), service)


def test_the_settings_of_the_project_network_are_settings():
    overrides = COMPOSE["services"]["control"]["environment"]["TWIN_SETTINGS"].split()
    deploy = load_config(overrides=overrides).deploy
    assert deploy.security.curve and not deploy.security.allow_open
    for socket in type(deploy.sockets).model_fields:  # none is forgotten
        assert getattr(deploy.sockets, socket).bind.startswith("tcp://0.0.0.0:"), socket
        assert "127.0.0.1" not in getattr(deploy.sockets, socket).connect, socket
    assert deploy.server.api_token_file and deploy.control_plane.http.token_file.startswith("/app/keys/")


def test_only_loopback_is_published():
    ports = [port for service in COMPOSE["services"].values() for port in service.get("ports", ())]
    assert sorted(ports) == ["127.0.0.1:5555:5555", "127.0.0.1:8000:8000"]


def test_the_fine_tune_of_groot_is_started_by_name_only_and_finds_what_was_written_for_it():
    from so101.learning.groot import _IN_CONTAINER, _SERVICE
    from so101.learning.groot_files import SCRIPT_FILE

    service = COMPOSE["services"][_SERVICE]
    assert service["profiles"] == [_SERVICE] and service["restart"] == "no"
    assert service["user"].split(":")[0] != "0" and service["cap_drop"] == ["ALL"]
    mounts = {volume.rpartition(":")[2] for volume in service["volumes"]}
    assert {_IN_CONTAINER.dataset, _IN_CONTAINER.output} <= mounts
    assert words(service)[-1] == _IN_CONTAINER.launch_file(SCRIPT_FILE)
    assert (ROOT / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
