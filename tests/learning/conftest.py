"""A dataset of a few short episodes, and a training that takes moments."""

from __future__ import annotations

import numpy as np
import pytest

from so101.config import load_config
from so101.datasets.demo import list_demos, load_demo, save_demo
from so101.datasets.lerobot_v21 import write_dataset
from so101.pipeline.progress import SilentReporter
from tests.datasets.synthetic import make_run

LENGTHS = (24, 31, 20, 27)
SMALL = [
    "dataset.cameras={ego: wrist, side: front}",
    "training.embedded.pictures={width_px: 64, height_px: 48, margin_px: 2, stride: 2}",
    "training.embedded.model={head: flow, channels: [8, 8, 8], width: 32, blocks: 1, dropout: 0.0, flow_samples: 2}",
    "training.embedded.batch_size=4",
    "training.embedded.max_steps=8",
    "training.embedded.log_steps=2",
    "training.embedded.held_out_share=0.25",
    "training.embedded.optimizer.warmup_steps=2",
    "training.tracking.enabled=false",
]


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """Equal sums on every machine, and no threads that wait for each other on a busy one."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def small_config():
    return load_config(overrides=SMALL)


@pytest.fixture(scope="session")
def small_run(small_config, tmp_path_factory):
    """Demos with a vial that lies still and a rack."""
    run = make_run(tmp_path_factory.mktemp("learning"), small_config, LENGTHS)
    for path in list_demos(run.verified):
        demo = load_demo(path)
        rng = np.random.default_rng(demo.index)
        poses = {name: np.tile([*rng.uniform(-0.1, 0.3, 3), 1.0, 0.0, 0.0, 0.0], (demo.num_frames, 1))
                 for name in ("vial", "rack")}  # fmt: skip
        save_demo(run.verified, demo.replace(objects=poses))
    write_dataset(small_config, run, SilentReporter(), 1)
    return run
