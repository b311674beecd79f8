"""skillgen.yaml: generation and presets; also smoothing, filtering and verification of what was generated."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from so101.config.base import Section


class SelectionConfig(Section):
    """Choice of the source demo per subtask. When no way of the one drawn works, up to `fallbacks` others are tried."""

    nn_k: int = Field(ge=1)
    fallbacks: int = Field(ge=0)
    position_weight: float = Field(ge=0)
    rotation_weight: float = Field(ge=0)


class TransitConfig(Section):
    """Joint-space motion to the first pose of a segment. With `planner: curobo` a planned path is tried first
    (ik.yaml: curobo.planner), interpolation is what remains."""

    planner: Literal["interpolation", "curobo"]
    min_frames: int = Field(ge=1)
    max_joint_speed_rad_s: float = Field(ge=0.01)
    clearances_m: list[Annotated[float, Field(ge=0)]] = Field(min_length=1)
    penetration_m: float = Field(ge=0)
    end_slope_m: float = Field(ge=0)
    lift_step_m: float = Field(gt=0)
    max_lift_m: float = Field(ge=0)
    swing_back: float = Field(ge=0, le=1)
    pan_axis_m: tuple[float, float]
    postures_rad: list[tuple[float, float, float, float]]
    check_stride: int = Field(ge=1)
    lag_scales: list[Annotated[float, Field(gt=0)]] = Field(min_length=1)
    goal_iterations: int = Field(ge=1)
    goal_tolerance_m: float = Field(gt=0)
    goal_tolerance_rad: float = Field(gt=0)
    ease: float = Field(ge=0, le=1)
    ease_factor: float = Field(ge=1)
    rounding_frames: int = Field(ge=1)


class InitiationConfig(Section):
    """With `probability`, a skill segment is entered by way of a perturbed start: up to `position_m` off along each
    axis, turned about any axis by an angle of `turn_deg`. Starts out of reach or nearer than `clearance_m` to something
    are drawn again, `redraws` times; then the nominal start it is."""

    enabled: bool
    probability: float = Field(ge=0, le=1)
    position_m: float = Field(ge=0)
    turn_deg: tuple[float, float]
    clearance_m: float = Field(ge=0)
    redraws: int = Field(ge=0)

    @model_validator(mode="after")
    def _ordered(self) -> InitiationConfig:
        low, high = self.turn_deg
        if not 0 <= low <= high <= 180:
            raise ValueError(f"turn_deg is [{low}, {high}]; two angles from 0 to 180, the smaller one first")
        return self


class SettleGate(Section):
    """Hold the target before every change of the jaw command until the arm has arrived, after it until the jaw has,
    at the end of a transit until the hand is within `arrival_tolerance_m`, and on the way while it is more than
    `max_lag_m` behind. With `at_start` the hand is brought to the exact start of a segment too."""

    enabled: bool
    at_start: bool
    position_tolerance_m: float = Field(gt=0)
    speed_tolerance_m_s: float = Field(gt=0)
    max_frames: int = Field(ge=0)
    correction_gain: float = Field(ge=0, le=1)
    correction_damping: float = Field(gt=0)
    max_correction_rad: float = Field(ge=0)
    worth_keeping: float = Field(gt=0, le=1)
    gripper_change_rad: float = Field(gt=0)
    arrival_tolerance_m: float = Field(gt=0)
    max_lag_m: float = Field(gt=0)
    jaw_tolerance_rad: float = Field(gt=0)
    jaw_speed_tolerance_rad_s: float = Field(gt=0)
    jaw_still_frames: int = Field(ge=1)


class PlaceConfig(Section):
    """Raises the last segment until the hand clears the container by `clearance_m`. An opening where a round object
    would lean by more than `max_lean_deg` when let go is taken only when there is no other."""

    clearance_m: float = Field(ge=0)
    raise_step_m: float = Field(gt=0)
    max_raise_m: float = Field(ge=0)
    max_lean_deg: float = Field(gt=0)
    check_stride: int = Field(ge=1)
    iterations: int = Field(ge=1)


class GraspConfig(Section):
    """With `turn`, the grasp of a round object is turned about the object and about the line between the jaws to where
    the arm can point (`so101.tasks.grasping`); up to `max_ways` such grasps are tried, at the seed's place and then
    moved along the object by `shifts_m`. `standoff_m`: room left between the object and the fixed finger, which the
    moving jaw takes up."""

    turn: bool
    standoff_m: float = Field(ge=0)
    shifts_m: list[float] = Field(min_length=1)
    max_ways: int = Field(ge=1)


class NeighboursConfig(Section):
    """The jaw opens no wider than keeps `clearance_m` to objects that are not handled: at most one of `jaw_limits_rad`,
    widest first. When there is no other way they may be touched, and pushed by `give_m` to put something down."""

    enabled: bool
    clearance_m: float = Field(ge=0)
    give_m: float = Field(ge=0)
    jaw_limits_rad: list[float]
    check_stride: int = Field(ge=1)


class SegmentConfig(Section):
    """Which part of a subtask is replayed: what lies within `approach_distance_m` of where the jaw acts; idle frames
    slower than `idle_speed_m_s` are dropped down to `keep_idle_frames` in a row, then the rest is played `speed` times
    faster."""

    approach_distance_m: float = Field(ge=0)
    speed: float = Field(ge=1)
    ik_stride: int = Field(ge=1)
    idle_speed_m_s: float = Field(ge=0)
    keep_idle_frames: int = Field(ge=0)


class CauseThresholds(Section):
    """When an attempt is stopped or how a failure is named."""

    ik_divergence_m: float = Field(gt=0)
    ik_divergence_frames: int = Field(ge=1)
    max_jump_rad: float = Field(gt=0)
    unreachable_m: float = Field(gt=0)
    max_pivot_shift_m: float = Field(ge=0)
    lift_fraction: float = Field(gt=0, le=1)


class SmoothingConfig(Section):
    """Savitzky-Golay on the arm joints, never the jaw."""

    window_frames: int = Field(ge=3)
    order: int = Field(ge=1)

    @model_validator(mode="after")
    def _valid(self) -> SmoothingConfig:
        if self.window_frames % 2 == 0 or self.window_frames <= self.order:
            raise ValueError(f"window_frames {self.window_frames} must be odd and larger than order {self.order}")
        return self


class SkillgenConfig(Section):
    """Generation."""

    base_seed: int = Field(ge=0)
    target_demos: int = Field(ge=1)
    generation_guarantee: bool
    max_attempts: int = Field(ge=1)
    attempts_per_demo: float = Field(ge=1)
    keep_failed: bool
    action_noise_rad: float = Field(ge=0)
    noise_smoothness: float = Field(ge=0, lt=1)
    held_object_correction: bool
    start_noise_rad: float = Field(ge=0)
    held_check_frames: int = Field(ge=1)
    settle_frames: int = Field(ge=1)
    max_frames_per_subtask: int = Field(ge=1)
    selection: SelectionConfig
    transit: TransitConfig
    initiation: InitiationConfig
    gate: SettleGate
    grasp: GraspConfig
    place: PlaceConfig
    neighbours: NeighboursConfig
    segment: SegmentConfig
    causes: CauseThresholds
    smoothing: SmoothingConfig
    keep: Literal["strict", "geometric"]
    presets: dict[str, dict[str, Any]]

    @model_validator(mode="after")
    def _near_enough_to_see(self) -> SkillgenConfig:
        widest = max(self.transit.clearances_m)
        if self.initiation.clearance_m > widest:
            raise ValueError(
                f"initiation.clearance_m is {self.initiation.clearance_m}; at most the widest of "
                f"transit.clearances_m, {widest}: farther off nothing is looked for"
            )
        return self
