"""`./twin train` for the embedded policy: dataset, frame cache, lock, tracking, training."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from so101.config import Config
from so101.datasets.merge import read_sources
from so101.errors import DataError
from so101.learning.dataset import Dataset, read_dataset
from so101.pipeline.progress import Reporter
from so101.pipeline.session import lock_folder


def train_embedded(
    config: Config,
    folder: Path,
    role: str,
    *,
    episodes: int | None = None,
    begin_with: str | None = None,
    fresh: bool,
    workers: int,
    reporter: Reporter,
    clock: Callable[[], float],
) -> str:
    """Train ``models/<role>`` on the dataset in `folder`, or go on with it; a sentence on what came out.

    Args:
        episodes: learn from the first so many; all when None.
        begin_with: role of a trained policy whose weights are begun with.

    Raises:
        DataError: the dataset cannot be learned from, the role is another training's.
        RunFolderError: the role is in use.
        PolicyError: no such device.
    """
    import torch

    from so101.learning.checkpoint import load_policy
    from so101.learning.frames import open_frames
    from so101.learning.train import Trainer
    from so101.policies.checkpoint import find_checkpoint
    from so101.tracking import tracked_run

    if not role or Path(role).name != role or role.startswith("."):
        raise DataError(f"--role {role!r}: must be the name of a folder, without slashes")
    models = Path(config.deploy.server.models_dir)
    target = models / role
    settings = config.training.embedded
    if begin_with == role:
        raise DataError(f"--from {role}: is the role that is trained; give what comes out another name with --role")
    dataset = read_dataset(folder, config)
    if episodes is not None:
        dataset = dataset.first(episodes)
    weights = episode_weights(config, dataset)
    first = None if begin_with is None else load_policy(find_checkpoint(models, begin_with), config)
    with lock_folder(RoleFolder(target), "--role"):
        frames = open_frames(models / ".frames", dataset, settings.pictures, workers=workers, reporter=reporter)
        torch.set_num_threads(workers)
        if fresh:
            shutil.rmtree(target / "training", ignore_errors=True)
        trainer = Trainer(config, dataset, frames, target, weights, first)
        begun = trainer.step
        if begun == settings.max_steps:
            again = "" if trainer.is_saved() else "; its policy was not whole and is written again"
            if again:
                trainer.save(target, trainer.figures)
            return f"{target} is trained: {begun} steps (begin anew with --fresh){again}"
        params = {"role": role, "dataset": str(folder), "episodes": len(dataset.states), **flattened(trainer.identity)}
        began = clock()
        with tracked_run(config, kind="train", name=role, params=params, resume_id=trainer.run_id) as run:
            with run.system_metrics():
                figures = trainer.run(reporter, run, clock)
    minutes = (clock() - began) / 60
    return (
        f"{target}: trained {trainer.step - begun} steps of {settings.batch_size} samples in {minutes:.1f} min, loss "
        f"{figures['loss']:.4f}; serve it with `./policy --policy embedded --role {role}`, try it with `./twin eval "
        f"--policy embedded --role {role}`"
    )


def episode_weights(config: Config, dataset: Dataset) -> dict[int, float] | None:
    """How often each episode is drawn, where the dataset was merged of several sources; None where it was not."""
    weights: dict[int, float] = {}
    for source in read_sources(dataset.folder, config.training.mix.weights):
        known = [e for e in source.episodes if e < len(dataset.states)]
        frames = sum(int(dataset.lengths[e]) for e in known)
        weights |= {e: source.weight * int(dataset.lengths[e]) / frames for e in known}
    return weights or None


def flattened(values: dict, at: str = "") -> dict[str, object]:
    """A tree as one level, keys joined by dots."""
    flat: dict[str, object] = {}
    for key, value in values.items():
        flat |= flattened(value, f"{at}{key}.") if isinstance(value, dict) else {f"{at}{key}": value}
    return flat


@dataclass(frozen=True)
class RoleFolder:
    """One training a role."""

    root: Path

    @property
    def lock(self) -> Path:
        return self.root / ".lock"
