"""deploy.yaml, `control_plane`: the page, the HTTP API and the runs behind them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from so101.config.base import Section


class HttpConfig(Section):
    """Where browsers reach it, and which of them."""

    host: str = Field(min_length=1)
    port: int = Field(ge=0, le=65535)
    token_file: str = Field(min_length=1)
    allowed_hosts: list[str]
    max_body_bytes: int = Field(ge=1024)
    max_connections: int = Field(ge=1)
    patience_s: float = Field(gt=0)


class RunsConfig(Section):
    """The runs: where they are, how many at once, how they are started and stopped."""

    folder: str = Field(min_length=1)
    recordings: list[str]
    max_concurrent: int = Field(ge=1)
    max_queued: int = Field(ge=1)
    max_crashes: int = Field(ge=0)
    stop_grace_s: float = Field(gt=0)
    at_exit: Literal["stop", "leave"]
    executor: Literal["auto", "local", "network", "ray"]
    prefect: bool
    prefect_start_s: int = Field(ge=1)
    progress_interval_s: float = Field(ge=0)


class EventsConfig(Section):
    """Live updates of the page."""

    poll_s: float = Field(gt=0)
    slow_poll_s: float = Field(gt=0)
    interval_s: float = Field(gt=0)
    heartbeat_s: float = Field(gt=0)
    max_clients: int = Field(ge=1)
    stale_s: float = Field(gt=0)
    camera_idle_s: float = Field(gt=0)


class ControlPlaneConfig(Section):
    """The control plane."""

    http: HttpConfig
    state_dir: str = Field(min_length=1)
    datasets: list[str]
    embed_broker: bool
    request_timeout_s: float = Field(gt=0)
    jpeg_quality_pct: int = Field(ge=1, le=100)
    runs: RunsConfig
    events: EventsConfig
