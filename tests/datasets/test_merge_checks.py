"""Every fault of sources that cannot be merged has its name and the option that helps, and all are told at once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from so101.datasets.lerobot_source import read_source
from so101.datasets.merge_checks import CHECKS, MergeError
from so101.datasets.merge_options import MergeOptions, SourceSpec, parse_options, parse_source
from so101.errors import ConfigError, DataError

from .merging import copy_of, make_source, merge, rewrite_column, rewrite_info, small_config
from .synthetic import encode_video, make_frames

REAL = Path(__file__).resolve().parents[2].parent / "shared" / "data"
FRONT = "observation.images.front"


@pytest.fixture(scope="module")
def config():
    return small_config()


@pytest.fixture(scope="module")
def sim(config, tmp_path_factory):
    return make_source(tmp_path_factory.mktemp("sim"), config, (24, 17))


@pytest.fixture(scope="module")
def other(config, tmp_path_factory):
    return make_source(tmp_path_factory.mktemp("other"), config, (20, 28), first=50)


@pytest.fixture
def spoiled(other, tmp_path):
    return copy_of(other, tmp_path / "real")


def faults(config, out, *sources, **options) -> list[str]:
    with pytest.raises(MergeError) as error:
        merge(config, out, *sources, **{"units": {"real": "degrees"}, **options})
    assert not out.exists() and str(error.value).startswith(f"cannot merge, {len(error.value.faults)} faults")
    assert all(fault.partition(":")[0] in CHECKS for fault in error.value.faults)
    return error.value.faults


def set_value(row, column, value):
    def change(values):
        values[row, column] = value
        return values

    return change


def other_rate(folder):
    rewrite_info(folder, lambda info: info.update(fps=25))
    for index in range(2):
        rewrite_column(folder, index, "timestamp", lambda values: values * 30 / 25)
        for path in folder.glob(f"videos/*/*/episode_{index:06d}.mp4"):
            encode_video(path, make_frames((20, 28)[index], (48, 64), 1), 25)


def rename_feature(old, new):
    return lambda folder: rewrite_info(folder, lambda info: info["features"].update({new: info["features"].pop(old)}))


def joint_names(names):
    return lambda folder: rewrite_info(folder, lambda info: info["features"]["action"].update(names=names))


def video_of(folder, index=1):
    (path,) = folder.glob(f"videos/*/{FRONT}/episode_{index:06d}.mp4")
    return path


def in_radians(folder):
    for index in range(2):
        for key in ("action", "observation.state"):
            rewrite_column(folder, index, key, np.radians)


DEFECTS = {
    "fps": (other_rate, "fps: sim has 30, real has 25; record or render at one rate, or --resample 30"),
    "robot type": (
        lambda folder: rewrite_info(folder, lambda info: info.update(robot_type="so100")),
        "robot_type: sim says so101_follower, real says so100; when it is one kind of arm, say which with --robot-type",
    ),
    "camera": (
        lambda folder: (
            rename_feature(FRONT, "observation.images.side")(folder),
            [(c / FRONT).rename(c / "observation.images.side") for c in folder.glob("videos/*")],
        ),
        "cameras: side of real is not in sim (front, wrist); --rename real:side=front when they are one, "
        "or --drop side",
    ),
    "joint twice": (
        joint_names(["shoulder_pan", "shoulder_pan", "elbow_flex", "wrist_flex", "wrist_roll", "gripper"]),
        "joints: real: action: no column for shoulder_lift and more than one column for shoulder_pan",
    ),
    "unknown joint": (
        joint_names(["shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "claw"]),
        "joints: real: action: no column for gripper",
    ),
    "nan": (
        lambda folder: rewrite_column(folder, 1, "action", set_value(3, 2, np.nan)),
        "nan: real: not finite are action of episode 1; take those episodes out",
    ),
    "timestamps": (
        lambda folder: rewrite_column(folder, 0, "timestamp", lambda values: values + 0.01),
        "timestamps: real: not at frame / fps are the rows of episode 0; repair them",
    ),
    "no task text": (
        lambda folder: (folder / "meta/tasks.jsonl").write_text('{"task_index": 0, "task": " "}\n'),
        "tasks: real: no task text in episode 0, episode 1",
    ),
    "unknown task": (
        lambda folder: rewrite_column(folder, 0, "task_index", lambda values: values + 4),
        "episode 0: task_index [4] is not in the dataset's table of tasks",
    ),
    "size": (
        lambda folder: encode_video(video_of(folder), make_frames(28, (96, 128), 1), 30),
        "sizes: front is 64x48 in sim, 128x96 in real; bring all to one with --size WIDTHxHEIGHT",
    ),
    "video missing": (lambda folder: video_of(folder).unlink(), "videos: real: 1 files of front are missing, first"),
    "video short": (
        lambda folder: encode_video(video_of(folder), make_frames(27, (48, 64), 1), 30),
        "videos: real: front: episode_000001.mp4: 27 frames, the episode is frames 0 to 27; take the episodes out",
    ),
    "video of another rate": (
        lambda folder: encode_video(video_of(folder), make_frames(28, (48, 64), 1), 25),
        "frame 27 is not at frame / fps with 30 fps",
    ),
    "no video": (lambda folder: video_of(folder).write_bytes(b"x" * 99), "not a readable video"),
    "feature missing": (
        rename_feature("observation.state", "observation.q"),
        "files: {real}/meta/info.json: needed are",
    ),
    "images in parquet": (
        lambda folder: rewrite_info(folder, lambda info: info["features"][FRONT].update(dtype="image")),
        "only numbers and videos can be merged: take the feature out, or make videos of images with lerobot's tools",
    ),
    "depth": (
        lambda folder: rewrite_info(
            folder, lambda info: info["features"][FRONT]["info"].update({"video.is_depth_map": True})
        ),
        f"{FRONT} is a depth video, which would not survive our codec; take the feature out",
    ),
    "length": (
        lambda folder: (folder / "meta/episodes.jsonl").write_text('{"episode_index": 0, "length": 19, "tasks": []}\n'),
        "files: {real}/data/chunk-000/episode_000000.parquet: episode 0 has 20 frames, the episode list says 19",
    ),
    "version": (
        lambda folder: rewrite_info(folder, lambda info: info.update(codebase_version="v1.6")),
        "codebase_version is 'v1.6'; v2.x and v3.x can be read",
    ),
    "no dataset": (shutil.rmtree, "files: {real}: no meta/info.json in it"),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_named_with_what_helps(config, sim, spoiled, tmp_path, defect):
    spoil, text = DEFECTS[defect]
    spoil(spoiled)
    found = faults(config, tmp_path / "out", SourceSpec(sim, name="sim"), spoiled)
    assert any(text.replace("{real}", str(spoiled)) in fault for fault in found), found


def test_a_good_pair_has_no_fault(config, sim, spoiled, tmp_path):
    merge(config, tmp_path / "out", sim, spoiled, units={"real": "degrees"})


def test_all_faults_are_told_at_once_in_the_order_of_the_checks(config, sim, spoiled, tmp_path):
    for defect in ("robot type", "timestamps", "size", "nan"):
        DEFECTS[defect][0](spoiled)
    specs = SourceSpec(sim, 1.0), SourceSpec(spoiled), SourceSpec(tmp_path / "absent")
    found = faults(config, tmp_path / "out", *specs)
    names = [fault.partition(":")[0] for fault in found]
    assert names == ["files", "weights", "robot_type", "sizes", "nan", "timestamps"]
    assert sorted(names, key=list(CHECKS).index) == names


def test_the_same_episode_in_two_sources_is_found_in_either_format(config, sim, tmp_path):
    merge(config, tmp_path / "v3", sim, format="v3.0")
    (text,) = faults(config, tmp_path / "out", SourceSpec(sim, name="sim"), tmp_path / "v3", units={})
    assert text == "duplicates: v3: episode 0 is episode 0 of sim, episode 1 is episode 1 of sim; " \
        "take one out, or --allow-duplicates"  # fmt: skip
    merge(config, tmp_path / "out", sim, tmp_path / "v3", allow_duplicates=True)
    assert len(read_source(tmp_path / "out").episodes) == 4


def test_a_feature_that_only_one_has_is_dropped_or_refused(config, sim, spoiled, tmp_path):
    rewrite_info(spoiled, lambda info: info["features"].update(
        {"observation.effort": {"dtype": "int64", "shape": [1], "names": None}}))  # fmt: skip
    import pyarrow.parquet as pq

    for path in spoiled.glob("data/*/*.parquet"):
        table = pq.read_table(path, partitioning=None)
        pq.write_table(table.append_column("observation.effort", table["frame_index"]), path)
    (text,) = faults(config, tmp_path / "out", sim, spoiled)
    assert text == "features: observation.effort of real is not in run; --drop observation.effort".replace(
        "run", sim.parent.name)  # fmt: skip
    merge(config, tmp_path / "out", sim, spoiled, units={"real": "degrees"}, drops=((None, "observation.effort"),))
    merge(config, tmp_path / "alone", spoiled)
    effort = read_source(tmp_path / "alone").episodes[0].columns["observation.effort"]
    np.testing.assert_array_equal(effort, np.arange(20))


def test_options_that_fit_nothing_are_faults(config, sim, spoiled, tmp_path):
    found = faults(
        config, tmp_path / "out", SourceSpec(sim, name="sim"), spoiled,
        renames=((None, "fornt", "side"), ("reel", "front", "side")), drops=((None, "action"), ("sim", "tip")),
        tasks={"Dance": "Sit"}, units={"real": "degrees", "rela": "degrees"},
    )  # fmt: skip
    assert "names: an option names source 'rela'; there are sim, real; did you mean 'real'?" in found
    assert "names: an option names source 'reel'; there are sim, real; did you mean 'real'?" in found
    assert any(text.startswith("cameras: --rename of 'fornt': no such camera in any source (") for text in found)
    assert any(text.startswith("features: --drop action: no such feature to drop in any source") for text in found)
    assert any(text.startswith("features: --drop tip: no such feature to drop in sim") for text in found)
    assert any(text.startswith("tasks: --task-text of 'Dance': no such text; there are ") for text in found)


def test_weights_to_materialise_and_rates_must_be_numbers_that_mean_something(config, sim, spoiled, tmp_path):
    found = faults(config, tmp_path / "out", sim, spoiled, materialise=True, fps=29.97)
    assert "weights: --materialise-weights without any; give each source one, FOLDER:WEIGHT" in found
    assert "fps: --resample 29.97: LeRobot needs a whole number" in found


def test_a_rename_onto_another_camera(config, sim, spoiled, tmp_path):
    found = faults(config, tmp_path / "out", sim, spoiled, renames=(("real", "wrist", "front"),))
    assert f"cameras: --rename makes two cameras of real {FRONT}; --drop one of them" in found


def test_two_sources_of_one_name(config, sim, other, tmp_path):
    (text,) = faults(config, tmp_path / "out", SourceSpec(sim, name="a"), SourceSpec(other, name="a"), units={})
    assert text == "names: two sources are called 'a'; give them names of their own, FOLDER::NAME"


@pytest.mark.skipif(not (REAL / "so101_record_test_4ep").is_dir(), reason="shared data are not there")
def test_real_v30_without_its_videos_says_so_and_goes_without_cameras(config, sim, tmp_path):
    real = REAL / "so101_record_test_4ep"
    sources = SourceSpec(sim, name="sim"), SourceSpec(real, name="real")
    found = faults(config, tmp_path / "out", *sources, units={})
    assert "units: sim is in degrees, real is in normalised; bring them to one unit with --to-units degrees" in found
    assert any(f"videos: real: 1 files of front are missing, first {real}/videos" in text for text in found)
    assert any(text.endswith("copy the whole dataset, or --drop top") for text in found)
    drops = tuple((None, camera) for camera in ("front", "top", "wrist"))
    merge(config, tmp_path / "out", *sources, drops=drops, to_units="degrees", format="v3.0")
    merged, original = read_source(tmp_path / "out"), read_source(real)
    assert [e.length for e in merged.episodes[2:]] == [e.length for e in original.episodes]
    for new, old in zip(merged.episodes[2:], original.episodes, strict=True):
        np.testing.assert_array_equal(new.columns["action"][:, 5], old.columns["action"][:, 5])  # the jaw stays a share
        ratio = new.columns["action"][:, 2] / old.columns["action"][:, 2]
        np.testing.assert_allclose(ratio, ratio[0], rtol=1e-5)  # a joint scales alike
        assert ratio[0] == pytest.approx(2205 / 2 * 360 / 4095 / 100, abs=2e-3)  # half the range seen in the numbers


# options as text


@pytest.mark.parametrize(
    ("text", "path", "weight", "name"),
    [
        ("a/b", "a/b", None, None),
        ("a/b:2", "a/b", 2.0, None),
        ("a/b:0.5:sim", "a/b", 0.5, "sim"),
        ("a/b::sim", "a/b", None, "sim"),
        ("a:b:2", "a:b", 2.0, None),
    ],
)
def test_sources_as_text(text, path, weight, name):
    assert parse_source(text) == SourceSpec(Path(path), weight, name)


@pytest.mark.parametrize("text", ["a:0", "a:-1:x", "a:nan", "a:heavy:x", "a:inf"])
def test_bad_weights_as_text(text):
    with pytest.raises(ConfigError, match="the weight is .*FOLDER:WEIGHT:NAME with a weight above 0"):
        parse_source(text)


def test_a_folder_with_colons_is_taken_as_it_stands(tmp_path):
    (tmp_path / "a:1:b").mkdir()
    assert parse_source(str(tmp_path / "a:1:b")) == SourceSpec(tmp_path / "a:1:b")


def test_options_as_text():
    options = parse_options(
        rename=["real:side=front", "up=top"], drop=["wrist", "sim:top"], units=["real=degrees"], kind=["real=sim"],
        calibration=["real=a.json"], task=["a=b=c"], size="320x240", to_units="degrees", format="v3.0",
    )  # fmt: skip
    assert options == MergeOptions(
        format="v3.0",
        renames=(("real", "side", "front"), (None, "up", "top")),
        drops=((None, "wrist"), ("sim", "top")),
        to_units="degrees",
        units={"real": "degrees"},
        calibrations={"real": Path("a.json")},
        size=(320, 240),
        tasks={"a": "b=c"},
        kinds={"real": "sim"},
    )


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ({"size": "320"}, "--size is '320'; needed is WIDTHxHEIGHT in px, even numbers from 16 on"),
        ({"size": "321x240"}, "--size is '321x240'"),
        ({"rename": ["front"]}, r"--rename is 'front'; needed is \[SOURCE:\]OLD=NEW"),
        ({"units": ["real"]}, "--units is 'real'; needed is SOURCE=VALUE"),
        ({"units": ["real=furlongs"]}, "--units is 'furlongs'; allowed are degrees, normalised"),
        ({"kind": ["real=fake"]}, "--kind is 'fake'; allowed are sim, real"),
        ({"format": "v2.0"}, "--format is 'v2.0'; allowed are v2.1, v3.0"),
        ({"to_units": "radians"}, "--to-units is 'radians'; allowed are degrees, normalized"),
    ],
)
def test_bad_options_as_text(option, text):
    with pytest.raises(ConfigError, match=text):
        parse_options(**option)


def test_what_cannot_be_read_is_said(config, sim, tmp_path):
    other = copy_of(sim, tmp_path / "x")
    (other / "meta/tasks.jsonl").write_text("[]\n")
    with pytest.raises(DataError, match="not one JSON object a line"):
        read_source(other)
    rewrite_info(other, lambda info: info.update(fps="fast"))
    with pytest.raises(DataError, match="fps is 'fast'; it must be the frame rate in Hz"):
        read_source(other)
    (other / "meta/info.json").write_text(json.dumps([]))
    with pytest.raises(DataError, match="must hold a JSON object"):
        read_source(other)
