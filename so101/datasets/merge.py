"""Merging LeRobot datasets, simulated and real, into one to train on: `merge_datasets`, and `read_sources`, which says
afterwards which episodes come from where and how often they shall be drawn.

The result is built beside its place and renamed as a whole; a kill leaves what was there before.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from so101.config import Config
from so101.datasets.clips import Clip, Encoding, copy_clip, encode_clip
from so101.datasets.lerobot_source import SOURCES
from so101.datasets.lerobot_v3 import check_v3, write_v3
from so101.datasets.lerobot_write import link_or_copy, write_json
from so101.datasets.merge_extras import carry_extras
from so101.datasets.merge_options import MergeOptions, SourceSpec
from so101.datasets.merge_plan import MergePlan, fingerprint, plan_merge
from so101.datasets.merge_v21 import video_file, write_v21
from so101.datasets.units import make_units
from so101.datasets.validate import MARKER
from so101.datasets.videos import video_histogram
from so101.errors import DataError, RunFolderError, did_you_mean
from so101.pipeline.progress import Reporter, StageResult
from so101.pipeline.workers import map_unordered

MADE_BY = "so101-twin merge"
FORMAT_VERSION = 1  # of what this module writes; a change makes existing results be written again
_FAULTS_SHOWN = 10


@dataclass(frozen=True)
class Source:
    """A source of a merged dataset: frames of its `episodes` are drawn in proportion to `weight` against the other
    sources, and among themselves alike."""

    name: str
    kind: str
    weight: float
    episodes: tuple[int, ...]


def read_sources(dataset: Path | str, weights: Mapping[str, float] | None = None) -> list[Source]:
    """The sources of a merged dataset; none where it was not merged.

    Args:
        dataset: its folder.
        weights: source -> weight instead of that written, as in training.mix.weights; sources left out keep theirs.

    A source without weight has its number of frames as weight: all frames are drawn alike.

    Raises:
        DataError: the file is damaged, or `weights` names no source of it.
    """
    path = Path(dataset) / "meta" / SOURCES
    if not path.is_file():
        return []
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["sources"]
        sources = [
            Source(
                str(row["name"]),
                str(row["kind"]),
                float(row["frames"] if row["weight"] is None else row["weight"]),
                tuple(int(index) for index in row["episodes"]),
            )
            for row in rows
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: does not say the sources of the dataset ({error!r}); merge it again") from None
    names = [source.name for source in sources]
    for name in weights or {}:
        if name not in names:
            raise DataError(
                f"{path}: training.mix.weights names {name!r}; the sources are {', '.join(names)}"
                f"{did_you_mean(name, names)}"
            )
    return [Source(s.name, s.kind, float((weights or {}).get(s.name, s.weight)), s.episodes) for s in sources]


def merge_datasets(
    specs: Sequence[SourceSpec],
    out: Path | str,
    options: MergeOptions,
    config: Config,
    reporter: Reporter,
    workers: int,
) -> StageResult:
    """Write the sources as one dataset to `out`. One merged of the same sources with the same options is kept, another
    that this function wrote is replaced.

    Raises:
        MergeError: sources are damaged or not alike; all faults at once, and nothing is written.
        DataError: `out` holds something else.
        RunFolderError: it cannot be written.
    """
    out = Path(out)
    building, replaced = (out.with_name(f".{out.name}.{part}.tmp") for part in ("new", "old"))
    try:
        _clean_up(out, building, replaced)
        _refuse(out, specs)
        plan = plan_merge(specs, options, config)
        kept = _digest(out) == plan.digest
        if not kept:
            try:
                _build(building, plan, options, config, reporter, workers)
                if out.exists():
                    os.replace(out, replaced)
                os.replace(building, out)
            finally:
                _clean_up(out, building, replaced)
    except OSError as error:
        raise RunFolderError(
            f"{out}: cannot be written ({error}); free space or fix the permissions and merge again"
        ) from None
    return StageResult("merge", len(plan.episodes), _summary(plan, kept))


def _build(
    root: Path, plan: MergePlan, options: MergeOptions, config: Config, reporter: Reporter, workers: int
) -> None:
    v3, keys = options.format == "v3.0", plan.video_keys
    parts = root / ".clips"  # of v3.0: clips before they are put one after another
    files = {
        (index, key): parts / key / f"{index}.mp4" if v3 else video_file(root, key, index, config)
        for index in range(len(plan.episodes))
        for key in keys
    }
    jobs = [
        (
            place,
            plan.episodes[place[0]].clips[place[1]],
            path,
            how,
            plan.encodings[place[1]] if how == "encode" else None,
        )
        for place, path in files.items()
        for how in [plan.how[plan.episodes[place[0]].clips[place[1]]]]
    ]
    reporter.start("merge", len(jobs) * (2 if v3 else 1) or 1, unit="videos")
    histograms = {}
    for place, histogram in map_unordered(_place_clip, jobs, workers=workers):
        histograms[place] = histogram
        reporter.advance(note=f"{place[1].removeprefix('observation.images.')} of episode {place[0]}")
    if v3:
        write_v3(root, plan, files, histograms, config, reporter)
        shutil.rmtree(parts, ignore_errors=True)
        faults = check_v3(root, plan)
    else:
        faults = write_v21(root, plan, histograms, config)
    if not jobs:
        reporter.advance(note="joints only")
    if faults:
        text = "\n".join(fault.replace(str(root), "dataset") for fault in faults[:_FAULTS_SHOWN])
        raise DataError(f"the merged dataset failed its check, nothing was written:\n{text}")
    carry_extras(root / "meta", plan)
    _write_sources(root / "meta", plan, options, config)


def _place_clip(
    job: tuple[tuple[int, str], Clip, Path, str, Encoding | None],
) -> tuple[tuple[int, str], tuple[np.ndarray, int]]:
    """Runs in a worker: put a clip in its place, and look at its pictures."""
    place, clip, path, how, encoding = job
    if how == "link":
        link_or_copy(clip.path, path)
    elif how == "copy":
        copy_clip(clip, path)
    else:
        encode_clip(clip, path, encoding)
    return place, video_histogram(path, clip.num_frames)


def _write_sources(meta: Path, plan: MergePlan, options: MergeOptions, config: Config) -> None:
    rows = []
    for source in plan.sources:
        numbers = [index for index, episode in enumerate(plan.episodes) if episode.source == source.name]
        rows.append(
            {
                "name": source.name,
                "path": str(source.data.path.resolve()),
                "kind": source.kind,
                "weight": None if options.materialise else source.weight,
                "episodes": numbers,
                "frames": sum(plan.episodes[index].length for index in numbers),
                "version": source.data.version,
                "units": source.units.unit if source.units else None,
                "fingerprint": fingerprint(source),
            }
        )
    marker = {"made_by": MADE_BY, "format": FORMAT_VERSION, "inputs": plan.digest}
    if plan.units is not None:
        units = make_units(plan.units, config.robot)
        of_joints = {"body": plan.units, "scale_per_rad": units.scale.tolist(), "offset": units.offset.tolist()}
        if plan.units == "degrees" or all(source.kind == "sim" for source in plan.sources):
            marker["units"] = of_joints
    write_json(meta / MARKER, marker)
    write_json(meta / SOURCES, {**marker, "sources": rows})


def _summary(plan: MergePlan, kept: bool) -> dict[str, Any]:
    ways = [plan.how[clip] for episode in plan.episodes for clip in episode.clips.values()]
    return {
        "episodes": len(plan.episodes),
        "frames": sum(episode.length for episode in plan.episodes),
        "sources": {s.name: sum(e.source == s.name for e in plan.episodes) for s in plan.sources},
        "videos": {way: ways.count(way) for way in ("link", "copy", "encode") if way in ways},
        "unchanged": kept,
    }


def _digest(out: Path) -> str | None:
    """`inputs` of a dataset written here; None where there is none, "" where it is another's."""
    if not out.exists():
        return None
    try:
        marker = json.loads((out / "meta" / SOURCES).read_text(encoding="utf-8"))
        ours = marker["made_by"] == MADE_BY and marker["format"] == FORMAT_VERSION
        return str(marker["inputs"]) if ours else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _refuse(out: Path, specs: Sequence[SourceSpec]) -> None:
    if out.is_dir() and not any(out.iterdir()):
        out.rmdir()
    if out.exists() and not (out / "meta" / SOURCES).is_file():
        raise DataError(
            f"{out}: exists, but was not merged by this program (no meta/{SOURCES}), so it is left alone; move it away "
            "or choose another --out"
        )
    for spec in specs:
        a, b = out.resolve(), spec.path.resolve()
        if a == b or a in b.parents or b in a.parents:
            raise DataError(f"{out}: is, holds or lies in the source {spec.path}; choose another --out")


def _clean_up(out: Path, building: Path, replaced: Path) -> None:
    """Undo what a killed merge left: a half-built dataset goes, an old one that had been moved away comes back."""
    shutil.rmtree(building, ignore_errors=True)
    if replaced.exists() and not out.exists():
        os.replace(replaced, out)
    shutil.rmtree(replaced, ignore_errors=True)
