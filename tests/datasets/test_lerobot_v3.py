"""v3.0 as LeRobot writes it: where each episode is, exact statistics, files that are no larger than they may be."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from so101.datasets.lerobot_source import read_source
from so101.datasets.lerobot_v3 import check_v3
from so101.datasets.merge_options import MergeOptions, SourceSpec
from so101.datasets.merge_plan import plan_merge
from so101.datasets.stats import image_histogram, sample_indices

from .merging import frames, make_source, merge, small_config

REAL = Path(__file__).resolve().parents[2].parent / "shared" / "data"
LENGTHS = (24, 17, 31)
WRIST = "observation.images.wrist"


@pytest.fixture(scope="module")
def config():
    return small_config()


@pytest.fixture(scope="module")
def sim(config, tmp_path_factory):
    return make_source(tmp_path_factory.mktemp("sim"), config, LENGTHS)


@pytest.fixture(scope="module")
def written(config, sim, tmp_path_factory):
    out = tmp_path_factory.mktemp("v3") / "v3"
    merge(config, out, sim, format="v3.0")
    return out


def rows(folder) -> list[dict]:
    return pq.read_table(folder / "meta/episodes/chunk-000/file-000.parquet").to_pylist()


def test_files_are_those_of_v30(written):
    files = {str(path.relative_to(written)) for path in written.rglob("*") if path.is_file()}
    assert {name for name in files if not name.startswith("meta/so101")} == {
        "data/chunk-000/file-000.parquet",
        "meta/episodes/chunk-000/file-000.parquet",
        "meta/info.json",
        "meta/stats.json",
        "meta/tasks.parquet",
        "videos/observation.images.front/chunk-000/file-000.mp4",
        "videos/observation.images.wrist/chunk-000/file-000.mp4",
    }


def test_each_episode_says_where_its_rows_and_frames_are(written):
    first = 0
    for index, (row, length) in enumerate(zip(rows(written), LENGTHS, strict=True)):
        assert (row["episode_index"], row["length"]) == (index, length)
        assert (row["dataset_from_index"], row["dataset_to_index"]) == (first, first + length)
        assert (row["data/chunk_index"], row["data/file_index"]) == (0, 0)
        assert row[f"videos/{WRIST}/from_timestamp"] == pytest.approx(first / 30, abs=1e-12)
        assert row[f"videos/{WRIST}/to_timestamp"] == pytest.approx((first + length) / 30, abs=1e-12)
        first += length
    file = pq.ParquetFile(written / "data/chunk-000/file-000.parquet")
    assert [file.metadata.row_group(i).num_rows for i in range(3)] == list(LENGTHS)
    np.testing.assert_array_equal(file.read()["index"], np.arange(sum(LENGTHS)))


def test_statistics_of_episodes_and_of_the_whole_are_those_of_the_numbers(written):
    source, stats = read_source(written), json.loads((written / "meta/stats.json").read_text())
    actions = [episode.columns["action"].astype(float) for episode in source.episodes]
    prefix = "stats/action/"
    of_rows = [{key.removeprefix(prefix): value for key, value in row.items()} for row in rows(written)]
    of_all = np.concatenate(actions), stats["action"]
    for values, found in [*zip(actions, of_rows, strict=True), of_all]:
        assert found["count"] == [len(values)]
        wanted = {key: getattr(values, key)(0) for key in ("min", "max", "mean", "std")}
        wanted |= {f"q{int(100 * q):02d}": np.quantile(values, q, axis=0) for q in (0.01, 0.5, 0.99)}
        for key, value in wanted.items():
            np.testing.assert_allclose(found[key], value, rtol=1e-6, atol=1e-6, err_msg=key)
    shown = [frames(source, i, WRIST)[sample_indices(n)] for i, n in enumerate(LENGTHS)]
    pixels = np.concatenate(shown).reshape(-1, 3) / 255
    np.testing.assert_allclose(np.ravel(stats[WRIST]["mean"]), pixels.mean(0), atol=1e-9)
    np.testing.assert_allclose(np.ravel(stats[WRIST]["std"]), pixels.std(0), atol=1e-9)
    np.testing.assert_allclose(np.ravel(stats[WRIST]["q10"]), np.quantile(pixels, 0.1, axis=0), atol=1 / 255)
    assert stats[WRIST]["count"] == [sum(len(part) for part in shown)]


def test_histograms_add_up():
    pictures = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 3), dtype=np.uint8)
    whole, parts = image_histogram(pictures), [image_histogram(pictures[:1]), image_histogram(pictures[1:])]
    np.testing.assert_array_equal(whole[0], parts[0][0] + parts[1][0])
    assert whole[1] == parts[0][1] + parts[1][1]


def test_tasks_are_the_index_of_a_data_frame(written):
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_parquet(written / "meta/tasks.parquet")
    assert list(frame.columns) == ["task_index"] and list(frame["task_index"]) == [0]
    assert list(frame.index) == list(read_source(written).episodes[0].tasks[:1])


@pytest.mark.skipif(not (REAL / "so101_record_test_4ep").is_dir(), reason="shared data are not there")
@pytest.mark.parametrize("name", ["so101_record_test_4ep", "so101_pickplace_100ep"])
def test_columns_and_types_are_those_of_recordings_by_lerobot(written, name):
    """With our cameras in place of theirs."""
    for file in ("meta/episodes/chunk-000/file-000.parquet", "data/chunk-000/file-000.parquet", "meta/tasks.parquet"):
        ours, theirs = (pq.read_schema(folder / file) for folder in (written, REAL / name))
        types = {field.name: str(field.type) for field in theirs if "observation.images" not in field.name}
        found = {field.name: str(field.type) for field in ours if "observation.images" not in field.name}
        assert found == types, file
    camera = "observation.images.wrist" if "100ep" in name else "observation.images.front"
    ours, theirs = (pq.read_schema(f / "meta/episodes/chunk-000/file-000.parquet") for f in (written, REAL / name))
    for field in theirs:
        if camera in field.name:
            assert str(ours.field(field.name).type) == str(field.type), field.name
    ours, theirs = (json.loads((folder / "meta/info.json").read_text()) for folder in (written, REAL / name))
    assert set(ours) == set(theirs)
    assert {k: v for k, v in ours["features"].items() if "index" in k} == {
        k: v for k, v in theirs["features"].items() if "index" in k
    }
    assert (ours["data_path"], ours["video_path"]) == (theirs["data_path"], theirs["video_path"])
    ours, theirs = (json.loads((folder / "meta/stats.json").read_text()) for folder in (written, REAL / name))
    assert list(ours["action"]) == list(theirs["action"])


@pytest.mark.skipif(not (REAL / "so101_pickplace_100ep").is_dir(), reason="shared data are not there")
def test_a_real_dataset_of_many_files_keeps_every_number(config, tmp_path):
    real = REAL / "so101_pickplace_100ep"
    merge(config, tmp_path / "v3", real, drops=((None, "wrist"),), format="v3.0")
    for old, new in zip(read_source(real).episodes, read_source(tmp_path / "v3").episodes, strict=True):
        np.testing.assert_array_equal(old.columns["action"], new.columns["action"])
        assert list(old.tasks) == list(new.tasks)
    ours, theirs = (json.loads((folder / "meta/stats.json").read_text()) for folder in (tmp_path / "v3", real))
    for key in ("mean", "std", "min", "max", "count"):
        np.testing.assert_allclose(ours["action"][key], theirs["action"][key], rtol=1e-5)


def test_full_files_and_folders_begin_new_ones(config, sim, tmp_path, monkeypatch):
    """One episode a file, two files a folder."""
    monkeypatch.setattr("so101.datasets.lerobot_v3._MB", 1000)
    small = small_config("training.mix.data_file_mb=2", "training.mix.video_file_mb=1")
    merge(small, tmp_path / "out", sim, format="v3.0")
    places = [(row["data/chunk_index"], row["data/file_index"]) for row in rows(tmp_path / "out")]
    assert places == [(0, 0), (0, 1), (1, 0)]
    shown = [(r[f"videos/{WRIST}/chunk_index"], r[f"videos/{WRIST}/file_index"]) for r in rows(tmp_path / "out")]
    assert shown == places and all(row[f"videos/{WRIST}/from_timestamp"] == 0 for row in rows(tmp_path / "out"))
    old, new = read_source(sim), read_source(tmp_path / "out")
    for index in range(3):
        np.testing.assert_array_equal(new.episodes[index].columns["action"], old.episodes[index].columns["action"])
        np.testing.assert_array_equal(frames(new, index, WRIST), frames(old, index, WRIST))


def test_the_check_sees_a_changed_number_and_a_shifted_video(config, sim, written, tmp_path):
    import shutil

    plan = plan_merge([SourceSpec(sim)], MergeOptions(format="v3.0"), config)
    assert check_v3(written, plan) == []
    other = shutil.copytree(written, tmp_path / "x")
    table = pq.read_table(other / "data/chunk-000/file-000.parquet", partitioning=None)
    pq.write_table(table.take([1, 0, *range(2, table.num_rows)]), other / "data/chunk-000/file-000.parquet")
    assert check_v3(other, plan)[0] == "episode 0: action is not what was written"
    shutil.copyfile(
        sim / f"videos/chunk-000/{WRIST}/episode_000000.mp4", other / f"videos/{WRIST}/chunk-000/file-000.mp4"
    )
    assert f"episode 1: {WRIST} is not at frame / fps in file-000.mp4" in check_v3(other, plan)
