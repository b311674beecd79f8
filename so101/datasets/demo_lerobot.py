""".demo files to LeRobot v2.1 datasets and back (docs/demo_files.md lists what each keeps)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from so101.config import Config
from so101.datasets.clips import Encoding
from so101.datasets.demo_episode import INTERVENED, NO_SEED, DemoHeader, Episode, stamp_success
from so101.datasets.demo_file import DemoFile
from so101.datasets.demo_rebuild import RecordedStates
from so101.datasets.demo_states import Words, action_to_rad, find_words, in_base, in_world
from so101.datasets.lerobot_files import read_json_lines, read_parquet
from so101.datasets.lerobot_source import LeRobotSource, marker_of, read_source
from so101.datasets.lerobot_v21 import OBJECTS, dataset_units, write_objects
from so101.datasets.lerobot_v21 import Episode as ObjectEpisode
from so101.datasets.lerobot_write import write_json, write_json_lines
from so101.datasets.merge_plan import MergePlan, counters
from so101.datasets.merge_sources import PlannedEpisode
from so101.datasets.merge_units import find_units, to_rad
from so101.datasets.merge_v21 import video_file, write_v21
from so101.datasets.recordings import read_recording
from so101.datasets.units import rad_to_lerobot
from so101.datasets.validate import MARKER
from so101.datasets.videos import video_histogram
from so101.errors import DataError
from so101.families import FamilyTask
from so101.pipeline.progress import Reporter

MADE_BY = "so101-twin demo convert"
EPISODES = "so101_demo.jsonl"  # in meta/: of each episode what LeRobot has no place for
_REWARD = "next.reward"  # names the field uses; no policy takes them for what is seen
_INTERVENTION = "complementary_info.is_intervention"
_RATE_TOLERANCE = 1e-3  # of a rate: below it two are the same


def to_lerobot(
    file: DemoFile, task: FamilyTask, out: Path, config: Config, reporter: Reporter, *, render: bool = False
) -> tuple[list[Episode], list[str]]:
    """Write a dataset; returns the episodes it has, and what of the file is not in it, in sentences.

    Args:
        config: dataset (units, modality) and codec.
        render: also draw the family's cameras in every state.

    Raises:
        DataError: `out` exists, no episode has two rows, or the dataset does not pass the check of format.
    """
    if out.exists():
        raise DataError(f"{out}: exists; name a folder that does not, or move it away")
    header, words = file.header, find_words(file.header, config.robot.joint_names)
    chosen = [(number, episode) for number, episode in enumerate(file.episodes) if episode.num_rows > 1]
    if not chosen:
        raise DataError(f"no episode of task {header.task} has two rows or more, as LeRobot needs them")
    fps, units = round(header.control_hz), dataset_units(config)
    planned, objects, clipped = [], [], 0
    for place, (number, episode) in enumerate(chosen):
        columns, beyond = _columns(episode, words, task, units, config)
        clipped += beyond
        rows = np.arange(episode.num_rows)
        texts = np.full(len(rows), task.language, object)
        planned.append(PlannedEpisode(header.task, number, columns, texts, {}, rows))
        numbered = counters(planned[-1], place, 0, fps, [task.language])
        poses = {name: in_base(episode.obs[:, words.objects[name]], task) for name in words.present(episode.obs)}
        objects.append(ObjectEpisode(place, number, task.language, numbered, {}, 0, {}, poses))
    building = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        videos, histograms = {}, {}
        if render:
            videos, histograms = _render(building, [e for _, e in chosen], words, task, config, reporter)
        plan = MergePlan(fps, config.dataset.robot_type, [], planned, _features(config, videos), {}, {}, units.kind, "")
        if faults := write_v21(building, plan, histograms, config):
            raise DataError("the dataset failed its check, nothing was written:\n" + "\n".join(faults[:10]))
        _write_ours(building / "meta", header, [e for _, e in chosen], words, units, task, config)
        write_objects(building / "meta" / OBJECTS, objects)
        os.replace(building, out)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    notes = ["the last observation of each episode (no action follows it)", "speeds of joints and objects"]
    notes += ["the words about the goal, which the family computes again"]
    notes += (
        [f"{len(file.episodes) - len(chosen)} episodes of a single row"] if len(chosen) < len(file.episodes) else []
    )
    notes += [f"{clipped} joint values beyond what LeRobot reports, which are clamped"] if clipped else []
    notes += [] if render else ["pictures (--render draws them)"]
    if abs(fps / header.control_hz - 1) > _RATE_TOLERANCE:
        notes.append(
            f"the rate: LeRobot's is a whole number, so rows at {header.control_hz:g} Hz count as {fps} a second "
            f"(meta/{MARKER} keeps the true one)"
        )
    return [episode for _, episode in chosen], notes


def from_lerobot(
    folder: Path, task: FamilyTask, config: Config, reporter: Reporter, *, accept_rate: bool = False
) -> tuple[list[Episode], list[str]]:
    """Episodes of a dataset as a task sees them; and what of it they do not have, in sentences.

    Args:
        config: its teleop section says how units are told, robot which columns are joints.
        accept_rate: take rows at another rate as if they were at the task's.

    Raises:
        DataError: damaged or of undecidable units, at another rate, or the objects of the task are not known.
    """
    source, recordings = read_source(folder), read_recording(folder, config)
    units = find_units(source.marker, recordings, config)
    radians = to_rad(units, config, nominal=True)
    rate, wanted = _true_rate(source), 1.0 / task.family.declaration.control.control_dt
    notes = ["pictures"] if any("video" in feature["dtype"] for feature in source.features.values()) else []
    if abs(rate / wanted - 1) > _RATE_TOLERANCE:
        if not accept_rate:
            raise DataError(
                f"{folder}: {rate:g} rows a second, task {task.name} has {wanted:g}; --accept-rate takes the rows as "
                f"they are (everything {abs(wanted / rate - 1):.1%} {'faster' if wanted > rate else 'slower'}), or "
                "`./twin merge --resample` brings the dataset to another rate"
            )
        notes.append(f"the rate: rows at {rate:g} Hz count as {wanted:g} Hz")
    states, own = RecordedStates(task), {row.get("episode_index"): row for row in _own_lines(folder)}
    objects = _objects(folder, source, states.env.needed, task)
    episodes, beyond = [], 0
    reporter.start("convert", len(recordings), unit="episodes")
    for number, recording in enumerate(recordings):
        index = source.episodes[number].index
        q, commands = radians(number, recording.state), radians(number, recording.action)
        action = states.env.ctrl_to_action(commands)
        beyond += int((np.abs(states.env.action_to_ctrl(action) - commands) > 1e-4).sum())
        about = own.get(index, {})
        episode = states.episode(
            q,
            objects[index],
            action[:-1],
            _target(about, task, folder, states.env.words),
            success=about.get("success"),
            seed=int(about.get("seed", NO_SEED)),
            meta=about.get("meta") or {"from": recording.name},
        )
        episodes.append(_with_columns(episode, source.episodes[number].columns))
        reporter.advance(note=recording.name)
    notes += ["the last row of each episode (it has no next observation)"]
    notes += [f"{beyond} commands beyond the actuators' range, which are clamped"] if beyond else []
    notes += [] if _REWARD in source.features else ["rewards: those here are the family's own, computed for each state"]
    notes += ["measured speeds: those here are differences of positions"]
    return episodes, notes


def demo_facts(folder: Path) -> dict[str, Any]:
    """Task, family, rate and meta of the .demo file that a dataset was written from; empty for others."""
    about = marker_of(folder).get("demo")
    return about if isinstance(about, dict) else {}


# --- writing ---------------------------------------------------------------------------------------------------------


def _columns(
    episode: Episode, words: Words, task: FamilyTask, units: Any, config: Config
) -> tuple[dict[str, np.ndarray], int]:
    """By feature, and how many joint values LeRobot would clamp."""
    commands = action_to_rad(episode.action, task)
    columns, clipped = {}, 0
    for key, q in (("action", commands), ("observation.state", episode.obs[:, words.joints])):
        exact = rad_to_lerobot(q, units)
        values = units.clip(exact)
        clipped += int((np.abs(values - exact) > 1e-3).sum())
        columns[key] = values.astype(np.float32)
    columns[_REWARD] = np.asarray(episode.reward, np.float32)
    columns[_INTERVENTION] = (np.asarray(episode.flags) & INTERVENED > 0).astype(np.float32)
    return columns, clipped


def _features(config: Config, videos: dict[str, dict]) -> dict[str, dict]:
    names = [f"{name}.pos" for name in config.robot.joint_names]
    vector = {"dtype": "float32", "shape": [len(names)], "names": names}
    scalar = {"dtype": "float32", "shape": [1], "names": None}
    return {
        "action": vector,
        "observation.state": vector,
        **videos,
        _REWARD: scalar,
        _INTERVENTION: scalar,
    }


def _render(
    root: Path, episodes: Sequence[Episode], words: Words, task: FamilyTask, config: Config, reporter: Reporter
) -> tuple[dict[str, dict], dict[tuple[int, str], tuple[np.ndarray, int]]]:
    """Features and statistics of the videos, which lie in their places."""
    from so101.families.render import FamilyRenderer
    from so101.rendering.video import encode_video

    picture, fps = task.family.declaration.picture, round(1.0 / task.family.declaration.control.control_dt)
    size = {"width_px": picture.width_px, "height_px": picture.height_px, "fps_hz": float(fps)}
    config = config.model_copy(update={"cameras": config.cameras.model_copy(update=size)})
    feature = Encoding(picture.width_px, picture.height_px, fps, config).feature
    states, histograms = RecordedStates(task).env, {}
    with FamilyRenderer(task.family, supersample=2) as renderer:
        names = {f"observation.images.{config.dataset.cameras.get(name, name)}": name for name in renderer.cameras}
        if not names:
            raise DataError(f"task {task.name}: its family has no cameras to render; leave --render out")
        reporter.start("render", len(episodes) * len(names), unit="videos")
        for index, episode in enumerate(episodes):
            objects = {name: episode.obs[:, words.objects[name]] for name in words.present(episode.obs)}
            qpos = states.qpos_of(episode.obs[:, words.joints], objects)
            for key, camera in sorted(names.items()):  # LeRobot sorts them: overhead before wrist
                path = video_file(root, key, index, config)
                encode_video(path, (renderer.draw(row, camera) for row in qpos), config)
                histograms[index, key] = video_histogram(path, len(qpos))
                reporter.advance(note=f"{camera} of episode {index}")
    return dict.fromkeys(sorted(names), feature), histograms


def _write_ours(
    meta: Path,
    header: DemoHeader,
    episodes: Sequence[Episode],
    words: Words,
    units: Any,
    task: FamilyTask,
    config: Config,
) -> None:
    of_joints = {
        "body": config.dataset.units.body,
        "scale_per_rad": units.scale.tolist(),
        "offset": units.offset.tolist(),
    }
    about = {key: getattr(header, key) for key in ("task", "family", "control_hz", "meta")}
    write_json(meta / MARKER, {"made_by": MADE_BY, "format": 1, "units": of_joints, "demo": about})
    lines = []
    for index, episode in enumerate(episodes):
        line = {"episode_index": index, "seed": int(episode.seed), "success": bool(episode.success)}
        if words.target:
            line["target_m"] = episode.obs[0, words.target].tolist()
        lines.append(line | {"meta": episode.meta})
    write_json_lines(meta / EPISODES, lines)


# --- reading ---------------------------------------------------------------------------------------------------------


def _true_rate(source: LeRobotSource) -> float:
    """Hz; of a dataset written here that of its .demo file, which may be no whole number."""
    rate = demo_facts(source.path).get("control_hz")
    return float(rate) if isinstance(rate, (int, float)) and round(rate) == source.fps else source.fps


def _own_lines(folder: Path) -> list[dict[str, Any]]:
    path = folder / "meta" / EPISODES
    return read_json_lines(path) if path.is_file() else []


def _target(about: dict[str, Any], task: FamilyTask, folder: Path, words: dict[str, slice]) -> np.ndarray | None:
    if "target" not in words:
        return None
    target = np.array(about.get("target_m") or (), float)
    if target.shape != (3,):
        raise DataError(
            f"{folder}: task {task.name} is to reach a point, and the dataset does not say which (no target_m in "
            f"meta/{EPISODES}); only datasets written by `./twin demo convert` do"
        )
    return target


def _objects(
    folder: Path, source: LeRobotSource, needed: Sequence[str], task: FamilyTask
) -> dict[int, dict[str, np.ndarray]]:
    """Episode -> object -> (T, 7) in the family's world, of all that the task needs."""
    path = folder / "meta" / OBJECTS
    if not needed:
        return {episode.index: {} for episode in source.episodes}
    if not path.is_file():
        raise DataError(
            f"{folder}: task {task.name} needs where {', '.join(needed)} were in every frame, and the dataset does not "
            f"say (no meta/{OBJECTS}); simulated datasets of this program have it, a recording of a real arm cannot. "
            "Convert it for a task without objects, such as so101_tower_reach_clear"
        )
    table = read_parquet(path)
    missing = [name for name in needed if name not in table.column_names]
    if missing:
        known = [name for name in table.column_names if name not in ("episode_index", "frame_index")]
        raise DataError(f"{path}: no poses of {', '.join(missing)}, which task {task.name} needs; it has {known}")
    numbers = np.asarray(table["episode_index"])
    objects: dict[int, dict[str, np.ndarray]] = {}
    for episode in source.episodes:
        rows = np.flatnonzero(numbers == episode.index)
        objects[episode.index] = {}
        for name in needed:
            poses = [pose for pose in table[name].take(rows).to_pylist() if pose is not None]
            if len(poses) != episode.length or any(len(pose) != 7 for pose in poses):
                raise DataError(
                    f"{path}: {len(poses)} poses of {name} in episode {episode.index}, which has {episode.length} "
                    "frames; the dataset was changed after it was written"
                )
            objects[episode.index][name] = in_world(np.array(poses), task)
    return objects


def _with_columns(episode: Episode, columns: dict[str, np.ndarray]) -> Episode:
    """With reward and interventions as the dataset has them."""
    rows, changes = episode.num_rows, {}
    if _REWARD in columns:
        changes["reward"] = np.asarray(columns[_REWARD][:rows], np.float32).reshape(rows)
    if _INTERVENTION in columns:
        driven = np.asarray(columns[_INTERVENTION][:rows]).reshape(rows) > 0.5
        changes["flags"] = stamp_success(np.where(driven, INTERVENED, 0), episode.success)
    return Episode(**{**vars(episode), **changes})
