"""ik.yaml."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from so101.config.base import Section


class AxisWeights(Section):
    """Weights by name, never by position in a list: sources disagree on the order."""

    x: float = Field(ge=0)
    y: float = Field(ge=0)
    z: float = Field(ge=0)
    rot_x: float = Field(ge=0)
    rot_y: float = Field(ge=0)
    rot_z: float = Field(ge=0)


class AdaptiveRotation(Section):
    """Continuous scaling of the rotation weights: s = max(threshold_m / error, floor) above the threshold, 1 below."""

    enabled: bool
    threshold_m: float = Field(gt=0)
    floor: float = Field(gt=0, le=1)


class NullSpace(Section):
    """Joint-limit avoidance: gradient step away from limits, projected so the task is not disturbed."""

    gain: float = Field(ge=0)
    margin_rad: float = Field(gt=0)


class JacobianConfig(Section):
    """Damped least squares."""

    formulation: Literal["position_first", "weighted"]
    damping: float = Field(gt=0)
    position_damping: float = Field(gt=0)
    weights: AxisWeights
    rotation_frame: Literal["ee", "base"]
    max_delta_q_rad: float = Field(gt=0)
    iterations_per_frame: int = Field(ge=1)
    step_tolerance_rad: float = Field(ge=0)
    adaptive_rotation: AdaptiveRotation
    null_space: NullSpace


class IkConfig(Section):
    """Inverse kinematics."""

    backend: Literal["jacobian", "curobo"]
    jacobian: JacobianConfig
