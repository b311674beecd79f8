"""The main job as a user starts it: one process, real physics, real frames, one dataset."""

import json
from pathlib import Path

import pytest

from so101.datasets.demo import list_demos, load_demo
from so101.datasets.validate import validate_dataset
from so101.trajectory.verification import Verifier
from tests.system.small_run import SMALL, files_and_bytes, twin

RECORDING = Path(__file__).resolve().parents[3] / "shared" / "data" / "so101_record_test_4ep"


def test_the_dataset_holds_what_was_asked_for(operator_run):
    dataset = operator_run / "dataset"
    assert validate_dataset(dataset) == []
    info = json.loads((dataset / "meta" / "info.json").read_text())
    assert info["total_episodes"] == 2
    assert info["total_videos"] == 6
    assert (operator_run / "report" / "index.html").stat().st_size > 10_000


def test_every_demo_of_the_dataset_works_when_its_actions_are_replayed(operator_run, vial_config):
    verifier = Verifier(vial_config)
    demos = [load_demo(path) for path in list_demos(operator_run / "verified")]
    assert demos
    for demo in demos:
        again = verifier.replay(demo)
        assert again.strict
        assert (again.q == demo.q).all()


def test_a_finished_run_started_again_changes_nothing(operator_run):
    before = files_and_bytes(operator_run / "dataset")
    result = twin("run", "--run", str(operator_run), "--set", "teleop.operator.num_demos=2", *SMALL)
    assert result.returncode == 0, result.stdout + result.stderr
    assert files_and_bytes(operator_run / "dataset") == before


def test_one_worker_makes_the_same_demos(operator_run, tmp_path):
    shared = ["--run", str(tmp_path), "--set", "teleop.operator.num_demos=2", "--demos", "2", "--workers", "1"]
    for stage in ("seeds", "generate"):
        result = twin(stage, *shared)
        assert result.returncode == 0, result.stdout + result.stderr
    assert files_and_bytes(tmp_path / "generated") == files_and_bytes(operator_run / "generated")


def test_seeds_of_one_vial_become_a_demo_of_three(tmp_path):
    for stage in ("seeds", "generate"):
        result = twin(
            stage, "--run", str(tmp_path), "--task", "three_vials_to_rack", "--demos", "1", "--workers", "1",
            "--set", "teleop.operator.num_demos=2",
        )  # fmt: skip
        assert result.returncode == 0, result.stdout + result.stderr
    (demo,) = (load_demo(path) for path in list_demos(tmp_path / "generated"))
    assert demo.strict and demo.task == "three_vials_to_rack"
    assert set(demo.meta["sources"]) <= {"demo_0", "demo_1"} and len(demo.meta["sources"]) == 6
    assert set(demo.objects) == {"vial_1", "vial_2", "vial_3", "rack"}


@pytest.mark.skipif(not RECORDING.is_dir(), reason="the real recording is not here")
def test_a_real_recording_is_multiplied(tmp_path):
    result = twin("run", "--run", str(tmp_path / "real"), "--seeds", str(RECORDING), "--demos", "1", "--workers", "2")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "4 of 4 became usable seeds" in result.stdout
    dataset = tmp_path / "real" / "dataset"
    assert validate_dataset(dataset) == []
    tasks = (dataset / "meta" / "tasks.jsonl").read_text()
    assert "Pick the orange cube and place it in the box" in tasks
