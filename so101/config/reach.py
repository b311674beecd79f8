"""deploy.yaml, section `reach`: the reach policy on the arm."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from so101.config.base import Section

SixNumbers = Annotated[list[float], Field(min_length=6, max_length=6)]


class TickMapConfig(Section):
    """From calibrated servo ticks to the joints of a model. Six numbers: one a joint, the jaw last."""

    sign: Annotated[list[Literal[-1, 1]], Field(min_length=6, max_length=6)]
    offset_rad: SixNumbers
    jaw_span_rad: tuple[float, float] | None
    ticks_per_turn: Literal[4095, 4096]
    fits_mid_ticks: SixNumbers | None

    @model_validator(mode="after")
    def _the_jaw_opens(self) -> TickMapConfig:
        if self.offset_rad[-1] != 0:
            raise ValueError(
                f"offset_rad ends in {self.offset_rad[-1]:g}; the jaw goes by the fraction of its range and takes no "
                "offset: write 0 there and move its ends by jaw_span_rad"
            )
        if self.jaw_span_rad is not None and not self.jaw_span_rad[0] < self.jaw_span_rad[1]:
            raise ValueError(
                f"jaw_span_rad is {list(self.jaw_span_rad)}; it must be [closed, open], closed below open: a mirrored "
                "jaw has sign -1"
            )
        return self


class ReachConfig(Section):
    """`./twin deploy-reach`."""

    task: str = Field(min_length=1)
    role: str = Field(min_length=1)
    target_m: tuple[float, float, float]
    seconds: float = Field(gt=0)
    ema_alpha: float = Field(gt=0, le=1)
    step_ticks: int = Field(ge=1)
    start_ease_s: float = Field(ge=0)
    looks_hz: float = Field(gt=0)
    within_m: float = Field(gt=0)
    throttled_warn: int = Field(ge=0)
    map_fractions: list[Annotated[float, Field(gt=0, lt=1)]] = Field(min_length=1)
    max_map_error_rad: float = Field(gt=0)
    tick_map: TickMapConfig
