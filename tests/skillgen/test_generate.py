"""The generation stage on disk: the same files for any number of workers and after any interruption."""

from __future__ import annotations

import itertools

import pytest

from so101.config import load_config
from so101.datasets.demo import demo_to_bytes, list_demos, load_demo
from so101.datasets.seeds_hdf5 import write_seeds
from so101.kinematics import ArmKinematics
from so101.pipeline.executors import LocalExecutor
from so101.pipeline.progress import SilentReporter
from so101.pipeline.run_folder import RunFolder
from so101.skillgen import generate as stage
from so101.skillgen.generate import generate


def config(*overrides: str):
    return load_config(overrides=["task.name=vial_to_rack", "skillgen.max_attempts=4", *overrides])


def new_run(path, vial_config, vial_seeds) -> RunFolder:
    run = RunFolder(path)
    path.mkdir(exist_ok=True)
    write_seeds(run.seeds, vial_seeds, vial_config, ArmKinematics(vial_config).fk)
    return run


def contents(run: RunFolder) -> dict[str, bytes]:
    return {f"{p.parent.name}/{p.name}": p.read_bytes() for p in [*list_demos(run.generated), *list_demos(run.failed)]}


@pytest.fixture(scope="module")
def whole(tmp_path_factory, vial_config, vial_seeds):
    """Four attempts by one worker: the run, its result, its files."""
    run = new_run(tmp_path_factory.mktemp("generate") / "whole", vial_config, vial_seeds)
    result = generate(config("skillgen.generation_guarantee=false"), run, SilentReporter(), 1)
    return run, result, contents(run)


def test_all_attempts_are_made_and_counted(whole):
    run, result, files = whole
    assert len(files) == result.summary["attempts"] == 4
    assert result.produced == result.summary["kept"] == len(list_demos(run.generated))
    assert sum(result.summary["causes"].values()) == 4 - result.produced
    low, high = result.summary["wilson_95"]
    assert 0 <= low < result.summary["rate"] <= high <= 1
    first = config().skillgen.base_seed
    assert result.summary["seeds"] == [first, first + 3]


def test_files_are_the_attempts_from_the_seed_file(whole, vial_config):
    from so101.datasets.seeds_hdf5 import read_seeds
    from so101.skillgen.ik_rollout import AttemptRunner

    run, _, _ = whole
    demo = load_demo(next(iter(list_demos(run.generated))))
    runner = AttemptRunner(vial_config, read_seeds(run.seeds, vial_config))
    assert demo_to_bytes(runner.run(demo.index)) == demo_to_bytes(demo)


def test_two_workers_make_the_same_files(whole, tmp_path, vial_config, vial_seeds):
    run = new_run(tmp_path, vial_config, vial_seeds)
    assert generate(config("skillgen.generation_guarantee=false"), run, SilentReporter(), 2) == whole[1]
    assert contents(run) == whole[2]


def test_a_run_resumes_with_what_is_missing(whole, tmp_path, vial_config, vial_seeds):
    run = new_run(tmp_path, vial_config, vial_seeds)
    for name, content in whole[2].items():
        path = run.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    lost = run.root / sorted(whole[2])[1]
    lost.unlink()
    before = {p: p.stat().st_mtime_ns for p in list_demos(run.generated)}
    assert generate(config("skillgen.generation_guarantee=false"), run, SilentReporter(), 1) == whole[1]
    assert contents(run) == whole[2]
    assert all(p.stat().st_mtime_ns == time for p, time in before.items() if p != lost)


def test_a_guarantee_stops_at_the_wanted_number_and_leaves_no_attempt_beyond(whole, tmp_path, vial_config, vial_seeds):
    run = new_run(tmp_path, vial_config, vial_seeds)
    guarantee = config("skillgen.generation_guarantee=true", "skillgen.target_demos=2")
    result = generate(guarantee, run, SilentReporter(), 2)
    assert result.produced == 2
    assert not result.summary["exhausted"]
    files = contents(run)
    assert len(files) == result.summary["attempts"] <= 4
    assert files.items() <= whole[2].items()


def test_what_a_stopped_worker_left_is_removed(whole, tmp_path, vial_config, vial_seeds, monkeypatch):
    """A worker may have written its file, or half of it, when the parent has enough and ends it."""
    run = new_run(tmp_path, vial_config, vial_seeds)

    class OneTooMany(LocalExecutor):
        def map_unordered(self, context, jobs, say):
            yield from LocalExecutor(None, 1).map_unordered(context, itertools.islice(jobs, 1), say)
            name = sorted(whole[2])[0]
            run.generated.joinpath("demo_000003.npz").write_bytes(whole[2][name])
            run.generated.joinpath(".demo_000003.7.tmp.npz").write_bytes(b"PK")

    monkeypatch.setattr(stage, "make_executor", OneTooMany)
    generate(config("skillgen.generation_guarantee=true", "skillgen.target_demos=1"), run, SilentReporter(), 2)
    assert [path.name for path in run.generated.iterdir()] == ["demo_000000.npz"]


def test_an_impossible_guarantee_ends_with_the_attempts(whole, tmp_path, vial_config, vial_seeds):
    run = new_run(tmp_path, vial_config, vial_seeds)
    far = "task.tasks.vial_to_rack.objects.vial.x_m=[0.2, 0.2]"
    impossible = config(far, "skillgen.target_demos=1", "skillgen.max_attempts=2", "skillgen.keep_failed=false")
    result = generate(impossible, run, SilentReporter(), 1)
    assert result.produced == 0 and result.summary["exhausted"]
    assert [load_demo(path).num_frames for path in list_demos(run.failed)] == [1, 1]  # frames are not kept
    assert sum(result.summary["causes"].values()) == 2
