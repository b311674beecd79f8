"""Which services make a whole, how each is started as a plain process, and how each is asked for its health."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from services.health import HealthCheck, HttpCheck, PingCheck, PolicyCheck, PublisherCheck
from services.supervisor import Spec
from services.wire import security_of
from so101.config import Config
from so101.errors import ConfigError, did_you_mean

Profile = Literal["sim", "real"]

# Without an arm, a camera, or a demo or checkpoint to serve the rest is still of use; it starts when there is one.
_MAY_FAIL = ("driver", "camera", "policy")
RIG_PORT = "rig_port"  # in the state folder: leads to the serial port of the simulated arm

_CHECKS: dict[str, Callable[[Config], HealthCheck]] = {
    "control": lambda config: HttpCheck(f"http://{_here(config.deploy.control_plane.http.host)}:"
                                        f"{config.deploy.control_plane.http.port}/api/health"),
    "broker": lambda config: _ping(config, "work"),
    "generator": lambda config: _ping(config, "work"),  # while it runs, what it needs is somebody who hands out work
    "renderer": lambda config: _ping(config, "work"),
    "rig": lambda config: _ping(config, "rig"),
    "driver": lambda config: _ping(config, "driver"),
    "camera": lambda config: PublisherCheck(config.deploy.sockets.cameras.connect, security_of(config, "client")),
    "policy": lambda config: PolicyCheck(_here(config.deploy.server.host), config.deploy.server.port),
}  # fmt: skip


def _here(host: str) -> str:
    """The address under which a service bound to `host` is reached from its own machine."""
    return "127.0.0.1" if host in ("0.0.0.0", "*", "::") else host


def _ping(config: Config, socket: str) -> PingCheck:
    return PingCheck(getattr(config.deploy.sockets, socket).connect, security_of(config, "client"))


def health_check(config: Config, name: str) -> HealthCheck:
    """The check of service `name`, with or without a number behind it (``generator-2``).

    Raises:
        ConfigError: there is no such service.
    """
    service = name.rstrip("0123456789").rstrip("-")
    if service not in _CHECKS:
        raise ConfigError(f"no service is called {name!r}; services: {', '.join(_CHECKS)}{did_you_mean(name, _CHECKS)}")
    return _CHECKS[service](config)


def line_up(
    config: Config,
    state_dir: Path,
    *,
    profile: Profile = "sim",
    generators: int = 1,
    renderers: int = 1,
    arm: bool = False,
    only: Sequence[str] = (),
    settings: Sequence[str] = (),
) -> list[Spec]:
    """All services in the order they start.

    Args:
        arm: the driver may move the arm.
        only: names of services (without numbers); empty for all.
        settings: options of the command line that gave `config`, handed on to every service.

    Raises:
        ConfigError: `only` names a service that `profile` lacks.
    """
    names = ["control"] if config.deploy.control_plane.embed_broker else ["broker", "control"]
    names += ["generator"] * generators + ["renderer"] * renderers
    names += ["rig"] * (profile == "sim") + ["driver", "camera", "policy"]
    for name in only:
        if name not in names:
            there = list(dict.fromkeys(names))
            raise ConfigError(
                f"--profile {profile} has no service {name!r}; it has {', '.join(there)}{did_you_mean(name, there)}"
            )
    port_link = str(state_dir / RIG_PORT)
    own: dict[str, list[str]] = {"driver": ["--arm"] * arm}
    if profile == "sim":
        own["rig"] = ["--port-link", port_link]
        own["driver"] += ["--set", f"robot.bus.port={port_link}"]
        own["policy"] = ["--set", "deploy.server.policy=expert"]  # needs no demo yet; `settings` may say otherwise
    specs, seen = [], dict.fromkeys(names, 0)
    for name in names:
        seen[name] += 1
        if only and name not in only:
            continue
        argv = [sys.executable, "-m", "services.cli", "serve", name, *own.get(name, []), *settings]
        label = f"{name}-{seen[name]}" if name in ("generator", "renderer") else name
        specs.append(Spec(label, tuple(argv), health=health_check(config, name), required=name not in _MAY_FAIL))
    return specs
