"""The transfer number: where the hand really is, against what the policy was given."""

from __future__ import annotations

import json

import numpy as np
import pytest

from so101.config import load_config
from so101.control.reach_model import ReachModel
from so101.control.reach_scripted import ScriptedReach
from so101.evaluation.reach_transfer import (
    COLUMNS,
    Ended,
    ReachPoint,
    bare_arm,
    in_training,
    lines,
    on_rigs,
    write_points,
)
from so101.families import find_task
from so101.robot.virtual.pseudo_real import draw_rig

CONFIG = load_config()
TASK = find_task("so101_reach")
SEEDS = [3, 4]
SECONDS = 1.0


@pytest.fixture(scope="module")
def on_others():
    return on_rigs(CONFIG, TASK, ScriptedReach, 1.0, SEEDS, SECONDS)


class Nudge:
    """Moves every joint a little from where the episodes begin: the driver has nothing to limit."""

    def __init__(self, model) -> None:
        self._action = model.action_of(model.start + [0.1, -0.08, 0.06, 0.1, -0.1, 0.1])

    def act(self, observation):
        return np.tile(self._action, (len(observation), 1))


def test_the_twin_behind_a_servo_bus_ends_where_the_training_does():
    """Two implementations of the same arm: MuJoCo's rollout in lanes, and servos with ticks, packets and a driver."""
    trained = in_training(TASK, Nudge, SEEDS, SECONDS)
    for bus, env in zip(on_rigs(CONFIG, TASK, Nudge, 0.0, SEEDS, SECONDS), trained, strict=True):
        assert (bus.seed, bus.target_m) == (env.seed, pytest.approx(env.target_m))
        assert bus.error_mm == pytest.approx(env.error_mm, abs=1.0)
        assert bus.believed_mm == pytest.approx(bus.error_mm, abs=1.0)  # whole ticks, nothing else


def test_on_another_rig_the_arm_believes_what_its_wrong_zeros_tell(on_others):
    model = ReachModel(TASK)
    for each in on_others:
        rig = draw_rig(bare_arm(CONFIG, TASK), each.rig)
        measured = each.run.q[-1]
        shift = model.point(measured - rig.zero_error_rad) - model.point(measured)
        moved = 1000 * np.linalg.norm(each.run.points[-1] + shift - np.array(each.target_m))
        assert each.error_mm == pytest.approx(moved, abs=0.5)  # the truth is the zeros away from what is believed
        assert abs(each.error_mm - each.believed_mm) > 0.05


def test_equal_seeds_give_equal_numbers(on_others):
    again = on_rigs(CONFIG, TASK, ScriptedReach, 1.0, SEEDS, SECONDS)
    assert [each.error_mm for each in again] == [each.error_mm for each in on_others]


def test_each_target_has_the_rig_of_its_place(on_others):
    first = CONFIG.deploy.transfer.first_rig
    assert [each.rig for each in on_others] == [first, first + 1]


def ended(errors_mm) -> tuple[Ended, ...]:
    return tuple(Ended(seed, None, (0.2, 0, 0.2), e, e / 2, e / 4) for seed, e in enumerate(errors_mm))


def test_the_table_and_its_files(tmp_path, on_others):
    points = [
        ReachPoint("a", None, ended([1.0, 2.0, 3.0, 30.0]), 0.02),
        ReachPoint("a", 1.0, tuple(on_others), 0.02),
    ]
    row = points[0].row()
    assert tuple(row) == COLUMNS
    assert (row["median_mm"], row["p95_mm"], row["worst_mm"]) == (2.5, 25.95, 30.0)
    assert (row["within"], row["share"], row["low"], row["high"]) == (3, 0.75, 0.3006, 0.9544)
    figure = write_points(tmp_path, points, "a title")
    assert len(figure.axes) == 2
    content = json.loads((tmp_path / "reach_transfer.json").read_text())
    assert [each["arm"] for each in content["rows"]] == ["training", "1"] and len(content["targets"]) == 6
    assert content["targets"][4]["run"]["looks"] == 51
    table = (tmp_path / "reach_transfer.csv").read_text().splitlines()
    assert table[0] == ",".join(COLUMNS) and len(table) == 3
    assert "3/4 = 75 % (30 to 95 %)" in lines(points)[1]
