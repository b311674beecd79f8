"""The stages: where their code is, what they need, what they leave in the run folder, which settings decide it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from so101.pipeline.progress import StageResult
from so101.pipeline.run_folder import RunFolder


@dataclass(frozen=True)
class Stage:
    """One stage.

    Attributes:
        name: also the subcommand of `./twin`.
        function: "module:function", imported when the stage runs: most commands need few of the heavy libraries.
        needs: glob patterns below the run folder; each must match something before the stage can run.
        makes: glob patterns of all files it writes; `--fresh` removes these and nothing else.
        settings: dotted prefixes of the settings that decide what it makes; the longest prefix wins over all stages.
    """

    name: str
    function: str
    needs: tuple[str, ...]
    makes: tuple[str, ...]
    settings: tuple[str, ...] = ()

    def load(self) -> Callable[..., StageResult]:
        module, _, function = self.function.partition(":")
        return getattr(import_module(module), function)

    def files(self, run: RunFolder) -> Iterator[Path]:
        """Files of this stage that exist."""
        for pattern in self.makes:
            yield from (path for path in run.root.glob(pattern) if path.is_file())

    def has_files(self, run: RunFolder) -> bool:
        return next(self.files(run), None) is not None


STAGES = {
    stage.name: stage
    for stage in (
        Stage(
            "seeds",
            "so101.datasets.seeding:make_seeds",
            needs=(),
            makes=("seeds.hdf5", "seeds.json"),
            settings=("robot", "scene", "task", "teleop"),
        ),
        Stage(
            "generate",
            "so101.skillgen.generate:generate",
            needs=("seeds.hdf5",),
            makes=("generated/demo_*.npz", "failed/demo_*.npz"),
            settings=("skillgen", "ik", "scene.randomisation"),
        ),
        Stage(
            "filter",
            "so101.trajectory.filtering:filter_demos",
            needs=("generated/demo_*.npz",),
            makes=("filter.json",),
            settings=("skillgen.keep",),
        ),
        Stage(
            "smooth",
            "so101.trajectory.smoothing:smooth_demos",
            needs=("filter.json", "generated/demo_*.npz"),
            makes=("smoothed/demo_*.npz",),
            settings=("skillgen.smoothing",),
        ),
        Stage(
            "verify",
            "so101.trajectory.verification:verify_demos",
            needs=("smoothed/demo_*.npz",),
            makes=("verified/demo_*.npz", "rejected/demo_*.npz"),
        ),
        Stage(
            "render",
            "so101.rendering.stage:render_demos",
            needs=("verified/demo_*.npz",),
            makes=("videos/demo_*/*.mp4", "videos/demo_*/looks.json"),
            settings=("cameras", "render"),
        ),
        Stage(
            "dataset",
            "so101.datasets.lerobot_v21:write_dataset",
            needs=("verified/demo_*.npz", "videos/demo_*/*.mp4"),
            makes=("dataset/meta/*", "dataset/data/*/*.parquet", "dataset/videos/*/*/*.mp4"),
            settings=("dataset",),
        ),
        Stage(
            "report",
            "so101.evaluation.report:write_report",
            needs=(),
            makes=("report/*.html", "report/*.png", "report/*.svg", "report/*.json"),
            settings=("dataset.report",),
        ),
    )
}

FREE_SETTINGS = (
    "skillgen.target_demos",  # how many, never which: attempt i is the same demo whatever these say
    "skillgen.max_attempts",
    "skillgen.attempts_per_demo",
    "skillgen.generation_guarantee",
    "skillgen.presets",
    "task.grasp_check",
    "robot.identification",
    "robot.bus",
    "robot.leader",
    "robot.safety",
    "robot.virtual",
    "cameras.sources",
    "cameras.capture",
    "training",
    "deploy",
)


def stages_from(name: str) -> list[Stage]:
    """The stage `name` and all after it."""
    names = list(STAGES)
    return [STAGES[later] for later in names[names.index(name) :]]
