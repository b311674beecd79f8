"""ik.yaml."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

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


class SolveEffort(Section):
    """How hard cuRobo tries: start joints solved at once, and gradient iterations of each."""

    seeds: int = Field(ge=1)
    iterations: int = Field(ge=1)


class SpheresConfig(Section):
    """Collision spheres: fitted to the meshes (`so101.kinematics.spheres`), `per_link` many; `jaw_angles_rad` are the
    openings at which the moving jaw is there, all at once. The bounds are what the fit must reach (check_spheres)."""

    per_link: dict[str, int]
    jaw_angles_rad: list[float] = Field(min_length=1)
    samples_per_part: int = Field(ge=100)
    rounds: int = Field(ge=1)
    seed: int = Field(ge=0)
    radius_quantile: float = Field(gt=0, le=1)
    min_coverage: float = Field(gt=0, le=1)
    max_protrusion_m: float = Field(gt=0)


class SelfCollisionConfig(Section):
    """Pairs of links that are never compared, and by how much spheres may overlap: they bulge out of the meshes."""

    enabled: bool
    ignore: dict[str, list[str]]
    allowed_overlap_m: float = Field(ge=0)


class PlannerConfig(Section):
    """Trajectory optimisation of a transit: control points of a cubic B-spline in joint space, several starts at
    once, sampled at `samples` places where every sphere keeps `clearance_m` from every obstacle."""

    control_points: int = Field(ge=5)
    samples: int = Field(ge=8)
    lifts_m: list[float] = Field(min_length=1)
    max_iterations: int = Field(ge=1)
    check_every: int = Field(ge=1)
    step_rad: float = Field(gt=0)
    clearance_m: float = Field(ge=0)
    self_clearance_m: float = Field(ge=0)
    end_slope_m: float = Field(gt=0)
    followed_slope_m: float = Field(gt=0)
    collision_weight: float = Field(gt=0)
    length_weight: float = Field(ge=0)
    smoothness_weight: float = Field(ge=0)
    limit_margin_rad: float = Field(ge=0)
    time_dilation: float = Field(gt=0, le=1)
    held_sphere_spacing: float = Field(gt=0)


class CuroboConfig(Section):
    """cuRobo, either package."""

    weights: AxisWeights
    position_gain: float = Field(gt=0)
    rotation_gain: float = Field(gt=0)
    goal: SolveEffort
    near: SolveEffort
    follow: SolveEffort
    polish_iterations: int = Field(ge=0)
    seed: int = Field(ge=0)
    reach_tolerance_m: float = Field(gt=0)
    joint_distance_weight: float = Field(ge=0)
    spheres: SpheresConfig
    self_collision: SelfCollisionConfig
    planner: PlannerConfig

    @model_validator(mode="after")
    def _links_have_spheres(self) -> CuroboConfig:
        ignore = self.self_collision.ignore
        unknown = sorted({*ignore, *(name for names in ignore.values() for name in names)} - set(self.spheres.per_link))
        if unknown:
            raise ValueError(
                f"curobo.self_collision.ignore names {unknown}; links with spheres are {sorted(self.spheres.per_link)}"
            )
        return self


class IkConfig(Section):
    """Inverse kinematics."""

    backend: Literal["jacobian", "curobo"]
    jacobian: JacobianConfig
    curobo: CuroboConfig
