"""scene.yaml: physics settings, table, props."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from so101.config.base import Section
from so101.config.robot import ContactConfig, Vec3


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
    size_m: list[float] = Field(min_length=1, max_length=3)
    position_m: Vec3 = (0.0, 0.0, 0.0)
    rgba: tuple[float, float, float, float]
    collide: bool = True


class PropConfig(Section):
    """An object. `symmetry_axis`: the body axis about which it looks and behaves the same, or none."""

    mass_kg: float | None = Field(default=None, gt=0)
    free: bool
    symmetry_axis: Vec3 | None = None
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
