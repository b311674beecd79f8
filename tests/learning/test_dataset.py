"""Datasets as real arms leave them."""

from __future__ import annotations

import shutil

import pyarrow.parquet as pq

from so101.datasets.lerobot_v21 import OBJECTS
from so101.learning.dataset import read_dataset

from .conftest import LENGTHS


def test_a_dataset_that_knows_no_objects_has_no_points(small_config, small_run, tmp_path):
    """As that of an arm whose objects nobody measures: the file is there, with no object in it."""
    copy = tmp_path / "dataset"
    shutil.copytree(small_run.dataset, copy)
    path = copy / "meta" / OBJECTS
    pq.write_table(pq.read_table(path, columns=["episode_index", "frame_index"]), path)
    data = read_dataset(copy, small_config)
    assert [p.shape for p in data.points] == [(length, 0, 3) for length in LENGTHS] and data.point_objects == ()
