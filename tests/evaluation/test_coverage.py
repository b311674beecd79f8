"""Coverage: every attempt is in one cell or named as left out, for tasks with one object or several."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from so101.config.task import SubtaskConfig
from so101.datasets.demo import save_demo
from so101.evaluation.collect import collect
from so101.evaluation.coverage import (
    Starts,
    count_cells,
    failed_subtask,
    object_coverage,
    source_skew,
    turning_point,
)
from so101.evaluation.statistics import SourceUse, StartOffset, start_offset
from so101.geometry import make_pose, pose_from_pos_quat, pose_to_pos_quat
from so101.pipeline.run_folder import RunFolder

from .factory import make_demo, start_pose, world_base

seeds = st.integers(0, 10_000)


@given(seeds, st.floats(0.2, 3.0))
def test_every_attempt_is_in_the_cell_it_lies_in(seed, cell):
    rng = np.random.default_rng(seed)
    limits = [(-0.5, 1.5), (2.0, 2.0), (-1.0, 0.0)]
    values = rng.uniform(*np.array(limits).T, (60, 3))
    success = rng.random(60) < 0.5
    causes = ["" if good else rng.choice(["slipped", "dropped"]) for good in success]
    grid = count_cells(("a", "b", "c"), values, success, causes, limits, cell)
    cells = list(grid.cells())
    assert sum(c.tried for c in cells) == 60 and sum(c.succeeded for c in cells) == success.sum()
    for one in cells:
        low, high = np.array(one.limits).T
        inside = ((values >= low - 1e-12) & (values <= high + 1e-12)).all(1)
        assert one.tried == inside.sum() and one.succeeded == (inside & success).sum()
        assert sum(one.causes.values()) == one.tried - one.succeeded
    assert len(grid.never_tried()) == sum(not c.tried for c in cells)
    assert {c.limits for c in grid.low(1.1, 0.95)} == {c.limits for c in cells if c.tried}
    assert grid.low(0.0, 0.95) == []


def test_cells_fill_the_range():
    grid = count_cells(("x",), np.zeros((0, 1)), np.zeros(0, bool), [], [(-0.04, 0.04)], 0.03)
    assert grid.edges[0] == pytest.approx([-0.04, -0.04 / 3, 0.04 / 3, 0.04])
    assert grid.covered_share == 0.0 and len(grid.never_tried()) == 3


def test_low_cells_are_ordered_by_how_sure_they_are():
    values = np.repeat([0.5, 1.5, 2.5, 3.5], [10, 30, 10, 5])[:, None]
    success = np.zeros(55, bool)
    success[0] = success[40:50] = True  # 1 of 10, 0 of 30, 10 of 10, 0 of 5
    grid = count_cells(("x",), values, success, ["slipped"] * 55, [(0.0, 4.0)], 1.0)
    assert [cell.limits[0][0] for cell in grid.low(0.2, 0.95)] == [1.0, 0.0, 3.0]
    worst = grid.low(0.2, 0.95)[0]
    assert (worst.tried, worst.succeeded, worst.causes) == (30, 0, {"slipped": 30})
    assert worst.interval(0.95).high == pytest.approx(0.1135, abs=1e-4)


def test_starts_outside_the_ranges_are_in_no_cell(config):
    """Such as a vial that begins in the rack. A heading is the same after a whole turn."""
    task, settings = config.task.active, config.dataset.report
    low, high = task.objects["vial"].x_m
    offsets = [StartOffset(low, 0.0, 0.0), StartOffset(high + 0.1, 0.0, 0.0), StartOffset(0.0, 0.0, 0.2 + 2 * np.pi)]
    result = object_coverage("vial", Starts(offsets, [True, True, False], ["", "", "slipped"]), task, settings)
    assert result.inside.tolist() == [True, False, True] and result.moved
    assert result.position.tried.sum() == 2 and result.position.succeeded.sum() == 1
    assert result.heading.tried.sum() == 2
    assert result.positions[0] == pytest.approx(turning_point(task.objects["vial"]) + [low, 0.0])


def test_turning_point_is_where_an_object_stays(config):
    """Whatever is drawn for yaw, the point of the object that yaw turns about stands at the same place."""
    placement = config.task.active.objects["rack"].model_copy(update={"yaw_center_m": (0.06, 0.05, 0.01)})
    definition = config.task.active.model_copy(update={"objects": {"rack": placement}})
    tasks = config.task.model_copy(update={"tasks": {config.task.name: definition}})
    turned = config.model_copy(update={"task": tasks})
    for yaw in (-0.4, 0.0, 0.3):
        offset = start_offset(start_pose(turned, "rack", yaw=yaw), placement, world_base(config))
        assert offset == pytest.approx((0.0, 0.0, yaw), abs=1e-9)
    assert turning_point(placement) == pytest.approx(np.array(placement.position_m[:2]) + [0.06, 0.05])


@pytest.fixture
def three(config):
    """A task with two vials and a rack, one pair of subtasks a vial."""
    task = config.task.active
    objects = {"vial_1": task.objects["vial"], "vial_2": task.objects["vial"], "rack": task.objects["rack"]}
    subtasks = [
        SubtaskConfig(name=f"{verb}_{i}", object=f"vial_{i}" if verb == "grasp" else "rack", signal=signal,
                      held=None if verb == "grasp" else f"vial_{i}")
        for i in (1, 2) for verb, signal in (("grasp", f"grasped_{i}"), ("place", f"placed_{i}" if i == 1 else None))
    ]  # fmt: skip
    success = task.success.model_copy(update={"objects": ["vial_1", "vial_2"]})
    definition = task.model_copy(update={"objects": objects, "subtasks": subtasks, "success": success})
    tasks = {**config.task.tasks, config.task.name: definition}
    return config.model_copy(update={"task": config.task.model_copy(update={"tasks": tasks})})


def attempt(config, index, done: int, cause=""):
    """A demo stopped after `done` subtasks."""
    demo = make_demo(config, index, cause=cause)
    names = [subtask.name for subtask in config.task.active.subtasks]
    meta = {"subtasks": [[name, 0, 1] for name in names[:done]], "sources": ["demo_0"] * min(done + 1, len(names))}
    return demo.replace(meta={**demo.meta, **meta})


def test_an_attempt_counts_for_the_objects_it_tells_about(three, fk, tmp_path):
    run = RunFolder(tmp_path)
    save_demo(run.generated, attempt(three, 0, 4))
    save_demo(run.failed, attempt(three, 1, 0, "grasp_missed"))
    save_demo(run.failed, attempt(three, 2, 3, "dropped"))
    save_demo(run.failed, attempt(three, 3, 4, "not_inserted"))
    summary = collect(three, run, fk)
    found = {one.name: (one.success.tolist(), one.elsewhere, one.moved) for one in summary.coverage}
    assert list(found) == ["vial_1", "vial_2", "rack"]
    assert found["vial_1"] == ([True, False, False], 1, True)
    assert found["vial_2"] == ([True, False, False], 1, True)
    assert found["rack"] == ([True, False, False, False], 0, False)
    assert {name: uses for name, uses in summary.usage.items()} == {
        "grasp_1": [("demo_0", 4, 1)],
        "place_1": [("demo_0", 3, 1)],
        "grasp_2": [("demo_0", 3, 1)],
        "place_2": [("demo_0", 3, 1)],
    }


def test_of_several_only_those_that_are_not_where_they_belong_failed(three, fk, tmp_path):
    demo = attempt(three, 0, 4, "not_inserted")
    success = three.task.active.success
    rack = pose_from_pos_quat(demo.objects["rack"][-1])
    height = 0.5 * (success.strict.min_height_m + success.strict.max_height_m)
    seated = make_pose(np.eye(3), rack[:3, 3] + rack[:3, :3] @ [*success.openings_m[2], height])
    vial = np.concatenate([demo.objects["vial_1"][:1], np.tile(pose_to_pos_quat(seated), (demo.num_frames - 1, 1))])
    q = demo.q.copy()
    q[-20:, 5] = 1.0
    save_demo(tmp_path / "failed", demo.replace(q=q, objects={**demo.objects, "vial_1": vial}))
    found = {one.name: one.success.tolist() for one in collect(three, RunFolder(tmp_path), fk).coverage}
    assert found == {"vial_1": [True], "vial_2": [False], "rack": [False]}


def test_failed_subtask_is_the_first_unfinished(three):
    task = three.task.active
    assert failed_subtask(attempt(three, 0, 4), task) is None
    assert failed_subtask(attempt(three, 0, 2, "slipped"), task).name == "grasp_2"
    assert failed_subtask(attempt(three, 0, 4, "not_inserted"), task) is None


@given(st.lists(st.integers(1, 50), min_size=1, max_size=9))
def test_skew_lies_between_one_seed_and_all_alike(counts):
    skew = source_skew([SourceUse(str(i), n, 0) for i, n in enumerate(counts)])
    assert 1.0 - 1e-9 <= skew.effective <= len(counts) + 1e-9 and skew.seeds == len(counts)
    assert 1 / len(counts) - 1e-9 <= skew.top_share <= 1.0
    assert source_skew([SourceUse("a", 7, 0)] * 3).effective == pytest.approx(3.0)


def test_skew_worked_number():
    assert source_skew([SourceUse("a", 6, 1), SourceUse("b", 2, 0)]) == pytest.approx((2, 0.75, 1.6))
