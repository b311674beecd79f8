"""robot.yaml: joints, servo model, end effector frame, collision primitives."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from so101.config.base import Section
from so101.config.driver import BusConfig, LeaderConfig, SafetyConfig
from so101.config.types import Color, ContactConfig, Impedance, Quat, Share, Size, Vec3
from so101.config.virtual import VirtualConfig


class JointConfig(Section):
    """One servo joint, as the twin models it: torque = stiffness (target - q) - velocity gain dq/dt within the force
    limit, against passive damping and dry friction; the target is the command sent `delay_s` before."""

    name: str
    lower_rad: float
    upper_rad: float
    stiffness_nm_per_rad: float = Field(gt=0)
    velocity_gain_nm_s_per_rad: float = Field(ge=0)
    damping_nm_s_per_rad: float = Field(ge=0)
    friction_nm: float = Field(ge=0)
    armature_kg_m2: float = Field(ge=0)
    force_limit_nm: float = Field(gt=0)
    delay_s: float = Field(ge=0)
    home_rad: float
    nominal_lower_deg: float
    nominal_upper_deg: float

    @property
    def lag_s(self) -> float:
        """How far a joint runs behind steadily moving commands: the delay, and all damping over stiffness."""
        damping = self.velocity_gain_nm_s_per_rad + self.damping_nm_s_per_rad
        return self.delay_s + damping / self.stiffness_nm_per_rad

    @model_validator(mode="after")
    def _ordered(self) -> JointConfig:
        if not self.lower_rad < self.upper_rad:
            raise ValueError(f"lower_rad {self.lower_rad} must be below upper_rad {self.upper_rad}")
        if not self.lower_rad <= self.home_rad <= self.upper_rad:
            raise ValueError(f"home_rad {self.home_rad} must lie within [{self.lower_rad}, {self.upper_rad}]")
        return self


Bound = Annotated[float, Field(ge=0)]


class ServoBounds(Section):
    """[low, high] of each identified parameter. The order of the fields is the order in which defaults are tried."""

    armature_kg_m2: tuple[Bound, Bound]
    force_limit_nm: tuple[Bound, Bound]
    friction_nm: tuple[Bound, Bound]
    delay_s: tuple[Bound, Bound]
    velocity_gain_nm_s_per_rad: tuple[Bound, Bound]
    stiffness_nm_per_rad: tuple[Bound, Bound]

    @model_validator(mode="after")
    def _ordered(self) -> ServoBounds:
        for name in type(self).model_fields:
            low, high = getattr(self, name)
            if not low < high:
                raise ValueError(f"{name} is [{low:g}, {high:g}]; the first number must be below the second")
        for name in ("force_limit_nm", "stiffness_nm_per_rad"):
            if getattr(self, name)[0] <= 0:
                raise ValueError(f"{name} starts at {getattr(self, name)[0]:g}; it must start above 0")
        return self


class IdentificationConfig(Section):
    """How the servo model is fitted to a recording."""

    bounds: ServoBounds
    skip_s: float = Field(ge=0)
    scan_candidates: int = Field(ge=1)
    scan_seed: int = Field(ge=0)
    outlier_deg: float = Field(gt=0)
    step_of_range: float = Field(gt=0, lt=0.5)
    iterations: tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]]
    least_gain: float = Field(gt=0)
    worth_it: float = Field(ge=0)
    max_lag_frames: int = Field(ge=1)


class CollisionBox(Section):
    """A box that replaces a mesh hull, in the frame of its body."""

    name: str
    body: str
    center_m: Vec3
    half_size_m: tuple[Size, Size, Size]


class RobotConfig(Section):
    """The arm."""

    base_position_m: Vec3
    base_yaw_rad: float
    joints: list[JointConfig] = Field(min_length=6, max_length=6)
    max_delay_s: float = Field(ge=0)
    friction_turn_rad: float = Field(gt=0)
    friction_solimp: tuple[Share, Share, Size, Share, Impedance]
    ee_body: str
    ee_position_m: Vec3
    ee_quat_wxyz: Quat
    hull_free_bodies: list[str]
    contact_free_bodies: list[str]
    max_hull_vertices: int = Field(ge=4)
    jaw_boxes: list[CollisionBox]
    jaw_contact: ContactConfig
    color_rgba: Color
    motor_color_rgba: Color
    identification: IdentificationConfig
    bus: BusConfig
    leader: LeaderConfig
    safety: SafetyConfig
    virtual: VirtualConfig

    @model_validator(mode="after")
    def _delays(self) -> RobotConfig:
        delays = {f"joints.{joint.name}.delay_s": joint.delay_s for joint in self.joints}
        delays["identification.bounds.delay_s"] = self.identification.bounds.delay_s[1]
        for key, delay_s in delays.items():
            if delay_s > self.max_delay_s:
                raise ValueError(f"{key} reaches {delay_s:g}; max_delay_s allows {self.max_delay_s:g}")
        return self

    @property
    def joint_names(self) -> tuple[str, ...]:
        return tuple(joint.name for joint in self.joints)
