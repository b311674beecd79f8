"""A closed jaw holds what it holds; every part of the check can fail."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from so101.cli.app import main
from so101.config import Config, load_config
from so101.errors import ConfigError
from so101.tasks.grasp_check import CREPT, HELD, LOST, MISSED, UNREACHABLE, GraspChecker, check_grasp

VIAL = ["task.grasp_check.offsets_m.vial_to_rack=[0.06]", "task.grasp_check.dips_deg=[80, 60]"]


def config(*overrides: str, task: str = "vial_to_rack") -> Config:
    return load_config(overrides=[f"task.name={task}", *overrides])


@pytest.fixture(scope="module")
def report():
    return check_grasp(config(*VIAL))


@pytest.mark.parametrize(("task", "offset_m"), [("vial_to_rack", 0.048), ("vial_to_rack", 0.07), ("cube_in_box", 0.0)])
def test_a_closed_jaw_holds_for_five_seconds(task, offset_m):
    checker = GraspChecker(config(task=task))
    trial = checker.trial(offset_m, 50.0)
    assert checker.settings.hold_s == 5.0
    assert trial.outcome == HELD
    assert 0 < trial.creep_m < 0.001
    assert 0.08 < trial.lifted_m < 0.11
    assert trial.creep_m <= trial.slip_m
    assert trial.squeeze_n > 5.0


def test_the_controls_do_not_hold(report):
    assert not report.faults
    assert report.jaw_open.outcome == LOST
    assert report.jaw_open.lifted_m < 0.001
    assert report.far_contacts == 0
    assert [trial.outcome for trial in report.soft_friction] == [LOST]


def test_what_the_arm_cannot_reach_is_said_and_not_counted(report):
    assert [(trial.dip_deg, trial.outcome) for trial in report.trials] == [(80.0, UNREACHABLE), (60.0, HELD)]
    assert [trial.dip_deg for trial in report.tried] == [60.0]


def test_each_fault_is_named(report):
    crept = replace(report.trials[1], outcome=CREPT, creep_m=0.0021)
    assert replace(report, trials=(crept,)).faults == [
        f"offset 60 mm, dip 60 degrees: crept (lifted {crept.lifted_m * 1e3:.0f} mm, crept 2.10 mm)"
    ]
    (text,) = replace(report, trials=report.trials[:1]).faults
    assert "no grasp of the grid is within the arm's reach" in text
    (text,) = replace(report, jaw_open=report.trials[1]).faults
    assert "open jaw lifted the object too" in text
    (text,) = replace(report, far_contacts=3).faults
    assert "3 contacts between the arm and the object" in text


def test_little_friction_loses_the_object():
    slippery = config("robot.jaw_contact.friction=[0.01, 0.0, 0.0]")
    trial = GraspChecker(slippery).trial(0.06, 60.0)
    assert trial.outcome in (LOST, MISSED)
    assert trial.lifted_m < 0.01


def test_soft_friction_creeps_beyond_the_bar():
    assert GraspChecker(config("scene.physics.impratio=2")).trial(0.06, 50.0).outcome == CREPT


def test_a_task_without_offsets_is_refused():
    with pytest.raises(ConfigError, match=r"offsets_m has no entry for 'cube_in_box'; it has: vial_to_rack"):
        check_grasp(config("task.grasp_check.offsets_m={vial_to_rack: [0.06]}", task="cube_in_box"))


def test_the_command_prints_a_table_writes_json_and_fails_when_the_bar_fails(tmp_path, capsys):
    options = [part for override in [*VIAL, "task.grasp_check.hold_s=1"] for part in ("--set", override)]
    path = tmp_path / "grasp.json"
    assert main(["grasp-check", "--json", str(path), *options]) == 0
    assert "open (control)" in capsys.readouterr().out
    figures = json.loads(path.read_text())
    assert figures["passed"] is True
    assert figures["max_creep_m"] < figures["allowed_creep_m"] == 0.001
    options += ["--set", "task.grasp_check.max_creep_m=1.0e-5", "--set", "scene.physics.impratio=10"]
    assert main(["grasp-check", "--json", str(path), *options]) == 1
    assert "1 of the checks failed" in capsys.readouterr().err
    assert json.loads(path.read_text())["passed"] is False
