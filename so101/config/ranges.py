"""Ranges that settings are drawn from at random."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from so101.config.base import Section


def _ordered(value: tuple[float, float]) -> tuple[float, float]:
    if value[0] > value[1]:
        raise ValueError("the first number must not exceed the second")
    return value


Interval = Annotated[tuple[float, float], AfterValidator(_ordered)]
_Positive = Annotated[float, Field(gt=0)]
_NotNegative = Annotated[float, Field(ge=0)]
PositiveInterval = Annotated[tuple[_Positive, _Positive], AfterValidator(_ordered)]


def between(interval: tuple[float, float], u: float) -> float:
    """The number at share u (0 to 1) of an interval."""
    return interval[0] + (interval[1] - interval[0]) * u


class Scale(Section):
    """The nominal value times a factor from `scale`. Log-uniform: half and double are equally likely."""

    scale: PositiveInterval
    law: Literal["uniform", "log_uniform"]

    def value(self, nominal: float, u: float) -> float:
        """The drawn value for u uniform in 0 to 1."""
        if self.law == "uniform":
            return nominal * between(self.scale, u)
        return nominal * math.exp(between((math.log(self.scale[0]), math.log(self.scale[1])), u))


class Shift(Section):
    """The nominal value plus a number from `add`, uniform."""

    add: Interval

    def value(self, nominal: float, u: float) -> float:
        """The drawn value for u uniform in 0 to 1."""
        return nominal + between(self.add, u)


class Value(Section):
    """A number from `value` in place of the nominal one, uniform."""

    range: Annotated[tuple[_NotNegative, _NotNegative], AfterValidator(_ordered)]

    def value(self, nominal: float, u: float) -> float:
        """The drawn value for u uniform in 0 to 1."""
        return between(self.range, u)
