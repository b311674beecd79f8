"""training.yaml, section `rl`: reinforcement learning on a task family."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from so101.config.base import Section, validate
from so101.errors import ConfigError


class RlActorConfig(Section):
    """The network that acts. `log_std`: bounds of the logarithm of its deviation."""

    hidden: list[int] = Field(min_length=1, max_length=8)
    layer_norm: bool
    log_std: tuple[float, float]
    initial_std: float = Field(gt=0, le=2)


class RlCriticsConfig(Section):
    """The networks that judge."""

    hidden: list[int] = Field(min_length=1, max_length=8)
    layer_norm: bool
    count: int = Field(ge=1, le=32)
    subset: int = Field(ge=1, le=32)

    @property
    def cautious(self) -> bool:
        """The actor follows the lowest of the critics (SAC), not their mean (REDQ, RLPD)."""
        return self.count <= self.subset

    @model_validator(mode="after")
    def _subset_of_them(self) -> RlCriticsConfig:
        if self.subset > self.count:
            raise ValueError(f"critics: subset {self.subset} exceeds count {self.count}")
        return self


class RlTargetConfig(Section):
    """The slow copy of the critics."""

    tau: float = Field(gt=0, le=1)
    most: float = Field(gt=0, le=1)

    def step(self, updates: int) -> float:
        """Share of the way to the critics at each of `updates` in a row: tau, or so much less that together they go
        `most` of the way."""
        return min(self.tau, 1 - (1 - self.most) ** (1 / max(1, updates)))


class RlEntropyConfig(Section):
    """How random the actor is kept. `target`: nats, of u; null: minus half the number of actions."""

    initial: float = Field(gt=0)
    target: float | None
    backup: bool

    def aim(self, actions: int) -> float:
        """Entropy that alpha is tuned to, nats."""
        return -actions / 2 if self.target is None else self.target


class RlActionsConfig(Section):
    """What the actor's output means: `so101.learning.rl.actions`."""

    mode: Literal["absolute", "relative", "incremental"]
    range: Literal["full", "demos"]
    scale: float | None = Field(gt=0, le=2)


class RlImitationConfig(Section):
    """L1 distance between the greedy action and that of the demos, added to the loss of the actor."""

    weight: float = Field(ge=0)
    q_ratio: float = Field(ge=0)
    decay_steps: int = Field(ge=0)
    pretrain_updates: int = Field(ge=0)


class RlNormalisationConfig(Section):
    """Observations to mean 0, deviation 1. `fixed`: words, or what they begin with before a dot, that are divided by
    this instead and not moved: differences that must be seen finely at the end."""

    rows: int = Field(ge=100)
    least: float = Field(gt=0)
    fixed: dict[str, Annotated[float, Field(gt=0)]]
    clip: float = Field(gt=0)


class RlEvaluationConfig(Section):
    """Greedy episodes while training, and those that are reported."""

    every_steps: int = Field(ge=1)
    episodes: int = Field(ge=1, le=5000)
    first_seed: int = Field(ge=0)
    final_episodes: int = Field(ge=1)
    final_seed: int = Field(ge=1_000_000)
    lanes: int = Field(ge=1)
    held_s: float = Field(gt=0)

    @model_validator(mode="after")
    def _tuning_seeds(self) -> RlEvaluationConfig:
        if self.first_seed + self.episodes > 10_000:
            raise ValueError("evaluation: first_seed + episodes exceeds 10000; seeds to tune on end there")
        return self


class RlHealthConfig(Section):
    """When the values of the critics are called too high: multiples of what the rewards so far bear out."""

    overshoot: float = Field(gt=1)
    diverged: float = Field(gt=1)


class RlInterventionConfig(Section):
    """When the expert takes over from the policy (`--intervene expert`)."""

    stall_s: float = Field(gt=0)
    progress: float = Field(gt=0)
    most_share: float = Field(gt=0, le=1)
    room_rows: int = Field(ge=1)


class RlConfig(Section):
    """SAC and RLPD. `tasks`: other values for some tasks, as a tree of the keys above."""

    envs: int = Field(ge=1, le=4096)
    steps: int = Field(ge=1)
    learning_starts: int = Field(ge=0)
    learning_starts_with_demos: int = Field(ge=0)
    random_hold_s: float = Field(ge=0)
    buffer_rows: int = Field(ge=1000)
    batch_size: int = Field(ge=2, le=65536)
    update_ratio: float = Field(gt=0, le=100)
    actor_every: int = Field(ge=1)
    learning_rate: float = Field(gt=0, lt=1)
    gamma: float = Field(gt=0, lt=1)
    demo_share: float = Field(gt=0, lt=1)
    demo_rewards: Literal["training", "recorded"]
    reward_mode: str | None
    horizon: int | None = Field(ge=1)
    actor: RlActorConfig
    critics: RlCriticsConfig
    target: RlTargetConfig
    entropy: RlEntropyConfig
    actions: RlActionsConfig
    bc: RlImitationConfig
    normalisation: RlNormalisationConfig
    evaluation: RlEvaluationConfig
    health: RlHealthConfig
    intervention: RlInterventionConfig
    first_seed: int = Field(ge=10_000)
    save_minutes: float = Field(gt=0)
    log_steps: int = Field(ge=1)
    threads: int = Field(ge=1)
    seed: int = Field(ge=0)
    device: Literal["auto", "cpu", "cuda"]
    tasks: dict[str, dict[str, Any]]

    def for_task(self, task: str, keep: Iterable[str] = ()) -> RlConfig:
        """The settings with what `tasks` says of `task`, but for the dotted keys in `keep`, which were set otherwise.

        Raises:
            ConfigError: that makes no valid settings.
        """
        values = self.model_dump(mode="json")
        _lay_over(values, self.tasks.get(task, {}), set(keep), "")
        return validate(RlConfig, {**values, "tasks": {}}, f"training.yaml: rl.tasks.{task}")

    @model_validator(mode="after")
    def _every_task_is_valid(self) -> RlConfig:
        for task in self.tasks:
            try:
                self.for_task(task)
            except ConfigError as error:
                raise ValueError(str(error)) from None
        return self


def _lay_over(values: dict[str, Any], other: dict[str, Any], keep: set[str], at: str) -> None:
    for key, value in other.items():
        name = f"{at}{key}"
        if name in keep:
            continue
        if isinstance(value, dict) and isinstance(values.get(key), dict):
            _lay_over(values[key], value, keep, f"{name}.")
        else:
            values[key] = value
