"""dataset.yaml: how demos are written as a LeRobot v2.1 dataset."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from so101.config.base import Section
from so101.config.report import ReportConfig


class UnitsConfig(Section):
    """Units of state and action in the dataset."""

    body: Literal["degrees", "normalized"]
    calibration: str | None = None

    @model_validator(mode="after")
    def _calibration_is_used(self) -> UnitsConfig:
        if self.calibration is not None and self.body == "degrees":
            raise ValueError("calibration is set, but body is 'degrees', which needs none; use null or 'normalized'")
        return self


class ModalityConfig(Section):
    """GR00T's view of the state and action vectors."""

    groups: dict[str, tuple[int, int]] = Field(min_length=1)
    relative: list[str]
    language_key: str = Field(min_length=1)

    @model_validator(mode="after")
    def _consistent(self) -> ModalityConfig:
        for name, (start, end) in self.groups.items():
            if not 0 <= start < end <= 6:
                raise ValueError(f"group {name} is [{start}, {end}]; a half-open slice of the 6 joints is needed")
        unknown = sorted(set(self.relative) - set(self.groups))
        if unknown:
            raise ValueError(f"relative names {unknown}; groups are {', '.join(self.groups)}")
        return self


class DatasetConfig(Section):
    """The dataset stage."""

    robot_type: str = Field(min_length=1)
    chunks_size: int = Field(ge=1)
    units: UnitsConfig
    cameras: dict[str, str] = Field(min_length=1)
    modality: ModalityConfig
    report: ReportConfig

    @model_validator(mode="after")
    def _camera_names(self) -> DatasetConfig:
        names = list(self.cameras.values())
        if len(set(names)) < len(names):
            raise ValueError(f"cameras map to {names}; two cameras cannot share a name in the dataset")
        bad = [name for name in names if not name or set(name) & set("/.")]
        if bad:
            raise ValueError(f"cameras map to {bad}; a name must not be empty nor hold '/' or '.'")
        return self
