"""Policies on pseudo-real rigs, strength after strength; what is on disk already is not done again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from services.evaluation.run import run_evaluation
from services.evaluation.worker import Served
from so101.config import Config
from so101.evaluation.transfer import RigWorlds, TransferPoint, check_apart, write_transfer
from so101.files import write_json
from so101.pipeline.progress import Reporter
from so101.tracking import kept_run_id, tracked_run


class Candidate(NamedTuple):
    """A policy to try: what it is called in the table, the configuration with its role, how it is served."""

    name: str
    config: Config
    served: Served


def run_transfer(
    candidates: Sequence[Candidate],
    strengths: Sequence[float],
    seeds: range,
    root: Path,
    reporter: Reporter,
    *,
    workers: int,
    fresh: bool = False,
) -> list[TransferPoint]:
    """Run every candidate at every strength on the same placements and rigs. Each has a folder of its own in `root`, as
    `./twin eval` makes it; the table there grows with each.

    Raises:
        ConfigError: as `check_apart`.
        RunFolderError, PolicyError: as `run_evaluation`.
    """
    config = candidates[0].config
    settings, points = config.deploy.transfer, []
    check_apart(config)
    title = f"{root.name}, {len(seeds)} episodes each, seeds {seeds.start} to {seeds.stop - 1}, {settings.rigs} rigs"
    for candidate in candidates:
        for strength in strengths:
            worlds = RigWorlds(strength, seeds.start, settings.first_rig, settings.rigs)
            reporter.message(f"{candidate.name}, strength {strength:g}")
            done = run_evaluation(
                _filming_little(candidate.config),
                candidate.served,
                root / f"{candidate.name}_strength_{strength:g}",
                seeds,
                reporter,
                workers=workers,
                fresh=fresh,
                make_world=worlds,
                kind="transfer",
                facts=worlds.facts(config),
            )
            points.append(TransferPoint(candidate.name, strength, done.summary))
            figure = write_transfer(root, points, title)
    params = {"policies": [c.name for c in candidates], "strengths": list(strengths), "episodes": len(seeds)}
    params |= {"first_seed": seeds.start, "first_rig": settings.first_rig, "rigs": settings.rigs}
    kept = root / "mlflow.json"
    with tracked_run(config, kind="transfer", name=root.name, params=params, resume_id=kept_run_id(kept)) as run:
        run.log({f"strict/{point.policy}/strength_{point.strength:g}": point.row()["share"] for point in points})
        run.figure("transfer", figure)
        for name in ("transfer.csv", "transfer.json"):
            run.artifact(root / name)
        if run.id is not None:
            write_json(kept, {"mlflow_run": run.id})
    return points


def lines(points: Sequence[TransferPoint]) -> list[str]:
    """The table for people."""
    width = max(len(point.policy) for point in points)
    told = [f"{'policy':{width}}  strength  strict success (Wilson)            failures ended at"]
    for row in (point.row() for point in points):
        share = f"{row['successes']}/{row['episodes']} = {100 * row['share']:.0f} %"
        interval = f"({100 * row['low']:.0f} to {100 * row['high']:.0f} %)"
        strict = f"{share} {interval}"
        told.append(f"{row['policy']:{width}}  {row['strength']:<8g}  {strict:33}  {row['failed_at'] or 'none'}")
    return told


def _filming_little(config: Config) -> Config:
    videos = {"failures": config.deploy.transfer.failures_filmed, "successes": 0}
    evaluation = config.deploy.evaluation
    evaluation = evaluation.model_copy(update={"videos": evaluation.videos.model_copy(update=videos)})
    return config.model_copy(update={"deploy": config.deploy.model_copy(update={"evaluation": evaluation})})
