"""What a merge will write, worked out and checked before anything is written: `plan_merge`.

All checks look at all sources; whoever merges sees every fault at once, each under its name with the option that helps.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from so101.config import Config
from so101.datasets.clips import Clip, Encoding, can_copy, is_whole
from so101.datasets.merge_checks import Faults, check_alike, check_rows, check_videos
from so101.datasets.merge_options import MergeOptions, SourceSpec
from so101.datasets.merge_sources import (
    JOINTS,
    PlannedEpisode,
    PlannedSource,
    check_options,
    convert_units,
    make_episodes,
    name_features,
    open_sources,
)
from so101.datasets.validate import SCALAR_DTYPES
from so101.datasets.videos import VideoFacts


@dataclass(frozen=True)
class MergePlan:
    """All that a writer needs.

    Attributes:
        sources: in the order given; `episodes` are theirs one after another, repeated where weights say so.
        features: of the result, without counters.
        how: clip -> "link" its file, "copy" its packets, or "encode" it.
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
    sources = open_sources(specs, options, faults)
    check_options(sources, options, faults)
    for source in sources:
        name_features(source, options, faults)
        make_episodes(source, options, config, faults)
    convert_units(sources, options, config, faults)
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
