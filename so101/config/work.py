"""deploy.yaml, section `work`: who runs the jobs of the stages, and how workers are watched."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from so101.config.base import Section


class RayConfig(Section):
    """The Ray cluster of executor `ray`."""

    address: str | None = Field(min_length=1)
    cpus_per_job: float = Field(gt=0)


class WorkConfig(Section):
    """Executors, the broker and its workers."""

    executor: Literal["local", "network", "ray"]
    heartbeat_s: float = Field(gt=0)
    lease_s: float = Field(gt=0)
    job_limit_s: float = Field(gt=0)
    max_lost_workers: int = Field(ge=1)
    jobs_per_worker: int = Field(ge=1)
    patience_s: float = Field(gt=0)
    request_timeout_s: float = Field(gt=0)
    idle_poll_s: float = Field(gt=0)
    result_poll_s: float = Field(gt=0)
    drain_s: float = Field(ge=0)
    restart_s: float = Field(ge=0)
    contexts_kept: int = Field(ge=1)
    part_bytes: int = Field(ge=1024)
    max_held_bytes: int = Field(ge=1024)
    max_workers: int = Field(ge=1)
    max_batches: int = Field(ge=1)
    ray: RayConfig

    @model_validator(mode="after")
    def _a_lease_outlives_beats(self) -> WorkConfig:
        if self.lease_s < 2 * self.heartbeat_s:
            raise ValueError(
                f"lease_s {self.lease_s:g} is shorter than two beats of heartbeat_s {self.heartbeat_s:g}; one late "
                "beat would cost a worker its job"
            )
        return self
