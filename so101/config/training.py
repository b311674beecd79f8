"""training.yaml: training of the embedded policy, and the fine-tune of GR00T N1.6."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from so101.config.base import Section
from so101.config.rl import RlConfig


class TuneConfig(Section):
    """Parts of the model that learn; the rest is frozen."""

    llm: bool
    visual: bool
    projector: bool
    diffusion_model: bool

    @model_validator(mode="after")
    def _something_learns(self) -> TuneConfig:
        if not (self.llm or self.visual or self.projector or self.diffusion_model):
            raise ValueError("every part is false; nothing would learn, set at least one to true")
        return self


class OptimizerConfig(Section):
    """Optimiser and learning rate schedule."""

    name: Literal["adamw_torch", "adamw_torch_fused", "adamw_8bit", "paged_adamw_8bit"]
    learning_rate: float = Field(gt=0, lt=1)
    schedule: Literal["cosine", "linear", "constant", "constant_with_warmup"]
    warmup_ratio: float = Field(ge=0, le=1)
    weight_decay: float = Field(ge=0)


class BatchConfig(Section):
    """Samples a step."""

    size: int = Field(ge=1)
    gradient_accumulation_steps: int = Field(ge=1)
    dataloader_workers: int = Field(ge=0)

    @property
    def effective(self) -> int:
        """Samples an optimiser step."""
        return self.size * self.gradient_accumulation_steps


class StepsConfig(Section):
    """Length of the training and its checkpoints."""

    max_steps: int = Field(ge=1)
    save_steps: int = Field(ge=1)
    save_total_limit: int = Field(ge=1)

    @model_validator(mode="after")
    def _saves_once(self) -> StepsConfig:
        if self.save_steps > self.max_steps:
            raise ValueError(f"save_steps {self.save_steps} exceeds max_steps {self.max_steps}; nothing would be saved")
        return self


class AugmentationConfig(Section):
    """Colour jitter strengths as torchvision's ColorJitter takes them, and state dropout."""

    brightness: float = Field(ge=0)
    contrast: float = Field(ge=0)
    saturation: float = Field(ge=0)
    hue: float = Field(ge=0, le=0.5)
    state_dropout_prob: float = Field(ge=0, le=1)


class SamplingConfig(Section):
    """Sharded reading of the dataset."""

    shard_size: int = Field(ge=1)
    episode_sampling_rate: float = Field(gt=0, le=1)
    num_shards_per_epoch: int = Field(ge=1)


class GrootConfig(Section):
    """Fine-tuning GR00T."""

    base_model: str = Field(min_length=1)
    embodiment_tag: str = Field(pattern=r"^[A-Z][A-Z0-9_]*$")
    output_dir: str = Field(min_length=1)
    python: str | None = Field(min_length=1)
    num_gpus: int = Field(ge=1)
    tune: TuneConfig
    optimizer: OptimizerConfig
    batch: BatchConfig
    steps: StepsConfig
    augmentation: AugmentationConfig
    sampling: SamplingConfig


class TrackingConfig(Section):
    """Where trainings and evaluations are logged: `so101.tracking`."""

    enabled: bool
    store: str = Field(min_length=1)
    flush_s: float = Field(gt=0)
    system_metrics_s: float = Field(gt=0)
    retry_s: float = Field(gt=0)
    max_pending: int = Field(ge=1)


class PicturesConfig(Section):
    """Pictures as the network sees them, and which frames it learns from."""

    width_px: int = Field(ge=32, le=1024, multiple_of=8)
    height_px: int = Field(ge=32, le=1024, multiple_of=8)
    margin_px: int = Field(ge=0, le=64)
    stride: int = Field(ge=1, le=16)


class PictureNoiseConfig(Section):
    """Changes of what a sample shows."""

    shift_px: int = Field(ge=0)
    brightness: float = Field(ge=0, lt=1)
    contrast: float = Field(ge=0, lt=1)
    noise: float = Field(ge=0, lt=1)
    state_noise: float = Field(ge=0, le=1)


class ModelConfig(Section):
    """The network."""

    head: Literal["flow", "regression"]
    channels: tuple[int, int, int]
    width: int = Field(ge=16, le=4096)
    blocks: int = Field(ge=1, le=32)
    dropout: float = Field(ge=0, lt=1)
    flow_samples: int = Field(ge=1, le=64)

    @model_validator(mode="after")
    def _groups_of_channels(self) -> ModelConfig:
        if any(not 8 <= channels <= 1024 or channels % 8 for channels in self.channels):
            raise ValueError(f"channels are {list(self.channels)}; each must be a multiple of 8, 8 to 1024")
        return self


class ActingConfig(Section):
    """How flow matching makes a chunk."""

    steps: int = Field(ge=1, le=100)
    noise: float = Field(ge=0, le=2)


class EmbeddedOptimizerConfig(Section):
    """AdamW with warm-up and cosine, and averaged weights."""

    learning_rate: float = Field(gt=0, lt=1)
    weight_decay: float = Field(ge=0)
    warmup_steps: int = Field(ge=0)
    final_ratio: float = Field(ge=0, le=1)
    clip_norm: float = Field(gt=0)
    ema: float = Field(ge=0, lt=1)


class EmbeddedConfig(Section):
    """Training of the embedded policy."""

    pictures: PicturesConfig
    augmentation: PictureNoiseConfig
    model: ModelConfig
    acting: ActingConfig
    objects_weight: float = Field(ge=0)
    objects_arm_m: float = Field(gt=0)
    optimizer: EmbeddedOptimizerConfig
    batch_size: int = Field(ge=1, le=4096)
    max_steps: int = Field(ge=1)
    save_minutes: float = Field(gt=0)
    keep_every_steps: int = Field(ge=0)
    log_steps: int = Field(ge=1)
    held_out_share: float = Field(ge=0, le=0.5)
    seed: int = Field(ge=0)
    device: Literal["auto", "cpu", "cuda"]

    @model_validator(mode="after")
    def _crops_stay_inside(self) -> EmbeddedConfig:
        shift, margin = self.augmentation.shift_px, self.pictures.margin_px
        if shift > margin:
            raise ValueError(f"embedded: augmentation.shift_px {shift} exceeds pictures.margin_px {margin}")
        return self


class DatasetCheckConfig(Section):
    """Thresholds of the checks of a dataset. Travel and `duplicate_rms` are in the units of the dataset."""

    codecs: list[str] = Field(min_length=1)
    frozen_samples: int = Field(ge=2)
    frozen_levels: int = Field(ge=0, le=255)
    frozen_share: float = Field(gt=0, le=1)
    gripper_min_travel: float = Field(ge=0)
    arm_min_travel: float = Field(ge=0)
    duplicate_rms: float = Field(ge=0)


class MixConfig(Section):
    """Merging datasets, and drawing from merged ones."""

    weights: dict[str, float]
    max_repeats: int = Field(ge=1)
    data_file_mb: int = Field(ge=1)
    video_file_mb: int = Field(ge=1)

    @model_validator(mode="after")
    def _weights_are_positive(self) -> MixConfig:
        bad = {name: weight for name, weight in self.weights.items() if not 0 < weight < float("inf")}
        if bad:
            raise ValueError(f"mix.weights has {bad}; a weight must be above 0, leave out what shall not be drawn")
        return self


class TrainingConfig(Section):
    """Training. `action_horizon`: rows of an action chunk, frames."""

    action_horizon: int = Field(ge=1, le=1000)
    tracking: TrackingConfig
    dataset_check: DatasetCheckConfig
    mix: MixConfig
    groot: GrootConfig
    embedded: EmbeddedConfig
    rl: RlConfig
