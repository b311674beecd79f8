"""policy.json as it may be: every value checked before anything is made of it. A file may come from anybody."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from so101.config.base import Section
from so101.config.training import PicturesConfig

FORMAT = 1

_Channels = Annotated[int, Field(ge=8, le=1024, multiple_of=8)]
_Row = list[float]


class ArchitectureFile(Section):
    """`so101.learning.model.Architecture`."""

    head: Literal["flow", "regression"]
    channels: tuple[_Channels, _Channels, _Channels]
    width: int = Field(ge=16, le=4096)
    blocks: int = Field(ge=1, le=32)
    dropout: float = Field(ge=0, lt=1)
    cameras: int = Field(ge=1, le=16)
    joints: int = Field(ge=1, le=64)
    horizon: int = Field(ge=1, le=1000)
    tasks: int = Field(ge=1, le=10_000)
    points: int = Field(ge=0, le=1000)


class NormalisationFile(Section):
    """`so101.learning.normalisation.Normalisation`."""

    state: list[_Row]
    chunk: list[list[_Row]]
    relative: list[bool]
    points: list[list[_Row]]
    low: _Row
    high: _Row


class UnitsFile(Section):
    """Dataset units a rad, and at 0 rad."""

    scale_per_rad: _Row
    offset: _Row


class PolicyFile(Section):
    """`so101.learning.checkpoint.TrainedPolicy`, with the numbers of one agreeing with those of the other."""

    format: Literal[1]
    architecture: ArchitectureFile
    normalisation: NormalisationFile
    pictures: PicturesConfig
    cameras: list[str]
    tasks: list[str]
    joints: list[str]
    units: UnitsFile
    control_hz: float = Field(gt=0)
    dataset_fingerprint: str
    training: dict[str, Any]

    @model_validator(mode="after")
    def _agrees(self) -> PolicyFile:
        shape, numbers = self.architecture, self.normalisation
        faults = [
            f"architecture.{key} is {getattr(shape, key)}, but {key} names {len(names)}"
            for key in ("cameras", "tasks", "joints")
            if len(names := set(getattr(self, key))) != getattr(shape, key) or len(getattr(self, key)) != len(names)
        ]
        expected = {
            "state": (2, shape.joints),
            "chunk": (2, shape.horizon, shape.joints),
            "relative": (shape.joints,),
            "points": (2, shape.points, 3) if shape.points else (2, 0),
            "low": (shape.joints,),
            "high": (shape.joints,),
        }
        values = {f"normalisation.{key}": (getattr(numbers, key), size) for key, size in expected.items()}
        values |= {f"units.{key}": (getattr(self.units, key), (shape.joints,)) for key in ("scale_per_rad", "offset")}
        for key, (value, size) in values.items():
            try:
                found = np.shape(value)
            except ValueError:  # rows of different lengths
                found = "uneven"
            if found != size:
                faults.append(f"{key} has shape {found}, expected {size}")
        if not faults and any(np.min(value[1], initial=1.0) <= 0 for value in (numbers.state, numbers.chunk)):
            faults.append("normalisation: a deviation is not above 0")
        if not faults and np.any(np.array(numbers.low) > np.array(numbers.high)):
            faults.append("normalisation: low exceeds high")
        if faults:
            raise ValueError("; ".join(faults))
        return self
