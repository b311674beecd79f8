"""`./twin rl` on a task of a family, from the settings to the evaluation on held-out seeds."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import numpy as np
import pytest

from so101.config import load_config
from so101.datasets.demo_file import DemoHeader, DemoWriter, Episode
from so101.errors import ConfigError, DataError
from so101.families import find_task
from so101.learning.rl.session import RlJob, evaluate_role, train_rl
from so101.pipeline.progress import SilentReporter
from tests.learning.rl.conftest import rl_settings

TASK = "so101_reach"


@pytest.fixture
def config(tmp_path):
    return load_config(overrides=[f"deploy.server.models_dir={tmp_path}", "training.tracking.enabled=false"])


@pytest.fixture
def job():
    return RlJob(
        find_task(TASK), "reach", rl_settings("horizon=15", "steps=120", "evaluation.every_steps=120"), threads=1
    )


class Lines(SilentReporter):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def message(self, text: str) -> None:
        self.lines.append(text)


def demo_file(path, task: str):
    names = [f"w{i}" for i in range(27)]
    writer = DemoWriter(path, DemoHeader(task, "so101_reach", 50.0, names, [f"j{i}" for i in range(6)], {}))
    rows = np.zeros((5, 27), np.float32)
    writer.append(
        Episode(rows, np.zeros((5, 6), np.float32), np.zeros(5, np.float32), rows, np.zeros(5, np.float32),
                np.zeros(5, np.uint32), 10_000, False)
    )  # fmt: skip
    return path


def test_a_task_is_learned_evaluated_and_not_learned_twice(config, job, tmp_path):
    text = train_rl(config, job, SilentReporter(), time.monotonic)
    told = json.loads((tmp_path / "reach" / "evaluation.json").read_text())
    assert (told["n"], told["first_seed"], told["task"]) == (6, 1_000_000, TASK)
    assert told["policy"]["steps"] >= 120 and told["policy"]["tuning"]["n"] == 6
    assert "held-out" in text and "seeds 1000000 to 1000005" in text
    lines = Lines()
    assert "held-out" in train_rl(config, job, lines, time.monotonic)
    assert "is trained" in lines.lines[-1]
    lines = Lines()
    assert evaluate_role(config, replace(job, settings=rl_settings("horizon=15")), lines).startswith("held-out")
    more = replace(job, role="second", against=("reach",), begin_with="reach")
    assert "second" in train_rl(config, more, SilentReporter(), time.monotonic)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"role": "a/b"}, "must be the name of a folder"),
        ({"against": ("nobody",)}, "--against nobody: there is no .*curve.csv"),
    ],
)
def test_what_cannot_be_is_told_before_anything_is_done(config, job, tmp_path, change, text):
    with pytest.raises(DataError, match=text):
        train_rl(config, replace(job, **change), SilentReporter(), time.monotonic)
    assert not (tmp_path / "reach").exists()


def test_demos_of_another_task_are_refused(config, job, tmp_path):
    other = replace(job, demos=(demo_file(tmp_path / "other.demo", "so101_tower_lift_brick"),))
    with pytest.raises(DataError, match="of task 'so101_tower_lift_brick', but 'so101_reach' is trained"):
        train_rl(config, other, SilentReporter(), time.monotonic)


def test_a_reward_that_the_family_has_not_is_told(config, job):
    with pytest.raises(ConfigError, match="training.rl.reward_mode: so101_reach: reward mode 'potential'"):
        train_rl(config, replace(job, settings=rl_settings("reward_mode=potential")), SilentReporter(), time.monotonic)
