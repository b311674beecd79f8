"""The sources of a merge, made alike as its options say: names, joints, rate, task texts, units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from so101.config import Config
from so101.datasets.clips import Clip
from so101.datasets.lerobot_files import read_parquet
from so101.datasets.lerobot_source import LeRobotSource, SourceEpisode, read_source
from so101.datasets.lerobot_v21 import OBJECTS
from so101.datasets.merge_checks import Faults, MergeError
from so101.datasets.merge_options import CAMERA_PREFIX, Kind, MergeOptions, SourceSpec
from so101.datasets.merge_units import JointUnits, converter, find_units
from so101.datasets.recordings import Recording, feature_names, joint_order
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


def open_sources(specs: Sequence[SourceSpec], options: MergeOptions, faults: Faults) -> list[PlannedSource]:
    """All that can be read, with names of their own.

    Raises:
        MergeError: none can.
    """
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
    if options.materialise and not given:
        faults.add("weights", "--materialise-weights without any; give each source one, FOLDER:WEIGHT")
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


def check_options(sources: list[PlannedSource], options: MergeOptions, faults: Faults) -> None:
    """Every name in an option is there."""
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


def name_features(source: PlannedSource, options: MergeOptions, faults: Faults) -> None:
    """`features` under the names of the result, dropped ones left out."""
    old = source.data.features
    dropped = {_full(key, list(old)) for scope, key in options.drops if scope in (None, source.name)}
    renamed = {_full(a, list(old)): b for scope, a, b in options.renames if scope in (None, source.name)}
    for key, feature in old.items():
        if key not in dropped or key in JOINTS:
            new = renamed.get(key, key)
            new = new if "." in new else CAMERA_PREFIX + new if new != key else key
            if new in source.features:
                faults.add("cameras", f"--rename makes two cameras of {source.name} {new}; --drop one of them")
            source.features[new] = {**feature, "_from": key}


def make_episodes(source: PlannedSource, options: MergeOptions, config: Config, faults: Faults) -> None:
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
        source.features[key] |= {"names": [names[i] for i in order], "dtype": "float32"}
    for episode in source.data.episodes:
        rows, picks = _frames(episode, source.data.fps, options.fps)
        columns = {}
        for key, feature in source.features.items():
            if feature["dtype"] != "video":
                values = episode.columns[feature["_from"]]
                if key in source.orders:
                    values = np.take(values, source.orders[key], axis=1).astype(np.float32)
                columns[key] = _resampled(values, picks)
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


def convert_units(sources: list[PlannedSource], options: MergeOptions, config: Config, faults: Faults) -> None:
    """Find each source's units, bring joints to those wanted. Needs joints in order, and finite numbers."""
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
