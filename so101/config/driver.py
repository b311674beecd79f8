"""robot.yaml: the servo bus, the leader arm, and what the driver lets the arm do."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from so101.config.base import Section
from so101.config.types import Size

Id = Annotated[int, Field(ge=0, le=253)]
SixIds = tuple[Id, Id, Id, Id, Id, Id]
SixSizes = tuple[Size, Size, Size, Size, Size, Size]


class ServoSetup(Section):
    """Registers every servo gets before it moves; names and units as in `so101.robot.tables`."""

    return_delay: int = Field(ge=0, le=254)
    operating_mode: Literal[0]
    p_coefficient: int = Field(ge=0, le=254)
    i_coefficient: int = Field(ge=0, le=254)
    d_coefficient: int = Field(ge=0, le=254)
    acceleration: int = Field(ge=0, le=254)
    max_acceleration: int = Field(ge=0, le=254)


class JawSetup(Section):
    """Registers of the jaw's servo besides."""

    max_torque: int = Field(ge=0, le=1000)
    protection_current: int = Field(ge=0, le=511)
    overload_torque: int = Field(ge=0, le=254)


class BusConfig(Section):
    """The servo bus of the follower."""

    port: str = Field(min_length=1)
    baud: int = Field(ge=1)
    ids: SixIds
    calibration: str = Field(min_length=1)
    reply_timeout_ms: float = Field(gt=0, le=1000)
    retries: int = Field(ge=0, le=10)
    min_span_ticks: int = Field(ge=1, le=4095)
    rate_hz: float = Field(gt=0, le=500)
    reopen_s: float = Field(gt=0)
    supply_v: tuple[float, float]
    setup: ServoSetup
    jaw_setup: JawSetup

    @model_validator(mode="after")
    def _sensible(self) -> BusConfig:
        if len(set(self.ids)) < len(self.ids):
            raise ValueError(f"ids {list(self.ids)} name a servo twice")
        if not self.supply_v[0] < self.supply_v[1]:
            raise ValueError(f"supply_v is {list(self.supply_v)}; the first number must be below the second")
        return self


class LeaderConfig(Section):
    """The arm that is moved by hand in teleoperation."""

    port: str = Field(min_length=1)
    calibration: str = Field(min_length=1)
    rate_hz: float = Field(gt=0, le=500)


class CutoffsConfig(Section):
    """From `warn` the user is told, from `hold` the arm stays, from `home` it returns home and lets go."""

    warn: float = Field(gt=0)
    hold: float = Field(gt=0)
    home: float = Field(gt=0)
    after_s: float = Field(ge=0)

    @model_validator(mode="after")
    def _rising(self) -> CutoffsConfig:
        if not self.warn <= self.hold <= self.home:
            raise ValueError(f"warn {self.warn:g}, hold {self.hold:g}, home {self.home:g} must rise in this order")
        return self


class SafetyConfig(Section):
    """What the driver allows the arm to do."""

    max_step_rad: SixSizes
    max_speed_rad_s: SixSizes
    speed_memory_s: float = Field(gt=0)
    max_lead_rad: SixSizes
    floor_z_m: float
    floor_boxes: list[str]
    max_stale_ms: float = Field(gt=0)
    home_after_s: float = Field(gt=0)
    session_s: float = Field(gt=0)
    max_command_age_ms: float = Field(gt=0)
    lost_after_s: float = Field(gt=0)
    temperature_c: CutoffsConfig
    load_pct: CutoffsConfig
    calm_s: float = Field(ge=0)
    release_pose_rad: tuple[float, float, float, float, float, float] | None
    return_speed_rad_s: float = Field(gt=0)
    return_min_s: float = Field(gt=0)
    arrival_ticks: int = Field(ge=1)
    arrival_speed_rad_s: float = Field(gt=0)
    arrival_timeout_s: float = Field(gt=0)
