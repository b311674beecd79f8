"""The checks of a merge, each with a name: sources that are not alike, rows that are damaged, videos that are not
there."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from so101.datasets.clips import Clip, clip_faults
from so101.datasets.merge_options import MergeOptions
from so101.datasets.validate import TIMESTAMP_TOLERANCE_S
from so101.datasets.videos import VideoFacts, probe_video
from so101.errors import DataError

if TYPE_CHECKING:
    from so101.datasets.merge_sources import PlannedSource

CHECKS = {
    "files": "each source is a LeRobot dataset of v2.1 or v3.0 whose tables can be read",
    "names": "sources have different names, and options name them",
    "weights": "all sources have a weight, or none",
    "fps": "one rate, or --resample",
    "robot_type": "one robot type, or --robot-type",
    "features": "the same features of the same type and shape, or --drop",
    "cameras": "the same cameras, or --rename and --drop",
    "sizes": "one picture size a camera, or --size",
    "joints": "the arm's joints, each once, in any order",
    "units": "one unit, or --to-units and what it takes",
    "nan": "all numbers are finite",
    "timestamps": "rows are at frame / fps",
    "tasks": "every frame has a task text",
    "duplicates": "no episode twice, or --allow-duplicates",
    "videos": "each camera has the frames of each episode",
}
_SHOWN = 4  # places named in a fault


class MergeError(DataError):
    """Sources cannot be merged as asked. `faults`: one text each, "check: what, and what to do"."""

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = list(faults)
        lines = "\n".join(f"  {fault}" for fault in self.faults)
        super().__init__(f"cannot merge, {len(self.faults)} faults, nothing was written\n{lines}")


class Faults:
    """Collects them."""

    def __init__(self) -> None:
        self._texts: list[tuple[str, str]] = []

    def add(self, check: str, text: str) -> None:
        assert check in CHECKS, check
        if (check, text) not in self._texts:
            self._texts.append((check, text))

    def of(self, check: str) -> list[str]:
        return [text for name, text in self._texts if name == check]

    def raise_any(self) -> None:
        """Raises:
        MergeError: there are some, in the order of CHECKS.
        """
        if self._texts:
            order = list(CHECKS)
            texts = sorted(self._texts, key=lambda fault: order.index(fault[0]))
            raise MergeError([f"{check}: {text}" for check, text in texts])


def check_alike(sources: list[PlannedSource], options: MergeOptions, faults: Faults) -> None:
    """fps, robot_type, features, cameras, sizes."""
    rates = {source.name: source.data.fps for source in sources}
    if options.fps is None and len(set(rates.values())) > 1:
        said = ", ".join(f"{name} has {fps:g}" for name, fps in rates.items())
        faults.add("fps", f"{said}; record or render at one rate, or --resample {max(rates.values()):g}")
    uneven = [name for name, fps in rates.items() if fps != round(fps)] if options.fps is None else []
    if uneven:
        faults.add("fps", f"{', '.join(uneven)}: {rates[uneven[0]]:g} is no whole number; --resample to one")
    if options.fps is not None and options.fps != round(options.fps):
        faults.add("fps", f"--resample {options.fps:g}: LeRobot needs a whole number")
    types = {source.name: source.data.info.get("robot_type") for source in sources}
    if options.robot_type is None and len(set(types.values())) > 1:
        said = ", ".join(f"{name} says {kind}" for name, kind in types.items())
        faults.add("robot_type", f"{said}; when it is one kind of arm, say which with --robot-type")
    everywhere = set.intersection(*(set(source.features) for source in sources))
    for source in sources:
        for key in sorted(set(source.features) - everywhere):
            others = [other for other in sources if key not in other.features]
            _missing(key, source, others, faults)
    for key in sorted(everywhere):
        specs = [(source.name, source.features[key]) for source in sources]
        video = specs[0][1]["dtype"] == "video"
        if len({feature["dtype"] for _, feature in specs}) > 1:
            said = ", ".join(f"{name} {feature['dtype']}" for name, feature in specs)
            faults.add("features", f"{key} is {said}; convert it, or --drop {key}")
        elif not video and len({tuple(feature["shape"]) for _, feature in specs}) > 1:
            said = ", ".join(f"{name} {feature['shape']}" for name, feature in specs)
            faults.add("features", f"{key} has the shapes {said}; --drop it where it may go")


def _missing(key: str, source: PlannedSource, others: list[PlannedSource], faults: Faults) -> None:
    names = ", ".join(other.name for other in others)
    if source.features[key]["dtype"] != "video":
        faults.add("features", f"{key} of {source.name} is not in {names}; --drop {key}")
        return
    bare = key.removeprefix("observation.images.")
    cameras = {k.removeprefix("observation.images.") for k, f in others[0].features.items() if f["dtype"] == "video"}
    free = sorted(cameras - {k.removeprefix("observation.images.") for k in source.features})
    rename = f"--rename {source.name}:{bare}={free[0]} when they are one, or " if free else ""
    has = ", ".join(sorted(cameras)) or "no camera"
    faults.add("cameras", f"{bare} of {source.name} is not in {names} ({has}); {rename}--drop {bare}")


def check_rows(sources: list[PlannedSource], options: MergeOptions, faults: Faults) -> None:
    """nan, timestamps, tasks, duplicates."""
    seen: dict[bytes, str] = {}
    for source in sources:
        bad, late, untold, twice = [], [], [], []
        for original, episode in zip(source.data.episodes, source.episodes, strict=True):
            for key, column in episode.columns.items():
                if not np.isfinite(column).all():
                    bad.append(f"{key} of episode {episode.origin}")
            times = original.columns.get("timestamp")
            grid = np.arange(original.length) / source.data.fps
            if times is not None and not np.abs(times - grid).max() <= TIMESTAMP_TOLERANCE_S:
                late.append(f"episode {episode.origin}")
            if not all(isinstance(text, str) and text.strip() for text in episode.tasks):
                untold.append(f"episode {episode.origin}")
            digest = hashlib.blake2b(digest_size=16)
            for key in ("action", "observation.state"):
                digest.update(np.ascontiguousarray(episode.columns[key], np.float32).tobytes())
            here = f"episode {episode.origin} of {source.name}"
            first = seen.setdefault(digest.digest(), here)
            if first != here:
                twice.append(f"episode {episode.origin} is {first}")
        if bad:
            faults.add("nan", f"{source.name}: not finite are {_some(bad)}; take those episodes out")
        if late:
            faults.add("timestamps", f"{source.name}: not at frame / fps are the rows of {_some(late)}; repair them")
        if untold:
            faults.add("tasks", f"{source.name}: no task text in {_some(untold)}; write it to the source's tasks")
        if twice and not options.allow_duplicates:
            faults.add("duplicates", f"{source.name}: {_some(twice)}; take one out, or --allow-duplicates")


def check_videos(sources: list[PlannedSource], options: MergeOptions, faults: Faults) -> dict[Path, VideoFacts]:
    """videos, sizes. Returns what is in each file."""
    facts: dict[Path, VideoFacts] = {}
    sizes: dict[str, dict[tuple[int, int], str]] = {}
    for source in sources:
        for key in [key for key, feature in source.features.items() if feature["dtype"] == "video"]:
            missing, wrong = [], []
            for episode in source.episodes:
                _look(episode.clips[key], facts, missing, wrong)
                if episode.clips[key].path in facts:
                    found = facts[episode.clips[key].path]
                    sizes.setdefault(key, {}).setdefault((found.width, found.height), source.name)
            bare = key.removeprefix("observation.images.")
            if missing:
                files = list(dict.fromkeys(missing))
                text = f"{len(files)} files of {bare} are missing, first {files[0]}"
                faults.add("videos", f"{source.name}: {text}; copy the whole dataset, or --drop {bare}")
            if wrong:
                faults.add("videos", f"{source.name}: {bare}: {_some(wrong)}; take the episodes out, or --drop {bare}")
    for key, found in sizes.items():
        bare = key.removeprefix("observation.images.")
        said = ", ".join(f"{width}x{height} in {name}" for (width, height), name in found.items())
        if options.size is None and len(found) > 1:
            faults.add("sizes", f"{bare} is {said}; bring all to one with --size WIDTHxHEIGHT")
    return facts


def _look(clip: Clip, facts: dict[Path, VideoFacts], missing: list[Path], wrong: list[str]) -> None:
    if not clip.path.is_file():
        missing.append(clip.path)
        return
    if clip.path not in facts:
        try:
            facts[clip.path] = probe_video(clip.path)
        except DataError as error:
            wrong.append(str(error).partition(";")[0])
            return
    wrong += [f"{clip.path.name}: {fault}" for fault in clip_faults(clip, facts[clip.path])]


def _some(texts: Sequence[str]) -> str:
    texts = list(dict.fromkeys(texts))
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return ", ".join(texts[:_SHOWN]) + more
