"""What the sources share."""

from __future__ import annotations

from services.control.models import Service
from so101.config import Config


def patience_s(config: Config) -> float:
    """How long a page waits for another service."""
    return config.deploy.control_plane.request_timeout_s


def absent(problem: str) -> Service:
    """A service that does not run."""
    return Service(running=False, problem=problem)
