"""deploy.yaml: the policy server's address and how action chunks are executed."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from so101.config.base import Section
from so101.config.control_plane import ControlPlaneConfig
from so101.config.evaluation import EvaluationConfig
from so101.config.family_tools import FamilyProbeConfig, FamilyRecordConfig, ViewerConfig
from so101.config.reach import ReachConfig
from so101.config.transfer import TransferConfig
from so101.config.work import WorkConfig

NAMED_KEYS = {"space": " ", "esc": "\x1b", "enter": "\n"}


class GrootConfig(Section):
    """The GR00T server behind `--policy groot`: somewhere else, or started here when `host` is null."""

    host: str | None = Field(min_length=1)
    port: int = Field(ge=1, le=65535)
    wire: Literal["w1", "w2", "w3"]
    model_path: str = Field(min_length=1)
    embodiment_tag: str = Field(min_length=1)
    device: str = Field(min_length=1)
    start_timeout_s: float = Field(gt=0)


class ServerConfig(Section):
    """The policy server: where it binds, what it serves, what it takes."""

    host: str = Field(min_length=1)
    port: int = Field(ge=1, le=65535)
    max_message_bytes: int = Field(ge=1024)
    policy: str = Field(min_length=1)
    wire: Literal["w2", "w3"]
    strict: bool
    api_token_file: str | None
    allow_kill: bool
    deadline_ms: float = Field(gt=0)
    max_queued: int = Field(ge=1)
    max_queued_bytes: int = Field(ge=1024)
    high_water: int = Field(ge=1)
    run: str = Field(min_length=1)
    models_dir: str = Field(min_length=1)
    role: str = Field(min_length=1)
    expert_takes: int = Field(ge=1)
    torch_threads: int | None = Field(ge=1)
    groot: GrootConfig


class ClientConfig(Section):
    """Where the control loop finds the policy server."""

    host: str = Field(min_length=1)
    port: int = Field(ge=1, le=65535)
    timeout_ms: int = Field(ge=1)
    connect_timeout_ms: int = Field(ge=1)
    wire: Literal["w1", "w2", "w3"]
    api_token_file: str | None
    max_message_bytes: int = Field(ge=1024)


class KeysConfig(Section):
    """What the terminal's keys mean while a rollout runs; `esc` and `space` by name."""

    pause: list[str] = Field(min_length=1)
    abort: list[str] = Field(min_length=1)
    success: list[str] = Field(min_length=1)
    failure: list[str] = Field(min_length=1)
    help: list[str] = Field(min_length=1)

    @model_validator(mode="after")
    def _one_meaning_a_key(self) -> KeysConfig:
        keys = [key for meant in self.model_dump().values() for key in meant]
        wrong = sorted({key for key in keys if len(key) != 1 and key not in NAMED_KEYS})
        if wrong:
            raise ValueError(f"keys {wrong} are neither one character nor one of {', '.join(NAMED_KEYS)}")
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise ValueError(f"keys {twice} have two meanings; give each key one")
        return self


class ControlConfig(Section):
    """The loop that turns chunks into joint targets."""

    control_hz: float = Field(gt=0)
    action_horizon: int = Field(ge=1)
    execute_steps: int = Field(ge=1)
    ema_alpha: float = Field(gt=0, le=1)
    max_stale_ms: float = Field(gt=0)
    start_ease_s: float = Field(ge=0)
    max_episode_s: float = Field(gt=0)
    settle_s: float = Field(ge=0)
    overlap: bool
    deadline_ms: float = Field(gt=0)
    policy_retries: int = Field(ge=0)
    max_failed_reads: int = Field(ge=1)
    max_frame_age_ms: float = Field(gt=0)
    camera_lost_s: float = Field(gt=0)
    sessions: str = Field(min_length=1)
    keys: KeysConfig

    @model_validator(mode="after")
    def _chunk_is_long_enough(self) -> ControlConfig:
        if self.execute_steps > self.action_horizon:
            raise ValueError(
                f"execute_steps {self.execute_steps} exceeds action_horizon {self.action_horizon}; "
                "a chunk has no more actions than that"
            )
        if self.max_stale_ms * self.control_hz < 1000 * self.execute_steps:
            raise ValueError(
                f"max_stale_ms {self.max_stale_ms:g} is shorter than the {self.execute_steps} execute_steps of a chunk "
                f"at {self.control_hz:g} Hz; the arm would stop in every chunk"
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


class SocketConfig(Section):
    """One socket: where its service binds, where its users connect."""

    bind: str = Field(pattern=r"^(tcp|ipc)://.+")
    connect: str = Field(pattern=r"^(tcp|ipc)://.+")


class SocketsConfig(Section):
    """The sockets of our services."""

    driver: SocketConfig
    driver_state: SocketConfig
    cameras: SocketConfig
    rig_state: SocketConfig
    work: SocketConfig
    rig: SocketConfig


class MessagesConfig(Section):
    """Limits of what travels between our services."""

    max_bytes: int = Field(ge=1024)
    timeout_s: float = Field(gt=0)
    heartbeat_s: float = Field(gt=0)


class SecurityConfig(Section):
    """Who may use our sockets."""

    curve: bool
    keys_dir: str = Field(min_length=1)
    allow_open: bool


class DeployConfig(Section):
    """Deployment."""

    server: ServerConfig
    client: ClientConfig
    control: ControlConfig
    sockets: SocketsConfig
    messages: MessagesConfig
    security: SecurityConfig
    supervisor: SupervisorConfig
    control_plane: ControlPlaneConfig
    work: WorkConfig
    evaluation: EvaluationConfig
    transfer: TransferConfig
    reach: ReachConfig
    viewer: ViewerConfig
    family_record: FamilyRecordConfig
    family_probe: FamilyProbeConfig
