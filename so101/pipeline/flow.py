"""The whole pipeline, or one stage of it, in one run folder.

Progress is read from disk by each stage, so the flow keeps no state: after a kill it calls the same stages again and
they do what is missing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from so101.config import Config
from so101.datasets.demo import demo_index, list_demos, load_demo
from so101.errors import DataError, InsufficientDemosError, RunFolderError
from so101.pipeline.progress import Reporter, StageResult
from so101.pipeline.run_folder import RunFolder
from so101.pipeline.session import open_run
from so101.pipeline.stages import STAGES

AroundStage = Callable[[str, Callable[[], StageResult]], StageResult]


def run_pipeline(
    config: Config,
    run: RunFolder,
    *,
    reporter: Reporter,
    workers: int,
    source: Path | None = None,
    fresh: bool = False,
    around_stage: AroundStage | None = None,
) -> dict[str, StageResult]:
    """Seeds -> generate -> filter -> smooth -> verify, again while verified demos are missing, -> render -> dataset ->
    report.

    Args:
        source: recording or HDF5 file the seeds come from; the scripted operator when None.
        fresh: remove this run's files first.
        around_stage: called with the name of each stage and what runs it; returns what that returned. For those who
            want to follow the stages.

    Returns:
        The last result of each stage by name.

    Raises:
        InsufficientDemosError: fewer verified demos than skillgen.target_demos (or none); the report is written first.
        RunFolderError: the folder is in use, made with other settings, full or read-only.
    """
    source_name = str(source.resolve()) if source is not None else None
    with open_run(run, config, source=source_name, fresh_from="seeds" if fresh else None):
        flow = _Flow(config, run, reporter, workers, around_stage)
        try:
            flow.stage("seeds", source=source)
            flow.require_seeds()
            flow.generate_until_verified()
            flow.stage("render")
            flow.stage("dataset")
        except InsufficientDemosError:
            flow.stage("report")  # it shows why
            raise
        flow.stage("report")
        return flow.results


def run_stage(
    name: str,
    config: Config,
    run: RunFolder,
    *,
    reporter: Reporter,
    workers: int,
    source: Path | None = None,
    fresh: bool = False,
) -> StageResult:
    """One stage in `run`. `source` is for the seeds stage; `fresh` removes its files and those of later stages first.

    Raises:
        DataError: what it needs is not there; names the stage to run first.
        RunFolderError: as in `run_pipeline`.
    """
    require_inputs(name, run)
    source_name = str(source.resolve()) if source is not None else None
    fresh_from = name if fresh else None
    with open_run(run, config, source=source_name, keep_source=name != "seeds", fresh_from=fresh_from):
        flow = _Flow(config, run, reporter, workers)
        more = {"seeds": {"source": source}, "generate": {"target": config.skillgen.target_demos}}
        return flow.stage(name, **more.get(name, {}))


def require_inputs(name: str, run: RunFolder) -> None:
    """Raise DataError when files that stage `name` needs are missing."""
    for pattern in STAGES[name].needs:
        if next(run.root.glob(pattern), None) is None:
            maker = next(stage.name for stage in STAGES.values() if pattern in stage.makes)
            raise DataError(
                f"{name} needs {run.root / pattern}, which is not there; run `./twin {maker} --run {run.root}` first, "
                f"or `./twin run --run {run.root}` for all stages"
            )


class _Flow:
    """The arguments every stage takes, and what the stages said."""

    def __init__(
        self,
        config: Config,
        run: RunFolder,
        reporter: Reporter,
        workers: int,
        around_stage: AroundStage | None = None,
    ) -> None:
        self.config, self.run, self.reporter, self.workers = config, run, reporter, workers
        self._around = around_stage or (lambda name, work: work())
        self.results: dict[str, StageResult] = {}

    def stage(self, name: str, **more: Any) -> StageResult:
        def work() -> StageResult:
            return STAGES[name].load()(self.config, self.run, self.reporter, self.workers, **more)

        self.results[name] = self._around(name, work)
        return self.results[name]

    def require_seeds(self) -> None:
        if self.results["seeds"].produced == 0:
            raise InsufficientDemosError(
                f"No seed demonstration is usable (0 kept); {self.run.seeds_report} says why for each recording. "
                "Use another recording (--seeds), or relax the import settings of teleop.yaml"
            )

    def generate_until_verified(self) -> None:
        """Ask for as many more attempts as verification turned away, until enough are verified or attempts run out."""
        target = self.config.skillgen.target_demos
        wanted = self._first_wanted(target)
        while True:
            generated = self.stage("generate", target=wanted)
            for name in ("filter", "smooth", "verify"):
                self.stage(name)
            verified = self.results["verify"].produced
            last = generated.summary.get("exhausted", False) or not self.config.skillgen.generation_guarantee
            if verified >= target or last:
                break
            wanted += target - verified
            self.reporter.message(f"{verified} of {target} verified; generating {target - verified} more")
        needed = target if self.config.skillgen.generation_guarantee else 1
        if verified < needed:
            raise InsufficientDemosError(self._shortfall(verified, needed))

    def _first_wanted(self, target: int) -> int:
        """The number an interrupted run had come to, found by going through its rounds with the results on disk. Asking
        for `target` again would drop the attempts of later rounds, only to make them once more."""
        kept = _kept_so_far(self.run)
        verified = {demo_index(path) for path in list_demos(self.run.verified)}
        judged = verified | {demo_index(path) for path in list_demos(self.run.rejected)}
        wanted = target
        while wanted <= len(kept) and judged.issuperset(kept[:wanted]):
            missing = target - len(verified.intersection(kept[:wanted]))
            if missing <= 0:
                break
            wanted += missing
        return wanted

    def _shortfall(self, verified: int, needed: int) -> str:
        failed, rejected = _causes(self.run.failed), _causes(self.run.rejected)
        attempts = len(list_demos(self.run.generated)) + len(list_demos(self.run.failed))
        way_out = f"`--demos {verified}` makes a dataset of those; " if verified else ""
        return (
            f"{verified} demos are verified, {needed} are wanted (skillgen.target_demos).\n"
            f"{attempts} attempts are on disk, {sum(failed.values())} failed: {_listed(failed)}.\n"
            f"{sum(rejected.values())} failed again in open-loop replay: {_listed(rejected)}.\n"
            f"{self.run.report / 'index.html'} shows where. {way_out}`--set skillgen.max_attempts=N` allows more "
            f"attempts (now {self.config.skillgen.max_attempts}); finished ones are kept"
        )


def _kept_so_far(run: RunFolder) -> list[int]:
    """Indices kept by the last filter stage, in order; none when it has not run."""
    try:
        return sorted(json.loads(run.filter_report.read_text(encoding="utf-8"))["kept"])
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError) as error:
        raise RunFolderError(
            f"{run.filter_report}: not written by the filter stage ({error}); `./twin filter --fresh --run {run.root}` "
            "makes it anew"
        ) from None


def _causes(folder: Path) -> Counter[str]:
    return Counter(load_demo(path).cause or "unknown" for path in list_demos(folder))


def _listed(causes: Counter[str]) -> str:
    """Most frequent first, equal ones by name."""
    return ", ".join(f"{cause} {causes[cause]}" for cause in sorted(causes, key=lambda c: (-causes[c], c))) or "none"
