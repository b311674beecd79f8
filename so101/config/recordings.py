"""teleop.yaml, sections recordings, unit_detection and replay: what other programs recorded becomes seeds."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from so101.config.base import Section


class RecordingsConfig(Section):
    """How foreign files are read."""

    units: Literal["auto", "degrees", "normalised", "radians", "pseudo_radians"]
    default_fps_hz: float = Field(gt=0)
    fps_range_hz: tuple[Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)]]
    time_jitter: float = Field(gt=0, lt=1)
    columns: list[str]
    joint_aliases: dict[str, list[str]]

    @model_validator(mode="after")
    def _ordered(self) -> RecordingsConfig:
        low, high = self.fps_range_hz
        if low > high:
            raise ValueError(f"fps_range_hz is [{low}, {high}]; the first number must not exceed the second")
        return self


class UnitDetectionConfig(Section):
    """When numbers count as evidence for a unit."""

    min_levels: int = Field(ge=4)
    min_travel_ticks: int = Field(ge=1)
    lattice_tolerance_ticks: float = Field(gt=0, lt=0.25)
    max_tolerance_ticks: float = Field(gt=0, lt=0.25)
    lattice_share: float = Field(gt=0.5, le=1)
    span_ticks: tuple[int, int]
    gripper_span_ticks: tuple[int, int]
    unswept_span_ticks: int = Field(ge=1, le=4096)
    unswept_joint: str
    min_degree_joints: int = Field(ge=1)
    min_clamp_frames: int = Field(ge=1)
    range_margin_rad: float = Field(ge=0)
    pseudo_gripper_rad: float = Field(gt=0)

    @model_validator(mode="after")
    def _ordered(self) -> UnitDetectionConfig:
        for key in ("span_ticks", "gripper_span_ticks"):
            low, high = getattr(self, key)
            if not 0 < low < high <= 4096:
                raise ValueError(f"{key} is [{low}, {high}]; needed is 0 < first < second <= 4096 (ticks of one turn)")
        return self


class ReplayConfig(Section):
    """How a recording is replayed in the twin, and what may be searched so that it works there."""

    follow: Literal["measured", "leader"]
    smoothing_window_frames: int = Field(ge=5)
    smoothing_order: int = Field(ge=2)
    squeeze_rad: float = Field(ge=0)
    closing_speed_rad_s: float = Field(gt=0)
    held_gap_rad: float = Field(gt=0)
    closed_jaw_rad: float = Field(gt=0)
    jaw_still_rad_s: float = Field(gt=0)
    min_held_frames: int = Field(ge=1)
    min_jaw_travel_rad: float = Field(gt=0)
    jaw_level_rad: float = Field(gt=0)
    jaw_open_rad: float = Field(gt=0)
    table: str
    table_height_m: float
    pinch_height_m: float
    pinch_height_spread_m: float = Field(gt=0)
    zero_spread_rad: tuple[float, float, float, float, float, float]
    full_span_ticks: tuple[int, int, int, int, int, int]
    max_spreads: float = Field(gt=0)
    finger_clearance_m: float = Field(ge=0)
    approach_frames: int = Field(ge=1)
    base_clearance_m: float
    object_gap_m: float = Field(ge=0)
    max_container_shift_m: float = Field(ge=0)
    limit_excess_rad: float = Field(ge=0)
    max_tries: int = Field(ge=1)
    search_height_m: float = Field(ge=0)
    search_spread_rad: float = Field(ge=0)
    search_shifts_m: tuple[float, float, float, float]
    search_seed: int = Field(ge=0)
    settle_frames: int = Field(ge=0)

    @model_validator(mode="after")
    def _window(self) -> ReplayConfig:
        if self.smoothing_window_frames % 2 == 0 or self.smoothing_window_frames <= self.smoothing_order:
            raise ValueError(
                f"smoothing_window_frames {self.smoothing_window_frames} must be odd and larger than smoothing_order "
                f"{self.smoothing_order}"
            )
        return self
