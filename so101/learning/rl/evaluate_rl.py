"""How often a policy succeeds: greedy episodes from given seeds, side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from so101.evaluation.statistics import wilson_interval


@dataclass(frozen=True)
class Episodes:
    """n episodes, one entry each: `any`, `end`, `held` (bool): success in some step, in the last one, for the time
    that was asked for; `returns`: sums of rewards; `closest_m`: least reach_m, nan when the task has none; `seeds`."""

    seeds: np.ndarray
    any: np.ndarray
    end: np.ndarray
    held: np.ndarray
    returns: np.ndarray
    closest_m: np.ndarray
    last_m: np.ndarray

    def summary(self) -> dict[str, Any]:
        """JSON: n, seeds, each rate with its Wilson 95 % interval, mean return, quantiles of distances."""
        n = len(self.seeds)
        told: dict[str, Any] = {
            "n": n,
            "first_seed": int(self.seeds.min()),
            "last_seed": int(self.seeds.max()),
            "mean_return": float(self.returns.mean()),
        }
        for key in ("any", "end", "held"):
            successes = int(getattr(self, key).sum())
            low, high = wilson_interval(successes, n)
            told[key] = {"successes": successes, "rate": successes / n, "wilson95": [low, high]}
        for key in ("closest_m", "last_m"):
            values = getattr(self, key)
            if np.isfinite(values).all():
                told[key] = {f"p{p}": float(np.percentile(values, p)) for p in (50, 95, 99)}
        return told


def run_episodes(
    act: Callable[[np.ndarray], np.ndarray],
    env: Any,
    seeds: Sequence[int],
    held_s: float,
    progress: Callable[[int], None] = lambda count: None,
) -> Episodes:
    """Episodes of `seeds`, as many at once as `env` has lanes.

    Args:
        act: (N, D) observations -> (N, A) actions of the environment.
        env: a `FamilyVectorEnv` without autoreset.
        held_s: how long success must last to count as held, s.
        progress: called with the number of episodes that ended.
    """
    lanes, needed = env.num_envs, math.ceil(held_s / env.control_dt - 1e-9)
    parts: list[dict[str, np.ndarray]] = []
    for begin in range(0, len(seeds), lanes):
        chunk = np.asarray(seeds[begin : begin + lanes])
        padded = np.concatenate([chunk, np.repeat(chunk[-1:], lanes - len(chunk))])
        obs, _ = env.reset(options={"seeds": padded})
        some, longest = np.zeros(lanes, bool), np.zeros(lanes, int)
        returns, closest = np.zeros(lanes), np.full(lanes, np.inf)
        for _ in range(env.horizon):
            obs, reward, _, _, info = env.step(act(obs))
            some |= info["success"]
            returns += reward
            longest = np.maximum(longest, info["held_steps"])
            closest = np.minimum(closest, info["reach_m"])
        columns = {
            "any": some, "end": info["success"].copy(), "held": longest >= needed, "returns": returns,
            "closest_m": closest, "last_m": info["reach_m"].copy(),
        }  # fmt: skip
        parts.append({key: value[: len(chunk)] for key, value in columns.items()})
        progress(len(chunk))
    return Episodes(seeds=np.asarray(seeds), **{key: np.concatenate([part[key] for part in parts]) for key in parts[0]})


def told(summary: dict[str, Any]) -> str:
    """A summary in a sentence, every rate with n, seeds and interval."""
    rates = ", ".join(
        f"{key.upper()} {summary[key]['rate']:.1%} ({summary[key]['wilson95'][0]:.1%} to "
        f"{summary[key]['wilson95'][1]:.1%})"
        for key in ("any", "end", "held")
    )
    distance = summary.get("last_m")
    tail = (
        f"; last distance median {distance['p50'] * 1e3:.1f} mm, p95 {distance['p95'] * 1e3:.1f} mm" if distance else ""
    )
    return (
        f"{rates} of {summary['n']} episodes, seeds {summary['first_seed']} to {summary['last_seed']}, return "
        f"{summary['mean_return']:.1f}{tail}"
    )
