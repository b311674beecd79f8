"""Types that several configuration models share."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import AfterValidator, Field

from so101.config.base import Section

Vec3 = tuple[float, float, float]
Share = Annotated[float, Field(ge=0, le=1)]
Color = tuple[Share, Share, Share, Share]
Size = Annotated[float, Field(gt=0)]
Friction = Annotated[float, Field(ge=0)]
Impedance = Annotated[float, Field(ge=1)]  # power of MuJoCo's impedance curve


def _unit_length(value: tuple[float, ...]) -> tuple[float, ...]:
    length = math.hypot(*value)
    if abs(length - 1) > _UNIT_TOLERANCE:
        raise ValueError(f"its length must be 1, is {length:g}")
    return value


_UNIT_TOLERANCE = 0.01  # four decimals, as people write them, are well inside
Quat = Annotated[tuple[float, float, float, float], AfterValidator(_unit_length)]
Axis = Annotated[Vec3, AfterValidator(_unit_length)]


class ContactConfig(Section):
    """MuJoCo contact parameters of a geom."""

    friction: tuple[Friction, Friction, Friction]
    solref: tuple[float, float]
    solimp: tuple[Share, Share, Size, Share, Impedance]
    condim: int = Field(ge=1, le=6)
    priority: int = Field(default=0, ge=0, le=100)
