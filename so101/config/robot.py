"""robot.yaml: joints, servo model, end effector frame, collision primitives."""

from __future__ import annotations

from pydantic import Field, model_validator

from so101.config.base import Section

Vec3 = tuple[float, float, float]
Quat = tuple[float, float, float, float]


class JointConfig(Section):
    """One servo joint, as the twin models it: torque = stiffness (target - q) - velocity gain dq/dt within the force
    limit, against passive damping and dry friction."""

    name: str
    lower_rad: float
    upper_rad: float
    stiffness_nm_per_rad: float = Field(gt=0)
    velocity_gain_nm_s_per_rad: float = Field(ge=0)
    damping_nm_s_per_rad: float = Field(ge=0)
    friction_nm: float = Field(ge=0)
    armature_kg_m2: float = Field(ge=0)
    force_limit_nm: float = Field(gt=0)
    home_rad: float
    nominal_lower_deg: float
    nominal_upper_deg: float

    @property
    def lag_s(self) -> float:
        """How far a joint runs behind a steadily moving target: all damping over stiffness."""
        return (self.velocity_gain_nm_s_per_rad + self.damping_nm_s_per_rad) / self.stiffness_nm_per_rad

    @model_validator(mode="after")
    def _ordered(self) -> JointConfig:
        if not self.lower_rad < self.upper_rad:
            raise ValueError(f"lower_rad {self.lower_rad} must be below upper_rad {self.upper_rad}")
        if not self.lower_rad <= self.home_rad <= self.upper_rad:
            raise ValueError(f"home_rad {self.home_rad} must lie within [{self.lower_rad}, {self.upper_rad}]")
        return self


class CollisionBox(Section):
    """A box that replaces a mesh hull, in the frame of its body."""

    name: str
    body: str
    center_m: Vec3
    half_size_m: Vec3


class ContactConfig(Section):
    """MuJoCo contact parameters of a geom."""

    friction: Vec3
    solref: tuple[float, float]
    solimp: tuple[float, float, float, float, float]
    condim: int = Field(ge=1, le=6)
    priority: int = 0


class RobotConfig(Section):
    """The arm."""

    base_position_m: Vec3
    base_yaw_rad: float
    joints: list[JointConfig] = Field(min_length=6, max_length=6)
    ee_body: str
    ee_position_m: Vec3
    ee_quat_wxyz: Quat
    hull_free_bodies: list[str]
    contact_free_bodies: list[str]
    max_hull_vertices: int = Field(ge=4)
    jaw_boxes: list[CollisionBox]
    jaw_contact: ContactConfig
    color_rgba: tuple[float, float, float, float]
    motor_color_rgba: tuple[float, float, float, float]

    @property
    def joint_names(self) -> tuple[str, ...]:
        return tuple(joint.name for joint in self.joints)
