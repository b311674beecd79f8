"""Numbers of an evaluation, worked by hand on ten episodes."""

import dataclasses

import numpy as np
import pytest

from so101.config import load_config
from so101.evaluation.closed_loop import STAGES, run_episode
from so101.evaluation.closed_loop.figures import outcome_figure, write_figure
from so101.evaluation.closed_loop.summary import metrics, summarise, text
from so101.evaluation.statistics import wilson_interval
from tests.evaluation.closed_loop.fakes import Ramp, StillWorld


@pytest.fixture(scope="module")
def config():
    return load_config(overrides=["task.name=vial_to_rack"])


@pytest.fixture(scope="module")
def episodes(config):
    """Six successes after 4, 5, ... 9 s; then failures: none, two grasped, one released; the last one an error."""
    bare = run_episode(config, StillWorld(config), Ramp(config, fails_at=1), seed=0)
    made = []
    for i in range(6):
        stages = {stage: 10 * k for k, stage in enumerate(STAGES)}
        made.append(dict(strict=True, geometric=True, stages=stages, success_frame=120 + 30 * i, ended="success"))
    for reached, geometric, error in ((0, False, ""), (2, False, ""), (2, True, ""), (6, True, "broken")):
        stages = {stage: 10 * k if k < reached else None for k, stage in enumerate(STAGES)}
        ended = "error" if error else "time"
        made.append(
            dict(strict=False, geometric=geometric, stages=stages, ended=ended, success_frame=None, error=error)
        )
    common = {"latency_ms": np.array([10.0, 20.0]), "meta": {"server": {"infer_ms": {"p50": 7.0, "p99": 9.0}}}}
    return [
        dataclasses.replace(bare, seed=1_000_000 + i, **{"error": "", **common, **facts})
        for i, facts in enumerate(made)
    ]


def test_a_worked_summary(episodes):
    summary = summarise(episodes, 0.95)
    low, high = wilson_interval(6, 10)
    assert summary["strict"] == {"successes": 6, "share": 0.6, "low": low, "high": high}
    assert summary["geometric"]["successes"] == 8
    assert (summary["first_seed"], summary["last_seed"], summary["n"]) == (1_000_000, 1_000_009, 10)
    assert summary["stages"] == {
        "approached": 9, "grasped": 9, "lifted": 7, "over_rack": 7, "inserted": 7, "released": 7,
    }  # fmt: skip
    assert {stage: n for stage, n in summary["failures"].items() if n} == {"none": 1, "grasped": 2, "released": 1}
    assert summary["ended"] == {"error": 1, "success": 6, "time": 3}
    assert summary["time_to_success_s"] == {"median": 6.5, "p90": 8.5}
    assert summary["latency_ms"] == {"p50": 15.0, "p99": 20.0, "max": 20.0} and summary["chunks"] == 20
    assert summary["server"] == {"p50": 7.0, "p99": 9.0}
    assert summary["errors"] == {"broken": 1}


def test_failures_and_successes_add_up(episodes):
    summary = summarise(episodes, 0.95)
    assert sum(summary["failures"].values()) + summary["strict"]["successes"] == summary["n"]
    reached = list(summary["stages"].values())
    assert reached == sorted(reached, reverse=True) and reached[0] == summary["n"] - summary["failures"]["none"]


def test_every_rate_is_told_with_its_number_seeds_and_interval(episodes):
    lines = text(summarise(episodes, 0.95))
    assert lines[0] == "10 episodes, seeds 1000000 to 1000009"
    assert lines[1] == "strict success  6/10 = 60.0 %  (Wilson 95 %: 31.3 to 83.2 %)"
    assert "failures ended at: none 1, grasped 2, released 1" in lines
    assert lines[-1] == "policy error in 1 episodes: broken"


def test_metrics_are_flat_numbers(episodes):
    flat = metrics(summarise(episodes, 0.95))
    assert all(isinstance(value, float) for value in flat.values())
    assert flat["strict_share"] == 0.6 and flat["stage/lifted"] == 0.7 and flat["latency_ms/p99"] == 20.0


def test_no_success_and_no_chunk_have_no_times(episodes):
    failed = [dataclasses.replace(episodes[6], latency_ms=np.zeros(0), meta={})]
    summary = summarise(failed, 0.95)
    assert summary["time_to_success_s"] is summary["latency_ms"] is summary["server"] is None
    assert text(summary)[1].startswith("strict success  0/1 = 0.0 %")
    assert "strict_share" in metrics(summary)


def test_the_picture_is_drawn_also_without_successes(config, episodes, tmp_path):
    for chosen in (episodes, episodes[6:], episodes[:6]):
        figure = outcome_figure(config, chosen, summarise(chosen, 0.95), "policy")
        write_figure(tmp_path / "outcomes.png", figure)
        assert (tmp_path / "outcomes.png").read_bytes().startswith(b"\x89PNG")
