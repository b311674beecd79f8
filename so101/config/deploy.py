"""deploy.yaml: the policy server's address and how action chunks are executed."""

from __future__ import annotations

from pydantic import Field, model_validator

from so101.config.base import Section


class ServerConfig(Section):
    """Where the policy server binds."""

    host: str = Field(min_length=1)
    port: int = Field(ge=1, le=65535)
    max_message_bytes: int = Field(ge=1024)


class ClientConfig(Section):
    """Where the control loop finds the policy server."""

    host: str = Field(min_length=1)
    port: int = Field(ge=1, le=65535)
    timeout_ms: int = Field(ge=1)
    connect_timeout_ms: int = Field(ge=1)


class ControlConfig(Section):
    """The loop that turns chunks into joint targets."""

    control_hz: float = Field(gt=0)
    action_horizon: int = Field(ge=1)
    execute_steps: int = Field(ge=1)
    ema_alpha: float = Field(gt=0, le=1)
    max_stale_ms: float = Field(gt=0)
    start_ease_s: float = Field(ge=0)
    max_episode_s: float = Field(gt=0)

    @model_validator(mode="after")
    def _chunk_is_long_enough(self) -> ControlConfig:
        if self.execute_steps > self.action_horizon:
            raise ValueError(
                f"execute_steps {self.execute_steps} exceeds action_horizon {self.action_horizon}; "
                "a chunk has no more actions than that"
            )
        return self


class SupervisorConfig(Section):
    """Services as plain processes: `services.supervisor`."""

    state_dir: str = Field(min_length=1)
    start_timeout_s: float = Field(gt=0)
    check_timeout_s: float = Field(gt=0)
    poll_s: float = Field(gt=0)
    restart_first_s: float = Field(gt=0)
    restart_max_s: float = Field(gt=0)
    restart_reset_s: float = Field(ge=0)
    stop_grace_s: float = Field(gt=0)
    max_log_bytes: int = Field(ge=1024)


class DeployConfig(Section):
    """Deployment."""

    server: ServerConfig
    client: ClientConfig
    control: ControlConfig
    supervisor: SupervisorConfig
