"""FRAME metrics, errors of joints and diagnoses of the episodes of an evaluation, several at a time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from so101.config import Config
from so101.errors import ConfigError
from so101.evaluation.closed_loop.folder import EvalFolder
from so101.evaluation.closed_loop.record import Episode, episode_path
from so101.evaluation.diagnosis import summarise
from so101.evaluation.measure import Measured, Reference, measure, reference_paths, totals
from so101.evaluation.rollout_figures import write_figures
from so101.evaluation.tracks import read_tracks
from so101.files import write_json
from so101.kinematics.arm import ArmKinematics
from so101.pipeline.progress import Reporter
from so101.pipeline.workers import map_unordered

_FEWEST_FRAMES = 3  # of an episode that can be measured

_held: dict[str, Any] = {}


def begin(settings: str, reference: Path | None) -> None:
    """What a worker process needs; `reference`: demos to compare with."""
    config = Config.model_validate_json(settings)
    fk = ArmKinematics(config).fk
    references: list[Reference] = [] if reference is None else reference_paths(reference, config, fk)
    _held.update(config=config, fk=fk, references=references)


def measure_one(path: Path) -> Measured:
    """The episode in file `path`."""
    config = _held["config"]
    return measure(config, read_tracks(path, config)[0], _held["fk"], _held["references"])


def measure_episodes(
    config: Config,
    folder: EvalFolder,
    episodes: Sequence[Episode],
    reporter: Reporter,
    workers: int,
    reference: Path | None = None,
) -> list[Measured]:
    """All episodes in numbers, by seed; also in metrics.json. Those too short to be measured are left out, and all of
    them where robometric-frame is not installed, which is said."""
    paths = [episode_path(folder.episodes, e.seed) for e in episodes if e.num_frames >= _FEWEST_FRAMES]
    reporter.start("metrics", len(paths), unit="episodes")
    measured = []
    try:
        for one in map_unordered(
            measure_one,
            paths,
            workers=min(workers, len(paths)),
            initializer=begin,
            initargs=(config.model_dump_json(), reference),
        ):
            measured.append(one)
            reporter.advance(1, one.name)
    except ConfigError as error:
        reporter.message(f"metrics are left out: {error}")
        return []
    measured.sort(key=lambda one: one.track.facts["seed"])
    if measured:
        rollouts = [one.figures() for one in measured]
        write_json(folder.metrics, {"totals": totals(measured), "rollouts": rollouts})
    return measured


def diagnoses(measured: Sequence[Measured]) -> dict[str, Any]:
    """JSON values: `counts`: name -> episodes; `failures`: seed -> what was seen, of every failure that shows something
    known."""
    failures = {
        str(one.track.facts["seed"]): [f"{found.name}: {found.sentence}" for found in one.diagnoses]
        for one in measured
        if one.diagnoses and not one.track.success
    }
    return {"counts": dict(summarise([one.diagnoses for one in measured])), "failures": failures}


def draw(config: Config, folder: EvalFolder, measured: Sequence[Measured], reference: Path | None) -> list[Path]:
    """Pictures of the first failures, else of the first episodes: joints, path of the hand, errors of the joints."""
    fk = ArmKinematics(config).fk
    references = [] if reference is None else reference_paths(reference, config, fk)
    ordered = sorted(measured, key=lambda one: bool(one.track.success))[: config.deploy.evaluation.figures]
    return [file for one in ordered for file in write_figures(config, one, fk, references, folder.pictures)]
