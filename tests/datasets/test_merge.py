"""Merging: nothing is lost or changed that need not be, origins stay known, and a kill leaves the old."""

from __future__ import annotations

import json
import shutil

import av
import numpy as np
import pyarrow.parquet as pq
import pytest

import so101.datasets.merge as merging
from so101.config import load_config
from so101.datasets.lerobot_source import read_source
from so101.datasets.merge import Source, read_sources
from so101.datasets.merge_options import SourceSpec
from so101.datasets.validate import validate_dataset
from so101.datasets.videos import probe_video
from so101.errors import ConfigError, DataError

from .merging import copy_of, frames, frames_of, make_source, merge, rewrite_column, rewrite_info, small_config
from .synthetic import encode_av1, encode_video, make_frames

KEYS = ("action", "observation.state")
VIDEOS = ("observation.images.wrist", "observation.images.front")


@pytest.fixture(scope="module")
def config():
    return small_config()


@pytest.fixture(scope="module")
def sim(config, tmp_path_factory):
    return make_source(tmp_path_factory.mktemp("sim"), config, (24, 17, 31))


@pytest.fixture(scope="module")
def real(config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("real")
    dataset = copy_of(make_source(folder / "run", config, (20, 28), first=50), folder / "real")
    (dataset / "meta/so101_objects.parquet").unlink(missing_ok=True)
    return dataset


@pytest.fixture(scope="module")
def both(config, sim, real, tmp_path_factory):
    out = tmp_path_factory.mktemp("both") / "both"
    merge(config, out, SourceSpec(sim, 3, "sim"), SourceSpec(real, 1, "real"), units={"real": "degrees"})
    return out


def tree(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def same(a, b, pictures=True):
    """Episodes of two datasets agree to the bit."""
    assert len(a.episodes) == len(b.episodes)
    for index, (one, other) in enumerate(zip(a.episodes, b.episodes, strict=True)):
        assert one.columns.keys() == other.columns.keys() and list(one.tasks) == list(other.tasks)
        for key, column in one.columns.items():
            assert column.dtype == other.columns[key].dtype
            np.testing.assert_array_equal(column, other.columns[key])
        for key in one.clips if pictures else ():
            np.testing.assert_array_equal(frames(a, index, key), frames(b, index, key))


# what comes out


def test_one_source_comes_out_as_it_went_in(config, sim, tmp_path):
    result = merge(config, tmp_path / "out", sim)
    before, after = tree(sim), tree(tmp_path / "out")
    assert {name for name in before if not name.startswith("meta/so101")} <= set(after)
    for name in before:
        if name.startswith(("data/", "videos/")) or name in ("meta/tasks.jsonl", "meta/episodes.jsonl"):
            assert after[name] == before[name], name
    for name in ("meta/info.json", "meta/modality.json", "meta/stats.json", "meta/relative_stats.json"):
        assert json.loads(after[name]) == json.loads(before[name]), name
    assert result.summary["videos"] == {"link": 6}
    assert validate_dataset(tmp_path / "out") == []


def test_v21_to_v30_to_v21_changes_no_number_and_no_pixel(config, sim, tmp_path):
    assert merge(config, tmp_path / "v3", sim, format="v3.0").summary["videos"] == {"link": 6}
    assert merge(config, tmp_path / "v2", tmp_path / "v3").summary["videos"] == {"copy": 6}
    original = read_source(sim)
    same(original, read_source(tmp_path / "v3"))
    same(original, read_source(tmp_path / "v2"))
    assert validate_dataset(tmp_path / "v2") == []
    for name in ("stats.json", "relative_stats.json", "episodes_stats.jsonl", "modality.json", "info.json"):
        assert (tmp_path / "v2/meta" / name).read_bytes() == (sim / "meta" / name).read_bytes(), name


def test_episodes_of_all_sources_follow_one_another(both, sim, real):
    assert validate_dataset(both) == []
    merged = read_source(both)
    parts = [(read_source(sim), i) for i in range(3)] + [(read_source(real), i) for i in range(2)]
    assert [e.length for e in merged.episodes] == [24, 17, 31, 20, 28]
    for number, (source, index) in enumerate(parts):
        for key in KEYS:
            np.testing.assert_array_equal(merged.episodes[number].columns[key], source.episodes[index].columns[key])
        for key in VIDEOS:
            np.testing.assert_array_equal(frames(merged, number, key), frames(source, index, key))


def test_where_objects_were_goes_with_the_episodes_and_is_empty_for_others(both, sim):
    old, new = (pq.read_table(folder / "meta/so101_objects.parquet").to_pydict() for folder in (sim, both))
    assert new["episode_index"] == sum([[i] * n for i, n in enumerate((24, 17, 31, 20, 28))], [])
    assert new["frame_index"][:25] == [*range(24), 0]
    for name in set(old) - {"episode_index", "frame_index"}:
        assert new[name] == old[name] + [None] * 48


def test_sources_are_known_by_name_kind_weight_and_episodes(both, sim):
    assert read_sources(both) == [Source("sim", "sim", 3.0, (0, 1, 2)), Source("real", "real", 1.0, (3, 4))]
    assert read_sources(sim) == []
    half = read_sources(both, {"real": 3.0})
    assert [source.weight for source in half] == [3.0, 3.0]
    with pytest.raises(DataError, match=r"training\.mix\.weights names 'rael'; the sources are sim, real.*'real'\?"):
        read_sources(both, {"rael": 1.0})


def test_without_weights_a_source_weighs_its_frames(config, sim, real, tmp_path):
    merge(config, tmp_path / "out", sim, real, units={"real": "degrees"}, kinds={"real": "sim"})
    (first, second) = read_sources(tmp_path / "out")
    assert (first.weight, second.weight, second.kind) == (72.0, 48.0, "sim")


def test_damaged_sources_are_said(both, tmp_path):
    shutil.copytree(both, tmp_path / "x")
    (tmp_path / "x/meta/so101_sources.json").write_text('{"sources": [{"name": "sim"}]}')
    with pytest.raises(DataError, match=r"so101_sources\.json: does not say the sources .*merge it again"):
        read_sources(tmp_path / "x")


@pytest.mark.parametrize("format", ["v2.1", "v3.0"])
def test_a_merged_dataset_is_a_source_too(config, both, sim, tmp_path, format):
    merge(config, tmp_path / "again", both, format=format)
    same(read_source(both), read_source(tmp_path / "again"), pictures=False)
    assert read_sources(tmp_path / "again")[0].kind == "real"  # not all of it is simulated


def test_weights_can_be_made_real_by_repeating_episodes(config, sim, real, tmp_path):
    """sim has 72 frames, real 48; at 1 to 1 real comes one and a half times: both episodes, and the first again."""
    specs = SourceSpec(sim, 1, "sim"), SourceSpec(real, 1, "real")
    merge(config, tmp_path / "out", *specs, units={"real": "degrees"}, materialise=True)
    a, b = read_sources(tmp_path / "out")
    assert (a.episodes, b.episodes) == ((0, 1, 2), (3, 4, 5))
    assert (a.weight, b.weight) == (72.0, 68.0)  # drawn alike from now on
    merged = read_source(tmp_path / "out")
    np.testing.assert_array_equal(merged.episodes[5].columns["action"], merged.episodes[3].columns["action"])
    assert validate_dataset(tmp_path / "out") == []
    capped = small_config("training.mix.max_repeats=2")
    merge(capped, tmp_path / "cap", SourceSpec(sim, 1, "sim"), SourceSpec(real, 99, "real"),
          units={"real": "degrees"}, materialise=True)  # fmt: skip
    assert len(read_sources(tmp_path / "cap")[1].episodes) == 4


# making alike


def test_cameras_are_renamed_and_dropped_by_source(config, sim, real, tmp_path):
    other = shutil.copytree(real, tmp_path / "other")
    rewrite_info(other, lambda i: i["features"].update({"observation.images.side": i["features"].pop(VIDEOS[1])}))
    for chunk in other.glob("videos/*"):
        (chunk / VIDEOS[1]).rename(chunk / "observation.images.side")
    told = {"units": {"other": "degrees"}}
    merge(config, tmp_path / "renamed", sim, other, renames=(("other", "side", "front"),), **told)
    merged = read_source(tmp_path / "renamed")
    wanted = frames_of(next(other.glob("videos/*/observation.images.side/episode_000001.mp4")), 28)
    np.testing.assert_array_equal(frames(merged, 4, VIDEOS[1]), wanted)
    merge(config, tmp_path / "dropped", sim, other, drops=((None, "side"), (None, "front")), **told)
    assert [key for key in read_source(tmp_path / "dropped").features if "images" in key] == [VIDEOS[0]]
    assert validate_dataset(tmp_path / "dropped") == []


def test_joints_in_another_order_and_under_other_names_are_sorted(config, sim, real, tmp_path):
    other, order = shutil.copytree(real, tmp_path / "other"), [5, 3, 0, 1, 4, 2]
    names = [f"main_{config.robot.joint_names[i]}" for i in order]
    rewrite_info(other, lambda i: [i["features"][key].update({"names": names}) for key in KEYS])
    for index in range(2):
        for key in KEYS:
            rewrite_column(other, index, key, lambda values: values[:, order])
    merge(config, tmp_path / "out", sim, other, units={"other": "degrees"})
    merged, original = read_source(tmp_path / "out"), read_source(real)
    for index in range(2):
        for key in KEYS:
            np.testing.assert_array_equal(
                merged.episodes[3 + index].columns[key], original.episodes[index].columns[key]
            )
    assert merged.features["action"]["names"] == [f"{name}.pos" for name in config.robot.joint_names]


def test_videos_of_another_size_or_codec_are_encoded_and_the_others_left(config, sim, real, tmp_path):
    other = shutil.copytree(real, tmp_path / "other")
    for index, length in enumerate((20, 28)):
        (path,) = other.glob(f"videos/*/{VIDEOS[1]}/episode_{index:06d}.mp4")
        encode_video(path, make_frames(length, (96, 128), index), 30)
    told = {"units": {"other": "degrees"}}
    summary = merge(config, tmp_path / "out", sim, other, size=(64, 48), **told).summary
    assert summary["videos"] == {"link": 8, "encode": 2}
    assert validate_dataset(tmp_path / "out") == []
    (path,) = (tmp_path / "out").glob(f"videos/*/{VIDEOS[1]}/episode_000004.mp4")
    small = make_frames(28, (96, 128), 1)[:, ::2, ::2]
    assert np.abs(frames_of(path, 28).astype(int) - small).mean() < 8


def test_another_rate_is_resampled_in_time(config, sim, real, tmp_path):
    """20 frames at 15 Hz are 39 at 30: every second row is one of theirs, pictures are the nearest."""
    slow = shutil.copytree(real, tmp_path / "slow")
    rewrite_info(slow, lambda i: i.update(fps=15))
    for index, length in enumerate((20, 28)):
        rewrite_column(slow, index, "timestamp", lambda values: 2 * values)
        for key in VIDEOS:
            (path,) = slow.glob(f"videos/*/{key}/episode_{index:06d}.mp4")
            encode_video(path, make_frames(length, (48, 64), index), 15)
    merge(config, tmp_path / "out", sim, slow, fps=30.0, units={"slow": "degrees"})
    assert validate_dataset(tmp_path / "out") == []
    merged, original = read_source(tmp_path / "out"), read_source(slow)
    assert [e.length for e in merged.episodes] == [24, 17, 31, 39, 55]
    old, new = (source.episodes[i].columns["action"] for source, i in ((original, 0), (merged, 3)))
    np.testing.assert_array_equal(new[::2], old)
    np.testing.assert_allclose(new[1::2], (old[1:] + old[:-1]) / 2, atol=1e-4)
    shown = frames(merged, 3, VIDEOS[0]).astype(int)
    for t in (0, 2, 20, 38):
        assert np.abs(shown[t] - frames(original, 0, VIDEOS[0])[t // 2]).mean() < 6


def test_task_texts_are_kept_or_replaced(config, sim, real, tmp_path):
    other = shutil.copytree(real, tmp_path / "other")
    text = json.loads((other / "meta/tasks.jsonl").read_text())["task"]
    (other / "meta/tasks.jsonl").write_text('{"task_index": 0, "task": "Put it away"}\n')
    told = {"units": {"other": "degrees"}}
    merge(config, tmp_path / "a", sim, other, **told)
    assert [set(e.tasks) for e in read_source(tmp_path / "a").episodes] == [{text}] * 3 + [{"Put it away"}] * 2
    merge(config, tmp_path / "b", sim, other, tasks={"Put it away": text}, **told)
    assert (tmp_path / "b/meta/tasks.jsonl").read_text().count("\n") == 1


# its place


def test_the_same_again_is_kept_and_another_replaces_it(config, sim, real, tmp_path):
    out = tmp_path / "out"
    assert not merge(config, out, sim).summary["unchanged"]
    stamp = (out / "meta/info.json").stat().st_mtime_ns
    assert merge(config, out, sim).summary["unchanged"] and (out / "meta/info.json").stat().st_mtime_ns == stamp
    assert not merge(config, out, real).summary["unchanged"]
    assert len(read_source(out).episodes) == 2


def test_what_is_not_ours_and_sources_themselves_are_left_alone(config, sim, real, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/notes.txt").write_text("mine")
    with pytest.raises(DataError, match="was not merged by this program .*choose another --out"):
        merge(config, tmp_path / "out", sim)
    with pytest.raises(DataError, match="is, holds or lies in the source"):
        merge(config, sim / "merged", sim)
    assert (tmp_path / "out/notes.txt").read_text() == "mine" and not (sim / "merged").exists()


@pytest.mark.parametrize("step", ["write_v21", "carry_extras", "_place_clip"])
def test_a_merge_that_breaks_off_leaves_what_was_there(config, sim, real, tmp_path, monkeypatch, step):
    out = tmp_path / "out"
    merge(config, out, sim)
    before = tree(out)

    def broken(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(merging, step, broken)
    with pytest.raises(KeyboardInterrupt):
        merge(config, out, real)
    assert tree(out) == before and [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_a_kill_left_is_cleaned_up(config, sim, tmp_path):
    """Killed while building, and killed between the two renames."""
    merge(config, tmp_path / "out", sim)
    before = tree(tmp_path / "out")
    (tmp_path / ".out.new.tmp/meta").mkdir(parents=True)
    (tmp_path / "out").rename(tmp_path / ".out.old.tmp")
    assert merge(config, tmp_path / "out", sim).summary["unchanged"]
    assert tree(tmp_path / "out") == before and [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_full_disk_is_said(config, sim, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(merging, "write_v21", full)
    with pytest.raises(merging.RunFolderError, match="cannot be written .*No space left.*free space"):
        merge(config, tmp_path / "out", sim)
    assert not any(tmp_path.iterdir())


def test_videos_of_b_frames_survive_v30(config, sim, tmp_path):
    other = shutil.copytree(sim, tmp_path / "other")
    for path in other.glob("videos/*/*/*.mp4"):
        length = probe_video(path).num_frames
        encode_video(path, make_frames(length, (48, 64), length), 30, bf="2", g="12")
    merge(config, tmp_path / "v3", other, format="v3.0")
    assert merge(config, tmp_path / "v2", tmp_path / "v3").summary["videos"] == {"copy": 6}
    same(read_source(other), read_source(tmp_path / "v2"))


@pytest.mark.skipif("libsvtav1" not in av.codecs_available, reason="this FFmpeg has no AV1 encoder")
def test_av1_moves_without_loss_and_becomes_h264_beside_h264_or_when_told(config, sim, real, tmp_path):
    other = shutil.copytree(real, tmp_path / "real")
    for path in other.glob("videos/*/*/*.mp4"):
        length = probe_video(path).num_frames
        encode_av1(path, make_frames(length, (96, 128), length), g="2", crf="30")
    merge(config, tmp_path / "v3", other, format="v3.0")
    assert merge(config, tmp_path / "v2", tmp_path / "v3").summary["videos"] == {"copy": 4}
    same(read_source(other), read_source(tmp_path / "v2"))
    told = {"units": {"v3": "degrees"}, "size": (64, 48)}
    assert merge(config, tmp_path / "a", sim, tmp_path / "v3", **told).summary["videos"] == {"link": 6, "encode": 4}
    assert merge(config, tmp_path / "b", tmp_path / "v3", encode=True).summary["videos"] == {"encode": 4}
    for name in "ab":
        assert validate_dataset(tmp_path / name) == []
        assert read_source(tmp_path / name).features[VIDEOS[0]]["info"]["video.codec"] == "h264"
    merge(config, tmp_path / "c", sim, encode=True)  # already h264
    assert merge(config, tmp_path / "c", sim, encode=True).summary == {
        "episodes": 3, "frames": 72, "sources": {sim.parent.name: 3}, "videos": {"link": 6}, "unchanged": True
    }  # fmt: skip


def test_mix_weights_must_be_positive():
    with pytest.raises(ConfigError, match="a weight must be above 0"):
        load_config(overrides=["training.mix.weights={sim: 0}"])
