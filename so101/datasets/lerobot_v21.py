"""The dataset stage: verified demos and their videos to a LeRobot v2.1 dataset that GR00T reads too.

The dataset is built beside its place and renamed as a whole, so it is there completely or not at all. Equal inputs give
equal bytes. ``meta/so101.json`` says that this program made it, from which attempts and in which units;
``meta/so101_randomisation.jsonl`` what was drawn at random for each episode, ``meta/so101_objects.parquet`` where the
objects were in every frame: what a simulator knows and no policy is shown, for auxiliary losses.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from so101.config import Config
from so101.datasets.demo import Demo, list_demos, load_demo
from so101.datasets.lerobot_write import episode_table, link_or_copy, write_json, write_json_lines, write_tables
from so101.datasets.stats import column_stats, groot_stats, relative_stats
from so101.datasets.units import LeRobotUnits, load_calibration, make_units, rad_to_lerobot
from so101.datasets.validate import MARKER, SCALAR_DTYPES, validate_dataset
from so101.datasets.videos import probe_video, video_stats
from so101.errors import ConfigError, DataError, InsufficientDemosError, RunFolderError
from so101.pipeline.progress import Reporter, StageResult
from so101.pipeline.run_folder import RunFolder
from so101.pipeline.workers import map_unordered

FORMAT_VERSION = 2  # of what this module writes; a change makes existing datasets be written again
MADE_BY = "so101-twin"
RANDOMISATION = "so101_randomisation.jsonl"  # in meta/: what was drawn for each episode, when something was
OBJECTS = "so101_objects.parquet"  # in meta/: columns episode_index, frame_index, one a object: its pose in base
DATA_PATH = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
VIDEO_PATH = "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"
_FAULTS_SHOWN = 10


@dataclass(frozen=True)
class Episode:
    """One demo on its way into the dataset. `columns` are (T, 6) float32 or (T,) arrays by LeRobot name, `videos` the
    files by LeRobot key; `clipped` counts values beyond what LeRobot can report; `drawn` holds the randomised physics
    and looks, `objects` name -> (T, 7) pose in base, position m and quaternion w x y z."""

    index: int
    demo_index: int
    task: str
    columns: dict[str, np.ndarray]
    videos: dict[str, Path]
    clipped: int
    drawn: dict[str, Any]
    objects: dict[str, np.ndarray]

    @property
    def length(self) -> int:
        return len(self.columns["timestamp"])


def video_keys(config: Config) -> dict[str, str]:
    """Our camera name -> feature name in the dataset, e.g. ego -> observation.images.wrist."""
    return {camera: f"observation.images.{name}" for camera, name in config.dataset.cameras.items()}


def dataset_units(config: Config) -> LeRobotUnits:
    """The units state and action are written in.

    Raises:
        DataError: the calibration file is not usable.
    """
    units = config.dataset.units
    calibration = load_calibration(units.calibration, config.robot) if units.calibration else None
    return make_units(units.body, config.robot, calibration)


def write_dataset(config: Config, run: RunFolder, reporter: Reporter, workers: int) -> StageResult:
    """Write the first `skillgen.target_demos` verified demos to `run.dataset`.

    A dataset this program made from the same demos, videos and settings is kept; one made from others is replaced.

    Raises:
        ConfigError: dataset.cameras names a camera that cameras.yaml does not have.
        InsufficientDemosError: no verified demo.
        DataError: a demo or video is missing or wrong, or `run.dataset` was made by something else.
        RunFolderError: the folder cannot be written.
    """
    with _folder_errors(run.dataset):
        building, replaced = (run.dataset.with_name(f".{run.dataset.name}.{part}.tmp") for part in ("new", "old"))
        _clean_up(run.dataset, building, replaced)
        _check_cameras(config)
        _refuse_foreign(run.dataset)
        episodes = _read_episodes(config, run)
        reporter.start("dataset", len(episodes), unit="episodes")
        marker = _marker(config, episodes)
        kept = _read_marker(run.dataset) == marker and not validate_dataset(run.dataset, images=False)
        if kept:
            reporter.advance(len(episodes), note="unchanged")
        else:
            try:
                _build(building, config, episodes, marker, reporter, workers)
                _keep_others_files(run.dataset, building)
                if run.dataset.exists():
                    os.replace(run.dataset, replaced)
                os.replace(building, run.dataset)
            finally:
                _clean_up(run.dataset, building, replaced)
    frames = sum(episode.length for episode in episodes)
    summary = {
        "episodes": len(episodes),
        "wanted": config.skillgen.target_demos,
        "frames": frames,
        "duration_s": frames / config.scene.physics.control_hz,
        "clipped_values": sum(episode.clipped for episode in episodes),
        "unchanged": kept,
    }
    return StageResult("dataset", len(episodes), summary)


def _read_episodes(config: Config, run: RunFolder) -> list[Episode]:
    """Demos in index order as episodes 0, 1, ...; every missing video is named at once."""
    paths = list_demos(run.verified)[: config.skillgen.target_demos]
    if not paths:
        raise InsufficientDemosError(
            f"{run.verified}: no verified demo, so there is no dataset to write; run the stages before (generate, "
            "filter, smooth, verify, render) or look at the causes of failure in the report"
        )
    units, cameras = dataset_units(config), video_keys(config)
    episodes, first_row, tasks = [], 0, {}
    for path in paths:
        demo = load_demo(path)
        _check_demo(demo, path, config)
        language = config.task.tasks[demo.task].language
        task_index = tasks.setdefault(language, len(tasks))
        columns, clipped = _columns(demo, units, len(episodes), first_row, task_index)
        videos = {key: run.video(demo.index, camera) for camera, key in cameras.items()}
        drawn = _drawn(demo, run)
        episodes.append(Episode(len(episodes), demo.index, language, columns, videos, clipped, drawn, demo.objects))
        first_row += demo.num_frames
    missing = [path for episode in episodes for path in episode.videos.values() if not path.is_file()]
    if missing:
        raise DataError(
            f"{len(missing)} videos of {len(episodes)} demos are missing, first {missing[0]}; "
            "run `./twin render` (it makes what is missing), or take the camera out of dataset.cameras"
        )
    return episodes


def _drawn(demo: Demo, run: RunFolder) -> dict[str, Any]:
    """What was drawn at random for a demo; nothing when only the places of its objects were."""
    path, drawn = run.looks(demo.index), dict(demo.meta.get("randomisation", {}))
    if path.is_file():
        try:
            drawn["looks"] = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise DataError(f"{path}: not JSON ({error}); delete it and run `./twin render` again") from None
    return drawn if {"physics", "looks"} & drawn.keys() else {}


def _check_cameras(config: Config) -> None:
    unknown = sorted(set(config.dataset.cameras) - set(config.cameras.names))
    if unknown:
        raise ConfigError(
            f"dataset.yaml: cameras names {', '.join(unknown)}; cameras.yaml has {', '.join(config.cameras.names)}"
        )


def _check_demo(demo: Demo, path: Path, config: Config) -> None:
    fps = config.scene.physics.control_hz
    joints = len(config.robot.joints)
    faults = []
    if demo.q.shape != (demo.num_frames, joints) or demo.num_frames == 0:
        faults.append(f"q has shape {demo.q.shape}, needed are rows of {joints} joints")
    elif not (np.isfinite(demo.q).all() and np.isfinite(demo.q_target).all()):
        faults.append("joint values are not all finite")
    if demo.fps != fps or fps != round(fps):
        faults.append(f"fps is {demo.fps}, scene.physics.control_hz {fps}; LeRobot needs one whole number for all")
    if demo.task not in config.task.tasks:
        faults.append(f"task {demo.task!r} is not in task.yaml ({', '.join(sorted(config.task.tasks))})")
    if faults:
        raise DataError(f"{path}: cannot become an episode: {'; '.join(faults)}. Delete it and run its stage again")


def _columns(
    demo: Demo, units: LeRobotUnits, episode_index: int, first_row: int, task_index: int
) -> tuple[dict[str, np.ndarray], int]:
    """The parquet columns of a demo in LeRobot's order, and how many values LeRobot would have clamped."""
    rows, clipped, values = demo.num_frames, 0, {}
    for key, q in (("action", demo.q_target), ("observation.state", demo.q)):
        exact = rad_to_lerobot(q, units)
        values[key] = units.clip(exact)
        clipped += int(np.count_nonzero(values[key] != exact))
    frame_index = np.arange(rows)
    values |= {
        "timestamp": frame_index / demo.fps,  # restarts at 0 in every episode: LeRobot looks frames up by it
        "frame_index": frame_index,
        "episode_index": np.full(rows, episode_index),
        "index": first_row + frame_index,
        "task_index": np.full(rows, task_index),
    }
    return {key: value.astype(SCALAR_DTYPES.get(key, "float32")) for key, value in values.items()}, clipped


def _build(root: Path, config: Config, episodes: list[Episode], marker: dict, reporter: Reporter, workers: int) -> None:
    """The whole dataset under `root`, checked."""
    facts = {key: probe_video(path) for key, path in episodes[0].videos.items()}
    features = _features(config, {key: video.feature() for key, video in facts.items()})
    size = config.dataset.chunks_size
    stats: dict[int, dict[str, Any]] = {}
    jobs = [(e.index, {k: str(p) for k, p in e.videos.items()}, e.length) for e in episodes]
    for index, video_statistics in map_unordered(_video_stats, jobs, workers=workers):
        episode = episodes[index]
        place = {"episode_chunk": index // size, "episode_index": index}
        write_tables(root / DATA_PATH.format(**place), [episode_table(episode.columns, features)])
        for key, path in episode.videos.items():
            link_or_copy(path, root / VIDEO_PATH.format(video_key=key, **place))
        vectors = {key: column_stats(column) for key, column in episode.columns.items()}
        stats[index] = {key: (vectors | video_statistics)[key] for key in features}
        reporter.advance(note=f"episode {index}")
    _write_meta(root / "meta", config, episodes, features, stats, marker)
    faults = validate_dataset(root, images=False)  # image statistics were just made from the same files
    if faults:
        text = "\n".join(fault.replace(str(root), "dataset") for fault in faults[:_FAULTS_SHOWN])
        raise DataError(f"The dataset from {len(episodes)} demos failed its check, nothing was written:\n{text}")


def _video_stats(job: tuple[int, dict[str, str], int]) -> tuple[int, dict[str, dict]]:
    """Runs in a worker: image statistics of all videos of an episode."""
    index, videos, length = job
    return index, {key: video_stats(path, length) for key, path in videos.items()}


def _features(config: Config, videos: dict[str, dict]) -> dict[str, dict]:
    names = [f"{name}.pos" for name in config.robot.joint_names]
    vector = {"dtype": "float32", "shape": [len(names)], "names": names}
    scalars = {key: {"dtype": dtype, "shape": [1], "names": None} for key, dtype in SCALAR_DTYPES.items()}
    return {"action": vector, "observation.state": vector, **videos, **scalars}


def _write_meta(
    meta: Path,
    config: Config,
    episodes: list[Episode],
    features: dict[str, dict],
    stats: dict[int, dict[str, Any]],
    marker: dict,
) -> None:
    tasks = list(dict.fromkeys(episode.task for episode in episodes))
    vectors = {key: [e.columns[key] for e in episodes] for key, f in features.items() if "float" in f["dtype"]}
    cameras = video_keys(config)
    info = {
        "codebase_version": "v2.1",
        "robot_type": config.dataset.robot_type,
        "total_episodes": len(episodes),
        "total_frames": sum(episode.length for episode in episodes),
        "total_tasks": len(tasks),
        "total_videos": len(episodes) * len(cameras),
        "total_chunks": -(-len(episodes) // config.dataset.chunks_size),
        "chunks_size": config.dataset.chunks_size,
        "fps": round(config.scene.physics.control_hz),
        "splits": {"train": f"0:{len(episodes)}"},
        "data_path": DATA_PATH,
        "video_path": VIDEO_PATH,
        "features": features,
    }
    write_json(meta / "info.json", info)
    write_json_lines(
        meta / "episodes.jsonl",
        [{"episode_index": e.index, "tasks": [e.task], "length": e.length} for e in episodes],
    )
    write_json_lines(meta / "tasks.jsonl", [{"task_index": i, "task": task} for i, task in enumerate(tasks)])
    write_json_lines(
        meta / "episodes_stats.jsonl", [{"episode_index": e.index, "stats": stats[e.index]} for e in episodes]
    )
    write_json(meta / "stats.json", {key: groot_stats(columns) for key, columns in vectors.items()})
    write_json(meta / "relative_stats.json", _relative_stats(config, vectors))
    write_json(meta / "modality.json", _modality(config))
    write_json(meta / MARKER, marker)
    write_objects(meta / OBJECTS, episodes)
    if any(episode.drawn for episode in episodes):
        write_json_lines(meta / RANDOMISATION, [{"episode_index": e.index, **e.drawn} for e in episodes])


def write_objects(path: Path, episodes: list[Episode]) -> None:
    """Poses of the objects as a parquet table, a row a frame; null where an episode does not have an object."""
    names = sorted({name for episode in episodes for name in episode.objects})
    scalars = ("episode_index", "frame_index")
    columns: dict[str, list[pa.Array]] = {key: [] for key in (*scalars, *names)}
    pose = pa.list_(pa.float32())  # of no fixed length: Arrow writes empty cells of those, and cannot read them
    for episode in episodes:
        for key in scalars:
            columns[key].append(pa.array(episode.columns[key]))
        for name in names:
            poses = episode.objects.get(name)
            values = pa.nulls(episode.length, pose)
            if poses is not None:
                values = pa.FixedSizeListArray.from_arrays(pa.array(poses.astype(np.float32).reshape(-1)), 7).cast(pose)
            columns[name].append(values)
    write_tables(path, [pa.table({key: pa.chunked_array(parts) for key, parts in columns.items()})])


def _relative_stats(config: Config, vectors: dict[str, list[np.ndarray]]) -> dict[str, dict]:
    """Per relative group; a group is left out when no episode is as long as the horizon, as GR00T can train on none."""
    result = {}
    for group in config.dataset.modality.relative:
        part = slice(*config.dataset.modality.groups[group])
        states, actions = ([v[:, part] for v in vectors[key]] for key in ("observation.state", "action"))
        stats = relative_stats(states, actions, config.training.action_horizon)
        if stats:
            result[group] = stats
    return result


def _modality(config: Config) -> dict[str, dict]:
    modality = config.dataset.modality
    groups = {name: {"start": start, "end": end} for name, (start, end) in modality.groups.items()}
    videos = {name: {"original_key": f"observation.images.{name}"} for name in config.dataset.cameras.values()}
    annotation = {modality.language_key: {"original_key": "task_index"}}
    return {"state": groups, "action": groups, "video": videos, "annotation": annotation}


def _marker(config: Config, episodes: list[Episode]) -> dict[str, Any]:
    """Content of meta/so101.json. `inputs` is a digest of all that the bytes of the dataset depend on."""
    units = dataset_units(config)
    settings = {
        "format": FORMAT_VERSION,
        "dataset": config.dataset.model_dump(mode="json"),
        "joints": config.robot.joint_names,
        "fps": config.scene.physics.control_hz,
        "horizon": config.training.action_horizon,
    }
    digest = hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=16)
    for episode in episodes:
        digest.update(json.dumps([episode.index, episode.task]).encode())
        for name, poses in sorted(episode.objects.items()):
            digest.update(name.encode() + np.ascontiguousarray(poses, np.float32).tobytes())
        if episode.drawn:
            digest.update(json.dumps(episode.drawn, sort_keys=True).encode())
        for column in episode.columns.values():
            digest.update(np.ascontiguousarray(column))
        for key, path in episode.videos.items():
            digest.update(key.encode())
            with open(path, "rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
    return {
        "made_by": MADE_BY,
        "format": FORMAT_VERSION,
        "inputs": digest.hexdigest(),
        "attempts": [episode.demo_index for episode in episodes],
        "units": {
            "body": config.dataset.units.body,
            "scale_per_rad": units.scale.tolist(),
            "offset": units.offset.tolist(),
        },
    }


def _read_marker(dataset: Path) -> dict[str, Any] | None:
    try:
        marker = json.loads((dataset / "meta" / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return marker if isinstance(marker, dict) and marker.get("made_by") == MADE_BY else None


def _refuse_foreign(dataset: Path) -> None:
    if dataset.is_dir() and not any(dataset.iterdir()):
        dataset.rmdir()
    if dataset.exists() and _read_marker(dataset) is None:
        raise DataError(
            f"{dataset}: exists, but was not written by this program (no meta/{MARKER} of {MADE_BY}), so it is left "
            "alone; move it away or choose another run folder"
        )


def _keep_others_files(dataset: Path, building: Path) -> None:
    """What somebody put beside our folders (a README.md, say) goes on into the new dataset."""
    ours = {path.name for path in building.iterdir()}
    for path in sorted(dataset.rglob("*")) if dataset.is_dir() else ():
        inside = path.relative_to(dataset)
        if path.is_file() and inside.parts[0] not in ours:
            link_or_copy(path, building / inside)


def _clean_up(dataset: Path, building: Path, replaced: Path) -> None:
    """Undo what a killed process left: a half-built dataset goes, an old one that had been moved away comes back."""
    shutil.rmtree(building, ignore_errors=True)
    if replaced.exists() and not dataset.exists():
        os.replace(replaced, dataset)
    shutil.rmtree(replaced, ignore_errors=True)


@contextmanager
def _folder_errors(dataset: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunFolderError(
            f"{dataset}: cannot be written ({error}); free space or fix the permissions and run `./twin dataset` again"
        ) from None
