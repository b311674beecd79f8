"""scene.yaml: physics settings, table, props."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from so101.config.base import Section
from so101.config.ranges import Interval, Scale, Shift, Value
from so101.config.task import PlacementConfig
from so101.config.types import Axis, Color, ContactConfig, Share, Size, Vec3
from so101.errors import did_you_mean


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

    @property
    def is_round(self) -> bool:
        """It has a diameter: 2 size_m[0]."""
        return self.type != "box"

    @property
    def half_extent_m(self) -> tuple[float, float, float]:
        """Half sizes of the box around it."""
        if self.type == "box":
            return tuple(self.size_m)
        radius = self.size_m[0]
        length = self.size_m[1] if self.type != "sphere" else 0.0
        return radius, radius, {"cylinder": length, "capsule": length + radius, "sphere": radius}[self.type]

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


class JointRandomisation(Section):
    """Servos, each joint its own draw; `stiffness` is that of the arm's joints, `gripper_stiffness` of the jaw's. The
    delay is one draw for all: commands share a bus. Null switches a value off."""

    stiffness: Scale | None
    gripper_stiffness: Scale | None
    velocity_gain: Scale | None
    damping: Scale | None
    friction: Scale | None
    armature: Scale | None
    delay_s: Shift | None


class ObjectRandomisation(Section):
    """Free objects, each its own draw: mass, sliding friction, and the diameter of what is round about its own axis
    (cylinders, capsules, spheres)."""

    mass: Scale | None
    friction: Value | None
    diameter_m: Shift | None


class StaticPoseRandomisation(Section):
    """How far something fixed is moved in the world and turned about the vertical."""

    x_m: Interval
    y_m: Interval
    yaw_rad: Interval


class RackedConfig(Section):
    """With `probability`, one more object named `object` stands in a random opening of the task's container at the
    start. Only for tasks with an opening to spare."""

    probability: Share
    object: str
    prop: str


class DistractorArea(Section):
    """A rectangle in the world, on top of the static `surface`, that a distractor's footprint must lie in."""

    surface: str
    x_m: Interval
    y_m: Interval


class DistractorConfig(Section):
    """0 to `max_count` bodies that have nothing to do with the task, of `props` in turn. Each takes the first of
    `tries` random places that is `gap_m` from the start ranges of the task's objects and from the others, or stays
    away."""

    max_count: int = Field(ge=1, le=20)
    props: list[str] = Field(min_length=1)
    areas: list[DistractorArea] = Field(min_length=1)
    gap_m: float = Field(ge=0)
    tries: int = Field(ge=1, le=100)


class PhysicsRandomisation(Section):
    """What is drawn anew for every attempt. Null switches a group off; the draws of the others stay what they were."""

    enabled: bool
    joints: JointRandomisation | None
    jaw_friction: Value | None
    objects: ObjectRandomisation | None
    statics: dict[str, StaticPoseRandomisation] | None
    racked: RackedConfig | None
    distractors: DistractorConfig | None
    park_m: Vec3
    park_step_m: float = Field(gt=0)

    def parked(self, prop: str, place: int) -> PlacementConfig:
        """Where an optional body is while it is absent."""
        x, y, z = self.park_m
        return PlacementConfig(prop=prop, position_m=(x + place * self.park_step_m, y, z))


class SceneConfig(Section):
    """Everything in the twin that is not the arm. Positions here are in `world`."""

    physics: PhysicsConfig
    arm_contact: ContactConfig
    props: dict[str, PropConfig]
    statics: dict[str, PropConfig]
    static_positions_m: dict[str, Vec3]
    randomisation: PhysicsRandomisation

    @model_validator(mode="after")
    def _statics_have_a_place(self) -> SceneConfig:
        if self.statics.keys() != self.static_positions_m.keys():
            raise ValueError(
                f"static_positions_m places {', '.join(sorted(self.static_positions_m)) or 'nothing'}; "
                f"the statics are {', '.join(sorted(self.statics))}"
            )
        return self

    @model_validator(mode="after")
    def _randomised_things_exist(self) -> SceneConfig:
        drawn = self.randomisation
        distractors = drawn.distractors
        statics = {"statics": list(drawn.statics or ()), "distractors.areas": [a.surface for a in _areas(drawn)]}
        props = {
            "racked.prop": [drawn.racked.prop] if drawn.racked else [],
            "distractors.props": distractors.props if distractors else [],
        }
        for names, known in ((statics, self.statics), (props, self.props)):
            for key, used in names.items():
                for name in used:
                    if name not in known:
                        hint = did_you_mean(name, known)
                        raise ValueError(f"randomisation.{key} names {name!r}; there are {', '.join(known)}{hint}")
        for name, prop in self.props.items():
            thinnest = min((2 * geom.size_m[0] for geom in prop.geoms if geom.is_round), default=None)
            change = drawn.objects.diameter_m if drawn.objects else None
            if change and thinnest is not None and thinnest + change.add[0] <= 0:
                raise ValueError(
                    f"randomisation.objects.diameter_m.add is {list(change.add)}; {change.add[0]} m would leave "
                    f"nothing of prop {name!r}, which is {thinnest:g} m thin"
                )
        return self


def _areas(randomisation: PhysicsRandomisation) -> list[DistractorArea]:
    return randomisation.distractors.areas if randomisation.distractors else []
