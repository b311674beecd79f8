"""The `report` part of dataset.yaml: what the page of a run shows."""

from __future__ import annotations

from pydantic import Field

from so101.config.base import Section


class WorkspaceConfig(Section):
    """Maps of what the arm reaches (`./twin workspace`). Approach angles are those of task.yaml, pinch."""

    in_report: bool
    table: str
    cell_m: float = Field(gt=0)
    radius_m: float = Field(gt=0)
    yaw_step_deg: float = Field(gt=0, le=180)
    slice_cell_m: float = Field(gt=0)
    slice_top_m: float
    slice_samples: int = Field(ge=2)
    slice_dips_deg: list[float] = Field(min_length=1, max_length=4)


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
    workspace: WorkspaceConfig
