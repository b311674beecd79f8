"""Why a policy that learnt from demos does what it does: how well it repeats their actions when it sees what they saw,
what it does on its own, where an episode of its own leaves a demo, and whether the twin repeats a demo at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from so101.config.family_tools import FamilyProbeConfig
from so101.datasets.demo_file import Episode
from so101.evaluation.statistics import wilson_interval
from so101.families.declaration import FamilyTask, StagedReward
from so101.families.replay import start_at
from so101.families.vector_env import FamilyVectorEnv

Act = Callable[[np.ndarray], np.ndarray]  # observations (N, D) to actions (N, A)


@dataclass(frozen=True)
class TeacherForced:
    """Mean |policy(obs) - action| over rows of demos, in normalised units."""

    rows: int
    overall: float
    per_joint: dict[str, float]
    per_third: tuple[float, float, float]
    worst_episode: int
    worst: float


@dataclass(frozen=True)
class OwnEpisode:
    """What a policy did alone. `above`: rows with more reward than each mark; reach_mm and height_mm may be None."""

    seed: int
    reward_sum: float
    above: tuple[int, ...]
    grasped_rows: int
    least_reach_mm: float | None
    most_height_mm: float | None
    ever: bool
    at_end: bool


class Gap(NamedTuple):
    """A row of a demo beside the same row of the policy's own episode from the same start."""

    row: int
    observation: float
    word: str
    action: float
    teacher_forced: float
    reward: float
    recorded_reward: float


@dataclass(frozen=True)
class OpenLoop:
    """A demo's actions executed again. departs_at: first row with a gap above the setting, None when none has."""

    episode: int
    largest_gap: float
    word: str
    departs_at: int | None
    reward_sum: float
    recorded_reward_sum: float
    success: bool
    recorded_success: bool


def teacher_forced(act: Act, episodes: Sequence[Episode], joint_names: Sequence[str]) -> TeacherForced:
    """How far the policy is from the actions of the demos when it sees their observations."""
    errors = [np.abs(act(episode.obs) - episode.action) for episode in episodes]
    means = [float(error.mean()) for error in errors]
    thirds = [np.concatenate(parts).mean() for parts in zip(*(np.array_split(e, 3) for e in errors), strict=True)]
    together = np.concatenate(errors)
    worst = int(np.argmax(means))
    per_joint = dict(zip(joint_names, together.mean(0).tolist(), strict=True))
    return TeacherForced(
        len(together), float(together.mean()), per_joint, tuple(map(float, thirds)), worst, means[worst]
    )


def closed_loop(
    act: Act, task: FamilyTask, seeds: Sequence[int], steps: int, settings: FamilyProbeConfig
) -> list[OwnEpisode]:
    """Let it drive from these starts, all at once, after hold_steps in which the arm holds."""
    staged = isinstance(task.family.declaration.reward, StagedReward)
    count = len(seeds)
    env = FamilyVectorEnv(
        task, count, autoreset=False, horizon=steps + settings.hold_steps, reward_mode="staged" if staged else None
    )
    obs, info = env.reset(options={"seeds": list(seeds)})
    hold = env.hold_action(env.qpos[:, :6])
    for _ in range(settings.hold_steps):
        obs, _, _, _, info = env.step(hold)
    rewards, grasped, success, reach, height = [], [], [], [], []
    for _ in range(steps):
        obs, reward, _, _, info = env.step(act(obs))
        rewards.append(reward)
        grasped.append(info["grasped"])
        success.append(info["success"])
        reach.append(1e3 * info["reach_m"])
        height.append(_subject_mm(env, obs))
    env.close()
    rewards, grasped, success, reach, height = map(np.array, (rewards, grasped, success, reach, height))
    return [
        OwnEpisode(
            seed=int(seed),
            reward_sum=float(rewards[:, i].sum()),
            above=tuple(int((rewards[:, i] > mark).sum()) for mark in settings.reward_marks),
            grasped_rows=int(grasped[:, i].sum()),
            least_reach_mm=_finite(reach[:, i].min()),
            most_height_mm=_finite(height[:, i].max()),
            ever=bool(success[:, i].any()),
            at_end=bool(success[-1, i]),
        )
        for i, seed in enumerate(seeds)
    ]


def replay_gaps(act: Act, env: FamilyVectorEnv, episode: Episode) -> list[Gap]:
    """Let the policy drive from a demo's start and compare row by row with the demo."""
    obs, _, _ = start_at(env, episode)
    forced = np.abs(act(episode.obs) - episode.action).mean(1)
    gaps = []
    for row in range(episode.num_rows):
        away = np.abs(obs[0] - episode.obs[row])
        action = np.asarray(act(obs))
        seen, reward, *_ = env.step(action)
        gaps.append(
            Gap(
                row,
                float(away.max()),
                env.observation_names[int(away.argmax())],
                float(np.abs(action[0] - episode.action[row]).mean()),
                float(forced[row]),
                float(reward[0]),
                float(episode.reward[row]),
            )
        )
        obs = seen
    return gaps


def open_loop(env: FamilyVectorEnv, number: int, episode: Episode, settings: FamilyProbeConfig) -> OpenLoop:
    """Execute a demo's actions from its start: what of it the twin repeats."""
    obs, info, _ = start_at(env, episode)
    gaps, rewards = [np.abs(obs[0] - episode.obs[0])], []
    for action, recorded in zip(episode.action, episode.next_obs, strict=True):
        obs, reward, _, _, info = env.step(action[None])
        gaps.append(np.abs(obs[0] - recorded))
        rewards.append(float(reward[0]))
    away = np.array(gaps)
    departed = np.flatnonzero(away.max(1) > settings.gap)
    return OpenLoop(
        episode=number,
        largest_gap=float(away.max()),
        word=env.observation_names[int(away.max(0).argmax())],
        departs_at=int(departed[0]) if len(departed) else None,
        reward_sum=float(np.sum(rewards)),
        recorded_reward_sum=float(episode.reward.sum()),
        success=bool(info["success"][0]),
        recorded_success=episode.success,
    )


def rates(episodes: Sequence[OwnEpisode]) -> dict[str, Any]:
    """ANY-step and END-step successes with Wilson's 95 % interval."""
    n = len(episodes)
    counts = {"any": sum(e.ever for e in episodes), "end": sum(e.at_end for e in episodes)}
    seeds = [min(e.seed for e in episodes), max(e.seed for e in episodes)]
    return {"n": n, "seeds": seeds} | {
        name: {"successes": count, "wilson_95": list(wilson_interval(count, n))} for name, count in counts.items()
    }


def as_json(value: Any) -> Any:
    """Dataclasses and lists of them as JSON values."""
    if isinstance(value, (list, tuple)) and not hasattr(value, "_asdict"):
        return [as_json(part) for part in value]
    return value._asdict() if hasattr(value, "_asdict") else asdict(value)


def _subject_mm(env: FamilyVectorEnv, obs: np.ndarray) -> np.ndarray:
    """(N,) height of what is to be moved over the family's world, nan where the goal has none."""
    if "goal" not in env.words or not env.goal.hand_goes_to_subject:
        return np.full(env.num_envs, np.nan)
    words = obs[:, env.words["goal"]].astype(float)
    return 1e3 * (words[:, 2] + words[:, 5])


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
