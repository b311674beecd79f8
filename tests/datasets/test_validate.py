"""The check of a dataset: each seeded defect is found under its name with a fix, and a good dataset has no fault."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from so101.cli.app import main
from so101.config import load_config
from so101.datasets.checks.catalogue import CHECKS
from so101.datasets.checks.table import report_lines
from so101.datasets.lerobot_v21 import write_dataset
from so101.datasets.stats import column_stats, groot_stats, relative_stats
from so101.datasets.validate import SCALAR_DTYPES, check_dataset, validate_dataset
from so101.errors import DataError
from so101.pipeline.progress import SilentReporter

from .synthetic import encode_av1, encode_video, make_frames, make_run

LENGTHS = (44, 27, 51)
OVERRIDES = ["dataset.cameras={ego: wrist, side: front}", "skillgen.target_demos=5"]
SIZE = (48, 64)


@pytest.fixture(scope="module")
def config():
    return load_config(overrides=OVERRIDES)


@pytest.fixture(scope="module")
def good(config, tmp_path_factory) -> Path:
    run = make_run(tmp_path_factory.mktemp("run"), config, LENGTHS, SIZE)
    write_dataset(config, run, SilentReporter(), 1)
    return run.dataset


@pytest.fixture
def dataset(good, tmp_path) -> Path:
    """A private copy to spoil."""
    return Path(shutil.copytree(good, tmp_path / "dataset"))


def parquet(root: Path, index: int) -> Path:
    return root / f"data/chunk-000/episode_{index:06d}.parquet"


def video(root: Path, index: int, name: str = "front") -> Path:
    return root / f"videos/chunk-000/observation.images.{name}/episode_{index:06d}.mp4"


def meta(root: Path, name: str, change) -> None:
    path = root / "meta" / name
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def lines(root: Path, name: str, change) -> None:
    path = root / "meta" / name
    path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")


def rows(root: Path, index: int, key: str, change) -> None:
    """Replace a column by ``change(column as an array)``."""
    path = parquet(root, index)
    table = pq.read_table(path, partitioning=None)
    values = np.array(table.column(key).to_pylist())
    field = table.schema.field(key)
    column = pa.array(np.asarray(change(values)).tolist(), field.type)
    pq.write_table(table.set_column(table.column_names.index(key), field, column), path)


def edit_each(root: Path, name: str, change) -> None:
    """``change(row, its number)`` in place on every row of a jsonl file."""

    def anew(texts):
        found = [json.loads(text) for text in texts]
        for number, row in enumerate(found):
            change(row, number)
        return [json.dumps(row) for row in found]

    lines(root, name, anew)


def recompute(root: Path, horizon: int = 16) -> None:
    """All statistics anew, so that the values alone are wrong."""
    tables = [pq.read_table(path, partitioning=None) for path in sorted((root / "data").rglob("*.parquet"))]
    columns = [
        {key: np.array(table.column(key).to_pylist(), SCALAR_DTYPES.get(key, "float32")) for key in table.column_names}
        for table in tables
    ]
    edit_each(
        root,
        "episodes_stats.jsonl",
        lambda row, i: row["stats"].update({key: column_stats(column) for key, column in columns[i].items()}),
    )
    floats = ("action", "observation.state", "timestamp")
    stats = {key: groot_stats([episode[key] for episode in columns]) for key in floats}
    (root / "meta/stats.json").write_text(json.dumps(stats))
    states, actions = ([episode[key][:, :5] for episode in columns] for key in ("observation.state", "action"))
    (root / "meta/relative_stats.json").write_text(json.dumps({"single_arm": relative_stats(states, actions, horizon)}))


def everywhere(key: str | None, change):
    """The same change of state and action (or of `key`) in all episodes, with statistics to match."""

    def spoil(root: Path) -> None:
        for index in range(len(LENGTHS)):
            for name in (key,) if key else ("action", "observation.state"):
                rows(root, index, name, change)
        recompute(root)

    return spoil


def copy_episode(root: Path, source: int, target: int, change=lambda values: values) -> None:
    """`target` becomes a copy of `source`, videos and counters in order."""
    for name in ("front", "wrist"):
        shutil.copy(video(root, source, name), video(root, target, name))
    shutil.copy(parquet(root, source), parquet(root, target))
    rows(root, target, "action", change)
    rows(root, target, "episode_index", lambda values: 0 * values + target)
    lengths = [LENGTHS[source] if index == target else length for index, length in enumerate(LENGTHS)]
    starts = np.cumsum([0, *lengths])
    for index, length in enumerate(lengths):
        rows(root, index, "index", lambda _, index=index, length=length: np.arange(length) + starts[index])
    edit_each(root, "episodes.jsonl", lambda row, i: row.update(length=lengths[i]))
    meta(root, "info.json", lambda info: info.update(total_frames=sum(lengths)))
    recompute(root)


def encode_as(codec: str, pix_fmt: str = "yuv420p"):
    def spoil(root: Path) -> None:
        for index, length in enumerate(LENGTHS):
            with av.open(str(video(root, index)), "w") as container:
                stream = container.add_stream(codec, rate=30)
                stream.height, stream.width, stream.pix_fmt = *SIZE, pix_fmt
                for image in make_frames(length, SIZE, index):
                    container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
                container.mux(stream.encode(None))

    return spoil


def in_av1(root: Path) -> None:
    for index, length in enumerate(LENGTHS):
        encode_av1(video(root, index), make_frames(length, SIZE, index))


def re_encode(index: int, frames: np.ndarray, fps: int = 30, **options: str):
    def spoil(root: Path) -> None:
        video(root, index).unlink()
        encode_video(video(root, index), frames, fps, **options)

    return spoil


def truncate(root: Path) -> None:
    path = video(root, 1)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def swap(values: np.ndarray) -> np.ndarray:
    return values[:, [0, 5, 2, 3, 4, 1]]


def shift(values: np.ndarray) -> np.ndarray:
    return (values + 0.5).astype(np.float32)


def drop_camera(root: Path) -> None:
    """As if it had never been recorded."""
    key = "observation.images.wrist"
    meta(root, "info.json", lambda info: (info["features"].pop(key), info.update(total_videos=len(LENGTHS))))
    meta(root, "modality.json", lambda value: value["video"].pop("wrist"))
    shutil.rmtree(root / "videos/chunk-000" / key)
    edit_each(root, "episodes_stats.jsonl", lambda row, _: row["stats"].pop(key))


def copy_state(root: Path) -> None:
    state = pq.read_table(parquet(root, 0), partitioning=None).column("observation.state").to_pylist()
    rows(root, 0, "action", lambda _: state)
    recompute(root)


def normalised(values: np.ndarray) -> np.ndarray:
    """Clamped where LeRobot clamps what is in percent."""
    return np.clip(values * 1.5, [-100] * 5 + [0], 100).astype(np.float32)


def foreign_percent(root: Path) -> None:
    """Of another recorder: no word on units."""
    everywhere(None, normalised)(root)
    (root / "meta/so101.json").unlink()


def beyond_the_arm(values: np.ndarray) -> np.ndarray:
    return values * np.array([1, 1, 1.6, 1, 1, 1])


def task_text(root: Path, text: str) -> None:
    lines(root, "tasks.jsonl", lambda v: [json.dumps({"task_index": 0, "task": text})])


def empty_task(root: Path) -> None:
    task_text(root, " ")
    lines(root, "episodes.jsonl", lambda v: [json.dumps({**json.loads(row), "tasks": [" "]}) for row in v])


def v30(root: Path) -> None:
    """The layout of v3.0 in short: another version, and no episodes.jsonl."""
    meta(root, "info.json", lambda info: info.update(codebase_version="v3.0"))
    (root / "meta/episodes.jsonl").unlink()
    (root / "meta/episodes/chunk-000").mkdir(parents=True)


def at_25_fps(root: Path) -> None:
    """All in itself as it should be, at another rate than the control loop's."""
    meta(root, "info.json", lambda info: info.update(fps=25))
    for index in range(len(LENGTHS)):
        rows(root, index, "timestamp", lambda values: values * 30 / 25)


def on_info(change):
    return lambda root: meta(root, "info.json", change)


def on_modality(change):
    return lambda root: meta(root, "modality.json", change)


def on_rows(index: int, key: str, change):
    return lambda root: rows(root, index, key, change)


def on_lines(name: str, change):
    return lambda root: lines(root, name, change)


def zero_relative(root: Path) -> None:
    meta(root, "relative_stats.json", lambda value: value["single_arm"].update(mean=np.zeros((16, 5)).tolist()))


STILL = np.broadcast_to(make_frames(1, SIZE, 3), (LENGTHS[1], *SIZE, 3))
BACKWARDS = [0, 1, 2, 4, 3, *range(5, LENGTHS[1])]
WRIST = "videos/chunk-000/observation.images.wrist"

# name -> (what is done to the dataset, the check that must find it, text)
DEFECTS = {
    "wrong fps in info.json": (on_info(lambda v: v.update(fps=25)), "fps", "rows come at 30 fps, info.json says 25"),
    "fps of no control loop": (at_25_fps, "fps", "fps is 25, the control loop runs at 30"),
    "video of another rate": (re_encode(1, make_frames(LENGTHS[1], SIZE, 5), 25), "fps", "the video runs at 25"),
    "NaN": (on_rows(1, "action", lambda v: np.where(v == v[4], np.nan, v)), "finite", "action has values that are not"),
    "infinity": (on_rows(0, "observation.state", lambda v: np.where(v == v[2], np.inf, v)), "finite", "first in row 2"),
    "camera not in modality.json": (
        on_modality(lambda v: v["video"].pop("wrist")),
        "cameras",
        "wrist (dataset.cameras)",
    ),
    "camera never recorded": (drop_camera, "cameras", "has no feature observation.images.wrist"),
    "camera without videos": (lambda root: shutil.rmtree(root / WRIST), "cameras", "no readable video at all"),
    "shifted timestamps": (on_rows(1, "timestamp", shift), "timestamps", "all are shifted by 0.5 s"),
    "time running backwards": (on_rows(1, "timestamp", lambda v: v[BACKWARDS]), "timestamps", "do not rise"),
    "truncated video": (truncate, "videos", "not a readable video"),
    "frames lost from a video": (
        re_encode(2, make_frames(49, SIZE, 5)),
        "video_frames",
        "49 frames, the episode has 51",
    ),
    "frozen camera": (re_encode(1, STILL), "frozen_camera", "look the same in episode 1"),
    "codec that is misread": (encode_as("mpeg4"), "codec", "are mpeg4 yuv420p"),
    "stale stats": (on_rows(2, "observation.state", lambda v: v * 0.9), "stats", "meta/stats.json: observation.state"),
    "stale relative stats": (zero_relative, "relative_stats", "single_arm.mean: differs"),
    "relative stats of another horizon": (lambda root: recompute(root, 8), "relative_stats", "has 8 steps"),
    "radians": (everywhere(None, np.radians), "units", "looks like radians"),
    "percent declared as degrees": (foreign_percent, "units", "the joints look like normalised"),
    "angles beyond the arm": (everywhere("action", beyond_the_arm), "units", "elbow_flex reaches"),
    "jaw beyond its range": (everywhere("action", lambda v: v + [0, 0, 0, 0, 0, 60]), "units", "the jaw reaches"),
    "columns swapped": (everywhere(None, swap), "units", "the jaw reaches"),
    "names in another order": (on_info(lambda v: v["features"]["action"]["names"].reverse()), "joints", "the order is"),
    "duplicate episode": (lambda root: copy_episode(root, 0, 1), "duplicates", "of episode 0"),
    "action copies the state": (copy_state, "action_copies_state", "in every row of episode 0"),
    "state stands still": (everywhere("observation.state", lambda v: 0 * v + v[:1]), "motion", "in episodes 0, 1, 2"),
    "blank line": (on_lines("episodes.jsonl", lambda v: [v[0], "", *v[1:]]), "jsonl", "line 2: blank"),
    "gap in the episodes": (on_lines("episodes.jsonl", lambda v: [v[0], v[2]]), "episode_index", "is 2, must be 1"),
    "empty task text": (empty_task, "tasks", "has no text"),
    "task of another episode": (lambda root: task_text(root, "juggle"), "tasks", "each must be in tasks.jsonl"),
    "LeRobot v3.0": (v30, "version", "codebase_version is 'v3.0', must be 'v2.1'"),
    "no slice for the jaw": (on_modality(lambda v: v["state"].pop("gripper")), "modality", "state.gripper is None"),
    "task text unreachable": (on_modality(lambda v: v["annotation"].clear()), "language", "annotation has no"),
}

SUSPICIONS = {
    "gripper never commanded": (
        everywhere("action", lambda v: v * [1, 1, 1, 1, 1, 0] + [0, 0, 0, 0, 0, 30]), "gripper", "in episodes 0, 1, 2"
    ),
    "near duplicate": (lambda root: copy_episode(root, 0, 1, lambda v: v + 0.1), "duplicates", "1 and 0 (0.1)"),
    "codec that some decoders misread": (in_av1, "codec", "torchcodec reads it"),
}  # fmt: skip


def test_a_good_dataset_has_no_fault_and_every_check_looked(config, good):
    report = check_dataset(good, config)
    assert [str(fault) for fault in report.faults] == []
    assert {check: report.state(check) for check in CHECKS} == dict.fromkeys(CHECKS, "ok")


@pytest.mark.parametrize("name", DEFECTS)
def test_a_seeded_defect_is_found_by_name_and_has_a_fix(config, dataset, name):
    spoil, check, text = DEFECTS[name]
    spoil(dataset)
    report = check_dataset(dataset, config, images=False)
    found = [fault for fault in report.errors if fault.check == check]
    assert any(text in fault.text for fault in found), list(map(str, report.faults))
    assert report.state(check) == "fault"
    assert all(fault.fix for fault in report.faults)


@pytest.mark.parametrize("name", SUSPICIONS)
def test_what_is_only_suspicious_is_a_warning(config, dataset, name):
    spoil, check, text = SUSPICIONS[name]
    spoil(dataset)
    report = check_dataset(dataset, config, images=False)
    assert any(text in f.text for f in report.warnings if f.check == check), [
        f"{f.check}: {f.text}" for f in report.faults
    ]
    assert report.state(check) == "warning"


def test_defects_are_told_apart(config, dataset):
    """A defect of the values alone is found by the check of its name and by no other."""
    everywhere(None, lambda values: np.radians(values))(dataset)
    assert {fault.check for fault in check_dataset(dataset, config, images=False).errors} == {"units"}


def test_short_episodes_are_suspicious_and_useless_when_all_are(dataset):
    some, all_ = (load_config(overrides=[*OVERRIDES, f"training.action_horizon={n}"]) for n in (30, 60))
    assert check_dataset(dataset, some, images=False).state("horizon") == "warning"
    assert check_dataset(dataset, all_, images=False).state("horizon") == "fault"


def test_checks_that_lack_what_they_need_are_skipped(config, tmp_path):
    report = check_dataset(tmp_path, config)
    assert report.state("info") == "fault" and report.state("units") == report.state("videos") == "skipped"
    assert report.faults[0].text.startswith("meta/info.json: cannot be read")


def test_the_format_alone_knows_no_configuration(dataset):
    everywhere(None, lambda values: np.radians(values))(dataset)
    assert validate_dataset(dataset, images=False) == []


def test_episodes_that_a_merge_repeats_for_weights_are_no_copies(config, dataset):
    copy_episode(dataset, 0, 1)
    sources = dataset / "meta/so101_sources.json"
    sources.write_text(json.dumps({"sources": [{"name": "sim", "episodes": [0, 1, 2]}]}))
    assert check_dataset(dataset, config, images=False).state("duplicates") == "ok"
    apart = [{"name": "sim", "episodes": [0, 2]}, {"name": "real", "episodes": [1]}]
    sources.write_text(json.dumps({"sources": apart}))
    assert check_dataset(dataset, config, images=False).state("duplicates") == "fault"


def test_a_dataset_of_ours_whose_joints_end_at_100_degrees_is_not_taken_for_percent(config, dataset):
    everywhere("action", lambda v: np.where(np.arange(6) == 1, np.clip(v * 2, -100, 100), v))(dataset)
    assert check_dataset(dataset, config, images=False).state("units") == "ok"
    (dataset / "meta/so101.json").unlink()
    assert check_dataset(dataset, config, images=False).state("units") == "ok"


MALFORMED = {
    "a section that is no mapping": on_modality(lambda v: v.update(video=True)),
    "a slice that is no number": on_modality(lambda v: v["state"]["single_arm"].update(end="x")),
    "a slice that is missing": on_modality(lambda v: v["action"]["gripper"].pop("start")),
    "state and action of other sizes": on_modality(lambda v: v["state"]["single_arm"].update(end=6)),
    "shape that is no list": on_info(lambda v: v["features"]["action"].update(shape={"a": 1})),
    "shape of no numbers": on_info(lambda v: v["features"]["frame_index"].update(shape=["x"])),
    "names that are no list": on_info(lambda v: v["features"]["action"].update(names=5)),
    "a path outside": on_info(lambda v: v.update(data_path="/nowhere/{episode_index}.parquet")),
    "tasks that are no text": on_lines(
        "episodes.jsonl", lambda v: [v[0].replace('["', '[{"a": "').replace('"]', '"}]')]
    ),
    "statistics that are none": lambda root: (root / "meta/relative_stats.json").write_text("[1]"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_malformed_is_a_fault_and_no_crash(config, dataset, name):
    MALFORMED[name](dataset)
    assert check_dataset(dataset, config, images=False).errors


def test_units_of_a_dataset_of_ours_are_those_it_says(dataset):
    other = load_config(overrides=[*OVERRIDES, "dataset.units.body=normalized"])
    report = check_dataset(dataset, other, images=False)
    assert any("meta/so101.json: written in degrees" in fault.text for fault in report.errors)


def test_the_table_names_every_check_and_says_a_repeated_fault_once_too_often_only(config, dataset):
    at_25_fps(dataset)
    lines = report_lines(check_dataset(dataset, config, images=False))
    states = {line.split()[1]: line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "}
    assert list(states) == list(CHECKS)
    assert states["fps"] == "fault" and states["units"] == "ok"
    at = next(number for number, line in enumerate(lines) if line.startswith("  fault   fps"))
    assert lines[at + 6].strip() == "- and 2 more like it"  # the rate in info.json, and six videos
    assert lines[at + 7].strip().startswith("fix: set fps to the true rate")


def test_the_command_ends_with_an_error_when_there_are_faults(dataset, capsys):
    words = ["dataset", "--check", str(dataset), "--set", OVERRIDES[0]]
    assert main(words) == 0
    assert "0 faults, 0 warnings" in capsys.readouterr().out
    at_25_fps(dataset)
    assert main(words) == DataError.exit_code
    assert "what each is and its fix is said above" in capsys.readouterr().err
