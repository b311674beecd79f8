"""Episodes of the scripted expert: how often it succeeds, and its rows."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from so101.datasets.demo_episode import INTERVENED, Episode, stamp_success
from so101.evaluation.statistics import wilson_interval
from so101.families.declaration import ExpertSettings
from so101.families.expert import Expert, ExpertOptions, settings_of
from so101.families.vector_env import JOINTS, FamilyVectorEnv
from so101.pipeline.progress import Reporter, SilentReporter

Act = Callable[[np.ndarray], np.ndarray]  # observations (N, D) to actions (N, 6)
POLICY = "policy"


@dataclass(frozen=True)
class ExpertEpisode:
    """How one episode went. `stage` is what the expert did last; handover_step: where a policy gave way, or None."""

    seed: int
    success: bool
    steps: int
    tries: int
    stage: str
    handover_step: int | None


@dataclass(frozen=True)
class ExpertReport:
    """All episodes of a run, in order of their seeds."""

    task: str
    episodes: tuple[ExpertEpisode, ...]
    seconds: float
    control_dt: float
    hold_steps: int
    options: dict[str, Any]

    @property
    def successes(self) -> int:
        return sum(episode.success for episode in self.episodes)

    @property
    def episodes_per_minute(self) -> float:
        return 60.0 * len(self.episodes) / self.seconds if self.seconds else 0.0

    @property
    def failures(self) -> dict[str, int]:
        """Failed episodes by the expert's last stage."""
        return dict(Counter(episode.stage for episode in self.episodes if not episode.success).most_common())

    def to_json(self) -> dict[str, Any]:
        interval = wilson_interval(self.successes, len(self.episodes))
        lengths = [episode.steps for episode in self.episodes if episode.success]
        return {
            "task": self.task,
            "n": len(self.episodes),
            "successes": self.successes,
            "rate": self.successes / len(self.episodes) if self.episodes else None,
            "wilson_95": [interval.low, interval.high],
            "seeds": [self.episodes[0].seed, self.episodes[-1].seed] if self.episodes else None,
            "hold_steps": self.hold_steps,
            "control_dt_s": self.control_dt,
            "median_steps_of_success": float(np.median(lengths)) if lengths else None,
            "second_tries": sum(episode.tries > 1 for episode in self.episodes),
            "failures": self.failures,
            "seconds": self.seconds,
            "episodes_per_minute": self.episodes_per_minute,
            "options": self.options,
            "episodes": [asdict(episode) for episode in self.episodes],
        }


class _Lane:
    """Rows of the episode that a lane is in."""

    def __init__(self, horizon: int, width: int) -> None:
        self.obs = np.zeros((horizon + 1, width), np.float32)
        self.action = np.zeros((horizon, JOINTS), np.float32)
        self.reward = np.zeros(horizon, np.float32)
        self.flags = np.zeros(horizon, np.uint32)
        self.steps = 0
        self.handover: int | None = None
        self.policy_drives = False

    def begin(self, obs: np.ndarray, policy_drives: bool) -> None:
        self.steps, self.handover, self.policy_drives = 0, None, policy_drives
        self.obs[0] = obs

    def add(self, action: np.ndarray, reward: float, obs: np.ndarray, *, intervened: bool) -> None:
        self.action[self.steps], self.reward[self.steps] = action, reward
        self.flags[self.steps] = INTERVENED if intervened else 0
        self.steps += 1
        self.obs[self.steps] = obs

    def episode(self, about: ExpertEpisode) -> Episode:
        n = self.steps
        return Episode(
            obs=self.obs[:n].copy(),
            action=self.action[:n].copy(),
            reward=self.reward[:n].copy(),
            next_obs=self.obs[1 : n + 1].copy(),
            done=np.zeros(n, np.float32),
            flags=stamp_success(self.flags[:n], about.success),
            seed=about.seed,
            success=about.success,
            meta={"tries": about.tries, "last_stage": about.stage, "handover_step": about.handover_step},
        )


class ExpertRun:
    """Runs episodes of one task, as many at a time as the environment has lanes.

    Args:
        env: made with ``autoreset=False``.
        options: noise and feedback of the expert.
        policy: drives first, until the hand is near the object (handover of the family's expert settings); what the
            expert then does is flagged INTERVENED.
        policy_steps, handover_m: instead of the family's.
        seed: of the noise.
    """

    def __init__(
        self,
        env: FamilyVectorEnv,
        options: ExpertOptions = ExpertOptions(),  # noqa: B008 (frozen)
        *,
        policy: Act | None = None,
        handover_m: float | None = None,
        policy_steps: int | None = None,
        seed: int = 0,
        settings: ExpertSettings | None = None,
    ) -> None:
        self.env = env
        self.settings = settings or settings_of(env)
        self.expert = Expert(env, options, settings=self.settings, seed=seed)
        changes = {"reach_m": handover_m, "latest_step": policy_steps}
        self.handover = self.settings.handover.model_copy(
            update={key: value for key, value in changes.items() if value is not None}
        )
        self.policy = policy
        self.hold_steps = max(1, int(self.settings.hold_s / env.control_dt + 1e-9))
        self._lanes = [_Lane(env.horizon, len(env.observation_names)) for _ in range(env.num_envs)]

    def run(
        self,
        episodes: int,
        seed: int,
        *,
        keep: Callable[[Episode], None] | None = None,
        keep_failures: bool = False,
        reporter: Reporter | None = None,
    ) -> ExpertReport:
        """Episodes with the seeds `seed` to `seed` + `episodes` - 1; `keep` gets the successful ones as they end."""
        env, reporter, began = self.env, reporter or SilentReporter(), time.monotonic()
        reporter.start("expert", episodes, unit="episodes")
        waiting = list(range(seed, seed + episodes))[::-1]
        running = np.zeros(env.num_envs, bool)
        done: list[ExpertEpisode] = []
        obs, info = env.reset(options={"seeds": np.full(env.num_envs, seed)})
        obs, info = self._begin(~running, waiting, running, obs, info)
        actions = np.zeros((env.num_envs, JOINTS))
        while running.any():
            proposed = self.policy(obs) if self.policy is not None else None
            for lane in np.flatnonzero(running):
                if self._hands_over(lane, info):
                    self.expert.take_over(int(lane))
                    self._lanes[lane].policy_drives, self._lanes[lane].handover = False, self._lanes[lane].steps
                drives = self._lanes[lane].policy_drives
                actions[lane] = proposed[lane] if drives else self.expert.act_lane(int(lane))
            obs, reward, _, _, info = env.step(actions)
            ended = np.zeros(env.num_envs, bool)
            for lane in np.flatnonzero(running):
                rows = self._lanes[lane]
                rows.add(np.clip(actions[lane], -1, 1), reward[lane], obs[lane], intervened=rows.handover is not None)
                success = bool(info["held_steps"][lane] >= self.hold_steps)
                ended[lane] = success or rows.steps >= env.horizon
                if ended[lane]:
                    about = self._about(int(lane), success)
                    done.append(about)
                    if keep is not None and (success or keep_failures):
                        keep(rows.episode(about))
                    good = sum(each.success for each in done)
                    reporter.advance(note=f"{good} of {len(done)} succeed")
            if ended.any():
                running &= ~ended
                obs, info = self._begin(ended, waiting, running, obs, info)
        return ExpertReport(
            task=env.task.name,
            episodes=tuple(sorted(done, key=lambda each: each.seed)),
            seconds=time.monotonic() - began,
            control_dt=env.control_dt,
            hold_steps=self.hold_steps,
            options=asdict(self.expert.options) | {"policy_first": self.policy is not None, "lanes": env.num_envs},
        )

    def _begin(
        self, free: np.ndarray, waiting: list[int], running: np.ndarray, obs: np.ndarray, info: dict[str, np.ndarray]
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Give waiting seeds to free lanes."""
        seeds, begun = self.env.episode_seeds.copy(), np.zeros(self.env.num_envs, bool)
        for lane in np.flatnonzero(free):
            if waiting:
                seeds[lane], begun[lane] = waiting.pop(), True
        if not begun.any():
            return obs, info
        obs, info = self.env.reset_lanes(begun, seeds)
        self.expert.reset(begun)
        running |= begun
        for lane in np.flatnonzero(begun):
            self._lanes[lane].begin(obs[lane], self.policy is not None)
        return obs, info

    def _hands_over(self, lane: int, info: dict[str, np.ndarray]) -> bool:
        rows, when = self._lanes[lane], self.handover
        near = info["reach_m"][lane] < when.reach_m and rows.steps >= when.earliest_step
        return rows.policy_drives and bool(near or rows.steps >= when.latest_step)

    def _about(self, lane: int, success: bool) -> ExpertEpisode:
        rows = self._lanes[lane]
        return ExpertEpisode(
            seed=int(self.env.episode_seeds[lane]),
            success=success,
            steps=rows.steps,
            tries=self.expert.tries[lane],
            stage=POLICY if rows.policy_drives else self.expert.stages[lane],
            handover_step=rows.handover,
        )


def with_changes(
    settings: ExpertSettings,
    *,
    control_dt: float,
    close_steps: int | None = None,
    z_grasp_m: float | None = None,
    jaw_open_rad: float | None = None,
) -> ExpertSettings:
    """ExpertSettings with what the command line changes."""
    hand = {"grasp_over_m": z_grasp_m, "jaw_open_rad": jaw_open_rad}
    times = {"close": close_steps * control_dt if close_steps is not None else None}
    return settings.model_copy(
        update={
            "hand": settings.hand.model_copy(update={k: v for k, v in hand.items() if v is not None}),
            "times_s": settings.times_s.model_copy(update={k: v for k, v in times.items() if v is not None}),
        }
    )
