"""Demos as a real arm would give them: an expert drives pseudo-real rigs over the servo protocol, cameras are recorded
at the control rate, what worked becomes a LeRobot dataset. For co-training: neither rigs nor placements are evaluated.

Attempts are functions of their number, so a killed recording goes on where it was and gives the same files.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from so101.config import Config
from so101.datasets.demo import list_demos, load_demo
from so101.datasets.rollouts import EpisodeRecorder, SessionFolder, export_dataset
from so101.errors import DataError, InsufficientDemosError
from so101.evaluation.closed_loop.bus_world import BusWorld
from so101.evaluation.closed_loop.episode import run_episode
from so101.evaluation.closed_loop.folder import EvalFolder
from so101.evaluation.closed_loop.record import Episode, save_episode
from so101.evaluation.closed_loop.world import World
from so101.evaluation.transfer import RigWorlds, check_apart
from so101.pipeline.progress import Reporter, StageResult
from so101.pipeline.run_folder import RunFolder
from so101.pipeline.session import explain_disk_errors, lock_folder
from so101.policies import Policy, PolicyOptions, make_policy
from so101.tasks.start import draw_start

_SAME_M = 1e-6  # a plan belongs to the placement of its seed


@dataclass(frozen=True)
class _Attempt:
    """What is tried: `plan` is the file of a demo whose commands are replayed; None: the expert plans itself."""

    index: int
    seed: int
    plan: Path | None


def record_pseudo_real(
    config: Config,
    root: Path,
    demos: int,
    reporter: Reporter,
    *,
    plans: Path | None = None,
    workers: int = 1,
    fresh: bool = False,
) -> StageResult:
    """Record until `demos` attempts worked, and write them to `root`/dataset (LeRobot v2.1). Seeds, rigs and their
    strength: deploy.transfer.demos.

    Args:
        plans: run whose verified demos are replayed, each on its own placement, in place of the scripted operator.
        workers: processes of the dataset stage; attempts are made one after the other.
        fresh: first remove the attempts that are there.

    Raises:
        ConfigError: as `check_apart`.
        RunFolderError: the folder holds attempts of other settings, or another command is at work there.
        InsufficientDemosError: fewer than `demos` attempts worked; those that did are in the dataset.
        DataError: plans are missing, or are for other placements than those of their seeds.
    """
    check_apart(config)
    folder = EvalFolder(root)
    with explain_disk_errors(folder, "--out"), lock_folder(folder, "--out"):
        return _record_all(config, root, demos, reporter, plans, workers, fresh)


def _record_all(
    config: Config, root: Path, demos: int, reporter: Reporter, plans: Path | None, workers: int, fresh: bool
) -> StageResult:
    settings = config.deploy.transfer.demos
    session, tried = SessionFolder(root), EvalFolder(root)
    worlds = RigWorlds(settings.strength, settings.first_seed, settings.first_rig, settings.rigs)
    source = "operator" if plans is None else f"plans of {plans.resolve().name}"
    tried.bind(config, {"source": source, "first_seed": settings.first_seed, **worlds.facts(config)}, fresh=fresh)
    if fresh:
        for path in list_demos(session.episodes):
            path.unlink()
        shutil.rmtree(session.run.videos, ignore_errors=True)
    session.clean_up()
    attempts = _attempts(config, plans, demos * settings.tries_per_demo)
    missing = tried.missing(attempt.seed for attempt in attempts)
    done = sum(e.strict for e in tried.load(a.seed for a in attempts if a.seed not in missing))
    reporter.start("record", demos, min(done, demos))
    with BusWorld(config, partial(worlds.rig, config)) as world:
        pilots = _Pilots(config)
        for attempt in attempts:
            if done >= demos:
                break
            if attempt.seed not in missing:
                continue
            episode = _record(config, session, world, pilots, attempt)
            save_episode(tried.episodes, episode)
            done += episode.strict
            told = f"{attempt.seed}: {'success' if episode.strict else episode.error or episode.stage}"
            reporter.advance(int(episode.strict), told)
    if done == 0:
        raise InsufficientDemosError(
            f"{root}: no attempt worked of {len(attempts)}; lower deploy.transfer.demos.strength"
        )
    result = export_dataset(config, session, reporter, workers=workers)
    if done < demos:
        raise InsufficientDemosError(
            f"{root}: {done} of {demos} demos after {len(attempts)} attempts; they are in {session.run.dataset}. "
            "Give more attempts (deploy.transfer.demos.tries_per_demo, or a run with more plans), or want fewer"
        )
    return result


class _Pilots:
    """Who drives, ready for an attempt."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._expert: Policy | None = None

    def of(self, attempt: _Attempt) -> tuple[Policy, dict[str, Any] | None]:
        """The policy and its options for `reset`."""
        if attempt.plan is not None:
            return make_policy(self._config, "replay", PolicyOptions(demo=attempt.plan)), None
        if self._expert is None:
            self._expert = make_policy(self._config, "expert", PolicyOptions(seed=attempt.seed))
        return self._expert, {"seed": attempt.seed}


class _Filmed:
    """A `World` whose every control period is recorded: what was seen and measured, then what was sent."""

    def __init__(self, world: World, recorder: EpisodeRecorder) -> None:
        self._world, self._recorder, self._seen = world, recorder, None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    def look(self) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        if self._seen is None:
            self._seen = self._world.look()
        return self._seen

    def act(self, q_target: np.ndarray) -> np.ndarray:
        q, pictures = self.look()
        sent = self._world.act(q_target)
        number = self._recorder.num_frames
        self._recorder.add(sent, q, {name: (number, picture) for name, picture in pictures.items()})
        self._seen = None
        return sent


def _record(config: Config, session: SessionFolder, world: World, pilots: _Pilots, attempt: _Attempt) -> Episode:
    """Make the attempt; its demo and videos are kept when it worked."""
    recorder = EpisodeRecorder(config, session, attempt.index, config.dataset.cameras, patient=True)
    try:
        policy, options = pilots.of(attempt)
        episode = run_episode(config, _Filmed(world, recorder), policy, attempt.seed, reset_options=options)
    except BaseException:
        recorder.discard()
        raise
    if not episode.strict:
        recorder.discard()
        return episode
    meta = {
        "policy": "replay" if attempt.plan else "expert",
        "rig": episode.meta["rig"],
        "start_objects": {name: poses[0].tolist() for name, poses in episode.objects.items()},
        "limited": episode.meta["limited"],
    }
    recorder.finish(task=config.task.name, seed=attempt.seed, outcome="success", meta=meta)
    return episode


def _attempts(config: Config, plans: Path | None, most: int) -> list[_Attempt]:
    if plans is None:
        first = config.deploy.transfer.demos.first_seed
        return [_Attempt(k, first + k, None) for k in range(most)]
    paths = list_demos(RunFolder(plans).verified)
    if not paths:
        raise DataError(f"{plans}: no verified demos to replay; make some with `./twin run --run {plans}`")
    attempts = []
    for k, path in enumerate(paths[:most]):
        demo = load_demo(path)
        start = draw_start(config, np.random.default_rng(demo.seed))
        if demo.task != config.task.name or any(
            name not in demo.objects or np.abs(pose - demo.objects[name][0]).max() > _SAME_M
            for name, pose in start.objects.items()
        ):
            raise DataError(
                f"{path}: was not planned for the placement that seed {demo.seed} draws now; use the task and settings "
                f"of {plans} (its run.json)"
            )
        attempts.append(_Attempt(k, demo.seed, path))
    return attempts
