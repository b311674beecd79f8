"""The flow and the run folder, on stages without physics."""

from __future__ import annotations

import errno
import functools
import json
import os

import pytest

from so101.config import load_config
from so101.datasets.demo import demo_index, list_demos
from so101.errors import DataError, InsufficientDemosError, RunFolderError
from so101.pipeline import stages as table
from so101.pipeline.flow import run_pipeline, run_stage
from so101.pipeline.progress import SilentReporter
from so101.pipeline.record import settings_of, stage_of_setting
from so101.pipeline.run_folder import RunFolder

from . import stub_stages
from .stub_stages import tree_digest

SMALL = ("skillgen.target_demos=8", "skillgen.max_attempts=60", "skillgen.generation_guarantee=true")


@pytest.fixture(autouse=True)
def stubs(monkeypatch):
    stub_stages.install(monkeypatch.setitem)


@pytest.fixture
def run(tmp_path):
    return RunFolder(tmp_path / "run")


@functools.cache
def configure(*overrides):
    return load_config(overrides=[*SMALL, *overrides])


def go(run, *overrides, **options):
    config = configure(*overrides)
    return run_pipeline(config, run, reporter=SilentReporter(), workers=1, **options)


def indices(folder):
    return [demo_index(path) for path in list_demos(folder)]


# --- the flow


def test_generates_until_enough_are_verified_in_index_order(run):
    results = go(run)
    assert list(results) == list(table.STAGES)
    # Even attempts succeed, those divisible by 6 fail again in replay.
    assert indices(run.verified)[:8] == [2, 4, 8, 10, 14, 16, 20, 22]
    assert max(indices(run.generated)) == 22  # no attempt more than needed
    assert json.loads((run.dataset / "meta/info.json").read_text()) == {"total_episodes": 8}
    assert len(list(run.videos.iterdir())) == 8


def test_a_second_run_makes_no_attempt_and_changes_nothing(run, monkeypatch):
    go(run)
    before = tree_digest(run.root)
    monkeypatch.setattr(stub_stages, "_attempt", None)  # calling it would fail
    go(run)
    assert {**tree_digest(run.root), ".lock": ""} == {**before, ".lock": ""}


def test_more_demos_later_equals_more_demos_at_once(run, tmp_path):
    go(run, "skillgen.target_demos=3")
    go(run)
    other = RunFolder(tmp_path / "other")
    go(other)
    assert tree_digest(run.dataset) == tree_digest(other.dataset)


def test_fewer_demos_later_equals_fewer_at_once(run, tmp_path):
    go(run)
    go(run, "skillgen.target_demos=3")
    other = RunFolder(tmp_path / "other")
    go(other, "skillgen.target_demos=3")
    assert tree_digest(run.verified) == tree_digest(other.verified)


def test_a_spoiled_filter_report_says_how_to_make_it_anew(run):
    go(run)
    run.filter_report.write_text("{}")
    with pytest.raises(RunFolderError, match="filter.json: not written by the filter stage.*`./twin filter --fresh"):
        go(run)


def test_without_guarantee_all_attempts_are_made_once_and_any_verified_demo_is_enough(run):
    go(run, "skillgen.generation_guarantee=false", "skillgen.max_attempts=12", "skillgen.target_demos=1200")
    assert len(indices(run.generated)) + len(indices(run.failed)) == 12
    assert indices(run.verified) == [2, 4, 8, 10]


def test_too_few_names_counts_and_causes_and_still_writes_the_report(run):
    with pytest.raises(InsufficientDemosError) as caught:
        go(run, "skillgen.max_attempts=10")
    text = str(caught.value)
    assert "3 demos are verified, 8 are wanted" in text and "10 attempts" in text
    assert "5 failed: grasp_missed 5" in text and "2 failed again in open-loop replay: dropped 2" in text
    assert "--demos 3" in text and "max_attempts" in text
    assert (run.report / "index.html").read_text() == "3 verified"
    assert not run.dataset.exists()
    go(run, "skillgen.target_demos=3", "skillgen.max_attempts=10")  # the way out it names
    assert json.loads((run.dataset / "meta/info.json").read_text()) == {"total_episodes": 3}


def test_no_usable_seed_stops_before_generating(run, tmp_path):
    with pytest.raises(InsufficientDemosError, match="No seed demonstration is usable"):
        go(run, source=tmp_path / "unusable.csv")
    assert not run.generated.exists() and (run.report / "index.html").exists()


def test_a_stage_alone_says_what_to_run_first_and_makes_no_folder(run):
    config = configure()
    with pytest.raises(DataError, match=r"smooth needs .*filter.json.*`./twin filter --run"):
        run_stage("smooth", config, run, reporter=SilentReporter(), workers=1)
    assert not run.root.exists()


def test_stages_one_by_one_equal_the_flow(run, tmp_path):
    config = configure("skillgen.generation_guarantee=false")
    for name in table.STAGES:
        run_stage(name, config, run, reporter=SilentReporter(), workers=1)
    go(RunFolder(tmp_path / "flow"))
    assert tree_digest(run.dataset) == tree_digest(tmp_path / "flow" / "dataset")


# --- settings


def test_every_setting_belongs_to_a_stage_or_is_free():
    settings = settings_of(load_config(), None)
    unowned = {key for key in settings if stage_of_setting(key) is None}
    assert all(key.startswith(table.FREE_SETTINGS) for key in unowned)
    assert stage_of_setting("skillgen.gate.enabled") == "generate"
    assert stage_of_setting("skillgen.smoothing.order") == "smooth"
    assert stage_of_setting("skillgen.target_demos") is None


def test_other_settings_are_refused_naming_key_and_both_values(run):
    go(run)
    before = tree_digest(run.root)
    with pytest.raises(RunFolderError) as caught:
        go(run, "skillgen.nn_k=1", "skillgen.window_frames=9")
    text = str(caught.value)
    assert "skillgen.selection.nn_k: 3 in the folder, 1 now" in text
    assert "skillgen.smoothing.window_frames: 21 in the folder, 9 now" in text
    assert "--run FOLDER" in text and f"`./twin generate --run {run.root} --fresh`" in text
    after = tree_digest(run.root)
    assert {**after, ".lock": ""} == {**before, ".lock": ""}


def test_another_task_is_named_without_its_definition(run):
    go(run)
    with pytest.raises(RunFolderError) as caught:
        go(run, "task.name=cube_in_box")
    assert 'task.name: "vial_to_rack" in the folder, "cube_in_box" now' in str(caught.value)
    assert "task.tasks." not in str(caught.value)


def test_other_seeds_are_refused(run, tmp_path):
    go(run)
    with pytest.raises(RunFolderError, match=r"--seeds: null in the folder, \".*mine.csv\" now"):
        go(run, source=tmp_path / "mine.csv")


def test_stages_after_the_seeds_keep_their_source(run, tmp_path):
    config = configure()
    for name, source in (("seeds", tmp_path / "mine.csv"), ("generate", None), ("filter", None)):
        run_stage(name, config, run, reporter=SilentReporter(), workers=1, source=source)
    assert json.loads(run.record.read_text())["settings"]["--seeds"] == str((tmp_path / "mine.csv").resolve())


def test_a_setting_may_change_until_something_was_made_with_it(run):
    config = configure()
    for name in ("seeds", "generate", "filter"):
        run_stage(name, config, run, reporter=SilentReporter(), workers=1)
    other = configure("skillgen.window_frames=9")
    run_stage("smooth", other, run, reporter=SilentReporter(), workers=1)
    with pytest.raises(RunFolderError, match="window_frames: 9 in the folder, 21 now"):
        run_stage("smooth", config, run, reporter=SilentReporter(), workers=1)


def test_fresh_stage_removes_its_files_and_later_ones_and_keeps_earlier(run):
    go(run)
    generated = tree_digest(run.generated)
    other = configure("skillgen.window_frames=9")
    run_stage("smooth", other, run, reporter=SilentReporter(), workers=1, fresh=True)
    assert tree_digest(run.generated) == generated and run.smoothed.exists()
    assert not any(path.exists() for path in (run.verified, run.rejected, run.videos, run.dataset, run.report))


def test_fresh_run_keeps_files_of_others(run):
    go(run)
    (run.videos / "holiday.mp4").write_text("mine")
    (run.root / "notes.txt").write_text("mine")
    go(run, "skillgen.nn_k=1", fresh=True)
    assert (run.videos / "holiday.mp4").read_text() == (run.root / "notes.txt").read_text() == "mine"


# --- the folder


@pytest.mark.parametrize("fresh", [False, True])
def test_a_folder_of_others_is_not_touched(run, fresh):
    for name in ("seeds.hdf5", ".draft.1.tmp.txt", "verified/demo_000001.npz"):
        (run.root / name).parent.mkdir(parents=True, exist_ok=True)
        (run.root / name).write_text("precious")
    with pytest.raises(RunFolderError, match="holds .* but no run.json.*Nothing was touched"):
        go(run, fresh=fresh)
    assert len(tree_digest(run.root)) == 3


@pytest.mark.parametrize("content", ["", "{", '{"version": 99}', "[]", '{"version": 1, "settings": 3}'])
def test_a_broken_record_is_refused(run, content):
    run.root.mkdir()
    run.record.write_text(content)
    with pytest.raises(RunFolderError, match="run.json: not a record"):
        go(run)


def test_leftovers_of_a_killed_process_are_removed(run):
    go(run)
    for name in (".demo_000001.77.tmp.npz", "generated/.demo_000009.77.tmp.npz", "videos/demo_000002/.ego.77.tmp.mp4"):
        (run.root / name).write_text("half")
    (run.root / ".dataset.77.tmp/meta").mkdir(parents=True)
    go(run)
    assert not list(run.root.rglob(".*.tmp*"))


def test_two_commands_in_one_folder_the_second_names_the_first(run, monkeypatch):
    def second(config, inner_run, reporter, workers, source=None):
        with pytest.raises(RunFolderError, match=f"in use by another command .process {os.getpid()}"):
            go(run)
        raise KeyboardInterrupt

    monkeypatch.setattr(stub_stages, "make_seeds", second)
    with pytest.raises(KeyboardInterrupt):
        go(run)
    monkeypatch.undo()
    stub_stages.install(monkeypatch.setitem)
    go(run)  # the lock is free again


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENOSPC, "disk is full.*finished file is kept.*same command goes on"),
        (errno.EDQUOT, "disk is full"),
        (errno.EROFS, "cannot be written.*Make .* writable, or choose another folder"),
        (errno.EACCES, "cannot be written"),
        (errno.ENAMETOOLONG, "cannot be used .File name too long.*choose another folder with --run"),
        (errno.EIO, "cannot be used .Input/output error"),
        (errno.ENOENT, "cannot be used .No such file"),
    ],
)
def test_what_the_disk_refuses_is_explained(run, monkeypatch, number, expected):
    def refuse(folder, demo):
        if demo.index >= 4:
            raise OSError(number, os.strerror(number), str(run.generated / "demo_000004.npz"))
        return save(folder, demo)

    save = stub_stages.save_demo
    monkeypatch.setattr(stub_stages, "save_demo", refuse)
    with pytest.raises(RunFolderError, match=f"(?s)demo_000004.npz: .*{expected}"):
        go(run)
    assert indices(run.generated) == [0, 2]
    monkeypatch.setattr(stub_stages, "save_demo", save)
    go(run)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_disk_that_is_really_full_is_explained(run, monkeypatch):
    def write(config, inner_run, reporter, workers, source=None):
        with open("/dev/full", "wb", buffering=0) as file:
            file.write(b"x")

    monkeypatch.setattr(stub_stages, "make_seeds", write)
    with pytest.raises(RunFolderError, match="disk is full"):
        go(run)


def test_a_file_in_place_of_the_folder_is_explained(run):
    run.root.write_text("I am a file")
    with pytest.raises(RunFolderError, match="a file is in the way"):
        go(run)
