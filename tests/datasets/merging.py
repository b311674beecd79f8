"""Small sources for tests of merging."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from so101.config import Config, load_config
from so101.datasets.clips import Clip, decode_clip
from so101.datasets.demo import list_demos, load_demo, save_demo
from so101.datasets.lerobot_source import LeRobotSource
from so101.datasets.lerobot_v21 import write_dataset
from so101.datasets.merge import merge_datasets
from so101.datasets.merge_options import MergeOptions, SourceSpec
from so101.pipeline.progress import SilentReporter, StageResult

from .synthetic import make_run

OVERRIDES = ["dataset.cameras={ego: wrist, side: front}", "dataset.chunks_size=2"]


def small_config(*overrides: str) -> Config:
    return load_config(overrides=[*OVERRIDES, *overrides])


def make_source(root: Path, config: Config, lengths: tuple[int, ...], first: int = 2) -> Path:
    """A v2.1 dataset of the dataset stage, which knows where its vial was."""
    run = make_run(root, config, lengths, first=first)
    for path in list_demos(run.verified):
        demo = load_demo(path)
        course = np.linspace(0, 0.1, demo.num_frames)[:, None] * [1, 0, 0, 0, 0, 0, 0] + [0.2, 0, 0, 1, 0, 0, 0]
        save_demo(run.verified, demo.replace(objects={"vial": course}))
    write_dataset(config, run, SilentReporter(), 1)
    return run.dataset


def copy_of(dataset: Path, target: Path) -> Path:
    """A copy to spoil, which does not say that it is ours."""
    shutil.copytree(dataset, target)
    (target / "meta/so101.json").unlink()
    return target


def rewrite_info(dataset: Path, change) -> None:
    path = dataset / "meta/info.json"
    info = json.loads(path.read_text())
    change(info)
    path.write_text(json.dumps(info))


def rewrite_column(dataset: Path, index: int, key: str, change) -> None:
    """`change` gets the values of one episode as an array, and gives the new ones."""
    (path,) = dataset.glob(f"data/*/episode_{index:06d}.parquet")
    table = pq.read_table(path, partitioning=None)
    values = change(np.array(table[key].to_pylist()))
    field = table.schema.field(key)
    place = table.column_names.index(key)
    pq.write_table(table.set_column(place, field, pa.array(values.tolist(), field.type)), path)


def merge(config: Config, out: Path, *sources: Path | SourceSpec, **options) -> StageResult:
    specs = [source if isinstance(source, SourceSpec) else SourceSpec(source) for source in sources]
    return merge_datasets(specs, out, MergeOptions(**options), config, SilentReporter(), 1)


def frames(source: LeRobotSource, index: int, key: str) -> np.ndarray:
    """(T, H, W, 3) all frames of an episode."""
    return np.stack(list(decode_clip(source.episodes[index].clips[key])))


def frames_of(path: Path, length: int, fps: float = 30) -> np.ndarray:
    return np.stack(list(decode_clip(Clip(path, 0, length, fps))))
