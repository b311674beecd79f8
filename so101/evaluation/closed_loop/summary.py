"""Episodes in numbers: success with its interval, how far failures came, times, latencies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from so101.evaluation.closed_loop.record import Episode
from so101.evaluation.closed_loop.stages import NONE, STAGES
from so101.evaluation.statistics import wilson_interval

_SHOWN_ERRORS = 5


def summarise(episodes: Sequence[Episode], confidence: float) -> dict[str, Any]:
    """JSON values:

    n, first_seed, last_seed; strict, geometric: successes, share, low, high (Wilson); stages: stage -> episodes that
    reached it; failures: stage -> episodes without strict success whose furthest it is; ended: how -> episodes;
    time_to_success_s: median, p90 over strict successes, or None; latency_ms: p50, p99, max of all chunks as the client
    saw them, or None; chunks: how many; server: medians of the server's own p50, worst p99 and longest queue, of
    episodes that tell; errors: text -> episodes.
    """
    seeds = [episode.seed for episode in episodes]
    times = [episode.time_to_success_s for episode in episodes if episode.time_to_success_s is not None]
    latencies = np.concatenate([np.zeros(0), *(episode.latency_ms for episode in episodes)])
    errors = Counter(episode.error for episode in episodes if episode.error)
    failed = Counter(episode.stage for episode in episodes if not episode.strict)
    return {
        "n": len(episodes),
        "first_seed": min(seeds, default=None),
        "last_seed": max(seeds, default=None),
        "confidence": confidence,
        "strict": _share([episode.strict for episode in episodes], confidence),
        "geometric": _share([episode.geometric for episode in episodes], confidence),
        "stages": {s: sum(episode.stages[s] is not None for episode in episodes) for s in STAGES},
        "failures": {stage: failed[stage] for stage in (NONE, *STAGES)},
        "ended": dict(sorted(Counter(episode.ended for episode in episodes).items())),
        "time_to_success_s": _percentiles(times, median=50, p90=90),
        "latency_ms": _percentiles(latencies, p50=50, p99=99, max=100),
        "chunks": len(latencies),
        "server": _server(episodes),
        "errors": dict(errors.most_common(_SHOWN_ERRORS)),
    }


def text(summary: dict[str, Any]) -> list[str]:
    """The summary for people, a line each."""
    n, strict, geometric = summary["n"], summary["strict"], summary["geometric"]
    confidence = f"{100 * summary['confidence']:.0f} %"
    lines = [
        f"{n} episodes, seeds {summary['first_seed']} to {summary['last_seed']}",
        f"strict success  {_share_text(strict, n)}  (Wilson {confidence}: {_interval_text(strict)})",
        f"geometric       {_share_text(geometric, n)}  (Wilson {confidence}: {_interval_text(geometric)})",
        "stage reached:  " + ", ".join(f"{stage} {count}" for stage, count in summary["stages"].items()),
    ]
    failures = ", ".join(f"{stage} {count}" for stage, count in summary["failures"].items() if count)
    lines.append(f"failures ended at: {failures or 'none'}")
    if (times := summary["time_to_success_s"]) is not None:
        lines.append(f"time to success: median {times['median']:.1f} s, p90 {times['p90']:.1f} s")
    if (latency := summary["latency_ms"]) is not None:
        seen = ", ".join(f"{name} {latency[name]:.1f}" for name in latency)
        lines.append(f"latency of {summary['chunks']} chunks, seen by the client: {seen} ms")
    if (server := summary["server"]) is not None:
        lines.append(f"in the server: p50 {server['p50']:.1f}, p99 {server['p99']:.1f} ms")
    lines += _metrics_text(summary)
    lines += [f"policy error in {count} episodes: {error}" for error, count in summary["errors"].items()]
    return lines


def _metrics_text(summary: dict[str, Any]) -> list[str]:
    """Of a summary with the metrics of `so101.evaluation.measure`."""
    if (found := summary.get("metrics")) is None:
        return []
    joints = {key.removeprefix("mse_share/"): share for key, share in found.items() if key.startswith("mse_share/")}
    shares = ", ".join(f"{name} {share:.0%}" for name, share in joints.items())
    told = [
        f"FRAME, medians: path {100 * found['frame/path_length_m']:.0f} cm, smoothness "
        f"{found['frame/smoothness_by_length']:.2f}; commanded against observed: ATE "
        f"{1000 * found['frame/ate_m']:.0f} mm, RTE {1000 * found['frame/rte_m']:.1f} mm, "
        f"DTW {found['frame/dtw_m']:.1f} m, action MSE {found['frame/action_mse']:.0f}",
        f"share of the action MSE: {shares}",
    ]
    counts = ", ".join(f"{name} {count}" for name, count in summary["diagnoses"]["counts"].items())
    return [*told, f"known failure shapes, episodes: {counts or 'none'}"]


def metrics(summary: dict[str, Any]) -> dict[str, float]:
    """The numbers of a summary, flat: what goes to MLflow."""
    n = max(summary["n"], 1)
    flat = {"episodes": float(summary["n"])}
    for test in ("strict", "geometric"):
        flat |= {f"{test}_{key}": float(summary[test][key]) for key in ("share", "low", "high")}
    flat |= {f"stage/{stage}": count / n for stage, count in summary["stages"].items()}
    flat |= {f"failed_at/{stage}": count / n for stage, count in summary["failures"].items()}
    for group in ("time_to_success_s", "latency_ms", "server"):
        flat |= {f"{group}/{key}": float(value) for key, value in (summary[group] or {}).items()}
    return flat


def _share(outcomes: Sequence[bool], confidence: float) -> dict[str, Any]:
    successes = sum(map(bool, outcomes))
    low, high = wilson_interval(successes, len(outcomes), confidence)
    share = successes / len(outcomes) if outcomes else 0.0
    return {"successes": successes, "share": share, "low": low, "high": high}


def _percentiles(values: Sequence[float] | np.ndarray, **percents: float) -> dict[str, float] | None:
    if not len(values):
        return None
    return {name: round(float(np.percentile(values, percent)), 3) for name, percent in percents.items()}


def _server(episodes: Sequence[Episode]) -> dict[str, float] | None:
    told = [times for episode in episodes if (times := episode.meta.get("server", {}).get("infer_ms"))]
    if not told:
        return None
    return {
        "p50": round(float(np.median([times["p50"] for times in told])), 3),
        "p99": round(max(times["p99"] for times in told), 3),
    }


def _share_text(test: dict[str, Any], n: int) -> str:
    return f"{test['successes']}/{n} = {100 * test['share']:.1f} %"


def _interval_text(test: dict[str, Any]) -> str:
    return f"{100 * test['low']:.1f} to {100 * test['high']:.1f} %"
