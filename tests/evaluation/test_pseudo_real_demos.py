"""Demos of pseudo-real rigs: recorded over the servo protocol, whole, and the same again."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from so101.config import load_config
from so101.datasets.demo import load_demo, save_demo
from so101.datasets.lerobot_files import read_parquet
from so101.datasets.validate import validate_dataset
from so101.errors import DataError, RunFolderError
from so101.evaluation.closed_loop.folder import EvalFolder
from so101.evaluation.pseudo_real_demos import record_pseudo_real
from so101.pipeline.progress import SilentReporter
from so101.pipeline.run_folder import RunFolder
from so101.pipeline.session import lock_folder
from so101.tasks.start import draw_start

SETTINGS = ["task.name=vial_to_rack", "cameras.scale=0.125", "deploy.transfer.demos.tries_per_demo=2"]


@pytest.fixture(scope="module")
def config():
    return load_config(overrides=SETTINGS)


@pytest.fixture(scope="module")
def plans(vial_runner, tmp_path_factory):
    """A run with two verified demos."""
    run = RunFolder(tmp_path_factory.mktemp("plans"))
    demos = (vial_runner.run(index) for index in range(20))
    for demo, _ in zip((demo for demo in demos if demo.strict), range(2), strict=False):
        save_demo(run.verified, demo)
    return run


@pytest.fixture(scope="module")
def recorded(config, plans, tmp_path_factory):
    root = tmp_path_factory.mktemp("recorded")
    record_pseudo_real(config, root, 1, SilentReporter(), plans=plans.root)
    return root


def _digest(root) -> str:
    files = sorted(path for path in root.rglob("*") if path.suffix in (".parquet", ".mp4"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def test_the_dataset_is_whole_and_holds_what_the_servos_told(config, recorded):
    dataset = recorded / "dataset"
    assert validate_dataset(dataset) == []
    episode = EvalFolder(recorded).load([int(next(recorded.glob("episodes/episode_*.npz")).stem[8:])])[0]
    (demo,) = [load_demo(path) for path in (recorded / "episodes").glob("demo_*.npz")]
    assert (demo.q == episode.q).all() and (demo.q_target == episode.sent).all()
    table = read_parquet(next(dataset.rglob("episode_000000.parquet")))
    assert table.num_rows == episode.num_frames
    rig = episode.meta["rig"]
    assert rig["strength"] == 1.0 and 20_000 <= rig["seed"] < 20_010


def test_nobody_but_the_rig_knows_where_its_objects_are(recorded):
    """As on a real arm; so merging takes it for a real one."""
    assert read_parquet(recorded / "dataset/meta/so101_objects.parquet").column_names == [
        "episode_index",
        "frame_index",
    ]


def test_the_same_command_does_nothing_again_and_elsewhere_the_same(config, plans, recorded, tmp_path):
    before = _digest(recorded)
    record_pseudo_real(config, recorded, 1, SilentReporter(), plans=plans.root)
    assert _digest(recorded) == before
    record_pseudo_real(config, tmp_path, 1, SilentReporter(), plans=plans.root)
    assert _digest(tmp_path) == before


def test_other_settings_are_refused(plans, recorded):
    other = load_config(overrides=[*SETTINGS, "deploy.transfer.demos.strength=2"])
    with pytest.raises(RunFolderError, match="rig_strength"):
        record_pseudo_real(other, recorded, 1, SilentReporter(), plans=plans.root)


def test_two_commands_do_not_record_in_one_folder(config, plans, recorded):
    with lock_folder(EvalFolder(recorded)), pytest.raises(RunFolderError, match="in use by another command .* --out"):
        record_pseudo_real(config, recorded, 1, SilentReporter(), plans=plans.root)


def test_plans_for_other_placements_are_refused(config, plans, tmp_path):
    demo = load_demo(next(plans.verified.glob("*.npz")))
    start = draw_start(config, np.random.default_rng(demo.seed + 1))
    run = RunFolder(tmp_path / "moved")
    save_demo(run.verified, demo.replace(seed=demo.seed + 1))
    assert np.abs(start.objects["vial"] - demo.objects["vial"][0]).max() > 1e-3
    with pytest.raises(DataError, match=f"not planned for the placement that seed {demo.seed + 1} draws"):
        record_pseudo_real(config, tmp_path / "out", 1, SilentReporter(), plans=run.root)
    with pytest.raises(DataError, match="no verified demos to replay"):
        record_pseudo_real(config, tmp_path / "out", 1, SilentReporter(), plans=tmp_path / "nothing")
