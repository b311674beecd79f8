"""teleop.yaml, sections recordings and unit_detection: reading what other programs recorded."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from so101.config.base import Section


class RecordingsConfig(Section):
    """How foreign files are read."""

    units: Literal["auto", "degrees", "normalised", "radians", "pseudo_radians"]
    default_fps_hz: float = Field(gt=0)
    time_jitter: float = Field(gt=0, lt=1)
    columns: list[str]
    joint_aliases: dict[str, list[str]]


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
