"""What a merge will write, worked out and checked before anything is written: `plan_merge`.

All checks look at all sources; whoever merges sees every fault at once, each under its name with the option that helps.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from so101.config import Config
from so101.datasets.clips import Clip, Encoding, can_copy, is_whole
from so101.datasets.lerobot_files import read_parquet
from so101.datasets.lerobot_source import LeRobotSource, SourceEpisode, read_source
from so101.datasets.lerobot_v21 import OBJECTS
from so101.datasets.merge_checks import Faults, MergeError, check_alike, check_rows, check_videos
from so101.datasets.merge_options import CAMERA_PREFIX, Kind, MergeOptions, SourceSpec
from so101.datasets.merge_units import JointUnits, converter, find_units
from so101.datasets.recordings import Recording, feature_names, joint_order
from so101.datasets.validate import SCALAR_DTYPES
from so101.datasets.videos import VideoFacts
from so101.errors import DataError, did_you_mean

JOINTS = ("action", "observation.state")


@dataclass
class PlannedSource:
    """A source as it goes into the merge. `features` have the names of the result and remember theirs in `_from`;
    `orders` are the file's places of the arm's joints; `episodes` has one for each of `data`, in order."""

    name: str
    kind: Kind
    weight: float | None
    data: LeRobotSource
    features: dict[str, dict] = field(default_factory=dict)
    orders: dict[str, list[int]] = field(default_factory=dict)
    episodes: list[PlannedEpisode] = field(default_factory=list)
    units: JointUnits | None = None

    @property
    def num_frames(self) -> int:
        return sum(episode.length for episode in self.episodes)


@dataclass(frozen=True)
class PlannedEpisode:
    """One episode of the result. `columns` by feature without counters, `tasks` (T,) texts, `rows` (T,) which frames of
    the source episode `origin` it is."""

    source: str
    origin: int
    columns: dict[str, np.ndarray]
    tasks: np.ndarray
    clips: dict[str, Clip]
    rows: np.ndarray

    @property
    def length(self) -> int:
        return len(self.tasks)


@dataclass(frozen=True)
class MergePlan:
    """All that a writer needs.

    Attributes:
        sources: in the order given; `episodes` are theirs one after another, repeated where weights say so.
        features: of the result, without counters.
        how: (path, first frame) of a clip -> "link" the file, "copy" its packets, or "encode" it.
        encodings: video feature -> how its clips are encoded, where any is.
        units: of the joints, where they are known.
        digest: of everything the result depends on.
    """

    fps: float
    robot_type: str
    sources: list[PlannedSource]
    episodes: list[PlannedEpisode]
    features: dict[str, dict]
    how: dict[Clip, str]
    encodings: dict[str, Encoding]
    units: str | None
    digest: str

    @property
    def video_keys(self) -> list[str]:
        return [key for key, feature in self.features.items() if feature["dtype"] == "video"]

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(text for episode in self.episodes for text in episode.tasks))


def plan_merge(specs: Sequence[SourceSpec], options: MergeOptions, config: Config) -> MergePlan:
    """Read all sources, make them alike as `options` say, check them.

    Raises:
        MergeError: all faults.
    """
    faults = Faults()
    sources = _open(specs, options, faults)
    _check_options(sources, options, faults)
    for source in sources:
        _name_features(source, options)
        _make_episodes(source, options, config, faults)
    _convert_units(sources, options, config, faults)
    check_alike(sources, options, faults)
    check_rows(sources, options, faults)
    facts = check_videos(sources, options, faults)
    faults.raise_any()
    fps = options.fps or sources[0].data.fps
    features = _result_features(sources)
    how, encodings = _how(sources, facts, features, fps, options, config)
    episodes = [episode for source in sources for episode in _repeated(source, sources, options, config)]
    units = sources[0].units.unit if sources[0].units else None
    units = options.to_units or {"degrees": "degrees", "normalised": "normalized"}.get(units)
    robot_type = options.robot_type or str(sources[0].data.info.get("robot_type") or config.dataset.robot_type)
    digest = _digest(sources, episodes, options, config)
    return MergePlan(fps, robot_type, sources, episodes, features, how, encodings, units, digest)


def _open(specs: Sequence[SourceSpec], options: MergeOptions, faults: Faults) -> list[PlannedSource]:
    sources: list[PlannedSource] = []
    for spec in specs:
        try:
            data = read_source(spec.path)
        except DataError as error:
            faults.add("files", str(error))
            continue
        name = spec.name or _folder_name(spec.path)
        taken = {source.name for source in sources}
        if name in taken and spec.name is None:
            name = next(f"{name}_{i}" for i in range(2, len(specs) + 2) if f"{name}_{i}" not in taken)
        elif name in taken:
            faults.add("names", f"two sources are called {name!r}; give them names of their own, FOLDER::NAME")
        sources.append(PlannedSource(name, options.kinds.get(name) or _kind(data), spec.weight, data))
    if not sources:
        faults.raise_any()
        raise MergeError(["names: no source; name one or more folders of LeRobot datasets"])
    given = [source.name for source in sources if source.weight is not None]
    if given and len(given) < len(sources):
        others = [source.name for source in sources if source.weight is None]
        faults.add("weights", f"{', '.join(given)} have one, {', '.join(others)} none; give all a weight, or none")
    return sources


def _folder_name(path: Path) -> str:
    path = path.resolve()
    return path.parent.name if path.name == "dataset" else path.name


def _kind(data: LeRobotSource) -> Kind:
    """Simulated is what knows where its objects were, or was merged of nothing else."""
    if data.sources:
        return "sim" if all(source.get("kind") == "sim" for source in data.sources) else "real"
    objects = data.path / "meta" / OBJECTS
    if not objects.is_file():
        return "sim" if data.marker else "real"
    return "sim" if len(read_parquet(objects).column_names) > len(("episode_index", "frame_index")) else "real"


def _check_options(sources: list[PlannedSource], options: MergeOptions, faults: Faults) -> None:
    names = [source.name for source in sources]
    told = {source for source, *_ in (*options.renames, *options.drops) if source} | set(options.units)
    for name in sorted(told | set(options.calibrations) | set(options.kinds)):
        if name not in names:
            faults.add(
                "names", f"an option names source {name!r}; there are {', '.join(names)}{did_you_mean(name, names)}"
            )
    for scope, old, _ in options.renames:
        known = [key for s in sources if scope in (None, s.name) for key in s.data.features]
        if _full(old, known) not in known:
            faults.add("cameras", f"--rename of {old!r}: no such camera in {scope or 'any source'} ({_listed(known)})")
    for scope, key in options.drops:
        known = [k for s in sources if scope in (None, s.name) for k in s.data.features]
        if _full(key, known) not in known or _full(key, known) in JOINTS:
            faults.add(
                "features", f"--drop {key}: no such feature to drop in {scope or 'any source'} ({_listed(known)})"
            )
    texts = {text for s in sources for episode in s.data.episodes for text in episode.tasks}
    for text in options.tasks:
        if text not in texts:
            faults.add("tasks", f"--task-text of {text!r}: no such text; there are {_listed(sorted(texts))}")


def _full(name: str, known: Sequence[str]) -> str:
    return name if name in known else CAMERA_PREFIX + name


def _listed(names: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(names)) or "none"


def _name_features(source: PlannedSource, options: MergeOptions) -> None:
    """`features` under the names of the result, dropped ones left out."""
    old = source.data.features
    dropped = {_full(key, list(old)) for scope, key in options.drops if scope in (None, source.name)}
    renamed = {_full(a, list(old)): b for scope, a, b in options.renames if scope in (None, source.name)}
    for key, feature in old.items():
        if key not in dropped or key in JOINTS:
            new = renamed.get(key, key)
            source.features[new if "." in new or new == key else CAMERA_PREFIX + new] = {**feature, "_from": key}


def _make_episodes(source: PlannedSource, options: MergeOptions, config: Config, faults: Faults) -> None:
    """Columns under their new names, joints in the order of robot.yaml, at the wanted rate, with the wanted tasks."""
    for key in JOINTS:
        where = f"{source.name}: {key}"
        try:
            names = feature_names(source.data.features[key], config, where)
            order = joint_order(names, config, where)
            if source.data.features[key]["shape"] != [len(order)] or len(names) != len(order):
                raise DataError(f"{where}: {len(names)} values, the arm has {len(order)} ({', '.join(names)})")
        except DataError as error:
            faults.add("joints", str(error))
            continue
        source.orders[key] = order
        source.features[key]["names"] = [names[i] for i in order]
    for episode in source.data.episodes:
        rows, picks = _frames(episode, source.data.fps, options.fps)
        columns = {}
        for key, feature in source.features.items():
            if feature["dtype"] != "video":
                values = episode.columns[feature["_from"]]
                columns[key] = _resampled(
                    np.take(values, source.orders[key], axis=1) if key in source.orders else values, picks
                )
        clips = {
            key: episode.clips[feature["_from"]]
            for key, feature in source.features.items()
            if feature["dtype"] == "video"
        }
        if picks is not None:
            clips = {key: replace(clip, picks=tuple(rows.tolist())) for key, clip in clips.items()}
        tasks = np.array([options.tasks.get(text, text) for text in episode.tasks[rows]], object)
        source.episodes.append(PlannedEpisode(source.name, episode.index, columns, tasks, clips, rows))


def _frames(episode: SourceEpisode, fps: float, wanted: float | None) -> tuple[np.ndarray, np.ndarray | None]:
    """(T',) nearest frames, and (T',) exact places between frames where the rate changes."""
    if wanted is None or wanted == fps:
        return np.arange(episode.length), None
    places = np.arange(int((episode.length - 1) / fps * wanted + 1e-9) + 1) * fps / wanted
    return np.minimum(np.rint(places).astype(int), episode.length - 1), places


def _resampled(values: np.ndarray, places: np.ndarray | None) -> np.ndarray:
    """Rows of (T, ...) at `places`: between two rows for real numbers, the nearest row for others."""
    if places is None:
        return values
    if values.dtype.kind != "f":
        return values[np.minimum(np.rint(places).astype(int), len(values) - 1)]
    flat = values.reshape(len(values), -1)
    columns = [np.interp(places, np.arange(len(values)), column) for column in flat.T]
    return np.stack(columns, axis=1).reshape(len(places), *values.shape[1:]).astype(values.dtype)


def _convert_units(sources: list[PlannedSource], options: MergeOptions, config: Config, faults: Faults) -> None:
    if faults.of("joints") or any(not _finite(source) for source in sources):
        return
    for source in sources:
        declared, calibration = options.units.get(source.name), options.calibrations.get(source.name)
        recordings = [_recording(source, episode) for episode in source.data.episodes]
        try:
            source.units = find_units(source.data.marker, recordings, config, declared)
        except DataError as error:
            if len(sources) > 1 or options.to_units:
                faults.add("units", f"{source.name}: {error}; or say it with --units {source.name}=UNIT")
            continue
        if options.to_units is None:
            continue
        try:
            convert = converter(source.units, options.to_units, config, calibration)
        except DataError as error:
            faults.add("units", f"{source.name}: {error}; give the arm's with --calibration {source.name}=FILE")
            continue
        if convert is not None:
            source.episodes = [
                replace(e, columns={k: _converted(convert, n, k, v) for k, v in e.columns.items()})
                for n, e in enumerate(source.episodes)
            ]
    found = {source.name: source.units.unit for source in sources if source.units}
    if options.to_units is None and len(set(found.values())) > 1:
        said = ", ".join(f"{name} is in {unit}" for name, unit in found.items())
        faults.add("units", f"{said}; bring them to one unit with --to-units degrees")


def _finite(source: PlannedSource) -> bool:
    return all(np.isfinite(episode.columns[key]).all() for episode in source.data.episodes for key in JOINTS)


def _converted(convert: Any, number: int, key: str, values: np.ndarray) -> np.ndarray:
    return convert(number, values.astype(float)).astype(values.dtype) if key in JOINTS else values


def _recording(source: PlannedSource, episode: SourceEpisode) -> Recording:
    arrays = {key: episode.columns[key][:, source.orders[key]].astype(float) for key in JOINTS}
    copies = np.array_equal(arrays["action"], arrays["observation.state"])
    return Recording(
        name=f"{source.name}/episode_{episode.index:06d}",
        fps=source.data.fps,
        columns=tuple(source.features["observation.state"]["names"]),
        action=arrays["action"],
        state=arrays["observation.state"],
        has_action=not copies,
    )


def _result_features(sources: list[PlannedSource]) -> dict[str, dict]:
    """Of the first source; joints get plain names where sources call them differently."""
    features = {key: {k: v for k, v in feature.items() if k != "_from"} for key, feature in sources[0].features.items()}
    for key in JOINTS:
        if any(source.features[key]["names"] != features[key]["names"] for source in sources):
            features[key]["names"] = [f"{_plain(name)}.pos" for name in features[key]["names"]]
    first = [key for key in JOINTS if key in features]
    return {key: features[key] for key in (*first, *(k for k in features if k not in first))}


def _plain(name: str) -> str:
    return name.removeprefix("main_").removesuffix(".pos")


def _how(
    sources: list[PlannedSource],
    facts: dict[Path, VideoFacts],
    features: dict[str, dict],
    fps: float,
    options: MergeOptions,
    config: Config,
) -> tuple[dict[Clip, str], dict[str, Encoding]]:
    """Per camera: leave all videos as they are when they are alike and can be cut without decoding; otherwise encode
    those that differ from what is encoded. `features` gets what the videos will be."""
    how, encodings = {}, {}
    for key in [key for key, feature in features.items() if feature["dtype"] == "video"]:
        clips = [episode.clips[key] for source in sources for episode in source.episodes]
        alike = [facts[clip.path].feature() for clip in clips]
        height, width = facts[clips[0].path].height, facts[clips[0].path].width
        if options.size is not None:
            width, height = options.size
        width, height = width - width % 2, height - height % 2  # colour has half the resolution
        encoding = Encoding(width, height, fps, config)
        kept = all(feature == alike[0] and can_copy(c, facts[c.path]) for c, feature in zip(clips, alike, strict=True))
        kept = (
            kept
            and not options.encode
            and alike[0]["shape"] == [height, width, 3]
            and alike[0]["info"]["video.fps"] == round(fps)
        )
        features[key] = alike[0] if kept else encoding.feature
        for clip, feature in zip(clips, alike, strict=True):
            if feature != features[key] or not can_copy(clip, facts[clip.path]):
                how[clip], encodings[key] = "encode", encoding
            else:
                how[clip] = "link" if is_whole(clip, facts[clip.path]) else "copy"
    return how, encodings


def _repeated(
    source: PlannedSource, sources: list[PlannedSource], options: MergeOptions, config: Config
) -> list[PlannedEpisode]:
    """The episodes of a source as often as its weight wants; the source with the most frames for its weight once."""
    if not options.materialise or source.weight is None:
        return source.episodes
    most = max(other.num_frames / other.weight for other in sources)
    times = min(most * source.weight / source.num_frames, float(config.training.mix.max_repeats))
    count, whole = len(source.episodes), int(times + 1e-9)
    more = round((times - whole) * count)
    spread = sorted({int(place) for place in np.linspace(0, count, more, endpoint=False)})
    return source.episodes * whole + [source.episodes[place] for place in spread]


def _digest(sources: list[PlannedSource], episodes: list[PlannedEpisode], options: MergeOptions, config: Config) -> str:
    settings = [repr(options), config.dataset.modality.model_dump_json(), config.render.codec.model_dump_json()]
    settings += [config.training.mix.model_dump_json(), str(config.training.action_horizon)]
    settings += [f"{source.name} {source.kind} {source.weight} {fingerprint(source)}" for source in sources]
    return hashlib.blake2b("\n".join([*settings, str(len(episodes))]).encode(), digest_size=16).hexdigest()


def fingerprint(source: PlannedSource) -> str:
    """Hex digest of the numbers, tasks and video files of a source, as it goes into the merge."""
    digest = hashlib.blake2b(digest_size=16)
    for episode in source.episodes:
        digest.update("\n".join([str(episode.origin), *episode.tasks]).encode())
        for key, column in sorted(episode.columns.items()):
            digest.update(key.encode() + np.ascontiguousarray(column).tobytes())
        for key, clip in sorted(episode.clips.items()):
            status = clip.path.stat()
            digest.update(f"{key} {clip.first} {clip.length} {status.st_size} {status.st_mtime_ns}".encode())
    return digest.hexdigest()


def counters(
    episode: PlannedEpisode, index: int, first_row: int, fps: float, tasks: list[str]
) -> dict[str, np.ndarray]:
    """LeRobot's counters of an episode in the result."""
    rows = np.arange(episode.length)
    numbers = {text: place for place, text in enumerate(tasks)}
    values = {
        "timestamp": rows / fps,
        "frame_index": rows,
        "episode_index": np.full(len(rows), index),
        "index": first_row + rows,
        "task_index": np.array([numbers[text] for text in episode.tasks]),
    }
    return {key: value.astype(SCALAR_DTYPES[key]) for key, value in values.items()}
