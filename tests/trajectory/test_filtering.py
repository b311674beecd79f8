"""The filter judges what lies on disk, with the settings of now."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from so101.config import load_config
from so101.datasets.demo import Demo, save_demo
from so101.errors import DataError
from so101.pipeline.progress import SilentReporter
from so101.pipeline.run_folder import RunFolder
from so101.trajectory.filtering import filter_demos


def demo(index: int, vial_xyz: tuple[float, float, float]) -> Demo:
    """A vial standing still at a place relative to the rack's frame, jaw open."""
    rack = np.tile([0.2, 0.1, 0.04, 1.0, 0.0, 0.0, 0.0], (30, 1))
    vial = rack + [*vial_xyz, 0.0, 0.0, 0.0, 0.0]
    q = np.tile([0.0, 0.0, 0.0, 0.0, 0.0, 0.9], (30, 1))
    return Demo(
        index=index, seed=index, task="vial_to_rack", fps=30.0, q_target=q, q=q, objects={"vial": vial, "rack": rack},
        physics_state=np.zeros(3), strict=True, geometric=True,
    )  # fmt: skip


@pytest.fixture
def run(tmp_path):
    """Demo 1 is seated, 4 leans over the rim's corner, 7 lies on the table; what the files claim does not matter."""
    run = RunFolder(tmp_path)
    for index, place in ((1, (0.03, 0.03, 0.031)), (4, (0.06, 0.06, 0.06)), (7, (0.3, 0.0, 0.0))):
        save_demo(run.generated, demo(index, place))
    return run


def test_each_demo_is_judged_by_both_tests(run, vial_config):
    result = filter_demos(vial_config, run, SilentReporter(), 1)
    report = json.loads(run.filter_report.read_text())
    assert report == {"geometric": [1, 4], "strict": [1], "kept": [1]}
    assert result.produced == 1
    assert result.summary == {"geometric": 2, "strict": 1, "kept": 1}


def test_keep_chooses_the_test(run):
    filter_demos(load_config(overrides=["skillgen.keep=geometric"]), run, SilentReporter(), 1)
    assert json.loads(run.filter_report.read_text())["kept"] == [1, 4]


def test_settings_of_now_decide(run):
    wide = "task.tasks.vial_to_rack.success.geometric.max_horizontal_m=0.04"
    filter_demos(load_config(overrides=[wide]), run, SilentReporter(), 1)
    assert json.loads(run.filter_report.read_text())["geometric"] == [4]


def test_the_same_demos_give_the_same_bytes(run, vial_config):
    filter_demos(vial_config, run, SilentReporter(), 1)
    first = run.filter_report.read_bytes()
    filter_demos(vial_config, run, SilentReporter(), 2)
    assert run.filter_report.read_bytes() == first


def test_nothing_generated_keeps_nothing(tmp_path, vial_config):
    run = RunFolder(tmp_path)
    assert filter_demos(vial_config, run, SilentReporter(), 1).produced == 0
    assert json.loads(run.filter_report.read_text())["kept"] == []


def test_a_demo_with_other_objects_is_named(run, vial_config):
    foreign = demo(9, (0.0, 0.0, 0.0))
    objects = {"vial_1": foreign.objects["vial"], "rack": foreign.objects["rack"]}
    path = save_demo(run.generated, foreign.replace(task="two_vials_to_rack", objects=objects))
    text = f"{path}: made for task 'two_vials_to_rack', without vial that 'vial_to_rack' judges; delete it"
    with pytest.raises(DataError, match=re.escape(text)):
        filter_demos(vial_config, run, SilentReporter(), 1)
    assert not run.filter_report.exists()
