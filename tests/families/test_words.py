"""Tasks in words."""

from __future__ import annotations

import json

import pytest

from so101.cli.app import main
from so101.families import find_task, make_env, task_names
from so101.families.declaration import Goal
from so101.families.words import goal_in_words, observation_sizes, task_facts


@pytest.mark.parametrize("name", ["so101_reach", "so101_gather_bricks", "so101_tower_lift_brick", "so101_vial_to_rack"])
def test_the_words_counted_are_those_of_the_environment(name):
    env = make_env(name)
    assert {group: where.stop - where.start for group, where in env.words.items()} == observation_sizes(find_task(name))
    env.close()


def test_goals_are_sentences():
    near = {"near": {"subject": "brick", "target": "bowl", "radius_m": 0.045}}
    on = {"on_region": {"subject": "brick", "region": "desk_top"}}
    goal = Goal.model_validate({"all_of": [near, {"negated": on}]})
    assert goal_in_words(goal) == "brick within 45 mm of bowl and not (brick on desk_top)"
    assert goal_in_words(find_task("so101_tower_lift_brick").goal) == "brick at least 50 mm above desk"


def test_the_table_has_every_task_and_json_says_the_same(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["tasks", "--json", str(tmp_path / "tasks.json")]) == 0
    out = capsys.readouterr().out
    facts = json.loads((tmp_path / "tasks.json").read_text())
    assert [task["name"] for task in facts] == task_names()
    assert all(task["name"] in out and task["language"] in out for task in facts)


def test_details_of_one_task(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["tasks", "so101_tower_cube_in_bowl"]) == 0
    out = capsys.readouterr().out
    assert "brick in desk_brick, turned at random" in out and "300 steps of 32 ms (31.25 Hz" in out
    assert task_facts(find_task("so101_tower_reach_clear"))["absent"] == ["bowl", "brick"]


def test_a_typo_gets_a_suggestion(capsys):
    assert main(["tasks", "so101_tower_lift_brik"]) == 2
    assert "did you mean 'so101_tower_lift_brick'" in capsys.readouterr().err
