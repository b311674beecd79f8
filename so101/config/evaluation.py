"""deploy.yaml, section `evaluation`: policies in closed loop."""

from __future__ import annotations

from pydantic import Field, model_validator

from so101.config.base import Section


class StagesConfig(Section):
    """When a stage of the task counts as reached, told by poses and commands alone.

    near_m, in_hand_m: approached, held: from the pinch point to the box around the object. squeeze_rad,
    stall_speed_rad_s, stall_frames: the jaw is commanded so far beyond where it stands, slower than this, so many
    frames in a row: it is stopped by what it holds. lift_m: of the object's middle. insert_m: of the object's lowest
    point below the container's rim.
    """

    near_m: float = Field(gt=0)
    in_hand_m: float = Field(gt=0)
    squeeze_rad: float = Field(gt=0)
    stall_speed_rad_s: float = Field(gt=0)
    stall_frames: int = Field(ge=1)
    lift_m: float = Field(gt=0)
    insert_m: float = Field(gt=0)


class EvaluationVideosConfig(Section):
    """Videos of an evaluation: how many of each outcome; every how manieth frame, how high each picture."""

    failures: int = Field(ge=0)
    successes: int = Field(ge=0)
    stride_frames: int = Field(ge=1)
    height_px: int = Field(ge=48, multiple_of=2)


class DiagnosisConfig(Section):
    """When a rollout shows a known failure, and what counts as lag, as rest: `so101.evaluation.diagnosis`."""

    jaw_range: float = Field(gt=0)
    jaw_follow_share: float = Field(gt=0, lt=1)
    lag_frames: float = Field(gt=0)
    max_lag_frames: int = Field(ge=1)
    min_move_rad: float = Field(gt=0)
    still_frames: int = Field(ge=1)
    still_units: float = Field(gt=0)
    off_path_m: float = Field(gt=0)
    off_end_m: float = Field(gt=0)
    off_candidates: int = Field(ge=1)
    stuck_s: float = Field(gt=0)
    stuck_m: float = Field(gt=0)
    dither_s: float = Field(gt=0)
    dither_turns: int = Field(ge=1)
    dither_step_m: float = Field(gt=0)
    dither_net_m: float = Field(gt=0)
    clamped_rad: float = Field(gt=0)
    clamped_share: float = Field(gt=0, lt=1)
    missed_share: float = Field(gt=0, lt=1)

    @model_validator(mode="after")
    def _lag_can_be_seen(self) -> DiagnosisConfig:
        if self.lag_frames >= self.max_lag_frames:
            raise ValueError(
                f"lag_frames {self.lag_frames:g} must be less than max_lag_frames {self.max_lag_frames}: no lag beyond "
                "that is looked for"
            )
        return self


class EvaluationConfig(Section):
    """Episodes of a policy in a world that waits for it."""

    first_seed: int = Field(ge=0)
    episodes: int = Field(ge=1)
    max_s: float = Field(gt=0)
    success_hold_s: float = Field(gt=0)
    observation_delay_frames: int = Field(ge=0)
    torch_threads: int = Field(ge=1)
    metrics: bool
    figures: int = Field(ge=0)
    stages: StagesConfig
    videos: EvaluationVideosConfig
    diagnosis: DiagnosisConfig
