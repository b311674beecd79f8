"""The `report` part of dataset.yaml: what the page of a run shows."""

from __future__ import annotations

from pydantic import Field

from so101.config.base import Section


class ReportConfig(Section):
    """The report page."""

    confidence: float = Field(gt=0, lt=1)
    coverage_cell_m: float = Field(gt=0)
    coverage_cell_deg: float = Field(gt=0)
    coverage_low_share: float = Field(ge=0, le=1)
    coverage_low_cells: int = Field(ge=0)
    top_sources: int = Field(ge=1)
    video_demos: int = Field(ge=0)
    frame_moments: int = Field(ge=1)
    frame_width_px: int = Field(ge=16)
    jpeg_quality: int = Field(ge=1, le=95)
