"""The render stage: verified demos to one video a camera, by replaying states (no physics)."""

from __future__ import annotations

import math
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from so101.config import Config
from so101.datasets.demo import Demo, list_demos, load_demo
from so101.datasets.videos import probe_video
from so101.errors import DataError
from so101.files import remove_temporaries, write_json
from so101.pipeline.executors import make_executor
from so101.pipeline.jobs import Job, JobContext
from so101.pipeline.progress import Reporter, StageResult
from so101.pipeline.run_folder import RunFolder
from so101.rendering.looks import draw_looks
from so101.rendering.renderer import StateRenderer
from so101.rendering.video import VideoWriter

STAGE = "render"


def render_demos(config: Config, run: RunFolder, reporter: Reporter, workers: int) -> StageResult:
    """Videos of the first `skillgen.target_demos` verified demos, all cameras; what is whole already is skipped.

    Raises:
        DataError: no verified demo, or one that does not fit the configuration.
        SimulationError: no OpenGL context can be made.
    """
    paths = list_demos(run.verified)[: config.skillgen.target_demos]
    if not paths:
        raise DataError(f"nothing to render: no demo in {run.verified}; run `./twin verify` first, and see its causes")
    remove_temporaries(run.videos)
    frames, missing = 0, []
    for path in paths:
        demo = load_demo(path)
        check_demo(demo, config, path)
        frames += demo.num_frames
        if not is_complete(demo, config, run):
            missing.append(Job(demo.index, (path.relative_to(run.root).as_posix(),)))
    reporter.start(STAGE, len(paths), len(paths) - len(missing))
    context = JobContext("render", config.model_dump_json(), run.root)
    for index, _ in make_executor(config, workers).map_unordered(context, missing, reporter.message):
        reporter.advance(1, f"demo {index}")
    summary = {
        "setting": config.render.setting,
        "cameras": list(config.cameras.names),
        "frames": frames * len(config.cameras.names),
        "rendered_now": len(missing),
    }
    return StageResult(STAGE, len(paths), summary)


def check_demo(demo: Demo, config: Config, path: Path | str) -> None:
    """Raises DataError when a demo cannot be drawn with this configuration."""
    if demo.num_frames == 0:
        raise DataError(f"{path}: a demo without frames cannot be rendered; delete it and run the stage before again")
    if demo.task != config.task.name:
        raise DataError(
            f"{path}: made for task {demo.task!r}, this configuration has task {config.task.name!r}; "
            f"render it with --set task.name={demo.task}"
        )
    if not math.isclose(demo.fps, config.cameras.fps_hz):
        raise DataError(
            f"{path}: has {demo.fps:g} frames a second, cameras.yaml: fps_hz is {config.cameras.fps_hz:g}; "
            "make them equal"
        )


def is_complete(demo: Demo, config: Config, run: RunFolder) -> bool:
    """All cameras have a readable video with as many frames as the demo, and drawn looks are written down."""
    if config.render.randomisation.enabled and not run.looks(demo.index).is_file():
        return False
    for camera in config.cameras.names:
        path = run.video(demo.index, camera)
        try:
            if not path.is_file() or probe_video(path).num_frames != demo.num_frames:
                return False
        except DataError:
            return False
    return True


def render_demo(demo: Demo, config: Config, run: RunFolder, renderer: StateRenderer) -> None:
    """Write the videos of one demo, and the looks drawn for it. Videos are encoded side by side, so that a state is
    computed once for all cameras."""
    looks = draw_looks(config, demo.seed)
    renderer.set_scene(demo.meta.get("randomisation", {}), looks)
    with ExitStack() as stack:
        writers = {
            camera: stack.enter_context(VideoWriter(run.video(demo.index, camera), config))
            for camera in config.cameras.names
        }
        for frame in range(demo.num_frames):
            renderer.set_state(demo.q[frame], {name: poses[frame] for name, poses in demo.objects.items()})
            for camera, writer in writers.items():
                writer.write(renderer.draw_state(camera))
    if looks:
        write_json(run.looks(demo.index), looks)


class RenderJobs:
    """Renders demo files, with one renderer: making a context and a model takes a second. Jobs of kind "render"."""

    def __init__(self, settings: str, folder: Path) -> None:
        self._renderer = StateRenderer(Config.model_validate_json(settings))

    def run(self, job: Job, folder: Path) -> dict[str, Any]:
        render_demo(load_demo(folder / job.inputs[0]), self._renderer.config, RunFolder(folder), self._renderer)
        return {}

    def close(self) -> None:
        self._renderer.close()
