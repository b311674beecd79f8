"""scene.yaml: physics settings, table, props."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from so101.config.base import Section
from so101.config.robot import Axis, Color, ContactConfig, Size, Vec3


class PhysicsConfig(Section):
    """MuJoCo options. One control period is `substeps` steps of `timestep_s`."""

    control_hz: float = Field(gt=0)
    substeps: int = Field(ge=1)
    integrator: Literal["Euler", "implicitfast", "implicit", "RK4"]
    cone: Literal["elliptic", "pyramidal"]
    impratio: float = Field(gt=0)
    solver: Literal["Newton", "CG", "PGS"]
    iterations: int = Field(ge=1)
    ls_iterations: int = Field(ge=1)
    sleep: bool
    tolerance: float = Field(gt=0)
    gravity_m_s2: Vec3

    @property
    def timestep_s(self) -> float:
        return 1.0 / self.control_hz / self.substeps


class GeomConfig(Section):
    """A primitive. Sizes as MuJoCo's: box half sizes; cylinder radius, half length; sphere radius."""

    name: str
    type: Literal["box", "cylinder", "sphere", "capsule"]
    size_m: list[Size]
    position_m: Vec3 = (0.0, 0.0, 0.0)
    rgba: Color
    collide: bool = True

    @model_validator(mode="after")
    def _sizes_fit(self) -> GeomConfig:
        needed = {"box": 3, "cylinder": 2, "capsule": 2, "sphere": 1}[self.type]
        if len(self.size_m) != needed:
            raise ValueError(f"size_m of a {self.type} needs {needed} numbers, {self.size_m} has {len(self.size_m)}")
        return self


class PropConfig(Section):
    """An object. `symmetry_axis`: the body axis about which it looks and behaves the same, or none."""

    mass_kg: float | None = Field(default=None, gt=0)
    free: bool
    symmetry_axis: Axis | None = None
    rotational_damping_nm_s: float = Field(default=0.0, ge=0)
    contact: ContactConfig
    geoms: list[GeomConfig] = Field(min_length=1)


class SceneConfig(Section):
    """Everything in the twin that is not the arm. Positions here are in `world`."""

    physics: PhysicsConfig
    arm_contact: ContactConfig
    props: dict[str, PropConfig]
    statics: dict[str, PropConfig]
    static_positions_m: dict[str, Vec3]

    @model_validator(mode="after")
    def _statics_have_a_place(self) -> SceneConfig:
        if self.statics.keys() != self.static_positions_m.keys():
            raise ValueError(
                f"static_positions_m places {', '.join(sorted(self.static_positions_m)) or 'nothing'}; "
                f"the statics are {', '.join(sorted(self.statics))}"
            )
        return self
