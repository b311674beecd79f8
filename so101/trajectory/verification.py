"""The verify stage: every smoothed demo is replayed open loop with physics and kept only if it succeeds again.

What goes on carries the states of the replay, so that in the dataset the observations are those its actions cause.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from so101.config import Config
from so101.datasets.demo import Demo, demo_index, list_demos, load_demo, save_demo
from so101.errors import DataError, SimulationError
from so101.pipeline.executors import make_executor
from so101.pipeline.jobs import Job, JobContext
from so101.pipeline.progress import Reporter, StageResult
from so101.pipeline.run_folder import RunFolder
from so101.sim.mujoco_sim import MujocoSimulator
from so101.skillgen import causes
from so101.skillgen.generate import is_kept
from so101.tasks.success import judge


class Verifier:
    """Replays demos of one configuration."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.simulator = MujocoSimulator(config)

    def replay(self, demo: Demo) -> Demo:
        """`demo` with the states, tests and cause of its open-loop replay."""
        q, objects = self.run_open_loop(demo.physics_state, demo.q_target, demo.meta.get("randomisation", {}))
        verdict = judge(self.config, objects, q)
        replayed = demo.replace(
            q=q,
            objects=objects,
            strict=verdict.strict,
            geometric=verdict.geometric,
            meta={**demo.meta, "replay": verdict.figures()},
        )
        failed = causes.cause_at_end(verdict.container_moved_m, self.config.task.active.success.container_push_m)
        return replayed.replace(cause="" if is_kept(self.config, replayed) else failed)

    def run_open_loop(
        self, physics_state: np.ndarray, q_target: np.ndarray, randomisation: Mapping[str, Any]
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Joint targets (T, 6) rad from a physics state, with the physics of a demo's draw: measured joints (T, 6) and
        object poses (T, 7) before each of them.

        Raises:
            DataError: the state belongs to another model.
            SimulationError: so does the draw.
        """
        sim = self.simulator
        if len(physics_state) != sim.physics_state_size:
            raise DataError(
                f"the demo's physics state has {len(physics_state)} numbers, this scene needs "
                f"{sim.physics_state_size}: "
                "it was made with another scene.yaml or task; generate again"
            )
        sim.randomise(0, randomisation)
        sim.set_physics_state(0, physics_state)
        qpos = np.empty((len(q_target), sim.model.nq))
        for row, target in zip(qpos, q_target, strict=True):
            row[:] = sim.data[0].qpos
            sim.step(0, target)
        return qpos[:, :6], {name: qpos[:, sim.object_slice(name)] for name in sim.object_names}


class VerifyJobs:
    """Replays demo files, each into the folder where it belongs. Jobs of kind "verify"."""

    def __init__(self, settings: str, folder: Path) -> None:
        self._verifier = Verifier(Config.model_validate_json(settings))

    def run(self, job: Job, folder: Path) -> dict[str, Any]:
        path, run = folder / job.inputs[0], RunFolder(folder)
        demo = load_demo(path)
        try:
            demo = self._verifier.replay(demo)
        except (DataError, SimulationError) as error:
            raise type(error)(f"{path}: {error}") from None
        save_demo(run.rejected if demo.cause else run.verified, demo)
        return {"cause": demo.cause}

    def close(self) -> None:
        pass


def verify_demos(config: Config, run: RunFolder, reporter: Reporter, workers: int) -> StageResult:
    """Replay what `smoothed/` holds into `verified/` or `rejected/`; results of demos that are no longer there are
    removed."""
    smoothed = {demo_index(path): path for path in list_demos(run.smoothed)}
    results: dict[int, str] = {}
    for folder in (run.verified, run.rejected):
        for path in list_demos(folder):
            if demo_index(path) in smoothed:
                results[demo_index(path)] = load_demo(path).cause
            else:
                path.unlink()
    missing = [
        Job(index, (path.relative_to(run.root).as_posix(),)) for index, path in smoothed.items() if index not in results
    ]
    reporter.start("verify", len(smoothed), len(results))
    if missing:
        context = JobContext("verify", config.model_dump_json(), run.root)
        for index, replay in make_executor(config, workers).map_unordered(context, missing, reporter.message):
            results[index] = replay["cause"]
            reporter.advance()
    failed = Counter(cause for cause in results.values() if cause)
    summary = {"replayed": len(results), "rejected": sum(failed.values()), "causes": dict(sorted(failed.items()))}
    return StageResult("verify", len(results) - sum(failed.values()), summary)
