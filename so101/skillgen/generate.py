"""The generation stage: attempts in parallel until enough of them succeeded."""

from __future__ import annotations

import gc
from collections import Counter
from pathlib import Path
from typing import Any

from so101.config import Config
from so101.datasets.demo import Demo, demo_index, list_demos, load_demo, save_demo
from so101.datasets.seeds_hdf5 import read_seeds
from so101.evaluation.statistics import wilson_interval
from so101.files import remove_temporaries
from so101.pipeline.executors import make_executor
from so101.pipeline.jobs import Job, JobContext
from so101.pipeline.progress import Reporter, StageResult
from so101.pipeline.run_folder import RunFolder
from so101.skillgen.ik_rollout import AttemptRunner


def is_kept(config: Config, demo: Demo) -> bool:
    """Whether `keep` of skillgen.yaml lets this demo go on."""
    return demo.strict if config.skillgen.keep == "strict" else demo.geometric


def _without_frames(demo: Demo) -> Demo:
    """The first frame alone: enough to know that and how an attempt failed."""
    objects = {name: poses[:1] for name, poses in demo.objects.items()}
    return demo.replace(q=demo.q[:1], q_target=demo.q_target[:1], objects=objects)


class AttemptJobs:
    """Runs attempts and puts their files where they belong. Jobs of kind "attempt"."""

    def __init__(self, settings: str, folder: Path) -> None:
        config = Config.model_validate_json(settings)
        self._runner = AttemptRunner(config, read_seeds(RunFolder(folder).seeds, config.of_seeds))
        gc.collect()
        gc.freeze()  # model, seeds and libraries live as long as the worker: no need to look through them every time

    def run(self, job: Job, folder: Path) -> dict[str, Any]:
        config, run = self._runner.config, RunFolder(folder)
        demo = self._runner.run(job.index)
        passed = demo.strict or demo.geometric
        if not passed and not config.skillgen.keep_failed:
            demo = _without_frames(demo)
        save_demo(run.generated if passed else run.failed, demo)
        return {"kept": is_kept(config, demo), "cause": demo.cause}

    def close(self) -> None:
        pass


def _on_disk(config: Config, run: RunFolder) -> dict[int, tuple[bool, str]]:
    """index -> (kept, cause) of the attempts already made."""
    done = {}
    for path in [*list_demos(run.generated), *list_demos(run.failed)]:
        demo = load_demo(path)
        done[demo_index(path)] = is_kept(config, demo), demo.cause
    return done


class _Prefix:
    """The attempts 0..n-1 that are all done, and how many of them are kept: what counts, whatever order workers finish
    in."""

    def __init__(self, done: dict[int, tuple[bool, str]], target: int | None) -> None:
        self.done, self.target = done, target
        self.length = self.kept = 0
        self.extend()

    def extend(self) -> None:
        while not self.reached and self.length in self.done:
            self.kept += self.done[self.length][0]
            self.length += 1

    @property
    def reached(self) -> bool:
        return self.target is not None and self.kept >= self.target


def generate(
    config: Config, run: RunFolder, reporter: Reporter, workers: int, *, target: int | None = None
) -> StageResult:
    """Make attempts 0, 1, 2, ... until `target` of them are kept (with `generation_guarantee`) or `max_attempts` are
    made.

    The outcome is that of the shortest such run of attempt numbers: with any number of workers, and after any
    interruption, the same files remain.

    Args:
        target: kept demos wanted; `target_demos` when None. Not used without `generation_guarantee`.

    Raises:
        DataError: the seeds cannot be read or cut into subtasks.
    """
    settings = config.skillgen
    wanted = (target or settings.target_demos) if settings.generation_guarantee else None
    done = _on_disk(config, run)
    prefix = _Prefix(done, wanted)
    unit = "demos" if wanted else "attempts"
    reporter.start("generate", wanted or settings.max_attempts, prefix.kept if wanted else len(done), unit)
    if not prefix.reached and prefix.length < settings.max_attempts:
        context = JobContext("attempt", config.model_dump_json(), run.root, (run.seeds.name,))
        jobs = (Job(i) for i in range(settings.max_attempts) if i not in done)
        shown = prefix.kept
        results = make_executor(config, workers).map_unordered(context, jobs, reporter.message)
        for index, attempt in results:
            done[index] = attempt["kept"], attempt["cause"]
            prefix.extend()
            rate = sum(k for k, _ in done.values())
            note = f"{rate} of {len(done)} attempts succeeded"
            reporter.advance(min(prefix.kept, wanted) - shown if wanted else 1, note)
            shown = prefix.kept
            if prefix.reached:
                break
        results.close()
    for index in [i for i in done if i >= prefix.length]:  # finished out of turn
        del done[index]
    for folder in (run.generated, run.failed):  # also what a worker wrote before it could tell, or was writing
        remove_temporaries(folder)
        for path in list_demos(folder):
            if demo_index(path) >= prefix.length:
                path.unlink()
    return StageResult("generate", prefix.kept, _summary(config, done, prefix))


def _summary(config: Config, done: dict[int, tuple[bool, str]], prefix: _Prefix) -> dict:
    first = config.skillgen.base_seed
    low, high = wilson_interval(prefix.kept, prefix.length)
    return {
        "attempts": prefix.length,
        "kept": prefix.kept,
        "rate": prefix.kept / prefix.length if prefix.length else 0.0,
        "wilson_95": [low, high],
        "seeds": [first, first + max(prefix.length - 1, 0)],
        "causes": dict(sorted(Counter(cause for kept, cause in done.values() if cause).items())),
        "exhausted": prefix.length >= config.skillgen.max_attempts and not prefix.reached,
    }
