"""Runs side by side: intervals of differences as published, pairs on the same seeds, what is read of each kind."""

from __future__ import annotations

import json

import numpy as np
import pytest

from so101.cli.app import main
from so101.cli.compare import pair_text
from so101.config import load_config
from so101.errors import DataError
from so101.evaluation.closed_loop.folder import EvalFolder
from so101.evaluation.closed_loop.record import Episode, save_episode
from so101.evaluation.closed_loop.stages import STAGES
from so101.evaluation.closed_loop.summary import summarise
from so101.evaluation.compared_runs import find_run
from so101.evaluation.comparison import Compared, differing_params, pairs, unique_names
from so101.evaluation.comparison_figure import comparison_figure
from so101.evaluation.statistics import share_difference
from so101.files import write_json, write_text
from so101.tracking import tracked_run

FIRST = 1_000_000


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    store = tmp_path_factory.mktemp("tracking")
    return load_config(overrides=["task.name=vial_to_rack", f"training.tracking.store={store}"])


def episode(seed, success):
    q = np.zeros((10, 6))
    nowhere = np.tile([0.0, 0, 0, 1, 0, 0, 0], (10, 1))
    stages = {stage: i if success or i < 2 else None for i, stage in enumerate(STAGES)}
    return Episode(
        seed=seed, task="vial_to_rack", fps=30.0, q=q, q_target=q, sent=q, objects={"vial": nowhere, "rack": nowhere},
        chunk=np.arange(10) // 8, row=np.arange(10) % 8, chunks=np.zeros((2, 16, 6)), asked=np.array([0, 8]),
        latency_ms=np.array([10.0, 20.0]), physics_state=np.zeros(1), strict=success, geometric=success, stages=stages,
        success_frame=5 if success else None, ended="success" if success else "time",
    )  # fmt: skip


def evaluation(root, outcomes, execute_steps, config):
    """A folder as `./twin eval` leaves it."""
    episodes = [episode(FIRST + i, success) for i, success in enumerate(outcomes)]
    folder = EvalFolder(root)
    folder.bind(load_config(overrides=[f"deploy.execute_steps={execute_steps}"]), {"name": "embedded"})
    for one in episodes:
        save_episode(folder.episodes, one)
    write_json(folder.summary, {**summarise(episodes, 0.95), "metrics": {"frame/ate_m": 0.01}})
    return root


@pytest.mark.parametrize(
    ("a", "b", "expected"),  # method 10 of Newcombe, Statistics in Medicine 17 (1998), table II
    [
        ((56, 70), (48, 80), (0.2, 0.0524, 0.3339)),
        ((9, 10), (3, 10), (0.6, 0.1705, 0.8090)),
        ((10, 10), (0, 10), (1.0, 0.6075, 1.0)),
        ((0, 10), (0, 20), (0.0, -0.1611, 0.2775)),
    ],
)
def test_the_interval_of_a_difference_is_the_published_one(a, b, expected):
    assert share_difference(a, b) == pytest.approx(expected, abs=6e-5)
    turned = share_difference(b, a)
    assert turned == pytest.approx((-expected[0], -expected[2], -expected[1]), abs=6e-5)


def test_of_nothing_there_is_no_difference():
    with pytest.raises(ValueError, match="0 and 5 were tried; needs one at least of each"):
        share_difference((0, 0), (1, 5))


def test_an_evaluation_is_read_with_its_settings_and_outcomes(config, tmp_path):
    run = find_run(str(evaluation(tmp_path / "one", [True, False, True], 8, config)), config)
    assert run.name == "one" and run.success == (2, 3)
    assert run.outcomes == {FIRST: True, FIRST + 1: False, FIRST + 2: True}
    assert run.metrics["frame/ate_m"] == 0.01 and run.metrics["stage/grasped"] == 1.0
    assert run.metrics["stage/released"] == pytest.approx(2 / 3)
    assert run.params["policy.name"] == "embedded" and run.params["deploy.control.execute_steps"] == "8"


def test_runs_on_the_same_seeds_are_compared_episode_by_episode():
    a = Compared("a", "", success=(8, 10), outcomes={i: i < 8 for i in range(10)})
    b = Compared("b", "", success=(3, 10), outcomes={i: i in (0, 1, 9) for i in range(10)})
    elsewhere = Compared("c", "", success=(5, 10), outcomes={i: i > 104 for i in range(100, 110)})
    found = {(p.first, p.second): p for p in pairs([a, b, elsewhere, Compared("training", "")], 0.95)}
    assert list(found) == [("a", "b"), ("a", "c"), ("b", "c")]
    pair = found["a", "b"]
    assert (pair.only_first, pair.only_second) == (6, 1) and pair.difference.value == pytest.approx(0.5)
    assert pair.p_value == pytest.approx(2 * (1 + 7) / 2**7)  # at most 1 of 7, both sides
    assert found["a", "c"].p_value is None
    assert "a - b: +50.0 points" in pair_text(pair, 0.95) and "clear of 0" in pair_text(pair, 0.95)
    assert "6 were done by a alone, 1 by b alone (exact sign test p = 0.125)" in pair_text(pair, 0.95)
    assert "do not tell them apart" in pair_text(found["b", "c"], 0.95)


def test_only_settings_on_which_runs_disagree_are_told():
    runs = [
        Compared("a", "", {"lr": "1", "n": "5"}),
        Compared("b", "", {"lr": "2", "n": "5"}),
        Compared("c", "", {"x": "1"}),
    ]
    assert differing_params(runs) == {"lr": ["1", "2", ""]}


def test_runs_of_one_name_are_told_apart():
    runs = [Compared("a", "x/a"), Compared("a", "y/a"), Compared("b", "b"), Compared("a", "y/a")]
    assert [run.name for run in unique_names(runs)] == ["x/a", "y/a (1)", "b", "y/a (2)"]


def test_a_training_is_read_from_its_log(config, tmp_path):
    write_text(tmp_path / "m" / "training" / "log.csv", "50,loss,2.0\n50,rate,0.1\n100,loss,1.0\n150,lo")
    run = find_run(str(tmp_path / "m"), config)
    assert run.name == "m" and run.metrics == {"loss": 1.0, "rate": 0.1} and run.success is None
    assert run.curves["loss"][0].tolist() == [50, 100]


def test_what_a_crash_left_of_a_log_is_read_as_far_as_it_goes(config, tmp_path):
    write_text(tmp_path / "training/log.csv", "10,loss,2.0\n20,loss,1.0\n\0\0\0\n30,los\nx,loss,3\n40,loss,")
    assert find_run(str(tmp_path), config).metrics == {"loss": 1.0}


@pytest.mark.parametrize(
    "change", [{"n": 0}, {"strict": {"successes": -1}}, {"metrics": {"a": None}}, {"metrics": [1]}]
)
def test_a_damaged_summary_is_named(config, tmp_path, change):
    path = evaluation(tmp_path / "one", [True, False], 8, config) / "summary.json"
    write_json(path, {**json.loads(path.read_text()), **change})
    with pytest.raises(DataError, match="summary.json: not the summary of an evaluation"):
        find_run(str(path.parent), config)


def test_a_store_that_is_none_is_named(tmp_path):
    (tmp_path / "mlflow.db").write_bytes(b"nothing of the kind" * 100)
    broken = load_config(overrides=[f"training.tracking.store={tmp_path}"])
    with pytest.raises(DataError, match="(?s)first: was looked for in MLflow, and .* cannot be read"):
        find_run("first", broken)


def test_a_run_of_mlflow_is_found_by_id_and_by_name(config):
    pytest.importorskip("mlflow")
    for share in (0.25, 0.5):
        with tracked_run(config, kind="eval", name="in mlflow", params={"lr": 3}) as run:
            run.log({"episodes": 200, "strict_share": share})
            run.log({"loss": 2.0}, step=1)
            run.log({"loss": 1.0}, step=2)
    newest, by_id = find_run("in mlflow", config), find_run(run.id, config)
    assert newest.success == by_id.success == (100, 200) and newest.params == {"lr": "3"}
    assert newest.curves["loss"][1].tolist() == [2.0, 1.0] and "episodes" not in newest.curves
    with pytest.raises(DataError, match="nowhere: not a run that can be compared; name a folder of ./twin eval"):
        find_run("nowhere", config)


def test_the_command_writes_picture_and_numbers(config, tmp_path, capsys):
    rng = np.random.default_rng(0)
    roots = [evaluation(tmp_path / name, (rng.random(40) < share).tolist(), steps, config)
             for name, share, steps in (("good", 0.9, 8), ("bad", 0.3, 4))]  # fmt: skip
    assert main(["compare", *map(str, roots), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "good - bad: +" in said and "deploy.control.execute_steps" in said and "Wilson" in said
    assert (tmp_path / "out" / "comparison.json").is_file()
    assert (tmp_path / "out" / "comparison.png").read_bytes().startswith(b"\x89PNG")
    assert main(["compare", str(roots[0])]) == 2 and "name two or more" in capsys.readouterr().err


def test_what_is_no_number_is_null_in_the_json(tmp_path, capsys):
    for name in ("a", "b"):
        write_text(tmp_path / name / "training" / "log.csv", "50,loss,nan\n")
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(tmp_path / "out")]) == 0
    runs = json.loads((tmp_path / "out" / "comparison.json").read_text())["runs"]
    assert [run["metrics"] for run in runs] == [{"loss": None}] * 2


def test_runs_without_anything_to_draw_make_a_picture_all_the_same():
    assert comparison_figure([Compared("a", ""), Compared("b", "")], 0.95).axes
