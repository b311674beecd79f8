"""configs/families/*.yaml: one file a family of tasks; what they say, checked.

A family is a scene (arm, statics, slots for free objects, regions), a start, a reward and a control rate. A task is a
goal over it. Positions are in the family's world, whose origin stands under the arm's base.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from so101.config import CONFIGS_DIR, Config, load_config
from so101.config.base import Section, read_yaml, validate
from so101.config.scene import GeomConfig
from so101.config.types import Color, ContactConfig, Share, Size, Vec3
from so101.errors import ConfigError, did_you_mean

FOLDER = "families"
WORD_GROUPS = ("qpos", "qvel", "active", "goal", "site", "target", "target_minus_site", "previous_action")
Six = tuple[float, float, float, float, float, float]
Rect = Annotated[tuple[float, float, float, float], AfterValidator(lambda value: _proper(value))]
Low_High = Annotated[tuple[float, float], AfterValidator(lambda value: _ordered(value))]


def _proper(rect: tuple[float, ...]) -> tuple[float, ...]:
    if not (rect[0] < rect[2] and rect[1] < rect[3]):
        raise ValueError("write it as [x low, y low, x high, y high], each low below its high")
    return rect


def _ordered(pair: tuple[float, float]) -> tuple[float, float]:
    if pair[0] > pair[1]:
        raise ValueError("the first number must not exceed the second")
    return pair


class Control(Section):
    """One step of a task is `frame_skip` physics steps; `horizon` steps are an episode."""

    timestep_s: float = Field(gt=0, le=0.01)
    frame_skip: int = Field(ge=1)
    horizon: int = Field(ge=1)

    @property
    def control_dt(self) -> float:
        """s between two actions."""
        return self.timestep_s * self.frame_skip


class Physics(Section):
    """MuJoCo options, as in scene.yaml."""

    integrator: Literal["Euler", "implicitfast", "implicit", "RK4"] = "Euler"
    cone: Literal["elliptic", "pyramidal"] = "elliptic"
    impratio: float = Field(default=10.0, gt=0)
    solver: Literal["Newton", "CG", "PGS"] = "Newton"
    iterations: int = Field(default=30, ge=1)
    ls_iterations: int = Field(default=50, ge=1)
    tolerance: float = Field(default=1e-8, gt=0)


class Servos(Section):
    """The same servo for all joints."""

    stiffness_nm_per_rad: float = Field(gt=0)
    velocity_gain_nm_s_per_rad: float = Field(ge=0)
    force_limit_nm: float = Field(gt=0)
    damping_nm_s_per_rad: float = Field(ge=0)
    friction_nm: float = Field(ge=0)
    armature_kg_m2: float = Field(gt=0)


class Site(Section):
    """A point of a body, in the body's frame."""

    body: str
    position_m: Vec3


class ArmBox(Section):
    """A collision box of the arm, in the frame of its body."""

    name: str
    body: str
    center_m: Vec3
    half_size_m: tuple[Size, Size, Size]
    visible: bool = False


class Arm(Section):
    """How the stock arm is set up. `servos`: one for all joints, or `robot`: those of robot.yaml."""

    base_position_m: Vec3 = (0.0, 0.0, 0.0)
    servos: Servos | Literal["robot"] = "robot"
    joint_limits_rad: dict[str, Low_High] = {}
    jaw_contact: ContactConfig | None = None
    sites: dict[str, Site]
    boxes: list[ArmBox] = []
    gripper_site: str
    color_rgba: Color | None = None


class Start(Section):
    """Joints at the start and half widths of the uniform noise on them; objects start `drop_m` over their surface."""

    qpos_rad: Six = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    noise_rad: Six = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    drop_m: float = Field(default=0.0, ge=0)


class Geom(GeomConfig):
    """A primitive that may stand on a ring: turned by `ring_rad` about z and moved out by `ring_m`. One that does not
    collide weighs nothing."""

    ring_m: float = Field(default=0.0, ge=0)
    ring_rad: float = 0.0
    visible: bool = True

    @property
    def placed_m(self) -> Vec3:
        """Its centre in the body's frame."""
        x, y, z = self.position_m
        return x + self.ring_m * math.cos(self.ring_rad), y + self.ring_m * math.sin(self.ring_rad), z


class Body(Section):
    """What statics and slots have in common."""

    contact: ContactConfig
    geoms: list[Geom] = Field(min_length=1)


class Static(Body):
    """A body that never moves."""

    position_m: Vec3


class Slot(Body):
    """A free object. bottom_m: z of its lowest point when it stands; radius_m: of the circle around it, from above."""

    mass_kg: float = Field(gt=0)
    bottom_m: float
    radius_m: float = Field(gt=0)


class Park(Section):
    """Where absent slots are held, `step_m` apart along x."""

    position_m: Vec3 = (10.0, 0.0, 50.0)
    step_m: float = Field(default=0.5, gt=0)


class Region(Section):
    """A rectangle about an origin, [x low, y low, x high, y high], and how far above or below still counts."""

    origin_m: Vec3
    rect_m: Rect
    half_height_m: float = Field(gt=0)


class Place(Section):
    """Where a slot starts: uniform in a region; separation_m: from the centres of the others, else the radii's sum."""

    region: str
    yaw: bool = False
    separation_m: float | None = Field(default=None, gt=0)


class Placement(Section):
    """Places are drawn anew while slots overlap or come nearer to the arm than `arm_clearance_m`."""

    attempts: int = Field(default=64, ge=1)
    arm_clearance_m: float = Field(default=0.0, ge=0)


class Near(Section):
    subject: str
    target: str
    radius_m: float = Field(gt=0)


class Above(Section):
    subject: str
    target: str
    margin_m: float


class AtRegion(Section):
    site: str
    region: str


class OnRegion(Section):
    subject: str
    region: str
    below_m: float = Field(default=0.005, ge=0)
    above_m: float = Field(default=0.08, ge=0)


class AtPoint(Section):
    """A point drawn an episode, spherical about `center_m`."""

    site: str
    radius_m: float = Field(gt=0)
    azimuth_rad: Low_High
    elevation_rad: Low_High
    distance_m: Low_High
    center_m: Vec3


class Seated(Section):
    """`subject` stands in an opening of `target` as the strict test of task.yaml has it (position and lean).

    subject_point_m: where the hand goes on the subject, in its frame.
    """

    subject: str
    target: str
    subject_point_m: Vec3 = (0.0, 0.0, 0.0)


class Goal(Section):
    """Exactly one of these."""

    near: Near | None = None
    above: Above | None = None
    at_region: AtRegion | None = None
    on_region: OnRegion | None = None
    at_point: AtPoint | None = None
    seated: Seated | None = None
    all_of: list[Goal] | None = Field(default=None, min_length=1)
    any_of: list[Goal] | None = Field(default=None, min_length=1)
    negated: Goal | None = None

    @model_validator(mode="after")
    def _one(self) -> Goal:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"a goal is exactly one of {', '.join(type(self).model_fields)}; given: {given or 'none'}")
        return self

    @property
    def term(self) -> tuple[str, Any]:
        """Its name and what it says."""
        return next((n, getattr(self, n)) for n in type(self).model_fields if getattr(self, n) is not None)

    @property
    def leaves(self) -> list[Goal]:
        """The terms that are no combination, in order."""
        name, value = self.term
        if name in ("all_of", "any_of"):
            return [leaf for part in value for leaf in part.leaves]
        return value.leaves if name == "negated" else [self]


class GoalTerm(Section):
    weight: float = Field(ge=0)
    margin_m: float = Field(gt=0)


class ReachTerm(GoalTerm):
    within_m: float = Field(ge=0)


class GraspTerm(Section):
    weight: float = Field(ge=0)


class CloseTerm(GraspTerm):
    within_m: float = Field(gt=0)


class StagedReward(Section):
    """Terms for goal, nearness of the hand, grasp, closing; see `so101.families.rewards`."""

    mode: Literal["staged", "potential"]
    goal: GoalTerm
    reach: ReachTerm
    grasp: GraspTerm
    close: CloseTerm
    success_bonus: float = Field(ge=0)


class NearFactor(Section):
    """Two tolerances; the wide one, with `far_share` of the weight, shows the way from where the narrow one is 0."""

    within_m: float = Field(ge=0)
    margin_m: float = Field(gt=0)
    far_margin_m: float = Field(default=1.0, gt=0)
    far_share: Share = 0.0


class CalmFactor(Section):
    within_rad_s: float = Field(ge=0)
    margin_rad_s: float = Field(gt=0)
    share: Share


class EvenFactor(Section):
    within: float = Field(ge=0)
    margin: float = Field(gt=0)
    share: Share


class ReachReward(Section):
    """A product: near the point, with calm joints and even actions."""

    mode: Literal["reach"]
    near: NearFactor
    calm: CalmFactor
    even: EvenFactor


class ExpertHand(Section):
    """How the scripted expert's hand stands at an object. Elevations of the approach: -90 points straight down."""

    steepest_deg: float = Field(ge=-120, le=0)
    flattest_deg: float = Field(ge=-120, le=0)
    inward_deg: float = Field(ge=-150, le=0)
    step_deg: float = Field(gt=0)
    max_lean_deg: float = Field(gt=0, lt=90)
    jaw_open_rad: float
    jaw_release_rad: float
    grasp_over_m: float
    pinch_shift_m: float
    tip_clearance_m: float = Field(ge=0)
    most_raise_m: float = Field(ge=0)


class ExpertWay(Section):
    """Heights and distances of its way, m. Of the hand: clear, raised, approach; of the object's centre: over the table
    (lift) or over what it is put into (carry_over, release_over); set_down_over: under an object put on the table."""

    clear: float = Field(ge=0)
    raised: float = Field(gt=0)
    approach: float = Field(gt=0)
    lift: float = Field(gt=0)
    lifted_within: float = Field(gt=0)
    carry_over: float = Field(gt=0)
    release_over: float = Field(gt=0)
    set_down_over: float = Field(ge=0)


class ExpertTimes(Section):
    """s of each part of its way."""

    up: float = Field(gt=0)
    pre: float = Field(gt=0)
    descend: float = Field(gt=0)
    settle: float = Field(ge=0)
    close: float = Field(gt=0)
    squeeze: float = Field(gt=0)
    lift: float = Field(gt=0)
    carry: float = Field(gt=0)
    place: float = Field(gt=0)
    open: float = Field(gt=0)
    retreat: float = Field(gt=0)


class ExpertHandover(Section):
    """When a policy that drives first gives way: its hand nearer than `reach_m`, or after `latest_step`."""

    reach_m: float = Field(gt=0)
    earliest_step: int = Field(ge=0)
    latest_step: int = Field(ge=1)


class ExpertSettings(Section):
    """The scripted expert (`so101.families.expert`); hold_s: a success is the goal held for so long."""

    hand: ExpertHand
    way_m: ExpertWay
    times_s: ExpertTimes
    handover: ExpertHandover
    feedback_floor_rad: float = Field(gt=0)
    hold_s: float = Field(gt=0)
    horizon_s: float | None = Field(default=None, gt=0)
    lanes: int = Field(ge=1)


class GraspCheck(Section):
    """The object that `./twin grasp-check` lifts: where it stands, heights of the hand over its centre, and dips of
    the approach under the horizontal. For the pipeline's own scene task.yaml has these."""

    slot: str
    place_m: tuple[float, float] | None = None
    offsets_m: list[float] = []
    dips_deg: list[float] = []


class TaskDeclaration(Section):
    """A goal, what is there, where it starts. Slots without a place are absent."""

    language: str = Field(min_length=1)
    place: dict[str, Place]
    goal: Goal
    grasp: GraspCheck | None = None

    @property
    def objects(self) -> set[str]:
        """What goal and grasp name: slots and statics."""
        terms = [leaf.term[1] for leaf in self.goal.leaves]
        named = {getattr(term, role, None) for term in terms for role in ("subject", "target")}
        return (named | ({self.grasp.slot} if self.grasp else set())) - {None}


class CameraDeclaration(Section):
    """A pinhole in a body's frame; xyaxes: picture right and up."""

    body: str
    position_m: Vec3
    xyaxes: Six
    fovy_deg: float = Field(gt=0, lt=180)


class Picture(Section):
    width_px: int = Field(ge=8)
    height_px: int = Field(ge=8)


class Looks(Section):
    """Lights and surroundings. no_shadow_from: statics that cast no shadow, as flat ground has none to cast."""

    background_rgb: tuple[Share, Share, Share] = (0.82, 0.86, 0.90)
    ambient: Share = 0.45
    diffuse: Share = 0.1
    sun: Share = 0.4
    no_shadow_from: list[str] = []
    shadow_map_px: int = Field(default=2048, ge=16)  # 4096 take twice as long to draw [measured]


class Variant(Section):
    """Another family over the same scene."""

    horizon: int | None = Field(default=None, ge=1)
    tasks: list[str] | None = None


class FamilyDeclaration(Section):
    """One file of configs/families."""

    control: Control
    physics: Physics = Physics()
    workshop_task: str | None = None
    variants: dict[str, Variant] = {}
    arm: Arm
    start: Start
    statics: dict[str, Static] = {}
    slots: dict[str, Slot] = {}
    park: Park = Park()
    regions: dict[str, Region] = {}
    placement: Placement = Placement()
    observation: list[Literal[WORD_GROUPS]] = Field(min_length=1)
    reward: StagedReward | ReachReward = Field(discriminator="mode")
    name_tasks: str = "{family}_{task}"
    tasks: dict[str, TaskDeclaration] = Field(min_length=1)
    expert: ExpertSettings | None = None
    cameras: dict[str, CameraDeclaration] = {}
    picture: Picture = Picture(width_px=320, height_px=240)
    looks: Looks = Looks()

    @field_validator("name_tasks")
    @classmethod
    def _names_tasks(cls, value: str) -> str:
        try:
            named = value.format(family="", task="\0")
        except (KeyError, IndexError, ValueError) as error:
            raise ValueError(f"{value!r} may contain {{family}} and {{task}} only ({error})") from error
        if "\0" not in named:
            raise ValueError(f"{value!r} gives all tasks one name; it must contain {{task}}")
        return value

    @model_validator(mode="after")
    def _names_exist(self) -> FamilyDeclaration:
        for name, task in self.tasks.items():
            for slot, place in task.place.items():
                _known(f"tasks.{name}.place", slot, self.slots)
                _known(f"tasks.{name}.place.{slot}.region", place.region, self.regions)
            for leaf in task.goal.leaves:
                kind, value = leaf.term
                if hasattr(value, "region"):
                    _known(f"tasks.{name}.goal.{kind}.region", value.region, self.regions)
                if kind == "seated" and self.workshop_task is None:
                    raise ValueError(f"tasks.{name}.goal.seated needs the openings of a workshop_task; there is none")
            if self.workshop_task is None:
                self.check_objects(name, self.slots)
                for slot in task.objects & set(self.slots) - set(task.place):
                    raise ValueError(f"tasks.{name}.goal names {slot!r}, which has no place in the task")
        for variant, changes in self.variants.items():
            for task in changes.tasks or ():
                _known(f"variants.{variant}.tasks", task, self.tasks)
        return self

    def check_objects(self, name: str, slots: Collection[str]) -> None:
        """Whether the task names no object but `slots` and the statics.

        Raises:
            ValueError: it does; names the key and what there is.
        """
        task = self.tasks[name]
        for kind, value in (leaf.term for leaf in task.goal.leaves):
            if hasattr(value, "subject"):
                _known(f"tasks.{name}.goal.{kind}.subject", value.subject, slots)
            if hasattr(value, "target"):
                _known(f"tasks.{name}.goal.{kind}.target", value.target, [*slots, *self.statics])
        if task.grasp is not None:
            _known(f"tasks.{name}.grasp.slot", task.grasp.slot, slots)


def _known(key: str, name: str, known: Collection[str]) -> None:
    if name not in known:
        raise ValueError(f"{key} names {name!r}; there are {', '.join(known) or 'none'}{did_you_mean(name, known)}")


class Family(Section):
    """A family by name: its declaration with a variant's changes, the file that has it, the other configuration."""

    name: str
    file: str
    declaration: FamilyDeclaration
    config: Config

    @property
    def digest(self) -> str:
        """Hex digest of everything that decides what happens in it."""
        import hashlib

        own = self.declaration.model_dump_json(exclude={"expert", "cameras", "picture", "looks"})
        return hashlib.sha256((own + self.config.digest("robot", "scene", "task")).encode()).hexdigest()[:16]


class FamilyTask(Section):
    """A task by its full name."""

    name: str
    short_name: str
    family: Family
    declaration: TaskDeclaration

    @property
    def language(self) -> str:
        return self.declaration.language

    @property
    def goal(self) -> Goal:
        return self.declaration.goal


def load_families(configs: Path | str | None = None, config: Config | None = None) -> dict[str, Family]:
    """All families by name, from ``<configs>/families/*.yaml``.

    Raises:
        ConfigError: a file is not valid, or two tasks have the same name.
    """
    folder = Path(configs) if configs is not None else CONFIGS_DIR
    config = config if config is not None else load_config(folder)
    families: dict[str, Family] = {}
    for path in sorted((folder / FOLDER).glob("*.yaml")):
        label = f"{FOLDER}/{path.name}"
        declaration = validate(FamilyDeclaration, read_yaml(path), label)
        _check_workshop(declaration, config, label)
        families[path.stem] = Family(name=path.stem, file=path.name, declaration=declaration, config=config)
        for name, variant in declaration.variants.items():
            control = declaration.control.model_copy(
                update={"horizon": variant.horizon} if variant.horizon is not None else {}
            )
            tasks = {task: declaration.tasks[task] for task in variant.tasks or declaration.tasks}
            changed = declaration.model_copy(update={"control": control, "tasks": tasks})
            families[name] = Family(name=name, file=path.name, declaration=changed, config=config)
    if not families:
        raise ConfigError(f"{folder / FOLDER}: no family there; a family is a YAML file, see docs/families.md")
    return families


def _check_workshop(declaration: FamilyDeclaration, config: Config, label: str) -> None:
    name = declaration.workshop_task
    if name is None:
        return
    known = config.task.tasks
    if name not in known:
        raise ConfigError(
            f"{label}: workshop_task is {name!r}; task.yaml has {', '.join(known)}{did_you_mean(name, known)}"
        )
    for task in declaration.tasks:
        try:
            declaration.check_objects(task, known[name].objects)
        except ValueError as error:
            raise ConfigError(f"{label}: {error}") from None


def load_tasks(configs: Path | str | None = None, config: Config | None = None) -> dict[str, FamilyTask]:
    """All tasks by full name.

    Raises:
        ConfigError: as `load_families`.
    """
    tasks: dict[str, FamilyTask] = {}
    for family in load_families(configs, config).values():
        for short, declaration in family.declaration.tasks.items():
            name = family.declaration.name_tasks.format(family=family.name, task=short)
            if name in tasks:
                other = tasks[name].family.name
                raise ConfigError(f"{FOLDER}: {family.name} and {other} both have a task {name!r}; change name_tasks")
            tasks[name] = FamilyTask(name=name, short_name=short, family=family, declaration=declaration)
    return tasks


@functools.lru_cache(maxsize=4)
def _stock_tasks() -> dict[str, FamilyTask]:
    return load_tasks()


def find_task(name: str, configs: Path | str | None = None) -> FamilyTask:
    """A task by its full name.

    Raises:
        ConfigError: there is none of that name, or a file is not valid.
    """
    return task_of(_stock_tasks() if configs is None else load_tasks(configs), name)


def task_of(tasks: dict[str, FamilyTask], name: str) -> FamilyTask:
    """The one of `tasks` called `name`.

    Raises:
        ConfigError: there is none.
    """
    if name not in tasks:
        raise ConfigError(f"unknown task {name!r}; there are {', '.join(tasks)}{did_you_mean(name, tasks)}")
    return tasks[name]


def task_names(configs: Path | str | None = None) -> list[str]:
    """Full names of all tasks."""
    return list(_stock_tasks() if configs is None else load_tasks(configs))
