from __future__ import annotations

import pytest

from so101.config import load_config
from so101.errors import ConfigError


def settings(*overrides: str):
    return load_config(overrides=[f"training.rl.{item}" for item in overrides]).training.rl


def test_a_task_has_its_own_values_over_the_common_ones():
    rl = settings("steps=5", "tasks={lift: {steps: 7, critics: {count: 10}}}")
    lift, other = rl.for_task("lift"), rl.for_task("other")
    assert (lift.steps, lift.critics.count, lift.critics.subset) == (7, 10, rl.critics.subset)
    assert (other.steps, other.critics.count) == (5, rl.critics.count)


def test_what_the_command_line_sets_stands_over_the_task():
    rl = settings("steps=5", "critics.count=3", "tasks={lift: {steps: 7, critics: {count: 10}}}")
    lift = rl.for_task("lift", keep=["steps", "critics.count"])
    assert (lift.steps, lift.critics.count) == (5, 3)


@pytest.mark.parametrize(
    ("override", "text"),
    [
        ("tasks={lift: {stps: 7}}", "unknown key 'stps'.*did you mean 'steps'"),
        ("critics.subset=3", "subset 3 exceeds count 2"),
        ("evaluation.first_seed=9990", "seeds to tune on end there"),
        ("evaluation.final_seed=5", "greater than or equal to 1000000"),
        ("first_seed=5", "greater than or equal to 10000"),
    ],
)
def test_what_cannot_be_is_refused(override, text):
    with pytest.raises(ConfigError, match=text):
        settings(override)


def test_shipped_values_of_tasks_are_of_tasks_there_are():
    from so101.families import task_names

    assert set(load_config().training.rl.tasks) <= set(task_names())
