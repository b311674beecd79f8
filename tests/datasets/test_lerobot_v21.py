"""The dataset stage on a small synthetic run: layout, byte equality, resumption, refusals, and the checker."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import so101.datasets.lerobot_v21 as writer
from so101.config import load_config
from so101.datasets.demo import demo_file_name, list_demos, load_demo, save_demo
from so101.datasets.lerobot_v21 import dataset_units, write_dataset
from so101.datasets.units import lerobot_to_rad
from so101.datasets.validate import validate_dataset
from so101.errors import ConfigError, DataError, InsufficientDemosError, RunFolderError
from so101.pipeline.progress import SilentReporter
from so101.pipeline.run_folder import RunFolder

from .synthetic import encode_video, make_frames, make_run, video_seed

LENGTHS = (24, 17, 31)
CAMERAS = {"ego": "wrist", "side": "front"}
OVERRIDES = ["dataset.cameras={ego: wrist, side: front}", "skillgen.target_demos=5", "dataset.chunks_size=2"]


@pytest.fixture(scope="module")
def config():
    return load_config(overrides=OVERRIDES)


@pytest.fixture(scope="module")
def written(config, tmp_path_factory) -> RunFolder:
    run = make_run(tmp_path_factory.mktemp("run"), config, LENGTHS)
    write_dataset(config, run, SilentReporter(), 1)
    return run


@pytest.fixture
def run(written, tmp_path) -> RunFolder:
    """A private copy to spoil."""
    shutil.copytree(written.root, tmp_path / "run")
    return RunFolder(tmp_path / "run")


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def read_json(run: RunFolder, name: str):
    return json.loads((run.dataset / "meta" / name).read_text())


def parquet(run: RunFolder, index: int) -> Path:
    return run.dataset / f"data/chunk-{index // 2:03d}/episode_{index:06d}.parquet"


def video(run: RunFolder, index: int, name: str) -> Path:
    return run.dataset / f"videos/chunk-{index // 2:03d}/observation.images.{name}/episode_{index:06d}.mp4"


def rewrite_column(path: Path, key: str, change) -> None:
    table = pq.read_table(path, partitioning=None)
    column = table.column(key).to_pylist()
    change(column)
    field = table.schema.field(key)
    changed = table.set_column(table.column_names.index(key), field, pa.array(column, field.type))
    pq.write_table(changed, path)


# what is written


def test_the_checker_finds_nothing(written):
    assert validate_dataset(written.dataset) == []


def test_files_are_where_the_templates_say(written):
    files = set(tree(written.dataset))
    expected = {f"meta/{name}" for name in ("info.json", "episodes.jsonl", "tasks.jsonl", "episodes_stats.jsonl",
                "stats.json", "relative_stats.json", "modality.json", "so101.json",
                "so101_objects.parquet")}  # fmt: skip
    for i in range(3):
        expected.add(str(parquet(written, i).relative_to(written.dataset)))
        expected |= {str(video(written, i, name).relative_to(written.dataset)) for name in CAMERAS.values()}
    assert files == expected


def test_where_the_objects_were_is_written_beside_the_episodes(written, config):
    table = pq.read_table(written.dataset / "meta/so101_objects.parquet").to_pydict()
    demos = [load_demo(path) for path in list_demos(written.verified)]
    assert table["episode_index"] == [i for i, demo in enumerate(demos) for _ in range(demo.num_frames)]
    for name in demos[0].objects:
        expected = np.concatenate([demo.objects[name] for demo in demos])
        np.testing.assert_allclose(table[name], expected, atol=1e-6)


def test_an_object_that_an_episode_has_not_is_an_empty_cell_that_can_be_read(config, run):
    for path, names in zip(list_demos(run.verified), ({"vial"}, set(), {"cube", "vial"}), strict=True):
        demo = load_demo(path)
        poses = np.tile([0.1, 0.2, 0.3, 1, 0, 0, 0], (demo.num_frames, 1))
        save_demo(run.verified, demo.replace(objects=dict.fromkeys(names, poses)))
    write_dataset(config, run, SilentReporter(), 1)
    table = pq.read_table(run.dataset / "meta/so101_objects.parquet").to_pydict()
    known = {name: [cell is not None for cell in table[name]] for name in ("vial", "cube")}
    first, second, third = LENGTHS
    assert known == {
        "vial": [True] * first + [False] * second + [True] * third,
        "cube": [False] * (first + second) + [True] * third,
    }


def test_what_was_drawn_is_written_for_every_episode_and_only_then(config, run):
    """Physics from the demo, looks from beside the videos; a change of them alone makes the dataset anew."""
    drawn = {"placements": {"vial": {"x_m": 0.01}}, "physics": {"jaw_friction": 0.9}}
    path = list_demos(run.verified)[1]
    demo = load_demo(path)
    save_demo(run.verified, demo.replace(meta={**demo.meta, "randomisation": drawn}))
    run.looks(demo.index).write_text('{"exposure_ev": -0.5}')
    assert not write_dataset(config, run, SilentReporter(), 1).summary["unchanged"]
    lines = (run.dataset / "meta/so101_randomisation.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"episode_index": 0}, {"episode_index": 1, **drawn, "looks": {"exposure_ev": -0.5}}, {"episode_index": 2}
    ]  # fmt: skip
    assert validate_dataset(run.dataset) == []
    assert write_dataset(config, run, SilentReporter(), 1).summary["unchanged"]
    run.looks(demo.index).write_text("{")
    with pytest.raises(DataError, match=r"looks\.json: not JSON .*delete it and run `\./twin render` again"):
        write_dataset(config, run, SilentReporter(), 1)
    run.looks(demo.index).unlink()
    save_demo(run.verified, demo)
    write_dataset(config, run, SilentReporter(), 1)
    assert not (run.dataset / "meta/so101_randomisation.jsonl").exists()


def test_state_and_action_come_back_to_the_radians_of_the_demo(config, written):
    units = dataset_units(config)
    for i, path in enumerate(sorted(written.verified.iterdir())):
        demo, table = load_demo(path), pq.read_table(parquet(written, i), partitioning=None)
        for key, q in (("action", demo.q_target), ("observation.state", demo.q)):
            values = np.array(table.column(key).to_pylist())
            np.testing.assert_allclose(lerobot_to_rad(values, units), q, atol=1e-6)


def test_rows_count_on_over_episodes_and_time_restarts(written):
    tables = [pq.read_table(parquet(written, i), partitioning=None) for i in range(3)]
    np.testing.assert_array_equal(np.concatenate([t.column("index") for t in tables]), np.arange(sum(LENGTHS)))
    for i, table in enumerate(tables):
        assert set(table.column("episode_index").to_pylist()) == {i}
        expected = (np.arange(LENGTHS[i]) / 30).astype(np.float32)
        np.testing.assert_array_equal(table.column("timestamp").to_numpy(), expected)


def test_parquet_types_are_those_lerobot_records(written):
    schema = pq.read_schema(parquet(written, 0))
    assert schema.names == [
        "action", "observation.state", "timestamp", "frame_index", "episode_index", "index", "task_index",
    ]  # fmt: skip
    assert str(schema.field("action").type) == "fixed_size_list<element: float>[6]"
    assert [str(schema.field(name).type) for name in schema.names[2:]] == ["float"] + ["int64"] * 4
    features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
    assert features["action"] == {"feature": {"dtype": "float32", "_type": "Value"}, "length": 6, "_type": "Sequence"}


def test_info_modality_and_tasks(config, written):
    info = read_json(written, "info.json")
    assert (info["codebase_version"], info["robot_type"], info["fps"]) == ("v2.1", "so101_follower", 30)
    assert (info["total_episodes"], info["total_frames"], info["total_videos"], info["total_chunks"]) == (3, 72, 6, 2)
    assert info["splits"] == {"train": "0:3"}
    assert info["features"]["action"]["names"][::5] == ["shoulder_pan.pos", "gripper.pos"]
    front = info["features"]["observation.images.front"]
    assert front["shape"] == [48, 64, 3] and front["info"]["video.codec"] == "h264"
    modality = read_json(written, "modality.json")
    assert modality["state"] == {"single_arm": {"start": 0, "end": 5}, "gripper": {"start": 5, "end": 6}}
    assert modality["video"]["wrist"] == {"original_key": "observation.images.wrist"}
    assert modality["annotation"] == {"human.task_description": {"original_key": "task_index"}}
    tasks = (written.dataset / "meta/tasks.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in tasks] == [{"task_index": 0, "task": config.task.active.language}]


def test_each_camera_gets_its_own_video(written):
    for camera, name in CAMERAS.items():
        assert video(written, 1, name).read_bytes() == written.video(5, camera).read_bytes()


def test_relative_stats_have_the_horizon_of_the_training(config, written):
    stats = read_json(written, "relative_stats.json")
    assert list(stats) == ["single_arm"]
    assert np.shape(stats["single_arm"]["q99"]) == (config.training.action_horizon, 5)


def test_image_stats_describe_the_frames_that_went_in(written):
    """h264 is lossy, so only roughly: means within 2 of 255."""
    line = (written.dataset / "meta/episodes_stats.jsonl").read_text().splitlines()[0]
    stats = json.loads(line)["stats"]["observation.images.wrist"]
    frames = make_frames(LENGTHS[0], (48, 64), video_seed(2, "ego"))
    assert np.shape(stats["mean"]) == (3, 1, 1) and stats["count"] == [LENGTHS[0]]
    np.testing.assert_allclose(np.ravel(stats["mean"]), frames.mean((0, 1, 2)) / 255, atol=2 / 255)


def test_values_beyond_the_range_of_lerobot_are_clamped_and_counted(config, run):
    demo = load_demo(run.verified / demo_file_name(2))
    q = demo.q.copy()
    q[3:5, 5] = np.radians([-12.0, 101.0])
    save_demo(run.verified, demo.replace(q=q))
    result = write_dataset(config, run, SilentReporter(), 1)
    assert result.summary["clipped_values"] == 2
    state = np.array(pq.read_table(parquet(run, 0), partitioning=None).column("observation.state").to_pylist())
    np.testing.assert_array_equal(state[3:5, 5], [0, 100])


# equal bytes, resumption, replacement


def test_equal_inputs_give_equal_bytes_in_any_number_of_workers(config, written, run):
    shutil.rmtree(run.dataset)
    write_dataset(config, run, SilentReporter(), 2)
    assert tree(run.dataset) == tree(written.dataset)


def test_an_unchanged_dataset_is_kept(config, run):
    before = (run.dataset / "meta/info.json").stat().st_ino
    assert write_dataset(config, run, SilentReporter(), 1).summary["unchanged"]
    assert (run.dataset / "meta/info.json").stat().st_ino == before


@pytest.mark.parametrize("change", ["demo", "video", "settings", "damage"])
def test_a_stale_or_damaged_dataset_is_written_again(config, run, change):
    if change == "demo":
        (run.verified / demo_file_name(8)).unlink()
    elif change == "video":
        encode_video(run.video(2, "ego"), make_frames(LENGTHS[0], (48, 64), 99), 30)
    elif change == "settings":
        config = load_config(overrides=[*OVERRIDES, "dataset.units.body=normalized"])
    else:
        parquet(run, 1).unlink()
    result = write_dataset(config, run, SilentReporter(), 1)
    assert not result.summary["unchanged"]
    assert validate_dataset(run.dataset) == []
    assert read_json(run, "info.json")["total_episodes"] == (2 if change == "demo" else 3)
    assert {p.name for p in run.root.iterdir()} == {"verified", "videos", "dataset"}


def test_what_a_killed_process_left_is_cleaned_up(config, written, run):
    run.dataset.rename(run.root / ".dataset.old.tmp")  # killed between the two renames
    (run.root / ".dataset.new.tmp/meta").mkdir(parents=True)
    assert write_dataset(config, run, SilentReporter(), 1).summary["unchanged"]
    assert tree(run.dataset) == tree(written.dataset)
    assert {p.name for p in run.root.iterdir()} == {"verified", "videos", "dataset"}


def test_a_failure_while_building_keeps_the_old_dataset(config, written, run, monkeypatch):
    (run.verified / demo_file_name(8)).unlink()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer, "write_tables", full)
    with pytest.raises(RunFolderError, match="No space left on device.*run `./twin dataset` again"):
        write_dataset(config, run, SilentReporter(), 1)
    assert tree(run.dataset) == tree(written.dataset)
    assert {p.name for p in run.root.iterdir()} == {"verified", "videos", "dataset"}


def test_copies_where_hard_links_are_not_possible(config, written, run, monkeypatch):
    def refuse(*_):
        raise OSError(18, "Invalid cross-device link")

    shutil.rmtree(run.dataset)
    monkeypatch.setattr(writer.os, "link", refuse)
    write_dataset(config, run, SilentReporter(), 1)
    assert tree(run.dataset) == tree(written.dataset)


def test_files_of_others_in_the_dataset_outlive_a_new_one(config, run):
    (run.dataset / "README.md").write_text("my notes")
    (run.dataset / "notes/a").mkdir(parents=True)
    (run.dataset / "notes/a/b.txt").write_text("more")
    fewer = load_config(overrides=[*OVERRIDES, "skillgen.target_demos=2"])
    assert not write_dataset(fewer, run, SilentReporter(), 1).summary["unchanged"]
    assert (run.dataset / "README.md").read_text() == "my notes"
    assert (run.dataset / "notes/a/b.txt").read_text() == "more"
    assert not parquet(run, 2).exists()


def test_target_demos_are_taken_in_index_order(run):
    config = load_config(overrides=[*OVERRIDES, "skillgen.target_demos=2"])
    write_dataset(config, run, SilentReporter(), 1)
    assert read_json(run, "so101.json")["attempts"] == [2, 5]


# refusals


def test_a_foreign_folder_is_left_alone(config, run):
    (run.dataset / "meta/so101.json").unlink()
    before = tree(run.dataset)
    with pytest.raises(DataError, match="was not written by this program.*move it away"):
        write_dataset(config, run, SilentReporter(), 1)
    assert tree(run.dataset) == before


def test_an_unknown_camera(run):
    config = load_config(overrides=[*OVERRIDES, "dataset.cameras={webcam: front}"])
    with pytest.raises(ConfigError, match="cameras names webcam; cameras.yaml has ego, side, top"):
        write_dataset(config, run, SilentReporter(), 1)


def test_no_demos(config, tmp_path):
    with pytest.raises(InsufficientDemosError, match="no verified demo"):
        write_dataset(config, RunFolder(tmp_path), SilentReporter(), 1)


def test_missing_videos_are_counted(config, run):
    for camera in CAMERAS:
        run.video(5, camera).unlink()
    with pytest.raises(DataError, match="2 videos of 3 demos are missing, first .*demo_000005/ego.mp4.*twin render"):
        write_dataset(config, run, SilentReporter(), 1)


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda run: encode_video(run.video(5, "ego"), make_frames(16, (48, 64), 1), 30), "16 frames, its demo has 17"),
        (lambda run: run.video(5, "ego").write_bytes(b"no video"), "demo_000005/ego.mp4: not a readable video"),
        (lambda run: encode_video(run.video(5, "ego"), make_frames(17, (32, 64), 1), 30), r"shape is \[32, 64, 3\]"),
        (lambda run: encode_video(run.video(5, "ego"), make_frames(17, (48, 64), 1), 25), "frame times are not"),
    ],
)
def test_a_wrong_video_stops_the_dataset(config, run, spoil, text):
    before = tree(run.dataset)
    run.video(5, "ego").unlink()  # it shares its content with the dataset
    spoil(run)
    with pytest.raises(DataError, match=text):
        write_dataset(config, run, SilentReporter(), 1)
    assert tree(run.dataset) == before


def test_demos_that_cannot_be_episodes(config, run):
    demo = load_demo(run.verified / demo_file_name(2))
    q = demo.q.copy()
    q[7, 2] = np.nan
    save_demo(run.verified, demo.replace(q=q, fps=29.97, task="juggle"))
    with pytest.raises(DataError) as caught:
        write_dataset(config, run, SilentReporter(), 1)
    for text in ("demo_000002.npz: cannot become", "not all finite", "fps is 29.97", "'juggle' is not in task.yaml"):
        assert text in str(caught.value)


# the checker


def edit_json(name: str, change):
    def spoil(run: RunFolder) -> None:
        value = read_json(run, name)
        change(value)
        (run.dataset / "meta" / name).write_text(json.dumps(value))

    return spoil


def edit_lines(name: str, change):
    def spoil(run: RunFolder) -> None:
        path = run.dataset / "meta" / name
        path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")

    return spoil


def edit_rows(key: str, row: int, value):
    return lambda run: rewrite_column(parquet(run, 1), key, lambda column: column.__setitem__(row, value))


FAULTS = {
    "version": (edit_json("info.json", lambda v: v.update(codebase_version="v3.0")), "codebase_version is 'v3.0'"),
    "total": (edit_json("info.json", lambda v: v.update(total_frames=71)), "total_frames is 71, the files say 72"),
    "key": (edit_json("info.json", lambda v: v.pop("data_path")), "missing or of the wrong type: data_path"),
    "feature": (edit_json("info.json", lambda v: v["features"].pop("index")), "features missing or of another dtype"),
    "blank": (edit_lines("episodes.jsonl", lambda v: [v[0], "", *v[1:]]), "episodes.jsonl line 2: blank"),
    "gap": (edit_lines("episodes.jsonl", lambda v: [v[0], v[2]]), "line 2: episode_index is 2, must be 1"),
    "task": (edit_lines("tasks.jsonl", lambda v: ['{"task_index": 0, "task": "x"}']), "each must be in tasks.jsonl"),
    "nan": (edit_rows("action", 4, [np.nan] * 6), "column action has values that are not finite, first in row 4"),
    "index": (edit_rows("index", 0, 0), "index is 0 in row 0, must be 24"),
    "time": (edit_rows("timestamp", 3, 0.2), "timestamp is 0.2"),
    "task_index": (edit_rows("task_index", 3, 1), "task_index [1] not in tasks.jsonl"),
    "state": (edit_rows("observation.state", 0, [500.0] * 6), "meta/stats.json: observation.state.max: differs"),
    "stray": (lambda run: shutil.copy(parquet(run, 0), run.dataset / "data/x.parquet"), "x.parquet: belongs to no"),
    "parquet": (lambda run: parquet(run, 2).write_bytes(b"PAR1"), "episode_000002.parquet: cannot be read"),
    "video": (lambda run: shutil.copy(video(run, 0, "front"), video(run, 1, "front")), "24 frames, the episode has 17"),
    "no video": (lambda run: video(run, 1, "wrist").unlink(), "wrist/episode_000001.mp4: not a readable video"),
    "stats": (edit_json("stats.json", lambda v: v["action"].pop("q01")), "meta/stats.json: action: statistics are"),
    "relative": (edit_json("relative_stats.json", lambda v: v["single_arm"].update(min=[0])), "single_arm.min: shape"),
    "slice": (edit_json("modality.json", lambda v: v["state"]["gripper"].update(end=7)), "state.gripper is [5, 7]"),
    "camera": (
        edit_json("modality.json", lambda v: v["video"].update(webcam={"original_key": "webcam"})),
        "video.webcam refers to 'webcam', no feature",
    ),
    "episode stats": (edit_lines("episodes_stats.jsonl", lambda v: v[:-1]), "2 usable lines for 3 episodes"),
    "no modality": (lambda run: (run.dataset / "meta/modality.json").unlink(), "meta/modality.json: cannot be read"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_checker_finds(run, name):
    spoil, text = FAULTS[name]
    spoil(run)
    faults = validate_dataset(run.dataset, images=False)
    assert any(text in fault for fault in faults), faults


def test_the_checker_recomputes_image_statistics(run):
    shutil.copy(video(run, 1, "wrist"), video(run, 1, "front"))  # as many frames, but other ones
    assert validate_dataset(run.dataset, images=False) == []
    assert any("observation.images.front.mean: differs" in fault for fault in validate_dataset(run.dataset))


def test_the_checker_needs_no_dataset(tmp_path):
    assert validate_dataset(tmp_path) == [f"meta/info.json: cannot be read ([Errno 2] No such file or directory: "
                                          f"'{tmp_path}/meta/info.json')"]  # fmt: skip
