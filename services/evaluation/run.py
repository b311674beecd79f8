"""An evaluation from the first episode to the last picture. What is on disk already is not done again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from services.evaluation import measuring, worker
from services.evaluation.worker import MakeWorld, Served
from so101.config import Config
from so101.evaluation.closed_loop.figures import outcome_figure, write_figure
from so101.evaluation.closed_loop.folder import EvalFolder
from so101.evaluation.closed_loop.record import Episode, episode_path
from so101.evaluation.closed_loop.summary import metrics, summarise
from so101.evaluation.closed_loop.twin_world import TwinWorld
from so101.evaluation.closed_loop.videos import chosen, video_path
from so101.evaluation.measure import reference_paths, totals
from so101.files import write_json
from so101.kinematics.arm import ArmKinematics
from so101.pipeline.progress import Reporter
from so101.pipeline.session import explain_disk_errors, lock_folder
from so101.pipeline.workers import map_unordered
from so101.policies.checkpoint import MANIFEST, find_checkpoint
from so101.policies.episodes import demo_path
from so101.tracking import Kind, NullRun, kept_run_id, tracked_run


@dataclass(frozen=True)
class Evaluated:
    """What came of it. `made`: episodes that were run now; the others were there."""

    folder: EvalFolder
    episodes: list[Episode]
    summary: dict[str, Any]
    made: int


def identity(config: Config, served: Served) -> dict[str, Any]:
    """What tells this policy from another, flat.

    Raises:
        PolicyError: there is no such checkpoint, or it is damaged.
        DataError: nothing to replay.
    """
    told: dict[str, Any] = {"name": served.name, "server": served.server}
    if served.server is not None:
        return told
    if served.name == "embedded":
        checkpoint = find_checkpoint(config.deploy.server.models_dir, config.deploy.server.role)
        content = (checkpoint.folder / MANIFEST).read_bytes()  # it holds the digests of all other files
        told |= {"role": config.deploy.server.role, "kind": checkpoint.manifest.kind, "digest": _digest(content)}
    if served.name == "replay":
        path = demo_path(served.options.demo or Path(config.deploy.server.run))
        told |= {"demo": path.name, "digest": _digest(path.read_bytes())}
    if served.name == "expert":
        told["takes"] = config.deploy.server.expert_takes
    if served.name == "groot":
        groot = config.deploy.server.groot  # of what a server of its own has loaded, only the address is known here
        where = {"model": groot.model_path, "embodiment_tag": groot.embodiment_tag}
        told |= where if groot.host is None else {"groot_server": f"{groot.host}:{groot.port}"}
    return told


def run_evaluation(
    config: Config,
    served: Served,
    root: Path,
    seeds: range,
    reporter: Reporter,
    *,
    workers: int,
    fresh: bool = False,
    make_world: MakeWorld = TwinWorld,
    kind: Kind = "eval",
    facts: Mapping[str, Any] = MappingProxyType({}),
    reference: Path | None = None,
) -> Evaluated:
    """Run the episodes that are missing, then videos, figure, summary and the entry in MLflow.

    Args:
        root: folder of this evaluation.
        seeds: one episode each.
        make_world: importable, so that a worker process finds it; called with the configuration and camera names.
        kind: experiment in MLflow.
        facts: what else tells these episodes from others, flat: of the world, for example.
        reference: demos that the metrics compare with: a run, a dataset, a folder.

    Raises:
        RunFolderError: the folder holds episodes of another policy or of other settings, or another command is at work.
        PolicyError: the policy cannot be made, or its server is gone. One that fails in an episode makes that episode a
            failure.
        DataError: `reference` holds no demos.
    """
    folder, policy = EvalFolder(root), {**identity(config, served), **facts}
    if reference is not None and config.deploy.evaluation.metrics:
        reference_paths(reference, config, ArmKinematics(config).fk)  # a wrong one is told now, not after the episodes
    with explain_disk_errors(folder, "--out"), lock_folder(folder, "--out"):
        folder.bind(config, policy, fresh=fresh)
        at_once = 1 if _starts_groot(config, served) else workers
        made = _run_episodes(config, served, folder, seeds, reporter, at_once, make_world)
        episodes = folder.load(seeds)
        summary = {**summarise(episodes, config.dataset.report.confidence), "policy": policy, "task": config.task.name}
        measured, pictures = [], []
        if config.deploy.evaluation.metrics:
            measured = measuring.measure_episodes(config, folder, episodes, reporter, workers, reference)
        if measured:
            summary |= {"metrics": totals(measured), "diagnoses": measuring.diagnoses(measured)}
            pictures = measuring.draw(config, folder, measured, reference)
        figure = outcome_figure(config, episodes, summary, root.name)
        write_figure(folder.figure, figure)
        summary["mlflow_run"] = kept_run_id(folder.summary)
        write_json(folder.summary, summary)
        _film(config, folder, episodes, reporter, workers)
        params = {**{f"policy.{key}": value for key, value in policy.items()}, **_params(config, seeds)}
        with tracked_run(config, kind=kind, name=root.name, params=params, resume_id=summary["mlflow_run"]) as run:
            run.log({**metrics(summary), **summary.get("metrics", {})})
            run.figure("outcomes", figure)
            if run.id is not None:
                summary["mlflow_run"] = run.id
                write_json(folder.summary, summary)
            _keep_files(run, folder, summary, episodes, pictures)
    return Evaluated(folder, episodes, summary, made)


def _starts_groot(config: Config, served: Served) -> bool:
    """Whether a worker starts Isaac-GR00T: on the one port and the one GPU there is."""
    return served.name == "groot" and served.server is None and config.deploy.server.groot.host is None


def _run_episodes(
    config: Config,
    served: Served,
    folder: EvalFolder,
    seeds: range,
    reporter: Reporter,
    workers: int,
    make_world: MakeWorld,
) -> int:
    missing = folder.missing(seeds)
    reporter.start("episodes", len(seeds), len(seeds) - len(missing), "episodes")
    arguments = (config.model_dump_json(), served, folder.episodes, make_world)
    tried = strict = 0
    try:
        for seed, success, stage in map_unordered(
            worker.evaluate, missing, workers=min(workers, len(missing)), initializer=worker.begin, initargs=arguments
        ):
            tried, strict = tried + 1, strict + success
            reporter.advance(1, f"{strict}/{tried} strict; {seed}: {'success' if success else stage}")
    finally:
        worker.end()
    return len(missing)


def _film(config: Config, folder: EvalFolder, episodes: list[Episode], reporter: Reporter, workers: int) -> None:
    wanted = chosen(config, episodes)
    missing = [episode for episode in wanted if not video_path(folder.videos, episode).is_file()]
    if not missing:
        return
    reporter.start("videos", len(wanted), len(wanted) - len(missing), "videos")
    jobs = [episode_path(folder.episodes, episode.seed) for episode in missing]
    try:
        for path in map_unordered(
            worker.film,
            jobs,
            workers=min(workers, len(jobs)),
            initializer=worker.begin_videos,
            initargs=(config.model_dump_json(), folder.videos),
        ):
            reporter.advance(1, path.stem)
    finally:
        worker.end()


def _keep_files(
    run: NullRun, folder: EvalFolder, summary: dict[str, Any], episodes: list[Episode], pictures: list[Path]
) -> None:
    run.artifact(folder.summary)
    if "metrics" in summary:  # otherwise the file is of an earlier command, if it is there
        run.artifact(folder.metrics)
    for path in pictures:
        run.artifact(path, "figures")
    for episode in episodes:
        if (path := video_path(folder.videos, episode)).is_file():
            run.artifact(path, "videos")


def _params(config: Config, seeds: range) -> dict[str, Any]:
    control, settings = config.deploy.control, config.deploy.evaluation
    return {
        "task": config.task.name,
        "episodes": len(seeds),
        "first_seed": seeds.start,
        "execute_steps": control.execute_steps,
        "ema_alpha": control.ema_alpha,
        "overlap": control.overlap,
        "observation_delay_frames": settings.observation_delay_frames,
        "picture": f"{config.cameras.width_px}x{config.cameras.height_px}",
        "physics_randomised": config.scene.randomisation.enabled,
        "looks_randomised": config.render.randomisation.enabled,
    }


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
