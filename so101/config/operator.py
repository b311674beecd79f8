"""teleop.yaml, section `operator`: how the scripted operator moves a leader arm."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from so101.config.base import Section

Range = tuple[float, float]


class GraspStyle(Section):
    """How one task's object is taken and put down.

    kind `axis`: pinch across the object's symmetry axis at `grasp_offset_m` along it, put down upright; `block`: pinch
    two opposite faces from above. dip_deg: angle of the approach below the horizontal, steepest first, the first
    reachable one is used.
    """

    kind: Literal["axis", "block"]
    grasp_offset_m: Range
    lateral_jitter_m: float = Field(ge=0)
    dip_deg: list[float] = Field(min_length=1)
    dip_jitter_deg: float = Field(ge=0)
    place_opening: int = Field(ge=0)
    place_height_m: Range
    place_dip_deg: list[float] = Field(min_length=1)
    place_lean_deg: list[float] = Field(min_length=1)
    lean_pivot_m: float
    squeeze_rad: float = Field(gt=0)
    approach_m: Range
    approach_rise_m: float = Field(ge=0)
    lift_m: Range
    hover_m: Range
    release_shift_m: Range
    retreat_m: Range
    retreat_rise: float = Field(ge=0)


class OperatorConfig(Section):
    """A person on a leader arm: sub-movements with minimum-jerk profiles, pauses, overshoot, drift, hand tremor."""

    num_demos: int = Field(ge=1)
    base_seed: int = Field(ge=0)
    max_tries: int = Field(ge=1)
    frames: tuple[int, int]
    speed_m_s: Range
    turn_rate_rad_s: Range
    fine_speed_factor: float = Field(gt=0, le=1)
    pause_s: Range
    overshoot_fraction: Range
    fine_overshoot: float = Field(ge=0, le=1)
    correction_gain: float = Field(ge=0, le=1)
    correction_limit_m: float = Field(ge=0)
    tremor_rad: float = Field(ge=0)
    tremor_smoothness: float = Field(ge=0, lt=1)
    repeat_probability: float = Field(ge=0, lt=1)
    jaw_open_rad: Range
    jaw_speed_rad_s: Range
    jaw_still_rad_s: float = Field(gt=0)
    pan_axis_m: tuple[float, float]
    swing_back: float = Field(ge=0, le=1)
    solve_iterations: int = Field(ge=1)
    reach_tolerance_m: float = Field(gt=0)
    grasp_tolerance_rad: float = Field(gt=0)
    place_tolerance_rad: float = Field(gt=0)
    styles: dict[str, GraspStyle]

    @model_validator(mode="after")
    def _ordered(self) -> OperatorConfig:
        if self.frames[0] > self.frames[1]:
            raise ValueError(f"frames is {list(self.frames)}; the first number must not exceed the second")
        return self
