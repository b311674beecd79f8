"""deploy.yaml, sections `viewer`, `family_record` and `family_probe`: what looks at task families and records them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from so101.config.base import Section


class ViewerConfig(Section):
    """The browser page of `./twin view`, `policy-view`, `replay` and `record`."""

    host: Literal["127.0.0.1", "::1", "localhost"]
    port: int = Field(ge=0, le=65535)
    width_px: int = Field(ge=64, le=1280)
    height_px: int = Field(ge=48, le=960)
    max_fps: float = Field(gt=0, le=120)
    jpeg_quality: int = Field(ge=10, le=95)
    idle_fps: float = Field(gt=0, le=30)


class FamilyRecordConfig(Section):
    """`./twin record`."""

    success_hold_s: float = Field(ge=0)
    far_rad: float = Field(gt=0)
    ramp_s: float = Field(ge=0)
    max_failed_reads: int = Field(ge=1)
    folder: str = Field(min_length=1)


class FamilyProbeConfig(Section):
    """`./twin probe`."""

    hold_steps: int = Field(ge=0)
    reward_marks: list[float] = Field(min_length=1)
    gap: float = Field(gt=0)
