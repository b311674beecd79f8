"""task.yaml: which objects, where they start, what the subtasks are, what success means."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from so101.config.base import Section
from so101.config.types import Quat, Vec3
from so101.errors import did_you_mean

Range = tuple[float, float]


class PlacementConfig(Section):
    """Start pose of one object in `world` and its ranges. roll_rad turns about the object's own x axis (as Isaac Lab's
    reset does), yaw_rad about the vertical through `yaw_center_m` (object frame); both after the nominal rotation.

    servable_at_m: roll and yaw are drawn again, at the same place, until the arm can grasp the object so far along its
    z axis and stand it up in the container (by IK alone, `so101.tasks.grasping`). Where no turn will do the last one
    stays.
    """

    prop: str
    position_m: Vec3
    quat_wxyz: Quat = (1.0, 0.0, 0.0, 0.0)
    x_m: Range = (0.0, 0.0)
    y_m: Range = (0.0, 0.0)
    roll_rad: Range = (0.0, 0.0)
    yaw_rad: Range = (0.0, 0.0)
    yaw_center_m: Vec3 = (0.0, 0.0, 0.0)
    servable_at_m: float | None = None

    @model_validator(mode="after")
    def _ordered(self) -> PlacementConfig:
        for key in ("x_m", "y_m", "roll_rad", "yaw_rad"):
            low, high = getattr(self, key)
            if low > high:
                raise ValueError(f"{key} is [{low}, {high}]; the first number must not exceed the second")
        return self


class SubtaskConfig(Section):
    """One subtask: poses are replayed relative to `object`. `signal` ends it (none for the last); `held` is the object
    in the jaw, whose pose in the hand is corrected for; offsets are added to the end, drawn inclusive, in frames.

    openings: for putting `held` into the container: indices into `openings_m` in the order they are tried, or
    `farthest`: all, the farthest from the shoulder first, so that what stands is never between hand and robot.
    Occupied ones are passed over.
    """

    name: str
    object: str
    signal: str | None = None
    held: str | None = None
    openings: list[int] | Literal["farthest"] = "farthest"
    end_offset_frames: tuple[int, int] = (0, 0)

    @model_validator(mode="after")
    def _ordered(self) -> SubtaskConfig:
        if not self.openings or (self.openings != "farthest" and len(set(self.openings)) < len(self.openings)):
            raise ValueError(f"openings is {self.openings}; name at least one, each once, or write farthest")
        low, high = self.end_offset_frames
        if low > high:
            raise ValueError(f"end_offset_frames is [{low}, {high}]; the first number must not exceed the second")
        return self


class GeometricFilter(Section):
    """The loose filter (the blog's): horizontal distance to the container centre, height over its surface, upright
    cosine."""

    max_horizontal_m: float = Field(gt=0)
    min_height_m: float
    max_height_m: float
    min_upright_cos: float = Field(ge=-1, le=1)


class StrictTest(Section):
    """The strict test on the settled final state, held for `still_frames` frames."""

    max_axis_distance_m: float = Field(gt=0)
    min_height_m: float
    max_height_m: float
    min_upright_cos: float = Field(ge=-1, le=1)
    min_jaw_open_fraction: float = Field(ge=0, le=1)
    max_speed_m_s: float = Field(gt=0)
    max_angular_speed_rad_s: float = Field(gt=0)
    still_frames: int = Field(ge=1)


class SuccessConfig(Section):
    """Every one of `objects` must end in `container`, each in an opening of its own.

    openings_m: xy of the container's openings in its frame; one with an object's origin nearer than `occupied_radius_m`
    and `occupied_height_m` is taken. Heights are measured from the container's frame origin (strict) and from
    `surface_height_m` (geometric).
    center_m: its centre for the geometric filter. pivot_m: point of the object that must follow the retargeted path
    when the arm cannot serve its rotation.
    """

    objects: list[str] = Field(min_length=1)
    container: str
    openings_m: list[tuple[float, float]] = Field(min_length=1)
    center_m: tuple[float, float]
    pivot_m: Vec3 = (0.0, 0.0, 0.0)
    occupied_radius_m: float = Field(gt=0)
    occupied_height_m: float = Field(gt=0)
    surface_height_m: float
    geometric: GeometricFilter
    strict: StrictTest
    grasp_lift_m: float = Field(gt=0)
    container_push_m: float = Field(gt=0)


class TaskDefinition(Section):
    """One task. `seed_task`: its seeds are demonstrations of that task (itself when none); segments are matched by the
    props they handle."""

    language: str = Field(min_length=1)
    seed_task: str | None = None
    objects: dict[str, PlacementConfig]
    subtasks: list[SubtaskConfig] = Field(min_length=1)
    success: SuccessConfig

    @model_validator(mode="after")
    def _names_exist(self) -> TaskDefinition:
        known = set(self.objects)
        used = {s.object for s in self.subtasks} | {s.held for s in self.subtasks if s.held}
        used |= {*self.success.objects, self.success.container}
        if used - known:
            raise ValueError(f"unknown objects {sorted(used - known)}; this task has {sorted(known)}")
        count = len(self.success.openings_m)
        listed = [i for s in self.subtasks if s.openings != "farthest" for i in s.openings]
        if wrong := sorted({i for i in listed if not 0 <= i < count}):
            raise ValueError(f"subtasks name the openings {wrong}; success.openings_m has 0 to {count - 1}")
        if len(self.success.objects) > count:
            raise ValueError(f"{len(self.success.objects)} objects cannot each have one of {count} openings")
        return self


class GraspCheckConfig(Section):
    """The jaw closes on the object of the task, lifts and holds it, for every pair of a grasp offset and a dip angle.

    offsets_m, by task: along the object's z axis from its origin. dips_deg: approach below the horizontal.
    """

    offsets_m: dict[str, list[float]]
    dips_deg: list[float] = Field(min_length=1)
    jaw_open_rad: float
    approach_m: float = Field(gt=0)
    speed_m_s: float = Field(gt=0)
    jaw_speed_rad_s: float = Field(gt=0)
    close_s: float = Field(gt=0)
    first_hold_s: float = Field(ge=0)
    lift_m: float = Field(gt=0)
    settle_s: float = Field(ge=0)
    hold_s: float = Field(gt=0)
    max_creep_m: float = Field(gt=0)
    min_lifted_share: float = Field(gt=0, le=1)
    reach_tolerance_m: float = Field(gt=0)
    reach_tolerance_rad: float = Field(gt=0)
    far_m: float = Field(gt=0)


class PinchConfig(Section):
    """How a round object that lies on the table may be pinched: see `so101.tasks.grasping`.

    dips_deg: approaches below the horizontal, best first. max_tilt_deg: of the line between the jaws. jaw_lever_m: from
    the jaw's hinge to the pinch point. table_clearance_m: under the fingers when the jaw stands at closed_jaw_rad.
    place_height_m: of the object over its seated height, with one of place_lean_deg, when it is stood up.
    """

    dips_deg: list[float] = Field(min_length=1)
    max_tilt_deg: float = Field(gt=0, lt=90)
    closed_jaw_rad: float
    jaw_lever_m: float = Field(gt=0)
    table_clearance_m: float = Field(ge=0)
    place_height_m: float = Field(ge=0)
    place_lean_deg: list[float] = Field(min_length=1)
    tolerance_rad: float = Field(gt=0)


class TaskConfig(Section):
    """All tasks and the one in use."""

    name: str
    grasp_check: GraspCheckConfig
    pinch: PinchConfig
    min_gap_m: float = Field(ge=0)
    max_redraws: int = Field(ge=0)
    tasks: dict[str, TaskDefinition]

    @model_validator(mode="after")
    def _active_exists(self) -> TaskConfig:
        for name, task in self.tasks.items():
            if task.seed_task is not None and task.seed_task not in self.tasks:
                known = f"tasks: {', '.join(sorted(self.tasks))}{did_you_mean(task.seed_task, self.tasks)}"
                raise ValueError(f"tasks.{name}.seed_task is {task.seed_task!r}; {known}")
        if self.name not in self.tasks:
            known = f"tasks: {', '.join(sorted(self.tasks))}{did_you_mean(self.name, self.tasks)}"
            raise ValueError(f"name is {self.name!r}; {known}")
        return self

    @property
    def active(self) -> TaskDefinition:
        return self.tasks[self.name]
